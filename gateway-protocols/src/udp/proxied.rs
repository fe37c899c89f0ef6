//! Datagrams with PROXY headers: from trusted proxies, which say whose datagrams they are, and to targets, which want to know it.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Instant;

use gateway_core::config::model::{HeaderDatagrams, StreamRules};
use gateway_core::http::exchange::{Client, uuid};
use gateway_core::snapshot::streams::{Transport, rules};
use gateway_core::snapshot::{Route, Snapshot};
use gateway_core::stream::pipeline;
use gateway_core::stream::proxy_protocol::{self, ReceivedExtensions};
use gateway_core::stream::session::Session as Seen;
use socket2::SockRef;

use super::leg::Leg;
use super::port::Port;
use super::stray::AddressPair;

/// Sessions whose every datagram says which client it is from: by the socket of the trusted proxy, and that client.
pub(super) type NamedClients = HashMap<(AddressPair, SocketAddr), u64>;

/// Who begins a session, as far as it is known.
#[derive(Default)]
pub(super) struct NewClient {
    /// The server name that it asks for.
    pub(super) name: Option<String>,
    /// What a trusted proxy says of it.
    header: Option<ReceivedHeader>,
}

struct ReceivedHeader {
    source: SocketAddr,
    destination: SocketAddr,
    told: ReceivedExtensions,
    datagrams: HeaderDatagrams,
}

impl NewClient {
    /// A client at the other end of the socket that asks for this name.
    pub(super) fn asking_for(name: Option<String>) -> Self {
        Self { name, header: None }
    }

    /// The client's address, where each of its datagrams says it.
    pub(super) fn named(&self) -> Option<SocketAddr> {
        let header = self.header.as_ref()?;
        (header.datagrams == HeaderDatagrams::Every).then_some(header.source)
    }

    /// The ends of its connection, where a header names them.
    pub(super) fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.header.as_ref().map(|header| (header.source, header.destination))
    }

    /// Adds what its header says beside the ends, and what the header for the target is to say.
    pub(super) fn tell(&self, route: &Route, seen: &mut Seen) {
        let mut told = self.header.as_ref().map(|header| header.told.clone()).unwrap_or_default();
        let sends = rules(route).filter(|rules| rules.send_proxy_protocol.is_some());
        if sends.is_some_and(|rules| rules.proxy_extensions.unique_id) && told.unique_id.is_none() {
            told.unique_id = Some(uuid(fastrand::u128(..)).as_bytes().into());
        }
        seen.take_told((told != ReceivedExtensions::default()).then(|| Box::new(told)));
    }
}

impl Port {
    /// A datagram that begins with a PROXY header, or has to.
    pub(super) fn arrive_proxied(
        &mut self,
        pair: AddressPair,
        datagram: &[u8],
        now: Instant,
        (snapshot, route): (&Snapshot, &Arc<Route>),
    ) {
        let from = pair.client.ip().to_canonical();
        let is_trusted = snapshot.settings.trusted_proxies.iter().any(|net| net.contains(&from));
        let read = match is_trusted {
            true => proxy_protocol::parse_datagram(datagram).ok_or("proxy_protocol_malformed"),
            // Its header, or its absence, can't be told from a lie.
            false => Err("proxy_protocol_untrusted"),
        };
        let (length, ends) = match read {
            Ok(read) => read,
            Err(reason) => {
                let seen = self.seen(pair, &NewClient::default());
                return pipeline::refuse(self.worker.recorder().as_ref(), "udp", seen, reason);
            }
        };
        let (header, payload) = datagram.split_at(length);
        let datagrams = rules(route).map(|rules| rules.accepted_headers).unwrap_or_default();
        // Without ends it is the proxy that asks.
        let source = ends.map_or(pair.client, |(source, _)| source);
        if datagrams == HeaderDatagrams::Every
            && let Some(key) = self.named.get(&(pair, source)).copied()
        {
            return self.forward(key, payload, now);
        }
        let mut told = proxy_protocol::read_extensions(header);
        let name = told.authority.take().map(|name| name.to_ascii_lowercase());
        let destination = ends.map_or(self.local_of(pair), |(_, destination)| destination);
        let header = ReceivedHeader { source, destination, told, datagrams };
        let client = NewClient { name, header: Some(header) };
        let Some(key) = self.begin(pair, &client, route, Leg::Plain, now) else { return };
        self.forward(key, payload, now);
    }

    /// Our end of a client's datagrams.
    pub(super) fn local_of(&self, pair: AddressPair) -> SocketAddr {
        SocketAddr::new(pair.local.unwrap_or_else(|| self.wire.local.ip()), self.wire.local.port())
    }

    /// Ends the sessions of a port whose datagrams have begun to need a header, or have ceased to: what is read of them is not what their
    /// senders mean.
    pub(super) fn follow_headers(&mut self, snapshot: &Snapshot) {
        let accepted = accepted(snapshot, self.number);
        if std::mem::replace(&mut self.accepted, accepted) == accepted {
            return;
        }
        let keys: Vec<_> = self.sessions.iter().map(|(slot, _)| self.id(slot).key).collect();
        keys.into_iter().for_each(|key| self.end(key, "drained"));
    }
}

/// Which datagrams of a port have headers; `None` where none has.
pub(super) fn accepted(snapshot: &Snapshot, port: u16) -> Option<HeaderDatagrams> {
    let route = snapshot.streams.on(Transport::Udp, port)?.only()?;
    rules(route).filter(|rules| rules.accept_proxy_protocol).map(|rules| rules.accepted_headers)
}

/// The header that a target gets with a session's datagrams.
pub(super) struct SentHeader {
    bytes: Vec<u8>,
    datagrams: HeaderDatagrams,
}

impl SentHeader {
    /// `None` where the proxy sends none.
    pub(super) fn of(rules: Option<&StreamRules>, session: &Seen) -> Option<Box<Self>> {
        let rules = rules.filter(|rules| rules.send_proxy_protocol.is_some())?;
        let Client { peer, local, .. } = &*session.client;
        let bytes =
            proxy_protocol::datagram_header(*peer, *local, session.extensions(rules.proxy_extensions));
        Some(Box::new(Self { bytes, datagrams: rules.sent_headers }))
    }
}

/// Sends a datagram to a target, with the header that it still has to get.
pub(super) fn send(
    socket: &UdpSocket,
    header: &mut Option<Box<SentHeader>>,
    payload: &[u8],
) -> io::Result<usize> {
    let Some(before) = header else { return socket.send(payload) };
    let pieces = [IoSlice::new(&before.bytes), IoSlice::new(payload)];
    let sent = SockRef::from(socket).send_vectored(&pieces);
    if sent.is_ok() && before.datagrams == HeaderDatagrams::First {
        *header = None;
    }
    sent
}
