//! Several workers on one QUIC port: a packet that reaches the wrong one is handed on.
//!
//! The kernel spreads packets over the workers' sockets by address and port. A client whose address changes (a phone
//! between two networks, a NAT that forgot) would so reach a worker that knows nothing of its connection. Each
//! connection id therefore begins with the number of its worker, and whoever receives a packet for another passes it on.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, ConnectionId, ConnectionIdGenerator, UdpPoller};
use tokio::sync::mpsc;

/// Packets on their way from one worker to another; beyond that they are lost, as packets may be.
const QUEUE: usize = 1024;
/// Bytes of a connection id: the worker's number and seven of chance.
const ID_BYTES: usize = 8;

/// A packet, or several of one client joined by the kernel, for another worker.
struct Stray {
    bytes: Box<[u8]>,
    meta: RecvMeta,
}

/// The ways between the workers of one port.
pub struct Demultiplexer {
    ways: Arc<[mpsc::Sender<Stray>]>,
    ends: Vec<Option<mpsc::Receiver<Stray>>>,
}

/// One worker's place on a port.
pub struct WorkerPort {
    worker: u8,
    ways: Arc<[mpsc::Sender<Stray>]>,
    end: mpsc::Receiver<Stray>,
}

impl fmt::Debug for WorkerPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkerPort({} of {})", self.worker, self.ways.len())
    }
}

impl Demultiplexer {
    /// Ways between so many workers, at most 256; further ones get no strays.
    pub fn new(workers: usize) -> Self {
        let (ways, ends): (Vec<_>, Vec<_>) = (0..workers.min(256)).map(|_| mpsc::channel(QUEUE)).unzip();
        Self { ways: ways.into(), ends: ends.into_iter().map(Some).collect() }
    }

    /// The place of a worker, once.
    pub fn place(&mut self, worker: usize) -> Option<WorkerPort> {
        let end = self.ends.get_mut(worker)?.take()?;
        Some(WorkerPort { worker: u8::try_from(worker).ok()?, ways: self.ways.clone(), end })
    }
}

impl WorkerPort {
    /// Makes connection ids that lead back to this worker.
    pub(super) fn ids(&self) -> Ids {
        Ids { worker: self.worker }
    }

    /// A socket that hands strays on and takes its own in.
    pub(super) fn join(self, socket: Arc<dyn AsyncUdpSocket>) -> Arc<Joined> {
        let Self { worker, ways, end } = self;
        Arc::new(Joined { socket, worker, ways, end: Mutex::new(end) })
    }
}

/// Connection ids with the worker's number in front.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ids {
    worker: u8,
}

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = fastrand::u64(..).to_be_bytes();
        id[0] = self.worker;
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

/// A worker's socket on a shared port.
pub(super) struct Joined {
    socket: Arc<dyn AsyncUdpSocket>,
    worker: u8,
    ways: Arc<[mpsc::Sender<Stray>]>,
    /// Only the endpoint's one task takes from it; the lock is never waited for.
    end: Mutex<mpsc::Receiver<Stray>>,
}

impl fmt::Debug for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Joined({})", self.worker)
    }
}

/// The worker a packet is for; `None` for packets of a handshake, whose ids the client chose.
fn addressee(packet: &[u8]) -> Option<u8> {
    match packet {
        // RFC 9000 §17.3: a short header is one byte, then the id.
        [first, worker, ..] if first & 0x80 == 0 => Some(*worker),
        _ => None,
    }
}

impl Joined {
    /// Hands on what is for others; says how many of the buffers stay.
    fn sort(&self, bufs: &mut [IoSliceMut<'_>], meta: &mut [RecvMeta], count: usize) -> usize {
        let mut kept = 0;
        for at in 0..count {
            let bytes = &bufs[at][..meta[at].len];
            let to = addressee(bytes).filter(|to| *to != self.worker);
            match to.and_then(|to| self.ways.get(usize::from(to))) {
                Some(way) => drop(way.try_send(Stray { bytes: bytes.into(), meta: meta[at] })),
                None => {
                    if kept != at {
                        let (front, back) = bufs.split_at_mut(at);
                        front[kept][..meta[at].len].copy_from_slice(&back[0][..meta[at].len]);
                        meta[kept] = meta[at];
                    }
                    kept += 1;
                }
            }
        }
        kept
    }

    fn poll_stray(&self, cx: &mut Context<'_>) -> Poll<Option<Stray>> {
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
            meta[0] = RecvMeta { len: length, ..stray.meta };
            return Poll::Ready(Ok(1));
        }
        loop {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_lead_back_to_their_worker() {
        let id = Ids { worker: 7 }.generate_cid();
        let mut packet = vec![0x40];
        packet.extend_from_slice(&id);
        assert_eq!(addressee(&packet), Some(7));
        // A long header belongs to a handshake, wherever it arrives.
        packet[0] = 0xc0;
        assert_eq!(addressee(&packet), None);
        assert_eq!(addressee(&[0x40]), None);
    }
}
