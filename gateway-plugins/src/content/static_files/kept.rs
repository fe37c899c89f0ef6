//! What is kept of files between requests: the bytes of small ones, and large ones open.
//!
//! An entry is used for as long as settings say without a look at its path; so long a file that was replaced goes on being
//! served whole. One that is open is looked at each time: if its contents were changed, it is not what the entry says any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tokio::time::Instant;

use super::content::Content;
use super::find::{File, Wanted};
use super::root;

/// What an entry in memory costs besides its bytes.
const OVERHEAD: u64 = 1536;

/// Files by what was looked for.
pub(super) struct KeptFiles {
    memory: Option<Cache<Arc<Wanted>, Arc<KeptFile>, Weigh>>,
    open: Option<Cache<Arc<Wanted>, Arc<KeptFile>>>,
    recheck: Duration,
    /// Files are closed that nobody asked for in this time.
    idle: Duration,
    born: Instant,
}

/// What is kept of a file.
pub(super) struct KeptFile {
    pub(super) file: File,
    /// Milliseconds after the plugin was made when its path was last looked at.
    checked: u64,
    /// The same of when it was last asked for.
    used: AtomicU64,
}

#[derive(Clone)]
struct Weigh;

impl Weighter<Arc<Wanted>, Arc<KeptFile>> for Weigh {
    fn weight(&self, wanted: &Arc<Wanted>, kept: &Arc<KeptFile>) -> u64 {
        let bytes = match &kept.file.content {
            Content::Memory(bytes) => bytes.len() as u64,
            Content::File(_) => 0,
        };
        OVERHEAD + bytes + 2 * wanted.path.as_ref().map_or(0, String::len) as u64
    }
}

/// How much is kept, and for how long.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeepLimits {
    /// What files in memory may weigh together; 0 keeps none.
    pub(super) memory: u64,
    /// Files that may be open; 0 keeps none.
    pub(super) open: usize,
    pub(super) recheck: Duration,
    pub(super) idle: Duration,
}

/// What was kept for a request.
pub(super) enum CacheLookup {
    /// It answers.
    Current(Arc<KeptFile>),
    /// It may have changed.
    Stale(Arc<KeptFile>),
    Nothing,
}

impl KeptFiles {
    pub(super) fn new(limits: KeepLimits, born: Instant) -> Self {
        let KeepLimits { memory, open, recheck, idle } = limits;
        let items = usize::try_from(memory / (16 << 10)).unwrap_or(usize::MAX).max(64);
        Self {
            memory: (memory > 0).then(|| Cache::with_weighter(items, memory, Weigh)),
            open: (open > 0).then(|| Cache::new(open)),
            recheck,
            idle,
            born,
        }
    }

    /// What is known of what is looked for.
    pub(super) fn get(&self, wanted: &Wanted, now: Instant) -> CacheLookup {
        let in_memory = self.memory.as_ref().and_then(|memory| memory.get(wanted));
        let Some(kept) = in_memory.or_else(|| self.open.as_ref()?.get(wanted)) else {
            return CacheLookup::Nothing;
        };
        let now = self.millis(now);
        let age = Duration::from_millis(now.saturating_sub(kept.checked));
        if age >= self.recheck || !kept.is_unchanged() {
            return CacheLookup::Stale(kept);
        }
        kept.used.store(now, Relaxed);
        CacheLookup::Current(kept)
    }

    /// Keeps what was found; `whole` is the size up to which files are read whole.
    pub(super) fn put(&self, wanted: &Wanted, file: &File, whole: u64, now: Instant) {
        let checked = self.millis(now);
        let kept = || Arc::new(KeptFile { file: file.clone(), checked, used: AtomicU64::new(checked) });
        match (&file.content, &self.memory, &self.open) {
            (Content::Memory(_), Some(memory), open) => {
                if let Some(open) = open {
                    open.remove(wanted);
                }
                memory.insert(Arc::new(wanted.clone()), kept());
            }
            // A small file that is read piece by piece is being written to.
            (Content::File(_), memory, Some(open)) if file.stamp.size > whole => {
                if let Some(memory) = memory {
                    memory.remove(wanted);
                }
                open.insert(Arc::new(wanted.clone()), kept());
            }
            _ => {}
        }
    }

    /// Closes files that nobody has asked for of late. One that was deleted takes room on the disk for as long as it is open.
    pub(super) fn close_idle(&self, now: Instant) {
        let (now, Some(open)) = (self.millis(now), &self.open) else { return };
        open.retain(|_, kept| Duration::from_millis(now.saturating_sub(kept.used.load(Relaxed))) < self.idle);
    }

    /// How often to look for such files; `None` where none is kept.
    pub(super) fn closes_every(&self) -> Option<Duration> {
        self.open.as_ref().map(|_| (self.idle / 2).max(Duration::from_millis(500)))
    }

    /// Files that are open.
    #[cfg(test)]
    pub(super) fn open(&self) -> usize {
        self.open.as_ref().map_or(0, Cache::len)
    }

    fn millis(&self, now: Instant) -> u64 {
        let age = now.saturating_duration_since(self.born);
        u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
    }
}

impl KeptFile {
    /// Whether an open file is what it was.
    fn is_unchanged(&self) -> bool {
        match &self.file.content {
            Content::Memory(_) => true,
            Content::File(file) => root::stamp(file).is_ok_and(|stamp| stamp.holds(self.file.stamp)),
        }
    }

    /// How metrics name where its bytes come from.
    pub(super) fn source(&self) -> &'static str {
        match &self.file.content {
            Content::Memory(_) => "memory",
            Content::File(_) => "open",
        }
    }
}
