//! The keys that one gateway remembers, with their answers, in a bounded amount of memory.
//!
//! Keys are forgotten in the order in which their requests ended; those of requests under way are never forgotten. Each
//! change removes what has expired by then, so nothing is ever swept.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gateway_core::plugin::world::meters::{Counter, Gauge};
use tokio::sync::watch;
use tokio::time::Instant;

use super::saved::Saved;
use super::settings::OnFull;
use super::{Key, KeyStatus, Print, RequestOutcome};

/// Bytes of memory a key takes, about.
const ENTRY: u64 = 256;

/// How much may be stored, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) bytes: u64,
    pub(super) ttl: Duration,
    pub(super) on_full: OnFull,
}

/// What is counted about it.
#[derive(Debug, Clone)]
pub(super) struct Meters {
    pub(super) bytes: Gauge,
    pub(super) keys: Gauge,
    pub(super) evicted: Counter,
}

/// The keys of one plugin config.
pub(super) struct Table {
    inner: Mutex<Inner>,
    meters: Meters,
}

#[derive(Default)]
struct Inner {
    entries: HashMap<Key, LocalEntry>,
    /// Ended requests: when their key expires, and which it is.
    ended: VecDeque<(Instant, Key, u64)>,
    bytes: u64,
    /// One for each request, so that what is said of an earlier one changes nothing of a later one.
    serial: u64,
}

struct LocalEntry {
    print: Print,
    serial: u64,
    weight: u64,
    state: RequestState,
}

enum RequestState {
    /// Under way; the channel closes when it has ended.
    Pending(watch::Receiver<()>),
    Answered(Arc<Saved>),
    Unknown,
    Spent,
}

/// What the first request with a key holds on to.
pub(super) struct Claim {
    table: Arc<Table>,
    limits: Limits,
    key: Key,
    serial: u64,
    /// Dropped when the request has ended.
    _waiting: watch::Sender<()>,
}

/// What was found for a request.
pub(super) enum LocalClaim {
    /// It is the first.
    First(Claim),
    /// The first is under way; the channel closes when it has ended.
    Pending(watch::Receiver<()>),
    Held(KeyStatus),
    /// There is no room.
    Full,
}

impl Table {
    pub(super) fn new(meters: Meters) -> Self {
        Self { inner: Mutex::default(), meters }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims a key, or says what is known of it. `retries` takes over a key whose outcome is not known.
    pub(super) fn claim(
        self: &Arc<Self>,
        key: Key,
        print: Print,
        limits: Limits,
        retries: bool,
        now: Instant,
    ) -> LocalClaim {
        let mut inner = self.lock();
        inner.expire(now);
        if let Some(entry) = inner.entries.get(&key) {
            if entry.print != print {
                return LocalClaim::Held(KeyStatus::Other);
            }
            match &entry.state {
                RequestState::Pending(ended) => return LocalClaim::Pending(ended.clone()),
                RequestState::Answered(saved) => return LocalClaim::Held(KeyStatus::Answered(saved.clone())),
                RequestState::Spent => return LocalClaim::Held(KeyStatus::Spent),
                RequestState::Unknown if !retries => return LocalClaim::Held(KeyStatus::Unknown),
                RequestState::Unknown => _ = inner.remove(&key),
            }
        }
        if !self.make_room(&mut inner, ENTRY, limits) {
            return LocalClaim::Full;
        }
        inner.serial += 1;
        let serial = inner.serial;
        let (waiting, ended) = watch::channel(());
        inner.bytes += ENTRY;
        inner
            .entries
            .insert(key, LocalEntry { print, serial, weight: ENTRY, state: RequestState::Pending(ended) });
        self.show(&inner);
        drop(inner);
        LocalClaim::First(Claim { table: self.clone(), limits, key, serial, _waiting: waiting })
    }

    /// Makes room for so many bytes. False where there is none.
    fn make_room(&self, inner: &mut Inner, bytes: u64, limits: Limits) -> bool {
        while inner.bytes.saturating_add(bytes) > limits.bytes {
            if limits.on_full == OnFull::Refuse {
                return false;
            }
            let Some((_, key, serial)) = inner.ended.pop_front() else { return false };
            if inner.entries.get(&key).is_some_and(|entry| entry.serial == serial) {
                inner.remove(&key);
                self.meters.evicted.add(1);
            }
        }
        true
    }

    fn show(&self, inner: &Inner) {
        self.meters.bytes.set(i64::try_from(inner.bytes).unwrap_or(i64::MAX));
        self.meters.keys.set(i64::try_from(inner.entries.len()).unwrap_or(i64::MAX));
    }
}

impl Inner {
    fn remove(&mut self, key: &Key) -> Option<LocalEntry> {
        let entry = self.entries.remove(key)?;
        self.bytes = self.bytes.saturating_sub(entry.weight);
        Some(entry)
    }

    /// Leaves out of the order what was taken over since. Rarely, so that it costs each request next to nothing.
    fn tidy(&mut self) {
        if self.ended.len() > self.entries.len().saturating_mul(2) + 1024 {
            let entries = &self.entries;
            self.ended.retain(|(_, key, serial)| entries.get(key).is_some_and(|it| it.serial == *serial));
        }
    }

    /// Forgets what has expired.
    fn expire(&mut self, now: Instant) {
        while self.ended.front().is_some_and(|(expires, ..)| *expires <= now) {
            let Some((_, key, serial)) = self.ended.pop_front() else { return };
            if self.entries.get(&key).is_some_and(|entry| entry.serial == serial) {
                self.remove(&key);
            }
        }
    }
}

impl Claim {
    /// The request has ended; those that wait look again when this is dropped.
    pub(super) fn settle(self, outcome: RequestOutcome, now: Instant) {
        let table = &self.table;
        let mut inner = table.lock();
        inner.expire(now);
        let Some(entry) = inner.entries.get(&self.key).filter(|entry| entry.serial == self.serial) else {
            return;
        };
        let print = entry.print;
        inner.remove(&self.key);
        let (state, weight) = match outcome {
            RequestOutcome::Free => {
                table.show(&inner);
                return;
            }
            RequestOutcome::Unknown => (RequestState::Unknown, ENTRY),
            RequestOutcome::Spent => (RequestState::Spent, ENTRY),
            RequestOutcome::Answered(saved) => {
                let weight = ENTRY + saved.weight();
                match table.make_room(&mut inner, weight, self.limits) {
                    true => (RequestState::Answered(saved), weight),
                    false => (RequestState::Spent, ENTRY),
                }
            }
        };
        inner.bytes += weight;
        inner.entries.insert(self.key, LocalEntry { print, serial: self.serial, weight, state });
        inner.ended.push_back((now + self.limits.ttl, self.key, self.serial));
        inner.tidy();
        table.show(&inner);
    }
}
