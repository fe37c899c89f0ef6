//! Rates of bytes by key, which sessions hold on to while they run and which change while they do.
//!
//! A key is looked up when a session begins, never for its bytes: what counts those holds the rates themselves. The table forgets
//! keys that nobody uses and that owe nothing. Keys beyond its size share one pair of rates, so that nobody gets around a limit by
//! being many.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use gateway_core::config::problem::Problems;
use gateway_core::config::units::Bytes;
use gateway_core::limit::{ByteRate, Epoch};
use gateway_core::plugin::world::meters::Counter;
use tokio::time::Instant;

/// Tables among which keys are spread, so that workers rarely meet in one.
const SHARDS: usize = 16;
/// The highest rate, 1 TB/s, is far beyond any machine.
pub(crate) const MAX_RATE: u64 = 1_000_000_000_000;
/// The shortest burst is this part of a second's bytes, the longest is as many seconds' as [`LONGEST_BURST`].
const SHORTEST_BURST: u64 = 100;
const LONGEST_BURST: u64 = 60;

/// What one direction may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cap {
    /// In a second.
    pub(crate) rate: u64,
    /// At once.
    pub(crate) burst: u64,
}

/// What both directions may do; `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Caps {
    pub(crate) up: Option<Cap>,
    pub(crate) down: Option<Cap>,
}

/// A setting as it is written, with its name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting<T> {
    pub(crate) name: &'static str,
    pub(crate) value: Option<T>,
}

/// The rates of one key. A direction that is limited only later gets its rate then.
#[derive(Debug, Default)]
struct Rates {
    up: OnceLock<Arc<ByteRate>>,
    down: OnceLock<Arc<ByteRate>>,
}

/// The rates of all keys of a plugin config. Outlives changes of its settings.
pub(crate) struct CapTable {
    shards: [Mutex<HashMap<u64, Rates>>; SHARDS],
    /// For the keys beyond those.
    others: Rates,
    caps: Mutex<Caps>,
    max_keys: usize,
    hasher: RandomState,
    epoch: Epoch,
    shared: Counter,
}

/// The rates that a session counts against.
pub(crate) struct KeyRates {
    pub(crate) up: Option<Arc<ByteRate>>,
    pub(crate) down: Option<Arc<ByteRate>>,
}

impl Cap {
    /// Reads a rate and its burst as they are written under these names.
    pub(crate) fn read(rate: Setting<Bytes>, burst: Setting<Bytes>, problems: &mut Problems) -> Option<Self> {
        let name = rate.name;
        let Some(Bytes(rate)) = rate.value else {
            if burst.value.is_some() {
                problems.add(format!("config.{}", burst.name), format!("there is no burst without `{name}`"));
            }
            return None;
        };
        if rate == 0 || rate > MAX_RATE {
            problems.add(format!("config.{name}"), format!("{rate} is out of range (1 to {MAX_RATE})"));
            return None;
        }
        let (least, most) = ((rate / SHORTEST_BURST).max(1), rate.saturating_mul(LONGEST_BURST));
        let burst_name = burst.name;
        let burst = burst.value.map_or_else(|| ByteRate::default_burst(rate), |burst| burst.0);
        // The default of a very low rate may be longer.
        let most = most.max(ByteRate::default_burst(rate));
        if !(least..=most).contains(&burst) {
            problems.add(
                format!("config.{burst_name}"),
                format!("{burst} is out of range ({least} to {most}): from 10 ms to 60 s of the rate"),
            );
        }
        Some(Self { rate, burst })
    }
}

impl Rates {
    fn of(&self, caps: Caps, epoch: Epoch) -> KeyRates {
        let rate = |slot: &OnceLock<Arc<ByteRate>>, cap: Option<Cap>| {
            cap.map(|cap| slot.get_or_init(|| Arc::new(ByteRate::new(cap.rate, cap.burst, epoch))).clone())
        };
        KeyRates { up: rate(&self.up, caps.up), down: rate(&self.down, caps.down) }
    }

    /// Sets both rates anew. A direction without a limit any more passes everything, until its sessions have forgotten it.
    fn set(&self, caps: Caps, now: Instant) {
        const UNLIMITED: Cap = Cap { rate: u64::MAX, burst: u64::MAX };
        for (slot, cap) in [(&self.up, caps.up), (&self.down, caps.down)] {
            if let Some(rate) = slot.get() {
                let Cap { rate: per_second, burst } = cap.unwrap_or(UNLIMITED);
                rate.set(per_second, burst, now);
            }
        }
    }

