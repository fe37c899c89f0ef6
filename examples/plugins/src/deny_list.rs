//! Refuses clients whose address is in a list that a task of the plugin keeps fresh.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use ferrum_edge::core::config::problem::Problems;
use ferrum_edge::core::config::units::Seconds;
use ferrum_edge::core::http::body::Body;
use ferrum_edge::core::http::exchange::Exchange;
use ferrum_edge::core::http::reply::{Cause, Reply};
use ferrum_edge::core::plugin::world::calls::{Client, Endpoint};
use ferrum_edge::core::plugin::{Hooks, OnRequest, Plugin, Seat, Starter, Step, World};
use ferrum_edge::http::{Request, Uri};
use ferrum_edge::schemars::JsonSchema;
use ferrum_edge::serde::Deserialize;

/// Settings, as users write them under `config`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(crate = "ferrum_edge::serde", deny_unknown_fields)]
#[schemars(crate = "ferrum_edge::schemars")]
pub(crate) struct Config {
    /// Where the list is: one address a line.
    url: String,
    /// How often it is fetched. Default 1m.
    #[serde(default = "minute")]
    #[schemars(range(min = 1, max = 86_400))]
    refresh: Seconds,
}

const fn minute() -> Seconds {
    Seconds(60)
}

/// Addresses of a list; what comes behind them is left out.
const MAX_ADDRESSES: usize = 100_000;

/// The plugin.
pub(crate) struct DenyList {
    client: Client,
    path: Uri,
    refresh: Duration,
    /// `None` until the list was fetched once. Requests read it without a lock.
    denied: Arc<ArcSwapOption<HashSet<IpAddr>>>,
}

impl Plugin for DenyList {
    const NAME: &'static str = "deny_list";
    const SUMMARY: &'static str = "Refuses the clients of a list that is fetched again and again.";
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let (endpoint, path) =
            Endpoint::of_url(&config.url).map_err(|error| Problems::one("config.url", error))?;
        let refresh = config.refresh.duration();
        // A plugin whose settings change takes over the list that its predecessor had of this URL.
        let denied = world.kept(&config.url, ArcSwapOption::empty);
        Ok(Self { client: world.client(endpoint)?, path, refresh, denied })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_request(self);
    }

    fn start(self: &Arc<Self>, starter: &mut Starter<'_>) {
        let plugin = self.clone();
        // A run that fails is begun again, with growing pauses; `/v1/status` shows why it failed.
        starter.task("refresh", move |mut control| {
            let plugin = plugin.clone();
            async move {
                while !control.is_ended() {
                    plugin.fetch().await?;
                    tokio::select! {
                        () = control.ended() => {}
                        () = tokio::time::sleep(plugin.refresh) => {}
                    }
                }
                Ok(())
            }
        });
    }
}

impl DenyList {
    async fn fetch(&self) -> Result<(), String> {
        let request =
            Request::get(self.path.clone()).body(Body::empty()).map_err(|error| error.to_string())?;
        let answer = self.client.fetch(request).await.map_err(|error| error.to_string())?;
        if !answer.status().is_success() {
            return Err(format!("the list is answered with {}", answer.status()));
        }
        let text = std::str::from_utf8(answer.body()).map_err(|error| error.to_string())?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty()).take(MAX_ADDRESSES);
        let addresses: Result<HashSet<IpAddr>, _> = lines.map(str::parse).collect();
        // A list that can't be read as a whole leaves the one before it in use.
        self.denied.store(Some(Arc::new(addresses.map_err(|error| error.to_string())?)));
        Ok(())
    }
}

impl OnRequest for DenyList {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, _seat: Seat<'a>) -> Step<'a> {
        match &*self.denied.load() {
            Some(denied) if denied.contains(&exchange.client_address) => {
                Step::reply(Reply::new(Cause::Forbidden).reason("denied"))
            }
            Some(_) => Step::Next,
            None => Step::reply(Reply::new(Cause::Overloaded).reason("list_missing")),
        }
    }
}
