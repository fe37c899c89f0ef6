//! Tells sessions that the gateway is going away, so that they can end in order.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Begins once and is heard by everybody who watches.
#[derive(Debug, Clone, Default)]
pub struct Drain(Arc<DrainState>);

#[derive(Debug, Default)]
struct DrainState {
    begun: AtomicBool,
    over: AtomicBool,
    told: Notify,
}

impl Drain {
    /// Begins it.
    pub fn begin(&self) {
        self.0.begun.store(true, Ordering::Release);
        self.0.told.notify_waiters();
    }

    /// Whether it has begun.
    pub fn has_begun(&self) -> bool {
        self.0.begun.load(Ordering::Acquire)
    }

    /// What is still there is ended now.
    pub fn end(&self) {
        self.0.over.store(true, Ordering::Release);
    }

    /// Whether what is there was ended.
    pub fn is_over(&self) -> bool {
        self.0.over.load(Ordering::Acquire)
    }

    /// What [`Drain::watch`] looks at; to be pinned first.
    pub(crate) fn told(&self) -> Notified<'_> {
        self.0.told.notified()
    }

    /// Something to look at each time a session is polled, which costs a load.
    pub(crate) fn watch<'p, 'd>(&'d self, told: Pin<&'p mut Notified<'d>>) -> Watching<'p, 'd> {
        Watching { drain: self, told, waker: None }
    }
}

/// One session's view of a drain.
pub(crate) struct Watching<'p, 'd> {
    drain: &'d Drain,
    told: Pin<&'p mut Notified<'d>>,
    /// Who was to be woken when the notification was last looked at.
    waker: Option<Waker>,
}

impl Watching<'_, '_> {
    /// Ready once the drain has begun.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.drain.has_begun() {
            return Poll::Ready(());
        }
        if self.waker.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            return Poll::Pending;
        }
        self.waker = Some(cx.waker().clone());
        let told = self.told.as_mut().poll(cx);
        // It may have begun since the first look.
        if self.drain.has_begun() { Poll::Ready(()) } else { told }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::AtomicU32;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn whoever_watches_is_woken_and_who_comes_later_need_not_wait() {
        let drain = Drain::default();
        let counts = [Arc::new(Count::default()), Arc::new(Count::default())];
        let told = pin!(drain.told());
        let mut watching = drain.watch(told);
        for count in &counts {
            // The second waker replaces the first.
            let waker = Waker::from(count.clone());
            assert!(watching.poll(&mut Context::from_waker(&waker)).is_pending());
        }
        drain.clone().begin();
        assert_eq!(counts.each_ref().map(|count| count.0.load(Ordering::Relaxed)), [0, 1]);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(watching.poll(&mut cx).is_ready());
        let told = pin!(drain.told());
        assert!(drain.watch(told).poll(&mut cx).is_ready());
    }
}
