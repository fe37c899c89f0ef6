//! Upstreams whose targets are found by DNS, in database mode.

use std::net::{SocketAddr, TcpListener, UdpSocket};

use ferrum_edge::core::config::model::Settings;
use serde_json::json;

use crate::client::until;
use crate::database::place::{Folder, Running};

/// Answers each question about a service with a server on this port of this machine.
fn name_server(port: u16) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut query = [0; 1500];
        while let Ok((length, client)) = socket.recv_from(&mut query) {
            let name = query[12..length].iter().position(|byte| *byte == 0).unwrap_or(0);
            let question = &query[12..12 + name + 5];
            let mut answer = [&query[..2], &[0x85, 0x80, 0, 1, 0, 1, 0, 0, 0, 0], question].concat();
            answer.extend_from_slice(&[0xC0, 12, 0, 33, 0, 1, 0, 0, 0, 1, 0, 17, 0, 1, 0, 7]);
            answer.extend_from_slice(&port.to_be_bytes());
            answer.extend_from_slice(b"\x09localhost\x00");
            drop(socket.send_to(&answer, client));
        }
    });
    address
}

#[test]
fn a_service_is_found_and_shown() {
    let folder = Folder::new();
    let target = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = target.local_addr().unwrap().port();
    let settings = Settings { dns_servers: Box::new([name_server(port)]), ..Settings::default() };
    let running = Running::with(Running::database(folder.location()), settings);
    let mut api = running.api();
    api.batch(&json!({
        "upstreams": [{ "id": "u", "targets": [{ "host": "srv:_http._tcp.shop.test", "weight": 2 }] }],
        "proxies": [{ "id": "p", "listen_path": "/", "backend_scheme": "http", "upstream_id": "u" }],
    }));
    let status = || running.api().get("/v1/status").json();
    until("it is found", || status()["upstreams"]["list"][0]["target_count"] == json!(1));
    let shown = status();
    let address = format!("localhost:{port}");
    let target = &shown["upstreams"]["list"][0]["targets"][0];
    assert_eq!((&target["address"], &target["weight"]), (&json!(address), &json!(14)), "{shown}");
    let service = &shown["services"]["list"][0];
    assert_eq!((&service["name"], &service["servers"]), (&json!("_http._tcp.shop.test"), &json!(1)));
    assert_eq!(service["error"], json!(null));
    let metrics = running.api().get("/metrics").text;
    assert!(metrics.contains("ferrum_service_servers{service=\"_http._tcp.shop.test\"} 1"), "{metrics}");
    assert!(metrics.contains(&format!("ferrum_target_healthy{{upstream=\"u\",target=\"{address}\"}} 1")));
    // The configuration stays what was written.
    let stored = api.get("/v1/upstreams/u").json();
    assert_eq!(stored["targets"][0]["host"], json!("srv:_http._tcp.shop.test"));
}
