//! When a write is answered, it is served: ports, keys, routes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use serde_json::{Value, json};
use test_servers::ports::free_port;

use crate::client::{target, until};
use crate::database::place::{ADMIN, Folder, Running, consumer, protected, proxy, text};

fn stream(id: &str, port: u16, target: SocketAddr) -> Value {
    json!({ "id": id, "backend_scheme": "tcp", "listen_port": port, "backend_host": "127.0.0.1", "backend_port": target.port() })
}

/// What the target says by way of this port.
fn through(port: u16) -> Option<String> {
    let mut tcp = TcpStream::connect(("127.0.0.1", port)).ok()?;
    tcp.write_all(b"GET /stream HTTP/1.1\r\n\r\n").ok()?;
    tcp.shutdown(std::net::Shutdown::Write).ok()?;
    let mut text = String::new();
    tcp.read_to_string(&mut text).ok()?;
    Some(text)
}

#[test]
fn ports_open_and_close_with_their_proxies() {
    let folder = Folder::new();
    let running = Running::new(&folder);
    let (mut api, target, port) = (running.api(), target("behind"), free_port());
    assert!(through(port).is_none());
    api.good("PUT", "/v1/proxies/s", &stream("s", port, target));
    assert!(through(port).unwrap().contains("behind /stream"));
    let other = free_port();
    api.good("PUT", "/v1/proxies/s", &stream("s", other, target));
    assert!(through(other).unwrap().contains("behind /stream"));
    until("the port closes", || TcpStream::connect(("127.0.0.1", port)).is_err());
    assert_eq!(api.delete("/v1/proxies/s").status, 204);
    until("the port closes", || TcpStream::connect(("127.0.0.1", other)).is_err());
}

#[test]
fn a_port_that_somebody_has_closes_its_proxy_alone() {
    let folder = Folder::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let target = target("behind");
    {
        let running = Running::new(&folder);
        let mut api = running.api();
        let body = json!({ "proxies": [stream("s", port, target), proxy("a", "/a", target)] });
        let written = api.good("POST", "/v1/batch", &body).json();
        assert_eq!(written["ports_closed"][0]["id"], json!("s"), "{written}");
        let again = api.good("PUT", "/v1/proxies/s", &stream("s", port, target));
        assert!(again.header("ferrum-port-closed").is_some_and(|why| why.contains(&port.to_string())));
        assert_eq!(running.client().get("/a/x", None).status, 200);
        assert_eq!(running.status()["proxies"]["ports_closed"][0]["id"], json!("s"));
        drop(taken);
        until("the port opens", || through(port).is_some_and(|text| text.contains("behind /stream")));
    }
    // Taken while the gateway was away: the others serve, and can be changed; the port stays closed.
    let mut taken = None;
    until("the port is free", || {
        taken = TcpListener::bind(("127.0.0.1", port)).ok();
        taken.is_some()
    });
    let running = Running::new(&folder);
    let mut api = running.api();
    assert_eq!(running.client().get("/a/x", None).status, 200);
    let other = free_port();
    api.good("PUT", "/v1/proxies/t", &stream("t", other, target));
    assert!(through(other).unwrap().contains("behind /stream"));
    api.good("PUT", "/v1/proxies/s", &stream("s", port, target));
    let named = json!({ "name": "still on the same port" });
    assert_eq!(api.send("PATCH", "/v1/proxies/s", &named).status, 200);
    drop(taken);
    // The next change of a stream proxy tries again.
    assert_eq!(api.delete("/v1/proxies/t").status, 204);
    assert!(through(port).unwrap().contains("behind /stream"));
}

#[test]
fn who_leaves_before_the_answer_leaves_nothing_half_done() {
    let folder = Folder::new();
    let running = Running::new(&folder);
    let target = target("behind");
    for n in 0..40 {
        let body = json!({ "proxies": [proxy(&format!("p{n}"), &format!("/p{n}"), target)] }).to_string();
        let mut tcp = TcpStream::connect(running.admin).unwrap();
        let head = format!(
            "POST /v1/batch HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {ADMIN}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        tcp.write_all(&[head.as_bytes(), body.as_bytes()].concat()).unwrap();
        // Now, or a little into it.
        if n % 2 == 0 {
            let seen = running.gateway.snapshot().revision;
            until("it is written", || running.gateway.snapshot().revision > seen || n % 4 == 0);
        }
        drop(tcp);
    }
    let mut api = running.api();
    // Some of the requests may be read only now.
    api.good("PUT", "/v1/proxies/last", &proxy("last", "/last", target));
    until("what is stored is served", || {
        let stored = api.get("/v1/proxies?limit=1000").json();
        let stored: Vec<&str> =
            stored["items"].as_array().unwrap().iter().map(|item| text(&item["id"])).collect();
        let snapshot = running.gateway.snapshot();
        let mut served: Vec<&str> = snapshot.by_id.iter().map(|(id, _)| id.as_str()).collect();
        served.sort_unstable();
        // Those that were waited for were not for nothing.
        served == stored && stored.len() >= 11
    });
}

#[test]
fn keys_work_and_stop_working_with_the_answer() {
    let folder = Folder::new();
    let running = Running::new(&folder);
    let (mut api, target) = (running.api(), target("behind"));
    api.batch(&protected(target));
    // One connection on each worker, and then some.
    let mut clients: Vec<_> = (0..6).map(|_| running.client()).collect();
    let mut last = "ann-key".to_owned();
    for n in 0..40 {
        let key = format!("key-{n}");
        api.good("PUT", "/v1/consumers/ann", &consumer("ann", &[&last, &key]));
        for client in &mut clients {
            assert_eq!(client.get("/a/x", Some(&key)).status, 200);
            assert_eq!(client.get("/a/x", Some(&last)).status, 200, "both, for the change of keys");
        }
        api.good("PUT", "/v1/consumers/ann", &consumer("ann", &[&key]));
        for client in &mut clients {
            assert_eq!(client.get("/a/x", Some(&last)).status, 401);
            assert_eq!(client.get("/a/x", Some(&key)).status, 200);
        }
        last = key;
    }
    // Sent back without credentials, or with what was shown of them, it keeps them.
    let shown = api.get("/v1/consumers/ann").json();
    api.good("PUT", "/v1/consumers/ann", &shown);
    api.good("PUT", "/v1/consumers/ann", &json!({ "username": "anna" }));
    assert_eq!(clients[0].get("/a/x", Some(&last)).text, "behind /x anna -");
    assert_eq!(api.delete("/v1/consumers/ann").status, 204);
    for client in &mut clients {
        assert_eq!(client.get("/a/x", Some(&last)).status, 401);
    }
}
