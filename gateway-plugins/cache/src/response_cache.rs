//! Caches responses as a shared cache (RFC 9111).
//!
//! It runs behind all plugins that may refuse a request or change what the target gets, and next to the target: what it
//! stores is what the target sent, and `response_transformer` and `compression` see a stored response as they would see
//! the target's. So nothing that depends on one caller is ever stored, and no caller is served what another plugin would
//! have refused.
//!
//! A response is stored when the target says for how long it is fresh. Not stored are, unless the settings say otherwise:
//! responses with `Set-Cookie`; those to callers who were identified, were let in by `forward_auth` or sent a credential (`Authorization`,
//! `X-API-Key` and the like, or where a plugin of the proxy reads one),
//! unless the target says `public` or `s-maxage`; errors; partial ones; those that vary by something the cache can't see. Requests with a body,
//! or with a field that overrides host, path or method (`X-Original-URL` and the like), get an answer of their own.
//!
//! One request fetches what is missing; the others read the same response while it comes, or wait for a bounded time. A
//! task pulls the body, so that a slow client holds up nobody. `Vary` is followed, with `Accept-Encoding` brought into
//! one of eight spellings first. Requests that change something (POST, PUT …) and succeed remove what is stored for their
//! URL, and for `Location` and `Content-Location` at the same host.
//!
//! Below memory there may be a folder, which survives a restart, and Redis or Valkey, which gateways share. What is stored
//! goes to all of them, behind the request; invalidations and purges reach all of them.

mod answer;
mod control;
mod disk;
mod fill;
mod flights;
mod key;
mod outcome;
mod policy;
mod purge;
mod remote;
mod settings;
mod store;
mod stored;
mod tier;
mod tiers;
mod visit;
mod warm;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use gateway_core::config::problem::Problems;
use gateway_core::http::dialect::Dialect;
use gateway_core::http::exchange::Exchange;
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::{
    Capabilities, Capability, Family, Hooks, OnRequest, OnResponse, Plugin, Seat, Starter, Step, World,
};
use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use answer::Labels;
use disk::{Disk, DiskLimits};
use fill::Fill;
use flights::Flights;
use key::Recipe;
use policy::Rules;
use purge::Purge;
use remote::Remote;
pub(crate) use settings::Config;
use store::{Limits, Store};
use tier::{Tier, TierMeters};
use tiers::Tiers;
use warm::Warmer;

/// The plugin.
pub(crate) struct ResponseCache {
    rules: Rules,
    recipe: Recipe,
    labels: Labels,
    /// Whether requests may say how they want to be answered.
    obeys_clients: bool,
    /// How long a request waits for another one's.
    wait: Duration,
    /// The last part of a lifetime, in percent, in which a response is fetched anew.
    refresh_ahead: u32,
    warm: Arc<Warmer>,
    store: Arc<Store>,
    flights: Arc<Flights<Fill>>,
    counts: Counts,
}

/// What became of requests.
struct Counts {
    outcomes: Vec<(&'static str, Counter)>,
    served: Counter,
    ahead: Counter,
}

const AHEAD: Metric = Metric::counter(
    "ferrum_response_cache_refreshed_ahead_total",
    "Responses that were revalidated before they were stale.",
);
const REQUESTS: Metric =
    Metric::counter("ferrum_response_cache_requests_total", "Requests to the response cache, by result.");
const SERVED: Metric = Metric::counter(
    "ferrum_response_cache_served_bytes_total",
    "Bytes of bodies answered from stored responses.",
);
const STORED: Metric =
    Metric::gauge("ferrum_response_cache_stored_bytes", "Size of stored responses in bytes.");
const OBJECTS: Metric = Metric::gauge("ferrum_response_cache_entries", "Entries in the response cache.");
const EVICTED: Metric = Metric::counter("ferrum_response_cache_evictions_total", "Evicted entries.");
const PURGED: Metric =
    Metric::counter("ferrum_response_cache_purged_total", "Responses removed or marked stale by purges.");

impl Counts {
    fn new(world: &World, owner: &str) -> Self {
        const OUTCOMES: [&str; 9] = [
            "hit",
            "stale_while_revalidate",
            "stale_if_error",
            "revalidated",
            "collapsed",
            "bypass",
            "expired",
            "miss",
            "only_if_cached",
        ];
        let count =
            |outcome| world.meters().counter(REQUESTS, &["plugin_config", "outcome"], &[owner, outcome]);
        Self {
            outcomes: OUTCOMES.iter().map(|outcome| (*outcome, count(outcome))).collect(),
            served: world.meters().counter(SERVED, &["plugin_config"], &[owner]),
            ahead: world.meters().counter(AHEAD, &["plugin_config"], &[owner]),
        }
    }

