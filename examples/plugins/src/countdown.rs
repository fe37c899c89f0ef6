//! Answers with server-sent events that come one after the other: a reply that streams.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ferrum_edge::bytes::Bytes;
use ferrum_edge::core::config::problem::Problems;
use ferrum_edge::core::config::units::Millis;
use ferrum_edge::core::http::body::{Body, BodyError};
use ferrum_edge::core::http::exchange::Exchange;
use ferrum_edge::core::http::reply::Reply;
use ferrum_edge::core::http_body::{Body as HttpBody, Frame};
use ferrum_edge::core::plugin::{Hooks, OnRequest, Plugin, Seat, Step, World};
use ferrum_edge::http::{HeaderValue, Response, header};
use ferrum_edge::schemars::JsonSchema;
use ferrum_edge::serde::Deserialize;
use tokio::time::Interval;

/// Settings, as users write them under `config`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(crate = "ferrum_edge::serde", deny_unknown_fields)]
#[schemars(crate = "ferrum_edge::schemars")]
pub(crate) struct Config {
    /// The number that is counted down from.
    #[schemars(range(max = 1_000))]
    from: u32,
    /// The time between two events.
    #[schemars(range(min = 0.001, max = 60))]
    every: Millis,
}

/// The plugin.
pub(crate) struct Countdown(Config);

impl Plugin for Countdown {
    const NAME: &'static str = "countdown";
    const SUMMARY: &'static str = "Counts down in server-sent events.";
    type Config = Config;

    fn build(config: Config, _world: &World) -> Result<Self, Problems> {
        Ok(Self(config))
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_request(self);
    }
}

impl OnRequest for Countdown {
    fn on_request<'a>(&'a self, _exchange: &'a mut Exchange, _seat: Seat<'a>) -> Step<'a> {
        let ticks = tokio::time::interval(self.0.every.duration());
        let mut response = Response::new(Body::stream(Events { left: Some(self.0.from), ticks }));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Step::reply(Reply::response(response))
    }
}

/// The events that are still to come. Pulled by the client's connection, so that a client who reads slowly or leaves costs
/// nothing.
struct Events {
    left: Option<u32>,
    ticks: Interval,
}

impl HttpBody for Events {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(left) = self.left else { return Poll::Ready(None) };
        ready!(self.ticks.poll_tick(cx));
        self.left = left.checked_sub(1);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(format!("data: {left}\n\n"))))))
    }
}
