//! What a worker does: it carries out orders, accepts connections, and serves them here or hands them on.

use std::fmt::Display;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;

use gateway_core::config::model::DrainStreams;
use gateway_core::limit::concurrency::Permit;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

use crate::downstream::accept::{accept, serve};
use crate::downstream::h3;
use crate::entrance::{Accepted, Entrance, Listening, UNIX_ADDRESS};
use crate::load::Load;
use crate::registry::ConnectionControl;
use crate::upstream::SWEEP;
use crate::worker::{Inbox, Order, Worker};

/// Connections taken out of one listener's queue when a drain begins.
const MAX_BACKLOG: usize = 4096;
/// Turns of the runtime after everything was ended.
const LAST_TURNS: usize = 64;
/// A connection is handed to another worker when that one has so many fewer.
const HANDOVER_MARGIN: usize = 2;

impl Worker {
    /// Works until told to stop. To be run on a runtime of its own thread.
    pub async fn run(self: Arc<Self>, mut orders: mpsc::UnboundedReceiver<Order>, mut inbox: Inbox) {
        self.shared().overload.collected().count_on_this_thread();
        crate::calls::lend(self.outbound().clone(), self.shared());
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
                    Ok(tcp) => {
                        self.serve(tcp, accepted.peer, accepted.entrance, accepted.permit, accepted.load);
                    }
                    Err(error) => tracing::warn!(%error, "a connection was lost between workers"),
                },
                _ = sweep.tick() => self.caught("pool_sweep", || self.outbound().sweep()),
            }
        }
        self.pipeline().end();
        self.registry.abort();
        // Clients over QUIC are told: the tasks that end drop their connections, and quinn's own send what is left to say.
        for _ in 0..LAST_TURNS {
            tokio::task::yield_now().await;
        }
    }

    fn carry_out(self: &Arc<Self>, order: Order, sockets: &mut Sockets) {
        match order {
            // Whoever comes now would be cut at the end of the drain.
            Order::Listen(..) | Order::ListenUnix(_) | Order::Quic(..) | Order::Datagrams(..)
                if sockets.drained => {}
            Order::Listen(socket, entrance) => {
                self.listen(TcpListener::from_std(socket).map(Listening::Tcp), entrance, sockets);
            }
            Order::ListenUnix(socket) => self.listen(Listening::unix(socket), Entrance::Plain, sockets),
            Order::Quic(socket, rules, place) => {
                sockets.keep_copy(&socket, None);
                let drained = sockets.quic_drains.subscribe();
                drop(tokio::spawn(h3::serve(self.clone(), socket, rules, place, drained)));
            }
            Order::Datagrams(socket, port, dtls) => {
                sockets.keep_copy(&socket, Some(port));
                let (worker, socket) = (self.clone(), Arc::new(socket));
                let start =
                    move || crate::udp_port::serve(worker.clone(), socket.clone(), port, dtls.clone());
                sockets.datagrams.push((port, self.supervise("datagrams", start)));
            }
            Order::EndDatagrams(port) => {
                sockets.udp.retain(|(of, _)| *of != Some(port));
                end(&mut sockets.datagrams, |of| of == port);
            }
            Order::Unlisten(port) => {
                sockets.accepting.retain(|(_, entrance)| entrance.stream_port() != Some(port));
                end(&mut sockets.listening, |of| of == Some(port));
            }
            Order::Copy(copies) => sockets.copy(&copies),
            Order::Confirm(confirm) => drop(confirm.send(())),
            Order::Ask(question) => self.ask(&question),
            Order::Run(task) => task.run(),
            Order::ShedIdle => self.registry.shed_idle(),
            Order::Drain => {
                sockets.accepting.drain(..).for_each(|(listener, entrance)| self.empty(&listener, &entrance));
                end(&mut sockets.listening, |_| true);
                sockets.quic_drains.send_replace(true);
                self.registry.drain();
                if self.snapshot().settings.drain_streams == DrainStreams::Close {
                    self.pipeline().drain();
                }
                sockets.drained = true;
                self.shared().worker_drained();
            }
            Order::EndExchanges => {
                self.pipeline().end();
                self.registry.abort_exchanges();
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
            let Some(permit) = self.shared().overload.connection() else { return self.recorder.refused() };
            self.recorder.accepted();
            if tcp.set_nonblocking(true).is_ok()
                && let Ok(tcp) = TcpStream::from_std(tcp.into())
            {
                self.serve(tcp, peer, entrance.clone(), permit, self.shared().load(self.index()));
            }
        }
    }

    /// Keeps a task of this worker running.
    fn supervise<F, E>(
        &self,
        name: &'static str,
        start: impl FnMut() -> F + Send + 'static,
    ) -> tokio::task::JoinHandle<()>
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Display + Send + 'static,
    {
        tokio::spawn(self.shared().tasks.clone().supervise(name, start))
    }

    /// Does something on the worker's own task, which a panic must not end.
    fn caught(&self, name: &'static str, work: impl FnOnce()) {
        if let Err(payload) = std::panic::catch_unwind(AssertUnwindSafe(work)) {
            self.shared().tasks.caught(name, &*payload);
            self.recorder.panicked();
        }
    }

    /// Serves an accepted connection here, or hands it to a worker with clearly fewer.
    pub(crate) fn place(self: &Arc<Self>, tcp: TcpStream, peer: SocketAddr, entrance: &Entrance) {
        if !self.shared().overload.has_descriptor_for_client(tcp.as_raw_fd()) {
            tracing::error!("a connection was refused: nearly all file descriptors are in use");
            self.recorder.refused();
            return drop(tcp.set_zero_linger());
        }
        let Some(permit) = self.shared().overload.connection() else {
            self.recorder.refused();
            // Reset rather than linger: at the ceiling every byte of state counts.
            drop(tcp.set_zero_linger());
            return;
        };
        self.recorder.accepted();
        let mine = self.registry.len();
        let (idlest, fewest) = self.shared().idlest();
        if idlest == self.index() || mine < fewest + HANDOVER_MARGIN {
            return self.serve(tcp, peer, entrance.clone(), permit, self.shared().load(self.index()));
        }
        let Ok(tcp) = tcp.into_std() else { return };
        let load = self.shared().load(idlest);
        let accepted = Accepted { tcp, peer, entrance: entrance.clone(), permit, load };
        if let Err(refused) = self.shared().inboxes[idlest].try_send(accepted) {
            let accepted = refused.into_inner();
            if let Ok(tcp) = TcpStream::from_std(accepted.tcp) {
                let Accepted { entrance, permit, .. } = accepted;
                self.serve(tcp, peer, entrance, permit, self.shared().load(self.index()));
            }
        }
    }

    fn serve(
        self: &Arc<Self>,
        tcp: TcpStream,
        peer: SocketAddr,
        entrance: Entrance,
        permit: Permit,
        load: Load,
    ) {
        let entry = Arc::new(ConnectionControl::default());
        let number = self.registry.add(entry.clone());
        let open = OpenConnection { worker: self.clone(), number, _permit: permit, _load: load };
        let task = tokio::spawn(async move {
            let worker = open.worker.clone();
            worker.guarded(pin!(serve(worker.clone(), tcp, peer, entrance, entry))).await;
            drop(open);
        });
        self.registry.attach(number, task.abort_handle());
    }

    /// A connection was refused at the ceiling.
    pub(crate) fn connection_refused(&self) {
        self.recorder.refused();
    }

    /// Serves a connection that came by another way than a TCP listener.
    pub(crate) fn spawn_counted<F>(
        self: &Arc<Self>,
        permit: Permit,
        serving: impl FnOnce(Arc<ConnectionControl>) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        self.recorder.accepted();
        let entry = Arc::new(ConnectionControl::default());
        let number = self.registry.add(entry.clone());
        let load = self.shared().load(self.index());
        let open = OpenConnection { worker: self.clone(), number, _permit: permit, _load: load };
        let task = tokio::spawn(async move {
            let worker = open.worker.clone();
            // Made here: moved in, it would take its room twice.
            worker.guarded(pin!(serving(entry))).await;
            drop(open);
        });
        self.registry.attach(number, task.abort_handle());
    }
}

