//! Workers: one thread, one core, one runtime each, with sockets and pools of their own.
//!
//! A request never changes thread and the hot path takes no lock. What workers share is in [`SharedByWorkers`] and read-only
//! to traffic: the snapshot, certificates, resolved names.

mod order;
mod shared;

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use atomic_refcell::AtomicRefCell;
use futures_util::FutureExt;
use gateway_core::pipeline::http::{Aside, Pipeline};
use gateway_core::record::Recorder;
use gateway_core::snapshot::Snapshot;
use http::HeaderValue;
use tokio::sync::mpsc;

use crate::recorder::ConnectionRecorder;
use crate::registry::Registry;
use crate::udp::Question;
use crate::upstream::Outbound;
pub use order::Order;
pub use shared::{Inbox, Inboxes, SharedByWorkers};

/// One worker.
pub struct Worker {
    index: usize,
    shared: Arc<SharedByWorkers>,
    pipeline: Pipeline<Outbound>,
    outbound: Outbound,
    pub(crate) registry: Registry,
    pub(crate) recorder: Arc<dyn ConnectionRecorder>,
    records: Arc<dyn Recorder>,
    /// Where UDP ports are asked about their sessions.
    asked: AtomicRefCell<Vec<mpsc::Sender<Question>>>,
}

impl Worker {
    /// Worker number `index`.
    pub fn new<R>(index: usize, shared: Arc<SharedByWorkers>, recorder: Arc<R>) -> Arc<Self>
    where
        R: Recorder + ConnectionRecorder,
    {
        let (dns, tls) = (shared.dns.clone(), shared.client_tls.clone());
        let outbound = Outbound::recorded(dns, tls, shared.recall.clone(), Some(recorder.clone()));
        Arc::new_cyclic(|worker| Self {
            index,
            pipeline: Pipeline::new(outbound.clone(), recorder.clone(), shared.overload.clone())
                .with_challenges(shared.challenges.clone())
                .with_aside(aside(worker.clone()))
                .with_current(shared.clone()),
            outbound,
            shared,
            registry: Registry::default(),
            records: recorder.clone(),
            recorder,
            asked: AtomicRefCell::default(),
        })
    }

    /// Its place among the workers.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Where a UDP port of this worker is asked about its sessions.
    pub(crate) fn takes_questions(&self) -> mpsc::Receiver<Question> {
        let (sender, receiver) = mpsc::channel(crate::udp::QUEUE);
        let mut asked = self.asked.borrow_mut();
        asked.retain(|port| !port.is_closed());
        asked.push(sender);
        receiver
    }

    pub(crate) fn ask(&self, question: &Question) {
        for port in self.asked.borrow().iter() {
            // One that has too many of them does not answer; who asks goes on without it.
            let _taken = port.try_send(question.clone());
        }
    }

    /// What tells clients of the other versions where HTTP/3 is (RFC 7838).
    pub(crate) fn alt_svc(&self) -> Option<&HeaderValue> {
        self.shared.alt_svc.get()
    }

    /// The way out.
    pub(crate) fn outbound(&self) -> &Outbound {
        &self.outbound
    }

    /// Where sessions are recorded.
    pub(crate) fn recorder(&self) -> &Arc<dyn Recorder> {
        &self.records
    }

    /// What the workers share.
    pub(crate) fn shared(&self) -> &Arc<SharedByWorkers> {
        &self.shared
    }

    /// The way of every exchange.
    pub(crate) fn pipeline(&self) -> &Pipeline<Outbound> {
        &self.pipeline
    }

    /// A task panicked and was caught.
    pub(crate) fn panicked(&self) {
        self.recorder.panicked();
    }

    /// One connection's panic ends that connection and nothing else. Its future is lent: handed over, it would take its room twice.
    pub(crate) async fn guarded(&self, serving: Pin<&mut impl Future<Output = ()>>) {
        if AssertUnwindSafe(serving).catch_unwind().await.is_err() {
            tracing::error!("a connection's task panicked; the connection was closed");
            self.recorder.panicked();
        }
    }

    /// The configuration in use, for one connection: looking whether it is still the same costs one plain load,
    /// where counting a reference would be felt by all workers.
    pub(crate) fn snapshots(&self) -> arc_swap::Cache<&ArcSwap<Snapshot>, Arc<Snapshot>> {
        arc_swap::Cache::new(&self.shared.snapshot)
    }

    /// The configuration in use now.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.snapshot.load_full()
    }
}

/// Requests that go on without their client are tasks of their own, on the worker that served the client.
fn aside(worker: Weak<Worker>) -> Aside {
    Box::new(move |fork| {
        let Some(worker) = worker.upgrade() else { return };
        drop(tokio::spawn(async move {
            let snapshot = worker.snapshot();
            worker.guarded(pin!(worker.pipeline.carry_on(&snapshot, fork))).await;
        }));
    })
}
