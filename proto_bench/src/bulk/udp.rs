//! Bulk over UDP: numbered datagrams, each checked; what is missing at the end was lost.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::content;
use super::{BulkPlan, Pace, Shared};

/// A socket whose datagrams are checked.
#[derive(Debug)]
pub struct Sink {
    socket: Arc<UdpSocket>,
    pub address: SocketAddr,
}

/// Bytes of a datagram's number.
pub const NUMBER: usize = 8;
/// How long the sink waits for datagrams on their way once the senders have stopped.
const REST: Duration = Duration::from_millis(300);

impl Sink {
    pub(super) fn open(at: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(at)?;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        // As much as the system allows: the sink must not be what loses datagrams.
        drop(socket2::SockRef::from(&socket).set_recv_buffer_size(16 << 20));
        let address = socket.local_addr()?;
        Ok(Self { socket: Arc::new(socket), address })
    }

    /// Reads until the senders have stopped and nothing comes any more.
    pub(super) fn start(&self, shared: &Arc<Shared>) -> JoinHandle<io::Result<()>> {
        let (socket, shared) = (self.socket.clone(), shared.clone());
        thread::spawn(move || read(&socket, &shared))
    }
}

fn read(socket: &UdpSocket, shared: &Shared) -> io::Result<()> {
    let mut buffer = vec![0; 65_536];
    let mut last = Instant::now();
    loop {
        match socket.recv(&mut buffer) {
            Ok(count) => {
                last = Instant::now();
                shared.received.fetch_add(count as u64, Relaxed);
                shared.datagrams_received.fetch_add(1, Relaxed);
                if !is_right(&buffer[..count]) {
                    shared.wrong.fetch_add(1, Relaxed);
                }
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                if shared.stopped() && last.elapsed() > REST {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether a datagram's bytes are those of its number.
fn is_right(datagram: &[u8]) -> bool {
    let Some((number, rest)) = datagram.split_first_chunk::<NUMBER>() else { return false };
    *rest == *content::at(u64::from_be_bytes(*number), rest.len())
}

/// Starts a sender for each flow.
pub(super) fn senders(
    plan: &BulkPlan,
    to: SocketAddr,
    shared: &Arc<Shared>,
) -> Vec<JoinHandle<io::Result<()>>> {
    let rate = plan.rate.map(|rate| rate / f64::from(plan.streams.max(1)));
    let size = plan.datagram.max(NUMBER);
    let send = |_| {
        let shared = shared.clone();
        thread::spawn(move || send(to, rate, size, &shared))
    };
    (0..plan.streams).map(send).collect()
}

fn send(to: SocketAddr, rate: Option<f64>, size: usize, shared: &Shared) -> io::Result<()> {
    let any = if to.is_ipv4() {
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))
    } else {
        "[::]:0".parse().map_err(io::Error::other)?
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(to)?;
    let mut pace = Pace::new(rate);
    let mut datagram = vec![0; size];
    let mut number = fastrand::u64(..) >> 1;
    while !shared.stopped() {
        pace.wait(size);
        number += 1;
        datagram[..NUMBER].copy_from_slice(&number.to_be_bytes());
        datagram[NUMBER..].copy_from_slice(content::at(number, size - NUMBER));
        match socket.send(&datagram) {
            Ok(_) => {
                shared.sent.fetch_add(size as u64, Relaxed);
                shared.datagrams_sent.fetch_add(1, Relaxed);
            }
            // A full queue, or a port that closed: the datagram was never on its way.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionRefused) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
