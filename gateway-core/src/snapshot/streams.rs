//! Which stream proxy takes a connection: by port, and on a shared port by server name.

use std::ops::Deref;
use std::sync::Arc;

use super::ProxyState;
use crate::config::index::Index;
pub use crate::config::model::Transport;
use crate::config::model::{Scheme, StreamRules, Traffic};
use crate::config::pattern::HostPattern;

/// Stream proxies by transport and port.
#[derive(Debug)]
pub struct StreamTable<R> {
    ports: Index<(Transport, u16), Vec<Arc<R>>>,
}

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

impl<R: Deref<Target = ProxyState>> StreamTable<R> {
    /// Puts a route on all its ports.
    pub fn insert(&mut self, route: &Arc<R>) {
        for place in places(route) {
            match self.ports.get_mut(&place) {
                Some(routes) => routes.push(route.clone()),
                None => drop(self.ports.insert(place, vec![route.clone()])),
            }
        }
    }

    /// Takes a route off all its ports.
    pub fn remove(&mut self, route: &Arc<R>) {
        for place in places(route) {
            let Some(routes) = self.ports.get_mut(&place) else { continue };
            routes.retain(|other| !Arc::ptr_eq(other, route));
            if routes.is_empty() {
                self.ports.remove(&place);
            }
        }
    }

    /// Every port in use.
    pub fn ports(&self) -> impl Iterator<Item = (Transport, u16)> + '_ {
        self.ports.iter().map(|(place, _)| *place)
    }

    /// The routes of one port.
    pub fn on(&self, transport: Transport, port: u16) -> &[Arc<R>] {
        self.ports.get(&(transport, port)).map_or(&[], Vec::as_slice)
    }

    /// Whether the server name must be known before a route of this port can be chosen.
    pub fn asks_for_name(&self, transport: Transport, port: u16) -> bool {
        self.on(transport, port)
            .iter()
            .filter_map(|route| rules(route))
            .any(|rules| rules.passthrough || !rules.server_names.is_empty())
    }

    /// The route for a connection: an exact name, then the longest wildcard, then the one that takes what is left.
    pub fn find(&self, transport: Transport, port: u16, name: Option<&str>) -> Option<&Arc<R>> {
        let routes = self.on(transport, port);
        let best = name.and_then(|name| {
            routes
                .iter()
                .filter_map(|route| Some((fit(rules(route)?, name)?, route)))
                .max_by_key(|(fit, _)| *fit)
        });
        best.map(|(_, route)| route).or_else(|| {
            routes.iter().find(|route| rules(route).is_some_and(|rules| rules.server_names.is_empty()))
        })
    }
}

/// The ports a route listens on; none for HTTP proxies.
pub fn places(route: &ProxyState) -> impl Iterator<Item = (Transport, u16)> {
    let transport = match route.proxy.backend.scheme {
        Scheme::Udp | Scheme::Dtls => Transport::Udp,
        Scheme::Http | Scheme::Https | Scheme::Tcp | Scheme::Tcps => Transport::Tcp,
    };
    let ports = rules(route).map(|rules| rules.listen_ports.0..=rules.listen_ports.1);
    ports.into_iter().flatten().map(move |port| (transport, port))
}

/// How well a proxy's names fit; exact names beat every wildcard.
fn fit(rules: &StreamRules, name: &str) -> Option<usize> {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let fits =
        rules.server_names.iter().filter(|pattern| pattern.covers(&name)).map(|pattern| match pattern {
            HostPattern::Exact(_) => usize::MAX,
            HostPattern::Suffix(suffix) => suffix.len(),
        });
    fits.max()
}
