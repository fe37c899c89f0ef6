//! Who ends a WebSocket says so: close codes when the gateway drains, when it has had enough, and when a target dies.

use http::Method;

use super::{AGREED, asked, edge_with, opened, records, spec};
use crate::support::edge::Edge;
use crate::support::soon;
use crate::support::wire::{Port, Wire};

/// The next frame, unmasked: its opcode, whether it was masked, and its payload.
pub(super) async fn frame(wire: &mut Wire) -> (u8, bool, Vec<u8>) {
    let head = exactly(wire, 2).await;
    let masked = head[1] & 0x80 != 0;
    let length = match head[1] & 0x7F {
        126 => {
            let bytes = exactly(wire, 2).await;
            usize::from(u16::from_be_bytes([bytes[0], bytes[1]]))
        }
        127 => usize::try_from(u64::from_be_bytes(exactly(wire, 8).await.try_into().unwrap())).unwrap(),
        short => usize::from(short),
    };
    let mask = if masked { exactly(wire, 4).await } else { vec![0; 4] };
    let mut payload = exactly(wire, length).await;
    for (byte, key) in payload.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
    (head[0], masked, payload)
}

async fn exactly(wire: &mut Wire, length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < length {
        bytes.extend_from_slice(&wire.some(length - bytes.len()).await.expect("the frame goes on"));
    }
    bytes
}

/// A Close frame with this code is next, masked or not.
#[track_caller]
pub(super) fn sends_close(wire: &mut Wire, code: u16, masked: bool) -> impl Future<Output = ()> + '_ {
    let caller = std::panic::Location::caller();
    async move {
        let got = frame(wire).await;
        assert_eq!(got, (0x88, masked, code.to_be_bytes().to_vec()), "at {caller}");
    }
}

/// A client's masked frame.
pub(super) fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [9, 8, 7, 6];
    let mut bytes = vec![first];
    match payload.len() {
        short @ 0..126 => bytes.push(0x80 | short as u8),
        medium @ 126..65_536 => {
            bytes.push(0x80 | 126);
            bytes.extend((medium as u16).to_be_bytes());
        }
        long => {
            bytes.push(0x80 | 127);
            bytes.extend((long as u64).to_be_bytes());
        }
    }
    bytes.extend(mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
    bytes
}

#[tokio::test]
async fn a_drain_sends_close_and_waits_for_the_answers() {
    let origin = Port::listen(None).await;
    let edge = Edge::start(&spec(&origin, ""));
    let (mut client, mut far) = opened(&edge, &origin).await;
    client.wire.send(masked(0x82, b"ping")).await;
    assert_eq!(frame(&mut far.wire).await, (0x82, true, b"ping".to_vec()));
    edge.gateway.begin_drain();
    sends_close(&mut client.wire, 1001, false).await;
    sends_close(&mut far.wire, 1001, true).await;
    // What is still under way to the other side is not delivered after a Close, and does no harm.
    far.wire.send(b"\x82\x03abc").await;
    client.wire.send(masked(0x82, b"late")).await;
    far.wire.send(b"\x88\x02\x03\xe9").await;
    client.wire.send(masked(0x88, &1001_u16.to_be_bytes())).await;
    client.wire.closed().await;
    far.wire.closed().await;
    let Edge { gateway, mut records, .. } = edge;
    let clean = soon(tokio::task::spawn_blocking(move || gateway.drain())).await.unwrap();
    assert!(clean, "everybody left by themselves");
    assert_eq!(records.next().await.status(), 101);
    let session = records.next().await;
    assert_eq!((session.kind(), session.end()), ("websocket", "drained"));
}

/// A Close in the middle of a frame would be payload.
#[tokio::test]
async fn a_close_frame_waits_for_the_end_of_the_frame_under_way() {
    let origin = Port::listen(None).await;
    let edge = Edge::start(&spec(&origin, ""));
    let (mut client, mut far) = opened(&edge, &origin).await;
    let message = masked(0x82, &[7; 70_000]);
    let (first, second) = message.split_at(30_000);
    client.wire.send(first).await;
    far.wire.expect(first).await;
    far.wire.send(b"\x01\x7e\x01").await;
    client.wire.expect(b"\x01\x7e\x01").await;
    edge.gateway.begin_drain();
    client.wire.send(second).await;
    far.wire.send(&[&[0x2c][..], &[b'x'; 300]].concat()).await;
    far.wire.expect(second).await;
    sends_close(&mut far.wire, 1001, true).await;
    client.wire.expect([&[0x2c][..], &[b'x'; 300]].concat()).await;
    sends_close(&mut client.wire, 1001, false).await;
    drop((client, far));
    let Edge { gateway, mut records, .. } = edge;
    assert!(soon(tokio::task::spawn_blocking(move || gateway.drain())).await.unwrap());
    assert_eq!(records.next().await.status(), 101);
    assert_eq!(records.next().await.end(), "drained");
}

