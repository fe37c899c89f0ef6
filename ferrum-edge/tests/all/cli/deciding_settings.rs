//! The record of a failed attempt names the setting that helps, or none where no setting of the gateway does.

use std::io::Read;
use std::net::TcpListener;

use serde_json::Value;

use super::ten_faults::tls_target;
use crate::process::{Folder, Gateway, get, until};

/// A server that closes each connection once it has read a request.
fn closing() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut connection in listener.incoming().map_while(Result::ok) {
            let _read = connection.read(&mut [0; 4096]);
        }
    });
    port
}

#[test]
fn a_failed_attempt_names_the_setting_that_helps() {
    let folder = Folder::new();
    let other = tls_target(&folder, "other.pem", "other.test", 2100);
    let unknown = tls_target(&folder, "unknown.pem", "localhost", 2100);
    let expired = tls_target(&folder, "expired.pem", "localhost", 2020);
    let closing = closing();
    let tls = |port: u16, ca: &str| {
        format!(
            "backend_scheme: https, backend_host: localhost, backend_port: {port}, backend_tls_ca_path: {ca}"
        )
    };
    // The path, how its target is reached, the reason and the setting.
    let cases = [
        ("name", tls(other, "other.pem"), "tls_certificate_error", "proxies.backend_tls_server_name"),
        ("unknown", tls(unknown, "other.pem"), "tls_certificate_error", "proxies.backend_tls_ca_path"),
        ("expired", tls(expired, "expired.pem"), "tls_certificate_error", ""),
        ("closing", format!("backend_host: 127.0.0.1, backend_port: {closing}"), "upstream_closed", ""),
        ("down", "backend_host: 127.0.0.1, backend_port: 9".into(), "connect_failed", "proxies.backend_port"),
        ("group", "upstream_id: down".into(), "connect_failed", "upstreams.targets"),
        (
            "dns",
            "backend_host: nowhere.invalid, backend_port: 80".into(),
            "dns_failed",
            "proxies.backend_host",
        ),
        ("unnamed", "upstream_id: unnamed".into(), "dns_failed", "upstreams.targets"),
    ];
    let proxies =
        cases.iter().map(|(id, way, ..)| format!("  - {{ id: {id}, listen_path: /{id}, {way} }}\n"));
    folder.write(
        "ferrum.yaml",
        &format!(
            "
gateway: {{ http: '127.0.0.1:0', admin: off, https: off, workers: 1, access_log: {{ path: access.log }} }}
upstreams:
  - {{ id: down, targets: [{{ host: 127.0.0.1, port: 9 }}] }}
  - {{ id: unnamed, targets: [{{ host: nowhere.invalid, port: 80 }}] }}
proxies:
{}",
            proxies.collect::<String>()
        ),
    );
    let gateway = Gateway::start(&folder, |_| {});
    for (id, ..) in &cases {
        get(gateway.http, &format!("/{id}"));
    }
    until("all are recorded", || folder.read("access.log").lines().count() == cases.len());
    let log = folder.read("access.log");
    let records: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (id, _, reason, setting) in cases {
        let record = records.iter().find(|record| record["proxy.id"] == id).unwrap();
        let text = |name: &str| record[name].as_str().unwrap_or_default();
        assert_eq!((text("error.type"), text("error.setting")), (reason, setting), "{record}");
    }
}
