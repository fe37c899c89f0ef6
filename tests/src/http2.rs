//! HTTP/2 frame by frame: what both sides of the gateway say to peers that are written out.

use bytes::Bytes;
use http::Request;

use crate::support::edge::Edge;
use crate::support::soon;
use crate::support::wire::{Port, Wire, connect};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// `GET http://a.test/`
const GET: &[u8] = b"\x82\x86\x84\x01\x06a.test";
const OK: &[u8] = b"\x88";

/// A frame as it came, or is to go.
#[derive(Debug, PartialEq, Eq)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Bytes,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The next frame of any kind.
async fn any(wire: &mut Wire) -> Frame {
    let head = wire.some_exactly(9).await;
    let number = |bytes: &[u8]| bytes.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
    let length = number(&head[..3]) as usize;
    let payload = wire.some_exactly(length).await.into();
    Frame { kind: head[3], flags: head[4], stream: number(&head[5..]), payload }
}

/// The next frame that is neither SETTINGS nor WINDOW_UPDATE; settings are confirmed on the way.
async fn next(wire: &mut Wire) -> Frame {
    loop {
        let frame = any(wire).await;
        match frame.kind {
            SETTINGS if frame.flags & ACK == 0 => wire.send(self::frame(SETTINGS, ACK, 0, &[])).await,
            SETTINGS | WINDOW_UPDATE => {}
            _ => return frame,
        }
    }
}

/// A client's connection that has said its settings.
async fn client(edge: &Edge, settings: &[u8]) -> Wire {
    let mut wire = Wire::new(connect(edge.http(), None).await);
    wire.send([PREFACE, &frame(SETTINGS, 0, 0, settings)].concat()).await;
    wire
}

/// A target's side of the gateway's connection, which has said its settings.
async fn target(origin: &Port, settings: &[u8]) -> Wire {
    let mut wire = Wire::new(origin.accept().await);
    assert_eq!(&wire.some_exactly(PREFACE.len()).await[..], PREFACE);
    wire.send(frame(SETTINGS, 0, 0, settings)).await;
    wire
}

fn to(origin: &Port, more: &str) -> String {
    format!(
        "proxies:\n  - {{id: a, listen_path: /, backend_scheme: http, backend_http_version: '2', \
         backend_host: 127.0.0.1, backend_port: {}{more}}}\n",
        origin.address.port()
    )
}

const FIXED: &str = "proxies:\n  - {id: fixed, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, \
    backend_port: 1, plugins: [{plugin_config_id: yes}]}\nplugin_configs:\n  - {id: yes, \
    plugin_name: request_termination, scope: proxy_group, config: {status_code: 200}}\n";

fn literal(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).unwrap();
    [&[0, length(name)], name.as_bytes(), &[length(value)], value.as_bytes()].concat()
}

#[tokio::test]
async fn a_header_list_that_is_too_large_is_answered_and_recorded() {
    let mut edge = Edge::start_with("  limits: {max_header_size: 1024}", FIXED);
    let mut wire = client(&edge, &[]).await;
    let mut block = GET.to_vec();
    for number in 0..20 {
        block.extend_from_slice(&literal(&format!("x-{number}"), &"y".repeat(100)));
    }
    wire.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, &block)).await;
    let answer = next(&mut wire).await;
    // A literal with the name at index 8, `:status`.
    assert_eq!((answer.kind, answer.stream, &answer.payload[..5]), (HEADERS, 1, &b"\x08\x03431"[..]));
    let record = edge.only_record().await;
    assert_eq!((record.status(), record.reason()), (431, "headers_too_large"));
}

/// A deny rule's regex sees the whole value, whatever byte is in it, in either version of HTTP.
#[tokio::test]
async fn a_guard_is_not_passed_by_with_an_odd_byte() {
    const GUARD: &str = "proxies:\n  - {id: a, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, \
        backend_port: 1}\nplugin_configs:\n  - {id: no, plugin_name: request_termination, proxy_id: a, config: \
        {status_code: 403}, when: {any: [{headers: {user-agent: {regex: '.*evil.*'}}}, {query: {q: {regex: \
        '.*evil.*'}}}, {cookies: {q: {regex: '.*evil.*'}}}]}}\n";
    let edge = Edge::start(GUARD);
    for (path, name, value) in [
        ("/?q=evil%ff", "x-a", &b"1"[..]),
        ("/?q=%0aevil%0a", "x-a", b"1"),
        ("/", "user-agent", b"evil\xff"),
        ("/", "user-agent", b"\xe4\xbdevil"),
        ("/", "cookie", b"a=b; q=\xffevil"),
    ] {
        let mut talker = edge.talker().await;
        let head = format!("GET {path} HTTP/1.1\r\nhost: a.test\r\n{name}: ");
        talker.wire.send([head.as_bytes(), value, b"\r\n\r\n"].concat()).await;
        let answer = talker.response(&http::Method::GET).await.unwrap();
        assert_eq!(answer.status(), 403, "{path} {name}: {value:x?}");
        let mut wire = client(&edge, &[]).await;
        let (to, from) = (&b"\x82\x86\x04"[..], b"\x01\x06a.test");
        let length = |bytes: &[u8]| [u8::try_from(bytes.len()).unwrap()];
        let field = [&[0], &length(name.as_bytes())[..], name.as_bytes(), &length(value), value].concat();
        let block = [to, &length(path.as_bytes()), path.as_bytes(), from, &field].concat();
        wire.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, &block)).await;
        let answer = next(&mut wire).await;
        assert_eq!(&answer.payload[..5], b"\x08\x03403", "{path} {name}: {value:x?}");
    }
    assert_eq!(edge.get("/?q=good%ff").await.0.status(), 502, "others go to the target");
}

