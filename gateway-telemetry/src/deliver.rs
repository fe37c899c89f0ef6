//! Sends what waits in [`Batches`] until its task ends: at intervals, or as soon as a chunk is full; again after failures
//! that pass, with growing pauses; the rest when the task ends.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::world::tasks::{TaskControl, TaskHealth};
use tokio::time::{Instant, sleep, timeout_at};

use crate::batch::{Batches, Chunk};

/// The first pause after a failure that may pass; it doubles up to [`MAX_PAUSE`].
const PAUSE: Duration = Duration::from_millis(500);
/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// How long what waits may take to be sent when the task ends.
const LAST: Duration = Duration::from_secs(5);

/// Sends chunks.
pub trait Deliver: Send + Sync + 'static {
    /// Sends one chunk; says how many of its items the other side refused.
    fn deliver(&self, chunk: &Chunk) -> impl Future<Output = Result<Delivered, Failed>> + Send;
}

/// The other side has a chunk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Delivered {
    /// Items that it refused.
    pub refused: u64,
    /// Why, in its words.
    pub why: String,
}

/// A chunk could not be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failed {
    /// Why.
    pub message: String,
    /// Whether it may work later.
    pub may_pass: bool,
    /// When to try again, where the other side says so.
    pub after: Option<Duration>,
}

impl Failed {
    /// A failure that may pass.
    pub fn passing(message: impl Into<String>) -> Self {
        Self { message: message.into(), may_pass: true, after: None }
    }

    /// A failure that stays.
    pub fn lasting(message: impl Into<String>) -> Self {
        Self { message: message.into(), may_pass: false, after: None }
    }
}

/// How often it sends, and for how long it tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// The longest an item waits to be sent.
    pub interval: Duration,
    /// How long one chunk is tried before it is given up.
    pub retry_for: Duration,
}

/// What became of items.
#[derive(Debug, Clone)]
pub struct Counts {
    /// The other side has them.
    pub sent: Counter,
    /// They could not be sent.
    pub failed: Counter,
    /// The other side refused them.
    pub refused: Counter,
}

/// Sends what waits until the task ends.
///
/// # Errors
/// None; the type is what tasks come to.
pub async fn run<D: Deliver>(
    name: String,
    batches: Arc<Batches>,
    to: Arc<D>,
    pace: Pace,
    counts: Counts,
    mut control: TaskControl,
) -> Result<(), String> {
    let health = control.health().clone();
    let mut sender = Sender { name, to, pace, counts, health, failing: false };
    let mut next = Instant::now() + pace.interval;
    loop {
        let is_time = tokio::select! {
            biased;
            () = control.ended() => break,
            () = batches.full() => false,
            () = tokio::time::sleep_until(next) => true,
        };
        while let Some(chunk) = if is_time { batches.take() } else { batches.take_full() } {
            if !sender.send(&chunk, &mut control).await {
                break;
            }
        }
        if is_time {
            next = Instant::now() + pace.interval;
        }
    }
    sender.last(&batches).await;
    Ok(())
}

struct Sender<D> {
    name: String,
    to: Arc<D>,
    pace: Pace,
    counts: Counts,
    health: TaskHealth,
    /// The last chunk could not be sent, and it was said.
    failing: bool,
}

impl<D: Deliver> Sender<D> {
    /// Sends one chunk or gives it up; false when the task has to end.
    async fn send(&mut self, chunk: &Chunk, control: &mut TaskControl) -> bool {
        let give_up = Instant::now() + self.pace.retry_for;
        let mut pause = PAUSE;
        loop {
            let failed = match self.to.deliver(chunk).await {
                Ok(delivered) => {
                    self.delivered(chunk, &delivered);
                    return !control.is_ended();
                }
                Err(failed) => failed,
            };
            let wait = failed.after.unwrap_or(pause).min(MAX_PAUSE).mul_f64(jitter());
            self.say(&failed.message);
            if !failed.may_pass || Instant::now() + wait > give_up || control.is_ended() {
                self.counts.failed.add(chunk.items as u64);
                return !control.is_ended();
            }
            pause = (pause * 2).min(MAX_PAUSE);
            tokio::select! {
                () = control.ended() => {}
                () = sleep(wait) => {}
            }
        }
    }

    /// Sends what is left, each chunk once, for a bounded time.
    async fn last(&mut self, batches: &Batches) {
        let until = Instant::now() + LAST;
        while let Some(chunk) = batches.take() {
            match timeout_at(until, self.to.deliver(&chunk)).await {
                Ok(Ok(delivered)) => self.delivered(&chunk, &delivered),
                Ok(Err(failed)) => {
                    self.say(&failed.message);
                    self.counts.failed.add(chunk.items as u64);
                }
                Err(_) => self.counts.failed.add(chunk.items as u64),
            }
        }
    }

    fn delivered(&mut self, chunk: &Chunk, delivered: &Delivered) {
        let refused = delivered.refused.min(chunk.items as u64);
        self.counts.sent.add(chunk.items as u64 - refused);
        if refused > 0 {
            self.counts.refused.add(refused);
            tracing::warn!(exporter = %self.name, refused, why = %delivered.why, "the collector refused items");
            self.health.fails(&delivered.why);
        } else {
            self.health.works();
        }
        if std::mem::take(&mut self.failing) {
            tracing::info!(exporter = %self.name, "the exporter works again");
        }
    }

    /// Says that it fails, in the log once until it works again.
    fn say(&mut self, error: &str) {
        self.health.fails(error);
        if !std::mem::replace(&mut self.failing, true) {
            tracing::warn!(exporter = %self.name, error, "the exporter can't send");
        }
    }
}

/// Between 0.8 and 1.2, so that gateways that failed together don't come back together.
fn jitter() -> f64 {
    0.8 + fastrand::f64() * 0.4
}

#[cfg(test)]
mod tests;