    fn add(&self, outcome: &str) {
        if let Some((_, counter)) = self.outcomes.iter().find(|(known, _)| *known == outcome) {
            counter.add(1);
        }
    }
}

impl Plugin for ResponseCache {
    const NAME: &'static str = "response_cache";
    const FAMILY: Family = Family::Caching;
    const SUMMARY: &'static str = "Caches responses as a shared cache (RFC 9111).";
    const GUARDS: bool = false;
    const ACTIONS: &'static [(&'static str, &'static str)] = &[
        (
            "purge",
            "Removes stored responses by `url`, `prefix` or `tag`, or `all`, in all tiers; with `soft` it marks them stale.",
        ),
        ("warm", "Fetches `urls` through the gateway, so that they are stored; without, those of `warm_up`."),
    ];
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let read = config.read()?;
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let meters = world.meters();
        let labels: &'static [&'static str] = &["plugin_config"];
        let store_meters = store::Meters {
            bytes: meters.gauge(STORED, labels, &[owner]),
            objects: meters.gauge(OBJECTS, labels, &[owner]),
            evicted: meters.counter(EVICTED, labels, &[owner]),
            purged: meters.counter(PURGED, labels, &[owner]),
        };
        // What is stored outlives a change of settings, unless it changes how much that may be, or the key.
        let recipe = format!("{:?} {}", read.recipe, read.rules.strips_set_cookie);
        let name = format!("{:?} {recipe} {:?} {:?}", read.limits, read.disk, read.redis);
        let limits: Limits = read.limits;
        let (disk, redis) = (read.disk, read.redis);
        let warm = Arc::new(Warmer::new(read.warm, world)?);
        let tiers = Tiers {
            disk: disk.map(|(path, bytes)| {
                let limits = DiskLimits { bytes, object: limits.object };
                Arc::new(Disk::new(path.join(owner), limits, world, TierMeters::new(world, Tier::Disk)))
            }),
            remote: redis.map(|(name, object)| {
                let (object, meters) = (object.min(limits.object), TierMeters::new(world, Tier::Redis));
                Arc::new(Remote::new(&name, object, limits.variants, world, meters))
            }),
            recipe: recipe.as_bytes().into(),
        };
        Ok(Self {
            rules: read.rules,
            recipe: read.recipe,
            labels: Labels::new(world.gateway(), read.cache_status, read.x_cache),
            obeys_clients: read.obeys_clients,
            wait: read.wait,
            refresh_ahead: read.refresh_ahead,
            warm,
            store: world.kept(&name, || Store::new(limits, store_meters, tiers)),
            flights: world.kept(&name, Flights::default),
            counts: Counts::new(world, owner),
        })
    }

    fn act(&self, action: &str, input: &Value) -> Result<Value, Problems> {
        if action == "warm" {
            return Ok(json!({ "queued": self.warm.add(input)? }));
        }
        let purge = Purge::read(input, &self.recipe)?;
        let (in_memory, on_disk) = self.store.purge(&purge, Instant::now());
        self.store.tiers.announce(&purge);
        let mut done = json!({ "purged": in_memory.max(on_disk) });
        if self.store.tiers.disk.is_some() {
            done["memory"] = json!(in_memory);
            done["disk"] = json!(on_disk);
        }
        Ok(done)
    }

    fn start(self: &Arc<Self>, starter: &mut Starter<'_>) {
        if let Some(disk) = &self.store.tiers.disk {
            let disk = disk.clone();
            starter.task("disk", move |control| disk.clone().run(control));
        }
        if let Some(remote) = &self.store.tiers.remote {
            let (remote, store) = (remote.clone(), self.store.clone());
            let carry_out = Arc::new(move |purge: &Purge| {
                store.purge(purge, Instant::now());
            });
            starter.task("redis", move |control| remote.clone().run(carry_out.clone(), control));
        }
        if self.warm.is_ready() {
            let warm = self.warm.clone();
            starter.task("warm", move |control| warm.clone().run(control));
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::of(&[Capability::AnswersForTarget])
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_request(self.clone());
        hooks.on_response(self);
    }
}

impl OnRequest for ResponseCache {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        if exchange.dialect == Dialect::Upgrade {
            return Step::Next;
        }
        let method = exchange.method();
        if *method == Method::GET || *method == Method::HEAD {
            return self.arrive(exchange, seat);
        }
        if !method.is_safe() {
            self.watch(exchange, seat);
        }
        Step::Next
    }
}

impl OnResponse for ResponseCache {
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut http::Response<gateway_core::http::body::Body>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        let visit = exchange.state.of_mut::<Option<visit::CacheVisit>>(seat).and_then(Option::take);
        match visit {
            Some(visit) => self.answered(visit, exchange, response, seat),
            None => Step::Next,
        }
    }
}

#[cfg(test)]
mod tests;
