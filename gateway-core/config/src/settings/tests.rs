//! Layers over a file, as a user sees them.

use std::net::{IpAddr, SocketAddr};

use super::*;
use crate::model::Settings;
use crate::resolve::{ObjectPlace, settings};

fn read(path: &Path) -> io::Result<String> {
    match path == Path::new("/run/secrets/via") {
        true => Ok("from-a-file\n".to_owned()),
        false => Err(io::Error::from(io::ErrorKind::NotFound)),
    }
}

fn layer(name: &str) -> Layer<'_> {
    Layer { name, folder: Path::new("/work"), read: &read, also: &["FERRUM_LOG_LEVEL"] }
}

fn laid(gateway: &mut Gateway, values: &[(&str, &str)]) -> Applied {
    apply(
        gateway,
        values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
        layer("environment"),
    )
}

fn over(file: &str, values: &[(&str, &str)]) -> Settings {
    let mut gateway: Gateway = serde_json::from_str(file).expect("a test's own JSON");
    let applied = laid(&mut gateway, values);
    assert!(applied.problems.is_empty(), "{}", applied.problems);
    settings(&gateway, ObjectPlace { at: "gateway", folder: Path::new("/etc") })
        .unwrap_or_else(|p| panic!("{p}"))
}

fn address(text: &str) -> Option<SocketAddr> {
    Some(text.parse().expect("a test's own address"))
}

