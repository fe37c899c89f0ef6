//! Which stream proxy takes a connection: by port, and on a shared port by server name and protocol.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

use super::ProxyState;
use crate::balance::Target;
use crate::config::index::Index;
pub use crate::config::model::Transport;
use crate::config::model::{Id, Starttls, StreamRules, Traffic};
use crate::config::pattern::HostPattern;

/// Stream proxies by transport and port.
#[derive(Debug)]
pub struct StreamTable<R> {
    ports: Index<(Transport, u16), StreamPort<R>>,
}

/// The stream proxies of one port. Selecting one costs the same for one proxy and for 10,000: what a connection must show
/// first is counted, names and protocols are found by hash.
#[derive(Debug)]
pub struct StreamPort<R> {
    routes: Index<Id, Arc<R>>,
    exact: Index<Arc<str>, ByProtocol<R>>,
    /// By what follows the `*`.
    wildcard: Index<Arc<str>, ByProtocol<R>>,
    /// Takes what names leave.
    nameless: ByProtocol<R>,
    /// Proxies that pass a hello through or select by its name.
    asking_for_name: usize,
    /// Proxies that select by ALPN.
    asking_for_alpn: usize,
    accepting_proxy_headers: usize,
    /// All proxies of a port agree on it.
    starttls: Option<Starttls>,
}

/// The proxies of one name. Few have more than one, so the others stay small.
#[derive(Debug)]
struct ByProtocol<R> {
    /// Takes what protocols leave.
    rest: Option<Arc<R>>,
    protocols: Option<Box<Protocols<R>>>,
}

/// Proxies by ALPN protocol.
type Protocols<R> = Index<Box<[u8]>, Arc<R>>;

impl<R> Clone for StreamTable<R> {
    fn clone(&self) -> Self {
        Self { ports: self.ports.clone() }
    }
}

impl<R> Default for StreamTable<R> {
    fn default() -> Self {
        Self { ports: Index::new() }
    }
}

impl<R> Clone for StreamPort<R> {
    fn clone(&self) -> Self {
        Self {
            routes: self.routes.clone(),
            exact: self.exact.clone(),
            wildcard: self.wildcard.clone(),
            nameless: self.nameless.clone(),
            ..*self
        }
    }
}

impl<R> Default for StreamPort<R> {
    fn default() -> Self {
        Self {
            routes: Index::new(),
            exact: Index::new(),
            wildcard: Index::new(),
            nameless: ByProtocol::default(),
            asking_for_name: 0,
            asking_for_alpn: 0,
            accepting_proxy_headers: 0,
            starttls: None,
        }
    }
}

impl<R> Clone for ByProtocol<R> {
    fn clone(&self) -> Self {
        Self { rest: self.rest.clone(), protocols: self.protocols.clone() }
    }
}

impl<R> Default for ByProtocol<R> {
    fn default() -> Self {
        Self { rest: None, protocols: None }
    }
}

/// The stream rules of a route; `None` for HTTP proxies, which are never in the table.
pub fn rules(route: &ProxyState) -> Option<&StreamRules> {
    match &route.proxy.traffic {
        Traffic::Stream(rules) => Some(rules),
        Traffic::Http(_) => None,
    }
}

/// The port of a target whose own port is `own`, for a client that connected to `listen`; `None` where there is none so high.
pub fn target_port(route: &ProxyState, own: u16, listen: u16) -> Option<u16> {
    match rules(route).filter(|rules| rules.maps_ports) {
        Some(rules) => own.checked_add(listen.checked_sub(rules.listen_ports.0)?),
        None => Some(own),
    }
}

/// A session's target as `HOST:PORT`, for records: with the port that it got by `backend_port_mapping`. `listen` is the port that the
/// client connected to.
pub fn target_address<'t>(target: &'t Target, route: Option<&ProxyState>, listen: u16) -> Cow<'t, str> {
    let own = target.rules.port;
    let port = route.and_then(|route| target_port(route, own, listen));
    let mapped = port.filter(|port| *port != own).and_then(|port| {
        let (host, _) = target.authority().rsplit_once(':')?;
        Some(format!("{host}:{port}"))
    });
    mapped.map_or_else(|| Cow::Borrowed(&**target.authority()), Cow::Owned)
}

