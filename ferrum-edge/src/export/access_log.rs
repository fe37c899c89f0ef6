//! The access log: one JSON line for every exchange and session, written by a thread of its own.
//!
//! A worker appends its line to a buffer that it shares with nobody but the writer, which takes the whole buffer away
//! in one swap. When the writer falls behind, lines are dropped and counted; traffic never waits for a disk.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use gateway_core::config::model::AccessLog as Rules;
use gateway_core::record::{ExchangeRecord, SessionRecord};

use gateway_telemetry::json;
use gateway_telemetry::record::{self, Extras};

use crate::line_file::LineFile;

/// The log of one gateway.
pub(crate) struct AccessLog {
    shares: Vec<Arc<Share>>,
    state: Arc<WriterState>,
    /// Closed when the writer has ended.
    ended: Mutex<Option<mpsc::Receiver<()>>>,
}

/// One worker's end of the log.
pub(crate) struct Share {
    waiting: Mutex<Batch>,
    /// Records that may wait here.
    limit: usize,
    state: Arc<WriterState>,
}

/// Lines that wait to be written.
#[derive(Default)]
struct Batch {
    lines: Vec<u8>,
    records: usize,
}

#[derive(Default)]
struct WriterState {
    writer: OnceLock<Thread>,
    /// The writer found nothing and waits to be woken.
    asleep: AtomicBool,
    stop: AtomicBool,
    reopen: AtomicBool,
    written: AtomicU64,
    dropped: AtomicU64,
}

/// The access log's file can't be opened.
#[derive(Debug, thiserror::Error)]
#[error("the access log {} can't be opened: {source}", path.display())]
pub struct AccessLogError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// A buffer that grew beyond this in a burst is not kept.
const KEPT_BYTES: usize = 1 << 20;
/// After a round that found something the writer waits so long for more, so that it writes many lines at a time.
const GATHER: Duration = Duration::from_millis(5);

/// How long the end of the gateway waits for the last records to be written.
const LAST_RECORDS: Duration = Duration::from_secs(5);

impl AccessLog {
    /// Opens the file and starts the writer.
    pub(crate) fn start(rules: &Rules, workers: usize) -> Result<Self, AccessLogError> {
        let failed = |source| AccessLogError { path: rules.path.clone(), source };
        let output = LogOutput::open(&rules.path).map_err(failed)?;
        let state = Arc::new(WriterState::default());
        let limit = (rules.queue / workers.max(1)).max(1);
        let shares: Vec<_> = (0..workers)
            .map(|_| Arc::new(Share { waiting: Mutex::default(), limit, state: state.clone() }))
            .collect();
        let (writers_shares, writers_state) = (shares.clone(), state.clone());
        let (end, ended) = mpsc::channel();
        let writer = std::thread::Builder::new()
            .name("access-log".into())
            .spawn(move || {
                let _until_it_ends = end;
                write(output, &writers_shares, &writers_state);
            })
            .map_err(failed)?;
        state.writer.get_or_init(|| writer.thread().clone());
        Ok(Self { shares, state, ended: Mutex::new(Some(ended)) })
    }

    pub(crate) fn share(&self, worker: usize) -> Option<Arc<Share>> {
        self.shares.get(worker).cloned()
    }

    /// Opens the file anew, after the old one was moved away.
    pub(crate) fn reopen(&self) {
        self.state.reopen.store(true, Ordering::Release);
        self.state.wake();
    }

    /// Writes what waits and ends the writer. One whose output takes nothing is left behind.
    pub(crate) fn close(&self) {
        self.state.stop.store(true, Ordering::Release);
        self.state.wake();
        let Some(ended) = lock(&self.ended).take() else { return };
        if ended.recv_timeout(LAST_RECORDS) == Err(RecvTimeoutError::Timeout) {
            let records: usize = self.shares.iter().map(|share| lock(&share.waiting).records).sum();
            tracing::error!(
                records,
                "the access log could not be written to its end; the last records are lost"
            );
        }
    }

    pub(crate) fn written(&self) -> u64 {
        self.state.written.load(Ordering::Relaxed)
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.state.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.close();
    }
}

impl WriterState {
    fn wake(&self) {
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }
}

