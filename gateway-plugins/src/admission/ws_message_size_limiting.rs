//! Ends WebSockets whose messages are larger than allowed, with close code 1009 (RFC 6455 §7.4.1).
//!
//! A message counts as it is put together from its frames. The proxy's own `websocket_max_message` (1 MiB unless set)
//! holds as well: the smaller of both counts, and it is what bounds the memory that a message takes. On UDP and DTLS proxies
//! datagrams that are too large are dropped.

use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::Bytes;
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::{Family, Hooks, OnMessage, Passage, Plugin, Seat, World};
use gateway_core::stream::session::{Direction, Message, MessageKind, Session};
use schemars::JsonSchema;
use serde::Deserialize;

/// Settings of `ws_message_size_limiting`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Size of a client's message in bytes, at least 1. This or `max_target_size` is required.
    #[schemars(range(min = 1))]
    max_from_client: Option<Bytes>,
    /// Size of a target's message in bytes, at least 1.
    #[schemars(range(min = 1))]
    max_from_target: Option<Bytes>,
    /// What happens to a message that is too large: `close` ends the WebSocket, `drop` discards the message. Default
    /// `close`.
    on_exceeded: Exceeded,
    /// Close code, 1000 to 4999. Default 1009.
    #[schemars(range(min = 1000, max = 4999))]
    close_code: Option<u16>,
}

/// What happens to a message that is too large.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Exceeded {
    /// The WebSocket ends.
    #[default]
    Close,
    /// The message is discarded.
    Drop,
}

/// The plugin.
pub(crate) struct WsMessageSizeLimiting {
    client: u64,
    target: u64,
    /// `None` leaves messages out.
    close: Option<u16>,
    exceeded: [Counter; 2],
}

const EXCEEDED: Metric = Metric::counter(
    "ferrum_ws_message_size_limiting_exceeded_total",
    "Messages that were larger than allowed, by who sent them.",
);

/// Whether an endpoint may send this close code (RFC 6455 §7.4).
pub(crate) fn may_be_sent(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

impl Plugin for WsMessageSizeLimiting {
    const NAME: &'static str = "ws_message_size_limiting";
    const FAMILY: Family = Family::Admission;
    const SUMMARY: &'static str = "Ends WebSockets whose messages are larger than allowed.";
    const EXAMPLE: &'static str = include_str!("../../examples/ws_message_size_limiting.yaml");
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        if config.max_from_client.is_none() && config.max_from_target.is_none() {
            problems.add("config", "nothing is limited").remedy =
                Some("give `max_from_client` or `max_from_target`".into());
        }
        let code = config.close_code.unwrap_or(1009);
        if !may_be_sent(code) {
            problems.add("config.close_code", format!("{code} may not be sent in a Close frame"));
        }
        if config.on_exceeded == Exceeded::Drop && config.close_code.is_some() {
            problems.add("config.close_code", "nothing is closed with `on_exceeded: drop`");
        }
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let exceeded = |from| world.meters().counter(EXCEEDED, &["plugin_config", "from"], &[owner, from]);
        problems.into_result(Self {
            client: config.max_from_client.map_or(u64::MAX, |bytes| bytes.0),
            target: config.max_from_target.map_or(u64::MAX, |bytes| bytes.0),
            close: (config.on_exceeded == Exceeded::Close).then_some(code),
            exceeded: [exceeded("client"), exceeded("target")],
        })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_message(self);
    }
}

impl OnMessage for WsMessageSizeLimiting {
    fn on_message<'a>(&'a self, _session: &'a Session, message: Message<'_>, _seat: Seat<'a>) -> Passage<'a> {
        self.judge(message.direction, message.kind, message.payload.len())
    }
}

impl WsMessageSizeLimiting {
    fn judge(&self, direction: Direction, kind: MessageKind, length: usize) -> Passage<'_> {
        let [client, target] = &self.exceeded;
        let (limit, exceeded) = match direction {
            Direction::Up => (self.client, client),
            Direction::Down => (self.target, target),
        };
        if length as u64 <= limit {
            return Passage::Forward;
        }
        exceeded.add(1);
        match self.close {
            Some(code) if kind != MessageKind::Datagram => Passage::Close(code),
            _ => Passage::Drop,
        }
    }
}

#[cfg(test)]
mod tests {
    use gateway_core::plugin::entry;
    use gateway_core::testing::Trial;
    use serde_json::{Value, json};

    use super::*;

    fn build(config: Value) -> WsMessageSizeLimiting {
        let config = serde_json::from_value(config).unwrap();
        WsMessageSizeLimiting::build(config, &World::default())
            .unwrap_or_else(|problems| panic!("{problems}"))
    }

    #[test]
    fn each_direction_has_its_limit() {
        let plugin = build(json!({ "max_from_client": 10, "max_from_target": "1KiB" }));
        for (direction, length, passes) in [
            (Direction::Up, 10, true),
            (Direction::Up, 11, false),
            (Direction::Down, 1024, true),
            (Direction::Down, 1025, false),
        ] {
            let passage = plugin.judge(direction, MessageKind::Text, length);
            assert_eq!(matches!(passage, Passage::Forward), passes, "{direction:?} {length}");
            assert!(passes || matches!(passage, Passage::Close(1009)));
        }
        assert_eq!(plugin.exceeded.each_ref().map(Counter::get), [1, 1]);
        let one = build(json!({ "max_from_client": 10 }));
        assert!(matches!(one.judge(Direction::Down, MessageKind::Binary, usize::MAX), Passage::Forward));
    }

    #[test]
    fn what_becomes_of_large_ones() {
        let coded = build(json!({ "max_from_client": 1, "close_code": 4001 }));
        assert!(matches!(coded.judge(Direction::Up, MessageKind::Binary, 2), Passage::Close(4001)));
        assert!(matches!(coded.judge(Direction::Up, MessageKind::Datagram, 2), Passage::Drop));
        let dropped = build(json!({ "max_from_client": 1, "on_exceeded": "drop" }));
        assert!(matches!(dropped.judge(Direction::Up, MessageKind::Text, 2), Passage::Drop));
    }

    #[test]
    fn bad_settings_are_refused() {
        for (config, path) in [
            (json!({}), "config"),
            (json!({ "max_from_client": 0 }), "config.max_from_client"),
            (json!({ "max_from_client": 1, "close_code": 1005 }), "config.close_code"),
            (json!({ "max_from_client": 1, "close_code": 999 }), "config.close_code"),
            (json!({ "max_from_client": 1, "close_code": 1009, "on_exceeded": "drop" }), "config.close_code"),
        ] {
            let entries = [entry::<WsMessageSizeLimiting>()];
            assert_eq!(
                Trial::refused(&entries, "ws_message_size_limiting", &config).0[0].path,
                path,
                "{config}"
            );
        }
    }
}
