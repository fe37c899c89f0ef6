//! Datagrams of clients that have no session: which proxy they are for, whether their address is proved, and whether
//! they are an old client in a new place.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway_core::config::snapshot::Route;
use gateway_core::http::exchange::Client;
use gateway_core::stream::flow::Flow;
use gateway_core::stream::pipeline;
use gateway_core::stream::session::Session as Seen;
use gateway_core::stream::table::{Transport, rules};

use super::cookie::Claim;
use super::hello::Hello;
use super::initial::{Asked, Id, Long, Opening, is_short};
use super::leg::{Emit, Leg};
use super::port::{Port, slot_of};
use super::session::{Session, Stage, Whence};

/// Handshakes under way at a time; one that would be beyond takes the oldest one's place.
const MAX_HANDSHAKES: usize = 1024;
/// Clients at a time whose first words do not yet say which proxy they are for.
const MAX_ARRIVALS: usize = 1024;
/// Datagrams such a client may send before it has said so.
const MAX_FIRST_WORDS: usize = 8;
/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// Connection ids kept of a session.
const MAX_IDS: usize = 8;

/// Clients whose proxy is not known yet.
#[derive(Default)]
pub(super) struct Arrivals(HashMap<Whence, Arrival>);

struct Arrival {
    opening: Opening,
    datagrams: Vec<Vec<u8>>,
    since: Instant,
}

impl Arrivals {
    /// What a client asks for; its datagrams are kept for as long as that takes.
    fn ask(&mut self, whence: Whence, datagram: &[u8], now: Instant) -> Asked {
        if let Some(hello) = Hello::read(datagram) {
            return hello.server_name().map_or(Asked::Unknown, Asked::Name);
        }
        if let Some(arrival) = self.0.get_mut(&whence) {
            if arrival.datagrams.len() >= MAX_FIRST_WORDS {
                return Asked::More;
            }
            let asked = arrival.opening.take(datagram);
            if asked == Asked::More {
                arrival.datagrams.push(datagram.to_vec());
            }
            return asked;
        }
        let mut opening = Opening::default();
        let asked = opening.take(datagram);
        if asked == Asked::More && self.0.len() < MAX_ARRIVALS {
            self.0.insert(whence, Arrival { opening, datagrams: vec![datagram.to_vec()], since: now });
        }
        asked
    }

    /// The datagrams a client had to wait with.
    fn take(&mut self, whence: Whence) -> Vec<Vec<u8>> {
        self.0.remove(&whence).map(|arrival| arrival.datagrams).unwrap_or_default()
    }

    /// Forgets those who never came to the point.
    pub(super) fn expire(&mut self, now: Instant) {
        self.0.retain(|_, arrival| now < arrival.since + PATIENCE);
    }
}

/// Sessions by the connection ids of QUIC, as far as they can be seen: servers' first ids, and those that clients use.
#[derive(Default)]
pub(super) struct Connections {
    sessions: HashMap<Id, u64>,
    /// How many ids there are of each length, since a short header doesn't say where its id ends.
    lengths: [usize; 21],
}

/// The ids of one session.
#[derive(Default)]
pub(super) struct Ids {
    known: Vec<Id>,
}

impl Connections {
    fn find(&self, datagram: &[u8]) -> Option<u64> {
        let lengths = self.lengths.iter().enumerate().filter(|(length, count)| *length > 0 && **count > 0);
        lengths.rev().find_map(|(length, _)| self.sessions.get(datagram.get(1..=length)?).copied())
    }

    fn learn(&mut self, ids: &mut Ids, id: &[u8], key: u64) {
        if id.is_empty() || ids.known.last().is_some_and(|last| last[..] == *id) {
            return;
        }
        if let Some(at) = ids.known.iter().position(|known| known[..] == *id) {
            ids.known[at..].rotate_left(1);
            return;
        }
        if ids.known.len() >= MAX_IDS {
            let oldest = ids.known.remove(0);
            self.forget_one(&oldest);
        }
        let id = Id::from_slice(id);
        // Two servers may have chosen the same; the first one keeps it.
        if self.sessions.contains_key(&id) {
            return;
        }
        if let Some(count) = self.lengths.get_mut(id.len()) {
            *count += 1;
        }
        self.sessions.insert(id.clone(), key);
        ids.known.push(id);
    }

    fn forget_one(&mut self, id: &Id) {
        if self.sessions.remove(id).is_some()
            && let Some(count) = self.lengths.get_mut(id.len())
        {
            *count -= 1;
        }
    }

    /// The session has ended.
    pub(super) fn forget(&mut self, ids: &Ids) {
        ids.known.iter().for_each(|id| self.forget_one(id));
    }

    /// A target's datagram: a long header names the id its server goes by.
    pub(super) fn reply(&mut self, ids: &mut Ids, datagram: &[u8], key: u64) {
        if let Some(long) = Long::read(datagram) {
            self.learn(ids, long.source, key);
        }
    }

    /// A client's datagram: a short header names the id it now uses, as long as those before.
    fn request(&mut self, ids: &mut Ids, datagram: &[u8], key: u64) {
        if is_short(datagram)
            && let Some(length) = ids.known.last().map(Id::len)
            && let Some(id) = datagram.get(1..=length)
        {
            self.learn(ids, id, key);
        }
    }
}

