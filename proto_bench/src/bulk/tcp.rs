//! Bulk over TCP.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::content::{self, PIECE};
use super::{BulkPlan, Pace, Shared};

/// A listener whose connections are read and checked.
#[derive(Debug)]
pub struct Sink {
    listener: Arc<TcpListener>,
    pub address: SocketAddr,
}

/// How long a connection may take to arrive through a proxy.
const ARRIVAL: Duration = Duration::from_secs(10);
/// How long a silent connection is read from.
const SILENCE: Duration = Duration::from_secs(20);
/// What is written at a time with a slow pace: a thousandth of a second's worth, but no less than a segment.
const SEGMENT: usize = 1448;

impl Sink {
    pub(super) fn open(at: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(at)?;
        // A proxy may probe the port; a sink that waits for ever would never end.
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener: Arc::new(listener), address })
    }

    /// Reads so many connections to their ends, each on a thread.
    pub(super) fn start(&self, streams: u32, shared: &Arc<Shared>) -> Vec<JoinHandle<io::Result<()>>> {
        let read = |_| {
            let (listener, shared) = (self.listener.clone(), shared.clone());
            thread::spawn(move || read(&accept(&listener)?, &shared))
        };
        (0..streams).map(read).collect()
    }
}

fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    let begun = Instant::now();
    loop {
        match listener.accept() {
            Ok((connection, _)) => {
                connection.set_nonblocking(false)?;
                connection.set_read_timeout(Some(SILENCE))?;
                // Whoever connects only to see whether the port is open sends nothing.
                if connection.peek(&mut [0])? > 0 {
                    return Ok(connection);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(1))
            }
            Err(error) => return Err(error),
        }
        if begun.elapsed() > ARRIVAL {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no connection arrived"));
        }
    }
}

fn read(mut connection: &TcpStream, shared: &Shared) -> io::Result<()> {
    let mut buffer = vec![0; PIECE];
    let mut place = 0;
    loop {
        let count = match connection.read(&mut buffer)? {
            0 => return Ok(()),
            count => count,
        };
        if buffer[..count] != *content::at(place, count) {
            shared.wrong.fetch_add(1, Relaxed);
        }
        place += count as u64;
        shared.received.fetch_add(count as u64, Relaxed);
    }
}

/// Starts a sender for each stream.
pub(super) fn senders(
    plan: &BulkPlan,
    to: SocketAddr,
    shared: &Arc<Shared>,
) -> Vec<JoinHandle<io::Result<()>>> {
    let rate = plan.rate.map(|rate| rate / f64::from(plan.streams.max(1)));
    let send = |_| {
        let shared = shared.clone();
        thread::spawn(move || send(to, rate, &shared))
    };
    (0..plan.streams).map(send).collect()
}

fn send(to: SocketAddr, rate: Option<f64>, shared: &Shared) -> io::Result<()> {
    let mut connection = TcpStream::connect(to)?;
    connection.set_nodelay(true)?;
    connection.set_write_timeout(Some(SILENCE))?;
    let mut pace = Pace::new(rate);
    let size = piece(rate);
    let mut place = 0;
    while !shared.stopped() {
        pace.wait(size);
        connection.write_all(content::at(place, size))?;
        place += size as u64;
        shared.sent.fetch_add(size as u64, Relaxed);
    }
    connection.shutdown(std::net::Shutdown::Write)?;
    // The sink closes once it has read everything; a proxy passes that on.
    drop(connection.read(&mut [0]));
    Ok(())
}

/// Bytes of one write.
fn piece(rate: Option<f64>) -> usize {
    match rate {
        None => PIECE / 2,
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the bounds")]
        Some(rate) => ((rate / 8.0 / 1000.0).min(1e9) as usize).clamp(SEGMENT, PIECE / 2),
    }
}
