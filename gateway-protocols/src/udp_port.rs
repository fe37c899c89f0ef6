//! The loop of one worker's share of a UDP port, without a task or a buffer for each session.
//!
//! Datagrams of clients arrive in batches on the listening socket; those of targets on one connected socket a session.
//! The latter wait in an epoll set of their own, whose descriptor the runtime watches: however many sessions there are,
//! the runtime knows one source, and only sockets with something in them are looked at.

mod arrive;
mod asked;
mod greet;
mod handover;
mod listening_socket;
mod proxied;
mod restart;
mod trust;

use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::io::{self, IoSliceMut};
use std::net::UdpSocket;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, Stream};
use gateway_core::config::model::HeaderDatagrams;
use gateway_core::pipeline::flow::Flow;
use gateway_core::snapshot::Snapshot;
use gateway_core::stream::relay::Carried;
use quinn_udp::{BATCH_SIZE, RecvMeta};
use slab::Slab;
use thiserror::Error;
use tokio::io::Interest;
use tokio::sync::{mpsc, oneshot};

use crate::handover::Handed;
use crate::udp::client_table::ClientTable;
use crate::udp::connections::Connections;
use crate::udp::dtls::{DtlsRules, Verifier};
use crate::udp::headers::{NamedClients, accepted};
use crate::udp::leg::{Dead, Leg};
use crate::udp::questions::{Question, slot_of};
use crate::udp::ready::ReadySet;
use crate::udp::session::{Greeting, Opening, Outlet, OutletOpener, REFUSED, Session, SessionStage};
use crate::udp::stray::{AddressPair, Stray};
use crate::worker::Worker;
use arrive::NewSenders;
use listening_socket::{ListeningSocket, SharedSocket};

/// One worker's share of a UDP port.
struct Port {
    worker: Arc<Worker>,
    number: u16,
    dtls: Arc<DtlsRules>,
    /// What the sessions' client certificates were judged by last.
    trusted: Option<Verifier>,
    wire: ListeningSocket,
    sessions: Slab<Session>,
    by_client: ClientTable,
    /// Handshakes from the addresses of sessions, whose clients may have begun anew.
    beside: HashMap<AddressPair, u64>,
    /// Sessions whose every datagram names its client.
    named: NamedClients,
    /// Which datagrams have PROXY headers, by the configuration that sessions were begun with.
    accepted: Option<HeaderDatagrams>,
    arrivals: NewSenders,
    connections: Connections,
    strays: mpsc::Receiver<Stray>,
    /// What another process says that reads the socket instead of this one, or before it did.
    handed: mpsc::Receiver<Handed>,
    place: SharedSocket,
    questions: mpsc::Receiver<Question>,
    /// Counts up with each session, so that a late event can't meet the successor in its slot.
    generations: Vec<u32>,
    ready: ReadySet,
    opening: FuturesUnordered<OpeningTarget>,
    opener: Arc<OutletOpener>,
    expiry: VecDeque<(Instant, u64)>,
    handshakes: VecDeque<u64>,
    /// The configuration whose meters the sessions have.
    followed: Arc<Snapshot>,
    /// When metrics are to learn what the sessions have carried.
    next_count: Instant,
    /// The listening socket failed; it is left alone until the next tick, lest it keep the worker from all else.
    failing: bool,
    tick: tokio::time::Interval,
    scratch: Scratch,
}

/// The search for a session's target.
type OpeningTarget = Pin<Box<dyn Future<Output = (u64, Flow, Result<Outlet, Dead>)> + Send>>;

/// Buffers for a batch of datagrams.
struct Scratch {
    bytes: Vec<u8>,
    slot: usize,
    target: Vec<u8>,
    keys: Vec<u64>,
}

/// Datagrams of one target taken before the next one's turn.
const PER_TARGET: usize = 32;
/// Batches of clients' datagrams taken before the targets' turn.
const PER_TURN: usize = 8;
/// Datagrams on their way from another process; beyond that they are lost, as datagrams may be.
const HANDED: usize = 1024;
/// How often handshakes and idle sessions are looked at.
const TICK: Duration = Duration::from_millis(100);
/// How often metrics learn what open sessions have carried.
const COUNT: Duration = Duration::from_secs(2);

/// Why datagrams of a port can't be served.
#[derive(Debug, Error)]
#[error("port {number}: {error}")]
pub(crate) struct PortError {
    number: u16,
    error: io::Error,
}

