//! Rates of very many keys in a fixed amount of memory, without a lock: GCRA over a set-associative table of atomics.
//!
//! An entry is a key's hash and one moment: when its allowance would be whole again. A key belongs to one set of eight
//! entries. Nothing is ever swept: a key that needs a place in a full set takes that of the entry whose allowance is
//! whole first, which is an idle one nearly always. Only when all eight are in use is something forgotten, and counted.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, SeqCst};
use std::time::Duration;

use gateway_core::limit::epoch::Epoch;
use gateway_core::plugin::world::meters::Counter;
use gateway_plugin_common::set_associative::{SetTable, WAYS};
use tokio::time::Instant;

/// Bytes of memory for each key asked for.
#[cfg(test)]
pub(crate) const BYTES_PER_KEY: usize =
    size_of::<Set>() / WAYS * gateway_plugin_common::set_associative::SPARE;

/// The id of a free entry.
const FREE: u64 = 0;
/// The id of an entry that is just being given to another key.
const CHANGING: u64 = 1;

/// What every key of a rule may do: so much in a period, and so much at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rule {
    /// `scale` times the nanoseconds until one is allowed again.
    interval: u64,
    scale: u64,
    /// Nanoseconds until a whole burst is allowed again.
    capacity: u64,
}

/// The highest rate that nanoseconds still count exactly enough: within 0.1 %.
pub(crate) const MAX_PER_SECOND: u64 = 1_000_000;

impl Rule {
    /// `rate` in each `period`, and `burst` at once; `None` for a rate of nothing or beyond [`MAX_PER_SECOND`], an empty
    /// burst, or a burst that takes more than 100 years to come back.
    pub(crate) fn new(rate: u64, period: Duration, burst: u64) -> Option<Self> {
        let period = u64::try_from(period.as_nanos()).ok()?;
        let interval = period.checked_div(rate).filter(|it| *it >= 1_000_000_000 / MAX_PER_SECOND)?;
        let capacity =
            interval.checked_mul(burst).filter(|it| (1..3_155_760_000_000_000_000).contains(it))?;
        Some(Self { interval, scale: 1, capacity })
    }

    /// As [`Self::new`] for a rate in each second, where a burst may be taken in parts as small as nanoseconds: rates up to a
    /// thousand million.
    pub(crate) fn fine(rate: u64, burst: u64) -> Option<Self> {
        // Whole nanoseconds are not exact enough for one of very many.
        let (interval, scale) = if rate > MAX_PER_SECOND {
            (1_000_000_000_000_u64.checked_div(rate)?, 1000)
        } else {
            (1_000_000_000_u64.checked_div(rate)?, 1)
        };
        let capacity = u128::from(interval) * u128::from(burst) / u128::from(scale);
        let capacity =
            u64::try_from(capacity).ok().filter(|it| (1..3_155_760_000_000_000_000).contains(it))?;
        Some(Self { interval, scale, capacity })
    }

    /// What so many of them cost, in nanoseconds.
    fn cost(self, many: u64) -> u64 {
        u64::try_from(u128::from(self.interval) * u128::from(many) / u128::from(self.scale))
            .unwrap_or(u64::MAX)
    }

    /// What so many of them cost and what a burst is, in microseconds.
    pub(crate) fn micros(self, many: u64) -> (f64, f64) {
        #[allow(clippy::cast_precision_loss, reason = "exact for weeks, and nearly so for years")]
        let micros = |nanos: u64| nanos as f64 / 1000.0;
        (micros(self.cost(many)), micros(self.capacity))
    }

    /// How a key stands that owes this much, where so many are asked for.
    pub(crate) fn standing(self, passed: bool, owed: Duration, many: u64) -> Standing {
        let owed = u64::try_from(owed.as_nanos()).unwrap_or(u64::MAX);
        standing(passed, owed, self, self.cost(many), 0)
    }

    /// How long a whole burst takes to come back.
    pub(crate) fn refill(self) -> Duration {
        Duration::from_nanos(self.capacity)
    }
}

/// How a key stands under a rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Whether it may go on.
    pub(crate) passed: bool,
    /// How many more may follow at once.
    pub(crate) remaining: u64,
    /// Until the whole burst is there again.
    pub(crate) full_in: Duration,
    /// Until as many more as were asked for are allowed; zero when they are.
    pub(crate) retry_in: Duration,
}

#[derive(Default)]
#[repr(align(64))]
struct Set {
    ids: [AtomicU64; WAYS],
    /// Nanoseconds from the epoch to when the entry's allowance is whole.
    times: [AtomicU64; WAYS],
}

/// The table.
pub(crate) struct Table {
    sets: SetTable<Set>,
    hasher: RandomState,
    epoch: Epoch,
    evicted: Counter,
}

impl Table {
    /// A table for this many keys, each under one rule; 32 bytes for each of them. What is forgotten early is counted.
    pub(crate) fn new(keys: usize, now: Instant, evicted: Counter) -> Self {
        Self {
            sets: SetTable::for_keys(keys),
            hasher: RandomState::new(),
            epoch: Epoch::starting(now),
            evicted,
        }
    }

    /// Begins the hash of a key, under a secret of this table: nobody outside can make keys collide.
    pub(crate) fn hasher(&self) -> impl Hasher + use<> {
        self.hasher.build_hasher()
    }

