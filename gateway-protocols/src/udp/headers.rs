//! PROXY headers of datagrams: what a trusted proxy says of a client, and what a target is told.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::net::{SocketAddr, UdpSocket};

use gateway_core::config::model::{HeaderDatagrams, StreamRules};
use gateway_core::http::exchange::{Client, uuid};
use gateway_core::snapshot::streams::{Transport, rules};
use gateway_core::snapshot::{Route, Snapshot};
use gateway_core::stream::proxy_protocol::{self, ReceivedExtensions};
use gateway_core::stream::session::Session as Seen;
use socket2::SockRef;

use super::stray::AddressPair;

/// Sessions whose every datagram says which client it is from: by the socket of the trusted proxy, and that client.
pub(crate) type NamedClients = HashMap<(AddressPair, SocketAddr), u64>;

/// Who begins a session, as far as it is known.
#[derive(Default)]
pub(crate) struct NewClient {
    /// The server name that it asks for.
    pub(crate) name: Option<String>,
    /// What a trusted proxy says of it.
    pub(crate) header: Option<ReceivedHeader>,
}

/// What a trusted proxy says of a client.
pub(crate) struct ReceivedHeader {
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) told: ReceivedExtensions,
    pub(crate) datagrams: HeaderDatagrams,
}

impl NewClient {
    /// A client at the other end of the socket that asks for this name.
    pub(crate) fn asking_for(name: Option<String>) -> Self {
        Self { name, header: None }
    }

    /// The client's address, where each of its datagrams says it.
    pub(crate) fn address_in_every_datagram(&self) -> Option<SocketAddr> {
        let header = self.header.as_ref()?;
        (header.datagrams == HeaderDatagrams::Every).then_some(header.source)
    }

    /// The ends of its connection, where a header names them.
    pub(crate) fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.header.as_ref().map(|header| (header.source, header.destination))
    }

    /// Adds what its header says beside the ends, and what the header for the target is to say.
    pub(crate) fn tell(&self, route: &Route, seen: &mut Seen) {
        let mut told = self.header.as_ref().map(|header| header.told.clone()).unwrap_or_default();
        let sends = rules(route).filter(|rules| rules.send_proxy_protocol.is_some());
        if sends.is_some_and(|rules| rules.proxy_headers.extensions.unique_id) && told.unique_id.is_none() {
            told.unique_id = Some(uuid(fastrand::u128(..)).as_bytes().into());
        }
        seen.take_told((told != ReceivedExtensions::default()).then(|| Box::new(told)));
    }
}

/// Which datagrams of a port have headers; `None` where none has.
pub(crate) fn accepted(snapshot: &Snapshot, port: u16) -> Option<HeaderDatagrams> {
    let route = snapshot.streams.on(Transport::Udp, port)?.only()?;
    rules(route).filter(|rules| rules.accept_proxy_protocol).map(|rules| rules.proxy_headers.accepted)
}

/// The header that a target gets with a session's datagrams.
pub(crate) struct SentHeader {
    bytes: Vec<u8>,
    datagrams: HeaderDatagrams,
}

impl SentHeader {
    /// `None` where the proxy sends none.
    pub(crate) fn of(rules: Option<&StreamRules>, session: &Seen) -> Option<Box<Self>> {
        let rules = rules.filter(|rules| rules.send_proxy_protocol.is_some())?;
        let Client { peer, local, .. } = &*session.client;
        let bytes = proxy_protocol::datagram_header(
            *peer,
            *local,
            session.extensions(rules.proxy_headers.extensions),
        );
        Some(Box::new(Self { bytes, datagrams: rules.proxy_headers.sent }))
    }
}

/// Sends a datagram to a target, with the header that it still has to get.
pub(crate) fn send(
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
