//! Clients that break the rules of RFC 9114, octet by octet, and what each is told.

use super::raw::{PLAIN, Raw, frame, frames, headers, request, says};
use super::{far_side, scripted, standing};
use crate::support::soon;

/// RFC 9114 §8.1, RFC 9204 §6.
mod code {
    pub(super) const NO_ERROR: u64 = 0x100;
    pub(super) const STREAM_CREATION_ERROR: u64 = 0x103;
    pub(super) const CLOSED_CRITICAL_STREAM: u64 = 0x104;
    pub(super) const FRAME_UNEXPECTED: u64 = 0x105;
    pub(super) const FRAME_ERROR: u64 = 0x106;
    pub(super) const EXCESSIVE_LOAD: u64 = 0x107;
    pub(super) const ID_ERROR: u64 = 0x108;
    pub(super) const SETTINGS_ERROR: u64 = 0x109;
    pub(super) const MISSING_SETTINGS: u64 = 0x10a;
    pub(super) const REQUEST_REJECTED: u64 = 0x10b;
    pub(super) const REQUEST_INCOMPLETE: u64 = 0x10d;
    pub(super) const MESSAGE_ERROR: u64 = 0x10e;
    pub(super) const QPACK_DECOMPRESSION_FAILED: u64 = 0x200;
    pub(super) const QPACK_ENCODER_STREAM_ERROR: u64 = 0x201;
    pub(super) const QPACK_DECODER_STREAM_ERROR: u64 = 0x202;
}

#[tokio::test]
async fn a_request_stream_that_breaks_the_rules_ends_its_connection() {
    let (edge, origin) = standing("").await;
    let get = request("GET", &[]);
    let post = request("POST", &[]);
    let mut cases = vec![
        (frame(0, b"body"), code::FRAME_UNEXPECTED),
        ([&post[..], &frame(0, b"x"), &frame(4, b"")].concat(), code::FRAME_UNEXPECTED),
        ([&post[..], &headers(&[("x-t", "1")]), &frame(0, b"x")].concat(), code::FRAME_UNEXPECTED),
        ([&post[..], &headers(&[("x-t", "1")]), &headers(&[("x-t", "1")])].concat(), code::FRAME_UNEXPECTED),
        (frame(1, &[2, 0, 0x80]), code::QPACK_DECOMPRESSION_FAILED),
        (frame(1, &[0, 0, 0xff, 0x24]), code::QPACK_DECOMPRESSION_FAILED),
        (frame(1, &[0, 0, 0x80]), code::QPACK_DECOMPRESSION_FAILED),
        (frame(1, &[0]), code::QPACK_DECOMPRESSION_FAILED),
        (get[..get.len() - 1].to_vec(), code::FRAME_ERROR),
        (vec![1], code::FRAME_ERROR),
        ([&post[..], &[0, 9, b'x']].concat(), code::FRAME_ERROR),
    ];
    for kind in [2, 3, 4, 5, 6, 7, 8, 9, 0xd] {
        cases.push((frame(kind, &[1]), code::FRAME_UNEXPECTED));
        cases.push(([&post[..], &frame(kind, &[1])].concat(), code::FRAME_UNEXPECTED));
    }
    for (octets, expected) in cases {
        let raw = Raw::open(edge.https(), PLAIN).await;
        let answer = raw.ask(&octets).await;
        assert!(answer.is_err(), "{octets:x?}");
        assert_eq!(raw.closed().await, expected, "{octets:x?}");
    }
    assert_eq!(origin.served(), 0, "none of it looked whole");
    let raw = Raw::open(edge.https(), PLAIN).await;
    assert!(says(&raw.ask(&get).await.unwrap(), 200));
}

