//! A name server for the target's name, which answers, fails, keeps silent, or names another machine.

use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// The name under which the gateway knows the target.
pub(crate) const NAME: &str = "target.faults.test";

/// How it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Zone {
    /// Names the address it has.
    Good,
    /// Says that it fails.
    Fails,
    /// Says nothing.
    Silent,
    /// Answers NXDOMAIN.
    Unknown,
    /// Answers what is no answer.
    Garbage,
}

/// A name server at an address of its own, on port 53: that is where a resolver's configuration can send it.
pub(crate) struct Names {
    at: Ipv4Addr,
    state: Arc<NameServerState>,
}

struct NameServerState {
    zone: AtomicU8,
    /// What it says the target's address is.
    address: AtomicU32,
}

impl Names {
    /// `None` where this process may not have the port, or not give the gateway files of its own: both take root.
    pub(crate) fn start(seed: u64, folder: &Path) -> Option<Self> {
        let [_, _, high, low] = u32::try_from(seed & 0xFFFF).ok()?.to_be_bytes();
        let at = Ipv4Addr::new(127, 77, high, low.max(1));
        let socket = UdpSocket::bind((at, 53)).ok()?;
        std::fs::write(
            folder.join("resolv.conf"),
            format!("nameserver {at}\noptions timeout:1 attempts:1\n"),
        )
        .ok()?;
        let mut mount = Command::new("unshare");
        mount.args(["-m", "mount", "--bind"]).arg(folder.join("resolv.conf")).arg("/etc/resolv.conf");
        mount.stderr(Stdio::null()).status().ok().filter(std::process::ExitStatus::success)?;
        let address = AtomicU32::new(Ipv4Addr::LOCALHOST.to_bits());
        let state = Arc::new(NameServerState { zone: AtomicU8::new(Zone::Good as u8), address });
        let shared = Arc::downgrade(&state);
        socket.set_read_timeout(Some(Duration::from_millis(200))).ok()?;
        thread::spawn(move || {
            let mut buffer = [0; 1500];
            // Until its run ends.
            while let Some(state) = shared.upgrade() {
                if let Ok((length, from)) = socket.recv_from(&mut buffer)
                    && let Some(answer) = state.answer(&buffer[..length])
                {
                    drop(socket.send_to(&answer, from));
                }
            }
        });
        Some(Self { at, state })
    }

    /// The address it listens on.
    pub(crate) fn at(&self) -> Ipv4Addr {
        self.at
    }

    pub(crate) fn set(&self, zone: Zone) {
        self.state.zone.store(zone as u8, Ordering::Relaxed);
    }

    /// From now on the target is there.
    pub(crate) fn point(&self, address: Ipv4Addr) {
        self.state.address.store(address.to_bits(), Ordering::Relaxed);
    }
}

impl NameServerState {
    fn answer(&self, query: &[u8]) -> Option<Vec<u8>> {
        let zone = self.zone.load(Ordering::Relaxed);
        let is = |wanted: Zone| zone == wanted as u8;
        if is(Zone::Silent) {
            return None;
        }
        if is(Zone::Garbage) {
            return Some(vec![0xA5; 33]);
        }
        let id = query.get(..2)?;
        // Labels up to the empty one, then type and class.
        let mut end = 12;
        while *query.get(end)? != 0 {
            end += 1 + usize::from(*query.get(end)?);
        }
        let question = query.get(12..end + 5)?;
        let wants_v4 = question.get(question.len() - 4..question.len() - 2)? == [0, 1];
        let (code, answers) = match () {
            () if is(Zone::Fails) => (2, 0),
            () if is(Zone::Unknown) => (3, 0),
            () => (0, u8::from(wants_v4)),
        };
        let head = [&[0x85, 0x80 | code, 0, 1, 0, answers, 0, 0, 0, 0][..]].concat();
        let mut answer = [id, &head, question].concat();
        if answers == 1 {
            let address = self.address.load(Ordering::Relaxed).to_be_bytes();
            // A pointer to the question's name; an address, of the internet, for a second.
            answer.extend_from_slice(&[0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
            answer.extend_from_slice(&address);
        }
        Some(answer)
    }
}
