//! The plugins that limit messages of WebSockets, over HTTP/1.1 and HTTP/2.

use super::endings::{frame, masked, sends_close};
use super::over_h2::{ask, client, take};
use super::{AGREED, opened, records, spec};
use crate::support::edge::Edge;
use crate::support::h1::Talker;
use crate::support::h2::send;
use crate::support::soon;
use crate::support::wire::{Port, Wire};

/// A plugin, messages that pass, one that does not, and the code for it.
type Row = (&'static str, &'static str, &'static [&'static [u8]], &'static [u8], u16);

const ROWS: [Row; 4] = [
    ("ws_message_size_limiting", "{max_from_client: 4}", &[b"four", b"4444"], b"fives", 1009),
    ("ws_message_size_limiting", "{max_from_client: 4, close_code: 4009}", &[b"four"], b"fives", 4009),
    ("ws_rate_limiting", "{messages_per_second: 1, message_burst: 2}", &[b"a", b"b"], b"c", 1008),
    (
        "ws_rate_limiting",
        "{bytes_per_second: 1, byte_burst: 8, close_code: 4008}",
        &[b"four"],
        b"fives",
        4008,
    ),
];

async fn limited(plugin: &str, config: &str) -> (Edge, Port) {
    let origin = Port::listen(None).await;
    let plugin =
        format!("plugin_configs:\n  - {{id: p, plugin_name: {plugin}, scope: global, config: {config}}}\n");
    (Edge::start(&(spec(&origin, "") + plugin.as_str())), origin)
}

#[tokio::test]
async fn messages_are_limited_over_http_1() {
    for (plugin, config, good, bad, code) in ROWS {
        let (mut edge, origin) = limited(plugin, config).await;
        let (mut near, mut far) = opened(&edge, &origin).await;
        for message in good {
            near.wire.send(masked(0x82, message)).await;
            assert_eq!(frame(&mut far.wire).await, (0x82, true, message.to_vec()), "{plugin} {config}");
        }
        near.wire.send(masked(0x82, bad)).await;
        sends_close(&mut near.wire, code, false).await;
        drop((near, far));
        assert_eq!(records(&mut edge).await.1.end(), "message_refused", "{plugin} {config}");
    }
}

#[tokio::test]
async fn messages_are_limited_over_http_2() {
    for (plugin, config, good, bad, code) in ROWS {
        let (edge, origin) = limited(plugin, config).await;
        for tls in [false, true] {
            let mut requests = client(&edge, tls).await;
            let (answer, mut sending) = requests.send_request(ask("websocket"), false).unwrap();
            let mut far = Talker::new(Wire::new(origin.accept().await));
            far.request().await.unwrap();
            far.wire.send(AGREED).await;
            let mut recv = soon(answer).await.unwrap().into_body();
            for message in good {
                send(&mut sending, &masked(0x82, message), false).await.unwrap();
                assert_eq!(frame(&mut far.wire).await, (0x82, true, message.to_vec()), "{plugin} {config}");
            }
            send(&mut sending, &masked(0x82, bad), false).await.unwrap();
            let [high, low] = code.to_be_bytes();
            assert_eq!(take(&mut recv, 4).await, [0x88, 2, high, low], "{plugin} {config}");
        }
    }
}

/// Pings and pongs cost their reader as much as messages.
#[tokio::test]
async fn control_frames_count_against_rates() {
    for config in ["{messages_per_second: 1, message_burst: 2}", "{bytes_per_second: 1, byte_burst: 8}"] {
        for opcode in [0x89, 0x8A] {
            let (edge, origin) = limited("ws_rate_limiting", config).await;
            let (mut near, mut far) = opened(&edge, &origin).await;
            for _ in 0..2 {
                near.wire.send(masked(opcode, b"ping")).await;
                assert_eq!(frame(&mut far.wire).await, (opcode, true, b"ping".to_vec()), "{config}");
            }
            near.wire.send(masked(opcode, b"ping")).await;
            sends_close(&mut near.wire, 1008, false).await;
        }
    }
}

/// A message never ends whose frames are empty, and no limit on bytes counts them.
#[tokio::test]
async fn a_message_of_empty_frames_ends() {
    let (edge, origin) = limited("ws_message_size_limiting", "{max_from_client: 4}").await;
    let (mut near, _far) = opened(&edge, &origin).await;
    let frames: Vec<u8> = (0..1100).flat_map(|n| masked(if n == 0 { 0x02 } else { 0x00 }, b"")).collect();
    near.wire.send(frames).await;
    sends_close(&mut near.wire, 1009, false).await;
}

/// What is too much may be left out, or wait, and the WebSocket goes on.
#[tokio::test]
async fn messages_that_are_too_much_are_left_out_or_wait() {
    for (plugin, config, arrives) in [
        ("ws_message_size_limiting", "{max_from_client: 4, on_exceeded: drop}", false),
        ("ws_rate_limiting", "{bytes_per_second: 1, byte_burst: 4, on_exceeded: drop}", false),
        ("ws_rate_limiting", "{bytes_per_second: 40, byte_burst: 5, on_exceeded: wait}", true),
    ] {
        let (edge, origin) = limited(plugin, config).await;
        let (mut near, mut far) = opened(&edge, &origin).await;
        near.wire.send([masked(0x82, b"fives"), masked(0x82, b"x")].concat()).await;
        if arrives {
            assert_eq!(frame(&mut far.wire).await.2, b"fives", "{plugin}");
        }
        assert_eq!(frame(&mut far.wire).await.2, b"x", "{plugin}");
    }
}

/// A target's messages are not the client's: each side has its own limit.
#[tokio::test]
async fn the_side_that_is_limited_is_the_one_that_was_named() {
    for (plugin, config, code) in [
        ("ws_message_size_limiting", "{max_from_target: 1}", 1009),
        ("ws_rate_limiting", "{messages_per_second: 1, from: target}", 1008),
    ] {
        let (edge, origin) = limited(plugin, config).await;
        let (mut near, mut far) = opened(&edge, &origin).await;
        for _ in 0..3 {
            near.wire.send(masked(0x82, b"client")).await;
            assert_eq!(frame(&mut far.wire).await.2, b"client", "{plugin}");
        }
        far.wire.send(b"\x82\x01a\x82\x02bb").await;
        assert_eq!(frame(&mut near.wire).await.2, b"a", "{plugin}");
        sends_close(&mut near.wire, code, false).await;
    }
}
