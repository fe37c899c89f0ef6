//! How services are asked: timeouts and retries.

use serde_json::{Map, Value, json};

use crate::draft::set;
use crate::tree::Node;

/// Milliseconds of each timeout, where nothing is said.
const TIMEOUT: u64 = 60_000;
/// Retries, where nothing is said.
const RETRIES: u64 = 5;

/// How long a service is waited for, and how often it is tried. A stream has one timeout, for silence, and goes to another
/// target anyway.
pub(super) fn timeouts(scheme: &str, service: &Node, made: &mut Map<String, Value>) {
    let number = |name: &str| service.get(name).and_then(Node::uint);
    let millis = |name: &str| Some(number(name).unwrap_or(TIMEOUT));
    let given = |ours, value: Option<u64>| value.map(|value| (ours, value));
    let silence = || millis("read_timeout").map(|millis| millis.div_ceil(1000).max(1));
    let timeouts = match scheme {
        "tcp" | "tcps" => [given("tcp_idle_timeout_seconds", silence()), None],
        "udp" => [given("udp_idle_timeout_seconds", silence()), None],
        _ => [
            given("backend_read_timeout_ms", millis("read_timeout")),
            given("backend_write_timeout_ms", millis("write_timeout")),
        ],
    };
    let connect = given("backend_connect_timeout_ms", millis("connect_timeout"));
    for (name, value) in timeouts.into_iter().chain([connect]).flatten() {
        set(made, name, value);
    }
    let retries = number("retries").unwrap_or(RETRIES);
    let retries = Some(retries).filter(|retries| *retries > 0 && scheme.starts_with("http"));
    if let Some(retries) = retries {
        set(made, "retry", json!({ "max_retries": retries }));
    }
}
