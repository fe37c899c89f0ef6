//! Datagrams of clients that have no session: which proxy they are for, whether their address is proved, and whether
//! they are an old client in a new place.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway_core::http::exchange::Client;
use gateway_core::pipeline::flow::Flow;
use gateway_core::pipeline::stream;
use gateway_core::snapshot::streams::{Transport, rules};
use gateway_core::snapshot::{Route, Snapshot};
use gateway_core::stream::session::Session as Seen;

use super::Port;
use crate::udp::client_table::addresses;
use crate::udp::connections::SessionLookup;
use crate::udp::headers::NewClient;
use crate::udp::hello::Hello;
use crate::udp::initial::{Opening, RequestedName, is_short};
use crate::udp::leg::Leg;
use crate::udp::questions::slot_of;
use crate::udp::session::{Session, SessionStage};
use crate::udp::stray::AddressPair;
use crate::udp::stray::Stray;

/// Handshakes under way at a time; one that would be beyond takes the oldest one's place.
pub(super) const MAX_HANDSHAKES: usize = 1024;
/// Clients at a time whose first words do not yet say which proxy they are for.
const MAX_ARRIVALS: usize = 1024;
/// Datagrams such a client may send before it has said so.
const MAX_FIRST_WORDS: usize = 8;
/// The shortest packet with a short header that a receiver accepts (RFC 9001 §5.4.2): first byte, packet number and sample.
const MIN_SHORT: usize = 21;
/// How long it may take.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Clients whose proxy is not known yet.
#[derive(Default)]
pub(super) struct NewSenders(HashMap<AddressPair, NewSender>);

struct NewSender {
    opening: Opening,
    datagrams: Vec<Vec<u8>>,
    since: Instant,
}

/// What a client asks for.
struct Requested {
    name: RequestedName,
    /// The protocols it offers, in its order.
    alpn: Vec<Vec<u8>>,
}

impl NewSenders {
    /// What a client asks for; its datagrams are kept for as long as that takes. Protocols are read only if a proxy selects by them.
    fn ask(&mut self, pair: AddressPair, datagram: &[u8], now: Instant, needs_alpn: bool) -> Requested {
        if let Some(hello) = Hello::read(datagram) {
            let name = hello.server_name().map_or(RequestedName::Unknown, RequestedName::Name);
            let alpn = if needs_alpn { hello.alpn_protocols() } else { Vec::new() };
            return Requested { name, alpn };
        }
        let offered = |opening: &Opening| if needs_alpn { opening.alpn_protocols() } else { Vec::new() };
        if let Some(arrival) = self.0.get_mut(&pair) {
            if arrival.datagrams.len() >= MAX_FIRST_WORDS {
                return Requested { name: RequestedName::More, alpn: Vec::new() };
            }
            let name = arrival.opening.take(datagram);
            if name == RequestedName::More {
                arrival.datagrams.push(datagram.to_vec());
            }
            return Requested { name, alpn: offered(&arrival.opening) };
        }
        let mut opening = Opening::default();
        let name = opening.take(datagram);
        let alpn = offered(&opening);
        if name == RequestedName::More && self.0.len() < MAX_ARRIVALS {
            self.0.insert(pair, NewSender { opening, datagrams: vec![datagram.to_vec()], since: now });
        }
        Requested { name, alpn }
    }

    /// The datagrams a client had to wait with.
    fn take(&mut self, pair: AddressPair) -> Vec<Vec<u8>> {
        self.0.remove(&pair).map(|arrival| arrival.datagrams).unwrap_or_default()
    }

    /// Forgets those who never came to the point.
    pub(super) fn expire(&mut self, now: Instant) {
        self.0.retain(|_, arrival| now < arrival.since + TIMEOUT);
    }
}

impl Port {
    /// The session of a client's address.
    pub(super) fn session_of(&self, pair: AddressPair) -> Option<u64> {
        self.by_client.get(pair, addresses(&self.sessions))
    }

    /// A datagram of a client that has no session.
    pub(super) fn arrive(&mut self, pair: AddressPair, datagram: &[u8], now: Instant) {
        let snapshot = self.worker.snapshot();
        let (mut name, mut alpn) = (None, Vec::new());
        let proxies = snapshot.streams.on(Transport::Udp, self.number);
        if let Some(route) =
            proxies.filter(|proxies| proxies.accepts_proxy_headers()).and_then(|proxies| proxies.only())
        {
            return self.arrive_proxied(pair, datagram, now, route);
        }
        if let Some(proxies) = proxies.filter(|proxies| proxies.asks_for_name()) {
            if is_short(datagram) && self.moved(pair, datagram, now) {
                return;
            }
            let asked = self.arrivals.ask(pair, datagram, now, proxies.asks_for_alpn());
            match asked.name {
                RequestedName::Name(server) => (name, alpn) = (server, asked.alpn),
                RequestedName::Unknown => {}
                RequestedName::More => return,
            }
        }
        let waited = self.arrivals.take(pair);
        let found = proxies.and_then(|proxies| proxies.find(name.as_deref(), &alpn));
        let Some(route) = found.or_else(|| self.only_choice(&snapshot, datagram)) else {
            let seen = self.session_for(pair, &NewClient::asking_for(name));
            return stream::refuse(self.worker.recorder().as_ref(), "udp", seen, "no_route");
        };
        if rules(route).is_some_and(|rules| rules.frontend_tls) {
            return self.greet(pair, name, route, datagram, now);
        }
        let client = NewClient::asking_for(name);
        let Some(key) = self.begin(pair, &client, route, Leg::Plain, now) else { return };
        for datagram in waited.iter().map(Vec::as_slice).chain([datagram]) {
            self.forward(key, datagram, now);
        }
    }

