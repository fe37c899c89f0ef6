//! Ten faults of an operator's night: `status`, or one further command, names the cause and the setting or the remedy of each.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use super::memory::{HALVES, HOLDS_BODIES, half_body};
use crate::process::{Folder, Gateway, ferrum_edge, get, until};

/// A fault, how it is brought about, and how it is found.
struct Fault {
    name: &'static str,
    /// What a client sees.
    client_sees: &'static str,
    provoke: fn(&Gateway) -> String,
    /// The command, and all that it must say.
    command: &'static [&'static str],
    says: &'static [&'static str],
}

const FAULTS: &[Fault] = &[
    Fault {
        name: "target down",
        client_sees: "HTTP/1.1 502",
        provoke: |gateway| get(gateway.http, "/down"),
        command: &["status"],
        says: &["target_failing", "proxies.down 127.0.0.1:9", "Connection refused", "start the target"],
    },
    Fault {
        name: "target slow",
        client_sees: "HTTP/1.1 504",
        provoke: |gateway| get(gateway.http, "/slow"),
        command: &["status"],
        says: &["proxies.slow", "the target sent nothing for 300ms", "raise `backend_first_byte_timeout`"],
    },
    Fault {
        name: "DNS failing",
        client_sees: "HTTP/1.1 502",
        provoke: |gateway| get(gateway.http, "/unnamed"),
        command: &["status"],
        says: &["proxies.unnamed", "dns_failed (nowhere.invalid", "`gateway.dns_servers`"],
    },
    Fault {
        name: "expired certificate of the target",
        client_sees: "HTTP/1.1 502",
        provoke: |gateway| get(gateway.http, "/expired"),
        command: &["status"],
        says: &["proxies.expired", "certificate expired", "renew the target's certificate"],
    },
    Fault {
        name: "wrong Host",
        client_sees: "HTTP/1.1 421",
        provoke: |gateway| get(gateway.http, "/hosted"),
        command: &["logs", "--proxy", "hosted"],
        says: &["421", "answered by the target", "proxies.preserve_host_header"],
    },
    Fault {
        name: "body too large",
        client_sees: "HTTP/1.1 413",
        provoke: |gateway| send(gateway.http, "POST /small", "content-length: 2000", ""),
        command: &["logs", "--proxy", "small"],
        says: &["413", "body_too_large (proxies.max_request_body=1KiB)"],
    },
    Fault {
        name: "one customer is limited",
        client_sees: "HTTP/1.1 429",
        provoke: |gateway| {
            let ask = |key: &str| send(gateway.http, "GET /limited", &format!("x-api-key: {key}"), "");
            assert!(ask("ann-has-this-key").starts_with("HTTP/1.1 200"));
            assert!(ask("eve-has-this-key").starts_with("HTTP/1.1 200"), "another customer is served");
            ask("ann-has-this-key")
        },
        command: &["logs", "--status", "429"],
        says: &[" ann limited ", "rate_limited (rate_limiting.limits of hourly)"],
    },
    Fault {
        name: "false positive of the firewall",
        client_sees: "HTTP/1.1 400",
        provoke: |gateway| {
            send(gateway.http, "GET /walled?note=%3Cscript%3Ealert(1)%3C/script%3E", "accept: */*", "")
        },
        command: &["logs", "--proxy", "walled"],
        says: &["waf_rejected (waf.exclusions of wall)", "rules 10"],
    },
    Fault {
        name: "no connection to the target is left",
        client_sees: "HTTP/1.1 503",
        provoke: |gateway| {
            let mut held = TcpStream::connect(gateway.http).unwrap();
            held.write_all(b"GET /full HTTP/1.1\r\nhost: held.test\r\n\r\n").unwrap();
            let mut answer = String::new();
            until("the place is taken", || {
                answer = get(gateway.http, "/full");
                answer.starts_with("HTTP/1.1 503")
            });
            drop(held);
            answer
        },
        command: &["status"],
        says: &["targets_full", "upstreams.one 127.0.0.1:", "`max_requests` is 1"],
    },
];

/// The whole answer to a request.
fn send(address: SocketAddr, line: &str, field: &str, body: &str) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    let head = format!("{line} HTTP/1.1\r\nhost: shop.test\r\n{field}\r\nconnection: close\r\n\r\n{body}");
    connection.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

/// A server that answers each request head with what the closure makes of it; `None` leaves the client waiting.
fn target(answer: fn(&str) -> Option<&'static str>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut waiting = Vec::new();
        for mut connection in listener.incoming().map_while(Result::ok) {
            let mut head = [0; 4096];
            let length = connection.read(&mut head).unwrap_or_default();
            match answer(&String::from_utf8_lossy(&head[..length]).to_ascii_lowercase()) {
                Some(status) => {
                    let answer =
                        format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                    drop(connection.write_all(answer.as_bytes()));
                }
                None => waiting.push(connection),
            }
        }
    });
    port
}

