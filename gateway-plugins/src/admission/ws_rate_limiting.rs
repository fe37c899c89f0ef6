//! Limits how many messages, and how many bytes of them, WebSockets carry, for each connection or for each caller.
//!
//! Pings and pongs count as messages; a Close frame ends the WebSocket and does not. A rate has a burst and is counted by GCRA, as in `rate_limiting`. What is too much ends the WebSocket (close code 1008), is
//! left out, or waits until there is room, which holds the sender up by TCP or HTTP/2 flow control. On UDP and DTLS proxies
//! datagrams are counted, and dropped where they are too many. How often WebSockets may be opened is `rate_limiting`'s.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes as Payload;
use gateway_core::config::problem::Problems;
use gateway_core::config::units::Bytes;
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::{
    Capabilities, Capability, Decision, Family, Gate, Hooks, OnConnect, OnMessage, Passage, Plugin, Refusal,
    Seat, World,
};
use gateway_core::stream::session::{Direction, Message, MessageKind, Session};
use gateway_plugin_common::caller_key::{CountedProxy, KeyBy, KeySettings, Keyed, Missing};
use gateway_plugin_common::one_or_many::OneOrMany;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use crate::admission::rate_table::{Rule, Table};
use crate::admission::ws_message_size_limiting::may_be_sent;

/// Settings of `ws_rate_limiting`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Messages, pings and pongs a second, 1 to 1,000,000. This or `bytes_per_second` is required.
    #[schemars(range(min = 1, max = 1_000_000))]
    messages_per_second: Option<u64>,
    /// Burst of messages, at least 1. Default `messages_per_second`.
    #[schemars(range(min = 1, max = 1_000_000))]
    message_burst: Option<u64>,
    /// Payload bytes a second, 1 to 1 GB.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    bytes_per_second: Option<Bytes>,
    /// Burst of payload bytes; a larger message never passes. Default `bytes_per_second`.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    byte_burst: Option<Bytes>,
    /// Whose messages count: `client`, `target` or `both`, which share the limit. Default `client`.
    from: From,
    /// `connection` limits each WebSocket by itself. The keys of `rate_limiting`, such as `consumer` or `address`,
    /// limit all WebSockets of one caller together. Default `connection`.
    limit_by: OneOrMany,
    /// Prefix length of IPv4 addresses that share a limit, 1 to 32. Default 32.
    #[schemars(range(min = 1, max = 32))]
    ipv4_prefix: u8,
    /// Prefix length of IPv6 addresses that share a limit, 1 to 128. Default 64, the usual size for one customer.
    #[schemars(range(min = 1, max = 128))]
    ipv6_prefix: u8,
    /// What happens to WebSockets that lack the value of `limit_by`: `address` counts them by the client's address,
    /// `allow` does not count them, `deny` rejects them with 403. Default `address`.
    on_missing: Missing,
    /// What happens to a message above the limit: `close` ends the WebSocket, `drop` discards the message, `wait`
    /// delays it for up to 30 s, and ends the WebSocket after that. Default `close`.
    on_exceeded: Exceeded,
    /// Close code, 1000 to 4999. Default 1008.
    #[schemars(range(min = 1000, max = 4999))]
    close_code: Option<u16>,
    /// Callers in memory, 1 to 10,000,000; each takes 32 bytes for each limit. Default 100,000.
    #[schemars(range(min = 1, max = 10_000_000))]
    max_keys: u64,
}

/// Whose messages count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum From {
    /// The client's.
    #[default]
    Client,
    /// The target's.
    Target,
    /// Both.
    Both,
}

/// What happens to a message above the limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Exceeded {
    /// The WebSocket ends.
    #[default]
    Close,
    /// The message is discarded.
    Drop,
    /// The message is delayed.
    Wait,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            messages_per_second: None,
            message_burst: None,
            bytes_per_second: None,
            byte_burst: None,
            from: From::Client,
            limit_by: OneOrMany::One(CONNECTION.into()),
            ipv4_prefix: 32,
            ipv6_prefix: 64,
            on_missing: Missing::Address,
            on_exceeded: Exceeded::Close,
            close_code: None,
            max_keys: 100_000,
        }
    }
}

