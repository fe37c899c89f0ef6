//! The network between the gateway and its database.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// How the network behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Line {
    /// Carries everything.
    Good,
    /// Takes connections and bytes, and carries nothing.
    BlackHole,
    /// Closes what comes.
    Refuses,
}

/// A relay in front of a server.
pub(crate) struct Relay {
    pub(crate) at: SocketAddr,
    state: Arc<RelayState>,
}

struct RelayState {
    line: AtomicU8,
    /// Raised to close every connection there is.
    cut: AtomicU64,
}

impl Relay {
    pub(crate) fn start(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let state = Arc::new(RelayState { line: AtomicU8::new(Line::Good as u8), cut: AtomicU64::new(0) });
        let shared = state.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if shared.is(Line::Refuses) {
                    continue;
                }
                // A server that is away closes it.
                let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                for (from, into) in [(&client, &server), (&server, &client)] {
                    let (from, into) = (from.try_clone().unwrap(), into.try_clone().unwrap());
                    let state = shared.clone();
                    thread::spawn(move || state.carry(from, into));
                }
            }
        });
        Self { at, state }
    }

    pub(crate) fn set(&self, line: Line) {
        self.state.line.store(line as u8, Ordering::Relaxed);
    }

    /// Closes every connection there is.
    pub(crate) fn cut(&self) {
        self.state.cut.fetch_add(1, Ordering::Relaxed);
    }
}

impl RelayState {
    fn is(&self, line: Line) -> bool {
        self.line.load(Ordering::Relaxed) == line as u8
    }

    fn carry(&self, mut from: TcpStream, mut into: TcpStream) {
        let cut = self.cut.load(Ordering::Relaxed);
        drop(from.set_read_timeout(Some(Duration::from_millis(20))));
        let mut buffer = [0; 16 << 10];
        loop {
            let read = from.read(&mut buffer);
            while self.is(Line::BlackHole) && self.cut.load(Ordering::Relaxed) == cut {
                thread::sleep(Duration::from_millis(5));
            }
            if self.cut.load(Ordering::Relaxed) != cut {
                break;
            }
            match read {
                Ok(0) => break,
                Ok(bytes) => {
                    if into.write_all(&buffer[..bytes]).is_err() {
                        break;
                    }
                }
                Err(error)
                    if matches!(
                        error.kind(),
                        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                    ) => {}
                Err(_) => break,
            }
        }
        drop(from.shutdown(Shutdown::Both));
        drop(into.shutdown(Shutdown::Both));
    }
}