impl Share {
    pub(crate) fn exchange(&self, record: &ExchangeRecord<'_>) {
        self.append(|lines| record::exchange(lines, record, &Extras::default()));
    }

    pub(crate) fn session(&self, record: &SessionRecord<'_>) {
        self.append(|lines| record::session(lines, record, &Extras::default()));
    }

    fn append(&self, write: impl FnOnce(&mut json::JsonLine<'_>)) {
        let mut waiting = lock(&self.waiting);
        if waiting.records >= self.limit {
            drop(waiting);
            self.state.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.records += 1;
        let first = waiting.records == 1;
        let mut line = json::JsonLine::begin(&mut waiting.lines);
        write(&mut line);
        line.end();
        drop(waiting);
        // Later lines are found by the round the first one sets off; a writer at work needs no waking, which would be
        // a system call for each record.
        if first && self.state.asleep.load(Ordering::Acquire) {
            self.state.wake();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The writer's loop: take what waits, write it, sleep when nothing does.
fn write(mut output: LogOutput, shares: &[Arc<Share>], state: &WriterState) {
    let mut batch = Batch::default();
    loop {
        // Read before the last round, so that whatever was appended before the stop is still written.
        let stopping = state.stop.load(Ordering::Acquire);
        if state.reopen.swap(false, Ordering::AcqRel) {
            output.reopen();
        }
        let mut found = false;
        for share in shares {
            batch.lines.clear();
            batch.records = 0;
            std::mem::swap(&mut batch, &mut lock(&share.waiting));
            if batch.records == 0 {
                continue;
            }
            found = true;
            let written = output.write(&batch.lines, batch.records);
            state.written.fetch_add(written as u64, Ordering::Relaxed);
            state.dropped.fetch_add((batch.records - written) as u64, Ordering::Relaxed);
            if batch.lines.capacity() > KEPT_BYTES {
                batch.lines = Vec::new();
            }
        }
        if found {
            std::thread::park_timeout(if stopping { Duration::ZERO } else { GATHER });
            continue;
        }
        if stopping {
            return;
        }
        state.asleep.store(true, Ordering::Release);
        // Whoever appends from here on either is seen in this look or sees, after the lock, that the writer sleeps.
        if shares.iter().all(|share| lock(&share.waiting).records == 0) {
            std::thread::park();
        }
        state.asleep.store(false, Ordering::Release);
    }
}

/// Where lines go.
struct LogOutput {
    path: PathBuf,
    file: LineFile,
    /// Records lost since writing began to fail, which was said then.
    lost: usize,
}

impl LogOutput {
    /// Opens the file to append to it; `-` is standard output.
    fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: Self::file(path)?, lost: 0 })
    }

    fn file(path: &Path) -> io::Result<LineFile> {
        if path.as_os_str() == "-" { LineFile::stdout() } else { LineFile::append(path) }
    }

    fn reopen(&mut self) {
        match Self::file(&self.path) {
            Ok(file) => {
                self.file = file;
                tracing::info!(path = %self.path.display(), "the access log was opened anew");
            }
            Err(error) => {
                tracing::error!(path = %self.path.display(), %error, "the access log goes on in the old file");
            }
        }
    }

    /// Writes a line for each of these records, in one call where the file takes that; a batch already is a buffer. Says how many
    /// were written.
    fn write(&mut self, lines: &[u8], records: usize) -> usize {
        // Others who write whole lines to standard output wait for this one.
        let _others = (self.path.as_os_str() == "-").then(|| io::stdout().lock());
        match self.file.write(lines) {
            Ok(()) => {
                if self.lost > 0 {
                    let (path, lost) = (self.path.display(), self.lost);
                    tracing::info!(%path, lost, "access records are written again");
                }
                self.lost = 0;
                records
            }
            Err(failed) => {
                let written =
                    memchr::memchr_iter(b'\n', lines.get(..failed.written).unwrap_or(lines)).count();
                if self.lost == 0 {
                    let (path, error) = (self.path.display(), failed.source);
                    tracing::error!(%path, %error, "access records can't be written");
                }
                self.lost += records - written;
                written
            }
        }
    }
}

#[cfg(test)]
mod tests;
