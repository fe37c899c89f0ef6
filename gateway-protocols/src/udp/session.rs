//! One datagram session: its two legs, its socket to the target, its account.

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use gateway_core::balance::{ConnectionPlace, Target};
use gateway_core::config::model::{Scheme, SocketRules};
use gateway_core::http::reply::Cause;
use gateway_core::limit::meter::Admitted;
use gateway_core::pipeline::flow::Flow;
use gateway_core::pipeline::stream::{OpenFailure, Opener};
use gateway_core::snapshot::Route;
use gateway_core::snapshot::streams::{rules, target_port};
use gateway_core::stream::session::{Direction, Session as Seen};

use super::connections::Ids;
use super::dtls::{self, Verifier};
use super::headers::{self, SentHeader};
use super::leg::{Dead, Emit, Leg};
use super::offer::Offer;
use super::stray::AddressPair;
use tokio::sync::oneshot;

use crate::dns::Dns;
use crate::outgoing;
use crate::tls::client::server_name;

/// Why a session ended whose client began anew.
pub(crate) const RESTARTED: Dead = "restarted";

/// A session in the table.
pub(crate) struct Session {
    pub(crate) pair: AddressPair,
    pub(crate) client: Leg,
    pub(crate) stage: SessionStage,
    pub(crate) last: Instant,
    pub(crate) idle: Duration,
    /// Replies together may be this many times as large as the requests so far; infinite without a limit.
    amplification: f64,
    /// Bytes of datagrams from the client, and of payload to it.
    taken: u64,
    given: u64,
    /// The client's address, where each datagram says it; its key beside the proxy's socket.
    pub(crate) named: Option<Box<SocketAddr>>,
    /// Connection ids, where QUIC passes through unopened.
    pub(crate) ids: Option<Box<Ids>>,
}

/// How far a session is.
pub(crate) enum SessionStage {
    /// The client's handshake; no target has been asked yet.
    Greeting(Box<Greeting>),
    /// A target is being found; first datagrams wait.
    Opening(Box<Opening>),
    Open(Box<OpenSession>),
}

/// A session whose client has not said who it is.
pub(crate) struct Greeting {
    pub(crate) flow: Flow,
    /// Payload that came in the same datagram as the end of the handshake.
    pub(crate) early: Vec<Vec<u8>>,
}

/// A session for which a target is looked for.
pub(crate) struct Opening {
    pub(crate) waiting: Vec<Vec<u8>>,
    /// Tells whoever looks for it why to stop.
    pub(crate) looking: oneshot::Sender<Dead>,
}

/// A session with its target.
pub(crate) struct OpenSession {
    pub(crate) flow: Flow,
    pub(crate) socket: UdpSocket,
    pub(crate) target: Leg,
    /// What the target is still to be told, with the next datagram.
    header: Option<Box<SentHeader>>,
    /// Its place among the target's connections, where they are counted.
    _place: Option<ConnectionPlace>,
}

/// The target's end of a session.
pub(crate) struct Outlet {
    pub(crate) socket: UdpSocket,
    pub(crate) leg: Leg,
    header: Option<Box<SentHeader>>,
    place: Option<ConnectionPlace>,
}

/// The target's machine says that nobody listens there.
pub(crate) const REFUSED: Dead = "target_refused";
/// Ends that count against the target, as a connection that fails does.
const TARGET_FAILS: [Dead; 4] =
    [REFUSED, "target_dtls_timeout", "target_dtls_failed", "target_certificate_refused"];
/// Datagrams that wait while a target is found; the first is never lost.
const MAX_WAITING: usize = 16;
/// Sessions without a limit on idleness end after this all the same.
const MAX_IDLE: Duration = Duration::from_secs(3600);

impl Session {
    pub(crate) fn new(pair: AddressPair, client: Leg, flow: Flow, now: Instant) -> Self {
        let rules = rules(flow.route());
        let idle = rules.and_then(|rules| rules.idle_timeout).unwrap_or(MAX_IDLE);
        let amplification = rules.and_then(|rules| rules.max_response_amplification).unwrap_or(f64::INFINITY);
        let ids = rules.is_some_and(|rules| rules.passthrough).then(Box::default);
        let stage = SessionStage::Greeting(Box::new(Greeting { flow, early: Vec::new() }));
        Self { pair, client, stage, last: now, idle, amplification, taken: 0, given: 0, named: None, ids }
    }

