//! How services are asked: timeouts and retries.

use crate::draft::{Proxy, Retry, draft};
use crate::text;
use crate::tree::Node;

/// Milliseconds of each timeout, where nothing is said.
const TIMEOUT: u64 = 60_000;
/// Retries, where nothing is said.
const RETRIES: u64 = 5;

/// How long a service is waited for, and how often it is tried. A stream has one timeout, for silence, and goes to another
/// target anyway.
pub(super) fn timeouts(scheme: &str, service: &Node, made: &mut Proxy) {
    let number = |name: &str| service.get(name).and_then(Node::uint);
    let millis = |name: &str| number(name).unwrap_or(TIMEOUT);
    let silence = || millis("read_timeout").div_ceil(1000).max(1);
    match scheme {
        "tcp" | "tcps" => made.tcp_idle_timeout(silence()),
        "udp" => made.udp_idle_timeout(silence()),
        _ => made.read_timeout(millis("read_timeout")),
    }
    made.backend_connect_timeout(text::duration(millis("connect_timeout")));
    let retries = number("retries").unwrap_or(RETRIES);
    let retries = Some(retries).filter(|retries| *retries > 0 && scheme.starts_with("http"));
    made.retry(retries.map(|retries| draft!(Retry { max_retries: retries })));
}