#[tokio::test]
async fn a_malformed_request_is_reset_and_recorded() {
    let mut edge = Edge::start(FIXED);
    let mut wire = client(&edge, &[]).await;
    let block = [GET, &literal("x", "y\r\nz")].concat();
    wire.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, &block)).await;
    let answer = next(&mut wire).await;
    assert_eq!((answer.kind, answer.stream, &answer.payload[..]), (RST_STREAM, 1, &[0, 0, 0, 1][..]));
    assert_eq!(edge.only_record().await.reason(), "bad_request");
    // The connection goes on.
    wire.send(frame(HEADERS, END_HEADERS | END_STREAM, 3, GET)).await;
    assert_eq!(next(&mut wire).await.stream, 3);
}

/// A client that looks at the answer only when it has sent everything gets it whole (RFC 9113 §8.1).
#[tokio::test]
async fn an_early_answer_is_not_followed_by_a_reset() {
    const SMALL: &str = "proxies:\n  - {id: a, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, \
        backend_port: 1, plugins: [{plugin_config_id: size}]}\nplugin_configs:\n  - {id: size, \
        plugin_name: request_size_limiting, scope: proxy_group, config: {max_size: 10}}\n";
    let mut edge = Edge::start(SMALL);
    let mut wire = client(&edge, &[]).await;
    let post = [b"\x83\x86\x84\x01\x06a.test", &literal("content-length", "1048576")[..]].concat();
    wire.send(frame(HEADERS, END_HEADERS, 1, &post)).await;
    let answer = next(&mut wire).await;
    assert_eq!((answer.kind, answer.stream, &answer.payload[..5]), (HEADERS, 1, &b"\x08\x03413"[..]));
    let mut ended = answer.flags & END_STREAM != 0;
    while !ended {
        let body = next(&mut wire).await;
        assert_eq!((body.kind, body.stream), (DATA, 1));
        ended = body.flags & END_STREAM != 0;
    }
    assert_eq!(edge.only_record().await.status(), 413);
    let mut window = 256 << 10;
    for left in (0..64).rev() {
        while window < 16_384 {
            let update = any(&mut wire).await;
            assert!(matches!(update.kind, WINDOW_UPDATE | SETTINGS), "{update:?}");
            if update.kind == WINDOW_UPDATE && update.stream == 1 {
                window += u32::from_be_bytes(update.payload[..].try_into().unwrap());
            }
        }
        window -= 16_384;
        wire.send(frame(DATA, if left == 0 { END_STREAM } else { 0 }, 1, &[b'x'; 16_384])).await;
    }
    wire.send(frame(PING, 0, 0, b"all sent")).await;
    assert_eq!(next(&mut wire).await.kind, PING);
}

/// RFC 9113 §6.8: what a client sends before it has heard that the gateway goes is still answered.
#[tokio::test]
async fn a_drain_sends_goaway_in_two_steps() {
    let edge = Edge::start(FIXED);
    let mut wire = client(&edge, &[]).await;
    wire.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, GET)).await;
    while next(&mut wire).await.flags & END_STREAM == 0 {}
    edge.gateway.begin_drain();
    let first = next(&mut wire).await;
    assert_eq!((first.kind, &first.payload[..]), (GOAWAY, &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0][..]));
    let ping = next(&mut wire).await;
    assert_eq!((ping.kind, ping.flags), (PING, 0));
    let late = frame(HEADERS, END_HEADERS | END_STREAM, 3, GET);
    wire.send([late, frame(PING, ACK, 0, &ping.payload)].concat()).await;
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let frame = next(&mut wire).await;
        if frame.kind == GOAWAY || frame.flags & END_STREAM != 0 {
            seen.push((frame.kind, frame.stream, frame.payload));
        }
    }
    let goaway = seen.iter().find(|(kind, ..)| *kind == GOAWAY).expect("a GOAWAY");
    assert_eq!(&goaway.2[..], [0, 0, 0, 3, 0, 0, 0, 0]);
    assert!(seen.iter().any(|(_, stream, _)| *stream == 3), "answered: {seen:?}");
    wire.closed().await;
}

