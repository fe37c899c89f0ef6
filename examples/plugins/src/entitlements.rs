//! Asks a service of yours whether a request may pass: a call from a hook.

use std::sync::Arc;

use ferrum_edge::core::config::problem::Problems;
use ferrum_edge::core::http::body::Body;
use ferrum_edge::core::http::exchange::Exchange;
use ferrum_edge::core::http::reply::{Cause, Reply};
use ferrum_edge::core::plugin::world::calls::{Client, Endpoint};
use ferrum_edge::core::plugin::{Hooks, OnRequest, Plugin, Seat, Step, Verdict, World};
use ferrum_edge::http::header::AUTHORIZATION;
use ferrum_edge::http::{Request, Uri};
use ferrum_edge::schemars::JsonSchema;
use ferrum_edge::serde::Deserialize;

/// Settings, as users write them under `config`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(crate = "ferrum_edge::serde", deny_unknown_fields)]
#[schemars(crate = "ferrum_edge::schemars")]
pub(crate) struct Config {
    /// Who is asked, by `GET` with the request's `authorization`: 2xx lets it pass, 401 and 403 refuse it.
    url: String,
}

/// The plugin.
pub(crate) struct Entitlements {
    client: Client,
    path: Uri,
}

impl Plugin for Entitlements {
    const NAME: &'static str = "entitlements";
    const SUMMARY: &'static str = "Asks a service whether a request may pass.";
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        // Nothing is connected here: a build that only checks a configuration leaves no trace.
        let (endpoint, path) =
            Endpoint::of_url(&config.url).map_err(|error| Problems::one("config.url", error))?;
        Ok(Self { client: world.client(endpoint)?, path })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_request(self);
    }
}

impl OnRequest for Entitlements {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, _seat: Seat<'a>) -> Step<'a> {
        let mut asking = Request::get(self.path.clone());
        if let Some(value) = exchange.request.headers.get(AUTHORIZATION) {
            asking = asking.header(AUTHORIZATION, value);
        }
        // The call goes over the worker's own connections; the hook waits, the worker does not.
        Step::wait(async move {
            let Ok(request) = asking.body(Body::empty()) else {
                return Verdict::reply(Reply::new(Cause::Internal));
            };
            match self.client.fetch(request).await {
                Ok(answer) if answer.status().is_success() => Verdict::Next,
                Ok(answer) if matches!(answer.status().as_u16(), 401 | 403) => Verdict::reply(
                    Reply::new(Cause::Forbidden).status(answer.status()).reason("not_entitled"),
                ),
                // Nobody passes while nobody can be asked.
                Ok(_) => Verdict::reply(Reply::new(Cause::UpstreamGarbage).reason("entitlements_failed")),
                Err(error) => Verdict::reply(Reply::new(error.cause).reason("entitlements_failed")),
            }
        })
    }
}
