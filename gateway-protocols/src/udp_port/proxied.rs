//! Datagrams from trusted proxies, which say by PROXY headers whose they are.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use gateway_core::config::model::HeaderDatagrams;
use gateway_core::pipeline::stream;
use gateway_core::snapshot::streams::rules;
use gateway_core::snapshot::{Route, Snapshot};
use gateway_core::stream::proxy_protocol;

use super::Port;
use crate::udp::headers::{NewClient, ReceivedHeader, accepted};
use crate::udp::leg::Leg;
use crate::udp::stray::AddressPair;

impl Port {
    /// A datagram that begins with a PROXY header, or has to.
    pub(super) fn arrive_proxied(
        &mut self,
        pair: AddressPair,
        datagram: &[u8],
        now: Instant,
        route: &Arc<Route>,
    ) {
        let snapshot = self.worker.snapshot();
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
                let seen = self.session_for(pair, &NewClient::default());
                return stream::refuse(self.worker.recorder().as_ref(), "udp", seen, reason);
            }
        };
        let (header, payload) = datagram.split_at(length);
        let datagrams = rules(route).map(|rules| rules.proxy_headers.accepted).unwrap_or_default();
        // Without ends it is the proxy that asks.
        let source = ends.map_or(pair.client, |(source, _)| source);
        if datagrams == HeaderDatagrams::Every
            && let Some(key) = self.named.get(&(pair, source)).copied()
        {
            return self.forward(key, payload, now);
        }
        let mut told = proxy_protocol::read_extensions(header);
        let name = told.authority.take().map(|name| name.to_ascii_lowercase());
        let destination = ends.map_or_else(|| self.local_of(pair), |(_, destination)| destination);
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
