//! What the workers of one gateway share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use gateway_core::http::challenge::Challenges;
use gateway_core::limit::overload::Overload;
use gateway_core::pipeline::revocation::Current;
use gateway_core::snapshot::Snapshot;
use gateway_core::stream::sessions::Sessions;
use http::HeaderValue;
use tokio::sync::mpsc;

use crate::dns::Dns;
use crate::entrance::Accepted;
use crate::handover::DatagramHandover;
use crate::load::Load;
use crate::supervise::Tasks;
use crate::tls::client::ClientConfigs;
use crate::tls::trust::ClientTrust;
use crate::upstream::Recall;

/// Orders and handed-over connections that wait for a worker; more would mean that it hangs.
const QUEUE: usize = 1024;

/// What the workers of one gateway share.
pub struct SharedByWorkers {
    /// The configuration in use.
    pub snapshot: ArcSwap<Snapshot>,
    /// Ceilings on connections and exchanges.
    pub overload: Overload,
    /// The TCP streams, WebSockets and streams of events that are open.
    pub sessions: Sessions,
    /// Resolved names.
    pub dns: Arc<Dns>,
    /// How targets' certificates are judged.
    pub client_tls: Arc<ClientConfigs>,
    /// How a connection that is wanted elsewhere is asked for.
    pub(crate) recall: Arc<Recall>,
    /// How clients' certificates are judged after their handshakes.
    pub client_trust: Arc<ClientTrust>,
    /// What CAs are answered that check names over plain HTTP.
    pub challenges: Challenges,
    /// Tasks that must keep running, such as accept loops.
    pub tasks: Arc<Tasks>,
    /// What is shared with the gateways before and behind this one.
    pub datagrams: Arc<DatagramHandover>,
    /// Which worker has which session of QUIC passed through.
    pub(crate) known: Arc<crate::udp::SessionOwners>,
    /// Set once HTTP/3 is served.
    pub(crate) alt_svc: OnceLock<HeaderValue>,
    /// Open connections of each worker, so that an accepted one goes to the idlest.
    loads: Arc<[AtomicUsize]>,
    pub(crate) inboxes: Box<[mpsc::Sender<Accepted>]>,
    /// Workers that accept nothing more.
    drained: AtomicUsize,
}

impl Current for SharedByWorkers {
    fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    fn sessions(&self) -> Option<&Sessions> {
        Some(&self.sessions)
    }
}

/// The workers' ends of their queues.
pub struct Inboxes(Vec<mpsc::Receiver<Accepted>>);

impl SharedByWorkers {
    /// Shared state for `workers` workers.
    pub fn new(snapshot: Snapshot, workers: usize) -> (Self, Inboxes) {
        let (inboxes, receivers): (Vec<_>, Vec<_>) = (0..workers).map(|_| mpsc::channel(QUEUE)).unzip();
        let shared = Self {
            overload: Overload::new(&snapshot.settings.limits),
            dns: Arc::new(Dns::with_servers(&snapshot.settings.dns_servers)),
            snapshot: ArcSwap::from_pointee(snapshot),
            sessions: Sessions::default(),
            client_tls: Arc::default(),
            recall: Arc::default(),
            client_trust: Arc::default(),
            challenges: Challenges::default(),
            tasks: Arc::default(),
            datagrams: Arc::default(),
            known: Arc::default(),
            alt_svc: OnceLock::new(),
            loads: (0..workers).map(|_| AtomicUsize::new(0)).collect(),
            inboxes: inboxes.into(),
            drained: AtomicUsize::new(0),
        };
        (shared, Inboxes(receivers))
    }

    /// HTTP/3 is served on this port: TLS clients of the other versions are told.
    pub fn announce_http3(&self, port: u16) {
        if let Ok(value) = HeaderValue::from_str(&format!("h3=\":{port}\"; ma=86400")) {
            drop(self.alt_svc.set(value));
        }
    }

    /// Client connections now open, over all workers.
    pub fn connections(&self) -> usize {
        self.loads.iter().map(|load| load.load(Ordering::Relaxed)).sum()
    }

    /// Counts a connection of a worker for as long as the answer is held.
    pub(crate) fn load(&self, worker: usize) -> Load {
        Load::new(self.loads.clone(), worker)
    }

    /// One more worker accepts nothing more, and counts what waited to be accepted.
    pub(crate) fn worker_drained(&self) {
        self.drained.fetch_add(1, Ordering::Release);
    }

    /// Whether a drain is over: no connection is open, and none can come any more. While a worker has not yet carried out
    /// the order it may accept connections, and some may wait in its listeners' queues.
    pub fn is_drained(&self) -> bool {
        self.drained.load(Ordering::Acquire) == self.loads.len() && self.connections() == 0
    }

    /// The worker with the fewest connections, and how many.
    pub(crate) fn idlest(&self) -> (usize, usize) {
        let loads = self.loads.iter().map(|load| load.load(Ordering::Relaxed)).enumerate();
        loads.min_by_key(|(_, load)| *load).unwrap_or((0, 0))
    }
}

impl Inboxes {
    /// The queue of the next worker, in order.
    pub fn take(&mut self) -> Option<Inbox> {
        (!self.0.is_empty()).then(|| Inbox(self.0.remove(0)))
    }
}

/// The worker's end of its queue.
pub struct Inbox(pub(crate) mpsc::Receiver<Accepted>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_is_over_when_every_worker_accepts_nothing_more_and_nothing_is_open() {
        let (shared, _inboxes) = SharedByWorkers::new(Snapshot::empty(Arc::default()), 2);
        let shared = Arc::new(shared);
        assert!(!shared.is_drained(), "both still accept");
        shared.worker_drained();
        let handed_over = shared.load(1);
        shared.worker_drained();
        assert!(!shared.is_drained(), "a connection waits for the second one");
        drop(handed_over);
        assert!(shared.is_drained());
    }
}
