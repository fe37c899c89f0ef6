//! Sends shares of the traffic to different upstreams: canaries, blue and green, tests of two versions.
//!
//! An override by header or cookie decides first; otherwise weights do, by chance or, with `sticky_by`, by a hash, so
//! that one caller always comes to the same upstream. The hash is the same on every gateway and after every restart. As
//! long as the sum of the weights stays the same (100, say), a change of weights moves only as many callers as it must.

use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::fields;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::{Hooks, OnRequest, Plugin, Seat, Step, World};
use gateway_core::record::Metric;
use gateway_core::template::{MAX_RENDERED, Moment, Template, TextContext};
use http::HeaderName;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::shared;

/// Settings of `traffic_split`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// The shares; at least one with a weight above zero.
    splits: Vec<Share>,
    /// Requests that go to an upstream whatever the weights say; the first that fits decides. Default none.
    overrides: Vec<Override>,
    /// What one caller is recognised by, as a template such as `${client.address}`, `${consumer.id}` or
    /// `${request.cookie.session}`. A request for which it is empty goes by chance. Default: every request by chance.
    sticky_by: Option<String>,
    /// Makes callers fall otherwise than in another split over the same values. Default empty.
    seed: String,
}

/// A share of the traffic.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Share {
    /// The upstream's id. Default: the proxy's own targets.
    upstream_id: Option<String>,
    /// Its part of the sum of all weights; 0 is nothing.
    #[schemars(range(max = 1_000_000))]
    weight: u32,
}

/// Requests with this header or cookie go to this upstream.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Override {
    /// The header's name; this or `cookie`.
    header: Option<String>,
    /// The cookie's name; this or `header`.
    cookie: Option<String>,
    /// The exact value. Default: any that is not empty.
    value: Option<String>,
    /// The upstream's id. Default: the proxy's own targets.
    upstream_id: Option<String>,
}

/// The plugin.
pub(crate) struct TrafficSplit {
    /// Each with the sum of the weights up to and with its own.
    shares: Vec<(u64, Destination)>,
    total: u64,
    overrides: Vec<(By, Option<String>, Destination)>,
    sticky: Option<Template>,
    seed: String,
}

/// An upstream, or the proxy's own targets.
#[derive(Clone)]
struct Destination {
    upstream: Option<Arc<str>>,
    sent: Counter,
}

enum By {
    Header(HeaderName),
    Cookie(String),
}

const REQUESTS: Metric = Metric {
    name: "ferrum_traffic_split_requests_total",
    kind: "counter",
    help: "Requests sent to each upstream of a split.",
};

/// What stands in records and metrics for the proxy's own targets.
const OWN: &str = "own";

impl Plugin for TrafficSplit {
    const NAME: &'static str = "traffic_split";
    const SUMMARY: &'static str =
        "Sends shares of the traffic to different upstreams, by weight, header or cookie.";
    const GUARDS: bool = false;
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let destination = |id: Option<String>| Destination {
            sent: world.meters().counter(
                REQUESTS,
                &["plugin_config", "upstream"],
                &[owner, id.as_deref().unwrap_or(OWN)],
            ),
            upstream: id.map(Arc::from),
        };
        let mut total = 0_u64;
        let mut shares = Vec::new();
        for share in config.splits.into_iter().filter(|share| share.weight > 0) {
            total += u64::from(share.weight);
            shares.push((total, destination(share.upstream_id)));
        }
        if shares.is_empty() {
            problems.add("config.splits", "no share has a weight above zero");
        }
        let mut overrides = Vec::new();
        for (n, rule) in config.overrides.into_iter().enumerate() {
            let at = format!("config.overrides[{n}]");
            let by = match (rule.header, rule.cookie) {
                (Some(name), None) => {
                    shared::header_name(&format!("{at}.header"), &name, &mut problems).map(By::Header)
                }
                (None, Some(name)) if !name.is_empty() => Some(By::Cookie(name)),
                _ => {
                    problems.add(at, "needs either `header` or `cookie`");
                    None
                }
            };
            overrides.extend(by.map(|by| (by, rule.value, destination(rule.upstream_id))));
        }
        let sticky = config.sticky_by.and_then(|text| {
            let template = shared::template("config.sticky_by", &text, Moment::Request, &mut problems)?;
            if template.literal().is_some() {
                problems.add("config.sticky_by", "has no value of the request in it").remedy =
                    Some("such as `${client.address}`".into());
            }
            Some(template)
        });
        problems.into_result(Self { shares, total, overrides, sticky, seed: config.seed })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        let shares = self.shares.iter().map(|(_, to)| to);
        for to in shares.chain(self.overrides.iter().map(|(_, _, to)| to)) {
            if let Some(upstream) = &to.upstream {
                hooks.may_choose(upstream.clone());
            }
        }
        hooks.renders("config.sticky_by", self.sticky.as_ref());
        hooks.on_request(self);
    }
}

impl OnRequest for TrafficSplit {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        let forced = self.overrides.iter().find(|(by, value, _)| by.fits(exchange, value.as_deref()));
        let to = match forced {
            Some((_, _, to)) => Some(to),
            None => {
                let point =
                    self.hash(exchange, seat).unwrap_or_else(|| fastrand::u64(..)) % self.total.max(1);
                self.shares.iter().find(|(end, _)| point < *end).map(|(_, to)| to)
            }
        };
        let Some(to) = to else { return Step::Next };
        to.sent.add(1);
        exchange.note("traffic_split.upstream", to.upstream.as_deref().unwrap_or(OWN));
        if let Some(upstream) = &to.upstream {
            exchange.choose_upstream(upstream.clone());
        }
        Step::Next
    }
}

impl TrafficSplit {
    /// The hash of who the caller is; `None` where that is not known.
    fn hash(&self, exchange: &Exchange, seat: Seat<'_>) -> Option<u64> {
        let mut text = Vec::new();
        self.sticky
            .as_ref()?
            .render(&shared::facts(exchange, seat), TextContext::Text, MAX_RENDERED, &mut text)
            .ok()?;
        (!text.is_empty()).then(|| hash(self.seed.as_bytes(), &text))
    }
}

impl By {
    fn fits(&self, exchange: &Exchange, wanted: Option<&str>) -> bool {
        let headers = &exchange.request.headers;
        let found = match self {
            Self::Header(name) => fields::header(headers, name).map(|value| value.to_vec()),
            Self::Cookie(name) => fields::cookie(headers, name).map(<[u8]>::to_vec),
        };
        found.is_some_and(|found| wanted.map_or(!found.is_empty(), |wanted| wanted.as_bytes() == found))
    }
}

/// FNV-1a, its bits mixed at the end: the same everywhere and for ever, unlike the hashers of maps.
fn hash(seed: &[u8], text: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in seed.iter().chain(&[0]).chain(text) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests;
