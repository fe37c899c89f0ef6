//! HTTP on a Unix socket.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};

use crate::process::{Folder, Gateway, ferrum_edge, get, spec, until};

fn with_socket(more: &str) -> String {
    spec(2, "ok").replace("gateway: {", &format!("gateway: {{ http_socket: http.sock, {more}"))
}

/// The answers to requests over one connection, the last of which closes it.
fn ask(folder: &Folder, requests: &str) -> String {
    let mut socket = UnixStream::connect(folder.path("http.sock")).unwrap();
    socket.write_all(requests.as_bytes()).unwrap();
    let mut answers = String::new();
    socket.read_to_string(&mut answers).unwrap();
    answers
}

const TWO: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

#[test]
fn requests_are_served_and_the_file_goes_with_the_gateway() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &with_socket("http_socket_mode: '0666',"));
    // Left behind by one that was killed.
    drop(UnixListener::bind(folder.path("http.sock")).unwrap());
    let mut gateway = Gateway::start(&folder, |_| {});
    let mode = std::fs::metadata(folder.path("http.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o666);
    for _ in 0..20 {
        let answers = ask(&folder, TWO);
        assert_eq!(answers.matches("HTTP/1.1 200 OK\r\n").count(), 2, "{answers}");
    }
    assert!(get(gateway.http, "/").starts_with("HTTP/1.1 200"), "the port is served as well");
    // A second gateway does not take it away.
    let second = ferrum_edge(&folder).args(["run"]).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&second.stderr).contains("http.sock"), "{second:?}");
    assert_eq!(ask(&folder, TWO).matches("200 OK").count(), 2);
    gateway.signal("TERM");
    gateway.wait();
    assert!(!folder.exists("http.sock"), "it goes with the gateway");
}

#[test]
fn its_clients_have_the_address_of_this_machine() {
    let folder = Folder::new();
    // Nobody listens at the target: who is let through gets 502.
    let spec = |allowed: &str| {
        format!(
            "
gateway: {{ http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off, workers: 2, http_socket: http.sock }}
proxies:
  - {{ id: a, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, backend_port: 9 }}
plugin_configs:
  - {{ id: near, plugin_name: ip_restriction, proxy_id: a, config: {{ allow: [{allowed}] }} }}
"
        )
    };
    folder.write("ferrum.yaml", &spec("127.0.0.1"));
    let gateway = Gateway::start(&folder, |_| {});
    let mode = std::fs::metadata(folder.path("http.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let one = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let answer = ask(&folder, one);
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    folder.write("ferrum.yaml", &spec("192.0.2.1"));
    gateway.signal("HUP");
    until("others are allowed", || ask(&folder, one).starts_with("HTTP/1.1 403"));
}

#[test]
fn what_is_no_socket_is_left_alone() {
    let folder = Folder::new();
    folder.write("http.sock", "a file");
    folder.write("ferrum.yaml", &with_socket(""));
    let output = ferrum_edge(&folder).args(["run"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(folder.read("http.sock"), "a file");
    for mode in ["0999", "0060", "x", "01777"] {
        folder.write("ferrum.yaml", &with_socket(&format!("http_socket_mode: '{mode}',")));
        let output = ferrum_edge(&folder).args(["check"]).output().unwrap();
        let said =
            String::from_utf8_lossy(&output.stderr).into_owned() + &*String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success() && said.contains("http_socket_mode"), "{mode}: {said}");
    }
}
