//! WebSocket over HTTP/3 (RFC 9220).

use quinn::{RecvStream, SendStream};

use super::raw::{PLAIN, Raw, frame, headers, says};
use super::scripted;
use crate::support::edge::Edge;
use crate::support::h1::Talker;
use crate::support::h3::edge_with;
use crate::support::soon;
use crate::support::wire::{Port, Wire};

const AGREED: &str = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
    sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nsec-websocket-protocol: chat\r\n\r\nearly";

fn ask(protocol: &str) -> Vec<u8> {
    headers(&[
        (":method", "CONNECT"),
        (":protocol", protocol),
        (":scheme", "https"),
        (":authority", "a.test"),
        (":path", "/chat?x=1"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-protocol", "chat"),
    ])
}

/// The client's half of a stream, read frame by frame.
struct Tunnel {
    recv: RecvStream,
    had: Vec<u8>,
}

impl Tunnel {
    /// A frame's type and payload; `None` at the end.
    async fn frame(&mut self) -> Option<(u64, Vec<u8>)> {
        loop {
            if let Some((kind, length, at)) = head(&self.had)
                && self.had.len() >= at + length
            {
                let payload = self.had[at..at + length].to_vec();
                self.had.drain(..at + length);
                return Some((kind, payload));
            }
            let chunk = soon(self.recv.read_chunk(1 << 16, true)).await.unwrap();
            match chunk {
                Some(chunk) => self.had.extend_from_slice(&chunk.bytes),
                None => {
                    assert!(self.had.is_empty(), "a frame is cut off");
                    return None;
                }
            }
        }
    }

    async fn take(&mut self, length: usize) -> Vec<u8> {
        let mut got = Vec::new();
        while got.len() < length {
            let (kind, data) = self.frame().await.expect("more");
            assert_eq!(kind, 0);
            got.extend_from_slice(&data);
        }
        got
    }
}

/// Type and length of a frame, and where its payload begins.
fn head(octets: &[u8]) -> Option<(u64, usize, usize)> {
    let number = |at: usize| {
        let size = 1 << (octets.get(at)? >> 6);
        let octets = octets.get(at..at + size)?;
        let first = u64::from(octets[0] & 0x3f);
        Some((octets[1..].iter().fold(first, |value, octet| value << 8 | u64::from(*octet)), at + size))
    };
    let (kind, at) = number(0)?;
    let (length, at) = number(at)?;
    Some((kind, usize::try_from(length).unwrap(), at))
}

async fn opened(edge: &mut Edge, raw: &Raw, origin: &Port) -> (SendStream, Tunnel, Talker) {
    let (send, recv) = raw.begin(&ask("websocket")).await;
    let mut far = Talker::new(Wire::new(origin.accept().await));
    let asked = far.request().await.unwrap();
    assert_eq!(asked.line, "GET /chat?x=1 HTTP/1.1");
    assert_eq!(asked.field("upgrade"), "websocket");
    assert_eq!(asked.field("connection").to_ascii_lowercase(), "upgrade");
    assert_eq!(asked.field("sec-websocket-key").len(), 24);
    assert_eq!(asked.field("sec-websocket-protocol"), "chat");
    far.wire.send(AGREED).await;
    let mut tunnel = Tunnel { recv, had: Vec::new() };
    let (kind, section) = tunnel.frame().await.unwrap();
    assert_eq!(kind, 1);
    assert!(says(&frame(1, &section), 200), "{section:x?}");
    assert_eq!(tunnel.take(5).await, b"early");
    assert_eq!(edge.records.next().await.status(), 101);
    (send, tunnel, far)
}

async fn session(edge: &mut Edge) -> (String, (u64, u64)) {
    let session = edge.session().await;
    assert_eq!(session.kind(), "websocket");
    (session.end().to_owned(), session.carried())
}

#[tokio::test]
async fn the_gateway_says_that_it_takes_them() {
    let (edge, _origin) = scripted().await;
    let raw = Raw::open(edge.https(), PLAIN).await;
    let mut control = soon(raw.quic.accept_uni()).await.unwrap();
    let mut told = [0; 3];
    soon(control.read_exact(&mut told)).await.unwrap();
    assert_eq!(told[..2], [0, 4]);
    let mut settings = vec![0; usize::from(told[2])];
    soon(control.read_exact(&mut settings)).await.unwrap();
    // Last of all: SETTINGS_ENABLE_CONNECT_PROTOCOL. First: a dynamic table of nothing, and nobody to wait for it.
    assert_eq!(settings[..4], [1, 0, 7, 0]);
    assert!(settings.ends_with(&[8, 1]), "{settings:x?}");
}

#[tokio::test]
async fn a_stream_is_a_websocket_of_its_own() {
    const LENGTH: usize = 3 << 20;
    let (mut edge, origin) = scripted().await;
    let raw = Raw::open(edge.https(), PLAIN).await;
    let (mut send, mut tunnel, mut far) = opened(&mut edge, &raw, &origin).await;
    let long: Vec<u8> = (0..LENGTH).map(|at| (at / 1000) as u8).collect();
    let expected = long.clone();
    let receiver = tokio::spawn(async move {
        assert!(far.wire.some_exactly(LENGTH).await == expected);
        far.wire.send(&expected).await;
        far
    });
    for piece in long.chunks(10_000) {
        soon(send.write_all(&frame(0, piece))).await.unwrap();
    }
    assert!(tunnel.take(LENGTH).await == long);
    let mut far = soon(receiver).await.unwrap();
    // Each side ends its own.
    send.finish().unwrap();
    far.wire.closed().await;
    far.wire.send("bye-bye").await;
    far.wire.shutdown().await;
    assert_eq!(tunnel.take(7).await, b"bye-bye");
    assert_eq!(tunnel.frame().await, None);
    let (end, carried) = session(&mut edge).await;
    assert_eq!(end, "closed");
    assert_eq!(carried, (3 << 20, (3 << 20) + 12));
    edge.nothing_recorded().await;
}

#[tokio::test]
async fn a_stream_that_is_reset_ends_its_websocket_alone() {
    let (mut edge, origin) = scripted().await;
    let raw = Raw::open(edge.https(), PLAIN).await;
    let (mut first, mut gone, mut far_of_first) = opened(&mut edge, &raw, &origin).await;
    let (mut second, mut tunnel, mut far) = opened(&mut edge, &raw, &origin).await;
    first.reset(0x10c_u32.into()).unwrap();
    gone.recv.stop(0x10c_u32.into()).unwrap();
    far_of_first.wire.rest().await;
    assert_eq!(session(&mut edge).await.0, "client_reset");
    soon(second.write_all(&frame(0, b"x"))).await.unwrap();
    far.wire.expect("x").await;
    far.wire.send("y").await;
    assert_eq!(tunnel.take(1).await, b"y");
    // Anything but DATA is out of place (RFC 9114 §4.4), which costs the connection.
    soon(second.write_all(&headers(&[("x-t", "1")]))).await.unwrap();
    assert_eq!(raw.closed().await, 0x105);
    far.wire.rest().await;
    session(&mut edge).await;
    edge.nothing_recorded().await;
}

#[tokio::test]
async fn a_refusal_is_an_answer_like_any_other() {
    let (mut edge, origin) = scripted().await;
    let raw = Raw::open(edge.https(), PLAIN).await;
    let (_send, mut recv) = raw.begin(&ask("websocket")).await;
    let mut far = Talker::new(Wire::new(origin.accept().await));
    far.request().await.unwrap();
    far.wire.send("HTTP/1.1 418 No\r\ncontent-length: 4\r\n\r\nbody").await;
    let answer = soon(recv.read_to_end(1 << 20)).await.unwrap();
    assert!(says(&answer, 418), "{answer:x?}");
    assert!(answer.ends_with(&frame(0, b"body")));
    assert_eq!(edge.only_record().await.status(), 418);
    // Any other protocol is nothing the gateway opens.
    let (_send, mut recv) = raw.begin(&ask("connect-udp")).await;
    let answer = soon(recv.read_to_end(1 << 20)).await.unwrap();
    assert!(!says(&answer, 200), "{answer:x?}");
    edge.only_record().await;
}

/// The plugins that limit messages see them here as over HTTP/1.1.
#[tokio::test]
async fn messages_are_limited() {
    for (plugin, config, good, bad, code) in [
        ("ws_message_size_limiting", "{max_from_client: 4}", b"four".as_slice(), b"fives".as_slice(), 1009),
        ("ws_rate_limiting", "{messages_per_second: 1, close_code: 4008}", b"a", b"b", 4008),
    ] {
        let origin = Port::listen(None).await;
        let port = origin.address.port();
        let edge = edge_with(
            "",
            &format!(
                "proxies:\n  - {{id: a, listen_path: /, backend_host: 127.0.0.1, backend_port: {port}}}\n\
                 plugin_configs:\n  - {{id: p, plugin_name: {plugin}, scope: global, config: {config}}}\n"
            ),
        );
        let raw = Raw::open(edge.https(), PLAIN).await;
        let (mut send, recv) = raw.begin(&ask("websocket")).await;
        let mut far = Talker::new(Wire::new(origin.accept().await));
        far.request().await.unwrap();
        far.wire.send(AGREED.strip_suffix("early").unwrap()).await;
        let mut tunnel = Tunnel { recv, had: Vec::new() };
        assert_eq!(tunnel.frame().await.unwrap().0, 1);
        // A mask of zeros leaves the message as it is.
        let masked = |text: &[u8]| {
            let length = 0x80 | u8::try_from(text.len()).unwrap();
            frame(0, &[&[0x82, length, 0, 0, 0, 0], text].concat())
        };
        soon(send.write_all(&masked(good))).await.unwrap();
        let arrived = far.wire.some_exactly(6 + good.len()).await;
        assert!(arrived[0] == 0x82 && arrived.len() == 6 + good.len(), "{plugin}");
        soon(send.write_all(&masked(bad))).await.unwrap();
        let [high, low] = u16::to_be_bytes(code);
        assert_eq!(tunnel.take(4).await, [0x88, 2, high, low], "{plugin}");
    }
}
