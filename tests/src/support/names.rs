//! A name server that answers questions about services.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A record of a service: priority, weight, port and host.
pub(crate) type Srv = (u16, u16, u16, &'static str);

/// How it answers.
#[derive(Debug, Clone)]
pub(crate) enum Zone {
    /// With these records, each for a second.
    Servers(Vec<Srv>),
    /// With this address, for a second.
    Address([u8; 4]),
    /// That it fails.
    Fails,
    /// That there is no such name.
    Unknown,
}

/// A running name server; gone when dropped.
pub(crate) struct Names {
    pub(crate) address: SocketAddr,
    state: Arc<NameServerState>,
}

struct NameServerState {
    zone: Mutex<Zone>,
    asked: AtomicUsize,
}

impl Names {
    pub(crate) fn start(zone: Zone) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
        let address = socket.local_addr().expect("an address");
        let state = Arc::new(NameServerState { zone: Mutex::new(zone), asked: AtomicUsize::new(0) });
        let shared = Arc::downgrade(&state);
        std::thread::spawn(move || {
            let mut query = [0; 1500];
            while let Some(state) = shared.upgrade() {
                if let Ok((length, client)) = socket.recv_from(&mut query)
                    && let Some(answer) = state.answer(&query[..length])
                {
                    drop(socket.send_to(&answer, client));
                }
            }
        });
        Self { address, state }
    }

    /// Answers so from now on.
    pub(crate) fn set(&self, zone: Zone) {
        *self.state.zone.lock().unwrap() = zone;
    }

    /// Questions about services so far.
    pub(crate) fn asked(&self) -> usize {
        self.state.asked.load(Ordering::SeqCst)
    }

    /// The setting that has a gateway ask it.
    pub(crate) fn setting(&self) -> String {
        format!("  dns_servers: ['{}']", self.address)
    }
}

impl NameServerState {
    fn answer(&self, query: &[u8]) -> Option<Vec<u8>> {
        const SRV: [u8; 2] = [0, 33];
        const A: [u8; 2] = [0, 1];
        // Labels up to the empty one, then type and class.
        let mut end = 12;
        while *query.get(end)? != 0 {
            end += 1 + usize::from(*query.get(end)?);
        }
        let question = query.get(12..end + 5)?;
        let is_service = question.get(question.len() - 4..question.len() - 2)? == SRV;
        let zone = self.zone.lock().unwrap().clone();
        let is_address = question.get(question.len() - 4..question.len() - 2)? == A;
        if let (Zone::Address(address), true) = (&zone, is_address) {
            let head = [0x85, 0x80, 0, 1, 0, 1, 0, 0, 0, 0];
            let record = [0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4];
            self.asked.fetch_add(1, Ordering::SeqCst);
            return Some([query.get(..2)?, &head, question, &record, address].concat());
        }
        let (code, servers) = match zone {
            Zone::Address(_) => (0, Vec::new()),
            Zone::Fails => (2, Vec::new()),
            Zone::Unknown => (3, Vec::new()),
            Zone::Servers(servers) => (0, if is_service { servers } else { Vec::new() }),
        };
        let count = u16::try_from(servers.len()).ok()?.to_be_bytes();
        let head = [0x85, 0x80 | code, 0, 1, count[0], count[1], 0, 0, 0, 0];
        let mut answer = [query.get(..2)?, &head, question].concat();
        for (priority, weight, port, host) in servers {
            let mut data = [priority.to_be_bytes(), weight.to_be_bytes(), port.to_be_bytes()].concat();
            for label in host.split('.') {
                data.push(u8::try_from(label.len()).ok()?);
                data.extend_from_slice(label.as_bytes());
            }
            data.push(0);
            let length = u16::try_from(data.len()).ok()?.to_be_bytes();
            // A pointer to the question's name; a service, of the internet, for a second.
            answer.extend_from_slice(&[0xC0, 12, 0, 33, 0, 1, 0, 0, 0, 1, length[0], length[1]]);
            answer.extend_from_slice(&data);
        }
        self.asked.fetch_add(usize::from(is_service), Ordering::SeqCst);
        Some(answer)
    }
}
