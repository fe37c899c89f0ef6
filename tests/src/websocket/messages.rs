//! WebSockets whose messages plugins read, change, swallow and refuse; and clients that break the protocol.

use http::Method;

use super::endings::{frame, masked, sends_close};
use super::{AGREED, asked, opened, records, spec};
use crate::support::censor;
use crate::support::edge::Edge;
use crate::support::h1::Talker;
use crate::support::records::Record;
use crate::support::soon;
use crate::support::wire::Port;

async fn censored(fields: &str, config: &str) -> (Edge, Port) {
    let origin = Port::listen(None).await;
    let spec = spec(&origin, fields) + censor::everywhere(config).as_str();
    (Edge::start_plugged(censor::plugins(), "", &spec), origin)
}

async fn session(edge: &mut Edge) -> Record {
    records(edge).await.1
}

#[tokio::test]
async fn plugins_read_messages_put_together_and_change_them() {
    let (mut edge, origin) = censored("", "").await;
    let (mut client, mut far) = opened(&edge, &origin).await;
    // In three frames, with a ping among them, all in one packet and then byte by byte.
    let frames = [masked(0x01, b"he"), masked(0x89, b"?"), masked(0x00, b""), masked(0x80, b"llo")].concat();
    for pieces in [vec![&frames[..]], frames.chunks(1).collect()] {
        for piece in pieces {
            client.wire.send(piece).await;
        }
        assert_eq!(frame(&mut far.wire).await, (0x89, true, b"?".to_vec()), "control frames go ahead");
        assert_eq!(frame(&mut far.wire).await, (0x81, true, b"HELLO".to_vec()));
    }
    client.wire.send(masked(0x82, b"drop")).await;
    client.wire.send(masked(0x82, &[b'a'; 70_000])).await;
    assert_eq!(frame(&mut far.wire).await, (0x82, true, vec![b'A'; 70_000]), "what was dropped is not there");
    far.wire.send(b"\x81\x02hi\x8a\x01?\x81\x04drop\x02\x01a\x80\x01b").await;
    assert_eq!(frame(&mut client.wire).await, (0x81, false, b"hi".to_vec()));
    assert_eq!(frame(&mut client.wire).await, (0x8a, false, b"?".to_vec()));
    assert_eq!(frame(&mut client.wire).await, (0x82, false, b"ab".to_vec()));
    // A Close frame passes with its reason.
    client.wire.send(masked(0x88, b"\x03\xe8bye")).await;
    assert_eq!(frame(&mut far.wire).await, (0x88, true, b"\x03\xe8bye".to_vec()));
    far.wire.send(b"\x88\x02\x03\xe8").await;
    sends_close(&mut client.wire, 1000, false).await;
    client.wire.closed().await;
    far.wire.closed().await;
    assert_eq!(session(&mut edge).await.end(), "closed");
    edge.nothing_recorded().await;
}

#[tokio::test]
async fn extensions_are_not_negotiated_where_messages_are_read() {
    let (edge, origin) = censored("", "").await;
    let offer = "sec-websocket-extensions: permessage-deflate\r\n";
    let (mut client, mut far, head) = asked(&edge, &origin, offer).await;
    assert_eq!(head.field("sec-websocket-extensions"), "");
    far.wire.send(AGREED.replacen("\r\n", "\r\nsec-websocket-extensions: permessage-deflate\r\n", 1)).await;
    let head = client.response(&Method::GET).await.unwrap();
    assert_eq!((head.status(), head.field("sec-websocket-extensions")), (101, ""));
    // Where nobody reads, they are nobody's business.
    let (edge, origin) = censored("", "deaf: true").await;
    let (_client, _far, head) = asked(&edge, &origin, offer).await;
    assert_eq!(head.field("sec-websocket-extensions"), "permessage-deflate");
}

#[tokio::test]
async fn a_plugin_that_panics_at_a_message_ends_its_websocket_with_a_record() {
    let (mut edge, origin) = censored("", "").await;
    let (mut client, mut far) = opened(&edge, &origin).await;
    client.wire.send(masked(0x81, b"panic")).await;
    client.wire.closed().await;
    far.wire.closed().await;
    assert_eq!(session(&mut edge).await.end(), "internal");
    edge.nothing_recorded().await;
}

#[tokio::test]
async fn a_plugin_ends_one_at_a_message_or_before_the_first() {
    let (mut edge, origin) = censored("", "").await;
    let (mut client, mut far) = opened(&edge, &origin).await;
    client.wire.send(masked(0x81, b"end")).await;
    sends_close(&mut client.wire, 1008, false).await;
    sends_close(&mut far.wire, 1001, true).await;
    drop((client, far));
    assert_eq!(session(&mut edge).await.end(), "message_refused");
    let (mut client, mut far) = opened(&edge, &origin).await;
    far.wire.send(b"\x81\x05spoil").await;
    sends_close(&mut client.wire, 1011, false).await;
    drop((client, far));
    assert_eq!(session(&mut edge).await.end(), "message_refused");
    let (mut edge, origin) = censored("", "refuse: true, deaf: true").await;
    let (mut client, mut far, _) = asked(&edge, &origin, "").await;
    far.wire.send(AGREED).await;
    // The client was promised nothing yet: it gets an answer instead of a 101 and a Close.
    assert_eq!(client.response(&Method::GET).await.unwrap().status(), 403);
    far.wire.closed().await;
    let record = edge.records.next().await;
    assert_eq!((record.status(), record.reason()), (403, "unwanted"));
}