impl Port {
    /// A datagram of a client that has no session.
    pub(super) fn arrive(&mut self, whence: Whence, datagram: &[u8], now: Instant) {
        let snapshot = self.worker.snapshot();
        let mut name = None;
        if snapshot.streams.asks_for_name(Transport::Udp, self.number) {
            if let Some(key) = self.moved(whence, datagram) {
                return self.forward(key, datagram, now);
            }
            match self.arrivals.ask(whence, datagram, now) {
                Asked::Name(asked) => name = asked,
                Asked::Unknown => {}
                Asked::More => return,
            }
        }
        let waited = self.arrivals.take(whence);
        let Some(route) = snapshot.streams.find(Transport::Udp, self.number, name.as_deref()) else {
            let seen = self.seen(whence, name);
            return pipeline::refuse(self.worker.recorder().as_ref(), "udp", seen, "no_route");
        };
        if rules(route).is_some_and(|rules| rules.frontend_tls) {
            return self.greet((whence, name), route, datagram, now);
        }
        let Some(key) = self.begin((whence, name), route, Leg::Plain, now) else { return };
        for datagram in waited.iter().map(Vec::as_slice).chain([datagram]) {
            self.forward(key, datagram, now);
        }
    }

    /// Answers a client's first words over DTLS. Until the cookie it gets comes back nothing is kept: neither a place
    /// among the sessions, nor a handshake.
    fn greet(
        &mut self,
        (whence, name): (Whence, Option<String>),
        route: &Arc<Route>,
        datagram: &[u8],
        now: Instant,
    ) {
        let Some(hello) = Hello::read(datagram) else { return };
        let claim = Claim { hello: &hello, client: whence.client };
        let Some(engine) = self.dtls.server(now) else { return };
        let mut client = Leg::sealed(engine, None);
        let wire = &self.wire;
        let Some(proof) = claim.proof() else {
            let Some(fresh) = claim.fresh() else { return };
            // Whatever is wrong with it, there is nobody to tell: the address may be anybody's.
            let _answered = fresh.during(&hello, || {
                client.receive(datagram, &mut |emit| {
                    if let Emit::Wire(bytes) = emit {
                        wire.reply(whence, bytes);
                    }
                })
            });
            return;
        };
        // What the engine would have heard and said first; the client has its answer already.
        let before = hello.without_cookie(proof.padding);
        if proof.during(&hello, || client.receive(&before, &mut |_| ())).is_err() {
            return;
        }
        if self.handshakes.len() >= MAX_HANDSHAKES && !self.make_room() {
            return;
        }
        let Some(key) = self.begin((whence, name), route, client, now) else { return };
        proof.during(&hello, || self.forward(key, datagram, now));
    }

    /// Begins a session for a new client; `None` when there are as many as there may be.
    fn begin(
        &mut self,
        (whence, name): (Whence, Option<String>),
        route: &Arc<Route>,
        client: Leg,
        now: Instant,
    ) -> Option<u64> {
        let protocol = if matches!(client, Leg::Plain) { "udp" } else { "dtls" };
        let seen = self.seen(whence, name);
        let Some(flow) = Flow::begin(self.worker.recorder().clone(), route.clone(), seen, protocol) else {
            self.worker.connection_refused();
            return None;
        };
        let session = Session::new(whence, client, flow, now);
        let (idle, plain) = (session.idle, session.client.is_ready());
        let slot = self.sessions.insert(session);
        if self.generations.len() <= slot {
            self.generations.resize(slot + 1, 0);
        }
        let key = u64::from(self.generations[slot]) << 32 | slot as u64;
        self.by_client.insert(whence, key);
        self.expiry.push_back((now + idle, key));
        if plain {
            self.open(key);
        } else {
            self.handshakes.push_back(key);
        }
        Some(key)
    }

    /// The client as plugins and records see it.
    fn seen(&self, whence: Whence, name: Option<String>) -> Seen {
        let local =
            SocketAddr::new(whence.local.unwrap_or_else(|| self.wire.local.ip()), self.wire.local.port());
        let from = whence.client.ip().to_canonical();
        let snapshot = self.worker.snapshot();
        let trusted = snapshot.settings.trusted_proxies.iter().any(|net| net.contains(&from));
        let mut seen = Seen::new(Arc::new(Client::new(whence.client, local, trusted, None)));
        seen.server_name = name.map(Arc::from);
        seen
    }

    /// Ends the oldest client's handshake: those that never go on must not keep everybody else out. False when there
    /// is none.
    fn make_room(&mut self) -> bool {
        for _ in 0..self.handshakes.len() {
            let Some(key) = self.handshakes.pop_front() else { break };
            if !self.is_current(key) {
                return true;
            }
            if matches!(self.sessions[slot_of(key)].stage, Stage::Greeting(_)) {
                self.end(key, "handshake_displaced");
                return true;
            }
            self.handshakes.push_back(key);
        }
        false
    }

    /// The session of a QUIC client whose address has changed, by the id in its datagram.
    fn moved(&mut self, whence: Whence, datagram: &[u8]) -> Option<u64> {
        if !is_short(datagram) {
            return None;
        }
        let key = self.connections.find(datagram).filter(|key| self.is_current(*key))?;
        let session = self.sessions.get_mut(slot_of(key))?;
        self.by_client.remove(&session.whence);
        session.whence = whence;
        self.by_client.insert(whence, key);
        Some(key)
    }

    /// Looks for connection ids in a client's datagram.
    pub(super) fn learn(&mut self, key: u64, datagram: &[u8]) {
        if let Some(ids) = self.sessions.get_mut(slot_of(key)).and_then(|session| session.ids.as_deref_mut())
        {
            self.connections.request(ids, datagram, key);
        }
    }
}
