//! Places by key, taken and given back without a lock, and the lines of those who wait for one.
//!
//! An entry is one word: 40 bits of the key's hash and 24 bits of count. A key belongs to one set of eight entries; an
//! entry whose count is 0 is free. The lines are behind a lock that is touched only while somebody waits.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use gateway_core::plugin::world::meters::Gauge;
use gateway_plugin_common::set_associative::{SetTable, WAYS};
use tokio::sync::oneshot::{self, Receiver, Sender};

const COUNT_BITS: u32 = 24;
/// The most that one key may have under way.
pub(crate) const MAX_CONCURRENT: u64 = (1 << COUNT_BITS) - 1;

#[derive(Default)]
#[repr(align(64))]
struct Set([AtomicU64; WAYS]);

type Lines = HashMap<u64, VecDeque<Sender<Permit>>>;

/// All places. They outlive a change of settings.
pub(crate) struct PermitTable {
    sets: SetTable<Set>,
    hasher: RandomState,
    lines: Mutex<Lines>,
    /// How many stand in all lines.
    waiting: AtomicUsize,
}

/// What came of looking for a place.
#[derive(Debug, PartialEq, Eq)]
enum Taken {
    /// This entry of the key's set, and how many the key now has.
    Place(usize, u64),
    /// The key has as many as it may.
    Full,
    /// There are too many keys.
    NoRoom,
}

impl PermitTable {
    /// For this many keys; 16 bytes for each of them.
    pub(crate) fn new(keys: usize) -> Self {
        Self {
            sets: SetTable::for_keys(keys),
            hasher: RandomState::new(),
            lines: Mutex::default(),
            waiting: AtomicUsize::new(0),
        }
    }

    fn set(&self, key: u64) -> &[AtomicU64; WAYS] {
        &self.sets.of(key).0
    }

    fn take(&self, key: u64, limit: u64) -> Taken {
        let set = self.set(key);
        loop {
            let seen = set.each_ref().map(|entry| entry.load(SeqCst));
            if let Some(n) = seen.iter().position(|entry| is_of(*entry, key)) {
                if count(seen[n]) >= limit {
                    return Taken::Full;
                }
                if set[n].compare_exchange(seen[n], seen[n] + 1, SeqCst, SeqCst).is_ok() {
                    return Taken::Place(n, count(seen[n]) + 1);
                }
                continue;
            }
            let Some(n) = seen.iter().position(|entry| count(*entry) == 0) else { return Taken::NoRoom };
            if set[n].compare_exchange(seen[n], (key << COUNT_BITS) | 1, SeqCst, SeqCst).is_err() {
                continue;
            }
            // Another thread may have brought the same key to another entry: whoever sees both takes its own back.
            let is_twice = (0..WAYS).any(|other| other != n && is_of(set[other].load(SeqCst), key));
            if !is_twice {
                return Taken::Place(n, 1);
            }
            set[n].fetch_sub(1, SeqCst);
            std::hint::spin_loop();
        }
    }

    /// How many the key has, and whether there is room for one more key or it has some already.
    fn look(&self, key: u64) -> (u64, bool) {
        let seen = self.set(key).each_ref().map(|entry| entry.load(SeqCst));
        let taken = seen.iter().find(|entry| is_of(**entry, key)).map_or(0, |entry| count(*entry));
        (taken, taken > 0 || seen.iter().any(|entry| count(*entry) == 0))
    }

    fn give(&self, key: u64, entry: usize) {
        self.set(key)[entry].fetch_sub(1, SeqCst);
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes those who have gone out of a line; says how many are left in it.
    fn clear(&self, lines: &mut Lines, key: u64) -> usize {
        let Some(line) = lines.get_mut(&key) else { return 0 };
        let before = line.len();
        line.retain(|waiting| !waiting.is_closed());
        let left = line.len();
        self.waiting.fetch_sub(before - left, SeqCst);
        if left == 0 {
            lines.remove(&key);
        }
        left
    }

    /// Places taken, over all keys.
    #[cfg(test)]
    pub(crate) fn used(&self) -> u64 {
        self.sets.iter().flat_map(|set| &set.0).map(|entry| count(entry.load(SeqCst))).sum()
    }

    /// How many wait.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        let lines = self.lines();
        assert_eq!(lines.values().map(VecDeque::len).sum::<usize>(), self.waiting.load(SeqCst));
        self.waiting.load(SeqCst)
    }
}

fn count(entry: u64) -> u64 {
    entry & MAX_CONCURRENT
}

/// Whether an entry counts for this key now.
fn is_of(entry: u64, key: u64) -> bool {
    count(entry) > 0 && entry >> COUNT_BITS == (key << COUNT_BITS) >> COUNT_BITS
}

/// The places, with how many each key may have.
pub(crate) struct Limiter {
    places: Arc<PermitTable>,
    limit: AtomicU64,
    /// The most that a key had since the limit was set.
    peak: AtomicU64,
    max_waiting: usize,
    gauge: Gauge,
}

