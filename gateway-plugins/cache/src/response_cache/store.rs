//! Stored responses: a map weighed in bytes, with S3-FIFO eviction (`quick_cache`).
//!
//! Almost all responses are found by their place alone (proxy, scheme, host, path and query). Where the settings or
//! other plugins tell responses of a place apart by more, the place has an *anchor* with a number of its own, and the
//! responses are found by place, number and what tells them apart. So removing two entries forgets a place, however many
//! responses it has; what the number led to is evicted in time.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gateway_core::plugin::world::meters::{Counter, Gauge};
use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};
use tokio::time::Instant;

use super::key::{self, Chooser, Key};
use super::purge::{Log, Purge};
use super::remote::Since;
use super::stored::{OVERHEAD, Stored};
use super::tiers::Tiers;

/// Entries a cache is laid out for: as many as there were if all had this size.
const TYPICAL: u64 = 8 << 10;
/// Places that are told apart while responses for them are under way.
const SLOTS: usize = 4096;
/// How long a place whose responses can't be stored is remembered, so that requests for it don't wait for each other.
const PASS: Duration = Duration::from_secs(10);

/// What is known of a key.
#[derive(Debug)]
struct CacheEntry {
    kind: CacheEntryKind,
    weight: u64,
}

#[derive(Debug)]
enum CacheEntryKind {
    /// Responses, the latest first, each for other requests.
    Responses { url: Box<str>, variants: Box<[Arc<Stored>]> },
    /// Responses of this place are found by this number.
    Anchor(u64),
    /// Its responses can't be stored, until then.
    Pass(Instant),
}

/// What was found for a request.
#[derive(Debug)]
pub(super) enum Lookup {
    /// A response.
    Response(Arc<Stored>),
    /// Responses, none of which is for such a request; what the latest was chosen by.
    Others(Arc<Stored>),
    /// Responses can't be stored.
    Pass,
    /// Nothing.
    Nothing,
}

/// When a request for a response set out: what happened since may forbid storing it.
#[derive(Debug, Clone)]
pub(super) struct Start {
    slot: usize,
    generation: u32,
    purges: u64,
    /// The same about Redis.
    pub(super) since: Option<Since>,
}

type Map = Cache<Box<[u8]>, Arc<CacheEntry>, Weigh, foldhash::quality::RandomState, Count>;

/// The stored responses of one plugin config.
pub(super) struct Store {
    map: Map,
    rules: Limits,
    meters: Meters,
    /// One writer at a time, so that none undoes another's work.
    writing: Mutex<()>,
    epochs: AtomicU64,
    generations: Box<[AtomicU32]>,
    hasher: foldhash::quality::RandomState,
    log: Log,
    /// Bytes of responses that are on their way.
    under_way: AtomicI64,
    /// Where more is stored than here.
    pub(super) tiers: Tiers,
}

/// How much is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) bytes: u64,
    pub(super) object: u64,
    pub(super) variants: usize,
}

/// What is counted about the store.
#[derive(Debug, Clone)]
pub(super) struct Meters {
    pub(super) bytes: Gauge,
    pub(super) objects: Gauge,
    pub(super) evicted: Counter,
    pub(super) purged: Counter,
}

#[derive(Clone)]
struct Weigh;

impl Weighter<Box<[u8]>, Arc<CacheEntry>> for Weigh {
    fn weight(&self, key: &Box<[u8]>, entry: &Arc<CacheEntry>) -> u64 {
        key.len() as u64 + entry.weight
    }
}

/// Counts what is evicted, and frees it after the lock is given back.
#[derive(Clone)]
struct Count(Counter);

/// What one insertion evicted.
#[derive(Default)]
struct Evicted(Vec<Arc<CacheEntry>>);

impl Lifecycle<Box<[u8]>, Arc<CacheEntry>> for Count {
    type RequestState = Evicted;

    fn on_evict(&self, state: &mut Evicted, _key: Box<[u8]>, entry: Arc<CacheEntry>) {
        if matches!(entry.kind, CacheEntryKind::Responses { .. }) {
            self.0.add(1);
        }
        state.0.push(entry);
    }
}