/// A client that reads one answer slowly gets the others all the same, over one connection on each side.
#[tokio::test]
async fn a_slow_reader_stalls_nobody_else() {
    let origin = Port::listen(None).await;
    let edge = Edge::start(&to(&origin, ", pool_http2_connections_per_host: 1"));
    // Streams begin without any window.
    let mut wire = client(&edge, &[0, 4, 0, 0, 0, 0]).await;
    wire.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, GET)).await;
    let mut far = target(&origin, &[]).await;
    assert_eq!(next(&mut far).await.stream, 1);
    far.send(frame(HEADERS, END_HEADERS, 1, OK)).await;
    for _ in 0..3 {
        far.send(frame(DATA, 0, 1, &[b'x'; 16_384])).await;
    }
    assert_eq!(next(&mut wire).await.kind, HEADERS);
    for turn in 1..10_u32 {
        let (near_id, far_id) = (2 * turn + 1, 2 * turn + 1);
        wire.send(frame(HEADERS, END_HEADERS | END_STREAM, near_id, GET)).await;
        wire.send(frame(WINDOW_UPDATE, 0, near_id, &100_u32.to_be_bytes())).await;
        assert_eq!(next(&mut far).await.stream, far_id);
        far.send(frame(HEADERS, END_HEADERS, far_id, OK)).await;
        far.send(frame(DATA, END_STREAM, far_id, b"small")).await;
        let head = next(&mut wire).await;
        assert_eq!((head.kind, head.stream), (HEADERS, near_id));
        let body = next(&mut wire).await;
        assert_eq!((body.kind, body.stream, &body.payload[..]), (DATA, near_id, &b"small"[..]));
    }
    wire.send(frame(WINDOW_UPDATE, 0, 1, &20_000_u32.to_be_bytes())).await;
    let mut got = 0;
    while got < 20_000 {
        let piece = next(&mut wire).await;
        assert_eq!((piece.kind, piece.stream), (DATA, 1));
        got += piece.payload.len();
    }
    assert_eq!(got, 20_000);
}

/// A target may say at any time how many streams it takes.
#[tokio::test]
async fn a_target_that_changes_how_many_streams_it_takes() {
    let origin = Port::listen(None).await;
    let edge = Edge::start(&to(&origin, ", pool_http2_connections_per_host: 1"));
    let mut wire = client(&edge, &[]).await;
    wire.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, GET)).await;
    let most = |streams: u8| [0, 3, 0, 0, 0, streams];
    let mut far = target(&origin, &most(1)).await;
    assert_eq!(next(&mut far).await.stream, 1);
    // The gateway has read the settings once it answers what came after them.
    far.send(frame(PING, 0, 0, b"settings")).await;
    assert_eq!(next(&mut far).await.kind, PING);
    wire.send(frame(HEADERS, END_HEADERS | END_STREAM, 3, GET)).await;
    wire.send(frame(PING, 0, 0, b"requests")).await;
    assert_eq!(next(&mut wire).await.kind, PING);
    far.send(frame(PING, 0, 0, b"no more.")).await;
    assert_eq!(next(&mut far).await.kind, PING, "the second request waits");
    far.send(frame(SETTINGS, 0, 0, &most(2))).await;
    let second = next(&mut far).await;
    assert_eq!((second.kind, second.stream), (HEADERS, 3));
    for id in [1, 3] {
        far.send(frame(HEADERS, END_HEADERS | END_STREAM, id, OK)).await;
        assert_eq!(next(&mut wire).await.stream, id);
    }
}

/// A target that takes no streams any more is waited for no longer than a connection would be.
#[tokio::test]
async fn a_target_that_takes_no_streams() {
    let origin = Port::listen(None).await;
    let mut edge =
        Edge::start(&to(&origin, ", pool_http2_connections_per_host: 1, backend_connect_timeout: 200ms"));
    let mut wire = client(&edge, &[]).await;
    wire.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, GET)).await;
    let mut far = target(&origin, &[0, 3, 0, 0, 0, 0]).await;
    assert_eq!(next(&mut far).await.stream, 1);
    far.send(frame(PING, 0, 0, b"settings")).await;
    assert_eq!(next(&mut far).await.kind, PING);
    wire.send(frame(HEADERS, END_HEADERS | END_STREAM, 3, GET)).await;
    let answer = next(&mut wire).await;
    assert_eq!((answer.kind, answer.stream, &answer.payload[..5]), (HEADERS, 3, &b"\x08\x03503"[..]));
    assert_eq!(edge.records.next().await.reason(), "overloaded");
}

/// RFC 9113 §8.7: a stream beyond a GOAWAY's last one was not looked at, and goes to another connection.
#[tokio::test]
async fn streams_a_target_did_not_look_at_are_sent_again() {
    let origin = Port::listen(None).await;
    let mut edge = Edge::start(&to(&origin, ""));
    let mut requests = crate::support::h2::client(connect(edge.http(), None).await).await;
    let request = Request::post("http://a.test/").body(()).unwrap();
    let (answer, _) = requests.send_request(request, true).unwrap();
    let mut far = target(&origin, &[]).await;
    assert_eq!(next(&mut far).await.stream, 1);
    far.send(frame(GOAWAY, 0, 0, &[0; 8])).await;
    let mut again = target(&origin, &[]).await;
    assert_eq!(next(&mut again).await.stream, 1);
    again.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, OK)).await;
    assert_eq!(soon(answer).await.unwrap().status(), 200);
    assert_eq!(edge.records.next().await.status(), 200);
    // Whatever the gateway says last, it closes.
    far.rest().await;
}
