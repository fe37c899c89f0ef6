//! Takes entries of the audit and sees to it that they are written: to the database where there is one, to the audit log
//! where one is set, and a line of each to the program log.
//!
//! A change of the configuration writes its entry itself, in its own transaction, and only hands it on to the log.
//! Refused attempts are limited: whoever is refused a thousand times a second makes neither the database nor the log
//! any larger than the limits allow, and what was left out is counted in the next entry.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use gateway_core::limit::bucket::{Bucket, BucketState};
use gateway_core::limit::epoch::Epoch;
use gateway_core::limit::window::Allowance;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::audit::log::{AuditLogError, Log};
use crate::audit::{AuditOutcome, ChainLine, Draft, Tip};
#[cfg(feature = "database")]
use crate::store::Store;

/// Entries that wait for the database; more are lost, and counted.
const QUEUE: usize = 256;
/// Entries written in one transaction.
const BATCH: usize = 64;
/// Refused attempts of unknown callers that get an entry in a minute, and at once.
const UNKNOWN: (u32, u32) = (60, 30);
/// The same for callers whose token is known.
const KNOWN: (u32, u32) = (600, 200);
/// How long the end of the gateway waits for entries to be written.
const LAST_ENTRIES: Duration = Duration::from_secs(2);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(5);

/// The objects of a file by kind and id, as they were written, without secrets and with references unanswered.
pub(crate) type FileObjects = BTreeMap<(String, String), Value>;

/// The audit of one gateway.
pub(crate) struct Recorder {
    state: Mutex<RecorderState>,
    limits: [(Bucket, BucketState); 2],
    /// Refused attempts without an entry since the entry before.
    left_out: AtomicU64,
    queue: OnceLock<mpsc::Sender<Draft>>,
    waiting: AtomicU64,
    shows_objects: AtomicBool,
    counts: Arc<Counts>,
}

/// What became of entries.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) allowed: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Refused attempts without an entry.
    pub(crate) suppressed: AtomicU64,
    /// Entries that could not be written where they belong.
    pub(crate) lost: AtomicU64,
}

#[derive(Default)]
struct RecorderState {
    log: Option<Log>,
    /// Where the chain ends that this process makes, where no database has one.
    tip: Tip,
    /// The objects of the configuration file, to compare the next one with.
    known: Option<FileObjects>,
}

impl Recorder {
    /// An audit that counts here.
    pub(crate) fn new(counts: Arc<Counts>) -> Self {
        let epoch = Epoch::starting(tokio::time::Instant::now());
        let limit = |(rate, burst)| {
            (Bucket::new(rate, Duration::from_secs(60), burst, epoch), BucketState::default())
        };
        Self {
            state: Mutex::default(),
            limits: [limit(UNKNOWN), limit(KNOWN)],
            left_out: AtomicU64::new(0),
            queue: OnceLock::new(),
            waiting: AtomicU64::new(0),
            shows_objects: AtomicBool::new(false),
            counts,
        }
    }

    /// Writes to this log from now on; to none for `None`. The same one stays open.
    ///
    /// # Errors
    /// When it can't be opened; the one before stays.
    pub(crate) fn log_to(&self, path: Option<&Path>) -> Result<(), AuditLogError> {
        let mut state = self.state();
        if state.log.as_ref().map(Log::path) == path {
            return Ok(());
        }
        let Some(path) = path else {
            (state.log, state.known) = (None, None);
            return Ok(());
        };
        let (log, tip) = Log::open(path)?;
        // A chain that has begun goes on; the file of another one is where it was left.
        if state.tip == Tip::default() {
            state.tip = tip;
        }
        state.log = Some(log);
        Ok(())
    }

    /// Opens the log's file anew, after the old one was moved away.
    pub(crate) fn reopen(&self) {
        let mut state = self.state();
        let Some(path) = state.log.as_ref().map(|log| log.path().to_owned()) else { return };
        match Log::open(&path) {
            Ok((log, _)) => state.log = Some(log),
            Err(error) => tracing::error!(%error, "the audit log goes on in the old file"),
        }
    }

    /// The file of the log, where it is one that can be read.
    pub(crate) fn log_file(&self) -> Option<PathBuf> {
        let state = self.state();
        let path = state.log.as_ref()?.path();
        (path != Path::new("-")).then(|| path.to_owned())
    }