    /// Where a QUIC client may belong that has moved on purpose. It uses a connection id then that only its server has seen
    /// (RFC 9000 §9.5). If every connection of the port has the same target, this one has it too, and that target
    /// recognizes the id and validates the new path.
    fn only_choice<'s>(&self, snapshot: &'s Snapshot, datagram: &[u8]) -> Option<&'s Arc<Route>> {
        let is_moved = is_short(datagram) && datagram.len() >= MIN_SHORT && self.connections.any();
        let route = snapshot.streams.on(Transport::Udp, self.number)?.only()?;
        let is_alone = route.targets.list().len() == 1;
        (is_moved && is_alone && rules(route).is_some_and(|rules| rules.passthrough)).then_some(route)
    }

    /// Begins a session for a new client; `None` when there are as many as there may be.
    pub(super) fn begin(
        &mut self,
        pair: AddressPair,
        client: &NewClient,
        route: &Arc<Route>,
        leg: Leg,
        now: Instant,
    ) -> Option<u64> {
        let protocol = if matches!(leg, Leg::Plain) { "udp" } else { "dtls" };
        if !self.worker.shared().overload.admits(route.proxy.load_priority) {
            let seen = self.session_for(pair, client);
            stream::refuse(self.worker.recorder().as_ref(), protocol, seen, "overloaded");
            return None;
        }
        let snapshot = self.worker.snapshot();
        let flow = |port: &Self| {
            let mut seen = port.session_for(pair, client);
            client.tell(route, &mut seen);
            Flow::begin(port.worker.recorder().clone(), route.clone(), seen, protocol, &snapshot.consumers)
        };
        let mut begun = flow(self);
        if begun.is_none() && self.yield_place(pair) {
            begun = flow(self);
        }
        let Some(flow) = begun else {
            self.worker.connection_refused();
            return None;
        };
        let mut session = Session::new(pair, leg, flow, now);
        session.named = client.address_in_every_datagram().map(Box::new);
        let (idle, plain) = (session.idle, session.client.is_ready());
        let slot = self.sessions.insert(session);
        self.count_left(self.sessions.len() - 1);
        if self.generations.len() <= slot {
            self.generations.resize(slot + 1, 0);
        }
        let key = u64::from(self.generations[slot]) << 32 | slot as u64;
        match client.address_in_every_datagram() {
            Some(source) => drop(self.named.insert((pair, source), key)),
            None => self.join(pair, key),
        }
        self.expiry.push_back((now + idle, key));
        if plain {
            self.open(key);
        } else {
            self.handshakes.push_back(key);
        }
        Some(key)
    }

    /// The client as plugins and records see it.
    pub(super) fn session_for(&self, pair: AddressPair, client: &NewClient) -> Seen {
        let (peer, local) = client.ends().unwrap_or_else(|| (pair.client, self.local_of(pair)));
        let from = peer.ip().to_canonical();
        let snapshot = self.worker.snapshot();
        let trusted = snapshot.settings.trusted_proxies.iter().any(|net| net.contains(&from));
        let mut seen = Seen::new(Arc::new(Client::new(peer, local, trusted, None).at_port(self.number)));
        seen.server_name = client.name.as_deref().map(Arc::from);
        seen.unproven = true;
        seen
    }

    /// Ends the oldest client's handshake: those that never go on must not keep everybody else out. False when there
    /// is none.
    pub(super) fn make_room(&mut self) -> bool {
        for _ in 0..self.handshakes.len() {
            let Some(key) = self.handshakes.pop_front() else { break };
            if !self.is_current(key) {
                return true;
            }
            if matches!(self.sessions[slot_of(key)].stage, SessionStage::Greeting(_)) {
                self.end(key, "handshake_displaced");
                return true;
            }
            self.handshakes.push_back(key);
        }
        false
    }

    /// Finds the session of a QUIC client whose address has changed, by the id in its datagram; it may be another
    /// worker's. False when nobody knows it.
    fn moved(&mut self, pair: AddressPair, datagram: &[u8], now: Instant) -> bool {
        match self.connections.find(datagram) {
            Some(SessionLookup::Here(key)) => self.follow(key, pair, datagram, now),
            // A full queue loses the datagram, as UDP may.
            Some(SessionLookup::There(way)) => {
                way.try_send(Stray { pair, datagram: datagram.into() }).is_ok()
            }
            None => false,
        }
    }

    /// Goes on with a session from another address.
    fn follow(&mut self, key: u64, pair: AddressPair, datagram: &[u8], now: Instant) -> bool {
        if !self.is_current(key) {
            return false;
        }
        let Some(session) = self.sessions.get_mut(slot_of(key)) else { return false };
        if session.pair != pair {
            let before = std::mem::replace(&mut session.pair, pair);
            self.by_client.remove(before, key);
            self.by_client.insert(pair, key, addresses(&self.sessions));
        }
        self.forward(key, datagram, now);
        true
    }

    /// Takes what reached another worker though its session is here.
    pub(super) fn take_stray(&mut self, stray: &Stray) {
        if let Some(SessionLookup::Here(key)) = self.connections.find(&stray.datagram) {
            self.follow(key, stray.pair, &stray.datagram, Instant::now());
        }
    }

    /// Looks for connection ids in a client's datagram.
    pub(super) fn learn(&mut self, key: u64, datagram: &[u8]) {
        if let Some(ids) = self.sessions.get_mut(slot_of(key)).and_then(|session| session.ids.as_deref_mut())
        {
            self.connections.request(ids, datagram, key);
        }
    }
}
