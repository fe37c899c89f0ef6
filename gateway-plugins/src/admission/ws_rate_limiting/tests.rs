//! What passes in which time, and that each option does something.

use gateway_core::http::exchange::Client;
use gateway_core::plugin::entry;
use gateway_core::testing::Trial;
use serde_json::{Value, json};

use super::*;

const A_PROXY: CountedProxy<'_> = CountedProxy { id: "a", owner: None };

fn build(config: Value) -> WsRateLimiting {
    let config = serde_json::from_value(config).unwrap();
    WsRateLimiting::build(config, &World::default()).unwrap_or_else(|problems| panic!("{problems}"))
}

fn say(
    plugin: &WsRateLimiting,
    key: u64,
    direction: Direction,
    kind: MessageKind,
    text: &str,
) -> Passage<'static> {
    let mut payload = Payload::copy_from_slice(text.as_bytes());
    plugin.judge(key, Message { direction, kind, payload: &mut payload }, Instant::now())
}

fn passes(plugin: &WsRateLimiting, key: u64, text: &str) -> bool {
    matches!(say(plugin, key, UP, MessageKind::Text, text), Passage::Forward)
}

const UP: Direction = Direction::Up;
const DOWN: Direction = Direction::Down;

#[tokio::test(start_paused = true)]
async fn messages_in_a_second() {
    let plugin = build(json!({ "messages_per_second": 10, "message_burst": 2 }));
    assert_eq!([(); 3].map(|()| passes(&plugin, 1, "a")), [true, true, false]);
    assert!(passes(&plugin, 2, "a"), "another connection");
    tokio::time::advance(Duration::from_millis(100)).await;
    assert_eq!([(); 2].map(|()| passes(&plugin, 1, "a")), [true, false]);
    assert_eq!(plugin.limited.get(), 2);
    assert!(matches!(say(&plugin, 1, UP, MessageKind::Text, "a"), Passage::Close(1008)));
}

#[tokio::test(start_paused = true)]
async fn bytes_in_a_second() {
    let plugin = build(json!({ "bytes_per_second": "1kB", "byte_burst": 100, "messages_per_second": 3 }));
    assert!(passes(&plugin, 1, &"x".repeat(60)));
    assert!(!passes(&plugin, 1, &"x".repeat(60)), "more than the burst");
    assert!(passes(&plugin, 1, &"x".repeat(40)), "what was refused took nothing");
    tokio::time::advance(Duration::from_millis(50)).await;
    assert!(passes(&plugin, 1, &"x".repeat(50)), "and no message either");
    assert!(!passes(&plugin, 1, ""));
    let fast = build(json!({ "bytes_per_second": "1GB" }));
    assert!(passes(&fast, 1, &"x".repeat(1_000_000)));
}

