//! The program log: lines wait in a bounded queue, and a thread of its own writes them to standard error.
//!
//! Whoever logs never waits for the reader and never fails: when the reader is slow or gone, lines are lost and
//! counted. Lines that repeat too fast are left out, and their number is logged.

mod repeats;

use std::borrow::Cow;
use std::io::{self, Write};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use gateway_core::http::credentials::redact_text;
use tracing_subscriber::fmt::MakeWriter;

pub(crate) use repeats::Repeats;

/// Bytes of lines that wait to be written; more are lost.
const MAX_WAITING_BYTES: usize = 1 << 20;
/// How often it is reported what was left out and lost.
const REPORT_EVERY: Duration = Duration::from_secs(10);
/// Before writing again to an output that takes nothing now and can't be waited for.
const FULL_PAUSE: Duration = Duration::from_millis(10);
/// How long whoever ends the program waits for its last lines.
const LAST_LINES: Duration = Duration::from_secs(1);

/// The log of this process: a subscriber is installed once a process, too.
static LOG: OnceLock<ProgramLog> = OnceLock::new();

/// A handle of the log.
#[derive(Clone, Default)]
pub(crate) struct ProgramLog(Arc<SharedLog>);

#[derive(Default)]
struct SharedLog {
    queue: Mutex<Queue>,
    /// A line came, or the writer has written everything.
    changed: Condvar,
    written: AtomicU64,
    lost: AtomicU64,
    write_errors: AtomicU64,
    repeats: Repeats,
}

#[derive(Default)]
struct Queue {
    lines: Vec<u8>,
    /// The writer has lines that are not written yet.
    writing: bool,
}

/// What became of the log's lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Written.
    pub(crate) written: u64,
    /// Lost because the reader was too slow, or could not be written to.
    pub(crate) lost: u64,
    /// Left out because they repeated too fast.
    pub(crate) left_out: u64,
    /// Writes that failed.
    pub(crate) write_errors: u64,
}

/// The counts of this process; all zero when a host program has a subscriber of its own.
pub(crate) fn counts() -> Counts {
    LOG.get().map(ProgramLog::counts).unwrap_or_default()
}

/// Waits a moment until everything logged so far is written.
pub(crate) fn flush() {
    if let Some(log) = LOG.get() {
        log.flush(LAST_LINES);
    }
}

impl ProgramLog {
    /// The log of this process, written to standard error.
    ///
    /// # Errors
    /// When the writer's thread can't be started.
    pub(crate) fn install() -> io::Result<Self> {
        let log = Self::default();
        if LOG.set(log.clone()).is_ok() {
            log.start(io::stderr())?;
        }
        Ok(LOG.get().cloned().unwrap_or(log))
    }

    /// Starts the writer. Its thread ends with the process: it may hang in a write for good.
    fn start(&self, output: impl Write + Send + 'static) -> io::Result<()> {
        let log = self.clone();
        std::thread::Builder::new().name("log".into()).spawn(move || log.write_all(output)).map(drop)
    }

    /// What leaves lines out that repeat too fast.
    pub(crate) fn repeats(&self) -> Repeats {
        self.0.repeats.clone()
    }

    fn counts(&self) -> Counts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let shared = &*self.0;
        Counts {
            written: of(&shared.written),
            lost: of(&shared.lost),
            left_out: shared.repeats.left_out(),
            write_errors: of(&shared.write_errors),
        }
    }

    fn flush(&self, most: Duration) {
        let deadline = Instant::now() + most;
        let mut queue = self.queue();
        while queue.writing || !queue.lines.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            queue = self.0.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a line, or loses it.
    fn push(&self, line: &[u8]) {
        let mut queue = self.queue();
        if queue.lines.len() + line.len() > MAX_WAITING_BYTES {
            drop(queue);
            self.0.lost.fetch_add(lines(line), Ordering::Relaxed);
            return;
        }
        queue.lines.extend_from_slice(line);
        drop(queue);
        self.0.changed.notify_all();
    }

    /// The writer's loop.
    fn write_all(&self, mut output: impl Write) {
        let mut batch = Vec::new();
        let mut report = Report { at: Instant::now() + REPORT_EVERY, lost: 0 };
        loop {
            self.take(&mut batch, report.at);
            self.write(&mut output, &batch);
            batch.clear();
            if Instant::now() >= report.at {
                report.make(self);
            }
        }
    }

    /// Waits for lines until `deadline` and takes them all.
    fn take(&self, batch: &mut Vec<u8>, deadline: Instant) {
        let mut queue = self.queue();
        queue.writing = false;
        if queue.lines.is_empty() {
            self.0.changed.notify_all();
        }
        while queue.lines.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            queue = self.0.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        mem::swap(&mut queue.lines, batch);
        queue.writing = true;
    }

    fn write(&self, output: &mut impl Write, batch: &[u8]) {
        let mut rest = batch;
        while !rest.is_empty() {
            match output.write(rest) {
                Ok(0) => break,
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Somebody who shares standard error has made it non-blocking.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(FULL_PAUSE),
                Err(_) => {
                    self.0.write_errors.fetch_add(1, Ordering::Relaxed);
                    break;
                }
            }
        }
        let (all, lost) = (lines(batch), lines(rest));
        self.0.written.fetch_add(all - lost, Ordering::Relaxed);
        self.0.lost.fetch_add(lost, Ordering::Relaxed);
    }
}

/// What was reported so far, and when it is reported next.
struct Report {
    at: Instant,
    lost: u64,
}

impl Report {
    fn make(&mut self, log: &ProgramLog) {
        self.at = Instant::now() + REPORT_EVERY;
        for (metadata, lines) in log.0.repeats.take() {
            let (module, line) = (metadata.module_path().unwrap_or_default(), metadata.line().unwrap_or(0));
            tracing::warn!(lines, module, line, "log lines that repeated too fast were left out");
        }
        let lost = log.counts().lost;
        if lost > self.lost {
            tracing::warn!(
                lines = lost - self.lost,
                "log lines were lost: their reader was too slow or gone"
            );
            self.lost = lost;
        }
    }
}

fn lines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// Each event is written in one call.
impl Write for ProgramLog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // Errors of any library may name a URL with a credential in it.
        match std::str::from_utf8(line).map(redact_text) {
            Ok(Cow::Owned(redacted)) => self.push(redacted.as_bytes()),
            _ => self.push(line),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for ProgramLog {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests;