/// How a key stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlacesStanding {
    pub(crate) taken: u64,
    pub(crate) limit: u64,
    /// Whether one more would get a place, or wait for it.
    pub(crate) passed: bool,
}

/// What came of asking for a place.
#[derive(Debug)]
pub(crate) enum Entering {
    /// It is there.
    In(Permit),
    /// It has to be waited for.
    Line(PermitWait),
    /// There is none.
    Refused(LimitReached),
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitReached {
    /// The key has as many as it may, and as many wait as may wait.
    Full,
    /// There are too many keys.
    NoRoom,
}

impl Limiter {
    pub(crate) fn new(places: Arc<PermitTable>, limit: u64, max_waiting: usize, gauge: Gauge) -> Self {
        let limiter = Self { places, limit: AtomicU64::new(0), peak: AtomicU64::new(0), max_waiting, gauge };
        limiter.set_limit(limit);
        limiter
    }

    /// Begins the hash of a key, under a secret of this table.
    pub(crate) fn hasher(&self) -> impl Hasher + use<> {
        self.places.hasher.build_hasher()
    }

    /// Sets how many each key may have. What is under way beyond a lower limit ends in its own time.
    pub(crate) fn set_limit(&self, limit: u64) {
        self.limit.store(limit, SeqCst);
        self.peak.store(0, SeqCst);
        self.gauge.set(i64::try_from(limit).unwrap_or(i64::MAX));
    }

    /// The most that one key had under way since the limit was set.
    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(SeqCst)
    }

    /// How a key stands; takes no place.
    pub(crate) fn look(&self, key: u64) -> PlacesStanding {
        let (taken, has_room) = self.places.look(key);
        let limit = self.limit.load(SeqCst);
        let may_wait = || {
            let lines = self.places.lines();
            lines.get(&key).map_or(0, VecDeque::len) < self.max_waiting
        };
        PlacesStanding { taken, limit, passed: has_room && (taken < limit || may_wait()) }
    }

    /// A place for this key, now or, where it may wait, later.
    pub(crate) fn enter(self: &Arc<Self>, key: u64, may_wait: bool) -> Entering {
        let may_wait = may_wait && self.max_waiting > 0;
        // Nobody overtakes those who wait already.
        let is_awaited = self.places.waiting.load(SeqCst) > 0 && self.places.lines().contains_key(&key);
        if !(may_wait && is_awaited) {
            match self.try_enter(key) {
                Ok(permit) => return Entering::In(permit),
                Err(LimitReached::Full) if may_wait => {}
                Err(why) => return Entering::Refused(why),
            }
        }
        self.join(key).map_or(Entering::Refused(LimitReached::Full), Entering::Line)
    }

    fn try_enter(self: &Arc<Self>, key: u64) -> Result<Permit, LimitReached> {
        match self.places.take(key, self.limit.load(SeqCst)) {
            Taken::Place(entry, now) => {
                if now > self.peak.load(SeqCst) {
                    self.peak.store(now, SeqCst);
                }
                Ok(Permit { limiter: Some(self.clone()), key, entry })
            }
            Taken::Full => Err(LimitReached::Full),
            Taken::NoRoom => Err(LimitReached::NoRoom),
        }
    }

    /// A place in the line; `None` when it is as long as it may be.
    fn join(self: &Arc<Self>, key: u64) -> Option<PermitWait> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut lines = self.places.lines();
            if self.places.clear(&mut lines, key) >= self.max_waiting {
                return None;
            }
            lines.entry(key).or_default().push_back(sender);
            self.places.waiting.fetch_add(1, SeqCst);
        }
        // A place may have come back before whoever gave it back saw that somebody waits.
        self.wake(key);
        Some(PermitWait { limiter: self.clone(), key, receiver })
    }

    /// Hands free places to those who wait for them.
    fn wake(self: &Arc<Self>, key: u64) {
        let mut lines = self.places.lines();
        while self.places.clear(&mut lines, key) > 0 {
            let Ok(permit) = self.try_enter(key) else { return };
            let Some(first) = lines.get_mut(&key).and_then(VecDeque::pop_front) else { return permit.give() };
            self.places.waiting.fetch_sub(1, SeqCst);
            if let Err(permit) = first.send(permit) {
                permit.give();
            }
        }
    }
}

/// A place that is taken; comes back when dropped.
pub(crate) struct Permit {
    limiter: Option<Arc<Limiter>>,
    key: u64,
    entry: usize,
}

impl Permit {
    /// Gives the place back without waking anybody: for those who hold the lines.
    fn give(mut self) {
        if let Some(limiter) = self.limiter.take() {
            limiter.places.give(self.key, self.entry);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(limiter) = self.limiter.take() else { return };
        limiter.places.give(self.key, self.entry);
        if limiter.places.waiting.load(SeqCst) > 0 {
            limiter.wake(self.key);
        }
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Permit({:x})", self.key)
    }
}

/// A wait for a place; leaves the line when dropped.
pub(crate) struct PermitWait {
    limiter: Arc<Limiter>,
    key: u64,
    receiver: Receiver<Permit>,
}

impl Future for PermitWait {
    type Output = Option<Permit>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.get_mut().receiver).poll(cx).map(Result::ok)
    }
}

