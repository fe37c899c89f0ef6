//! Several sockets on one QUIC port: a packet that reaches the wrong one is handed on.
//!
//! The kernel spreads packets over the sockets by address and port. A client whose address changes (a phone between two networks, a
//! NAT that forgot) would so reach a worker that knows nothing of its connection. Each connection id therefore contains the number
//! of its socket, and whoever receives a packet for another passes it on; it also contains the generation of its process, and
//! what belongs to the gateway before this one goes there.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};
use tokio::sync::mpsc;

use crate::handover::{DatagramHandover, Forwarded, Gate, Ids, Owner, QuicPlaces, Recent};

/// Packets on their way from one worker to another; beyond that they are lost, as packets may be.
const QUEUE: usize = 1024;

/// The ways between the sockets of one port.
pub struct Demultiplexer {
    handover: Arc<DatagramHandover>,
    listener: SocketAddr,
    gate: Arc<Gate>,
    places: Arc<QuicPlaces>,
    ends: Vec<Option<mpsc::Receiver<Forwarded>>>,
}

/// One socket's place on a port.
pub struct WorkerPort {
    handover: Arc<DatagramHandover>,
    listener: SocketAddr,
    gate: Arc<Gate>,
    place: u8,
    places: Arc<QuicPlaces>,
    end: mpsc::Receiver<Forwarded>,
}

impl fmt::Debug for WorkerPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkerPort({} of {})", self.place, self.places.ways.len())
    }
}

impl Demultiplexer {
    /// Ways between so many sockets of a listener, at most 256; further ones get no strays.
    pub fn new(sockets: usize, listener: SocketAddr, handover: Arc<DatagramHandover>) -> Self {
        let (ways, ends): (Vec<_>, Vec<_>) = (0..sockets.min(256)).map(|_| mpsc::channel(QUEUE)).unzip();
        let recent = ways.iter().map(|_| Mutex::new(Recent::default())).collect();
        let places = Arc::new(QuicPlaces { ways: ways.into(), recent });
        let gate = handover.add_quic(listener, places.clone());
        Self { handover, listener, gate, places, ends: ends.into_iter().map(Some).collect() }
    }

    /// The place of a socket, once.
    pub fn place(&mut self, place: usize) -> Option<WorkerPort> {
        let end = self.ends.get_mut(place)?.take()?;
        Some(WorkerPort {
            handover: self.handover.clone(),
            listener: self.listener,
            gate: self.gate.clone(),
            place: u8::try_from(place).ok()?,
            places: self.places.clone(),
            end,
        })
    }
}

impl WorkerPort {
    /// Makes connection ids that lead back to this socket.
    pub(super) fn ids(&self) -> Ids {
        Ids::new(self.place)
    }

    /// Whether the socket is read by this process.
    pub(crate) fn gate(&self) -> Arc<Gate> {
        self.gate.clone()
    }

    /// A socket that hands strays on and takes its own in.
    pub(super) fn join(self, socket: Arc<dyn AsyncUdpSocket>) -> Arc<Joined> {
        let ids = self.ids();
        let Self { handover, listener, gate, place, places, end } = self;
        Arc::new(Joined { socket, handover, listener, gate, place, ids, places, end: Mutex::new(end) })
    }
}

/// A worker's socket on a shared port.
pub(super) struct Joined {
    socket: Arc<dyn AsyncUdpSocket>,
    handover: Arc<DatagramHandover>,
    listener: SocketAddr,
    /// Closed while another process reads the socket.
    gate: Arc<Gate>,
    place: u8,
    ids: Ids,
    places: Arc<QuicPlaces>,
    /// Only the endpoint's one task takes from it; the lock is never waited for.
    end: Mutex<mpsc::Receiver<Forwarded>>,
}

impl fmt::Debug for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Joined({})", self.place)
    }
}

impl Joined {
    /// Hands on what is for others; says how many of the buffers stay.
    fn sort(&self, bufs: &mut [IoSliceMut<'_>], meta: &mut [RecvMeta], count: usize) -> usize {
        let mut kept = 0;
        for at in 0..count {
            let bytes = &bufs[at][..meta[at].len];
            if self.hand_on(bytes, &meta[at]) {
                continue;
            }
            if kept != at {
                let (front, back) = bufs.split_at_mut(at);
                front[kept][..meta[at].len].copy_from_slice(&back[0][..meta[at].len]);
                meta[kept] = meta[at];
            }
            kept += 1;
        }
        kept
    }

    /// Whether these bytes were for another socket or process.
    fn hand_on(&self, bytes: &[u8], meta: &RecvMeta) -> bool {
        let packet = || Forwarded {
            listener: self.listener,
            place: self.place,
            client: meta.addr,
            local: meta.dst_ip,
            ecn: meta.ecn,
            stride: meta.stride,
            bytes: bytes.into(),
        };
        match self.ids.owner(meta.addr, bytes) {
            Owner::Place(place) if place == self.place => false,
            Owner::Place(place) => self.places.ways.get(usize::from(place)).is_some_and(|way| {
                // A full queue loses it, as UDP may.
                let _sent = way.try_send(packet());
                true
            }),
            // Where that one is gone, the client is told so by a stateless reset.
            Owner::Before => self.handover.forward_of_generation(packet),
            Owner::Opening(opening) if self.handover.forward_opening(opening, packet) => true,
            Owner::Opening(opening) => {
                if let Some(recent) = self.places.recent.get(usize::from(self.place)) {
                    recent.lock().unwrap_or_else(PoisonError::into_inner).note(opening, Instant::now());
                }
                false
            }
            Owner::Unknown => false,
        }
    }

    fn poll_stray(&self, cx: &mut Context<'_>) -> Poll<Option<Forwarded>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).poll_recv(cx)
    }
}

impl AsyncUdpSocket for Joined {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.socket.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.socket.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Some(stray)) = self.poll_stray(cx) {
            let length = stray.bytes.len().min(bufs[0].len());
            bufs[0][..length].copy_from_slice(&stray.bytes[..length]);
            meta[0] = RecvMeta {
                addr: stray.client,
                len: length,
                stride: stray.stride,
                ecn: stray.ecn,
                dst_ip: stray.local,
            };
            return Poll::Ready(Ok(1));
        }
        loop {
            if !self.gate.poll(cx) {
                return Poll::Pending;
            }
            let count = std::task::ready!(self.socket.poll_recv(cx, bufs, meta))?;
            let kept = self.sort(bufs, meta, count);
            if kept > 0 {
                return Poll::Ready(Ok(kept));
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.socket.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.socket.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.socket.may_fragment()
    }
}
