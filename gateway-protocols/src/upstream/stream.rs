//! Streams to targets: a connection of their own, and bytes carried over it.

mod splice;

use std::sync::Arc;

use super::Outbound;
use super::dial::Destination;
use super::dial_error::DialError;
use super::placed::Placed;
use crate::dns::Dns;
use crate::link::{Link, Rewound};
use bytes::BytesMut;
use gateway_core::balance::Target;
use gateway_core::config::model::{Backend, Timeouts};
use gateway_core::http::reply::Cause;
use gateway_core::pipeline::between::Monitor;
use gateway_core::pipeline::stream::{Carrier, OpenFailure, Opener};
use gateway_core::snapshot::Route;
use gateway_core::snapshot::streams::{rules, target_port};
use gateway_core::stream::proxy_protocol;
use gateway_core::stream::relay::{Carried, RelayOutcome, RelayTimeouts, relay, relay_by};
use gateway_core::stream::session::Session;
use splice::Splice;

/// The client's end of a stream, and what was read of it to choose a proxy.
pub struct Inbound {
    /// The connection.
    pub link: Link,
    /// Bytes already read, which the target gets first.
    pub ahead: BytesMut,
}

impl Outbound {
    /// Opens a stream of its own to a target.
    ///
    /// # Errors
    /// Why it could not be opened.
    pub(crate) async fn open_stream(
        &self,
        backend: &Backend,
        timeouts: &Timeouts,
        target: &Target,
    ) -> Result<Placed, DialError> {
        let dialled = self.inner.dialler.dial(&Destination::to(backend, timeouts, target)).await;
        dialled.map(|dialled| Placed::new(dialled.link, dialled.place))
    }

    /// How names are resolved.
    pub(crate) fn dns(&self) -> &Arc<Dns> {
        &self.inner.dialler.dns
    }
}

impl Opener for Outbound {
    type Target = Placed;

    async fn open(&self, route: &Route, target: &Target, session: &Session) -> Result<Placed, OpenFailure> {
        let mut to = Destination::of_stream(route, target);
        let mapped = target_port(route, target.rules.port, session.client.port);
        to.port = mapped.ok_or(Cause::ConnectFailed)?;
        to.client = Some(session.client_address);
        if rules(route).is_some_and(|rules| rules.sends_client_name) {
            to.name.clone_from(&session.server_name);
        }
        if let Some(rules) = rules(route)
            && let Some(version) = rules.send_proxy_protocol
        {
            let extensions = session.extensions(rules.proxy_headers.extensions);
            to.preface =
                proxy_protocol::header(version, session.client.peer, session.client.local, extensions);
        }
        match self.inner.dialler.dial(&to).await {
            Ok(dialled) => Ok(Placed::new(dialled.link, dialled.place)),
            Err(error) => {
                tracing::debug!(proxy = %route.proxy.id, target = %target.authority(), %error, "no stream to the target");
                Err(OpenFailure { cause: error.cause(), source: Some(Box::new(error)) })
            }
        }
    }
}

impl Carrier for Outbound {
    type Client = Inbound;

    async fn carry(
        &self,
        route: &Route,
        client: &mut Inbound,
        target: &mut Placed,
        monitor: &Monitor<'_>,
        carried: &mut Carried,
    ) -> RelayOutcome {
        let target = &mut target.link;
        let idle = rules(route).and_then(|rules| rules.idle_timeout).unwrap_or_default();
        let timeouts = RelayTimeouts { idle, lifetime: route.proxy.timeouts.total };
        // What was read to select a proxy counts as much as what follows, and is read again.
        let ahead = std::mem::take(&mut client.ahead);
        let may_splice =
            route.proxy.backend.sockets().is_none_or(|sockets| !sockets.mptcp && !sockets.copies);
        let end = match (monitor.sees_bytes(), &mut client.link, &mut *target) {
            (true, link, target) => {
                let (client, mut target) = monitor.metered(Rewound::new(ahead, link), target);
                relay(&mut monitor.put(Box::new(client)), &mut target, timeouts, carried).await
            }
            // Not every kernel splices to and from Multipath TCP.
            (false, Link::Tcp(client), Link::Tcp(target)) if may_splice => {
                let (mut client, mut target) = monitor.metered(Rewound::new(ahead, client), target);
                let (up, down) = (Splice::default(), Splice::default());
                relay_by(&mut client, &mut target, up, down, timeouts, carried).await
            }
            (false, client, target) => {
                let (mut client, mut target) = monitor.metered(Rewound::new(ahead, client), target);
                relay(&mut client, &mut target, timeouts, carried).await
            }
        };
        // What was cut off must not look whole: whoever is left sees a reset too, never an orderly end.
        let left = match end {
            RelayOutcome::ClientReset => target,
            RelayOutcome::TargetReset => &mut client.link,
            RelayOutcome::Closed
            | RelayOutcome::Idle
            | RelayOutcome::Lifetime
            | RelayOutcome::Drained
            | RelayOutcome::Refused
            | RelayOutcome::Violated
            | RelayOutcome::TooLarge => {
                return end;
            }
        };
        if let Err(error) = left.socket().set_zero_linger() {
            tracing::debug!(%error, "a reset could not be passed on");
        }
        end
    }
}