/// Serves a port until the task is ended.
///
/// # Errors
/// When its sockets can't be used; it may be started again.
pub(crate) async fn serve(
    worker: Arc<Worker>,
    socket: Arc<UdpSocket>,
    number: u16,
    dtls: Arc<DtlsRules>,
) -> Result<(), PortError> {
    let failed = |error| PortError { number, error };
    let port = Port::new(worker, socket.try_clone().map_err(failed)?, number, dtls).map_err(failed)?;
    port.run().await;
    Ok(())
}

impl Port {
    fn new(worker: Arc<Worker>, socket: UdpSocket, number: u16, dtls: Arc<DtlsRules>) -> io::Result<Self> {
        let wire = ListeningSocket::new(socket)?;
        let slot = if wire.state.gro_segments() > 1 { 65_536 } else { 2_048 };
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (connections, strays) = Connections::new(number, worker.shared().known.clone());
        let questions = worker.takes_questions();
        let (hand, handed) = mpsc::channel(HANDED);
        let (gate, place) = worker.shared().datagrams.add_port(wire.local, hand);
        Ok(Self {
            accepted: accepted(&worker.snapshot(), number),
            followed: worker.snapshot(),
            next_count: Instant::now(),
            opener: Arc::new(OutletOpener { dns: worker.shared().dns.clone() }),
            worker,
            number,
            trusted: dtls.clients().flatten(),
            dtls,
            wire,
            sessions: Slab::new(),
            by_client: ClientTable::default(),
            beside: HashMap::new(),
            named: NamedClients::default(),
            arrivals: NewSenders::default(),
            connections,
            strays,
            handed,
            place: SharedSocket { gate, number: place, is_handed: false, counts: false },
            questions,
            generations: Vec::new(),
            ready: ReadySet::new()?,
            opening: FuturesUnordered::new(),
            expiry: VecDeque::new(),
            handshakes: VecDeque::new(),
            failing: false,
            tick,
            scratch: Scratch {
                bytes: vec![0; slot * BATCH_SIZE],
                slot,
                target: vec![0; 65_536],
                keys: Vec::new(),
            },
        })
    }

    /// Serves until dropped.
    async fn run(mut self) {
        poll_fn(|cx| {
            self.poll_once(cx);
            Poll::<()>::Pending
        })
        .await;
    }

    fn poll_once(&mut self, cx: &mut Context<'_>) {
        // First the time: it may be what allows the socket to be looked at again.
        while self.tick.poll_tick(cx).is_ready() {
            self.on_tick(Instant::now());
        }
        let mut again = self.poll_clients(cx);
        while let Poll::Ready(Some((key, flow, outlet))) = Pin::new(&mut self.opening).poll_next(cx) {
            self.opened(key, flow, outlet);
        }
        again |= self.poll_targets(cx);
        while let Poll::Ready(Some(stray)) = self.strays.poll_recv(cx) {
            self.take_stray(&stray);
        }
        while let Poll::Ready(Some(handed)) = self.handed.poll_recv(cx) {
            self.take_handed(handed);
        }
        while let Poll::Ready(Some(question)) = self.questions.poll_recv(cx) {
            self.answer(&question);
        }
        if again {
            // There is more; others get their turn first.
            cx.waker().wake_by_ref();
        }
    }

    /// Takes clients' datagrams; true when there may be more.
    fn poll_clients(&mut self, cx: &mut Context<'_>) -> bool {
        for _ in 0..PER_TURN {
            let reads = !self.failing && self.place.gate.poll(cx);
            if !reads || self.wire.socket.poll_recv_ready(cx).is_pending() {
                return false;
            }
            let mut bytes = std::mem::take(&mut self.scratch.bytes);
            let mut metas = [RecvMeta::default(); BATCH_SIZE];
            match self.receive(&mut bytes, &mut metas) {
                Ok(count) => self.take_batch(&bytes, &metas[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    tracing::warn!(%error, port = self.number, "receiving datagrams failed");
                    self.failing = true;
                }
            }
            self.scratch.bytes = bytes;
        }
        true
    }

    fn take_batch(&mut self, bytes: &[u8], metas: &[RecvMeta]) {
        let now = Instant::now();
        for (slot, meta) in bytes.chunks(self.scratch.slot).zip(metas) {
            let pair = AddressPair { client: meta.addr, local: meta.dst_ip };
            if meta.len == 0 {
                // A datagram without payload is one all the same.
                self.take_request(pair, &[], now);
            }
            // The kernel may have joined datagrams of one client; each is `stride` long, the last one less.
            for datagram in slot[..meta.len].chunks(meta.stride.max(1)) {
                self.take_request(pair, datagram, now);
            }
        }
    }

    fn receive(&self, bytes: &mut [u8], metas: &mut [RecvMeta; BATCH_SIZE]) -> io::Result<usize> {
        let mut slots = bytes.chunks_mut(self.scratch.slot);
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(slots.next().unwrap_or_default()));
        let wire = &self.wire;
        wire.socket.try_io(Interest::READABLE, || wire.state.recv((&wire.socket).into(), &mut slices, metas))
    }

