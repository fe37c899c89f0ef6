//! Workers: one thread, one core, one runtime each, with sockets and pools of their own.
//!
//! A request never changes thread and the hot path takes no lock. What workers share is in [`Shared`] and read-only
//! to traffic: the snapshot, certificates, resolved names.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use atomic_refcell::AtomicRefCell;
use futures_util::FutureExt;
use gateway_core::config::model::Id;
use gateway_core::config::snapshot::Snapshot;
use gateway_core::http::pipeline::{Aside, Pipeline};
use gateway_core::limit::concurrency::Permit;
use gateway_core::limit::overload::Overload;
use gateway_core::record::Recorder;
use gateway_core::stream::revocation::Current;
use gateway_core::stream::sessions::Sessions;
use gateway_core::upstream::Phases;
use http::HeaderValue;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

use crate::dns::Dns;
use crate::downstream::accept::{Accepted, Entrance, Listening, UNIX_ADDRESS, accept, serve};
use crate::downstream::{Entry, Registry, h3};
use crate::quic::Place;
use crate::supervise::Tasks;
use crate::tls::client::ClientConfigs;
use crate::udp::Question;
use crate::udp::dtls::DtlsRules;
use crate::upstream::Outbound;

/// What the workers of one gateway share.
pub struct Shared {
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
    /// Tasks that must keep running, such as accept loops.
    pub tasks: Arc<Tasks>,
    /// Which worker has which session of QUIC passed through.
    pub(crate) known: Arc<crate::udp::Known>,
    /// Set once HTTP/3 is served.
    alt_svc: OnceLock<HeaderValue>,
    /// Open connections of each worker, so that an accepted one goes to the idlest.
    loads: Box<[AtomicUsize]>,
    inboxes: Box<[mpsc::Sender<Accepted>]>,
}

impl Current for Shared {
    fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    fn sessions(&self) -> Option<&Sessions> {
        Some(&self.sessions)
    }
}

/// Counts what happens to connections before there is an exchange. Must not wait.
pub trait ConnectionRecorder: Send + Sync {
    /// A connection was accepted.
    fn accepted(&self);
    /// A connection was refused at the ceiling.
    fn refused(&self);
    /// A connection ended.
    fn closed(&self);
    /// A task panicked and was caught.
    fn panicked(&self);
    /// A connection to a target of this upstream was made.
    fn dialled(&self, upstream: &Id, phases: Phases);
}

/// One worker.
pub struct Worker {
    index: usize,
    shared: Arc<Shared>,
    pipeline: Pipeline<Outbound>,
    outbound: Outbound,
    registry: Registry,
    recorder: Arc<dyn ConnectionRecorder>,
    records: Arc<dyn Recorder>,
    /// Where UDP ports are asked about their sessions.
    asked: AtomicRefCell<Vec<mpsc::Sender<Question>>>,
}

/// What a worker is told from outside.
#[derive(Debug)]
pub enum Order {
    /// Listen on this socket.
    Listen(std::net::TcpListener, Entrance),
    /// Serve plain HTTP on this Unix socket, which other workers listen on as well.
    ListenUnix(std::os::unix::net::UnixListener),
    /// Serve HTTP/3 on this socket.
    Quic(std::net::UdpSocket, Box<quinn::ServerConfig>, Place),
    /// Serve datagrams on this socket.
    Datagrams(std::net::UdpSocket, u16, Arc<DtlsRules>),
    /// Take no more datagrams on this port; its sessions end.
    EndDatagrams(u16),
    /// Accept nothing more on this stream port; its sessions go on.
    Unlisten(u16),
    /// Ask the UDP ports about their sessions.
    Ask(Question),
    /// Say that every order before this one was carried out. What begins after it sees the configuration published
    /// before it.
    Confirm(oneshot::Sender<()>),
    /// End idle connections: memory or descriptors are short.
    ShedIdle,
    /// Accept nothing more, end idle connections, let the others finish.
    Drain,
    /// End everything.
    Stop,
}