    /// From now on entries go to this database. Has to be called within a runtime.
    #[cfg(feature = "database")]
    pub(crate) fn keep_in(self: &Arc<Self>, store: Store) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        if self.queue.set(sender).is_ok() {
            drop(tokio::spawn(keep(Arc::downgrade(self), store, receiver)));
        }
    }

    /// Records what is no change of the database's configuration: refused attempts, what plugins and sessions were told
    /// to do, reloads. Waits for nothing but the log's file.
    pub(crate) fn record(&self, mut draft: Draft) {
        if draft.outcome != AuditOutcome::Allowed && !self.passes(&draft) {
            self.left_out.fetch_add(1, Relaxed);
            self.counts.suppressed.fetch_add(1, Relaxed);
            return;
        }
        draft.suppressed = self.left_out.swap(0, Relaxed);
        let Some(queue) = self.queue.get() else {
            let mut state = self.state();
            let line = draft.chained(&state.tip);
            state.tip = line.tip();
            return self.write(&mut state, &draft, &line);
        };
        self.waiting.fetch_add(1, Relaxed);
        if let Err(error) = queue.try_send(draft) {
            self.waiting.fetch_sub(1, Relaxed);
            let (mpsc::error::TrySendError::Full(draft) | mpsc::error::TrySendError::Closed(draft)) = error;
            self.lose(&[draft], "too many wait for the database");
        }
    }

    /// Whether this refusal gets an entry.
    fn passes(&self, draft: &Draft) -> bool {
        let (bucket, state) = &self.limits[usize::from(draft.who.role.is_some())];
        matches!(bucket.take(state, 1, tokio::time::Instant::now()), Allowance::Granted { .. })
    }

    /// An entry is in the database.
    pub(crate) fn kept(&self, draft: &Draft, line: &ChainLine) {
        let mut state = self.state();
        self.write(&mut state, draft, line);
    }

    fn write(&self, state: &mut RecorderState, draft: &Draft, line: &ChainLine) {
        let count = match draft.outcome {
            AuditOutcome::Allowed => &self.counts.allowed,
            AuditOutcome::Refused => &self.counts.refused,
            AuditOutcome::Failed => &self.counts.failed,
        };
        count.fetch_add(1, Relaxed);
        say(draft, line);
        if let Some(log) = &mut state.log
            && let Err(error) = log.write(line)
        {
            self.counts.lost.fetch_add(1, Relaxed);
            tracing::error!(%error, seq = line.seq, "an entry of the audit could not be written to its log");
        }
    }

    /// The database did not take these. The log gets them, in no chain: there is only one chain, and it is the database's.
    fn lose(&self, drafts: &[Draft], why: &str) {
        self.counts.lost.fetch_add(drafts.len() as u64, Relaxed);
        let mut state = self.state();
        for draft in drafts {
            let Draft { who, action, outcome, status, .. } = draft;
            let (actor, peer, outcome) = (&who.actor, who.peer.as_deref(), outcome.as_str());
            let is_logged = state.log.as_mut().is_some_and(|log| log.write(&draft.unchained()).is_ok());
            let told = match is_logged {
                true => "an entry of the audit is in its log only, and in no chain",
                false => "an entry of the audit is lost",
            };
            tracing::error!(actor, peer, action, outcome, status, why, "{told}");
        }
    }

    /// Keeps the objects of the configuration file; says what they were before.
    pub(crate) fn knows(&self, next: FileObjects) -> Option<FileObjects> {
        self.state().known.replace(next)
    }

    /// Whether anybody reads what a reload changes, or the objects themselves.
    pub(crate) fn is_kept(&self) -> bool {
        self.queue.get().is_some() || self.shows_objects.load(Relaxed) || self.state().log.is_some()
    }

    /// From now on the objects of the configuration file are kept for the admin API.
    pub(crate) fn show_objects(&self) {
        self.shows_objects.store(true, Relaxed);
    }

    /// Objects of a kind in the order of their ids, those after `after`, at most so many.
    pub(crate) fn file_objects(&self, kind: &str, after: Option<&str>, limit: usize) -> Vec<(String, Value)> {
        let state = self.state();
        let key = |id: &str| (kind.to_owned(), id.to_owned());
        let from = match after {
            Some(after) => Bound::Excluded(key(after)),
            None => Bound::Included(key("")),
        };
        let objects = state.known.iter().flat_map(|known| known.range((from.clone(), Bound::Unbounded)));
        let of_kind = objects.take_while(|((known, _), _)| known == kind).take(limit);
        of_kind.map(|((_, id), object)| (id.clone(), object.clone())).collect()
    }

    /// An object of the configuration file.
    pub(crate) fn file_object(&self, kind: &str, id: &str) -> Option<Value> {
        self.state().known.as_ref()?.get(&(kind.to_owned(), id.to_owned())).cloned()
    }

    /// Waits a little for entries that wait for the database.
    pub(crate) fn flush(&self) {
        let deadline = Instant::now() + LAST_ENTRIES;
        while self.waiting.load(Relaxed) > 0 && Instant::now() < deadline {
            std::thread::sleep(LOOK);
        }
    }

    fn state(&self) -> MutexGuard<'_, RecorderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes what waits to the database, until the recorder is gone.
