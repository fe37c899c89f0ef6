//! Sessions are listed, and ended one by one or all of a proxy.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

use serde_json::{Value, json};
use test_servers::ports::free_port;

use crate::client::{TIMEOUT, until};
use crate::database::place::{Folder, READ, Running, text};

/// Takes connections and keeps them.
fn silent_target() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for tcp in listener.incoming().map_while(Result::ok) {
            kept.push(tcp);
        }
    });
    address
}

fn stream(id: &str, port: u16, target: SocketAddr) -> Value {
    json!({
        "id": id, "backend_scheme": "tcp", "listen_port": port,
        "backend_host": "127.0.0.1", "backend_port": target.port(),
    })
}

fn open(port: u16) -> TcpStream {
    let mut tcp = TcpStream::connect(("127.0.0.1", port)).unwrap();
    tcp.write_all(b"up").unwrap();
    tcp
}

/// Whether the gateway has closed it; waits for that.
fn is_closed(tcp: &mut TcpStream) -> bool {
    matches!(tcp.read(&mut [0]), Ok(0) | Err(_))
}

/// What the first of these events says.
fn first_event(admin: SocketAddr, path: &str) -> Value {
    let mut tcp = TcpStream::connect(admin).unwrap();
    tcp.set_read_timeout(Some(TIMEOUT)).unwrap();
    write!(tcp, "GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {READ}\r\n\r\n").unwrap();
    let mut got = String::new();
    let mut buffer = [0; 4096];
    loop {
        if let Some(data) =
            got.split("event: counters\ndata: ").nth(1).and_then(|rest| rest.split_once("\n\n"))
        {
            assert!(got.contains("text/event-stream"), "{got}");
            return serde_json::from_str(data.0).unwrap();
        }
        let length = tcp.read(&mut buffer).unwrap();
        assert!(length > 0, "{got}");
        got.push_str(&String::from_utf8_lossy(&buffer[..length]));
    }
}

#[test]
fn sessions_are_listed_and_ended() {
    let folder = Folder::new();
    let running = Running::new(&folder);
    let mut api = running.api();
    let target = silent_target();
    let (one, two) = (free_port(), free_port());
    api.batch(&json!({ "proxies": [stream("one", one, target), stream("two", two, target)] }));
    let mut streams = [open(one), open(two), open(two)];
    let list = |path: &str| running.api().with(READ).get(path).json();
    until("they are open", || list("/v1/sessions")["open"] == json!(3));
    let of_one = list("/v1/sessions?proxy=one");
    let session = &of_one["items"][0];
    assert_eq!(of_one["items"].as_array().unwrap().len(), 1, "{of_one}");
    assert_eq!((&session["protocol"], &session["proxy"]), (&json!("tcp"), &json!("one")), "{session}");
    assert_eq!((&session["client"], &session["consumer"]), (&json!("127.0.0.1"), &Value::Null));
    until("its bytes are counted", || list("/v1/sessions?proxy=one")["items"][0]["bytes_up"] == json!(2));
    for (query, many) in [
        (format!("port={one}"), 1),
        ("client=127.0.0.1&protocol=tcp".to_owned(), 3),
        ("client=127.0.0.2".to_owned(), 0),
        ("protocol=udp".to_owned(), 0),
    ] {
        assert_eq!(
            list(&format!("/v1/sessions?{query}"))["items"].as_array().unwrap().len(),
            many,
            "{query}"
        );
    }
    assert_eq!(running.api().with(READ).get("/v1/sessions?client=me").status, 400);
    let page = list("/v1/sessions?limit=2");
    let rest = list(&format!("/v1/sessions?limit=2&after={}", text(&page["next"])));
    assert_eq!((page["items"].as_array().unwrap().len(), rest["items"].as_array().unwrap().len()), (2, 1));

    let event = first_event(running.admin, "/v1/sessions/counters?proxy=two");
    let expected = json!([{ "proxy": "two", "protocol": "tcp", "open": 2, "bytes_up": 4, "bytes_down": 0 }]);
    assert_eq!((&event["open"], &event["proxies"]), (&json!(2), &expected), "{event}");
    assert_eq!(running.api().with(READ).get("/v1/sessions/counters?interval=0").status, 400);

    let path = format!("/v1/sessions/{}", text(&session["id"]));
    assert_eq!(running.api().with(READ).delete(&path).status, 403);
    assert_eq!(api.delete(&path).status, 204);
    assert!(is_closed(&mut streams[0]));
    until("it is gone", || list("/v1/sessions")["open"] == json!(2));
    assert_eq!(api.delete(&path).status, 404);
    assert_eq!(api.delete("/v1/sessions").status, 400, "everybody is never meant by saying nothing");
    assert_eq!(api.delete("/v1/sessions?proxy=two").json()["ended"], json!(2));
    assert!(is_closed(&mut streams[1]) && is_closed(&mut streams[2]));
    until("they are gone", || list("/v1/sessions")["open"] == json!(0));
    assert_eq!(api.delete("/v1/sessions?consumer=nobody").json()["ended"], json!(0));
    assert_eq!(running.api().with("no such token, at all").get("/v1/sessions").status, 401);
}

