//! A future beside others in one task, which runs only when it was itself woken.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Such a future.
pub(super) struct Aside<'w> {
    future: Pin<Box<dyn Future<Output = ()> + Send + 'w>>,
    woken: Arc<WakeFlag>,
    waker: Waker,
}

struct WakeFlag {
    flag: AtomicBool,
    task: AtomicWaker,
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.flag.swap(true, Ordering::AcqRel) {
            self.task.wake();
        }
    }
}

impl<'w> Aside<'w> {
    pub(super) fn new(future: impl Future<Output = ()> + Send + 'w) -> Self {
        let woken = Arc::new(WakeFlag { flag: AtomicBool::new(true), task: AtomicWaker::new() });
        Self { future: Box::pin(future), waker: woken.clone().into(), woken }
    }

    /// Runs it if it was woken; ready when it is over.
    pub(super) fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        self.woken.task.register(cx.waker());
        if !self.woken.flag.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        self.future.as_mut().poll(&mut Context::from_waker(&self.waker))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[test]
    fn it_runs_when_it_was_woken() {
        let (mut runs, mut theirs) = (0, None);
        let seen = std::sync::Mutex::new((&mut runs, &mut theirs));
        let mut aside = Aside::new(poll_fn(|cx| {
            let mut seen = seen.lock().unwrap();
            *seen.0 += 1;
            *seen.1 = Some(cx.waker().clone());
            if *seen.0 == 2 { Poll::Ready(()) } else { Poll::Pending }
        }));
        let cx = Context::from_waker(Waker::noop());
        assert!(aside.poll(&cx).is_pending());
        assert!(aside.poll(&cx).is_pending());
        assert_eq!(*seen.lock().unwrap().0, 1);
        let waker = seen.lock().unwrap().1.take().unwrap();
        waker.wake();
        assert!(aside.poll(&cx).is_ready());
        drop(aside);
        assert_eq!(runs, 2);
    }
}
