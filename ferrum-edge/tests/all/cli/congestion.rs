//! The kernel's congestion control for clients and targets: used where the kernel has it, else refused.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use crate::process::{Folder, Gateway, ferrum_edge, get};

fn spec(clients: &str, targets: &str, port: u16) -> String {
    format!(
        "
gateway: {{ http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off, workers: 1, congestion_control: {clients} }}
proxies:
  - {{ id: a, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, backend_port: {port},
      backend_congestion_control: {targets} }}
"
    )
}

#[test]
fn what_the_kernel_has_is_used() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            assert!(connection.read(&mut [0; 4096]).unwrap() > 0);
            connection
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")
                .unwrap();
        }
    });
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec("reno", "reno", port));
    let gateway = Gateway::start(&folder, |_| {});
    assert!(get(gateway.http, "/").ends_with("ok"));
}

#[test]
fn what_it_has_not_is_refused() {
    for (clients, targets, says) in [
        ("not_there", "reno", "gateway.congestion_control: the kernel has no congestion control `not_there`"),
        ("reno", "not_there", "proxy `a`: backend_congestion_control: the kernel has no congestion control"),
        ("reno", "'no name'", "can't be a congestion control"),
        ("a_name_that_is_too_long", "reno", "congestion_control"),
    ] {
        let folder = Folder::new();
        folder.write("ferrum.yaml", &spec(clients, targets, 9));
        let output = ferrum_edge(&folder).arg("run").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).replace("\\\"", "\"");
        assert!(!output.status.success() && said.contains(says), "{says}: {said}");
    }
}