/// The write succeeds, other proxies serve, and the status names the process that has the port.
#[test]
fn a_port_in_use_closes_the_written_proxy_alone() {
    let folder = Folder::new();
    let running = Running::new(&folder);
    let (mut api, target) = (running.api(), silent_target());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let (wanted, other) = (taken.local_addr().unwrap().port(), free_port());
    api.batch(&json!({ "proxies": [stream("taken", wanted, target), stream("other", other, target)] }));
    open(other);
    let closed = running.status()["proxies"]["ports_closed"].clone();
    assert_eq!(closed.as_array().unwrap().len(), 1, "{closed}");
    assert_eq!(closed[0]["id"], json!("taken"));
    let holder = format!("process {} (", std::process::id());
    assert!(text(&closed[0]["problem"]).contains(&holder), "{closed}");
    drop(taken);
    until("the port is opened", || running.status()["proxies"]["ports_closed_count"] == json!(0));
    open(wanted);
}

/// Sends a datagram and waits for the answer.
fn asked(socket: &UdpSocket) {
    socket.send(b"up").unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    assert_eq!(socket.recv(&mut [0; 16]).unwrap(), 2);
}

/// UDP sessions are in no table; their ports are asked.
#[test]
fn datagram_sessions_are_listed_and_ended() {
    let folder = Folder::new();
    let running = Running::new(&folder);
    let mut api = running.api();
    let target = UdpSocket::bind("127.0.0.1:0").unwrap();
    let behind = target.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((length, from)) = target.recv_from(&mut buffer) {
            let _sent = target.send_to(&buffer[..length], from);
        }
    });
    let port = free_port();
    let mut proxy = stream("dns", port, behind);
    proxy["backend_scheme"] = json!("udp");
    api.batch(&json!({ "proxies": [proxy] }));
    let clients: Vec<_> = (0..5).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    for client in &clients {
        client.connect(("127.0.0.1", port)).unwrap();
        asked(client);
    }
    let list = |path: &str| running.api().with(READ).get(path).json();
    until("they are open", || list("/v1/sessions")["open"] == json!(5));
    let mut seen = BTreeSet::new();
    let mut path = "/v1/sessions?proxy=dns&limit=2".to_owned();
    loop {
        let page = list(&path);
        for session in page["items"].as_array().unwrap() {
            assert_eq!((&session["protocol"], &session["client"]), (&json!("udp"), &json!("127.0.0.1")));
            assert!(seen.insert(text(&session["id"]).to_owned()), "{page}");
        }
        match page["next"].as_str() {
            Some(next) => path = format!("/v1/sessions?proxy=dns&limit=2&after={next}"),
            None => break,
        }
    }
    assert_eq!(seen.len(), 5, "{seen:?}");
    assert_eq!(list("/v1/sessions?proxy=other")["items"], json!([]));
    let path = format!("/v1/sessions/{}", seen.first().unwrap());
    assert_eq!((api.delete(&path).status, api.delete(&path).status), (204, 404));
    assert_eq!(list("/v1/sessions")["open"], json!(4));
    assert_eq!(api.delete("/v1/sessions?proxy=dns").json()["ended"], json!(4));
    assert_eq!(list("/v1/sessions")["open"], json!(0));
    // Whoever goes on begins a new one.
    asked(&clients[0]);
    assert_eq!(list("/v1/sessions")["open"], json!(1));
    assert_eq!(running.api().with(READ).get("/v1/sessions?after=x").status, 400);
}
