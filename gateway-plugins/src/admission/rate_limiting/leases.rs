//! What this gateway has taken for callers in advance, so that most requests need not wait for the store.
//!
//! A lease is taken from the limits that gateways share before it is used, so that all gateways together never take more than the
//! limits allow; but it may be used later than it was taken. A caller can therefore get at most `size` more from each gateway
//! within `lifetime` than a limit says, and as much may go unused. A refusal is remembered until the caller could pass again.
//!
//! Memory is fixed: a slot for each of `max_keys`, eight of which are behind one lock that is held for a few comparisons. Nothing
//! is ever swept: a caller without a slot takes that of the lease that ends first.

use std::time::Duration;

use gateway_core::limit::epoch::Epoch;
use gateway_plugin_common::set_associative::{LockedSet, SetTable, WAYS};
use tokio::time::Instant;

use crate::admission::rate_table::Standing;

/// After so long another request asks for a lease, where the one that did never came back.
const GIVE_UP: Duration = Duration::from_secs(10);

/// What the store said of a caller: the number of the tightest limit, and how the caller stands with it.
pub(super) type LimitStanding = (usize, Standing);

/// What is known of one caller. Times are nanoseconds from the epoch.
#[derive(Debug, Clone, Copy, Default)]
struct LeaseSlot {
    /// 0 is free.
    key: u64,
    left: u64,
    until: u64,
    /// What the store said, and when.
    said: LimitStanding,
    at: u64,
    state: LeaseState,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum LeaseState {
    /// Somebody asks for a lease.
    #[default]
    Asking,
    /// There is a lease.
    Leased,
    /// Requests that cost at least this much have no room.
    Refused(u64),
}

/// What becomes of a request without asking.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum LeaseDecision {
    /// It passes.
    Passes(LimitStanding),
    /// It does not.
    Refused(LimitStanding),
    /// The store has to be asked for this much.
    Ask(u64),
}

/// The leases.
pub(super) struct Leases {
    sets: SetTable<LockedSet<LeaseSlot>>,
    epoch: Epoch,
    size: u64,
    lifetime: Duration,
}

impl Leases {
    /// Leases of this size and lifetime for so many callers.
    pub(super) fn new(keys: usize, size: u64, lifetime: Duration, now: Instant) -> Self {
        Self { sets: SetTable::of_entries(keys), epoch: Epoch::starting(now), size, lifetime }
    }

    /// Takes from the caller's lease, if it has one.
    pub(super) fn take(&self, key: u64, cost: u64, now: Instant) -> LeaseDecision {
        let key = key.max(1);
        let (mut set, now) = (self.sets.lock(key), self.epoch.nanos(now));
        let is_large = cost >= self.size;
        let Some(slot) = set.iter_mut().find(|slot| slot.key == key && now < slot.until) else {
            if is_large {
                return LeaseDecision::Ask(cost);
            }
            let until = now.saturating_add(nanos(GIVE_UP));
            claim(&mut set, LeaseSlot { key, until, ..LeaseSlot::default() });
            return LeaseDecision::Ask(self.size);
        };
        match slot.state {
            LeaseState::Leased if slot.left >= cost => {
                slot.left -= cost;
                LeaseDecision::Passes(slot.standing(now))
            }
            LeaseState::Refused(least) if cost >= least => LeaseDecision::Refused(slot.standing(now)),
            // What is left stays with who asks for less, and whoever comes while somebody asks only asks for itself: a caller
            // never has more than one lease.
            LeaseState::Leased if slot.left > 0 || is_large => LeaseDecision::Ask(cost),
            LeaseState::Leased => {
                slot.state = LeaseState::Asking;
                slot.until = now.saturating_add(nanos(GIVE_UP));
                LeaseDecision::Ask(self.size)
            }
            LeaseState::Asking | LeaseState::Refused(_) => LeaseDecision::Ask(cost),
        }
    }

    /// The store has granted what a request with this cost asked for, and more. `said` is how the caller stands.
    pub(super) fn granted(&self, key: u64, extra: u64, said: LimitStanding, now: Instant) {
        let now = self.epoch.nanos(now);
        self.know(key, now, |slot| {
            slot.left = extra;
            slot.until = now.saturating_add(nanos(self.lifetime));
            slot.said = said;
            slot.at = now;
            slot.state = LeaseState::Leased;
        });
    }

    /// The store has no room for a request with this cost.
    pub(super) fn refused(&self, key: u64, cost: u64, said: LimitStanding, now: Instant) {
        let now = self.epoch.nanos(now);
        self.know(key, now, |slot| {
            if slot.state == LeaseState::Leased && slot.left > 0 {
                return;
            }
            slot.left = 0;
            slot.until = now.saturating_add(nanos(said.1.retry_in.min(self.lifetime)));
            slot.said = said;
            slot.at = now;
            slot.state = LeaseState::Refused(cost);
        });
    }