#[tokio::test]
async fn a_control_stream_that_breaks_the_rules_ends_its_connection() {
    let (edge, _origin) = standing("").await;
    let after = |octets: &[u8]| [PLAIN, octets].concat();
    for (octets, expected) in [
        (vec![0, 7, 1, 0], code::MISSING_SETTINGS),
        (vec![0, 0x21, 1, 0, 4, 0], code::MISSING_SETTINGS),
        (after(&[4, 0]), code::FRAME_UNEXPECTED),
        (after(&[0, 1, b'x']), code::FRAME_UNEXPECTED),
        (after(&[1, 2, 0, 0]), code::FRAME_UNEXPECTED),
        (after(&[5, 1, 0]), code::FRAME_UNEXPECTED),
        (after(&[8, 1, 0]), code::FRAME_UNEXPECTED),
        (after(&[0xd, 1, 5, 0xd, 1, 4]), code::ID_ERROR),
        (after(&[7, 1, 4, 7, 1, 5]), code::ID_ERROR),
        (after(&[3, 1, 0]), code::ID_ERROR),
        (after(&[7, 2, 0, 0]), code::FRAME_ERROR),
        (after(&[7, 0]), code::FRAME_ERROR),
        (after(&[7, 9]), code::FRAME_ERROR),
        (vec![0, 4, 2, 2, 0], code::SETTINGS_ERROR),
        (vec![0, 4, 2, 4, 0], code::SETTINGS_ERROR),
        (vec![0, 4, 4, 6, 1, 6, 1], code::SETTINGS_ERROR),
        (vec![0, 4, 2, 8, 2], code::SETTINGS_ERROR),
        (vec![0, 4, 1, 6], code::FRAME_ERROR),
        (vec![0, 4, 0x7f, 0xff], code::EXCESSIVE_LOAD),
    ] {
        let raw = Raw::open(edge.https(), &octets).await;
        assert_eq!(raw.closed().await, expected, "{octets:x?}");
    }
    // It stays as long as the connection does.
    let mut raw = Raw::open(edge.https(), PLAIN).await;
    raw.control.finish().unwrap();
    assert_eq!(raw.closed().await, code::CLOSED_CRITICAL_STREAM);
    // What was said on it before is known by the time a request is answered.
    let mut raw = Raw::open(edge.https(), PLAIN).await;
    assert!(says(&raw.ask(&request("GET", &[])).await.unwrap(), 200));
    raw.control.reset(0_u32.into()).unwrap();
    assert_eq!(raw.closed().await, code::CLOSED_CRITICAL_STREAM);
}

#[tokio::test]
async fn other_streams_that_break_the_rules_end_their_connection() {
    let (edge, _origin) = standing("").await;
    for (streams, expected) in [
        (&[&[0, 4, 0][..]][..], code::STREAM_CREATION_ERROR),
        (&[&[2], &[2]], code::STREAM_CREATION_ERROR),
        (&[&[3], &[3]], code::STREAM_CREATION_ERROR),
        (&[&[1, 0]], code::STREAM_CREATION_ERROR),
        // A capacity, an entry, a duplicate of one.
        (&[&[2, 0x21]], code::QPACK_ENCODER_STREAM_ERROR),
        (&[&[2, 0xc0, 1, b'x']], code::QPACK_ENCODER_STREAM_ERROR),
        (&[&[2, 0x20, 0x00]], code::QPACK_ENCODER_STREAM_ERROR),
        // An acknowledgement, an increment, a number without end.
        (&[&[3, 0x80]], code::QPACK_DECODER_STREAM_ERROR),
        (&[&[3, 0x01]], code::QPACK_DECODER_STREAM_ERROR),
        (
            &[&[3, 0x41, 0x7f, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0]],
            code::QPACK_DECODER_STREAM_ERROR,
        ),
    ] {
        let raw = Raw::open(edge.https(), PLAIN).await;
        let mut open = Vec::new();
        for octets in streams {
            open.push(raw.uni(octets).await);
        }
        assert_eq!(raw.closed().await, expected, "{streams:x?}");
    }
    for kind in [2, 3] {
        let raw = Raw::open(edge.https(), PLAIN).await;
        raw.uni(&[kind]).await.finish().unwrap();
        assert_eq!(raw.closed().await, code::CLOSED_CRITICAL_STREAM);
    }
}