/// What a client sends, and the code it gets for it.
fn violations() -> Vec<(&'static str, Vec<u8>, u16)> {
    let fragment = masked(0x01, b"a");
    vec![
        ("not masked", b"\x81\x01a".to_vec(), 1002),
        ("a reserved bit", masked(0xC1, b"a"), 1002),
        ("an unknown data opcode", masked(0x83, b"a"), 1002),
        ("an unknown control opcode", masked(0x8B, b""), 1002),
        ("a ping in pieces", masked(0x09, b""), 1002),
        ("a ping that is too long", masked(0x89, &[0; 126]), 1002),
        ("nothing to go on with", masked(0x80, b"a"), 1002),
        ("a message inside another", [fragment, masked(0x81, b"b")].concat(), 1002),
        ("a length in more bytes than it takes", b"\x82\xfe\x00\x05\0\0\0\0hello".to_vec(), 1002),
        ("a length beyond all measure", b"\x82\xff\xff\0\0\0\0\0\0\0\0\0\0\0".to_vec(), 1002),
        ("half a close code", masked(0x88, b"\x03"), 1002),
        ("a close code that is none", masked(0x88, &1005_u16.to_be_bytes()), 1002),
        ("text that is none", masked(0x81, b"\xc3\x28"), 1007),
        ("text that is none, in pieces", [masked(0x01, b"\xe2\x82"), masked(0x80, b"a")].concat(), 1007),
        ("a reason that is no text", masked(0x88, b"\x03\xe8\xff"), 1007),
        ("one byte too many", masked(0x82, &[0; 1001]), 1009),
        ("one byte too many, in pieces", [masked(0x02, &[0; 600]), masked(0x80, &[0; 401])].concat(), 1009),
        ("a claim of a gibibyte", b"\x82\xff\0\0\0\0\x40\0\0\0\0\0\0\0".to_vec(), 1009),
    ]
}

#[tokio::test]
async fn who_breaks_the_protocol_is_told_how() {
    let (mut edge, origin) = censored(", websocket_max_message: 1000", "").await;
    for (what, bytes, code) in violations() {
        let (mut client, mut far) = opened(&edge, &origin).await;
        client.wire.send(&bytes).await;
        let got = frame(&mut client.wire).await;
        assert_eq!(got, (0x88, false, code.to_be_bytes().to_vec()), "{what}");
        sends_close(&mut far.wire, 1001, true).await;
        drop((client, far));
        let end = if code == 1009 { "message_too_large" } else { "protocol_violated" };
        assert_eq!(session(&mut edge).await.end(), end, "{what}");
    }
    // A target's mistakes are not the client's.
    for (bytes, code) in [(&b"\x81\x81\0\0\0\0a"[..], 1002), (b"\x81\x01\xff", 1007)] {
        let (mut client, mut far) = opened(&edge, &origin).await;
        far.wire.send(bytes).await;
        sends_close(&mut client.wire, 1011, false).await;
        sends_close(&mut far.wire, code, true).await;
        drop((client, far));
        assert_eq!(session(&mut edge).await.end(), "protocol_violated");
    }
    let (mut client, mut far) = opened(&edge, &origin).await;
    client.wire.send(masked(0x82, &[1; 1000])).await;
    assert_eq!(frame(&mut far.wire).await.2.len(), 1000, "as large as may be");
}

#[tokio::test]
async fn those_that_are_read_end_like_others() {
    let (mut edge, origin) = censored(", websocket_idle_timeout: 200ms", "").await;
    let (mut client, mut far) = opened(&edge, &origin).await;
    sends_close(&mut client.wire, 1001, false).await;
    sends_close(&mut far.wire, 1001, true).await;
    drop((client, far));
    assert_eq!(session(&mut edge).await.end(), "idle");
    let (mut client, far) = opened(&edge, &origin).await;
    drop(far);
    sends_close(&mut client.wire, 1011, false).await;
    drop(client);
    assert_eq!(session(&mut edge).await.end(), "closed");
    let (client, mut far): (Talker, Talker) = opened(&edge, &origin).await;
    drop(client);
    far.wire.closed().await;
    drop(far);
    assert!(["closed", "client_reset"].contains(&session(&mut edge).await.end()));
    let (edge, origin) = censored("", "").await;
    let (mut client, mut far) = opened(&edge, &origin).await;
    client.wire.send(masked(0x01, b"half a mess")).await;
    client.wire.send(b"\x80\xff").await;
    edge.gateway.begin_drain();
    sends_close(&mut client.wire, 1001, false).await;
    sends_close(&mut far.wire, 1001, true).await;
    drop((client, far));
    let Edge { gateway, mut records, .. } = edge;
    assert!(soon(tokio::task::spawn_blocking(move || gateway.drain())).await.unwrap());
    assert_eq!(records.next().await.status(), 101);
    assert_eq!(records.next().await.end(), "drained");
}
