//! One request on its way through the gateway, as the plugins see it.

use std::any::{Any, TypeId};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use http::request::Parts;
use http::{HeaderValue, Method, Uri, Version};
use smallvec::SmallVec;
use tokio::time::Instant;

use super::body::Body;
use super::dialect::Dialect;
use super::early::Handshake;
use super::forwarding::Forwarding;
use crate::certificate::Names;
use crate::consumer::Identity;
use crate::route::Captures;

/// One request with its response.
#[derive(Debug)]
pub struct Exchange {
    /// The request's head. Plugins may change headers; hop-by-hop ones are already gone.
    pub request: Parts,
    /// The request's body.
    pub body: Body,
    /// Who is at the other end.
    pub client: Arc<Client>,
    /// The address that counts as the client's, behind trusted proxies not the peer's.
    pub client_address: IpAddr,
    /// How refusals are said.
    pub dialect: Dialect,
    /// The protocol asked for by an upgrade (`websocket`), when the dialect is [`Dialect::Upgrade`].
    pub upgrade: Option<HeaderValue>,
    /// Path and query to forward instead of what the proxy's rules would make of the target; set by plugins.
    pub forward_path: Option<String>,
    /// What the target is told about the way here; empty until the plugins have seen the request.
    pub forwarding: Forwarding,
    /// Who the caller was recognised as.
    pub identity: Option<Arc<Identity>>,
    /// When the client gives up, where it said so.
    pub deadline: Option<Instant>,
    /// When the head had been read.
    pub started: Instant,
    /// Whether the client takes trailers (`TE: trailers`).
    pub trailers: bool,
    /// Whether it is carried out before the client's handshake is over (RFC 8470).
    pub early: bool,
    /// What the names in the route's path stood for; `None` where it has none.
    pub captures: Option<Box<Captures>>,
    /// What plugins remember between their hooks.
    pub state: State,
}

/// The client's end of a connection; one for all its exchanges.
#[derive(Debug)]
pub struct Client {
    /// The other end of the socket, or what a trusted PROXY protocol header said.
    pub peer: SocketAddr,
    /// Our end of the socket.
    pub local: SocketAddr,
    /// The peer's address as text, ready to be appended to `X-Forwarded-For`.
    pub peer_text: HeaderValue,
    /// Whether the peer is a trusted proxy, whose forwarding headers are believed.
    pub trusted: bool,
    /// TLS facts; `None` on plain connections.
    pub tls: Option<ClientTls>,
    /// The handshake, where requests may come before it is over.
    pub handshake: Option<Arc<Handshake>>,
    /// The names in the client's certificate, read when they are first asked for.
    names: OnceLock<Option<Box<Names>>>,
}

/// What the TLS handshake told.
#[derive(Debug, Clone, Default)]
pub struct ClientTls {
    /// The name the client asked for.
    pub server_name: Option<Arc<str>>,
    /// `TLSv1.2` or `TLSv1.3`.
    pub version: &'static str,
    /// IANA name.
    pub cipher: &'static str,
    /// The client's verified leaf certificate, DER.
    pub certificate: Option<Arc<[u8]>>,
}

impl Client {
    /// The client at the other end of a socket.
    pub fn new(peer: SocketAddr, local: SocketAddr, trusted: bool, tls: Option<ClientTls>) -> Self {
        let peer_text = HeaderValue::from_str(&canonical(peer.ip()).to_string())
            .unwrap_or_else(|_| HeaderValue::from_static("unknown"));
        Self { peer, local, peer_text, trusted, tls, handshake: None, names: OnceLock::new() }
    }

    /// Whether its handshake is still under way.
    pub fn is_early(&self) -> bool {
        self.handshake.as_ref().is_some_and(|handshake| !handshake.is_over())
    }

    /// The names in its certificate; `None` without one, or with one that can't be read.
    pub fn certificate_names(&self) -> Option<&Names> {
        let certificate = self.tls.as_ref()?.certificate.as_ref()?;
        self.names.get_or_init(|| Names::read(certificate).map(Box::new)).as_deref()
    }

    /// `https` or `http`.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

/// IPv4 addresses that arrive through an IPv6 socket, as IPv4.
pub fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

impl Exchange {
    /// An exchange as an adapter hands it over.
    pub fn new(request: http::Request<Body>, client: Arc<Client>) -> Self {
        let (request, body) = request.into_parts();
        let client_address = canonical(client.peer.ip());
        Self {
            request,
            body,
            client,
            client_address,
            dialect: Dialect::Plain,
            upgrade: None,
            forward_path: None,
            forwarding: Forwarding::default(),
            identity: None,
            deadline: None,
            started: Instant::now(),
            trailers: false,
            early: false,
            captures: None,
            state: State::default(),
        }
    }

    /// The request's method.
    pub fn method(&self) -> &Method {
        &self.request.method
    }

    /// The request's target as the client sent it.
    pub fn uri(&self) -> &Uri {
        &self.request.uri
    }

    /// The client's HTTP version.
    pub fn version(&self) -> Version {
        self.request.version
    }

    /// The host the client asked for, with its port if it gave one: `:authority`, else `Host`.
    pub fn authority(&self) -> Option<&str> {
        match self.request.uri.authority() {
            Some(authority) => Some(authority.as_str()),
            None => self.request.headers.get(http::header::HOST).and_then(|host| host.to_str().ok()),
        }
    }
}

/// Values kept by type; a plugin keeps at most one of each of its own types.
#[derive(Default)]
pub struct State(SmallVec<[(TypeId, Box<dyn Any + Send + Sync>); 2]>);

impl State {
    /// Keeps `value`, replacing an earlier one of its type.
    pub fn put<T: Any + Send + Sync>(&mut self, value: T) {
        let key = TypeId::of::<T>();
        let boxed: Box<dyn Any + Send + Sync> = Box::new(value);
        match self.0.iter_mut().find(|(id, _)| *id == key) {
            Some(slot) => slot.1 = boxed,
            None => self.0.push((key, boxed)),
        }
    }

    /// The value of this type, if one was kept.
    pub fn of<T: Any + Send + Sync>(&self) -> Option<&T> {
        let key = TypeId::of::<T>();
        self.0.iter().find(|(id, _)| *id == key).and_then(|(_, value)| value.downcast_ref())
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "State({} values)", self.0.len())
    }
}
