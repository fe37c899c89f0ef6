//! Has a service look at each request and passes its refusal on as it comes; ends uploads that have in them what may not be.

use std::sync::Arc;

use ferrum_edge::bytes::Bytes;
use ferrum_edge::core::config::problem::Problems;
use ferrum_edge::core::http::body::{Body, BodyError};
use ferrum_edge::core::http::exchange::Exchange;
use ferrum_edge::core::http::reply::{Cause, Reply};
use ferrum_edge::core::plugin::world::calls::{Client, Endpoint};
use ferrum_edge::core::plugin::{Hooks, OnRequest, Plugin, Seat, Step, Verdict, World};
use ferrum_edge::http::header::CONTENT_TYPE;
use ferrum_edge::http::{Request, Response, Uri};
use ferrum_edge::schemars::JsonSchema;
use ferrum_edge::serde::Deserialize;

/// Settings, as users write them under `config`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(crate = "ferrum_edge::serde", deny_unknown_fields)]
#[schemars(crate = "ferrum_edge::schemars")]
pub(crate) struct Config {
    /// Who is asked, by `GET` with the path in `x-path`: 2xx lets the request pass, every other answer goes to the client.
    url: String,
    /// What no request's body may have in it.
    #[schemars(length(min = 1, max = 256))]
    forbidden: String,
}

/// The plugin.
pub(crate) struct Screening {
    client: Client,
    path: Uri,
    forbidden: Arc<[u8]>,
}

impl Plugin for Screening {
    const NAME: &'static str = "screening";
    const SUMMARY: &'static str = "Has a service look at requests, and looks into uploads itself.";
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let (endpoint, path) =
            Endpoint::of_url(&config.url).map_err(|error| Problems::one("config.url", error))?;
        Ok(Self { client: world.client(endpoint)?, path, forbidden: config.forbidden.into_bytes().into() })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_request(self);
    }
}

impl OnRequest for Screening {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, _seat: Seat<'a>) -> Step<'a> {
        Step::wait(async move {
            let asking = Request::get(self.path.clone()).header("x-path", exchange.request.uri.path());
            let Ok(asking) = asking.body(Body::empty()) else {
                return Verdict::reply(Reply::new(Cause::Internal));
            };
            match self.client.send(asking).await {
                Ok(answer) if answer.status().is_success() => {
                    if !exchange.body.is_empty() {
                        let body = std::mem::take(&mut exchange.body);
                        exchange.body = screened(body, self.forbidden.clone());
                    }
                    Verdict::Next
                }
                Ok(answer) => Verdict::reply(refusal(answer)),
                Err(error) => Verdict::reply(Reply::new(error.cause).reason("screening_failed")),
            }
        })
    }
}

/// The service's answer as the client's: its body is not collected, but pulled as the client takes it.
fn refusal(answer: Response<Body>) -> Reply {
    let (head, body) = answer.into_parts();
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    // Only what is meant for the client: the service's other headers are its own.
    if let Some(kind) = head.headers.get(CONTENT_TYPE) {
        response.headers_mut().insert(CONTENT_TYPE, kind.clone());
    }
    Reply::response(response).reason("screened")
}

/// The body as it passes, until what is forbidden comes, in one piece or over several.
fn screened(body: Body, forbidden: Arc<[u8]>) -> Body {
    let mut end = Vec::new();
    body.map(move |piece: Bytes| {
        end.extend_from_slice(&piece);
        if end.windows(forbidden.len()).any(|part| *part == *forbidden) {
            let reply = Reply::new(Cause::Forbidden).reason("forbidden_content");
            return Err(BodyError::Refused(Box::new(reply)));
        }
        // As much as the beginning of it may have.
        let kept = end.len().min(forbidden.len() - 1);
        end.drain(..end.len() - kept);
        Ok(piece)
    })
}