/// RFC 9114 §9: what nobody knows is passed over.
#[tokio::test]
async fn what_nobody_knows_is_passed_over() {
    let (mut edge, origin) = standing("").await;
    let control = [PLAIN, &frame(0x21, b"grease"), &frame(0x1f * 7 + 0x21, b""), &[0xd, 1, 0]].concat();
    let raw = Raw::open(edge.https(), &control).await;
    // Streams of unknown kinds are told so; those of QPACK may say what means nothing.
    for unknown in [&[0x21, 1, 2, 3][..], &[0x40, 0x54, 0xff], &[0xc0, 0, 0, 0, 0, 0, 0, 0x77]] {
        let stream = raw.uni(unknown).await;
        assert_eq!(soon(stream.stopped()).await.unwrap().unwrap().into_inner(), code::STREAM_CREATION_ERROR);
    }
    let _encoder = raw.uni(&[2, 0x20]).await;
    let _decoder = raw.uni(&[3, 0x41, 0x7f, 0x80, 0x01]).await;
    let odd = frame(0x21, b"more grease");
    let octets = [
        &odd[..],
        &request("POST", &[("te", "trailers")]),
        &odd,
        &frame(0, b""),
        &frame(0, b"body"),
        &odd,
        &headers(&[("x-sum", "1")]),
        &odd,
    ]
    .concat();
    let answer = raw.ask(&octets).await.unwrap();
    assert!(says(&answer, 200), "{answer:x?}");
    assert_eq!(origin.served(), 1);
    assert_eq!(edge.only_record().await.reason(), "");
    // One octet at a time, with a packet of its own for as many as the network likes.
    let (mut send, mut recv) = raw.begin(&[]).await;
    for octet in &octets {
        soon(send.write_all(&[*octet])).await.unwrap();
        tokio::task::yield_now().await;
    }
    send.finish().unwrap();
    assert!(says(&soon(recv.read_to_end(1 << 20)).await.unwrap(), 200));
}

