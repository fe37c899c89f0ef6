//! The control plane's state machine with its connections: queues the messages of the state machine for each edge.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, watch};

use crate::control::{ControlCore, ControlEffect, SessionId};
use crate::message::{Hello, ToControl, ToEdge};

/// Messages that wait to be sent to an edge. At most one of them is a transfer, so an edge that does not even read these is cut off.
const MAX_QUEUED: usize = 16;

/// Between two publications at least: changes that come faster are sent together.
const PACE: Duration = Duration::from_millis(5);
/// What each connected edge adds to that: about three times the work that sending an edge a change is, so that a storm of changes takes
/// a third of a core however many edges there are.
const PACE_OF_EDGE: Duration = Duration::from_micros(100);

/// A control plane's edges.
#[derive(Debug)]
pub struct Hub {
    inner: Mutex<Inner>,
    begun: Instant,
    next: AtomicU64,
    recheck: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    core: ControlCore,
    queues: BTreeMap<SessionId, mpsc::Sender<ToEdge>>,
}

impl Default for Hub {
    fn default() -> Self {
        let (inner, next) = (Mutex::default(), AtomicU64::new(1));
        Self { inner, begun: Instant::now(), next, recheck: watch::Sender::new(0) }
    }
}

impl Hub {
    /// Lets the core do something, and sends what it wants sent. The core is locked meanwhile.
    pub fn act(&self, work: impl FnOnce(&mut ControlCore, Duration) -> Vec<ControlEffect>) {
        let mut inner = self.lock();
        let effects = work(&mut inner.core, self.now());
        self.carry_out(&mut inner, effects);
    }

    /// Reads from the core.
    pub fn read<T>(&self, work: impl FnOnce(&ControlCore) -> T) -> T {
        work(&self.lock().core)
    }

    /// How long to wait after one publication before the next: 5 ms, and 100 µs for each edge.
    pub fn pace(&self) -> Duration {
        let edges = u32::try_from(self.read(ControlCore::connected)).unwrap_or(u32::MAX);
        PACE + PACE_OF_EDGE.saturating_mul(edges)
    }

    /// Since the start.
    pub fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Tells of edges that have a revision which the views lack: see [`ControlEffect::Recheck`].
    pub fn rechecks(&self) -> watch::Receiver<u64> {
        self.recheck.subscribe()
    }

    /// An edge has connected; its queue ends when the connection has to.
    pub(crate) fn connect(
        &self,
        edge: &Arc<str>,
        view: &Arc<str>,
        welcome: ToEdge,
        hello: Hello,
    ) -> (SessionId, mpsc::Receiver<ToEdge>) {
        let session = self.next.fetch_add(1, Ordering::Relaxed);
        let (queue, messages) = mpsc::channel(MAX_QUEUED);
        drop(queue.try_send(welcome));
        let mut inner = self.lock();
        inner.queues.insert(session, queue);
        let effects = inner.core.hello(session, edge, view, hello, self.now(), clock());
        self.carry_out(&mut inner, effects);
        (session, messages)
    }

    pub(crate) fn receive(&self, session: SessionId, message: ToControl) {
        self.act(|core, now| core.receive(session, message, now));
    }

    pub(crate) fn disconnect(&self, session: SessionId) {
        let mut inner = self.lock();
        inner.queues.remove(&session);
        inner.core.disconnect(session, self.now());
    }

    fn carry_out(&self, inner: &mut Inner, effects: Vec<ControlEffect>) {
        for effect in effects {
            match effect {
                ControlEffect::Send(session, message) => {
                    let is_sent =
                        inner.queues.get(&session).is_some_and(|queue| queue.try_send(message).is_ok());
                    if !is_sent {
                        inner.queues.remove(&session);
                        inner.core.disconnect(session, self.now());
                    }
                }
                ControlEffect::Close(session, reason) => {
                    tracing::debug!(session, reason, "an edge's connection is closed");
                    inner.queues.remove(&session);
                }
                ControlEffect::Recheck(revision) => {
                    self.recheck.send_replace(revision);
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Milliseconds since 1970.
pub fn clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
