//! Which stream proxy has which clients of a port.

use std::hash::Hash;

use super::index::Index;
use super::model::{Starttls, StreamRules, Transport};
use super::pattern::HostPattern;

/// The clients of a port that one proxy takes: those that ask for a server name and offer a protocol. `None` is all that
/// other proxies leave.
type Clients = (Option<HostPattern>, Option<Box<[u8]>>);

/// Finds the proxy that a new one cannot share a port with, without comparing it with every other of that port.
///
/// Proxies share a port if all of them pass TLS (or QUIC) through, begin it alike, and no two have both a name and a
/// protocol in common. A name and a wildcard that covers it differ: the more specific one goes first.
///
/// A clone is cheap and shares everything, so that a change can be tried on one and thrown away.
#[derive(Clone)]
pub(crate) struct PortClaims<O> {
    ports: Index<(Transport, u16), PortClaim<O>>,
}

#[derive(Clone)]
struct PortClaim<O> {
    /// What all its proxies agree on; `None` where there may be one only.
    sharing: Option<Sharing>,
    /// Never empty.
    clients: Index<Clients, O>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sharing {
    starttls: Option<Starttls>,
}

impl<O> Default for PortClaims<O> {
    fn default() -> Self {
        Self { ports: Index::new() }
    }
}

impl<O: Clone + Eq + Hash> PortClaims<O> {
    /// Records that `owner` takes its clients on its ports.
    ///
    /// # Errors
    /// The first owner that it cannot share a port with; nothing is recorded then. An owner never conflicts with itself.
    pub(crate) fn claim(&mut self, transport: Transport, rules: &StreamRules, owner: &O) -> Result<(), O> {
        let sharing = rules.passthrough.then_some(Sharing { starttls: rules.starttls.frontend });
        let ports = rules.listen_ports.0..=rules.listen_ports.1;
        for port in ports.clone() {
            let Some(claimed) = self.ports.get(&(transport, port)) else { continue };
            if let Some(other) = claimed.conflict(sharing, rules, owner) {
                return Err(other.clone());
            }
        }
        for port in ports {
            let place = (transport, port);
            if self.ports.get(&place).is_none() {
                self.ports.insert(place, PortClaim { sharing, clients: Index::new() });
            }
            let Some(claimed) = self.ports.get_mut(&place) else { continue };
            claimed.sharing = sharing;
            for clients in clients(rules) {
                claimed.clients.insert(clients, owner.clone());
            }
        }
        Ok(())
    }

    /// Gives back what `owner` took by these rules.
    pub(crate) fn release(&mut self, transport: Transport, rules: &StreamRules, owner: &O) {
        for place in (rules.listen_ports.0..=rules.listen_ports.1).map(|port| (transport, port)) {
            let Some(claimed) = self.ports.get_mut(&place) else { continue };
            for clients in clients(rules) {
                if claimed.clients.get(&clients) == Some(owner) {
                    claimed.clients.remove(&clients);
                }
            }
            if claimed.clients.is_empty() {
                self.ports.remove(&place);
            }
        }
    }
}

impl<O: Clone + Eq> PortClaim<O> {
    fn conflict(&self, sharing: Option<Sharing>, rules: &StreamRules, owner: &O) -> Option<&O> {
        if sharing.is_none() || sharing != self.sharing {
            return self.clients.iter().map(|(_, other)| other).find(|other| *other != owner);
        }
        let mut taken = clients(rules).filter_map(|clients| self.clients.get(&clients));
        taken.find(|other| *other != owner)
    }
}

/// Each name with each protocol.
fn clients(rules: &StreamRules) -> impl Iterator<Item = Clients> + '_ {
    let names = rules.server_names.iter().cloned().map(Some);
    let names = names.chain(rules.server_names.is_empty().then_some(None));
    names.flat_map(|name| {
        let protocols = rules.alpn.iter().cloned().map(Some);
        let protocols = protocols.chain(rules.alpn.is_empty().then_some(None));
        protocols.map(move |protocol| (name.clone(), protocol))
    })
}
