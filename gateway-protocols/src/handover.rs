//! One gateway takes the place of another on the same UDP sockets.
//!
//! Both have the descriptors, so that the kernel's choice of a socket for each client stays, and what waits in a socket is lost
//! by nobody. One of them reads at a time. The successor says which sockets it has got; from then on the gateway before it
//! only takes what the successor forwards: packets with connection ids of its own generation, those of handshakes under way, and
//! datagrams of its sessions. Its answers leave by its own descriptors. When the successor ends, it reads again.
//!
//! ```text
//! successor                        gateway before it
//!   sockets, link, secrets   <---    Unix socket beside the pid file
//!   Took(listeners)          --->    stops reading
//!   Openings, Sessions, Go   <---    what is still its own
//!   reads; Packet            --->    serves
//!   Bounced                  <---    a datagram whose session has ended
//! ```

mod ids;
mod link;
mod secrets;
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
use link::{Message, QUEUE};
pub use secrets::{Secrets, inherit, secrets};
pub use successor::Successor;

/// How long the gateway before this one may take to say what is still its own.
const TIMEOUT: Duration = Duration::from_secs(3);

/// A datagram, or several of one client joined by the kernel, that another worker or process has read.
#[derive(Debug, Clone)]
pub(crate) struct Forwarded {
    /// What it came to: the address that its socket is bound to.
    pub(crate) listener: SocketAddr,
    /// Which of the listener's sockets.
    pub(crate) place: u8,
    pub(crate) client: SocketAddr,
    /// The address that the client spoke to.
    pub(crate) local: Option<IpAddr>,
    pub(crate) ecn: Option<EcnCodepoint>,
    /// Bytes of each but the last one.
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

/// What one socket of a port of datagrams is told.
#[derive(Debug)]
pub(crate) enum Handed {
    /// Another process reads the socket from now on: say which sessions are here.
    Paused(mpsc::UnboundedSender<Vec<SessionAddress>>),
    /// It has ended.
    Resumed,
    /// It has read this.
    Datagram(Forwarded),
}

/// Whether a listener's sockets are read by this process.
#[derive(Debug)]
pub(crate) struct Gate {
    is_open: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl Gate {
    fn new(is_open: bool) -> Self {
        Self { is_open: AtomicBool::new(is_open), waiting: Mutex::default() }
    }

    /// Whether to read. Where not, the task is woken when that changes.
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

    /// Comes when it is.
    pub(crate) async fn opens(&self) {
        poll_fn(|cx| if self.poll(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn set(&self, is_open: bool) {
        self.is_open.store(is_open, Ordering::Release);
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// What one listener's sockets are served by.
struct Listener {
    gate: Arc<Gate>,
    quic: Option<Arc<QuicPlaces>>,
    ports: Vec<mpsc::Sender<Handed>>,
}

/// The sockets of one QUIC listener, with ways between those who serve them.
#[derive(Debug)]
pub(crate) struct QuicPlaces {
    pub(crate) ways: Box<[mpsc::Sender<Forwarded>]>,
    /// Handshakes that began lately, by the socket they came to.
    pub(crate) recent: Box<[Mutex<Recent>]>,
}

/// The sockets that a gateway shares with the one before it and the one behind it.
#[derive(Default)]
pub struct DatagramHandover {
    listeners: Mutex<HashMap<SocketAddr, Listener>>,
    before: OnceLock<Before>,
    /// The link to the process that reads instead of this one.
    behind: Mutex<Option<mpsc::Sender<Forwarded>>>,
    /// Sessions of sockets that another process reads.
    left: AtomicUsize,
}

/// The gateway before this one, for as long as it serves.
struct Before {
    link: mpsc::Sender<Forwarded>,
    /// What [`DatagramHandover::follow`] takes.
    ends: Mutex<Option<(UnixStream, mpsc::Receiver<Forwarded>)>>,
    /// Listeners whose sockets it has as well.
    shared: HashSet<SocketAddr>,
    is_alive: AtomicBool,
    openings: RwLock<HashSet<Opening>>,
    /// Handshakes that take longer than this begin anew.
    openings_end: OnceLock<Instant>,
    sessions: RwLock<HashSet<SessionAddress>>,
}

/// How long packets of handshakes under way are forwarded.
const OPENINGS: Duration = Duration::from_secs(10);

impl DatagramHandover {
    /// Of a gateway that has got these listeners' sockets from another one. It reads them once [`Self::take_over`] has returned.
    ///
    /// # Errors
    /// When the link can't be used.
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

    /// Has the gateway before this one stop reading, and begins to read. Blocks for as long as that one takes, at most three
    /// seconds; where it fails, its connections are lost.
    ///
    /// # Errors
    /// When it does not answer.
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

    /// Sends what belongs to the gateway before this one there, and takes what comes back, until it ends.
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

    /// The client of a datagram whose session has ended there is a client of this gateway.
    fn take_back(&self, before: &Before, message: Message) {
        let Message::Bounced(packet) = message else { return };
        before.sessions.write().unwrap_or_else(PoisonError::into_inner).remove(&packet.session());
        let Some(packet) = self.bounce(packet) else { return };
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let place = usize::from(packet.place);
        if let Some(port) = listeners.get(&packet.listener).and_then(|listener| listener.ports.get(place)) {
            // A full queue loses the datagram, as UDP may.
            let _sent = port.try_send(Handed::Datagram(packet));
        }
    }

    /// Whether this gateway is needed though it has no connection any more: it has sessions on sockets which another process reads, or
    /// that process reaches the gateway before this one through it.
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

    /// Adds a socket for datagrams; which one of the listener it is.
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

    /// Hands a packet to the gateway before this one, if a connection of its generation can still be there.
    pub(crate) fn forward_of_generation(&self, packet: impl FnOnce() -> Forwarded) -> bool {
        self.before().is_some_and(|before| before.forward(packet()))
    }

    /// Hands a packet of a handshake on that was under way there.
    pub(crate) fn forward_opening(&self, opening: Opening, packet: impl FnOnce() -> Forwarded) -> bool {
        let Some(before) = self.before() else { return false };
        let is_over = before.openings_end.get().is_none_or(|end| *end < Instant::now());
        let knows = |of: &RwLock<HashSet<Opening>>| {
            of.read().unwrap_or_else(PoisonError::into_inner).contains(&opening)
        };
        !is_over && knows(&before.openings) && before.forward(packet())
    }

    /// Hands a datagram on whose session is there.
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

    /// Gives a datagram back whose session is not here any more. `None` where another process reads the sockets.
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

    /// False where it has ended. A full queue loses the packet, as UDP may.
    fn forward(&self, packet: Forwarded) -> bool {
        !matches!(self.link.try_send(packet), Err(mpsc::error::TrySendError::Closed(_)))
    }

    /// Asks for what is still that gateway's own.
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