    /// A datagram came from the client. `reply` sends to the client.
    pub(crate) fn take_request(
        &mut self,
        datagram: &[u8],
        now: Instant,
        reply: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Dead> {
        self.taken += datagram.len() as u64;
        // Of an established DTLS session only what its client has sealed keeps it: anybody can send the rest.
        let mut heard = !self.client.is_ready();
        let stage = &mut self.stage;
        let (mut dead, mut answers) = (Ok(()), Vec::new());
        let received = self.client.receive(datagram, &mut |emit| match emit {
            Emit::Wire(bytes) => reply(bytes),
            Emit::Payload(payload) => {
                heard = true;
                match stage {
                    // The handshake was done a moment ago; the target is asked for once this datagram is read.
                    SessionStage::Greeting(greeting) => keep(&mut greeting.early, payload),
                    SessionStage::Opening(opening) => keep(&mut opening.waiting, payload),
                    SessionStage::Open(open) => match open.forward(payload) {
                        Ok(more) => answers.extend(more),
                        Err(error) if dead.is_ok() => dead = Err(error),
                        Err(_) => {}
                    },
                }
            }
        });
        if heard {
            self.last = now;
        }
        received?;
        for answer in answers {
            self.client.send(&answer, &mut |emit| {
                if let Emit::Wire(bytes) = emit {
                    reply(bytes);
                }
            })?;
        }
        dead
    }

    /// A datagram came from the target.
    pub(crate) fn take_reply(&mut self, datagram: &[u8], reply: &mut dyn FnMut(&[u8])) -> Result<(), Dead> {
        let SessionStage::Open(open) = &mut self.stage else { return Ok(()) };
        let OpenSession { flow, socket, target, header, .. } = &mut **open;
        let (client, given) = (&mut self.client, &mut self.given);
        let most = self.amplification * self.taken as f64;
        let (mut dead, mut answers) = (Ok(()), Vec::new());
        let received = target.receive(datagram, &mut |emit| match emit {
            Emit::Wire(bytes) => drop(socket.send(bytes)),
            Emit::Payload(payload) => {
                if (*given + payload.len() as u64) as f64 > most {
                    flow.count_dropped();
                    return;
                }
                match flow.admit(Direction::Down, payload.len()) {
                    Admitted::Yes => {}
                    Admitted::Dropped => return,
                    Admitted::Ended(reason) => {
                        dead = dead.and(Err(reason));
                        return;
                    }
                }
                let (mut sent, mut length) = (Ok(()), 0);
                let seen = flow.message(Direction::Down, payload, |payload| {
                    length = payload.len() as u64;
                    sent = client.send(payload, &mut |emit| {
                        if let Emit::Wire(bytes) = emit {
                            reply(bytes);
                        }
                    });
                });
                flow.carried.down += length;
                *given += length;
                match seen {
                    Ok(more) => answers.extend(more),
                    Err(error) => sent = Err(error),
                }
                if dead.is_ok() {
                    dead = sent;
                }
            }
        });
        received.map_err(of_target)?;
        for answer in answers {
            let said = target.send(&answer, &mut |emit| {
                if let Emit::Wire(bytes) = emit {
                    drop(headers::send(socket, header, bytes));
                }
            });
            said.map_err(of_target)?;
        }
        dead
    }

    /// The target was found; what waited goes out.
    pub(crate) fn opened(&mut self, flow: Flow, outlet: Outlet) -> Result<(), Dead> {
        let Outlet { socket, leg, header, place } = outlet;
        let open = OpenSession { flow, socket, target: leg, header, _place: place };
        let stage = std::mem::replace(&mut self.stage, SessionStage::Open(Box::new(open)));
        // From here on the session has its account, so that whatever fails now is in its record.
        let SessionStage::Open(open) = &mut self.stage else { return Ok(()) };
        open.tick(Instant::now())?;
        if let SessionStage::Opening(opening) = stage {
            for payload in opening.waiting {
                open.forward(&payload)?;
            }
        }
        Ok(())
    }

    /// Time has passed for the handshakes.
    pub(crate) fn tick(&mut self, now: Instant, reply: &mut dyn FnMut(&[u8])) -> Result<(), Dead> {
        self.client.tick(now, &mut |emit| {
            if let Emit::Wire(bytes) = emit {
                reply(bytes);
            }
        })?;
        match &mut self.stage {
            SessionStage::Open(open) => open.tick(now),
            SessionStage::Greeting(_) | SessionStage::Opening(_) => Ok(()),
        }
    }

    /// When a handshake wants to be called, if one does.
    pub(crate) fn wake(&self) -> Option<Instant> {
        let target = match &self.stage {
            SessionStage::Open(open) => open.target.wake(),
            SessionStage::Greeting(_) | SessionStage::Opening(_) => None,
        };
        [self.client.wake(), target].into_iter().flatten().min()
    }

    /// Tells both ends that nothing more comes: a DTLS peer that is not told sends into nothing.
    pub(crate) fn close_notify(&mut self, reply: &mut dyn FnMut(&[u8])) {
        self.client.close(&mut |emit| {
            if let Emit::Wire(bytes) = emit {
                reply(bytes);
            }
        });
        self.close_target();
    }

    fn close_target(&mut self) {
        if let SessionStage::Open(open) = &mut self.stage {
            let OpenSession { socket, target, .. } = &mut **open;
            target.close(&mut |emit| {
                if let Emit::Wire(bytes) = emit {
                    drop(socket.send(bytes));
                }
            });
        }
    }

    /// Ends it; the record is written when the session is dropped.
    pub(crate) fn end(mut self, reason: Dead, reply: &mut dyn FnMut(&[u8])) {
        match reason {
            // Its client has forgotten the keys, and another one is at its address (RFC 6347 §4.2.8).
            RESTARTED => self.close_target(),
            _ => self.close_notify(reply),
        }
        match self.stage {
            SessionStage::Greeting(mut greeting) => greeting.flow.reason = reason,
            // The account is with whoever looks for a target. One that has just been found is not waited for.
            SessionStage::Opening(opening) => drop(opening.looking.send(reason)),
            SessionStage::Open(mut open) => {
                open.flow.reason = reason;
                if TARGET_FAILS.contains(&reason) {
                    open.flow.target_failed();
                }
            }
        }
    }
}

/// Keeps a datagram for later, as far as there is room.
fn keep(waiting: &mut Vec<Vec<u8>>, payload: &[u8]) {
    if waiting.len() < MAX_WAITING {
        waiting.push(payload.to_vec());
    }
}

impl OpenSession {
    /// What it returns is to be sent back to the client.
    fn forward(&mut self, payload: &[u8]) -> Result<Vec<Bytes>, Dead> {
        let Self { flow, socket, target, header, .. } = self;
        match flow.admit(Direction::Up, payload.len()) {
            Admitted::Yes => {}
            Admitted::Dropped => return Ok(Vec::new()),
            Admitted::Ended(reason) => return Err(reason),
        }
        let (mut dead, mut length) = (Ok(()), 0);
        let mut sent = Ok(());
        let answers = flow.message(Direction::Up, payload, |payload| {
            length = payload.len() as u64;
            sent = target.send(payload, &mut |emit| {
                if let Emit::Wire(bytes) = emit {
                    dead = on_wire(headers::send(socket, header, bytes));
                }
            });
        })?;
        flow.carried.up += length;
        sent.map_err(of_target).and(dead).map(|()| answers)
    }