    fn take_request(&mut self, pair: AddressPair, datagram: &[u8], now: Instant) {
        match self.session_of(pair) {
            Some(key) if self.is_sealed(key) => self.take_sealed(pair, key, datagram, now),
            Some(key) => self.forward(key, datagram, now),
            None if self.forward_to_before(pair, datagram) => {}
            None => self.arrive(pair, datagram, now),
        }
    }

    /// A datagram of a session's client.
    fn forward(&mut self, key: u64, datagram: &[u8], now: Instant) {
        let Some(session) = self.sessions.get_mut(slot_of(key)) else { return };
        let was_ready = session.client.is_ready();
        let (wire, pair) = (&self.wire, session.pair);
        let result = session.take_request(datagram, now, &mut |bytes| wire.reply(pair, bytes));
        let (is_ready, has_ids) = (session.client.is_ready(), session.ids.is_some());
        match result {
            Err(reason) => self.end(key, reason),
            Ok(()) if !was_ready && is_ready => {
                self.settle(pair, key);
                self.open(key);
            }
            Ok(()) if has_ids => self.learn(key, datagram),
            Ok(()) => {}
        }
    }

    /// Whether a key still names the session it was made for.
    fn is_current(&self, key: u64) -> bool {
        let slot = slot_of(key);
        self.sessions.contains(slot) && u64::from(self.generations[slot]) == key >> 32
    }

    /// Finds a target for a session whose client is ready.
    fn open(&mut self, key: u64) {
        let Some(session) = self.sessions.get_mut(slot_of(key)) else { return };
        let SessionStage::Greeting(greeting) = &mut session.stage else { return };
        let (looking, mut stop) = oneshot::channel();
        let opening = Opening { waiting: std::mem::take(&mut greeting.early), looking };
        let stage = std::mem::replace(&mut session.stage, SessionStage::Opening(Box::new(opening)));
        let SessionStage::Greeting(greeting) = stage else { return };
        let Greeting { mut flow, .. } = *greeting;
        session.client.tell(flow.session());
        let opener = self.opener.clone();
        self.opening.push(Box::pin(async move {
            let outlet = tokio::select! {
                biased;
                Ok(reason) = &mut stop => Err(reason),
                outlet = flow.open(opener.as_ref()) => outlet,
            };
            (key, flow, outlet)
        }));
    }

    fn opened(&mut self, key: u64, mut flow: Flow, outlet: Result<Outlet, Dead>) {
        if !self.is_current(key) {
            flow.reason = outlet.err().unwrap_or("closed");
            return;
        }
        let watched = outlet.and_then(|outlet| match self.ready.add(&outlet.socket, key) {
            Ok(()) => Ok(outlet),
            Err(_) => Err("exhausted"),
        });
        match watched {
            Ok(outlet) => {
                let seals = matches!(outlet.leg, Leg::Dtls(_));
                if let Err(reason) = self.sessions[slot_of(key)].opened(flow, outlet) {
                    self.end(key, reason);
                } else if seals {
                    self.handshakes.push_back(key);
                }
            }
            Err(reason) => {
                flow.reason = reason;
                drop(flow);
                self.end(key, reason);
            }
        }
    }

    /// Takes targets' datagrams; true when there may be more.
    fn poll_targets(&mut self, cx: &mut Context<'_>) -> bool {
        let mut keys = std::mem::take(&mut self.scratch.keys);
        keys.clear();
        let more = match self.ready.poll_ready(cx, &mut keys) {
            Poll::Ready(Ok(())) => true,
            Poll::Ready(Err(error)) => {
                tracing::error!(%error, port = self.number, "waiting for targets failed");
                false
            }
            Poll::Pending => false,
        };
        let now = Instant::now();
        for key in keys.drain(..) {
            if self.is_current(key) {
                self.take_reply(key, now);
            }
        }
        self.scratch.keys = keys;
        more
    }