impl<R: Deref<Target = ProxyState>> StreamTable<R> {
    /// Puts a route on all its ports.
    pub fn insert(&mut self, route: &Arc<R>) {
        for place in places(route) {
            if self.ports.get(&place).is_none() {
                self.ports.insert(place, StreamPort::default());
            }
            if let Some(port) = self.ports.get_mut(&place) {
                port.insert(route);
            }
        }
    }

    /// Takes a route off all its ports.
    pub fn remove(&mut self, route: &Arc<R>) {
        for place in places(route) {
            let Some(port) = self.ports.get_mut(&place) else { continue };
            port.remove(route);
            if port.routes.is_empty() {
                self.ports.remove(&place);
            }
        }
    }

    /// Every port in use.
    pub fn ports(&self) -> impl Iterator<Item = (Transport, u16)> + '_ {
        self.ports.iter().map(|(place, _)| *place)
    }

    /// The proxies of one port; `None` if it has none.
    pub fn on(&self, transport: Transport, port: u16) -> Option<&StreamPort<R>> {
        self.ports.get(&(transport, port))
    }
}

impl<R: Deref<Target = ProxyState>> StreamPort<R> {
    /// All routes, in no order.
    pub fn routes(&self) -> impl Iterator<Item = &Arc<R>> {
        self.routes.iter().map(|(_, route)| route)
    }

    /// The route of a port that has one only.
    pub fn only(&self) -> Option<&Arc<R>> {
        if self.routes.len() == 1 { self.routes().next() } else { None }
    }

    /// Whether the server name must be known before a route can be chosen.
    pub fn asks_for_name(&self) -> bool {
        self.asking_for_name > 0
    }

    /// Whether the ALPN protocols must be known as well.
    pub fn asks_for_alpn(&self) -> bool {
        self.asking_for_alpn > 0
    }

    /// Whether connections of trusted proxies begin with a PROXY header.
    pub fn accepts_proxy_headers(&self) -> bool {
        self.accepting_proxy_headers > 0
    }

    /// The plain text that precedes TLS.
    pub fn starttls(&self) -> Option<Starttls> {
        self.starttls
    }

    /// The route for a connection: an exact name, then the longest wildcard, then one that takes what is left. Of those equal
    /// in that, one that takes a protocol that the client offers, in the client's order.
    pub fn find(&self, name: Option<&str>, alpn: &[Vec<u8>]) -> Option<&Arc<R>> {
        let named = name.and_then(|name| self.find_named(&lower_case(name), alpn));
        named.or_else(|| self.nameless.find(alpn))
    }

    fn find_named(&self, name: &str, alpn: &[Vec<u8>]) -> Option<&Arc<R>> {
        if let Some(route) = self.exact.get(name).and_then(|routes| routes.find(alpn)) {
            return Some(route);
        }
        if self.wildcard.is_empty() {
            return None;
        }
        // One look a label, the longest suffix first. A wildcard covers at least one character before its dot.
        let dots = name.bytes().enumerate().skip(1).filter(|(_, byte)| *byte == b'.');
        let mut suffixes = dots.filter_map(|(at, _)| name.get(at..));
        suffixes.find_map(|suffix| self.wildcard.get(suffix)?.find(alpn))
    }

