//! The limit on how long an answer may take, without a timer a request.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::time::{Sleep, sleep_until};

/// One timer of one lane. It is left to run on from request to request, and only when it fires does anybody look
/// whether the request in flight is really that old.
#[derive(Debug)]
pub struct Timeout {
    limit: Duration,
    timer: Pin<Box<Sleep>>,
    armed: bool,
}

impl Timeout {
    /// Answers may take this long.
    #[must_use]
    pub fn new(limit: Duration) -> Self {
        Self { limit, timer: Box::pin(sleep_until(Instant::now().into())), armed: false }
    }

    /// Runs a round trip that began at `begun`; nothing if it outlasts the limit.
    pub async fn limit<F: Future>(&mut self, begun: Instant, trip: F) -> Option<F::Output> {
        let mut trip = pin!(trip);
        poll_fn(|cx| match trip.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => self.poll_expired(begun, cx).map(|()| None),
        })
        .await
    }

    fn poll_expired(&mut self, begun: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if self.armed && !self.timer.is_elapsed() {
            return Poll::Pending;
        }
        let deadline = begun + self.limit;
        loop {
            if Instant::now() >= deadline {
                self.armed = false;
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(deadline.into());
            self.armed = true;
            if self.timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}
