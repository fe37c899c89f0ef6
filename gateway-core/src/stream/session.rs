//! One stream on its way through the gateway, as the plugins see it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use tokio::time::Instant;

use crate::config::consumer::Identity;
use crate::config::model::ProxyExtensions;
use crate::http::exchange::{Client, Exchange, Field, MAX_FIELDS, PluginState, canonical};
use crate::stream::proxy_protocol::{Extensions, ReceivedExtensions, TlsSummary};
use crate::trace::TraceContext;

/// One stream: a TCP connection, a UDP session, or a WebSocket after its handshake.
#[derive(Debug)]
pub struct Session {
    /// Who is at the other end.
    pub client: Arc<Client>,
    /// The address that counts as the client's.
    pub client_address: IpAddr,
    /// The server name of the client's TLS hello, terminated or only read.
    pub server_name: Option<Arc<str>>,
    /// What is known of the connection from a PROXY header, and is told on in one.
    pub told: Option<Box<ReceivedExtensions>>,
    /// Who the caller was recognised as.
    pub identity: Option<Arc<Identity>>,
    /// When it was accepted.
    pub started: Instant,
    /// Its client's address may be forged: nothing has shown that anybody hears the gateway there.
    pub unproven: bool,
    /// The trace it belongs to, where a plugin traces it.
    pub trace: Option<TraceContext>,
    /// What plugins remember between their hooks; a WebSocket goes on with that of its exchange.
    pub state: PluginState,
    /// The head of the request that a WebSocket began with.
    pub head: Option<Box<Parts>>,
    /// Fields of plugins' own for the record.
    pub fields: Vec<(&'static str, Field)>,
    /// Which plugins run for it, by place, where they have conditions.
    decided: Vec<(u16, bool)>,
}

impl Session {
    /// A session as an adapter hands it over.
    pub fn new(client: Arc<Client>) -> Self {
        let client_address = canonical(client.peer.ip());
        let server_name = client.tls.as_ref().and_then(|tls| tls.server_name.clone());
        Self {
            client,
            client_address,
            server_name,
            told: None,
            identity: None,
            started: Instant::now(),
            unproven: false,
            trace: None,
            state: PluginState::default(),
            head: None,
            fields: Vec::new(),
            decided: Vec::new(),
        }
    }

    /// A session that an exchange becomes when it switches protocols. It borrows what plugins keep until
    /// [`Self::give_back`].
    pub(crate) fn of_exchange(exchange: &mut Exchange, with_head: bool) -> Self {
        let mut session = Self::new(exchange.client.clone());
        session.decided = exchange.decisions();
        session.client_address = exchange.client_address;
        session.identity.clone_from(&exchange.identity);
        session.trace = exchange.trace;
        session.state = std::mem::take(&mut exchange.state);
        session.head = with_head.then(|| Box::new(exchange.request.clone()));
        session
    }

    /// Whether a plugin with a condition runs for it: the session's own hooks go by what the exchange decided, and run
    /// where nothing was asked.
    pub(crate) fn decided(&self, place: u16) -> bool {
        self.decided.iter().find(|(of, _)| *of == place).is_none_or(|(_, runs)| *runs)
    }

    /// Whether it matters for some plugins by which conditions it began: their places are those of one chain.
    pub(crate) fn has_decisions(&self) -> bool {
        !self.decided.is_empty()
    }

    /// Whether nothing is known of it but its ends and who it is, and nobody else has its client.
    pub(crate) fn has_only_ends(&mut self) -> bool {
        let Self { client, told, trace, state, head, fields, decided, .. } = self;
        told.is_none()
            && trace.is_none()
            && head.is_none()
            && state.is_empty()
            && fields.is_empty()
            && decided.is_empty()
            && Arc::get_mut(client).is_some_and(|client| client.tls.is_none() && client.handshake.is_none())
    }

