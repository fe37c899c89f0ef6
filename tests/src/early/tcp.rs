//! Early data over TCP, by a client that decides itself when it goes on with its handshake.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::{ClientConfig, ClientConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{early, settings, spec};
use crate::support::edge::Edge;
use crate::support::h1::Talker;
use crate::support::standing::Standing;
use crate::support::wire::{Port, Wire};
use crate::support::{soon, tls};

/// A client's connection. Nothing is sent that a test does not have sent.
struct Client {
    tcp: TcpStream,
    session: ClientConnection,
    got: Vec<u8>,
}

fn config(alpn: &[&str]) -> Arc<ClientConfig> {
    let mut config = ClientConfig::clone(&tls::authority().client(alpn));
    config.enable_early_data = true;
    Arc::new(config)
}

impl Client {
    async fn open(to: SocketAddr, config: &Arc<ClientConfig>) -> Self {
        let tcp = soon(TcpStream::connect(to)).await.unwrap();
        tcp.set_nodelay(true).unwrap();
        let name = "gateway.test".try_into().unwrap();
        Self { tcp, session: ClientConnection::new(config.clone(), name).unwrap(), got: Vec::new() }
    }

    /// What is to be sent, not sent yet.
    fn pending(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        while self.session.wants_write() {
            self.session.write_tls(&mut out).unwrap();
        }
        out
    }

    async fn flush(&mut self) {
        let out = self.pending();
        soon(self.tcp.write_all(&out)).await.unwrap();
    }

    /// Reads once; false at the end.
    async fn fill(&mut self) -> bool {
        let mut octets = [0; 16 << 10];
        let read = soon(self.tcp.read(&mut octets)).await.unwrap_or(0);
        let mut input = &octets[..read];
        while !input.is_empty() {
            self.session.read_tls(&mut input).unwrap();
            self.session.process_new_packets().unwrap();
            let mut plain = [0; 4096];
            while let Ok(read @ 1..) = self.session.reader().read(&mut plain) {
                self.got.extend_from_slice(&plain[..read]);
            }
        }
        read > 0
    }

    async fn shake(&mut self) {
        self.flush().await;
        while self.session.is_handshaking() {
            assert!(self.fill().await, "the handshake ended early");
            self.flush().await;
        }
    }

    /// Sends the first flight with this in it.
    async fn early(&mut self, data: &[u8]) -> Vec<u8> {
        self.session.early_data().expect("leave for early data").write_all(data).unwrap();
        let flight = self.pending();
        soon(self.tcp.write_all(&flight)).await.unwrap();
        flight
    }

    /// An HTTP/1.1 answer, whose body says its length.
    async fn answer(&mut self) -> String {
        loop {
            let text = String::from_utf8_lossy(&self.got).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                if body.len() >= length.unwrap().parse().unwrap() {
                    self.got.clear();
                    return text;
                }
            }
            assert!(self.fill().await, "the answer ended early: {text}");
        }
    }

    async fn ask(&mut self, request: &str) -> String {
        self.session.writer().write_all(request.as_bytes()).unwrap();
        self.flush().await;
        self.answer().await
    }
}

const GET: &str = "GET / HTTP/1.1\r\nhost: a.test\r\n\r\n";

/// A connection like any other, which leaves tickets.
async fn acquaint(edge: &mut Edge, config: &Arc<ClientConfig>) {
    let mut client = Client::open(edge.https(), config).await;
    client.shake().await;
    let answer = client.ask(GET).await;
    assert!(answer.starts_with("HTTP/1.1 200") && !answer.contains("early-data"), "{answer}");
    edge.only_record().await;
}

#[tokio::test]
async fn a_safe_request_is_answered_before_the_handshake_is_over() {
    let (mut edge, _origin) = early("").await;
    let config = config(&["http/1.1"]);
    acquaint(&mut edge, &config).await;
    let mut client = Client::open(edge.https(), &config).await;
    client.early(GET.as_bytes()).await;
    // Not an octet of ours follows: the answer belongs to what came early.
    let answer = client.answer().await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\nearly-data: 1\n"), "{answer}");
    let record = edge.only_record().await;
    assert_eq!((record.status(), &record.0["tls.early_data"]), (200, &1.into()));
    assert_eq!(record.0["tls.client.server_name"], "gateway.test");
    assert_eq!(record.0["tls.protocol.version"], "1.3");
    client.flush().await;
    assert!(client.session.is_early_data_accepted());
    let answer = client.ask(GET).await;
    assert!(answer.starts_with("HTTP/1.1 200") && !answer.contains("early-data"), "{answer}");
    assert!(edge.only_record().await.0.get("tls.early_data").is_none());
}

