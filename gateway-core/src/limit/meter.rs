//! Meters count the bytes of a session: rates delay bytes or drop datagrams, quotas end the session.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::byte_quota::ByteQuota;
use super::byte_rate::ByteRate;

/// The most meters of one direction; further ones are refused when plugins are configured.
pub const MAX_METERS: usize = 16;

/// One thing that bytes count against.
#[derive(Debug, Clone)]
pub enum Meter {
    /// Bytes a second. Streams wait, datagrams are dropped.
    Rate(Arc<ByteRate>),
    /// Datagrams a second; streams have none.
    Datagrams(Arc<ByteRate>),
    /// Bytes in all.
    Quota(Arc<ByteQuota>),
}

/// What both directions of a session count against.
#[derive(Debug, Clone, Default)]
pub struct Meters {
    /// Bytes from the client.
    pub up: SmallVec<[Meter; 2]>,
    /// Bytes from the target.
    pub down: SmallVec<[Meter; 2]>,
}

/// Bytes that may be moved, once their time has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reservation {
    /// So many.
    pub(crate) bytes: u64,
    /// Until then.
    pub(crate) wait: Duration,
}

/// What becomes of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admitted {
    /// It passes.
    Yes,
    /// It is too much for a rate, and is dropped.
    Dropped,
    /// The session ends, with this word.
    Ended(&'static str),
}

impl Meters {
    /// Whether nothing is counted.
    pub fn is_empty(&self) -> bool {
        self.up.is_empty() && self.down.is_empty()
    }
}

/// Reserves bytes of all meters: as many as each has for a turn, and no more than are wanted. `None` while others have reserved all
/// that a quota has left.
///
/// # Errors
/// The word for the record, when a quota was used up.
pub(crate) fn reserve(
    meters: &[Meter],
    wanted: u64,
    now: Instant,
) -> Result<Option<Reservation>, &'static str> {
    let turn = |meter: &Meter| match meter {
        Meter::Rate(rate) => rate.bytes_per_turn(),
        Meter::Quota(quota) => quota.bytes_per_turn(),
        Meter::Datagrams(_) => u64::MAX,
    };
    let mut bytes = meters.iter().map(turn).min().unwrap_or(u64::MAX).min(wanted);
    for (n, meter) in meters.iter().enumerate() {
        let Meter::Quota(quota) = meter else { continue };
        let granted = quota.reserve(bytes);
        let left = *granted.as_ref().unwrap_or(&0);
        // Those before it granted more than it has.
        refund_quotas(meters.get(..n).unwrap_or_default(), bytes - left);
        bytes = granted?;
        if bytes == 0 {
            return Ok(None);
        }
    }
    let waits = meters.iter().filter_map(|meter| match meter {
        Meter::Rate(rate) => Some(rate.reserve(bytes, now)),
        Meter::Datagrams(_) | Meter::Quota(_) => None,
    });
    Ok(Some(Reservation { bytes, wait: waits.max().unwrap_or_default() }))
}

/// Gives back what was reserved and not used.
pub(crate) fn refund(meters: &[Meter], bytes: u64) {
    for meter in meters {
        if let Meter::Rate(rate) = meter {
            rate.refund(bytes);
        }
    }
    refund_quotas(meters, bytes);
}

fn refund_quotas(meters: &[Meter], bytes: u64) {
    for meter in meters {
        if let Meter::Quota(quota) = meter {
            quota.refund(bytes);
        }
    }
}

/// Reserved bytes were used.
pub(crate) fn spend(meters: &[Meter], bytes: u64) {
    for meter in meters {
        if let Meter::Quota(quota) = meter {
            quota.spend(bytes);
        }
    }
}