    fn tick(&mut self, now: Instant) -> Result<(), Dead> {
        let socket = &self.socket;
        let ticked = self.target.tick(now, &mut |emit| {
            if let Emit::Wire(bytes) = emit {
                drop(socket.send(bytes));
            }
        });
        ticked.map_err(of_target)
    }
}

/// Whose DTLS it was that failed: records tell a target's from a client's.
fn of_target(dead: Dead) -> Dead {
    match dead {
        "dtls_timeout" => "target_dtls_timeout",
        "dtls_certificate_refused" | "dtls_certificate_missing" => "target_certificate_refused",
        "dtls_failed" | "dtls_panicked" => "target_dtls_failed",
        other => other,
    }
}

/// A full socket buffer loses the datagram, as UDP may; a port nobody listens on ends the session.
fn on_wire(sent: io::Result<usize>) -> Result<(), Dead> {
    match sent {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Err(REFUSED),
        _ => Ok(()),
    }
}

/// Opens the way to a target: a connected socket, and DTLS where the proxy wants it.
pub(crate) struct OutletOpener {
    pub(crate) dns: Arc<Dns>,
}

impl Opener for OutletOpener {
    type Target = Outlet;
    const CONNECTS: bool = false;

    async fn open(&self, route: &Route, target: &Target, session: &Seen) -> Result<Outlet, OpenFailure> {
        let backend = &route.proxy.backend;
        let mapped = target_port(route, target.rules.port, session.client.port);
        let port = mapped.ok_or(Cause::ConnectFailed)?;
        let place = match target.connection_limit() {
            Some(limit) => Some(limit.try_place(true).ok_or(Cause::NoTarget)?),
            None => None,
        };
        let addresses = match backend.dns_override() {
            Some(address) => vec![SocketAddr::new(address, port)],
            None => {
                let found = self.dns.resolve(&target.rules.host, port, backend.dns_ttl()).await;
                found.map_err(|error| failed(Cause::DnsFailed, error))?
            }
        };
        let sockets = backend.sockets().map(|rules| &**rules);
        let socket = connected(&addresses, sockets, session.client_address)?;
        let sends_client_name = rules(route).is_some_and(|rules| rules.sends_client_name);
        let leg = match &backend.tls {
            Some(rules) if backend.scheme == Scheme::Dtls => {
                let asked = session.server_name.as_ref().filter(|_| sends_client_name);
                let host = asked.unwrap_or(&target.rules.host);
                let verifier =
                    Verifier::target(rules, host).map_err(|error| failed(Cause::TlsFailed, error))?;
                let engine =
                    dtls::client(rules, Instant::now()).map_err(|error| failed(Cause::TlsFailed, error))?;
                let name = server_name(rules, host).ok();
                let mut leg = Leg::to_target(engine, verifier, Offer::to(name.as_ref()));
                leg.limit(Instant::now(), route.proxy.timeouts.connect);
                leg
            }
            _ => Leg::Plain,
        };
        Ok(Outlet { socket, leg, header: SentHeader::of(rules(route), session), place })
    }
}

/// A socket to the first of a name's addresses that this machine has a way to: it may have IPv6 alone, or none.
fn connected(
    addresses: &[SocketAddr],
    rules: Option<&SocketRules>,
    client: IpAddr,
) -> Result<UdpSocket, OpenFailure> {
    let mut last = OpenFailure::from(Cause::DnsFailed);
    for address in addresses {
        match outgoing::datagrams(*address, rules, client) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = failed(Cause::ConnectFailed, error),
        }
    }
    Err(last)
}

fn failed(cause: Cause, error: impl Into<Box<dyn Error + Send + Sync>>) -> OpenFailure {
    OpenFailure { cause, source: Some(error.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_way_to_it_is_passed_over() {
        // To a broadcast address nothing is sent unless a socket is told to.
        let (none, some) = (SocketAddr::from(([255; 4], 9)), SocketAddr::from(([127, 0, 0, 1], 9)));
        let connected = |addresses: &[SocketAddr]| connected(addresses, None, [127, 0, 0, 1].into());
        assert_eq!(connected(&[none, some]).unwrap().peer_addr().unwrap(), some);
        assert_eq!(connected(&[none]).unwrap_err().cause, Cause::ConnectFailed);
        assert_eq!(connected(&[]).unwrap_err().cause, Cause::DnsFailed);
    }
}
