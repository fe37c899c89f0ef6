//! Streams to targets: a connection of their own, and bytes carried over it.

mod splice;

use std::sync::Arc;

use bytes::BytesMut;
use gateway_core::balance::Target;
use gateway_core::config::model::{Backend, Timeouts};
use gateway_core::http::reply::Cause;
use gateway_core::snapshot::Route;
use gateway_core::snapshot::streams::rules;
use gateway_core::stream::between::Between;
use gateway_core::stream::pipeline::{Carrier, Opener};
use gateway_core::stream::proxy_protocol;
use gateway_core::stream::relay::{Carried, RelayOutcome, RelayTimeouts, relay, relay_by};
use gateway_core::stream::session::Session;
use tokio::io::AsyncWriteExt;

use super::Outbound;
use super::dial::Destination;
use super::dial_error::DialError;
use super::placed::Placed;
use crate::dns::Dns;
use crate::link::{Link, Rewound};
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

    async fn open(&self, route: &Route, target: &Target, session: &Session) -> Result<Placed, Cause> {
        let mut to = Destination::of_stream(route, target);
        if let Some(version) = rules(route).and_then(|rules| rules.send_proxy_protocol) {
            to.preface = proxy_protocol::header(version, session.client.peer, session.client.local);
        }
        match self.inner.dialler.dial(&to).await {
            Ok(dialled) => Ok(Placed::new(dialled.link, dialled.place)),
            Err(error) => {
                tracing::debug!(proxy = %route.proxy.id, target = %target.authority(), %error, "no stream to the target");
                Err(error.cause())
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
        between: Option<&Between<'_>>,
        carried: &mut Carried,
    ) -> RelayOutcome {
        let target = &mut target.link;
        if !client.ahead.is_empty() && between.is_none() {
            let ahead = std::mem::take(&mut client.ahead);
            if target.write_all(&ahead).await.is_err() || target.flush().await.is_err() {
                return RelayOutcome::TargetReset;
            }
            carried.up += ahead.len() as u64;
        }
        let idle = rules(route).and_then(|rules| rules.idle_timeout).unwrap_or_default();
        let timeouts = RelayTimeouts { idle, lifetime: route.proxy.timeouts.total };
        let end = match (between, &mut client.link, &mut *target) {
            (Some(between), link, target) => {
                let ahead = std::mem::take(&mut client.ahead);
                let mut client = between.put(Box::new(Rewound::new(ahead, link)));
                relay(&mut client, target, timeouts, carried).await
            }
            (None, Link::Tcp(client), Link::Tcp(target)) => {
                relay_by(client, target, Splice::default(), Splice::default(), timeouts, carried).await
            }
            (None, client, target) => relay(client, target, timeouts, carried).await,
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