/// The sockets of a worker, with the tasks that serve them.
#[derive(Default)]
struct Sockets {
    /// By port where it is a stream proxy's.
    listening: Vec<(Option<u16>, tokio::task::JoinHandle<()>)>,
    /// What those accept from.
    accepting: Vec<(Arc<Listening>, Entrance)>,
    datagrams: Vec<(u16, tokio::task::JoinHandle<()>)>,
    /// Copies of the UDP sockets, for another process; by port where they are stream proxies'.
    udp: Vec<(Option<u16>, OwnedFd)>,
    /// Tells who serves HTTP/3 that nobody new is taken. The sockets stay open for the connections there are, and the kernel
    /// gives them new ones as well: whoever comes is told to go elsewhere.
    quic_drains: watch::Sender<bool>,
    /// Nothing is listened on any more.
    drained: bool,
}

impl Sockets {
    fn keep_copy(&mut self, socket: &std::net::UdpSocket, port: Option<u16>) {
        match socket.as_fd().try_clone_to_owned() {
            Ok(copy) => self.udp.push((port, copy)),
            Err(error) => tracing::warn!(%error, "a UDP socket can't be handed over"),
        }
    }

    fn copy(&self, copies: &std::sync::mpsc::Sender<OwnedFd>) {
        let listeners = self.accepting.iter().map(|(listening, _)| listening.as_ref());
        let tcp = listeners.filter(|listening| matches!(listening, Listening::Tcp(_))).map(AsFd::as_fd);
        for socket in tcp.chain(self.udp.iter().map(|(_, socket)| socket.as_fd())) {
            match socket.try_clone_to_owned() {
                Ok(copy) => drop(copies.send(copy)),
                Err(error) => return tracing::warn!(%error, "a listening socket can't be handed over"),
            }
        }
    }
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
struct OpenConnection {
    worker: Arc<Worker>,
    number: u64,
    _permit: Permit,
    _load: Load,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.worker.registry.remove(self.number);
        self.worker.recorder.closed();
    }
}