#[cfg(feature = "database")]
async fn keep(recorder: std::sync::Weak<Recorder>, store: Store, mut queue: mpsc::Receiver<Draft>) {
    let mut drafts = Vec::with_capacity(BATCH);
    loop {
        drafts.clear();
        if queue.recv_many(&mut drafts, BATCH).await == 0 {
            return;
        }
        let kept = store.audit(&drafts).await;
        let Some(recorder) = recorder.upgrade() else { return };
        match kept {
            Ok(lines) => drafts.iter().zip(&lines).for_each(|(draft, line)| recorder.kept(draft, line)),
            Err(error) => recorder.lose(&drafts, &error.to_string()),
        }
        recorder.waiting.fetch_sub(drafts.len() as u64, Relaxed);
    }
}

/// A line for the program log.
fn say(draft: &Draft, line: &ChainLine) {
    let Draft { who, action, outcome, status, revision, reason, .. } = draft;
    let (seq, hash) = (line.seq, line.hash.as_str());
    let (actor, source, peer, outcome) = (&who.actor, who.source, who.peer.as_deref(), outcome.as_str());
    let reason = reason.as_deref();
    tracing::info!(seq, actor, source, peer, action, outcome, status, reason, revision, hash, "audit");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::Who;

    fn draft(role: Option<&'static str>, outcome: AuditOutcome) -> Draft {
        let who = Who { actor: "ann".to_owned(), role, source: "admin-api", ..Who::default() };
        Draft::new(who, "PUT /v1/proxies/shop", outcome)
    }

    fn count(counter: &AtomicU64) -> u64 {
        counter.load(Relaxed)
    }

    /// What was tried while the database was away is no secret of whoever disturbed it.
    #[tokio::test]
    async fn what_the_database_does_not_take_is_in_the_log() {
        let folder = std::env::temp_dir().join(format!("ferrum-recorder-lost-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("audit.log");
        let recorder = Recorder::new(Arc::default());
        recorder.log_to(Some(&path)).unwrap();
        recorder.record(draft(Some("write"), AuditOutcome::Allowed));
        recorder.lose(&[draft(Some("write"), AuditOutcome::Failed)], "it is away");
        recorder.record(draft(Some("write"), AuditOutcome::Allowed));
        let found = crate::audit::log::verify(&[&path]).unwrap();
        assert_eq!((found.verified.entries, found.unchained, found.missing), (2, 1, 0));
        assert!(found.whole().valid);
        let query =
            crate::audit::Query { outcome: Some("failed".to_owned()), limit: 9, ..Default::default() };
        let entries = crate::audit::log::page(&path, &query).unwrap();
        let entry = entries[0].read().unwrap();
        assert_eq!((entry.seq, entry.unchained, &*entry.actor, &*entry.prev), (0, true, "ann", ""));
        assert_eq!(count(&recorder.counts.lost), 1);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_are_limited_and_what_is_left_out_is_told_later() {
        let folder = std::env::temp_dir().join(format!("ferrum-recorder-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("audit.log");
        let recorder = Recorder::new(Arc::default());
        recorder.log_to(Some(&path)).unwrap();
        for _ in 0..100 {
            recorder.record(draft(None, AuditOutcome::Refused));
        }
        assert_eq!((count(&recorder.counts.refused), count(&recorder.counts.suppressed)), (30, 70));
        // Known callers and what was allowed are not held up by unknown ones.
        recorder.record(draft(Some("read"), AuditOutcome::Refused));
        for _ in 0..300 {
            recorder.record(draft(Some("write"), AuditOutcome::Allowed));
        }
        assert_eq!((count(&recorder.counts.refused), count(&recorder.counts.allowed)), (31, 300));
        tokio::time::advance(Duration::from_secs(1)).await;
        recorder.record(draft(None, AuditOutcome::Refused));
        let entries =
            crate::audit::log::page(&path, &crate::audit::Query { limit: 1000, ..Default::default() });
        let entries: Vec<_> = entries.unwrap().iter().filter_map(ChainLine::read).collect();
        assert_eq!(entries.len(), 332);
        assert_eq!(entries.iter().map(|entry| entry.suppressed).sum::<u64>(), 70);
        assert_eq!(entries[301].seq, 31);
        assert_eq!(entries[301].suppressed, 70, "the next entry tells of them");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
