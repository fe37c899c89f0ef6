//! TCP streams and WebSockets during a drain.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use crate::process::{Folder, Gateway, TIMEOUT, until};

/// A target that echoes, depending on its first bytes: `/ws` is a WebSocket, and it never answers `/stuck`.
fn target() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for tcp in listener.incoming() {
            thread::spawn(move || serve(tcp.unwrap()));
        }
    });
    address
}

fn serve(mut tcp: TcpStream) {
    let mut bytes = [0; 4096];
    while let Ok(length @ 1..) = tcp.read(&mut bytes) {
        let text = String::from_utf8_lossy(&bytes[..length]);
        if text.starts_with("GET /ws") {
            let accept = "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
            let head = "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n";
            write!(tcp, "{head}{accept}\r\n\r\n").unwrap();
        } else if !text.starts_with("GET /stuck") {
            drop(tcp.write_all(&bytes[..length]));
        }
    }
}

struct Place {
    gateway: Gateway,
    stream: TcpStream,
    websocket: TcpStream,
    stuck: TcpStream,
}

/// A binary message of a client, masked with zeros, and the same message as the target returns it.
const MESSAGE: &[u8] = &[0x82, 0x82, 0, 0, 0, 0, b'h', b'i'];

/// A draining gateway with a TCP stream, a WebSocket and a request that is never answered, after the drain timeout.
fn drained(streams: &str) -> Place {
    let (folder, target) = (Folder::new(), target());
    let port = test_servers::ports::free_port();
    folder.write(
        "ferrum.yaml",
        &format!(
            "gateway: {{http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off, stream_address: 127.0.0.1, workers: 1,\n\
               drain_timeout: 1s{streams}}}\n\
             proxies:\n  - {{id: all, listen_path: /, strip_listen_path: false, backend_host: 127.0.0.1, backend_port: {0}}}\n  \
             - {{id: tcp, listen_port: {port}, backend_scheme: tcp, backend_host: 127.0.0.1, backend_port: {0}}}\n",
            target.port()
        ),
    );
    let gateway = Gateway::start(&folder, |_| {});
    let connect = |to: SocketAddr, first: &[u8]| {
        let mut tcp = TcpStream::connect(to).unwrap();
        tcp.set_read_timeout(Some(TIMEOUT)).unwrap();
        tcp.write_all(first).unwrap();
        tcp
    };
    let mut stream = connect(SocketAddr::from(([127, 0, 0, 1], port)), b"");
    echoes(&mut stream, b"hello");
    let upgrade = b"GET /ws HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
        sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let mut websocket = connect(gateway.http, upgrade);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        websocket.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    echoes(&mut websocket, MESSAGE);
    let stuck = connect(gateway.http, b"GET /stuck HTTP/1.1\r\nhost: a\r\n\r\n");
    until("all are there", || gateway.status()["connections"].as_u64() == Some(3));
    gateway.signal("TERM");
    until("the time is over", || gateway.log().contains("the drain's time is over"));
    Place { gateway, stream, websocket, stuck }
}

fn echoes(tcp: &mut TcpStream, bytes: &[u8]) {
    tcp.write_all(bytes).unwrap();
    let mut back = vec![0; bytes.len()];
    tcp.read_exact(&mut back).unwrap();
    assert_eq!(back, bytes);
}

/// The bytes that arrive until the connection is closed or reset.
fn rest(tcp: &mut TcpStream) -> Vec<u8> {
    let (mut all, mut bytes) = (Vec::new(), [0; 4096]);
    while let Ok(length @ 1..) = tcp.read(&mut bytes) {
        all.extend_from_slice(&bytes[..length]);
    }
    all
}

#[test]
fn streams_outlive_a_drain_that_waits_for_them() {
    let mut place = drained(", drain_streams: wait");
    assert_eq!(rest(&mut place.stuck), b"", "an exchange is cut off");
    echoes(&mut place.stream, b"still here");
    echoes(&mut place.websocket, MESSAGE);
    drop(place.stream);
    echoes(&mut place.websocket, MESSAGE);
    drop(place.websocket);
    assert_eq!(place.gateway.wait(), Some(0), "{}", place.gateway.log());
}

#[test]
fn streams_end_with_a_drain_that_closes_them() {
    let mut place = drained("");
    // Close frames have opcode 8. Code 1001 means that the server goes away.
    let closed = rest(&mut place.websocket);
    assert_eq!(closed.get(..4), Some(&[0x88, 2, 3, 0xe9][..]), "{closed:?}");
    assert_eq!(rest(&mut place.stuck), b"");
    assert_eq!(rest(&mut place.stream), b"");
    assert_eq!(place.gateway.wait(), Some(0));
}
