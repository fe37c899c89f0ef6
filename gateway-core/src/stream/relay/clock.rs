//! How long a relay may last.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep};

use super::{RelayOutcome, RelayTimeouts};

/// Looks at whether bytes moved in an idle timeout. A relay that falls silent ends after the timeout, and at most one
/// such part later.
const LOOKS: u32 = 8;

/// The idle timeout and the lifetime of a relay, by one timer that is moved lazily.
pub(crate) struct Clock {
    timeouts: RelayTimeouts,
    end: Option<Instant>,
    last_moved: Instant,
    /// When it was last looked whether bytes moved.
    looked: Instant,
    /// Bytes moved since then; reading the clock for every message would cost more than the message.
    moved: bool,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Clock {
    pub(crate) fn new(timeouts: RelayTimeouts) -> Self {
        let now = Instant::now();
        let end = (!timeouts.lifetime.is_zero()).then(|| now + timeouts.lifetime);
        Self { timeouts, end, last_moved: now, looked: now, moved: false, timer: None }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, moved: bool) -> Poll<RelayOutcome> {
        self.moved |= moved;
        if self.timeouts.idle.is_zero() && self.end.is_none() {
            return Poll::Pending;
        }
        loop {
            let deadline = self.deadline();
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
            if timer.deadline() > deadline {
                timer.as_mut().reset(deadline);
            }
            ready!(timer.as_mut().poll(cx));
            let now = Instant::now();
            if self.end.is_some_and(|end| now >= end) {
                return Poll::Ready(RelayOutcome::Lifetime);
            }
            self.looked = now;
            if std::mem::take(&mut self.moved) {
                // Something moved since the last look; when exactly is not worth knowing.
                self.last_moved = now;
            } else if !self.timeouts.idle.is_zero() && now >= self.last_moved + self.timeouts.idle {
                return Poll::Ready(RelayOutcome::Idle);
            }
            let next = self.deadline();
            if let Some(timer) = &mut self.timer {
                timer.as_mut().reset(next);
            }
        }
    }

    fn deadline(&self) -> Instant {
        let idle = (!self.timeouts.idle.is_zero())
            .then(|| (self.last_moved + self.timeouts.idle).min(self.looked + self.timeouts.idle / LOOKS));
        match (idle, self.end) {
            (Some(idle), Some(end)) => idle.min(end),
            (Some(at), None) | (None, Some(at)) => at,
            (None, None) => self.last_moved,
        }
    }
}