    fn insert(&mut self, route: &Arc<R>) {
        if let Some(before) = self.routes.get(&route.proxy.id).cloned() {
            self.remove(&before);
        }
        let Some(rules) = rules(route) else { return };
        self.routes.insert(route.proxy.id.clone(), route.clone());
        self.asking_for_name += usize::from(asks_for_name(rules));
        self.asking_for_alpn += usize::from(!rules.alpn.is_empty());
        self.accepting_proxy_headers += usize::from(rules.accept_proxy_protocol);
        self.starttls = rules.starttls.frontend;
        for pattern in &rules.server_names {
            let (names, name) = self.names(pattern);
            match names.get_mut(name) {
                Some(routes) => routes.insert(&rules.alpn, route),
                None => {
                    let mut routes = ByProtocol::default();
                    routes.insert(&rules.alpn, route);
                    names.insert(name.clone(), routes);
                }
            }
        }
        if rules.server_names.is_empty() {
            self.nameless.insert(&rules.alpn, route);
        }
    }

    fn remove(&mut self, route: &Arc<R>) {
        let Some(rules) = rules(route) else { return };
        if !self.routes.get(&route.proxy.id).is_some_and(|known| Arc::ptr_eq(known, route)) {
            return;
        }
        self.routes.remove(&route.proxy.id);
        self.asking_for_name -= usize::from(asks_for_name(rules));
        self.asking_for_alpn -= usize::from(!rules.alpn.is_empty());
        self.accepting_proxy_headers -= usize::from(rules.accept_proxy_protocol);
        for pattern in &rules.server_names {
            let (names, name) = self.names(pattern);
            let Some(routes) = names.get_mut(name) else { continue };
            routes.remove(&rules.alpn, route);
            if routes.is_empty() {
                names.remove(name);
            }
        }
        if rules.server_names.is_empty() {
            self.nameless.remove(&rules.alpn, route);
        }
    }

    fn names<'p>(&mut self, pattern: &'p HostPattern) -> (&mut Index<Arc<str>, ByProtocol<R>>, &'p Arc<str>) {
        match pattern {
            HostPattern::Exact(name) => (&mut self.exact, name),
            HostPattern::Suffix(suffix) => (&mut self.wildcard, suffix),
        }
    }
}

impl<R> ByProtocol<R> {
    fn find(&self, alpn: &[Vec<u8>]) -> Option<&Arc<R>> {
        let offered =
            || self.protocols.as_ref().and_then(|known| alpn.iter().find_map(|it| known.get(&**it)));
        offered().or(self.rest.as_ref())
    }

    fn is_empty(&self) -> bool {
        self.rest.is_none() && self.protocols.is_none()
    }

    fn insert(&mut self, alpn: &[Box<[u8]>], route: &Arc<R>) {
        if alpn.is_empty() {
            self.rest = Some(route.clone());
        } else {
            let protocols = self.protocols.get_or_insert_default();
            alpn.iter().for_each(|protocol| drop(protocols.insert(protocol.clone(), route.clone())));
        }
    }

    /// Leaves what has become another route's.
    fn remove(&mut self, alpn: &[Box<[u8]>], route: &Arc<R>) {
        if alpn.is_empty() {
            self.rest.take_if(|known| Arc::ptr_eq(known, route));
        }
        let Some(protocols) = &mut self.protocols else { return };
        for protocol in alpn {
            if protocols.get(protocol).is_some_and(|known| Arc::ptr_eq(known, route)) {
                protocols.remove(protocol);
            }
        }
        if protocols.is_empty() {
            self.protocols = None;
        }
    }
}

fn asks_for_name(rules: &StreamRules) -> bool {
    rules.passthrough || !rules.server_names.is_empty()
}

/// As names are kept: in lower case, without the dot of the root.
fn lower_case(name: &str) -> Cow<'_, str> {
    let name = name.trim_end_matches('.');
    match name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(name.to_ascii_lowercase()),
        false => Cow::Borrowed(name),
    }
}

/// The ports a route listens on; none for HTTP proxies.
pub fn places(route: &ProxyState) -> impl Iterator<Item = (Transport, u16)> {
    let transport = route.proxy.backend.scheme.transport();
    let ports = rules(route).map(|rules| rules.listen_ports.0..=rules.listen_ports.1);
    ports.into_iter().flatten().map(move |port| (transport, port))
}

#[cfg(test)]
mod tests;