/// Orders and handed-over connections that wait for a worker; more would mean that it hangs.
const QUEUE: usize = 1024;
/// How often kept connections are looked through.
const SWEEP: Duration = Duration::from_secs(5);
/// Connections taken out of one listener's queue when a drain begins.
const MAX_BACKLOG: usize = 4096;
/// A connection is handed to another worker when that one has so many fewer.
const HANDOVER_MARGIN: usize = 2;

/// The workers' ends of their queues.
pub struct Inboxes(Vec<mpsc::Receiver<Accepted>>);

impl Shared {
    /// Shared state for `workers` workers.
    pub fn new(snapshot: Snapshot, workers: usize) -> (Self, Inboxes) {
        let (inboxes, receivers): (Vec<_>, Vec<_>) = (0..workers).map(|_| mpsc::channel(QUEUE)).unzip();
        let shared = Self {
            overload: Overload::new(&snapshot.settings.limits),
            dns: Arc::new(Dns::asking(&snapshot.settings.dns_servers)),
            snapshot: ArcSwap::from_pointee(snapshot),
            sessions: Sessions::default(),
            client_tls: Arc::default(),
            tasks: Arc::default(),
            known: Arc::default(),
            alt_svc: OnceLock::new(),
            loads: (0..workers).map(|_| AtomicUsize::new(0)).collect(),
            inboxes: inboxes.into(),
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

    /// The worker with the fewest connections, and how many.
    fn idlest(&self) -> (usize, usize) {
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
pub struct Inbox(mpsc::Receiver<Accepted>);

impl Worker {
    /// Worker number `index`.
    pub fn new<R>(index: usize, shared: Arc<Shared>, recorder: Arc<R>) -> Arc<Self>
    where
        R: Recorder + ConnectionRecorder,
    {
        let (dns, tls) = (shared.dns.clone(), shared.client_tls.clone());
        let outbound = Outbound::recorded(dns, tls, Some(recorder.clone()));
        Arc::new_cyclic(|worker| Self {
            index,
            pipeline: Pipeline::new(outbound.clone(), recorder.clone(), shared.overload.clone())
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

    fn ask(&self, question: &Question) {
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
    pub(crate) fn shared(&self) -> &Arc<Shared> {
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

    /// The configuration in use, for one connection: looking whether it is still the same costs one plain load,
    /// where counting a reference would be felt by all workers.
    pub(crate) fn snapshots(&self) -> arc_swap::Cache<&ArcSwap<Snapshot>, Arc<Snapshot>> {
        arc_swap::Cache::new(&self.shared.snapshot)
    }

    /// The configuration in use now.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.snapshot.load_full()
    }

    /// Works until told to stop. To be run on a runtime of its own thread.
    pub async fn run(self: Arc<Self>, mut orders: mpsc::Receiver<Order>, mut inbox: Inbox) {
        crate::calls::lend(self.outbound.clone(), &self.shared);
        let mut sockets = Sockets::default();
        let mut sweep = tokio::time::interval(SWEEP);
        sweep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Stop) | None => break,
                    Some(order) => self.caught("orders", || self.carry_out(order, &mut sockets)),
                },
                Some(accepted) = inbox.0.recv() => match TcpStream::from_std(accepted.tcp) {
                    Ok(tcp) => self.serve(tcp, accepted.peer, accepted.entrance, accepted.permit),
                    Err(error) => tracing::warn!(%error, "a connection was lost between workers"),
                },
                _ = sweep.tick() => self.caught("pool_sweep", || self.outbound.sweep()),
            }
        }
        self.registry.abort();
    }

    fn carry_out(self: &Arc<Self>, order: Order, sockets: &mut Sockets) {
        match order {
            Order::Listen(socket, entrance) => {
                self.listen(TcpListener::from_std(socket).map(Listening::Tcp), entrance, sockets);
            }
            Order::ListenUnix(socket) => self.listen(Listening::unix(socket), Entrance::Plain, sockets),
            Order::Quic(socket, config, place) => {
                let task = tokio::spawn(h3::serve(self.clone(), socket, *config, place));
                sockets.listening.push((None, task));
            }
            Order::Datagrams(socket, port, dtls) => {
                let (worker, socket) = (self.clone(), Arc::new(socket));
                let start = move || crate::udp::serve(worker.clone(), socket.clone(), port, dtls.clone());
                sockets.datagrams.push((port, self.supervise("datagrams", start)));
            }
            Order::EndDatagrams(port) => end(&mut sockets.datagrams, |of| of == port),
            Order::Unlisten(port) => {
                sockets.accepting.retain(|(_, entrance)| entrance.stream_port() != Some(port));
                end(&mut sockets.listening, |of| of == Some(port));
            }
            Order::Confirm(confirm) => drop(confirm.send(())),
            Order::Ask(question) => self.ask(&question),
            Order::ShedIdle => self.registry.shed_idle(),
            Order::Drain => {
                sockets.accepting.drain(..).for_each(|(listener, entrance)| self.empty(&listener, &entrance));
                end(&mut sockets.listening, |_| true);
                self.registry.drain();
                self.pipeline.drain();
            }
            Order::Stop => {}
        }
    }

    /// Accepts connections from now on.
    fn listen(self: &Arc<Self>, listener: io::Result<Listening>, entrance: Entrance, sockets: &mut Sockets) {
        match listener {
            Ok(listener) => {
                let port = entrance.stream_port();
                let (worker, listener) = (self.clone(), Arc::new(listener));
                sockets.accepting.push((listener.clone(), entrance.clone()));
                let start = move || accept(worker.clone(), listener.clone(), entrance.clone());
                sockets.listening.push((port, self.supervise("accept", start)));
            }
            Err(error) => tracing::error!(%error, "a listener could not be taken over"),
        }
    }

    /// Takes the connections that wait to be accepted: closing the listener would reset them.
    fn empty(self: &Arc<Self>, listener: &Listening, entrance: &Entrance) {
        let socket = socket2::SockRef::from(listener);
        // Not blocking, so that it ends with an error; clients may not make it endless.
        for _ in 0..MAX_BACKLOG {
            let Ok((tcp, peer)) = socket.accept() else { return };
            let peer = peer.as_socket().unwrap_or(UNIX_ADDRESS);
            let Some(permit) = self.shared.overload.connection() else { return self.recorder.refused() };
            self.recorder.accepted();
            if tcp.set_nonblocking(true).is_ok()
                && let Ok(tcp) = TcpStream::from_std(tcp.into())
            {
                self.serve(tcp, peer, entrance.clone(), permit);
            }
        }
    }

    /// Keeps a task of this worker running.
    fn supervise<F>(
        &self,
        name: &'static str,
        start: impl FnMut() -> F + Send + 'static,
    ) -> tokio::task::JoinHandle<()>
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        tokio::spawn(self.shared.tasks.clone().supervise(name, start))
    }

    /// Does something on the worker's own task, which a panic must not end.
    fn caught(&self, name: &'static str, work: impl FnOnce()) {
        if let Err(payload) = std::panic::catch_unwind(AssertUnwindSafe(work)) {
            self.shared.tasks.caught(name, &*payload);
            self.recorder.panicked();
        }
    }

    /// Serves an accepted connection here, or hands it to a worker with clearly fewer.
    pub(crate) fn place(self: &Arc<Self>, tcp: TcpStream, peer: SocketAddr, entrance: &Entrance) {
        let Some(permit) = self.shared.overload.connection() else {
            self.recorder.refused();
            // Reset rather than linger: at the ceiling every byte of state counts.
            drop(tcp.set_zero_linger());
            return;
        };
        self.recorder.accepted();
        let mine = self.registry.len();
        let (idlest, fewest) = self.shared.idlest();
        if idlest == self.index || mine < fewest + HANDOVER_MARGIN {
            return self.serve(tcp, peer, entrance.clone(), permit);
        }
        let Ok(tcp) = tcp.into_std() else { return };
        let accepted = Accepted { tcp, peer, entrance: entrance.clone(), permit };
        if let Err(refused) = self.shared.inboxes[idlest].try_send(accepted) {
            let accepted = refused.into_inner();
            if let Ok(tcp) = TcpStream::from_std(accepted.tcp) {
                self.serve(tcp, peer, accepted.entrance, accepted.permit);
            }
        }
    }

    fn serve(self: &Arc<Self>, tcp: TcpStream, peer: SocketAddr, entrance: Entrance, permit: Permit) {
        let entry = Arc::new(Entry::default());
        self.shared.loads[self.index].fetch_add(1, Ordering::Relaxed);
        let number = self.registry.add(entry.clone());
        let open = Open { worker: self.clone(), number, _permit: permit };
        let task = tokio::spawn(async move {
            let worker = open.worker.clone();
            worker.guarded(serve(worker.clone(), tcp, peer, entrance, entry)).await;
            drop(open);
        });
        self.registry.attach(number, task.abort_handle());
    }

    /// A connection was refused at the ceiling.
    pub(crate) fn connection_refused(&self) {
        self.recorder.refused();
    }

    /// Serves a connection that came by another way than a TCP listener.
    pub(crate) fn spawn_counted<F>(self: &Arc<Self>, permit: Permit, serving: impl FnOnce(Arc<Entry>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.recorder.accepted();
        let entry = Arc::new(Entry::default());
        self.shared.loads[self.index].fetch_add(1, Ordering::Relaxed);
        let number = self.registry.add(entry.clone());
        let serving = serving(entry);
        let open = Open { worker: self.clone(), number, _permit: permit };
        let task = tokio::spawn(async move {
            let worker = open.worker.clone();
            worker.guarded(serving).await;
            drop(open);
        });
        self.registry.attach(number, task.abort_handle());
    }

    /// One connection's panic ends that connection and nothing else.
    pub(crate) async fn guarded(&self, serving: impl Future<Output = ()>) {
        if AssertUnwindSafe(serving).catch_unwind().await.is_err() {
            tracing::error!("a connection's task panicked; the connection was closed");
            self.recorder.panicked();
        }
    }
}

/// Requests that go on without their client are tasks of their own, on the worker that served the client.
fn aside(worker: Weak<Worker>) -> Aside {
    Box::new(move |fork| {
        let Some(worker) = worker.upgrade() else { return };
        drop(tokio::spawn(async move {
            let snapshot = worker.snapshot();
            worker.guarded(worker.pipeline.carry_on(&snapshot, fork)).await;
        }));
    })
}

/// The sockets of a worker, with the tasks that serve them.
#[derive(Default)]
struct Sockets {
    /// By port where it is a stream proxy's.
    listening: Vec<(Option<u16>, tokio::task::JoinHandle<()>)>,
    /// What those accept from.
    accepting: Vec<(Arc<Listening>, Entrance)>,
    datagrams: Vec<(u16, tokio::task::JoinHandle<()>)>,
}

/// Ends the tasks of some ports.
fn end<P: Copy>(tasks: &mut Vec<(P, tokio::task::JoinHandle<()>)>, is_meant: impl Fn(P) -> bool) {
    tasks.retain(|(port, task)| {
        let stays = !is_meant(*port);
        if !stays {
            task.abort();
        }
        stays
    });
}

/// A connection that counts as open.
struct Open {
    worker: Arc<Worker>,
    number: u64,
    _permit: Permit,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.worker.registry.remove(self.number);
        self.worker.shared.loads[self.worker.index].fetch_sub(1, Ordering::Relaxed);
        self.worker.recorder.closed();
    }
}
