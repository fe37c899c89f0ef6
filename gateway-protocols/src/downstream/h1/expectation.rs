//! A client that waits for `100 Continue` before it sends its body (RFC 9110 §10.1.1).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::task::AtomicWaker;

use crate::timer::Timer;

/// How long the target is waited for; one that ignores the expectation then gets the body all the same.
const TARGET_TIMEOUT: Duration = Duration::from_secs(1);

/// What the body and whoever answers the client share.
#[derive(Debug, Default)]
pub(super) struct Expectation {
    /// The client was not told to go on, and its body is not read yet.
    owed: AtomicBool,
    /// A target was asked, and did not say yet that it wants the body.
    held: AtomicBool,
    body: AtomicWaker,
}

impl Expectation {
    pub(super) fn is_owed(&self) -> bool {
        self.owed.load(Ordering::Relaxed)
    }

    /// From now on the target decides.
    pub(super) fn hold(&self) {
        self.held.store(true, Ordering::Relaxed);
    }

    /// The target wants the body.
    pub(super) fn allow(&self) {
        self.held.store(false, Ordering::Relaxed);
        self.body.wake();
    }
}

/// The `100 Continue` that a client waits for.
pub(super) struct Continue {
    written: usize,
    expectation: Arc<Expectation>,
    timer: Timer,
}

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

impl Continue {
    pub(super) fn new(expectation: Arc<Expectation>) -> Self {
        expectation.owed.store(true, Ordering::Relaxed);
        Self { written: 0, expectation, timer: Timer::default() }
    }

    /// Ready once the client may be told to go on: nobody asks a target, or the target wants the body.
    pub(super) fn poll_allowed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.written > 0 || !self.expectation.held.load(Ordering::Relaxed) {
            return Poll::Ready(());
        }
        // Both run in one task, so that nothing is missed between the look and this.
        self.expectation.body.register(cx.waker());
        if !self.timer.is_set() {
            self.timer.set(TARGET_TIMEOUT);
        }
        ready!(self.timer.poll_elapsed(cx));
        self.expectation.held.store(false, Ordering::Relaxed);
        Poll::Ready(())
    }

    /// What is left to be written.
    pub(super) fn rest(&self) -> &'static [u8] {
        CONTINUE.get(self.written..).unwrap_or_default()
    }

    pub(super) fn wrote(&mut self, bytes: usize) {
        self.written += bytes;
        if self.rest().is_empty() {
            self.expectation.owed.store(false, Ordering::Relaxed);
        }
    }
}