impl Store {
    pub(super) fn new(limits: Limits, meters: Meters, tiers: Tiers) -> Self {
        // A shard holds its share only: it must be much larger than one response.
        let most = (limits.bytes / (limits.object.max(1) * 4)).clamp(1, 64);
        let shards = usize::try_from(most).unwrap_or(1);
        let shards = if shards.is_power_of_two() { shards } else { shards.next_power_of_two() / 2 };
        let items = usize::try_from((limits.bytes / TYPICAL).max(64)).unwrap_or(usize::MAX);
        let mut options = OptionsBuilder::new();
        options.shards(shards).weight_capacity(limits.bytes).estimated_items_capacity(items);
        let hasher = foldhash::quality::RandomState::default();
        let count = Count(meters.evicted.clone());
        let map = match options.build() {
            Ok(options) => Map::with_options(options, Weigh, hasher.clone(), count),
            Err(_) => Map::with(items, limits.bytes, Weigh, hasher.clone(), count),
        };
        Self {
            map,
            rules: limits,
            meters,
            writing: Mutex::default(),
            epochs: AtomicU64::new(1),
            generations: (0..SLOTS).map(|_| AtomicU32::new(0)).collect(),
            hasher,
            log: Log::default(),
            under_way: AtomicI64::new(0),
            tiers,
        }
    }

    /// Another size of the same store.
    pub(super) fn limits(&self) -> Limits {
        self.rules
    }

    fn get(&self, key: &Key) -> Option<Arc<CacheEntry>> {
        if key.parts.is_empty() {
            return self.map.get(&key.place[..]);
        }
        match self.map.get(&key.anchor()[..])?.kind {
            CacheEntryKind::Anchor(epoch) => self.map.get(&key.within(epoch)[..]),
            CacheEntryKind::Responses { .. } | CacheEntryKind::Pass(_) => None,
        }
    }

    /// What is stored for a request.
    pub(super) fn find(&self, key: &Key, chooser: &Chooser<'_>, now: Instant) -> Lookup {
        let Some(entry) = self.get(key) else { return Lookup::Nothing };
        match &entry.kind {
            CacheEntryKind::Anchor(_) => Lookup::Nothing,
            CacheEntryKind::Pass(until) if *until > now => Lookup::Pass,
            CacheEntryKind::Pass(_) => Lookup::Nothing,
            CacheEntryKind::Responses { variants, .. } => {
                match variants.iter().find(|stored| chooser.fits(&stored.head.variant)) {
                    Some(stored) => Lookup::Response(stored.clone()),
                    None => variants.first().map_or(Lookup::Nothing, |first| Lookup::Others(first.clone())),
                }
            }
        }
    }

    /// A request for a response sets out.
    pub(super) fn start(&self, key: &Key) -> Start {
        let slot = self.slot(key.url());
        let generation = self.generations[slot].load(Relaxed);
        Start { slot, generation, purges: self.log.number(), since: self.tiers.since() }
    }

    fn slot(&self, url: &str) -> usize {
        use std::hash::BuildHasher;
        usize::try_from(self.hasher.hash_one(url) % SLOTS as u64).unwrap_or(0)
    }

    /// Stores a response in all tiers; says whether it did. One that was overtaken by an invalidation or a purge is not
    /// stored.
    pub(super) fn put(&self, key: &Key, stored: Arc<Stored>, start: Start) -> bool {
        let _one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let is_kept = self.keep(key, &stored, &start);
        if is_kept {
            self.tiers.put(key, &stored, start.since);
        }
        is_kept
    }

    /// Stores a response in the place of all that is stored for its place, as [`Self::put`].
    pub(super) fn put_alone(&self, key: &Key, stored: Arc<Stored>, mut start: Start) -> bool {
        self.invalidate(key, None);
        // Its own invalidation does not overtake it; another one does.
        start.generation = start.generation.wrapping_add(1);
        self.put(key, stored, start)
    }

    /// Takes a response from a tier below into memory, as [`Self::put`].
    pub(super) fn promote(&self, key: &Key, stored: &Arc<Stored>, start: &Start) -> bool {
        let _one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.keep(key, stored, start)
    }

    fn keep(&self, key: &Key, stored: &Arc<Stored>, start: &Start) -> bool {
        let was_overtaken = self.generations[start.slot].load(Relaxed) != start.generation
            || self.log.covers_since(start.purges, key.url(), &stored.head.tags);
        if was_overtaken || stored.weight() > self.rules.object.saturating_add(OVERHEAD * 64) {
            return false;
        }
        let full = self.full_key(key);
        let mut variants = vec![stored.clone()];
        if let Some(entry) = self.map.peek(&full[..])
            && let CacheEntryKind::Responses { variants: known, .. } = &entry.kind
        {
            let others = known.iter().filter(|other| other.head.variant != stored.head.variant);
            variants.extend(others.take(self.rules.variants - 1).cloned());
        }
        // All of one entry must fit into its shard.
        let most = self.map.shard_capacity() / 2;
        while variants.len() > 1 && variants.iter().map(|it| it.weight()).sum::<u64>() > most {
            variants.pop();
        }
        let url: Box<str> = key.url().into();
        let weight = variants.iter().map(|it| it.weight()).sum::<u64>() + url.len() as u64;
        self.insert(
            full,
            CacheEntry { kind: CacheEntryKind::Responses { url, variants: variants.into() }, weight },
        );
        true
    }

