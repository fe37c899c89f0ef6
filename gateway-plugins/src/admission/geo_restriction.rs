//! Lets clients in or keeps them out by country, continent or autonomous system, for HTTP and for streams.
//!
//! Where an address is comes from databases in MaxMind's format (GeoLite2, GeoIP2, DB-IP and others), which are read into
//! memory and read again when their file changes; replace a file by renaming. A database that can't be read is refused when the
//! configuration is checked; later, the one of before stays in use, and the task's failure is logged and shown in `/v1/status`.
//!
//! Who is on a `deny_` list stays out. Where any `allow_` list is given, only those come in that are on one of them.

mod database;
mod settings;

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use gateway_core::config::problem::Problems;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::world::tasks::{TaskControl, TaskError};
use gateway_core::plugin::{
    Family, Foreseen, Foresight, Gate, Hooks, Need, Needs, OnConnect, OnRequest, Plugin, Refusal, Seat,
    Starter, Step, World,
};
use gateway_core::stream::session::Session;
use gateway_plugin_common::watched::refresh_regularly;
use http::HeaderValue;

use database::Databases;
use settings::{Config, GeoLocation, Rules};

/// The plugin.
pub(crate) struct GeoRestriction {
    rules: Rules,
    databases: ArcSwap<Databases>,
    world: World,
    counts: Counts,
}

struct Counts {
    allowed: Counter,
    denied: Counter,
    unknown: Counter,
}

/// Settings that decide who may pass.
const LISTS: &[&str] =
    &["allow_countries", "deny_countries", "allow_continents", "deny_continents", "allow_asns", "deny_asns"];
/// Settings that go by country or continent.
const BY_COUNTRY: &[&str] = &[
    "allow_countries",
    "deny_countries",
    "allow_continents",
    "deny_continents",
    "country_header",
    "continent_header",
];
const REQUESTS: Metric = Metric::counter(
    "ferrum_geo_restriction_requests_total",
    "Requests and sessions by outcome: allowed, denied (would_deny in a dry run), unknown (of those, addresses that no \
           database knows).",
);

impl Plugin for GeoRestriction {
    const NAME: &'static str = "geo_restriction";
    const FAMILY: Family = Family::Admission;
    const SUMMARY: &'static str = "Admits or rejects clients by country, continent or autonomous system.";
    const EXAMPLE: &'static str = include_str!("../../examples/geo_restriction.yaml");
    const NEEDS: &'static [Needs] = &[
        Needs::new("database", Need::Given(BY_COUNTRY)),
        Needs::new("asn_database", Need::Given(&["allow_asns", "deny_asns", "asn_header"])),
        Needs::new("on_unknown", Need::Given(LISTS)),
        Needs::new("status_code", Need::Given(LISTS)),
        Needs::new("dry_run", Need::Given(LISTS)),
    ];
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let rules = settings::read(config, &mut problems);
        let databases = match Databases::read(&rules, world) {
            Ok(databases) => databases,
            Err(more) => {
                problems.0.extend(more.0);
                Databases::default()
            }
        };
        problems.into_result(())?;
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let count =
            |outcome| world.meters().counter(REQUESTS, &["plugin_config", "outcome"], &[owner, outcome]);
        Ok(Self {
            databases: ArcSwap::from_pointee(databases),
            world: world.clone(),
            counts: Counts {
                allowed: count("allowed"),
                denied: count(if rules.dry_run { "would_deny" } else { "denied" }),
                unknown: count("unknown"),
            },
            rules,
        })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        self.rules.headers.iter().flatten().for_each(|name| hooks.owns_header(name));
        hooks.on_request(self.clone());
        hooks.on_connect(self);
    }

    fn foresee(&self, foresight: &Foresight<'_>) -> Option<Foreseen> {
        let address = foresight.exchange.client_address;
        let databases = self.databases.load();
        let place = databases.place(address);
        let country = place.country.unwrap_or("no known country");
        let said = match place.asn {
            Some(asn) => format!("{address} is in {country}, AS{asn}"),
            None => format!("{address} is in {country}"),
        };
        Some(match self.rules.admit(&place) {
            true => Foreseen::Passes(said),
            false => Foreseen::refuses(self.refusal(), said, self.rules.dry_run),
        })
    }

    fn start(self: &Arc<Self>, starter: &mut Starter<'_>) {
        let plugin = self.clone();
        starter.task("refresh", move |control| plugin.clone().keep_fresh(control));
    }
}

impl OnRequest for GeoRestriction {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, _seat: Seat<'a>) -> Step<'a> {
        let databases = self.databases.load();
        let place = databases.place(exchange.client_address);
        self.tell(exchange, &place);
        if let Some(country) = place.country {
            exchange.note("geo_restriction.country", country);
        }
        if self.admits(&place) {
            return Step::Next;
        }
        if self.rules.dry_run {
            exchange.note("geo_restriction.would_deny", true);
            return Step::Next;
        }
        Step::reply(self.refusal())
    }
}

impl OnConnect for GeoRestriction {
    fn on_connect<'a>(&'a self, session: &'a mut Session, _seat: Seat<'a>) -> Gate<'a> {
        self.connect(session).map_or(Gate::Open, Gate::Refuse)
    }
}

impl GeoRestriction {
    fn refusal(&self) -> Reply {
        let reply =
            Reply::new(Cause::Forbidden).reason("location_denied").detail("your location is not allowed");
        reply.status(self.rules.status)
    }

    /// Tells the target where the client is; what a client says of itself is removed.
    fn tell(&self, exchange: &mut Exchange, place: &GeoLocation<'_>) {
        let asn = place.asn.map(|asn| asn.to_string());
        let values = [place.country, place.continent, asn.as_deref()];
        for (name, value) in self.rules.headers.iter().zip(values) {
            let Some(name) = name else { continue };
            exchange.remove_header(name);
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
                exchange.request.headers.insert(name, value);
            }
        }
    }

    fn connect(&self, session: &mut Session) -> Option<Refusal> {
        // A WebSocket was looked at as its request.
        if session.head.is_some() || self.admits_address(session.client_address) {
            return None;
        }
        if self.rules.dry_run {
            session.note("geo_restriction.would_deny", true);
            return None;
        }
        Some(Refusal::new("location_denied"))
    }

    fn admits_address(&self, address: IpAddr) -> bool {
        let databases = self.databases.load();
        self.admits(&databases.place(address))
    }

    fn admits(&self, place: &GeoLocation<'_>) -> bool {
        if self.rules.is_unknown(place) {
            self.counts.unknown.add(1);
        }
        let admits = self.rules.admit(place);
        if admits { &self.counts.allowed } else { &self.counts.denied }.add(1);
        admits
    }

    /// Reads databases that have changed, for as long as the plugin is in use.
    async fn keep_fresh(self: Arc<Self>, control: TaskControl) -> Result<(), TaskError> {
        let (world, every) = (self.world.clone(), self.rules.refresh);
        refresh_regularly(&world, every, control, move || self.refresh()).await
    }

    fn refresh(&self) -> Result<(), Problems> {
        if self.databases.load().is_current(&self.rules, &self.world) {
            return Ok(());
        }
        let databases = Databases::read(&self.rules, &self.world)?;
        self.databases.store(Arc::new(databases));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
