//! `relay`: bytes from one TCP connection to another and back, with one thread, two reads and two writes a round trip. It is
//! the floor of `compare`: no proxy on the same system calls can cost less.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};

use super::CommandError;
use crate::command::ExitStatus;

/// Arguments of `relay`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where clients connect.
    #[arg(long, value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Where each client's bytes go, over a connection of its own.
    #[arg(long, value_name = "ADDRESS")]
    to: SocketAddr,
}

/// Connections at a time; clients beyond them are closed.
const MOST: usize = 32_768;
const BUFFER_BYTES: usize = 128 << 10;
const LISTENER: u64 = u64::MAX;

/// Relays until it is killed.
///
/// # Errors
/// The port is taken, or the kernel has no epoll for us.
pub fn run(args: &Args) -> Result<ExitStatus, CommandError> {
    relay(args).map_err(CommandError::Relay)
}

fn relay(args: &Args) -> io::Result<ExitStatus> {
    let listener = TcpListener::bind(args.listen)?;
    listener.set_nonblocking(true)?;
    let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&set, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let mut pairs = Pairs { set, ends: Vec::new(), free: Vec::new(), buffer: vec![0; BUFFER_BYTES] };
    let mut events = Vec::with_capacity(1024);
    loop {
        events.clear();
        match epoll::wait(&pairs.set, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            match event.data.u64() {
                LISTENER => pairs.accept(&listener, args.to),
                place => pairs.carry(usize::try_from(place).unwrap_or(usize::MAX)),
            }
        }
    }
}

/// Both ends of each relayed connection, next to each other: the other end of place `n` is at `n ^ 1`.
struct Pairs {
    set: rustix::fd::OwnedFd,
    ends: Vec<Option<TcpStream>>,
    /// Even places that are empty, with the odd ones behind them.
    free: Vec<usize>,
    buffer: Vec<u8>,
}

impl Pairs {
    fn accept(&mut self, listener: &TcpListener, to: SocketAddr) {
        while let Ok((client, _)) = listener.accept() {
            // A client that can't be served sees its connection close.
            let Ok(target) = TcpStream::connect(to) else { continue };
            let _kept = self.keep(client, target);
        }
    }

    fn keep(&mut self, client: TcpStream, target: TcpStream) -> io::Result<()> {
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.ends.len() < 2 * MOST => {
                self.ends.extend([None, None]);
                self.ends.len() - 2
            }
            None => return Ok(()),
        };
        for (at, end) in [(place, client), (place + 1, target)] {
            end.set_nonblocking(true)?;
            end.set_nodelay(true)?;
            epoll::add(&self.set, &end, EventData::new_u64(at as u64), EventFlags::IN)?;
            self.ends[at] = Some(end);
        }
        Ok(())
    }

    /// One read from this end, and what came to the other. Where either fails, both are closed.
    fn carry(&mut self, place: usize) {
        let (Some(Some(from)), Some(Some(to))) = (self.ends.get(place), self.ends.get(place ^ 1)) else {
            return;
        };
        let (mut from, to) = (from, to);
        let carried = match from.read(&mut self.buffer) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => write_all(to, &self.buffer[..bytes]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        };
        if carried.is_err() {
            (self.ends[place], self.ends[place ^ 1]) = (None, None);
            self.free.push(place & !1);
        }
    }
}

/// Waits for a slow reader: whoever measures it measures something else anyway.
fn write_all(mut to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll(&mut [PollFd::from_borrowed_fd(to.as_fd(), PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