    /// Notes that responses of this key can't be stored. What is stored of it goes.
    pub(super) fn pass(&self, key: &Key, now: Instant) {
        let _one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.insert(
            self.full_key(key),
            CacheEntry { kind: CacheEntryKind::Pass(now + PASS), weight: OVERHEAD },
        );
    }

    /// The key that an entry is found by; makes the anchor where there is none.
    fn full_key(&self, key: &Key) -> Box<[u8]> {
        if key.parts.is_empty() {
            return key.place[..].into();
        }
        let known = self.map.get(&key.anchor()[..]).and_then(|entry| match entry.kind {
            CacheEntryKind::Anchor(epoch) => Some(epoch),
            CacheEntryKind::Responses { .. } | CacheEntryKind::Pass(_) => None,
        });
        let epoch = known.unwrap_or_else(|| {
            let epoch = self.epochs.fetch_add(1, Relaxed);
            self.insert(
                key.anchor()[..].into(),
                CacheEntry { kind: CacheEntryKind::Anchor(epoch), weight: OVERHEAD },
            );
            epoch
        });
        key.within(epoch)[..].into()
    }

    fn insert(&self, key: Box<[u8]>, entry: CacheEntry) {
        let mut evicted = Evicted::default();
        self.map.insert_with_lifecycle(key, Arc::new(entry), &mut evicted);
        self.measure();
        drop(evicted.0);
    }

    fn measure(&self) {
        self.meters.bytes.set(i64::try_from(self.map.weight()).unwrap_or(i64::MAX));
        self.meters.objects.set(i64::try_from(self.map.len()).unwrap_or(i64::MAX));
    }

    /// Forgets what is stored for the place of a request, over both schemes, or for another target at its host. What is
    /// on its way is not stored.
    pub(super) fn invalidate(&self, key: &Key, target: Option<&str>) {
        let mut url = key.url().to_owned();
        if let Some(target) = target {
            url = format!("{}{target}", key.host());
        }
        let _one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.generations[self.slot(&url)].fetch_add(1, Relaxed);
        for scheme in ["http", "https"] {
            let place = key.sibling(scheme, target);
            self.tiers.invalidate(&place, &url);
            self.map.remove(&key::anchor_of(&place)[..]);
            self.map.remove(&place[..]);
        }
        self.measure();
    }

    /// Removes what a purge covers, or marks it stale; says how many responses, in memory and on the disk. Looks at every
    /// entry: not for a worker.
    pub(super) fn purge(&self, purge: &Purge, now: Instant) -> (u64, u64) {
        {
            let _one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
            self.log.add(purge.clone());
        }
        let count = AtomicU64::new(0);
        self.map.retain(|_, entry| {
            let CacheEntryKind::Responses { url, variants } = &entry.kind else { return true };
            let covered = variants.iter().filter(|stored| purge.covers(url, &stored.head.tags));
            let mut any = false;
            for stored in covered {
                any = true;
                count.fetch_add(1, Relaxed);
                if purge.soft {
                    stored.mark_stale(now);
                }
            }
            // One variant of it is the reason for all to go: they are one thing to the target.
            !any || purge.soft
        });
        self.measure();
        let count = count.load(Relaxed);
        // What is in memory is on the disk as well, as a rule.
        let on_disk = self.tiers.purge(purge);
        self.meters.purged.add(count.max(on_disk));
        (count, on_disk)
    }

    /// Takes room for a response that is on its way; a quarter of what is stored may be.
    pub(super) fn take_room(self: &Arc<Self>, bytes: u64) -> Option<Room> {
        let mut room = Room { store: self.clone(), bytes: 0 };
        room.grow(bytes).then_some(room)
    }
}

/// Room for a response that is on its way; given back when dropped.
pub(super) struct Room {
    store: Arc<Store>,
    bytes: u64,
}

impl Room {
    /// Takes more of it; says whether there was enough.
    pub(super) fn grow(&mut self, bytes: u64) -> bool {
        let more = i64::try_from(bytes).unwrap_or(i64::MAX);
        let most =
            i64::try_from((self.store.rules.bytes / 4).max(self.store.rules.object)).unwrap_or(i64::MAX);
        let taken = self.store.under_way.fetch_add(more, Relaxed);
        if taken.saturating_add(more) > most {
            self.store.under_way.fetch_sub(more, Relaxed);
            return false;
        }
        self.bytes += bytes;
        true
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.store.under_way.fetch_sub(i64::try_from(self.bytes).unwrap_or(0), Relaxed);
    }
}