    /// Takes so many of what the key is allowed, or nothing.
    pub(crate) fn take(&self, key: u64, rule: Rule, many: u64, now: Instant) -> Standing {
        let (now, cost) = (self.epoch.nanos(now), rule.cost(many));
        let fits = |whole: u64| {
            let after = whole.max(now).saturating_add(cost);
            (after - now <= rule.capacity).then_some(after)
        };
        let (before, passed) = self.update(id(key, rule), now, fits);
        let whole = if passed { before.max(now) + cost } else { before };
        // Where it passed, the next one is asked for; else the same again.
        standing(passed, whole, rule, if passed { rule.cost(1) } else { cost }, now)
    }

    /// How the key stands, without taking anything.
    pub(crate) fn look(&self, key: u64, rule: Rule, many: u64, now: Instant) -> Standing {
        let (now, cost) = (self.epoch.nanos(now), rule.cost(many));
        let id = id(key, rule);
        let set = self.set(id);
        let whole = set.find(id).map_or(0, |n| set.times[n].load(Acquire));
        let passed = whole.max(now).saturating_add(cost) - now <= rule.capacity;
        standing(passed, whole, rule, cost, now)
    }

    /// Takes so many even where nothing is left, so that nothing more passes.
    pub(crate) fn charge(&self, key: u64, rule: Rule, many: u64, now: Instant) {
        let (now, cost) = (self.epoch.nanos(now), rule.cost(many));
        let most = now.saturating_add(rule.capacity);
        self.update(id(key, rule), now, |whole| {
            Some(whole.max(now).saturating_add(cost).min(most).max(whole))
        });
    }

    /// Gives so many back that were taken and not used.
    pub(crate) fn refund(&self, key: u64, rule: Rule, many: u64, now: Instant) {
        let id = id(key, rule);
        if self.set(id).find(id).is_some() {
            self.update(id, self.epoch.nanos(now), |whole| Some(whole.saturating_sub(rule.cost(many))));
        }
    }

    /// Bytes of memory the entries take.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.sets.iter().map(size_of_val).sum()
    }

    fn set(&self, id: u64) -> &Set {
        self.sets.of(id)
    }

    /// Changes the time of an entry, which begins at 0 where there is none. Says what it was before, and whether it
    /// changed: it stays where `change` says nothing.
    fn update(&self, id: u64, now: u64, change: impl Fn(u64) -> Option<u64>) -> (u64, bool) {
        let set = self.set(id);
        loop {
            let Some(n) = set.find(id) else {
                let Some(after) = change(0) else { return (0, false) };
                if self.insert(set, id, after, now) {
                    return (0, true);
                }
                std::hint::spin_loop();
                continue;
            };
            let before = set.times[n].load(SeqCst);
            // The entry was this key's after its time was read: unless the time changes, it still is.
            if set.ids[n].load(SeqCst) != id {
                continue;
            }
            let Some(after) = change(before) else { return (before, false) };
            if set.times[n].compare_exchange(before, after, SeqCst, SeqCst).is_ok() {
                return (before, true);
            }
        }
    }

    /// Gives the entry that is whole first to this key. False where another thread was faster: look again.
    fn insert(&self, set: &Set, id: u64, after: u64, now: u64) -> bool {
        let Some((n, old)) = set.whole_first() else { return false };
        if set.ids[n].compare_exchange(old, CHANGING, SeqCst, SeqCst).is_err() {
            return false;
        }
        let was = set.times[n].swap(after, SeqCst);
        set.ids[n].store(id, SeqCst);
        // Two threads may bring the same new key at a time: the entry that is found first stays.
        if set.find(id).is_some_and(|first| first < n)
            && set.ids[n].compare_exchange(id, CHANGING, SeqCst, SeqCst).is_ok()
        {
            set.times[n].store(0, SeqCst);
            set.ids[n].store(FREE, SeqCst);
            return false;
        }
        if old != FREE && was > now {
            self.evicted.add(1);
        }
        true
    }
}

impl Set {
    fn find(&self, id: u64) -> Option<usize> {
        self.ids.iter().position(|known| known.load(SeqCst) == id)
    }

    /// The entry whose allowance is whole before all others', and whose it is.
    fn whole_first(&self) -> Option<(usize, u64)> {
        let entries = self.ids.iter().map(|id| id.load(SeqCst)).enumerate();
        let ready = entries.filter(|(_, id)| *id != CHANGING);
        ready.min_by_key(|(n, id)| if *id == FREE { 0 } else { self.times[*n].load(SeqCst) })
    }
}

fn standing(passed: bool, whole: u64, rule: Rule, cost: u64, now: u64) -> Standing {
    let owed = whole.saturating_sub(now);
    let left = rule.capacity.saturating_sub(owed);
    let retry = owed.saturating_add(cost).saturating_sub(rule.capacity);
    Standing {
        passed,
        remaining: u64::try_from(
            u128::from(left) * u128::from(rule.scale) / u128::from(rule.interval.max(1)),
        )
        .unwrap_or(u64::MAX),
        full_in: Duration::from_nanos(owed),
        retry_in: Duration::from_nanos(retry),
    }
}

/// A key under a rule: a changed rule begins anew, and two rules of one key are two entries.
fn id(key: u64, rule: Rule) -> u64 {
    // The finisher of SplitMix64: every bit of the input reaches every bit of the place.
    let mut mixed = key ^ rule.interval.rotate_left(32) ^ rule.capacity.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    if mixed <= CHANGING { mixed + 2 } else { mixed }
}

#[cfg(test)]
mod tests;
