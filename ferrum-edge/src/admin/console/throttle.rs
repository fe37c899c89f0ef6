//! Slows down those who guess: a few failed logins from an address, then a wait.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Failed logins of one address within [`WINDOW`]; more have to wait.
const MAX_FAILURES: u32 = 10;
/// Failures are forgotten after so long.
const WINDOW: Duration = Duration::from_secs(60);
/// Addresses that are counted apart; all beyond are counted together.
const MAX_ADDRESSES: usize = 4096;
/// Bits of an IPv6 address that one subscriber has.
const SUBSCRIBER_BITS: u32 = 64;

/// Failed logins by address.
#[derive(Debug, Default)]
pub(super) struct Throttle(Mutex<HashMap<Option<IpAddr>, Failures>>);

#[derive(Debug)]
struct Failures {
    count: u32,
    since: Instant,
}

impl Throttle {
    /// How long this peer has to wait before its next try; `None` when it may try now.
    pub(super) fn wait(&self, peer: Option<&str>) -> Option<Duration> {
        let now = Instant::now();
        let failures = self.failures();
        let row = failures.get(&subscriber(peer)).or_else(|| overflow(&failures))?;
        let left = (row.since + WINDOW).checked_duration_since(now).filter(|left| !left.is_zero())?;
        (row.count >= MAX_FAILURES).then_some(left)
    }

    /// Counts a failed login.
    pub(super) fn failed(&self, peer: Option<&str>) {
        let now = Instant::now();
        let mut failures = self.failures();
        failures.retain(|_, row| now.duration_since(row.since) < WINDOW);
        let address = subscriber(peer)
            .filter(|address| failures.len() < MAX_ADDRESSES || failures.contains_key(&Some(*address)));
        failures.entry(address).or_insert(Failures { count: 0, since: now }).count += 1;
    }

    fn failures(&self) -> MutexGuard<'_, HashMap<Option<IpAddr>, Failures>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whom an address that is not counted itself is counted with, once there are too many.
fn overflow(failures: &HashMap<Option<IpAddr>, Failures>) -> Option<&Failures> {
    failures.get(&None).filter(|_| failures.len() >= MAX_ADDRESSES)
}

/// The address of a peer, as far as it tells subscribers apart; none of a Unix socket's.
fn subscriber(peer: Option<&str>) -> Option<IpAddr> {
    let address = peer?.parse::<SocketAddr>().ok()?.ip().to_canonical();
    Some(match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() >> SUBSCRIBER_BITS << SUBSCRIBER_BITS).into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failures_of_an_address_hold_up_that_address_only() {
        let throttle = Throttle::default();
        let (bad, good) = (Some("192.0.2.1:4711"), Some("192.0.2.2:4711"));
        for _ in 0..MAX_FAILURES {
            assert!(throttle.wait(bad).is_none());
            throttle.failed(bad);
        }
        assert_eq!(throttle.wait(Some("[::ffff:192.0.2.1]:1")), Some(WINDOW), "the port tells nothing");
        assert!(throttle.wait(good).is_none());
        tokio::time::advance(WINDOW).await;
        assert!(throttle.wait(bad).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn more_addresses_than_are_counted_share_one_count() {
        let throttle = Throttle::default();
        for n in 0..20_000_u32 {
            throttle.failed(Some(&format!("[2001:db8:{:x}:{:x}::1]:1", n >> 16, n & 0xffff)));
        }
        assert_eq!(throttle.failures().len(), MAX_ADDRESSES + 1);
        assert!(throttle.wait(Some("[2001:db8:ffff::1]:1")).is_some());
        assert!(throttle.wait(Some("[2001:db8:0:1::2]:1")).is_none(), "it is counted itself");
        tokio::time::advance(WINDOW).await;
        throttle.failed(None);
        assert_eq!(throttle.failures().len(), 1);
    }
}