/// A server with a certificate for `name`, valid until the end of `year`; writes it to a file, so that it can be trusted.
pub(super) fn tls_target(folder: &Folder, file: &str, name: &str, year: i32) -> u16 {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(year, 12, 31));
    let certificate = params.self_signed(&key).unwrap();
    folder.write(file, &certificate.pem());
    let chain = vec![CertificateDer::from(certificate.der().to_vec())];
    let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.unwrap().with_no_client_auth().with_single_cert(chain, key).unwrap();
    let config = std::sync::Arc::new(config);
    let listener = TcpListener::bind("localhost:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut connection in listener.incoming().map_while(Result::ok) {
            let mut tls = rustls::ServerConnection::new(config.clone()).unwrap();
            while tls.is_handshaking() && tls.complete_io(&mut connection).is_ok() {}
        }
    });
    port
}

fn night(folder: &Folder) -> Gateway {
    let silent = target(|_| None);
    let served = target(|_| Some("200 OK"));
    let hosted =
        target(|head| Some(if head.contains("host: shop.test") { "200 OK" } else { "421 Misdirected" }));
    let expired = tls_target(folder, "expired.pem", "localhost", 2020);
    let spec = format!(
        "
gateway: {{ http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off, workers: 1, access_log: {{ path: access.log }} }}
consumers:
  - {{ id: ann, username: ann, credentials: {{ key_auth: [{{ key: ann-has-this-key }}] }} }}
  - {{ id: eve, username: eve, credentials: {{ key_auth: [{{ key: eve-has-this-key }}] }} }}
upstreams:
  - {{ id: one, targets: [{{ host: 127.0.0.1, port: {silent}, max_requests: 1 }}] }}
proxies:
  - {{ id: down, listen_path: /down, backend_host: 127.0.0.1, backend_port: 9 }}
  - {{ id: slow, listen_path: /slow, backend_host: 127.0.0.1, backend_port: {silent}, backend_first_byte_timeout: 300ms }}
  - {{ id: unnamed, listen_path: /unnamed, backend_host: nowhere.invalid, backend_port: 80 }}
  - {{ id: expired, listen_path: /expired, backend_scheme: https, backend_host: localhost, backend_port: {expired}, backend_tls_ca_path: expired.pem }}
  - {{ id: hosted, listen_path: /hosted, backend_host: 127.0.0.1, backend_port: {hosted} }}
  - {{ id: small, listen_path: /small, backend_host: 127.0.0.1, backend_port: {served}, max_request_body: 1KiB }}
  - {{ id: limited, listen_path: /limited, backend_host: 127.0.0.1, backend_port: {served}, plugins: [{{ plugin_config_id: keys }}, {{ plugin_config_id: hourly }}] }}
  - {{ id: walled, listen_path: /walled, backend_host: 127.0.0.1, backend_port: {served}, plugins: [{{ plugin_config_id: wall }}] }}
  - {{ id: full, listen_path: /full, upstream_id: one }}
plugin_configs:
  - {{ id: keys, plugin_name: key_auth, scope: proxy_group }}
  - {{ id: hourly, plugin_name: rate_limiting, scope: proxy_group, config: {{ limit_by: consumer, limits: [{{ rate: 1, per: 1h }}] }} }}
  - {{ id: wall, plugin_name: waf, scope: proxy_group, config: {{}} }}
"
    );
    folder.write("ferrum.yaml", &spec);
    Gateway::start(folder, |_| {})
}

/// What a command says, on both outputs.
fn output_of(folder: &Folder, command: &[&str]) -> String {
    let output = ferrum_edge(folder).args(command).output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

#[test]
fn nine_faults_are_named_by_one_command() {
    let folder = Folder::new();
    let gateway = night(&folder);
    for fault in FAULTS {
        let seen = (fault.provoke)(&gateway);
        assert!(seen.starts_with(fault.client_sees), "{}: {seen}", fault.name);
        let names_all = || {
            let output = output_of(&folder, fault.command);
            fault.says.iter().all(|word| output.contains(word))
        };
        until(&format!("`{}` names: {}", fault.command.join(" "), fault.name), names_all);
    }
    // Before the next request, `explain` shows the Host that the target would get.
    let admin = gateway.admin.to_string();
    let explained = output_of(&folder, &["explain", "GET", "http://shop.test/hosted", "--admin", &admin]);
    assert!(
        explained.contains("host:      127.0.0.1:") && explained.contains("preserve_host_header"),
        "{explained}"
    );
}

/// Requests whose bodies come half and are held, until memory is short.
#[test]
fn memory_pressure_is_named_by_status() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", HOLDS_BODIES);
    let gateway = Gateway::start(&folder, |_| {});
    let held: Vec<_> = (0..HALVES).map(|_| half_body(&gateway)).collect();
    until("`status` names memory, the setting and the remedy", || {
        let output = output_of(&folder, &["status"]);
        let words = ["overloaded", "gateway.overload", "memory", "add memory, descriptors or gateways"];
        words.iter().all(|word| output.contains(word))
    });
    drop(held);
}