/// The plugin.
pub(crate) struct WsRateLimiting {
    messages: Option<Rule>,
    bytes: Option<Rule>,
    from: From,
    /// `None` is each connection.
    key_by: Option<KeyBy>,
    table: Arc<Table>,
    exceeded: Exceeded,
    code: u16,
    limited: Counter,
}

/// What a session counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CountsFor(u64);

const CONNECTION: &str = "connection";
/// The longest a message waits.
const MAX_WAIT: Duration = Duration::from_secs(30);
const LIMITED: Metric =
    Metric::counter("ferrum_ws_rate_limiting_limited_total", "Messages that were too many or too much.");
const EVICTED: Metric = Metric::counter(
    "ferrum_ws_rate_limiting_evicted_total",
    "Keys evicted while they still counted, because more than `max_keys` were in use.",
);

impl Plugin for WsRateLimiting {
    const NAME: &'static str = "ws_rate_limiting";
    const FAMILY: Family = Family::Admission;
    const SUMMARY: &'static str = "Limits the messages and bytes of WebSockets.";
    const EXAMPLE: &'static str = include_str!("../../examples/ws_rate_limiting.yaml");
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let messages = rule("message", config.messages_per_second, config.message_burst, &mut problems);
        let bytes = (config.bytes_per_second, config.byte_burst);
        let bytes = rule("byte", bytes.0.map(|it| it.0), bytes.1.map(|it| it.0), &mut problems);
        if config.messages_per_second.is_none() && config.bytes_per_second.is_none() {
            problems.add("config", "nothing is limited").remedy =
                Some("give `messages_per_second` or `bytes_per_second`".into());
        }
        let code = config.close_code.unwrap_or(1008);
        if !may_be_sent(code) {
            problems.add("config.close_code", format!("{code} may not be sent in a Close frame"));
        }
        if config.on_exceeded == Exceeded::Drop && config.close_code.is_some() {
            problems.add("config.close_code", "nothing is closed with `on_exceeded: drop`");
        }
        let by_connection = matches!(&config.limit_by, OneOrMany::One(text) if text == CONNECTION);
        if by_connection {
            // Each connection is told apart by itself.
            let of_callers = [
                ("ipv4_prefix", config.ipv4_prefix != 32),
                ("ipv6_prefix", config.ipv6_prefix != 64),
                ("on_missing", config.on_missing != Missing::Address),
            ];
            for (name, _) in of_callers.iter().filter(|(_, is_set)| *is_set) {
                problems
                    .add(format!("config.{name}"), format!("has no effect with `limit_by: {CONNECTION}`"));
            }
        }
        let settings = KeySettings {
            name: "limit_by",
            limit_by: config.limit_by,
            ipv4_prefix: config.ipv4_prefix,
            ipv6_prefix: config.ipv6_prefix,
            on_missing: config.on_missing,
        };
        let key_by = (!by_connection).then(|| KeyBy::new(settings, &mut problems));
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let evicted = world.meters().counter(EVICTED, &["plugin_config"], &[owner]);
        let rules = usize::from(messages.is_some()) + usize::from(bytes.is_some());
        let entries = usize::try_from(config.max_keys).unwrap_or(usize::MAX).saturating_mul(rules.max(1));
        problems.into_result(())?;
        Ok(Self {
            messages,
            bytes,
            from: config.from,
            key_by,
            table: world
                .kept(&format!("table of {entries}"), || Table::new(entries, Instant::now(), evicted)),
            exceeded: config.on_exceeded,
            code,
            limited: world.meters().counter(LIMITED, &["plugin_config"], &[owner]),
        })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::of(&[Capability::ConnectsForMessages])
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_connect(self.clone());
        hooks.on_message(self);
    }
}