    /// The store did not answer: the next request asks again.
    pub(super) fn unanswered(&self, key: u64, now: Instant) {
        self.know(key, self.epoch.nanos(now), |slot| slot.until = 0);
    }

    fn know(&self, key: u64, now: u64, change: impl FnOnce(&mut LeaseSlot)) {
        let key = key.max(1);
        let mut set = self.sets.lock(key);
        if let Some(slot) = set.iter_mut().find(|slot| slot.key == key && now < slot.until) {
            change(slot);
        }
    }
}

/// Gives a slot to a new caller: its own that has ended, or the one that ends first.
fn claim(set: &mut [LeaseSlot; WAYS], slot: LeaseSlot) {
    let own = set.iter().position(|known| known.key == slot.key);
    let first = || set.iter().enumerate().min_by_key(|(_, known)| known.until).map_or(0, |(n, _)| n);
    let place = own.unwrap_or_else(first);
    set[place] = slot;
}

impl LeaseSlot {
    /// How the caller stands now.
    fn standing(&self, now: u64) -> (usize, Standing) {
        let since = Duration::from_nanos(now.saturating_sub(self.at));
        let (tightest, said) = self.said;
        let standing = Standing {
            passed: said.passed,
            remaining: said.remaining.saturating_add(self.left),
            full_in: said.full_in.saturating_sub(since),
            retry_in: said.retry_in.saturating_sub(since),
        };
        (tightest, standing)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_secs(1);

    fn standing(passed: bool, remaining: u64, retry: u64) -> (usize, Standing) {
        let seconds = Duration::from_secs;
        (0, Standing { passed, remaining, full_in: seconds(9), retry_in: seconds(retry) })
    }

    #[test]
    fn a_caller_has_one_lease_for_its_lifetime() {
        let start = Instant::now();
        let leases = Leases::new(100, 4, LIFETIME, start);
        assert_eq!(leases.take(7, 1, start), LeaseDecision::Ask(4));
        assert_eq!(leases.take(7, 1, start), LeaseDecision::Ask(1), "somebody else has asked for the lease");
        leases.granted(7, 3, standing(true, 90, 0), start);
        for left in [92, 91, 90] {
            let LeaseDecision::Passes((0, told)) = leases.take(7, 1, start) else { panic!("{left}") };
            assert_eq!(told.remaining, left, "what is leased counts as remaining");
        }
        assert_eq!(leases.take(7, 1, start), LeaseDecision::Ask(4), "it is used up");
        leases.granted(7, 3, standing(true, 80, 0), start);
        assert_eq!(leases.take(7, 5, start), LeaseDecision::Ask(5), "not what is left, and no second lease");
        assert!(matches!(leases.take(7, 1, start + LIFETIME / 2), LeaseDecision::Passes(_)));
        assert_eq!(leases.take(7, 1, start + LIFETIME), LeaseDecision::Ask(4), "it has ended");
        assert_eq!(leases.take(8, 1, start), LeaseDecision::Ask(4), "another caller");
    }

    #[test]
    fn a_refusal_is_remembered_until_there_is_room() {
        let start = Instant::now();
        let leases = Leases::new(100, 4, Duration::from_secs(60), start);
        assert_eq!(leases.take(7, 2, start), LeaseDecision::Ask(4));
        leases.refused(7, 2, standing(false, 1, 3), start);
        let LeaseDecision::Refused((0, told)) = leases.take(7, 2, start + LIFETIME) else {
            panic!("it is known")
        };
        assert_eq!(told.retry_in, Duration::from_secs(2));
        assert_eq!(leases.take(7, 1, start), LeaseDecision::Ask(1), "what costs less may fit");
        assert_eq!(leases.take(7, 2, start + 3 * LIFETIME), LeaseDecision::Ask(4));
        leases.unanswered(7, start + 3 * LIFETIME);
        assert_eq!(leases.take(7, 2, start + 3 * LIFETIME), LeaseDecision::Ask(4), "nobody asks any more");
        let later = start + 3 * LIFETIME + GIVE_UP;
        assert_eq!(leases.take(7, 2, later), LeaseDecision::Ask(4), "whoever asked is gone");
    }

    #[test]
    fn memory_is_fixed() {
        let start = Instant::now();
        let leases = Leases::new(WAYS, 4, LIFETIME, start);
        for key in 1..100_000_u64 {
            assert_eq!(leases.take(key << 40, 1, start), LeaseDecision::Ask(4));
            leases.granted(key << 40, 3, standing(true, 1, 0), start);
        }
        assert_eq!(leases.sets.iter().count(), 1);
        assert!(size_of::<LeaseSlot>() <= 112, "{}", size_of::<LeaseSlot>());
    }
}