/// Takes a datagram's share of all meters, or of none.
pub(crate) fn admit(meters: &[Meter], bytes: u64, now: Instant) -> Admitted {
    for (n, meter) in meters.iter().enumerate() {
        let refused = match meter {
            Meter::Rate(rate) => (!rate.take(bytes, now)).then_some(Admitted::Dropped),
            Meter::Datagrams(rate) => (!rate.take(1, now)).then_some(Admitted::Dropped),
            Meter::Quota(quota) => match quota.take(bytes) {
                Ok(()) => None,
                Err(None) => Some(Admitted::Dropped),
                Err(Some(reason)) => Some(Admitted::Ended(reason)),
            },
        };
        if let Some(refused) = refused {
            take_back(meters.get(..n).unwrap_or_default(), bytes);
            return refused;
        }
    }
    Admitted::Yes
}

/// Gives back a datagram's share: it was not sent after all.
pub(crate) fn take_back(meters: &[Meter], bytes: u64) {
    for meter in meters {
        match meter {
            Meter::Rate(rate) => rate.refund(bytes),
            Meter::Datagrams(rate) => rate.refund(1),
            Meter::Quota(quota) => quota.forgive(bytes),
        }
    }
}

/// A number that changes whenever one of the rates does.
pub(crate) fn version(meters: &[Meter]) -> u64 {
    rates(meters).map(ByteRate::version).fold(0, u64::wrapping_add)
}

/// Notes at all rates that somebody waits, or does not any more.
pub(crate) fn waits(meters: &[Meter], begins: bool) {
    rates(meters).for_each(|rate| if begins { rate.begin_wait() } else { rate.end_wait() });
}

fn rates(meters: &[Meter]) -> impl Iterator<Item = &ByteRate> {
    meters.iter().filter_map(|meter| match meter {
        Meter::Rate(rate) => Some(&**rate),
        Meter::Datagrams(_) | Meter::Quota(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::byte_quota::EXHAUSTED;
    use crate::limit::epoch::Epoch;

    fn rate(per_second: u64, burst: u64, now: Instant) -> Arc<ByteRate> {
        Arc::new(ByteRate::new(per_second, burst, Epoch::starting(now)))
    }

    #[test]
    fn the_tightest_meter_binds_and_the_others_get_the_rest_back() {
        let now = Instant::now();
        let (wide, narrow) = (Arc::new(ByteQuota::new(1000, 0)), Arc::new(ByteQuota::new(300, 0)));
        let slow = rate(100_000, 0, now);
        let meters = [Meter::Quota(wide.clone()), Meter::Quota(narrow.clone()), Meter::Rate(slow)];
        let first = reserve(&meters, 5000, now).unwrap();
        assert_eq!(first, Some(Reservation { bytes: 300, wait: Duration::ZERO }));
        assert_eq!(reserve(&meters, 5000, now), Ok(None), "the rest is reserved");
        spend(&meters, 200);
        assert_eq!((wide.used(), narrow.used()), (200, 200));
        refund(&meters, 100);
        let second = reserve(&meters, 5000, now).unwrap();
        assert_eq!(second, Some(Reservation { bytes: 100, wait: Duration::from_millis(2) }));
        spend(&meters, 100);
        assert_eq!(reserve(&meters, 5000, now), Err(EXHAUSTED));
        assert_eq!(wide.used(), 300, "what one refused is not taken from the others");
    }

    #[test]
    fn a_datagram_takes_from_all_or_none() {
        let now = Instant::now();
        let (count, bytes) = (rate(1, 2, now), rate(1, 500, now));
        let quota = Arc::new(ByteQuota::new(150, 0));
        let meters = [Meter::Datagrams(count), Meter::Rate(bytes), Meter::Quota(quota.clone())];
        assert_eq!(admit(&meters, 100, now), Admitted::Yes);
        assert_eq!(admit(&meters, 100, now), Admitted::Ended(EXHAUSTED));
        assert_eq!((quota.used(), admit(&meters, 50, now)), (100, Admitted::Yes));
        assert_eq!(admit(&meters, 1, now), Admitted::Dropped);
        assert_eq!(quota.used(), 150);
    }
}