#[tokio::test]
async fn what_is_not_safe_waits_for_the_handshake() {
    let (mut edge, origin) = early("").await;
    let config = config(&["http/1.1"]);
    let mut served = 0;
    for request in [
        "POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 4\r\n\r\nbody",
        "POST / HTTP/1.1\r\nhost: a.test\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
        "DELETE / HTTP/1.1\r\nhost: a.test\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 4\r\n\r\nbody",
        "GET / HTTP/1.1\r\nhost: a.test\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    ] {
        acquaint(&mut edge, &config).await;
        served += 1;
        let mut client = Client::open(edge.https(), &config).await;
        client.early(request.as_bytes()).await;
        edge.nothing_recorded().await;
        assert_eq!(origin.served(), served, "{request}");
        client.shake().await;
        assert!(client.session.is_early_data_accepted());
        let answer = client.answer().await;
        assert!(answer.starts_with("HTTP/1.1 200") && !answer.contains("early-data"), "{answer}");
        served += 1;
        assert_eq!(origin.served(), served, "{request}");
        assert!(edge.only_record().await.0.get("tls.early_data").is_none());
    }
}

/// A large answer flows before the handshake is over as it does after it.
#[tokio::test]
async fn a_large_answer_needs_no_handshake_either() {
    const LENGTH: usize = 4 << 20;
    let port = Port::listen(None).await;
    let backend = crate::support::stream::tcp_backend(port.address).replace("tcp", "http");
    let spec = format!("proxies:\n  - {{id: a, listen_path: /, {backend}}}\n");
    let mut edge = Edge::start_with(&settings("early_data: true"), &spec);
    tokio::spawn(async move {
        let mut far = Talker::new(Wire::new_patient(port.accept_ever().await));
        for body in ["tiny".to_owned(), "large".repeat(LENGTH / 5)] {
            far.request().await.unwrap();
            far.wire.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())).await;
        }
    });
    let config = config(&["http/1.1"]);
    acquaint(&mut edge, &config).await;
    let mut client = Client::open(edge.https(), &config).await;
    client.early(GET.as_bytes()).await;
    while client.got.len() < LENGTH / 5 * 5 {
        assert!(client.fill().await, "the answer ended early");
    }
    assert_eq!(edge.only_record().await.0["tls.early_data"], 1);
    client.flush().await;
    client.got.clear();
    // The connection is as good as any other, in this direction too.
    let long = "x".repeat(20_000);
    client.ask(&format!("GET /%zz HTTP/1.1\r\nhost: a.test\r\nx-long: {long}\r\n\r\n")).await;
}

/// The first flight, sent again by somebody else: it is no session any more, and no request.
#[tokio::test]
async fn a_repetition_comes_to_nothing() {
    let (mut edge, origin) = early("").await;
    let config = config(&["http/1.1"]);
    acquaint(&mut edge, &config).await;
    let mut client = Client::open(edge.https(), &config).await;
    let flight = client.early(GET.as_bytes()).await;
    client.answer().await;
    edge.only_record().await;
    let served = origin.served();
    for _ in 0..3 {
        let mut other = soon(TcpStream::connect(edge.https())).await.unwrap();
        soon(other.write_all(&flight)).await.unwrap();
        // It is answered with a handshake of its own, which the other can't go on with.
        assert!(soon(other.read(&mut [0; 1024])).await.unwrap() > 0);
        edge.nothing_recorded().await;
    }
    assert_eq!(origin.served(), served);
}

#[tokio::test]
async fn nothing_is_taken_early_unless_it_is_asked_for() {
    let (mut willing, _origin) = early("").await;
    let origin = Standing::start("o").await;
    let mut edge = Edge::start(&spec(&origin, ""));
    let config = config(&["http/1.1"]);
    acquaint(&mut edge, &config).await;
    let mut client = Client::open(edge.https(), &config).await;
    assert!(client.session.early_data().is_none());
    // Nor with leave that somebody else of the name has given.
    acquaint(&mut willing, &config).await;
    let mut client = Client::open(edge.https(), &config).await;
    client.early(GET.as_bytes()).await;
    edge.nothing_recorded().await;
    assert_eq!(origin.served(), 1);
    client.shake().await;
    assert!(!client.session.is_early_data_accepted());
    let answer = client.ask(GET).await;
    assert!(answer.starts_with("HTTP/1.1 200") && !answer.contains("early-data"), "{answer}");
    assert_eq!((origin.served(), edge.only_record().await.status()), (2, 200));
}

#[tokio::test]
async fn a_proxy_may_have_all_wait() {
    let origin = Standing::start("o").await;
    let mut edge = Edge::start_with(&settings("early_data: true"), &spec(&origin, ", early_data: false"));
    let config = config(&["http/1.1"]);
    acquaint(&mut edge, &config).await;
    let mut client = Client::open(edge.https(), &config).await;
    client.early(GET.as_bytes()).await;
    edge.nothing_recorded().await;
    assert_eq!(origin.served(), 1);
    client.shake().await;
    let answer = client.answer().await;
    assert!(answer.starts_with("HTTP/1.1 200") && !answer.contains("early-data"), "{answer}");
}

