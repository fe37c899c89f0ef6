//! Hands UDP sockets over from one gateway to its successor.
//!
//! Both gateways have the descriptors. So the kernel keeps its choice of a socket for each client, and no datagram in a socket's
//! queue is lost. One gateway reads at a time. The successor names the sockets that it has taken. From then on, its predecessor
//! serves only what the successor forwards: packets with connection IDs of its own generation, packets of its unfinished
//! handshakes, and datagrams of its sessions. It answers through its own descriptors. When the successor ends, the predecessor
//! reads the sockets again.
//!
//! ```text
//! successor                        predecessor
//!   sockets, link, secrets   <---    Unix socket beside the pid file
//!   Took(listeners)          --->    stops reading
//!   Openings, Sessions, Go   <---    its connections and sessions
//!   reads; Packet            --->    serves
//!   Bounced                  <---    a datagram whose session has ended
//! ```

mod ids;
mod keys;
mod link;
mod successor;

use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use quinn_udp::EcnCodepoint;
use tokio::sync::mpsc;

pub(crate) use ids::{Ids, Opening, Owner, Recent};
pub use keys::{Secrets, inherit, secrets};
use link::{Message, QUEUE};
pub use successor::Successor;

/// How long the predecessor may take to send its tables.
const TIMEOUT: Duration = Duration::from_secs(3);

/// A datagram that another worker or process has read, or several datagrams of one client that the kernel joined.
#[derive(Debug, Clone)]
pub(crate) struct Forwarded {
    /// The address to which the receiving socket is bound.
    pub(crate) listener: SocketAddr,
    /// The number of the socket within the listener.
    pub(crate) place: u8,
    pub(crate) client: SocketAddr,
    /// The local address to which the client sent the datagram.
    pub(crate) local: Option<IpAddr>,
    pub(crate) ecn: Option<EcnCodepoint>,
    /// Bytes of each datagram except the last one.
    pub(crate) stride: usize,
    pub(crate) bytes: Box<[u8]>,
}

/// A session of plain datagrams or of DTLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SessionAddress {
    pub(crate) listener: SocketAddr,
    pub(crate) client: SocketAddr,
    pub(crate) local: Option<IpAddr>,
}

/// A message to a worker's datagram port.
#[derive(Debug)]
pub(crate) enum Handed {
    /// From now on, another process reads the socket. The port answers with its sessions.
    Paused(mpsc::UnboundedSender<Vec<SessionAddress>>),
    /// The other process has ended.
    Resumed,
    /// A datagram that the other process has read.
    Datagram(Forwarded),
}