#[tokio::test(start_paused = true)]
async fn whose_messages_count() {
    for (from, up, down) in [("client", false, true), ("target", true, false), ("both", false, false)] {
        let plugin = build(json!({ "messages_per_second": 1, "from": from }));
        for direction in [UP, DOWN] {
            assert!(matches!(
                say(&plugin, 1 + direction as u64, direction, MessageKind::Text, ""),
                Passage::Forward
            ));
        }
        let passes = [UP, DOWN]
            .map(|it| matches!(say(&plugin, 1 + it as u64, it, MessageKind::Text, ""), Passage::Forward));
        assert_eq!(passes, [up, down], "{from}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_becomes_of_too_many() {
    let closes = build(json!({ "messages_per_second": 1, "close_code": 4029 }));
    assert!(passes(&closes, 1, "a"));
    assert!(matches!(say(&closes, 1, UP, MessageKind::Text, "a"), Passage::Close(4029)));
    assert!(matches!(say(&closes, 1, Direction::Up, MessageKind::Datagram, "a"), Passage::Drop));
    let drops = build(json!({ "messages_per_second": 1, "on_exceeded": "drop" }));
    assert!(passes(&drops, 1, "a"));
    assert!(matches!(say(&drops, 1, UP, MessageKind::Text, "a"), Passage::Drop));
    let waits = build(json!({ "messages_per_second": 2, "message_burst": 1, "on_exceeded": "wait" }));
    assert!(passes(&waits, 1, "a"));
    let Passage::Wait(waiting) = say(&waits, 1, UP, MessageKind::Text, "late") else {
        panic!("does not wait")
    };
    let begun = Instant::now();
    assert!(matches!(waiting.await, Decision::Forward(payload) if *payload == *b"late"));
    assert_eq!(begun.elapsed().as_millis(), 500);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_never_fits_does_not_wait() {
    let plugin = build(json!({ "bytes_per_second": 1, "byte_burst": 10, "on_exceeded": "wait" }));
    assert!(matches!(say(&plugin, 1, UP, MessageKind::Text, &"x".repeat(1000)), Passage::Close(1008)));
    assert!(passes(&plugin, 1, &"x".repeat(10)));
    // A hundred wait for one place: who would wait too long ends.
    let many = build(json!({ "messages_per_second": 1, "on_exceeded": "wait" }));
    let waiting: Vec<_> = (0..100)
        .filter_map(|_| match say(&many, 1, UP, MessageKind::Text, "a") {
            Passage::Wait(waiting) => Some(waiting),
            _ => None,
        })
        .collect();
    let decided = futures_util::future::join_all(waiting).await;
    let forwarded = decided.iter().filter(|decision| matches!(decision, Decision::Forward(_))).count();
    assert!((25..=31).contains(&forwarded), "{forwarded}");
}

#[test]
fn keys() {
    let session = |address: [u8; 4]| {
        let client = Client::new((address, 1).into(), ([127, 0, 0, 1], 1).into(), false, None);
        Session::new(Arc::new(client))
    };
    let one = build(json!({ "messages_per_second": 1 }));
    let (a, b) = (session([192, 0, 2, 1]), session([192, 0, 2, 9]));
    assert_ne!(one.key(&a, A_PROXY), one.key(&a, A_PROXY), "each connection has its own");
    let by_net = build(json!({ "messages_per_second": 1, "limit_by": "address", "ipv4_prefix": 24 }));
    assert_eq!(by_net.key(&a, A_PROXY), by_net.key(&b, A_PROXY));
    let by_address = build(json!({ "messages_per_second": 1, "limit_by": "address" }));
    assert_ne!(by_address.key(&a, A_PROXY), by_address.key(&b, A_PROXY));
    let v6 = |third: u16| {
        let address = std::net::Ipv6Addr::new(0x2001, 0xdb8, third, 1, 0, 0, 0, 1);
        let client = Client::new((address, 1).into(), ([127, 0, 0, 1], 1).into(), false, None);
        Session::new(Arc::new(client))
    };
    assert_ne!(by_address.key(&v6(1), A_PROXY), by_address.key(&v6(2), A_PROXY));
    let by_v6 = build(json!({ "messages_per_second": 1, "limit_by": "address", "ipv6_prefix": 32 }));
    assert_eq!(by_v6.key(&v6(1), A_PROXY), by_v6.key(&v6(2), A_PROXY));
    let missing = |on_missing| {
        let config = json!({ "messages_per_second": 1, "limit_by": "consumer", "on_missing": on_missing });
        build(config).key(&a, A_PROXY)
    };
    assert_eq!((missing("deny"), missing("allow")), (Keyed::Denied, Keyed::Nobody));
}

#[test]
fn bad_settings_are_refused() {
    for (config, path) in [
        (json!({}), "config"),
        (json!({ "messages_per_second": 0 }), "config.messages_per_second"),
        (json!({ "messages_per_second": 1, "byte_burst": 1 }), "config.byte_burst"),
        (json!({ "bytes_per_second": 1, "message_burst": 1 }), "config.message_burst"),
        (json!({ "messages_per_second": 1, "limit_by": "nothing" }), "config.limit_by"),
        (json!({ "messages_per_second": 1, "close_code": 1006 }), "config.close_code"),
        (json!({ "messages_per_second": 1, "on_exceeded": "drop", "close_code": 1008 }), "config.close_code"),
        (json!({ "messages_per_second": 1, "max_keys": 0 }), "config.max_keys"),
    ] {
        let problems = Trial::refused(&[entry::<WsRateLimiting>()], "ws_rate_limiting", &config);
        assert_eq!(problems.0[0].path, path, "{problems}");
    }
}

/// A byte stream has no messages: there is nothing to limit. Datagrams are limited.
#[test]
fn a_proxy_without_messages_is_refused() {
    for (scheme, is_taken) in [("tcp", false), ("udp", true)] {
        let spec = json!({
            "proxies": [{ "id": "a", "listen_port": 9999, "backend_scheme": scheme, "backend_host": "t", "backend_port": 1 }],
            "plugin_configs": [{ "id": "w", "plugin_name": "ws_rate_limiting", "proxy_id": "a", "config": { "messages_per_second": 1 } }],
        });
        let entries = [entry::<WsRateLimiting>()];
        let taken = Trial::try_of_spec(&entries, &spec.to_string(), &World::default());
        match taken {
            Ok(_) => assert!(is_taken, "{scheme}"),
            Err(problems) => {
                assert!(!is_taken, "{problems}");
                assert!(problems.to_string().contains("does nothing for TCP and TLS traffic"), "{problems}");
            }
        }
    }
}
