//! Gives every request an id that the target, the client and the logs see alike.
//!
//! A client's own id is kept when it is short and printable, so that a chain of services shares one; of several, the first
//! such one. Otherwise the gateway makes one (a random UUID, version 4).

use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::http::body::Body;
use gateway_core::http::exchange::{Exchange, uuid};
use gateway_core::http::forwarding::is_told;
use gateway_core::http::reply::Reply;
use gateway_core::plugin::{
    Capabilities, Capability, Family, Hooks, OnRequest, OnResponse, OnUnrouted, Plugin, Seat, SeatNumber,
    Step, World,
};
use gateway_plugin_common::headers::is_framing;
use http::{HeaderName, HeaderValue, Response};
use schemars::JsonSchema;
use serde::Deserialize;

/// Settings of `correlation_id`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("older" = "leave_out"))]
pub(crate) struct Config {
    /// Header that contains the ID. Default `x-request-id`.
    header_name: String,
    /// Also returns the ID to the client, in the same header. Default true.
    echo_downstream: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { header_name: "x-request-id".into(), echo_downstream: true }
    }
}

/// The plugin.
pub(crate) struct CorrelationId {
    header: HeaderName,
    echo: bool,
}

/// The id of one exchange, to be said to the client.
struct Id(HeaderValue);

/// Longer ids of clients are replaced: they would fill logs.
const MAX_BYTES: usize = 256;

impl Plugin for CorrelationId {
    const NAME: &'static str = "correlation_id";
    const FAMILY: Family = Family::Observability;
    const SUMMARY: &'static str = "Assigns a request ID, shared by target, client and logs.";
    const GUARDS: bool = false;
    type Config = Config;

    fn build(config: Config, _world: &World) -> Result<Self, Problems> {
        let header = HeaderName::from_bytes(config.header_name.as_bytes()).map_err(|_| {
            Problems::one(
                "config.header_name",
                format!("`{}` is not a valid header name", config.header_name),
            )
        })?;
        if is_framing(&header) || is_told(&header) {
            let message = format!("`{header}` is the gateway's own to write");
            return Err(Problems::one("config.header_name", message));
        }
        Ok(Self { header, echo: config.echo_downstream })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE.with_if(self.echo, Capability::AttendsEveryReply)
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_request(self.clone());
        if self.echo {
            hooks.on_response(self.clone());
        }
        hooks.on_unrouted(self);
    }
}

impl OnRequest for CorrelationId {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        self.identify(exchange, seat);
        Step::Next
    }
}

impl CorrelationId {
    /// Gives the request its id: the client's own where that can be used.
    fn identify(&self, exchange: &mut Exchange, seat: impl Into<SeatNumber>) -> HeaderValue {
        exchange.body.withhold_trailer(&self.header);
        let headers = &mut exchange.request.headers;
        let mut sent = headers.get_all(&self.header).iter();
        let id = match (sent.next(), sent.next()) {
            (Some(id), None) if is_usable(id) => id.clone(),
            _ => {
                // The target gets the one that client and logs get.
                let usable = headers.get_all(&self.header).iter().find(|id| is_usable(id));
                let id = usable.cloned().unwrap_or_else(make);
                headers.insert(self.header.clone(), id.clone());
                id
            }
        };
        if self.echo {
            exchange.state.put(seat, Id(id.clone()));
        }
        exchange.set_request_id(id.clone());
        id
    }
}

impl OnResponse for CorrelationId {
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        let known = exchange.state.of(seat).map(|Id(id)| id.clone());
        // Refused before the request came here.
        let id = known.unwrap_or_else(|| self.identify(exchange, seat));
        response.headers_mut().insert(self.header.clone(), id);
        Step::Next
    }
}

impl OnUnrouted for CorrelationId {
    fn on_unrouted(&self, exchange: &mut Exchange, reply: &mut Reply, place: SeatNumber) {
        let id = self.identify(exchange, place);
        if self.echo {
            reply.headers.insert(self.header.clone(), id);
        }
    }
}

fn is_usable(id: &HeaderValue) -> bool {
    (1..=MAX_BYTES).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic)
}

/// A random id. It need not be unguessable, only unique.
fn make() -> HeaderValue {
    uuid(fastrand::u128(..))
}