/// Whether this process reads the sockets of a listener.
#[derive(Debug)]
pub(crate) struct Gate {
    is_open: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl Gate {
    fn new(is_open: bool) -> Self {
        Self { is_open: AtomicBool::new(is_open), waiting: Mutex::default() }
    }

    /// Whether to read. If not, the task is woken when the gate changes.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> bool {
        if self.is_open.load(Ordering::Acquire) {
            return true;
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|waker| !waker.will_wake(cx.waker()));
        waiting.push(cx.waker().clone());
        self.is_open.load(Ordering::Acquire)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Waits until the gate is open.
    pub(crate) async fn opens(&self) {
        poll_fn(|cx| if self.poll(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn set(&self, is_open: bool) {
        self.is_open.store(is_open, Ordering::Release);
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// The tasks that serve the sockets of one listener.
struct Listener {
    gate: Arc<Gate>,
    quic: Option<Arc<QuicPlaces>>,
    ports: Vec<mpsc::Sender<Handed>>,
}

/// The sockets of one QUIC listener, with a channel to the task of each.
#[derive(Debug)]
pub(crate) struct QuicPlaces {
    pub(crate) ways: Box<[mpsc::Sender<Forwarded>]>,
    /// Recent handshakes, by the socket that received them.
    pub(crate) recent: Box<[Mutex<Recent>]>,
}

/// The sockets that a gateway shares with its predecessor and its successor.
#[derive(Default)]
pub struct DatagramHandover {
    listeners: Mutex<HashMap<SocketAddr, Listener>>,
    before: OnceLock<Before>,
    /// The link to the successor, which reads the sockets.
    behind: Mutex<Option<mpsc::Sender<Forwarded>>>,
    /// Number of sessions on sockets that another process reads.
    left: AtomicUsize,
}

/// The predecessor, as long as it runs.
struct Before {
    link: mpsc::Sender<Forwarded>,
    /// The stream and the queue that [`DatagramHandover::follow`] takes.
    ends: Mutex<Option<(UnixStream, mpsc::Receiver<Forwarded>)>>,
    /// Listeners whose sockets the predecessor also has.
    shared: HashSet<SocketAddr>,
    is_alive: AtomicBool,
    openings: RwLock<HashSet<Opening>>,
    /// The time after which packets of unfinished handshakes are no longer forwarded; such a handshake starts again.
    openings_end: OnceLock<Instant>,
    sessions: RwLock<HashSet<SessionAddress>>,
}

/// How long packets of unfinished handshakes are forwarded.
const OPENINGS: Duration = Duration::from_secs(10);

impl DatagramHandover {
    /// The handover of a gateway that received the sockets of these listeners. The gateway reads them after [`Self::take_over`]
    /// returns.
    ///
    /// # Errors
    /// The link cannot be used.
    pub fn after(link: OwnedFd, shared: impl IntoIterator<Item = SocketAddr>) -> io::Result<Self> {
        let this = Self::default();
        let stream = UnixStream::from(link);
        stream.set_nonblocking(false)?;
        let (link, packets) = mpsc::channel(QUEUE);
        let before = Before {
            link,
            ends: Mutex::new(Some((stream, packets))),
            shared: shared.into_iter().collect(),
            is_alive: AtomicBool::new(true),
            openings: RwLock::default(),
            openings_end: OnceLock::new(),
            sessions: RwLock::default(),
        };
        drop(this.before.set(before));
        Ok(this)
    }

    /// Stops the predecessor from reading, then opens the gates of this gateway. Blocks until the predecessor answers, at most
    /// three seconds. If this fails, the connections of the predecessor are lost.
    ///
    /// # Errors
    /// The predecessor does not answer.
    pub fn take_over(&self) -> io::Result<()> {
        let Some(before) = self.before.get() else { return Ok(()) };
        let result = before.ask();
        if result.is_err() {
            before.is_alive.store(false, Ordering::Release);
        }
        let _first = before.openings_end.set(Instant::now() + OPENINGS);
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.values().for_each(|listener| listener.gate.set(true));
        result
    }

    /// Forwards packets to the predecessor and takes back what it returns, until it ends.
    pub async fn follow(&self) {
        let Some(before) = self.before.get() else { return };
        let ends = before.ends.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((stream, packets)) = ends
            && stream.set_nonblocking(true).is_ok()
            && let Ok(stream) = tokio::net::UnixStream::from_std(stream)
        {
            link::exchange(stream, false, packets, |message| self.take_back(before, message)).await;
        }
        before.is_alive.store(false, Ordering::Release);
        *before.sessions.write().unwrap_or_else(PoisonError::into_inner) = HashSet::new();
        *before.openings.write().unwrap_or_else(PoisonError::into_inner) = HashSet::new();
    }

    /// Takes back a datagram whose session the predecessor has ended: its client is now a client of this gateway.
    fn take_back(&self, before: &Before, message: Message) {
        let Message::Bounced(packet) = message else { return };
        before.sessions.write().unwrap_or_else(PoisonError::into_inner).remove(&packet.session());
        let Some(packet) = self.bounce(packet) else { return };
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let place = usize::from(packet.place);
        if let Some(port) = listeners.get(&packet.listener).and_then(|listener| listener.ports.get(place)) {
            // A full queue drops the datagram, as UDP permits.
            let _sent = port.try_send(Handed::Datagram(packet));
        }
    }

    /// Whether this gateway must continue although it has no connection. It must if it has sessions on sockets that another
    /// process reads, or if that process reaches the predecessor through it.
    pub fn is_needed(&self) -> bool {
        let is_read_elsewhere = || self.behind.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        self.left.load(Ordering::Relaxed) > 0 || (self.before().is_some() && is_read_elsewhere())
    }

    pub(crate) fn count_left(&self, before: usize, now: usize) {
        self.left.fetch_add(now, Ordering::Relaxed);
        self.left.fetch_sub(before, Ordering::Relaxed);
    }

    /// Adds the sockets of a QUIC listener.
    pub(crate) fn add_quic(&self, at: SocketAddr, places: Arc<QuicPlaces>) -> Arc<Gate> {
        self.with(at, |listener| listener.quic = Some(places))
    }

    /// Adds a datagram socket. Returns the gate, and the number of the socket within the listener.
    pub(crate) fn add_port(&self, at: SocketAddr, port: mpsc::Sender<Handed>) -> (Arc<Gate>, u8) {
        let mut place = 0;
        let gate = self.with(at, |listener| {
            let free = listener.ports.iter().position(mpsc::Sender::is_closed);
            place = free.unwrap_or(listener.ports.len());
            listener.ports.truncate(place.max(listener.ports.len()));
            match free {
                Some(free) => listener.ports[free] = port,
                None => listener.ports.push(port),
            }
        });
        (gate, u8::try_from(place).unwrap_or(u8::MAX))
    }

    fn with(&self, at: SocketAddr, change: impl FnOnce(&mut Listener)) -> Arc<Gate> {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = self.before.get().is_some_and(Before::has_not_begun);
        let is_open = !(waits && self.before.get().is_some_and(|before| before.shared.contains(&at)));
        let listener = listeners.entry(at).or_insert_with(|| Listener {
            gate: Arc::new(Gate::new(is_open)),
            quic: None,
            ports: Vec::new(),
        });
        change(listener);
        listener.gate.clone()
    }

    /// Forwards a packet to the predecessor, if the predecessor still runs.
    pub(crate) fn forward_of_generation(&self, packet: impl FnOnce() -> Forwarded) -> bool {
        self.before().is_some_and(|before| before.forward(packet()))
    }

    /// Forwards a packet of a handshake that the predecessor has not finished.
    pub(crate) fn forward_opening(&self, opening: Opening, packet: impl FnOnce() -> Forwarded) -> bool {
        let Some(before) = self.before() else { return false };
        let is_over = before.openings_end.get().is_none_or(|end| *end < Instant::now());
        let knows = |of: &RwLock<HashSet<Opening>>| {
            of.read().unwrap_or_else(PoisonError::into_inner).contains(&opening)
        };
        !is_over && knows(&before.openings) && before.forward(packet())
    }

    /// Forwards a datagram of a session that the predecessor has.
    pub(crate) fn forward_session(
        &self,
        session: &SessionAddress,
        packet: impl FnOnce() -> Forwarded,
    ) -> bool {
        let Some(before) = self.before() else { return false };
        let is_there = before.sessions.read().unwrap_or_else(PoisonError::into_inner).contains(session);
        is_there && before.forward(packet())
    }

    fn before(&self) -> Option<&Before> {
        self.before.get().filter(|before| before.is_alive.load(Ordering::Acquire))
    }

    /// Returns a datagram to the process that reads the sockets, if its session has ended here. Gives the packet back to the
    /// caller if no other process reads.
    pub(crate) fn bounce(&self, packet: Forwarded) -> Option<Forwarded> {
        let behind = self.behind.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(link) = &*behind else { return Some(packet) };
        let _sent = link.try_send(packet);
        None
    }
}

impl Before {
    fn has_not_begun(&self) -> bool {
        self.openings_end.get().is_none()
    }

    /// Returns false if the predecessor has ended. A full queue drops the packet, as UDP permits.
    fn forward(&self, packet: Forwarded) -> bool {
        !matches!(self.link.try_send(packet), Err(mpsc::error::TrySendError::Closed(_)))
    }

    /// Requests the tables of the predecessor.
    fn ask(&self) -> io::Result<()> {
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let (stream, _) = ends.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let listeners: Vec<SocketAddr> = self.shared.iter().copied().collect();
        link::send_now(stream, &Message::Took(listeners), TIMEOUT)?;
        let deadline = Instant::now() + TIMEOUT;
        loop {
            match link::next_now(stream, deadline)? {
                Message::Openings(openings) => {
                    self.openings.write().unwrap_or_else(PoisonError::into_inner).extend(openings);
                }
                Message::Sessions(sessions) => {
                    self.sessions.write().unwrap_or_else(PoisonError::into_inner).extend(sessions);
                }
                Message::Go => return Ok(()),
                Message::Took(_) | Message::Packet(_) | Message::Bounced(_) => {}
            }
        }
    }
}

impl Forwarded {
    pub(crate) fn session(&self) -> SessionAddress {
        SessionAddress { listener: self.listener, client: self.client, local: self.local }
    }
}

#[cfg(test)]
mod tests;
