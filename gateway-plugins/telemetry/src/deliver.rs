//! Sends what waits in [`Batches`] until its task ends: at intervals, or as soon as a chunk is full; again after failures
//! that pass, with growing pauses; the rest when the task ends.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::http::reply::Cause;
use gateway_core::plugin::world::calls::CallError;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::world::tasks::{TaskControl, TaskError, TaskHealth};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::batch::{Batches, Chunk};

/// The first pause after a failure that may pass; it doubles up to [`MAX_PAUSE`].
const PAUSE: Duration = Duration::from_millis(500);
/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// The longest that nothing is sent because the other side says so.
const MAX_AFTER: Duration = Duration::from_secs(300);
/// How long what is under way and what waits may take to be sent when the task ends. Less than a drain waits for tasks, so that
/// what is lost then is counted and said.
const LAST: Duration = Duration::from_secs(4);

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

    /// A call without an answer, to a server that has so long.
    pub fn of_call(error: &CallError, timeout: Duration) -> Self {
        Self::passing(match error.cause {
            // Its text names the setting of proxies.
            Cause::UpstreamTimeout => format!("the server did not answer within {timeout:?}"),
            _ => error.to_string(),
        })
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
) -> Result<(), TaskError> {
    let health = control.health().clone();
    let mut sender =
        Sender { name, to, pace, counts, health, failing: false, not_before: None, until: None, lost: 0 };
    let mut next = Instant::now() + pace.interval;
    loop {
        let is_time = tokio::select! {
            biased;
            () = control.ended() => break,
            () = batches.full() => false,
            () = sleep_until(next) => true,
        };
        while let Some(chunk) = if is_time { batches.take() } else { batches.take_full() } {
            let goes_on = sender.send(&chunk, &mut control).await;
            batches.recycle(chunk);
            if !goes_on {
                break;
            }
        }
        if is_time {
            next = Instant::now() + pace.interval;
        }
    }
    sender.last(&batches, &mut control).await;
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
    /// The other side wants nothing before.
    not_before: Option<Instant>,
    /// The task has to end; what is not sent by then is lost.
    until: Option<Instant>,
    /// Items that were lost since the task has to end.
    lost: u64,
}

impl<D: Deliver> Sender<D> {
    /// Sends one chunk or gives it up; false when the task has to end.
    async fn send(&mut self, chunk: &Chunk, control: &mut TaskControl) -> bool {
        self.wait_as_told(control).await;
        let give_up = Instant::now() + self.pace.retry_for;
        let mut pause = PAUSE;
        loop {
            let failed = match self.deliver(chunk, control).await {
                Ok(delivered) => {
                    self.delivered(chunk, &delivered);
                    return !control.is_ended();
                }
                Err(failed) => failed,
            };
            self.say(&failed.message);
            let after =
                failed.after.map(|after| Instant::now() + after.min(MAX_AFTER).mul_f64(1.0 + spread()));
            self.not_before = after;
            let next = after.unwrap_or_else(|| Instant::now() + pause.mul_f64(0.8 + 2.0 * spread()));
            if !failed.may_pass || next > give_up || control.is_ended() {
                self.failed(chunk, control.is_ended());
                return !control.is_ended();
            }
            pause = (pause * 2).min(MAX_PAUSE);
            tokio::select! {
                () = control.ended() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    /// What comes behind a chunk that was given up is not sent either before the other side wants it.
    async fn wait_as_told(&mut self, control: &mut TaskControl) {
        let Some(not_before) = self.not_before.take() else { return };
        tokio::select! {
            () = control.ended() => {}
            () = sleep_until(not_before) => {}
        }
    }

    /// Tries once. When the task has to end it goes on for a bounded time only.
    async fn deliver(&mut self, chunk: &Chunk, control: &mut TaskControl) -> Result<Delivered, Failed> {
        let to = self.to.clone();
        let mut delivering = pin!(to.deliver(chunk));
        let until = match self.until {
            Some(until) => until,
            None => tokio::select! {
                biased;
                done = &mut delivering => return done,
                () = control.ended() => *self.until.insert(Instant::now() + LAST),
            },
        };
        let in_time = timeout_at(until, delivering).await;
        in_time.unwrap_or_else(|_| Err(Failed::passing("it was not sent before the end")))
    }

    /// Sends what is left, each chunk once, for a bounded time.
    async fn last(&mut self, batches: &Batches, control: &mut TaskControl) {
        while let Some(chunk) = batches.take() {
            match self.deliver(&chunk, control).await {
                Ok(delivered) => self.delivered(&chunk, &delivered),
                Err(failed) => {
                    self.say(&failed.message);
                    self.failed(&chunk, true);
                }
            }
        }
        if self.lost > 0 {
            let (exporter, lost) = (&self.name, self.lost);
            tracing::error!(%exporter, lost, "the last items could not be sent and are lost");
        }
    }

    fn failed(&mut self, chunk: &Chunk, is_end: bool) {
        self.counts.failed.add(chunk.items as u64);
        if is_end {
            self.lost += chunk.items as u64;
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

/// Up to 0.2: gateways that failed together don't come back together.
fn spread() -> f64 {
    fastrand::f64() * 0.2
}

#[cfg(test)]
mod tests;