/// What waits for a handshake does so no longer than a handshake may take.
#[tokio::test]
async fn a_handshake_that_is_never_finished_ends_what_waits() {
    let (mut edge, origin) = early("  client_timeouts: {handshake: 1000ms}\n").await;
    let config = config(&["http/1.1"]);
    acquaint(&mut edge, &config).await;
    let mut client = Client::open(edge.https(), &config).await;
    client.early(b"DELETE / HTTP/1.1\r\nhost: a.test\r\n\r\n").await;
    while client.fill().await {}
    let record = edge.only_record().await;
    assert_eq!((record.status(), record.reason(), origin.served()), (499, "client_gone", 1));
}

#[tokio::test]
async fn more_than_may_come_early_is_cut_off() {
    let (mut edge, origin) = early("").await;
    let config = config(&["http/1.1"]);
    acquaint(&mut edge, &config).await;
    let mut client = Client::open(edge.https(), &config).await;
    let head = "GET / HTTP/1.1\r\nhost: a.test\r\nx-long: ";
    let long = format!("{head}{}", "x".repeat((16 << 10) - head.len()));
    // The client keeps to what it was told.
    client.session.early_data().unwrap().write_all(long.as_bytes()).unwrap();
    assert_eq!(client.session.early_data().unwrap().write(b"more").unwrap_or(0), 0);
    client.flush().await;
    client.shake().await;
    let answer = client.ask("\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200") && !answer.contains("early-data"), "{answer}");
    assert_eq!((origin.served(), edge.only_record().await.status()), (2, 200));
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    [&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream], payload].concat()
}

/// The head of a stream's answer, once it has come.
async fn status(client: &mut Client, stream: u8) -> u8 {
    loop {
        let mut rest = &client.got[..];
        while let [high, middle, low, kind, _, _, _, _, of, payload @ ..] = rest {
            let length = usize::from(*high) << 16 | usize::from(*middle) << 8 | usize::from(*low);
            if payload.len() < length {
                break;
            }
            if (*kind, *of) == (1, stream) {
                return payload[0];
            }
            rest = &payload[length..];
        }
        assert!(client.fill().await, "no answer on stream {stream}");
    }
}

#[tokio::test]
async fn streams_of_http2_go_their_own_ways() {
    let (mut edge, origin) = early("").await;
    let config = config(&["h2"]);
    let mut client = Client::open(edge.https(), &config).await;
    client.shake().await;
    let greeting = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[])].concat();
    let get = frame(1, 5, 1, b"\x82\x87\x84\x41\x06a.test");
    client.session.writer().write_all(&[&greeting[..], &get].concat()).unwrap();
    client.flush().await;
    assert_eq!(status(&mut client, 1).await, 0x88);
    edge.only_record().await;

    let mut client = Client::open(edge.https(), &config).await;
    let post = [frame(1, 4, 3, b"\x83\x87\x84\x41\x06a.test"), frame(0, 1, 3, b"body")].concat();
    let get = frame(1, 5, 5, b"\x82\x87\x84\x41\x06a.test");
    client.early(&[&greeting[..], &post, &get].concat()).await;
    assert_eq!(status(&mut client, 5).await, 0x88);
    assert_eq!(edge.only_record().await.0["tls.early_data"], 1);
    assert_eq!(origin.served(), 2);
    client.flush().await;
    assert_eq!(status(&mut client, 3).await, 0x88);
    let record = edge.only_record().await;
    assert_eq!((&record.0["http.request.method"], record.0.get("tls.early_data")), (&"POST".into(), None));
}

/// Streams of bytes have no requests that could be told apart.
#[tokio::test]
async fn stream_proxies_take_nothing_early() {
    let origin = Port::listen(None).await;
    let backend = crate::support::stream::tcp_backend(origin.address);
    let port = crate::support::stream::free_port();
    let edge = Edge::start_with(
        &settings("early_data: true"),
        &format!("proxies:\n  - {{id: a, listen_port: {port}, frontend_tls: true, {backend}}}\n"),
    );
    let config = config(&[]);
    let to = SocketAddr::from(([127, 0, 0, 1], port));
    for _ in 0..2 {
        let mut client = Client::open(to, &config).await;
        assert!(client.session.early_data().is_none());
        client.shake().await;
        client.session.writer().write_all(b"ping").unwrap();
        client.flush().await;
        let mut far = Wire::new(origin.accept().await);
        far.expect("ping").await;
        far.send("pong").await;
        while client.got != b"pong" {
            assert!(client.fill().await);
        }
    }
    drop(edge);
}
