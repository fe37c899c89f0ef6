//! The admin listener as a client sees it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::{Gateway, source};

const SPEC: &str = "
gateway: { http: '127.0.0.1:0', https: off, workers: 1 }
proxies:
  - { id: one, listen_path: /one, backend_scheme: http, upstream_id: group }
upstreams:
  - { id: group, targets: [{ host: 127.0.0.1, port: 9, weight: 3 }, { host: 127.0.0.1, port: 10 }] }
";

#[test]
fn health_alone_is_asked_for_without_a_token() {
    use super::{Gate, door, endpoints};
    let mut open: Vec<&str> =
        endpoints::all().iter().filter(|row| row.gate == Gate::Health).map(|row| row.path).collect();
    let mut paths = door::HEALTH_PATHS;
    open.sort_unstable();
    paths.sort_unstable();
    assert_eq!(open, paths);
}

fn start() -> (Gateway, SocketAddr) {
    let registry = crate::plugins();
    let model = source::file::parse(SPEC, "test.yaml", &registry).unwrap();
    let gateway = Gateway::start(model, registry).unwrap();
    let admin = gateway.serve_admin(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    (gateway, admin)
}

/// What is answered to these bytes, until the other end closes.
fn ask(admin: SocketAddr, request: &str) -> String {
    let mut connection = TcpStream::connect(admin).unwrap();
    connection.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // A reset after an early refusal is an end, too.
    drop(connection.read_to_end(&mut answer));
    String::from_utf8(answer).unwrap()
}

fn get(admin: SocketAddr, path: &str) -> String {
    ask(admin, &format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"))
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

#[test]
fn it_is_ready_until_a_drain_begins() {
    let (gateway, admin) = start();
    for path in ["/livez", "/readyz", "/startupz", "/healthz"] {
        let answer = get(admin, path);
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nok\n"),
            "{path}: {answer}"
        );
        assert!(answer.contains("cache-control: no-store"), "{answer}");
    }
    assert!(get(admin, "/readyz?verbose").contains("[+] configuration: revision 1\n"));
    gateway.begin_drain();
    let answer = get(admin, "/readyz");
    assert!(
        answer.starts_with("HTTP/1.1 503") && answer.contains("[-] drain: the gateway drains"),
        "{answer}"
    );
    assert!(get(admin, "/livez").starts_with("HTTP/1.1 200"), "a draining gateway lives");
}

#[test]
fn status_tells_of_proxies_and_targets() {
    let (gateway, admin) = start();
    let status: Value = serde_json::from_str(body(&get(admin, "/v1/status"))).unwrap();
    assert_eq!(status["config"]["revision"], 1);
    assert_eq!(status["workers"], 1);
    assert_eq!(status["proxies"]["count"], 1);
    assert_eq!(status["listeners"]["http"], gateway.addresses().http.unwrap().to_string());
    let target = &status["upstreams"]["list"][0]["targets"][0];
    assert_eq!((&target["address"], &target["weight"]), (&"127.0.0.1:9".into(), &3.into()));
    assert_eq!(target["healthy"], true);
}

#[test]
fn metrics_are_openmetrics_only_where_that_is_accepted() {
    let (_gateway, admin) = start();
    for (accept, kind) in [
        ("", "text/plain; version=0.0.4; charset=utf-8"),
        ("accept: text/plain\r\n", "text/plain; version=0.0.4; charset=utf-8"),
        ("accept: */*\r\n", "text/plain; version=0.0.4; charset=utf-8"),
        (
            "accept: application/openmetrics-text\r\n",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        ),
    ] {
        let answer = ask(
            admin,
            &format!("GET /metrics HTTP/1.1\r\nhost: localhost\r\n{accept}connection: close\r\n\r\n"),
        );
        assert!(answer.contains(&format!("content-type: {kind}\r\n")), "{accept}: {answer}");
        let text = body(&answer);
        assert!(
            text.contains("ferrum_target_healthy{upstream=\"group\",target=\"127.0.0.1:9\"} 1\n"),
            "{text}"
        );
        assert_eq!(text.ends_with("# EOF\n"), kind.contains("openmetrics"), "{accept}");
    }
}

#[test]
fn errors_are_problem_documents() {
    let (_gateway, admin) = start();
    let answer = get(admin, "/v2");
    assert!(answer.starts_with("HTTP/1.1 404") && answer.contains("application/problem+json"), "{answer}");
    let problem: Value = serde_json::from_str(body(&answer)).unwrap();
    assert_eq!((&problem["status"], &problem["code"]), (&404.into(), &"not_found".into()));
    let answer = ask(admin, "DELETE /v1/status HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 405") && answer.contains("allow: GET,HEAD"), "{answer}");
    assert!(answer.contains("application/problem+json"), "{answer}");
}

#[test]
fn hostile_heads_are_refused() {
    let (_gateway, admin) = start();
    let long = format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "x".repeat(1 << 20));
    let answer = ask_all(admin, long.as_bytes());
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    assert!(ask(admin, "rubbish\r\n\r\n").starts_with("HTTP/1.1 400"));
    assert!(get(admin, "/livez").starts_with("HTTP/1.1 200"), "and it goes on");
}

/// As [`ask`], for what may be refused before it is sent whole.
fn ask_all(admin: SocketAddr, bytes: &[u8]) -> String {
    let mut connection = TcpStream::connect(admin).unwrap();
    drop(connection.write_all(bytes));
    let mut answer = Vec::new();
    drop(connection.read_to_end(&mut answer));
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn an_address_in_use_is_told() {
    let (gateway, admin) = start();
    let error = gateway.serve_admin(admin).unwrap_err();
    assert!(error.to_string().contains("for admin"), "{error}");
}