/// RFC 9114 §4.1.2, §4.3: a request that is none ends its stream, is recorded, and nobody else notices.
#[tokio::test]
async fn malformed_requests_end_their_streams() {
    let (mut edge, origin) = standing("").await;
    let raw = Raw::open(edge.https(), PLAIN).await;
    let line = [(":method", "GET"), (":scheme", "https"), (":authority", "a.test"), (":path", "/")];
    let without = |absent: usize| {
        let rest: Vec<_> =
            line.into_iter().enumerate().filter(|(at, _)| *at != absent).map(|(_, f)| f).collect();
        headers(&rest)
    };
    let with = |more: &[(&str, &str)]| headers(&[&line[..], more].concat());
    for octets in [
        without(0),
        without(1),
        without(3),
        with(&[(":path", "/b")]),
        with(&[(":status", "200")]),
        with(&[(":new", "x")]),
        with(&[(":protocol", "websocket")]),
        with(&[("x-a", "1"), (":method", "GET")]),
        with(&[("Upper", "x")]),
        with(&[("x y", "x")]),
        with(&[("", "x")]),
        with(&[("x-a", "line\r\nbreak")]),
        with(&[("x-a", " padded")]),
        with(&[("connection", "close")]),
        with(&[("transfer-encoding", "chunked")]),
        with(&[("te", "gzip")]),
        with(&[("content-length", "1"), ("content-length", "2")]),
        with(&[("content-length", "-1")]),
        headers(&[(":method", "CONNECT"), (":scheme", "https"), (":authority", "a.test"), (":path", "/")]),
        headers(&[(":method", "GET"), (":scheme", "https"), (":authority", "a.test"), (":path", "")]),
        headers(&[(":method", "G T"), (":scheme", "https"), (":authority", "a.test"), (":path", "/")]),
        headers(&[]),
    ] {
        match raw.ask(&octets).await {
            Err(quinn::ReadToEndError::Read(quinn::ReadError::Reset(reset))) => {
                assert_eq!(reset.into_inner(), code::MESSAGE_ERROR, "{octets:x?}");
            }
            other => panic!("{other:?} to {octets:x?}"),
        }
        let record = edge.records.next().await;
        assert_eq!(record.reason(), "bad_request", "{octets:x?}");
        assert_eq!(record.0["network.protocol.version"], "3");
    }
    // Without any frame it is no request at all.
    match raw.ask(&[]).await {
        Err(quinn::ReadToEndError::Read(quinn::ReadError::Reset(reset))) => {
            assert_eq!(reset.into_inner(), code::REQUEST_INCOMPLETE);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(edge.records.next().await.reason(), "bad_request");
    assert!(says(&raw.ask(&request("GET", &[])).await.unwrap(), 200));
    assert_eq!(origin.served(), 1);
}

/// Field sections beyond the limit are refused, not the connection.
#[tokio::test]
async fn header_bombs_are_refused() {
    let (mut edge, origin) = standing("  limits: {max_header_size: 4096}").await;
    let raw = Raw::open(edge.https(), PLAIN).await;
    let long = "x".repeat(5000);
    let small: Vec<(&str, &str)> = (0..120).map(|_| ("a", "b")).collect();
    for octets in [request("GET", &[("x-a", &long)]), request("GET", &small)] {
        let answer = raw.ask(&octets).await.unwrap();
        assert!(says(&answer, 431), "{answer:x?}");
        assert_eq!(edge.only_record().await.reason(), "headers_too_large");
    }
    // One that promises more than anybody would send is not waited for.
    let (_send, mut recv) = raw.begin(&[1, 0xbf, 0xff, 0xff, 0xff, 0, 0]).await;
    assert!(says(&soon(recv.read_to_end(1 << 20)).await.unwrap(), 431));
    assert_eq!(edge.only_record().await.reason(), "headers_too_large");
    assert!(says(&raw.ask(&request("GET", &[])).await.unwrap(), 200));
    assert_eq!(origin.served(), 1);
}

/// CVE-2023-44487's way of asking for much and taking nothing.
#[tokio::test]
async fn streams_reset_over_and_over_end_their_connection() {
    let (edge, _origin) = scripted().await;
    let raw = Raw::open(edge.https(), PLAIN).await;
    let get = request("GET", &[]);
    for _ in 0..2000 {
        let Ok((mut send, mut recv)) = soon(raw.quic.open_bi()).await else { break };
        drop(soon(send.write_all(&get)).await);
        drop(send.reset(0x10c_u32.into()));
        drop(recv.stop(0x10c_u32.into()));
    }
    assert_eq!(raw.closed().await, code::EXCESSIVE_LOAD);
    // So do streams of kinds nobody knows, and frames that bring nothing.
    let raw = Raw::open(edge.https(), PLAIN).await;
    for _ in 0..2000 {
        let Ok(mut stream) = soon(raw.quic.open_uni()).await else { break };
        drop(soon(stream.write_all(&[0x21])).await);
        drop(stream.finish());
    }
    assert_eq!(raw.closed().await, code::EXCESSIVE_LOAD);
    let raw = Raw::open(edge.https(), PLAIN).await;
    let (mut send, _recv) = raw.begin(&request("POST", &[])).await;
    while soon(send.write_all(&frame(0x21, b"").repeat(1000))).await.is_ok() {}
    assert_eq!(raw.closed().await, code::EXCESSIVE_LOAD);
}

/// A client that cancels in the middle of an answer is noticed at once, also while the target says nothing.
#[tokio::test]
async fn a_client_that_cancels_in_the_middle_frees_its_target() {
    let (mut edge, origin) = scripted().await;
    let raw = Raw::open(edge.https(), PLAIN).await;
    let (mut send, mut recv) = raw.begin(&request("GET", &[])).await;
    send.finish().unwrap();
    let mut far = far_side(&origin).await;
    far.request().await.unwrap();
    far.wire.send("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nfirst").await;
    let mut octets = Vec::new();
    while !octets.ends_with(b"first") {
        octets.extend_from_slice(&soon(recv.read_chunk(1 << 10, true)).await.unwrap().unwrap().bytes);
    }
    recv.stop(0x10c_u32.into()).unwrap();
    far.wire.rest().await;
    let record = edge.only_record().await;
    assert_eq!((record.status(), record.reason()), (200, "client_gone"));
    assert_eq!(record.0["http.response.body.size"], 5);
}

/// A client that cancels while the target thinks is noticed at once.
#[tokio::test]
async fn a_client_that_cancels_while_it_waits_frees_its_target() {
    let (mut edge, origin) = scripted().await;
    let raw = Raw::open(edge.https(), PLAIN).await;
    let (mut send, mut recv) = raw.begin(&request("GET", &[])).await;
    send.finish().unwrap();
    let mut far = far_side(&origin).await;
    assert_eq!(far.request().await.unwrap().line, "GET /raw HTTP/1.1");
    recv.stop(0x10c_u32.into()).unwrap();
    far.wire.rest().await;
    assert_eq!(edge.only_record().await.reason(), "client_gone");
    assert!(says(
        &raw.ask(&headers(&[
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "a.test"),
            (":path", "/%zz")
        ]))
        .await
        .unwrap(),
        400
    ));
}

/// A request's end may come long after its head; whether it has a body is known then and not before.
#[tokio::test]
async fn bodies_nobody_announced_are_bodies() {
    let (mut edge, origin) = scripted().await;
    let raw = Raw::open(edge.https(), PLAIN).await;
    let (mut send, mut recv) = raw.begin(&request("GET", &[])).await;
    // The marker's answer proves that the head has been looked at.
    assert!(says(
        &raw.ask(&headers(&[
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "a.test"),
            (":path", "/%zz")
        ]))
        .await
        .unwrap(),
        400
    ));
    edge.records.next().await;
    soon(send.write_all(&frame(0, b"surprise"))).await.unwrap();
    let mut far = far_side(&origin).await;
    far.request().await.unwrap();
    assert_eq!(far.data().await.unwrap().unwrap(), "surprise");
    send.finish().unwrap();
    assert!(far.data().await.unwrap().is_none());
    far.wire.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    let answer = soon(recv.read_to_end(1 << 20)).await.unwrap();
    assert_eq!(frames(&answer).last().unwrap(), &(0, b"ok".to_vec()));
    // Without one it goes on without one, however late that is known.
    let (mut send, mut recv) = raw.begin(&request("DELETE", &[])).await;
    send.finish().unwrap();
    let head = far.request().await.unwrap();
    assert_eq!((head.field("transfer-encoding"), head.field("content-length")), ("", ""));
    far.wire.send("HTTP/1.1 204 OK\r\n\r\n").await;
    soon(recv.read_to_end(1 << 20)).await.unwrap();
}

