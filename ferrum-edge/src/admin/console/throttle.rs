//! Limits password guessing: after some failed logins from one address or for one user, further logins have to wait.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Failed logins of one key within [`WINDOW`]; more have to wait.
const MAX_FAILURES: u32 = 10;
/// Failures are forgotten after so long.
const WINDOW: Duration = Duration::from_secs(60);
/// Keys that are counted apart; all beyond are counted together.
const MAX_KEYS: usize = 4096;
/// Bits of an IPv6 address that one subscriber has.
const SUBSCRIBER_BITS: u32 = 64;

/// Failed logins by key: an address, or the name of a user.
#[derive(Debug, Default)]
pub(super) struct Throttle(Mutex<HashMap<String, Failures>>);

#[derive(Debug)]
struct Failures {
    count: u32,
    since: Instant,
}

/// Under which all are counted that are not counted apart.
const REST: &str = "";

impl Throttle {
    /// How long the next try of this key has to wait; `None` when it may come now.
    pub(super) fn wait(&self, key: &str) -> Option<Duration> {
        let now = Instant::now();
        let failures = self.failures();
        let rest = || failures.get(REST).filter(|_| failures.len() >= MAX_KEYS);
        let row = failures.get(key).or_else(rest)?;
        let left = (row.since + WINDOW).checked_duration_since(now).filter(|left| !left.is_zero())?;
        (row.count >= MAX_FAILURES).then_some(left)
    }

    /// Counts a failed login.
    pub(super) fn failed(&self, key: &str) {
        let now = Instant::now();
        let mut failures = self.failures();
        failures.retain(|_, row| now.duration_since(row.since) < WINDOW);
        let is_apart = failures.len() < MAX_KEYS || failures.contains_key(key);
        let key = if is_apart { key } else { REST };
        failures.entry(key.to_owned()).or_insert(Failures { count: 0, since: now }).count += 1;
    }

    fn failures(&self) -> MutexGuard<'_, HashMap<String, Failures>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The address of a peer, as far as it tells subscribers apart; all of a Unix socket's are one.
pub(super) fn subscriber(peer: Option<&str>) -> String {
    let Some(peer) = peer.and_then(|peer| peer.parse::<SocketAddr>().ok()) else {
        return "this machine".to_owned();
    };
    match peer.ip().to_canonical() {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> SUBSCRIBER_BITS << SUBSCRIBER_BITS).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failures_of_a_key_hold_up_that_key_only() {
        let throttle = Throttle::default();
        let [bad, again, good] =
            ["192.0.2.1:4711", "[::ffff:192.0.2.1]:1", "192.0.2.2:4711"].map(|peer| subscriber(Some(peer)));
        assert_eq!(bad, again, "the port tells nothing");
        for _ in 0..MAX_FAILURES {
            assert!(throttle.wait(&bad).is_none());
            throttle.failed(&bad);
        }
        assert_eq!(throttle.wait(&bad), Some(WINDOW));
        assert!(throttle.wait(&good).is_none());
        tokio::time::advance(WINDOW).await;
        assert!(throttle.wait(&bad).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn more_keys_than_are_counted_share_one_count() {
        let throttle = Throttle::default();
        let key = |n: u32| subscriber(Some(&format!("[2001:db8:{:x}:{:x}::1]:1", n >> 16, n & 0xffff)));
        (0..20_000).for_each(|n| throttle.failed(&key(n)));
        assert_eq!(throttle.failures().len(), MAX_KEYS + 1);
        assert!(throttle.wait(&key(1 << 24)).is_some());
        assert!(throttle.wait(&key(1)).is_none(), "it is counted itself");
        tokio::time::advance(WINDOW).await;
        throttle.failed(&key(1));
        assert_eq!(throttle.failures().len(), 1);
    }
}