    pub(crate) fn ends(&self) -> Ends {
        Ends {
            peer: self.client.peer,
            local: self.client.local,
            port: self.client.port,
            trusted: self.client.trusted,
            client_address: self.client_address,
            server_name: self.server_name.clone(),
            identity: self.identity.clone(),
            started: self.started,
            unproven: self.unproven,
        }
    }

    /// The session that it was; see [`Self::has_only_ends`].
    pub(crate) fn of_ends(ends: &Ends) -> Self {
        let client = Client::new(ends.peer, ends.local, ends.trusted, None).at_port(ends.port);
        let mut session = Self::new(Arc::new(client));
        session.client_address = ends.client_address;
        session.server_name.clone_from(&ends.server_name);
        session.identity.clone_from(&ends.identity);
        session.started = ends.started;
        session.unproven = ends.unproven;
        session
    }

    /// Gives the exchange back what its plugins keep.
    pub(crate) fn give_back(&mut self, exchange: &mut Exchange) {
        exchange.state = std::mem::take(&mut self.state);
    }

    /// Takes what the exchange has, for good: its record is written.
    pub(crate) fn take_over(&mut self, exchange: &mut Exchange) {
        self.state = std::mem::take(&mut exchange.state);
        let (empty, ()) = http::Request::new(()).into_parts();
        self.head = Some(Box::new(std::mem::replace(&mut exchange.request, empty)));
    }

    /// Takes over what a received PROXY header says, beside the ends.
    pub fn take_told(&mut self, told: Option<Box<ReceivedExtensions>>) {
        if let Some(id) = told.as_ref().and_then(|told| told.unique_id.as_deref()) {
            self.note("proxy_protocol.unique_id", &*id.escape_ascii().to_string());
        }
        self.told = told;
    }

    /// What a PROXY header of version 2 for the target says beside the ends.
    pub fn extensions(&self, wanted: ProxyExtensions) -> Extensions<'_> {
        let told = self.told.as_deref();
        Extensions {
            alpn: told.and_then(|told| told.alpn.as_deref()).filter(|_| wanted.alpn),
            unique_id: told.and_then(|told| told.unique_id.as_deref()).filter(|_| wanted.unique_id),
            authority: self.server_name.as_deref().filter(|_| wanted.authority),
            tls: self.client.tls.as_ref().filter(|_| wanted.tls).map(|tls| TlsSummary {
                version: tls.version,
                cipher: tls.cipher,
                has_certificate: tls.certificate.is_some(),
            }),
            checksum: wanted.checksum,
        }
    }

    /// Adds a field to the record, or replaces the one of this name; see [`Exchange::note`].
    pub fn note(&mut self, name: &'static str, value: impl Into<Field>) {
        let value = value.into();
        if let Some(field) = self.fields.iter_mut().find(|(known, _)| *known == name) {
            field.1 = value;
        } else if self.fields.len() < MAX_FIELDS {
            self.fields.push((name, value));
        }
    }
}

/// What is left of a session of which nothing is known but its ends and who it is.
pub(crate) struct Ends {
    peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) port: u16,
    trusted: bool,
    pub(crate) client_address: IpAddr,
    server_name: Option<Arc<str>>,
    pub(crate) identity: Option<Arc<Identity>>,
    pub(crate) started: Instant,
    unproven: bool,
}

/// Which way a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the target.
    Up,
    /// From the target to the client.
    Down,
}

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    /// A WebSocket message that is UTF-8, and must be when it goes on.
    Text,
    /// A WebSocket message that is bytes.
    Binary,
    /// A datagram, decrypted where it came by DTLS.
    Datagram,
    /// A Ping or Pong frame of a WebSocket; only for plugins that [ask for it](crate::plugin::OnMessage::sees_control_frames).
    Control,
}

/// A message on its way, whole.
#[derive(Debug)]
pub struct Message<'a> {
    /// Which way it goes.
    pub direction: Direction,
    /// What it is.
    pub kind: MessageKind,
    /// What it says; may be changed.
    pub payload: &'a mut Bytes,
}