fn rule(what: &str, rate: Option<u64>, burst: Option<u64>, problems: &mut Problems) -> Option<Rule> {
    let Some(rate) = rate else {
        if burst.is_some() {
            let rate = format!("`{what}s_per_second`");
            problems.add(format!("config.{what}_burst"), format!("there is no burst without {rate}"));
        }
        return None;
    };
    Rule::fine(rate, burst.unwrap_or(rate))
}

impl OnConnect for WsRateLimiting {
    fn on_connect<'a>(&'a self, session: &'a mut Session, seat: Seat<'a>) -> Gate<'a> {
        match self.key(session, seat.proxy().into()) {
            Keyed::Key(key) => {
                session.state.put(seat, CountsFor(key));
                Gate::Open
            }
            Keyed::Nobody => Gate::Open,
            Keyed::Denied => Gate::Refuse(Refusal::new("rate_limit_key_missing")),
        }
    }
}

impl OnMessage for WsRateLimiting {
    fn on_message<'a>(&'a self, session: &'a Session, message: Message<'_>, seat: Seat<'a>) -> Passage<'a> {
        match session.state.of::<CountsFor>(seat) {
            Some(CountsFor(key)) => self.judge(*key, message, Instant::now()),
            None => Passage::Forward,
        }
    }

    fn sees_control_frames(&self) -> bool {
        true
    }
}

impl WsRateLimiting {
    fn key(&self, session: &Session, proxy: CountedProxy<'_>) -> Keyed {
        // No two connections have the same number, so they never share a key but by chance of 1 in 2^64.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        match &self.key_by {
            Some(key_by) => key_by.of_session(session, proxy, self.table.hasher()),
            None => {
                use std::hash::Hasher as _;
                let mut hasher = self.table.hasher();
                hasher.write_u64(NEXT.fetch_add(1, Relaxed));
                Keyed::Key(hasher.finish())
            }
        }
    }

    fn judge(&self, key: u64, message: Message<'_>, now: Instant) -> Passage<'static> {
        let counts = match message.direction {
            Direction::Up => self.from != From::Target,
            Direction::Down => self.from != From::Client,
        };
        if !counts {
            return Passage::Forward;
        }
        let Some(wait) = self.take(key, message.payload.len(), now) else { return Passage::Forward };
        self.limited.add(1);
        let (table, rules) = (self.table.clone(), [self.messages, self.bytes]);
        match self.exceeded {
            _ if message.kind == MessageKind::Datagram => Passage::Drop,
            Exceeded::Drop => Passage::Drop,
            Exceeded::Wait if wait <= MAX_WAIT => {
                let (payload, code) = (std::mem::take(message.payload), self.code);
                Passage::Wait(Box::pin(wait_for_room(table, rules, key, payload, code)))
            }
            Exceeded::Close | Exceeded::Wait => Passage::Close(self.code),
        }
    }

    /// Takes a message's share of each limit; says how long until there is room where there is none.
    fn take(&self, key: u64, length: usize, now: Instant) -> Option<Duration> {
        take(&self.table, [self.messages, self.bytes], key, length, now)
    }
}

fn take(
    table: &Table,
    [messages, bytes]: [Option<Rule>; 2],
    key: u64,
    length: usize,
    now: Instant,
) -> Option<Duration> {
    if let Some(rule) = messages {
        let standing = table.take(key, rule, 1, now);
        if !standing.passed {
            return Some(standing.retry_in);
        }
    }
    if let Some(rule) = bytes {
        let standing = table.take(key, rule, length as u64, now);
        if !standing.passed {
            if let Some(rule) = messages {
                table.refund(key, rule, 1, now);
            }
            return Some(standing.retry_in);
        }
    }
    None
}

async fn wait_for_room(
    table: Arc<Table>,
    rules: [Option<Rule>; 2],
    key: u64,
    payload: Payload,
    code: u16,
) -> Decision {
    let until = Instant::now() + MAX_WAIT;
    loop {
        let now = Instant::now();
        let Some(wait) = take(&table, rules, key, payload.len(), now) else {
            return Decision::Forward(payload);
        };
        if now + wait > until {
            return Decision::Close(code);
        }
        tokio::time::sleep_until(now + wait).await;
    }
}

#[cfg(test)]
mod tests;