impl Drop for PermitWait {
    fn drop(&mut self) {
        self.receiver.close();
        // What was handed over at the last moment goes to the next.
        drop(self.receiver.try_recv());
        let places = &self.limiter.places;
        places.clear(&mut places.lines(), self.key);
    }
}

impl std::fmt::Debug for PermitWait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Waiting({:x})", self.key)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    fn limiter(keys: usize, limit: u64, max_waiting: usize) -> Arc<Limiter> {
        Arc::new(Limiter::new(Arc::new(PermitTable::new(keys)), limit, max_waiting, Gauge::default()))
    }

    fn key(n: u64) -> u64 {
        n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn a_key_has_its_places_and_no_more() {
        let limiter = limiter(100, 2, 0);
        let held = [limiter.try_enter(key(1)).unwrap(), limiter.try_enter(key(1)).unwrap()];
        assert_eq!(limiter.try_enter(key(1)).unwrap_err(), LimitReached::Full);
        let other = limiter.try_enter(key(2)).unwrap();
        assert_eq!((limiter.places.used(), limiter.peak()), (3, 2));
        drop((held, other));
        assert_eq!(limiter.places.used(), 0);
        assert!(limiter.try_enter(key(1)).is_ok());
    }

    #[test]
    fn more_keys_than_there_is_room_for_are_refused_and_a_free_entry_is_used_again() {
        let limiter = limiter(4, 1, 0);
        let held: Vec<_> = (0..8).map(|n| limiter.try_enter(n).unwrap()).collect();
        assert_eq!(limiter.try_enter(8).unwrap_err(), LimitReached::NoRoom);
        drop(held);
        (0..100).for_each(|n| drop(limiter.try_enter(n).unwrap()));
    }

    #[test]
    fn threads_never_exceed_the_limit_nor_lose_places() {
        let limiter = limiter(16, 3, 0);
        let inside: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(0)).collect();
        let broken = AtomicBool::new(false);
        let visit = |n: u64| {
            let of = usize::try_from(n * 7 % 8).unwrap();
            let Ok(_permit) = limiter.try_enter(key(of as u64)) else { return };
            let before = inside[of].fetch_add(1, SeqCst);
            broken.fetch_or(before >= 3, SeqCst);
            inside[of].fetch_sub(1, SeqCst);
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..40_000).for_each(visit));
            }
        });
        assert!(!broken.load(SeqCst), "more than the limit were inside");
        assert_eq!(limiter.places.used(), 0);
    }

    #[tokio::test]
    async fn those_who_wait_are_served_in_order_and_leave_nothing_behind() {
        let limiter = limiter(100, 1, 2);
        let held = limiter.try_enter(key(1)).unwrap();
        let line = |limiter: &Arc<Limiter>| match limiter.enter(key(1), true) {
            Entering::Line(waiting) => waiting,
            other => panic!("{other:?}"),
        };
        let (first, second) = (line(&limiter), line(&limiter));
        assert!(matches!(limiter.enter(key(1), true), Entering::Refused(LimitReached::Full)));
        assert!(matches!(limiter.enter(key(2), true), Entering::In(_)), "others do not wait");
        drop(held);
        let held = first.await.expect("the first");
        assert_eq!(limiter.places.used(), 1);
        let third = line(&limiter);
        drop(second);
        assert_eq!(limiter.places.waiting(), 1);
        drop(held);
        let held = third.await.expect("the third");
        drop(held);
        assert_eq!((limiter.places.used(), limiter.places.waiting()), (0, 0));
    }

    #[test]
    fn a_place_handed_to_one_who_leaves_goes_to_the_next() {
        let limiter = limiter(100, 1, 2);
        let held = limiter.try_enter(key(1)).unwrap();
        let Entering::Line(first) = limiter.enter(key(1), true) else { panic!("no line") };
        let Entering::Line(mut second) = limiter.enter(key(1), true) else { panic!("no line") };
        drop(held);
        drop(first);
        assert!(second.receiver.try_recv().is_ok());
    }

    #[test]
    fn threads_that_wait_all_get_in() {
        let limiter = limiter(16, 2, 1000);
        let served = AtomicU64::new(0);
        let visit = |_| {
            match limiter.enter(key(1), true) {
                Entering::In(permit) => drop(permit),
                Entering::Line(mut waiting) => drop(waiting.receiver.blocking_recv_now()),
                Entering::Refused(_) => panic!("refused"),
            }
            served.fetch_add(1, SeqCst);
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..2000).for_each(visit));
            }
        });
        assert_eq!((served.into_inner(), limiter.places.used(), limiter.places.waiting()), (8000, 0, 0));
    }

    /// Waits on the thread.
    trait Blocking {
        fn blocking_recv_now(&mut self) -> Permit;
    }

    impl Blocking for Receiver<Permit> {
        fn blocking_recv_now(&mut self) -> Permit {
            loop {
                if let Ok(permit) = self.try_recv() {
                    return permit;
                }
                thread::yield_now();
            }
        }
    }
}
