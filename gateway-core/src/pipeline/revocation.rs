//! Ends sessions whose proxy is gone from the configuration, or whose caller would no longer be admitted: they may last for
//! days.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::config::consumer::Identity;
use crate::http::reply::Cause;
use crate::plugin::Chain;
use crate::plugin::seat::Around;
use crate::snapshot::{Route, Snapshot};
use crate::stream::pacer::SessionMeters;
use crate::stream::session::Session;
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

/// What a session's bytes count against, which follows the configuration.
pub(crate) struct Metering<'s> {
    pub(crate) session: &'s Session,
    /// The chain that its meters came from first.
    pub(crate) chain: &'s Chain,
    pub(crate) meters: &'s Arc<SessionMeters>,
}

impl Metering<'_> {
    /// Takes the meters of the proxy as it is configured now; a WebSocket that conditions were asked for keeps those it has. `known` is the route that they came from last.
    fn follow(&self, known: &mut Option<Arc<Route>>, snapshot: &Snapshot, route: &Arc<Route>) {
        if self.session.has_decisions() {
            return;
        }
        let same = match known {
            Some(known) => Arc::ptr_eq(known, route),
            None => std::ptr::eq(&raw const route.chain, self.chain),
        };
        if !same {
            let around = Around { state: route, consumers: &snapshot.consumers, target: None };
            self.meters.replace(route.chain.meters(self.session, around));
            *known = Some(route.clone());
        }
    }
}

/// Ready with why the session has to end: its proxy is gone, its caller may not stay, or somebody ended it. Looks every
/// `session_check` of the settings; never ready without a configuration to look at. The session is listed meanwhile, and its
/// meters are those of the configuration in use.
pub(crate) async fn revoked(
    current: Option<Arc<dyn Current>>,
    about: About,
    identity: Option<Arc<Identity>>,
    metering: Option<Metering<'_>>,
) -> Cause {
    let Some(current) = current else { return std::future::pending().await };
    let proxy = about.proxy.clone();
    let mut known = None;
    let traffic = metering.as_ref().map(|metering| metering.meters.clone());
    let entered = current.sessions().map(|sessions| sessions.enter(about, traffic));
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
        if every.is_zero() {
            continue;
        }
        let snapshot = current.snapshot();
        let Some(route) = snapshot.by_id.get(&proxy) else { return Cause::Revoked };
        if identity.as_ref().is_some_and(|identity| !identity.may_stay(&snapshot.consumers)) {
            return Cause::Revoked;
        }
        if let Some(metering) = &metering {
            metering.follow(&mut known, &snapshot, route);
        }
    }
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
