//! Ends sessions whose proxy is gone from the configuration, or whose caller would no longer be admitted: they may last for
//! days.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::config::consumer::Identity;
use crate::config::model::Id;
use crate::http::reply::Cause;
use crate::snapshot::Snapshot;
use crate::stream::sessions::{About, Sessions};

/// How often to look whether checking was switched on, while it is off.
const WHILE_OFF: Duration = Duration::from_secs(60);

/// Ready with why something has to end.
pub(crate) type Revocation = Pin<Box<dyn Future<Output = Cause> + Send>>;

/// What holds now.
pub trait Current: Send + Sync {
    /// The configuration in use.
    fn snapshot(&self) -> Arc<Snapshot>;

    /// The sessions that are open, where they are kept.
    fn sessions(&self) -> Option<&Sessions> {
        None
    }
}

/// Ready with why the session has to end: its proxy is gone, its caller may not stay, or somebody ended it. Looks every
/// `session_check` of the settings; never ready without a configuration to look at. The session is listed meanwhile.
pub(crate) async fn revoked(
    current: Option<Arc<dyn Current>>,
    about: About,
    identity: Option<Arc<Identity>>,
) -> Cause {
    let Some(current) = current else { return std::future::pending().await };
    let proxy = about.proxy.clone();
    let entered = current.sessions().map(|sessions| sessions.enter(about));
    let ended = async {
        match &entered {
            Some(entered) => entered.ended().await,
            None => std::future::pending().await,
        }
    };
    let mut ended = pin!(ended);
    loop {
        let every = current.snapshot().settings.session_check;
        let pause = if every.is_zero() { WHILE_OFF } else { every };
        if tokio::time::timeout(pause, ended.as_mut()).await.is_ok() {
            return Cause::Ended;
        }
        if !every.is_zero() && !may_go_on(&current.snapshot(), &proxy, identity.as_deref()) {
            return Cause::Revoked;
        }
    }
}

fn may_go_on(snapshot: &Snapshot, proxy: &Id, identity: Option<&Identity>) -> bool {
    snapshot.by_id.get(proxy).is_some()
        && identity.is_none_or(|identity| identity.may_stay(&snapshot.consumers))
}

/// A future beside another one in the same task, polled only when it was woken itself: the other is woken for every
/// message.
pub(crate) struct Beside<F> {
    future: Pin<Box<F>>,
    signal: Arc<Signal>,
    waker: Waker,
}

struct Signal {
    is_woken: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        if let Some(task) = &*self.task.lock().unwrap_or_else(PoisonError::into_inner) {
            task.wake_by_ref();
        }
    }
}

impl<F: Future> Beside<F> {
    pub(crate) fn new(future: F) -> Self {
        let signal = Arc::new(Signal { is_woken: AtomicBool::new(true), task: Mutex::new(None) });
        Self { future: Box::pin(future), waker: Waker::from(signal.clone()), signal }
    }

    pub(crate) fn poll(&mut self, cx: &Context<'_>) -> Poll<F::Output> {
        if !self.signal.is_woken.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        *self.signal.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        self.future.as_mut().poll(&mut Context::from_waker(&self.waker))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::AtomicU32;

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn it_is_polled_only_when_it_was_woken() {
        let polls = AtomicU32::new(0);
        let notify = Notify::new();
        let mut beside = Beside::new(async {
            let mut notified = Box::pin(notify.notified());
            poll_fn(|cx| {
                polls.fetch_add(1, Ordering::Relaxed);
                notified.as_mut().poll(cx)
            })
            .await;
        });
        for _ in 0..5 {
            assert!(poll_fn(|cx| Poll::Ready(beside.poll(cx))).await.is_pending());
        }
        assert_eq!(polls.load(Ordering::Relaxed), 1);
        notify.notify_one();
        poll_fn(|cx| beside.poll(cx)).await;
        assert_eq!(polls.load(Ordering::Relaxed), 2);
    }
}