    fn take_reply(&mut self, key: u64, now: Instant) {
        // Level-triggered: what is left comes again, and where there are several most have one datagram at a time.
        let turns = if self.sessions.len() > 1 { 1 } else { PER_TARGET };
        let session = &mut self.sessions[slot_of(key)];
        let (wire, pair) = (&self.wire, session.pair);
        for _ in 0..turns {
            let SessionStage::Open(open) = &session.stage else { return };
            let received = open.socket.recv(&mut self.scratch.target);
            let result = match received {
                Ok(length) => {
                    session.last = now;
                    let datagram = &self.scratch.target[..length];
                    if let Some(ids) = session.ids.as_deref_mut() {
                        self.connections.reply(ids, datagram, key);
                    }
                    session.take_reply(datagram, &mut |bytes| wire.reply(pair, bytes))
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Err(REFUSED),
                Err(_) => Err("target_failed"),
            };
            if let Err(reason) = result {
                return self.end(key, reason);
            }
        }
    }

    fn on_tick(&mut self, now: Instant) {
        for _ in 0..self.handshakes.len() {
            let Some(key) = self.handshakes.pop_front() else { break };
            if !self.is_current(key) {
                continue;
            }
            let session = &mut self.sessions[slot_of(key)];
            let Some(wake) = session.wake() else { continue };
            if wake <= now {
                let (wire, pair) = (&self.wire, session.pair);
                if let Err(reason) = session.tick(now, &mut |bytes| wire.reply(pair, bytes)) {
                    self.end(key, reason);
                    continue;
                }
            }
            self.handshakes.push_back(key);
        }
        self.end_untrusted();
        self.follow_configuration();
        self.count_bytes(now);
        self.arrivals.expire(now);
        self.failing = false;
        while let Some((due, key)) = self.expiry.front().copied()
            && due <= now
        {
            self.expiry.pop_front();
            if !self.is_current(key) {
                continue;
            }
            let session = &self.sessions[slot_of(key)];
            let due = session.last + session.idle;
            if due <= now {
                self.end(key, "idle");
            } else {
                self.expiry.push_back((due, key));
            }
        }
        if self.sessions.is_empty() {
            // A flood's memory goes back once it is over.
            self.by_client.shrink_to_fit();
            self.beside.shrink_to_fit();
            self.named.shrink_to_fit();
            self.sessions.shrink_to_fit();
            self.expiry.shrink_to_fit();
            self.generations.shrink_to_fit();
        }
    }

    /// Metrics learn what open sessions have carried, and what limits dropped of them.
    fn count_bytes(&mut self, now: Instant) {
        if now < self.next_count {
            return;
        }
        self.next_count = now + COUNT;
        let recorder = self.worker.recorder().clone();
        for (_, session) in &mut self.sessions {
            if let SessionStage::Open(open) = &mut session.stage {
                let uncounted = open.flow.uncounted();
                if uncounted != Carried::default() {
                    recorder.session_bytes(open.flow.protocol(), uncounted);
                }
            }
        }
    }

    /// Running sessions count against what is configured now.
    fn follow_configuration(&mut self) {
        let snapshot = self.worker.snapshot();
        if Arc::ptr_eq(&self.followed, &snapshot) {
            return;
        }
        for (_, session) in &mut self.sessions {
            if let SessionStage::Open(open) = &mut session.stage {
                open.flow.follow(&snapshot);
            }
        }
        self.follow_headers(&snapshot);
        self.followed = snapshot;
    }

    fn end(&mut self, key: u64, reason: Dead) {
        let Some(session) = self.sessions.try_remove(slot_of(key)) else { return };
        let generation = &mut self.generations[slot_of(key)];
        *generation = generation.wrapping_add(1);
        self.count_left(self.sessions.len() + 1);
        self.leave(session.pair, session.named.as_deref(), key);
        if let Some(ids) = &session.ids {
            self.connections.forget(ids);
        }
        let (wire, pair) = (&self.wire, session.pair);
        session.end(reason, &mut |bytes| wire.reply(pair, bytes));
    }
}

/// The gateway stops, or a change has taken the listener away: why is in the records of the sessions, as they are dropped.
impl Drop for Port {
    fn drop(&mut self) {
        if self.place.counts {
            self.worker.shared().datagrams.count_left(self.sessions.len(), 0);
        }
        for (_, session) in &mut self.sessions {
            let (wire, pair) = (&self.wire, session.pair);
            session.close_notify(&mut |bytes| wire.reply(pair, bytes));
        }
    }
}