#[tokio::test]
async fn one_opened_while_the_gateway_drains_is_told_at_once() {
    let origin = Port::listen(None).await;
    let edge = Edge::start(&spec(&origin, ""));
    let (mut client, mut far, _) = asked(&edge, &origin, "").await;
    edge.gateway.begin_drain();
    far.wire.send(AGREED).await;
    assert_eq!(client.response(&Method::GET).await.unwrap().status(), 101);
    sends_close(&mut client.wire, 1001, false).await;
    sends_close(&mut far.wire, 1001, true).await;
}

#[tokio::test]
async fn limits_end_with_a_close_frame_too() {
    for (fields, end) in
        [(", websocket_idle_timeout: 200ms", "idle"), (", websocket_lifetime: 200ms", "lifetime")]
    {
        let (mut edge, origin) = edge_with(fields).await;
        let (mut client, mut far) = opened(&edge, &origin).await;
        sends_close(&mut client.wire, 1001, false).await;
        sends_close(&mut far.wire, 1001, true).await;
        drop((client, far));
        let (_, session) = records(&mut edge).await;
        assert_eq!(session.end(), end);
    }
}

#[tokio::test]
async fn a_dead_target_is_told_from_a_close_frame_of_its_own() {
    let (mut edge, origin) = edge_with("").await;
    let (mut client, far) = opened(&edge, &origin).await;
    drop(far);
    sends_close(&mut client.wire, 1011, false).await;
    client.wire.shutdown().await;
    client.wire.closed().await;
    assert_eq!(records(&mut edge).await.1.end(), "closed");
    // One that sends a Close frame itself is not spoken for.
    let (mut client, mut far) = opened(&edge, &origin).await;
    far.wire.send(b"\x88\x02\x03\xe8").await;
    drop(far);
    sends_close(&mut client.wire, 1000, false).await;
    client.wire.closed().await;
    drop(client);
    assert_eq!(records(&mut edge).await.1.end(), "closed");
    // Nor one that goes because the client sent a Close frame.
    let (mut client, mut far) = opened(&edge, &origin).await;
    client.wire.send(masked(0x88, b"")).await;
    assert_eq!(frame(&mut far.wire).await, (0x88, true, Vec::new()));
    drop(far);
    client.wire.closed().await;
    drop(client);
    assert_eq!(records(&mut edge).await.1.end(), "closed");
}

/// One with a key, before a configuration without its consumer, its proxy, or the key.
#[tokio::test]
async fn of_a_deleted_consumer_or_proxy_it_ends() {
    const KEYED: &str = "consumers:\n  - {id: ann, username: ann, credentials: {key_auth: {key: sesame}}}\n";
    const PLUGIN: &str = "plugin_configs:\n  - {id: k, plugin_name: key_auth, proxy_id: w}\n";
    let origin = Port::listen(None).await;
    let proxy = spec(&origin, "");
    let changed = format!("{proxy}{PLUGIN}{}", KEYED.replace("sesame", "another"));
    for after in [format!("{proxy}{PLUGIN}"), format!("proxies:\n{KEYED}"), changed] {
        let settings = "  session_check: 1";
        let mut edge = Edge::start_with(settings, &format!("{proxy}{PLUGIN}{KEYED}"));
        let (mut client, mut far, _) = asked(&edge, &origin, "x-api-key: sesame\r\n").await;
        far.wire.send(AGREED).await;
        assert_eq!(client.response(&Method::GET).await.unwrap().status(), 101);
        edge.reload(&after);
        client.wire.until(b"\x88").await.unwrap();
        far.wire.until(b"\x88").await.unwrap();
        drop((client, far));
        let (_, session) = records(&mut edge).await;
        assert_eq!(session.end(), "revoked", "{after}");
    }
}