    fn is_unused(&self, now: Instant) -> bool {
        let is_unused = |rate: &Arc<ByteRate>| Arc::strong_count(rate) == 1 && rate.is_idle(now);
        self.up.get().is_none_or(is_unused) && self.down.get().is_none_or(is_unused)
    }
}

impl CapTable {
    /// An empty table. `shared` counts sessions whose key found no room.
    pub(crate) fn new(caps: Caps, max_keys: usize, now: Instant, shared: Counter) -> Self {
        Self {
            shards: Default::default(),
            others: Rates::default(),
            caps: Mutex::new(caps),
            max_keys,
            hasher: RandomState::new(),
            epoch: Epoch::starting(now),
            shared,
        }
    }

    /// Begins the hash of a key, under a secret of this table.
    pub(crate) fn hasher(&self) -> impl Hasher + use<> {
        self.hasher.build_hasher()
    }

    /// Sets what every key may do, also for sessions that run. What was used stays used.
    pub(crate) fn set(&self, caps: Caps, now: Instant) {
        *self.caps.lock().unwrap_or_else(PoisonError::into_inner) = caps;
        for place in 0..SHARDS {
            locked(&self.shards[place]).values().for_each(|rates| rates.set(caps, now));
        }
        self.others.set(caps, now);
    }

    /// The rates of a key.
    pub(crate) fn rates(&self, key: u64, now: Instant) -> KeyRates {
        let caps = *self.caps.lock().unwrap_or_else(PoisonError::into_inner);
        // The low bits choose the bucket within a shard.
        let mut shard = locked(&self.shards[(key >> 60) as usize % SHARDS]);
        let most = self.max_keys.div_ceil(SHARDS);
        if !shard.contains_key(&key) && shard.len() >= most {
            shard.retain(|_, rates| !rates.is_unused(now));
            if shard.len() >= most {
                self.shared.add(1);
                return self.others.of(caps, self.epoch);
            }
        }
        shard.entry(key).or_default().of(caps, self.epoch)
    }

    /// Keys in memory.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| locked(shard).len()).sum()
    }
}

fn locked(shard: &Mutex<HashMap<u64, Rates>>) -> MutexGuard<'_, HashMap<u64, Rates>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPS: Caps = Caps { up: Some(Cap { rate: 1000, burst: 1000 }), down: None };

    #[test]
    fn keys_that_nobody_uses_make_room_and_the_rest_share() {
        let now = Instant::now();
        let table = CapTable::new(CAPS, 32, now, Counter::default());
        let key = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let held: Vec<_> = (0..200).filter_map(|n| table.rates(key(n), now).up).collect();
        assert!(table.len() <= 32, "{}", table.len());
        assert_eq!(held.len(), 200, "all of them are limited");
        let own = held.iter().filter(|rate| Arc::ptr_eq(rate, &held[199])).count();
        assert!(own > 100 && table.shared.get() == own as u64, "{own}");
        drop(held);
        (200..230).for_each(|n| drop(table.rates(key(n), now)));
        assert!(table.len() <= 32);
    }

    #[test]
    fn a_change_is_seen_by_those_who_hold_a_rate() {
        let now = Instant::now();
        let table = CapTable::new(CAPS, 32, now, Counter::default());
        let held = table.rates(1, now);
        assert!(held.down.is_none());
        let more = Caps { up: Some(Cap { rate: 5000, burst: 50 }), down: CAPS.up };
        table.set(more, now);
        assert_eq!(held.up.as_ref().map(|rate| (rate.rate(), rate.burst())), Some((5000, 50)));
        let again = table.rates(1, now);
        assert!(Arc::ptr_eq(&again.up.unwrap(), &held.up.unwrap()));
        assert_eq!(again.down.map(|rate| rate.rate()), Some(1000));
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn bursts_are_within_bounds() {
        let read = |rate, burst: Option<u64>| {
            let mut problems = Problems::default();
            let cap = Cap::read(
                Setting { name: "r", value: Some(Bytes(rate)) },
                Setting { name: "b", value: burst.map(Bytes) },
                &mut problems,
            );
            (cap.map(|cap| cap.burst), problems.0.len())
        };
        assert_eq!(read(1_000_000, None), (Some(25_000), 0));
        assert_eq!(read(100, None), (Some(4096), 0));
        assert_eq!(read(1_000_000, Some(9_999)).1, 1);
        assert_eq!(read(1_000_000, Some(60_000_001)).1, 1);
        assert_eq!(read(1_000_000, Some(60_000_000)).1, 0);
        assert_eq!((read(0, None), read(MAX_RATE + 1, None)), ((None, 1), (None, 1)));
    }
}
