//! Writes the standard error of targets to the gateway's log.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

/// Maximum number of bytes that are logged per request.
const MAX_BYTES: usize = 8 << 10;
/// Maximum length of a log line, in bytes.
const MAX_LINE: usize = 1 << 10;
/// Maximum number of lines that a worker logs per [`PERIOD`].
const MAX_LINES: u32 = 50;
const PERIOD: Duration = Duration::from_secs(1);

thread_local! {
    /// The start of the worker's period, the number of lines logged in it, and the number of lines left out.
    static LOGGED: Cell<(Option<Instant>, u32, u64)> = const { Cell::new((None, 0, 0)) };
}

/// The standard error of one request. It is logged when the request ends.
#[derive(Debug)]
pub(super) struct ErrorOutput {
    target: Arc<str>,
    kept: Vec<u8>,
    /// Bytes beyond the limit.
    dropped: u64,
}

impl ErrorOutput {
    /// An empty output of this target.
    pub(super) fn of(target: &Arc<str>) -> Self {
        Self { target: target.clone(), kept: Vec::new(), dropped: 0 }
    }

    /// Appends bytes, up to the limit.
    pub(super) fn add(&mut self, bytes: &Bytes) {
        let room = MAX_BYTES.saturating_sub(self.kept.len()).min(bytes.len());
        self.kept.extend_from_slice(&bytes[..room]);
        self.dropped += (bytes.len() - room) as u64;
    }

    /// Logs the lines that the rate limit permits.
    fn log(&mut self, now: Instant) {
        let target = &*self.target;
        for line in std::mem::take(&mut self.kept).split(|c| *c == b'\n') {
            let line = line.trim_ascii();
            if !line.is_empty() && may_log(now) {
                let line = line.get(..MAX_LINE).unwrap_or(line).escape_ascii();
                tracing::warn!(target_address = target, "the FastCGI target reports: {line}");
            }
        }
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 && may_log(now) {
            tracing::warn!(
                target_address = target,
                bytes = dropped,
                "more of the FastCGI target's report was left out"
            );
        }
    }
}

impl Drop for ErrorOutput {
    fn drop(&mut self) {
        if !self.kept.is_empty() {
            self.log(Instant::now());
        }
    }
}

/// Whether one more line may be logged. Also logs the number of lines left out before.
pub(super) fn may_log(now: Instant) -> bool {
    let (began, logged, left_out) = LOGGED.get();
    let is_new = began.is_none_or(|began| now.saturating_duration_since(began) >= PERIOD);
    if is_new {
        if left_out > 0 {
            tracing::warn!(lines = left_out, "reports of FastCGI targets were left out of the log");
        }
        LOGGED.set((Some(now), 1, 0));
        return true;
    }
    let may = logged < MAX_LINES;
    LOGGED.set(if may { (began, logged + 1, left_out) } else { (began, logged, left_out + 1) });
    may
}