#[test]
fn listeners() {
    assert_eq!(over("{}", &[]), Settings::default());
    assert_eq!(over("{}", &[("FERRUM_PROXY_HTTP_PORT", "0")]).http, None);
    assert_eq!(over("{}", &[("FERRUM_PROXY_HTTP_PORT", "80")]).http, address("0.0.0.0:80"));
    assert_eq!(over(r#"{"http": "127.0.0.1:0"}"#, &[]).http, address("127.0.0.1:0"));
    assert_eq!(over(r#"{"http": "off"}"#, &[]).http, None);
    assert_eq!(over(r#"{"http": 0}"#, &[]).http, None);
    assert_eq!(over(r#"{"http": {"address": "::1"}}"#, &[]).http, address("[::1]:8000"));
    assert_eq!(over(r#"{"http": "off"}"#, &[("FERRUM_PROXY_HTTP_PORT", "81")]).http, address("0.0.0.0:81"));
    let both = [("FERRUM_PROXY_HTTP_PORT", "81"), ("FERRUM_PROXY_BIND_ADDRESS", "127.0.0.1")];
    let settings = over(r#"{"http": "10.0.0.1:80", "https": 444}"#, &both);
    assert_eq!(settings.http, address("127.0.0.1:81"));
    assert_eq!(settings.https, address("127.0.0.1:444"));
    assert_eq!(settings.stream_address, IpAddr::from([127, 0, 0, 1]));
    assert_eq!(settings.admin, Settings::default().admin);
    let free = over(r#"{"http": "0.0.0.0:0"}"#, &[("FERRUM_PROXY_BIND_ADDRESS", "::1")]);
    assert_eq!(free.http, address("[::1]:0"));
}

#[test]
fn values_of_every_kind() {
    let settings = over(
        r#"{"limits": {"max_headers": 7, "max_uri": 100}, "via": "mine", "access_log": {"path": "a.log"}}"#,
        &[
            ("FERRUM_MAX_HEADER_COUNT", "9"),
            ("FERRUM_TRUSTED_PROXIES", "10.0.0.0/8, 192.0.2.7"),
            ("FERRUM_ADD_FORWARDED_HEADER", "on"),
            ("FERRUM_VIA_PSEUDONYM_FILE", "/run/secrets/via"),
            ("FERRUM_ACCESS_LOG_QUEUE", "5"),
            ("FERRUM_HTTP_HEADER_READ_TIMEOUT_SECONDS", "3"),
            ("FERRUM_HTTP_BODY_TIMEOUT_SECONDS", "1500ms"),
            ("FERRUM_MAX_REQUEST_BODY_SIZE_BYTES", "2MiB"),
            ("FERRUM_SHUTDOWN_DRAIN_SECONDS", "2m"),
            ("FERRUM_FRONTEND_TLS_CERT_PATH", "c.pem"),
            ("FERRUM_FRONTEND_TLS_KEY_PATH", "/k.pem"),
            ("FERRUM_TLS_MIN_VERSION", "1.3"),
            ("FERRUM_ENABLE_HTTP3", "1"),
            ("FERRUM_HTTP_SOCKET", "/run/http.sock"),
            ("FERRUM_HTTP_SOCKET_MODE", "0640"),
            ("PATH", "/bin"),
        ],
    );
    assert_eq!((settings.limits.max_headers, settings.limits.max_uri), (9, 100));
    assert_eq!(settings.trusted_proxies.len(), 2);
    assert!(settings.forwarded_header && settings.http3);
    assert_eq!(settings.via.as_deref(), Some("from-a-file"));
    let log = settings.access_log.expect("switched on by the file");
    assert_eq!((log.path.as_path(), log.queue), (Path::new("/etc/a.log"), 5));
    assert_eq!(settings.client_timeouts.header.as_secs(), 3);
    assert_eq!(settings.client_timeouts.body.as_millis(), 1500);
    assert_eq!((settings.limits.max_request_body, settings.drain_timeout.as_secs()), (2 << 20, 120));
    assert_eq!(settings.tls.certificates[0].cert_path, Path::new("/work/c.pem"));
    assert_eq!(settings.tls.certificates[0].key_path, Path::new("/k.pem"));
    assert_eq!(settings.http_socket, Some(("/run/http.sock".into(), 0o640)));
    assert_eq!(over("{}", &[("FERRUM_ADD_VIA_HEADER", "false")]).via, None);
    assert_eq!(over("{}", &[("FERRUM_ACCESS_LOG", "-")]).access_log.map(|log| log.path), Some("-".into()));
}

#[test]
fn a_later_layer_goes_before() {
    let mut gateway = Gateway::default();
    laid(&mut gateway, &[("FERRUM_PROXY_HTTP_PORT", "81"), ("FERRUM_WORKER_THREADS", "2")]);
    let flags = [("FERRUM_PROXY_HTTP_PORT".to_owned(), "82".to_owned())];
    apply(&mut gateway, flags, layer("command line"));
    let settings = settings(&gateway, ObjectPlace { at: "", folder: Path::new("") }).expect("valid");
    assert_eq!((settings.http, settings.workers), (address("0.0.0.0:82"), 2));
}

#[test]
fn what_is_wrong_is_told_by_its_name() {
    let mut gateway = Gateway::default();
    let applied = laid(
        &mut gateway,
        &[
            ("FERRUM_PROXY_HTTP_PORT", "http"),
            ("FERRUM_PROXY_BIND_ADDRESS", "localhost"),
            ("FERRUM_WORKER_THREADS", "9999"),
            ("FERRUM_MAX_CONNECTIONS", "many"),
            ("FERRUM_TLS_MIN_VERSION", "1.1"),
            ("FERRUM_TRUSTED_PROXIES", "10.0.0.0/33"),
            ("FERRUM_VIA_PSEUDONYM", "a b"),
            ("FERRUM_ADD_VIA_HEADER", "maybe"),
            ("FERRUM_ACCESS_LOG_FILE", "nope"),
            ("FERRUM_FRONTEND_TLS_CERT_PATH", "c.pem"),
            ("FERRUM_LOG_LEVEL", "info"),
            ("FERRUM_LOG_LEVEL_FILE", "level.txt"),
            ("FERRUM_PROXI_HTTP_PORT", "1"),
            ("FERRUM_XYZ", "1"),
        ],
    );
    assert_eq!(gateway, Gateway::default());
    assert_eq!(
        applied.problems.to_string(),
        "environment: FERRUM_ACCESS_LOG_FILE: nope can't be read: entity not found\n\
         environment: FERRUM_PROXY_BIND_ADDRESS: `localhost` is not an address (write 127.0.0.1 or ::1)\n\
         environment: FERRUM_PROXY_HTTP_PORT: `http` is not a port (0 to 65535; 0 switches it off)\n\
         environment: FERRUM_WORKER_THREADS: 9999 is out of range (0 to 1024)\n\
         environment: FERRUM_TLS_MIN_VERSION: `1.1` is not known here (one of: 1.2, 1.3)\n\
         environment: FERRUM_MAX_CONNECTIONS: expected a whole number, found a string (write a number)\n\
         environment: FERRUM_TRUSTED_PROXIES: `10.0.0.0/33` is not an address or a CIDR block (such as 10.0.0.0/8 or \
         192.0.2.7)\n\
         environment: FERRUM_VIA_PSEUDONYM: `a b` can't be a pseudonym (letters, digits, `-` and `.`)\n\
         environment: FERRUM_ADD_VIA_HEADER: `maybe` is neither true nor false (write true or false)\n\
         environment: FERRUM_FRONTEND_TLS_CERT_PATH: FERRUM_FRONTEND_TLS_KEY_PATH is not set (a certificate and its \
         key go together)",
    );
    assert_eq!(
        applied.warnings.to_string(),
        "environment: FERRUM_LOG_LEVEL_FILE: FERRUM_LOG_LEVEL has no such form, so it changes nothing (set \
         FERRUM_LOG_LEVEL itself)\n\
         environment: FERRUM_PROXI_HTTP_PORT: nothing of this name is known, so it changes nothing (did you mean \
         FERRUM_PROXY_HTTP_PORT?)\n\
         environment: FERRUM_XYZ: nothing of this name is known, so it changes nothing",
    );
}

#[test]
fn every_row_of_the_table_works() {
    for setting in SETTINGS {
        assert!(setting.name.starts_with(PREFIX) && setting.doc.ends_with('.'), "{}", setting.name);
        let same = SETTINGS.iter().filter(|other| other.name == setting.name).count();
        assert_eq!(same, 1, "{}", setting.name);
        let value = match setting.how {
            How::Address(_) => "127.0.0.2",
            How::List if setting.key == "silence_warnings" => "no_proxies",
            How::List if setting.key == "not_ready_when" => "overloaded,any_proxy_closed",
            How::List if setting.key == "admin_totp_roles" => "admin,write",
            How::List => "192.0.2.1",
            How::Value if setting.key == "tls.min_version" => "1.3",
            How::Value if setting.key == "via" => "me",
            How::Value if setting.key == "acme.directory_url" => "https://ca.test/directory",
            How::Value if setting.key == "acme.email" => "ops@shop.test",
            How::Value if setting.key == "acme.challenge" => "tls-alpn-01",
            How::Value if setting.key == "acme.renew_before_days" => "30",
            How::Value if setting.key == "http_socket_mode" => "0640",
            How::Value if setting.key == "underscores_in_headers" => "allow",
            How::Value if setting.key == "drain_streams" => "wait",
            How::Value if setting.key == "overload.max_delay" => "20ms",
            How::Value => "2000",
            How::Port => "12",
            How::Switch | How::Via => "true",
            How::Path => "/x",
            // A pair: see `values_of_every_kind`.
            How::Certificate | How::Key => continue,
        };
        let read = setting.read(if setting.key == "workers" { "3" } else { value }, Path::new("/"));
        assert!(read.is_ok(), "{}: {read:?}", setting.name);
    }
}
