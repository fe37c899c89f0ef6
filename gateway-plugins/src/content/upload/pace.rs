//! How slowly a client may send: it holds a place meanwhile.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// How long a client may be behind the rate.
const GRACE: Duration = Duration::from_secs(10);

/// The time a client has taken, and what it sent. Only waiting for the client counts.
#[derive(Debug)]
pub(super) struct Pace {
    /// Bytes a second; 0 is no limit.
    rate: u64,
    received: u64,
    waited: Duration,
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl Pace {
    pub(super) fn new(rate: u64) -> Self {
        Self { rate, received: 0, waited: Duration::ZERO, waiting: None }
    }

    /// The client has sent so many bytes.
    pub(super) fn received(&mut self, bytes: usize) {
        self.received += bytes as u64;
        if let Some((since, _)) = self.waiting.take() {
            self.waited += since.elapsed();
        }
    }

    /// Nothing has come yet; ready when the client is too slow.
    pub(super) fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.rate == 0 {
            return Poll::Pending;
        }
        let earned = Duration::from_secs_f64(self.received as f64 / self.rate as f64);
        let left = (GRACE + earned).saturating_sub(self.waited);
        let begin = || {
            let now = Instant::now();
            (now, Box::pin(tokio::time::sleep_until(now + left)))
        };
        let (_, sleep) = self.waiting.get_or_insert_with(begin);
        sleep.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_has_as_long_as_the_rate_gives_it() {
        let begun = Instant::now();
        let mut pace = Pace::new(1000);
        pace.received(5000);
        poll_fn(|cx| pace.poll_late(cx)).await;
        assert_eq!(begun.elapsed(), GRACE + Duration::from_secs(5));
        pace.received(2000);
        poll_fn(|cx| pace.poll_late(cx)).await;
        assert_eq!(begun.elapsed(), GRACE + Duration::from_secs(7));
        let mut free = Pace::new(0);
        assert!(poll_fn(|cx| Poll::Ready(free.poll_late(cx).is_pending())).await);
    }
}