/// A client that has not received the last GOAWAY sends one more request: it is rejected, and may be sent again elsewhere.
#[tokio::test]
async fn a_request_that_crosses_the_last_goaway_is_rejected() {
    let (edge, _origin) = standing("").await;
    let raw = Raw::open(edge.https(), PLAIN).await;
    assert!(says(&raw.ask(&request("GET", &[])).await.unwrap(), 200));
    let mut control = soon(raw.quic.accept_uni()).await.unwrap();
    edge.gateway.begin_drain();
    let last = [7, 1, 4];
    let mut octets = Vec::new();
    while !octets.ends_with(&last) {
        octets.extend_from_slice(&soon(control.read_chunk(1 << 10, true)).await.unwrap().unwrap().bytes);
    }
    let (_send, mut recv) = raw.begin(&request("GET", &[])).await;
    let ended = soon(recv.read_to_end(1 << 10)).await;
    let rejected = quinn::ReadToEndError::Read(quinn::ReadError::Reset(
        quinn::VarInt::try_from(code::REQUEST_REJECTED).unwrap(),
    ));
    assert_eq!(ended, Err(rejected));
    assert_eq!(raw.closed().await, code::NO_ERROR);
}

/// RFC 9114 §5.2: first that we go, then what the last request is, then an end without fault.
#[tokio::test]
async fn a_drain_sends_goaway_twice() {
    let (edge, _origin) = standing("").await;
    let raw = Raw::open(edge.https(), PLAIN).await;
    assert!(says(&raw.ask(&request("GET", &[])).await.unwrap(), 200));
    let mut control = soon(raw.quic.accept_uni()).await.unwrap();
    edge.gateway.begin_drain();
    let mut octets = Vec::new();
    while let Ok(Some(chunk)) = soon(control.read_chunk(1 << 10, true)).await {
        octets.extend_from_slice(&chunk.bytes);
    }
    assert_eq!(octets[0], 0);
    let frames = frames(&octets[1..]);
    assert_eq!(frames[0].0, 4);
    assert_eq!(frames[1..], [(7, (0xffff_ffff_ffff_fffc_u64).to_be_bytes().to_vec()), (7, vec![4])]);
    assert_eq!(raw.closed().await, code::NO_ERROR);
    // §6.2.1: a client's control stream is not stopped before; one that is takes that for an error and drops its answers.
    assert_eq!(soon(raw.control.stopped()).await.ok(), None);
}
