//! Sends shares of the traffic to different upstreams, or to targets with different tags of one upstream: canaries, blue and
//! green, tests of two versions.
//!
//! An override by header, cookie or condition decides first; otherwise weights do, at random or, with `sticky_by`, by a hash, so
//! that one caller always comes to the same upstream. The hash is the same on every gateway and after every restart. As
//! long as the sum of the weights stays the same (100, say), a change of weights moves only as many callers as it must.

use gateway_core::condition::Holds;
use gateway_core::template::Render;
use std::collections::BTreeMap;
use std::sync::Arc;

use gateway_core::balance::{Fallback, Subset};
use gateway_core::condition::{Condition, Use, compile, written};
use gateway_core::config::problem::Problems;
use gateway_core::http::exchange::Exchange;
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::{Family, Hooks, OnRequest, Plugin, Seat, Step, World};
use gateway_core::request_values;
use gateway_core::template::{MAX_RENDERED, Moment, Template, TextContext};
use gateway_plugin_common::facts;
use gateway_plugin_common::parse;
use http::HeaderName;
use schemars::JsonSchema;
use serde::Deserialize;

/// Settings of `traffic_split`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// The shares; at least one with a weight above zero.
    splits: Vec<Share>,
    /// Rules that select an upstream regardless of weights; the first match applies. Default none.
    overrides: Vec<Override>,
    /// What identifies a caller, as a template such as `${client.address}`, `${consumer.id}` or
    /// `${request.cookie.session}`. A request with an empty value is assigned at random. Default: every request is.
    sticky_by: Option<String>,
    /// Makes the assignment of callers independent of other splits by the same value. Default empty.
    seed: String,
}

/// A share of the traffic.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Share {
    /// ID of the upstream. Default: the proxy's own targets.
    upstream_id: Option<String>,
    /// Tags that a target must have, such as `{version: v2}`; at least one target must have all of them. Default all
    /// targets.
    #[serde(default)]
    #[schemars(length(max = 50))]
    tags: BTreeMap<String, String>,
    /// What happens if no target with the `tags` is healthy. Default `refuse`.
    fallback: Option<FallbackConfig>,
    /// Weight in relation to the sum of all weights; 0 disables the share.
    #[schemars(range(max = 1_000_000))]
    weight: u32,
}

/// Requests with this header or cookie, or that match this condition, use this upstream.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Override {
    /// Name of the header; this, `cookie` or `when`.
    header: Option<String>,
    /// Name of the cookie; this, `header` or `when`.
    cookie: Option<String>,
    /// Exact value of the header or cookie. Default: any value that is not empty.
    value: Option<String>,
    /// Condition, as in `when` of plugin configs; this, `header` or `cookie`.
    when: Option<written::Condition>,
    /// ID of the upstream. Default: the proxy's own targets.
    upstream_id: Option<String>,
    /// As for a share.
    #[serde(default)]
    #[schemars(length(max = 50))]
    tags: BTreeMap<String, String>,
    /// As for a share.
    fallback: Option<FallbackConfig>,
}

/// What happens if no target with the tags is healthy.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum FallbackConfig {
    /// Requests are rejected with 503.
    Refuse,
    /// Requests use any target of the upstream.
    Any,
    /// Requests use the targets with all of these tags; if none of them is healthy, requests are rejected with 503.
    Tags(BTreeMap<String, String>),
}

/// The plugin.
pub(crate) struct TrafficSplit {
    /// Each with the sum of the weights up to and with its own.
    shares: Vec<(u64, Destination)>,
    total: u64,
    overrides: Vec<(By, Destination)>,
    sticky: Option<Template>,
    seed: String,
}

/// An upstream, or the proxy's own targets; all of them, or those with some tags.
struct Destination {
    upstream: Option<Arc<str>>,
    subset: Option<(Arc<Subset>, String)>,
    sent: Counter,
}

enum By {
    Header(HeaderName, Option<String>),
    Cookie(String, Option<String>),
    Condition(Condition),
}

const REQUESTS: Metric = Metric::counter(
    "ferrum_traffic_split_requests_total",
    "Requests sent to each upstream and subset of a split.",
);

/// What stands in records and metrics for the proxy's own targets.
const OWN: &str = "own";

impl Plugin for TrafficSplit {
    const NAME: &'static str = "traffic_split";
    const FAMILY: Family = Family::Traffic;
    const SUMMARY: &'static str =
        "Splits traffic between upstreams or targets by weight, header, cookie or condition.";
    const GUARDS: bool = false;
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let destination = |id: Option<String>, subset: Option<Arc<Subset>>| {
            let subset = subset.map(|subset| (subset.clone(), shown(&subset)));
            let labels = [owner, id.as_deref().unwrap_or(OWN), subset.as_ref().map_or("", |(_, tags)| tags)];
            let sent = world.meters().counter(REQUESTS, &["plugin_config", "upstream", "subset"], &labels);
            Destination { upstream: id.map(Arc::from), subset, sent }
        };
        let mut total = 0_u64;
        let mut shares = Vec::new();
        for (n, share) in config.splits.into_iter().enumerate() {
            let subset = subset(&format!("config.splits[{n}]"), share.tags, share.fallback, &mut problems);
            if share.weight > 0 {
                total += u64::from(share.weight);
                shares.push((total, destination(share.upstream_id, subset)));
            }
        }
        if shares.is_empty() {
            problems.add("config.splits", "no share has a weight above zero");
        }
        let mut overrides = Vec::new();
        for (n, rule) in config.overrides.into_iter().enumerate() {
            let at = format!("config.overrides[{n}]");
            let subset = subset(&at, rule.tags, rule.fallback, &mut problems);
            let by = by(&at, (rule.header, rule.cookie, rule.when), rule.value, &mut problems);
            overrides.extend(by.map(|by| (by, destination(rule.upstream_id, subset))));
        }
        let sticky = config.sticky_by.and_then(|text| {
            let template = parse::template("config.sticky_by", &text, Moment::Request, &mut problems)?;
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
        for to in shares.chain(self.overrides.iter().map(|(_, to)| to)) {
            if let Some(upstream) = &to.upstream {
                hooks.may_choose(upstream.clone());
            }
            if let Some((subset, _)) = &to.subset {
                hooks.may_choose_subset(to.upstream.clone(), subset.clone());
            }
        }
        for (n, (by, _)) in self.overrides.iter().enumerate() {
            if matches!(by, By::Condition(when) if when.asks_for_caller()) {
                hooks.goes_by_caller(format!("config.overrides[{n}].when"));
            }
        }
        hooks.renders("config.sticky_by", self.sticky.as_ref());
        hooks.on_request(self);
    }
}

impl OnRequest for TrafficSplit {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        let forced = self.overrides.iter().find(|(by, _)| by.fits(exchange));
        let to = match forced {
            Some((_, to)) => Some(to),
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
        if let Some((subset, tags)) = &to.subset {
            exchange.note("traffic_split.subset", tags.as_str());
            exchange.choose_subset(subset.clone());
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
            .render(&facts::of(exchange, seat), TextContext::Text, MAX_RENDERED, &mut text)
            .ok()?;
        (!text.is_empty()).then(|| hash(self.seed.as_bytes(), &text))
    }
}

impl By {
    fn fits(&self, exchange: &Exchange) -> bool {
        let headers = &exchange.request.headers;
        let (found, wanted) = match self {
            Self::Header(name, wanted) => {
                (request_values::header(headers, name).map(|value| value.to_vec()), wanted.as_ref())
            }
            Self::Cookie(name, wanted) => {
                (request_values::cookie(headers, name).map(<[u8]>::to_vec), wanted.as_ref())
            }
            Self::Condition(when) => return when.holds(exchange),
        };
        found.is_some_and(|found| wanted.map_or(!found.is_empty(), |wanted| wanted.as_bytes() == found))
    }
}

/// Whom an override is for.
fn by(
    at: &str,
    written: (Option<String>, Option<String>, Option<written::Condition>),
    value: Option<String>,
    problems: &mut Problems,
) -> Option<By> {
    match written {
        (Some(name), None, None) => {
            parse::header_name(&format!("{at}.header"), &name, problems).map(|name| By::Header(name, value))
        }
        (None, Some(name), None) if !name.is_empty() => Some(By::Cookie(name, value)),
        (None, None, Some(when)) => {
            if value.is_some() {
                problems.add(format!("{at}.value"), "belongs to `header` or `cookie`");
            }
            match compile(&when, &format!("{at}.when"), Use::Plugin) {
                Ok(when) => Some(By::Condition(when)),
                Err(wrong) => {
                    problems.0.extend(wrong.0);
                    None
                }
            }
        }
        _ => {
            problems.add(at, "needs one of `header`, `cookie` and `when`");
            None
        }
    }
}

/// The targets with these tags.
fn subset(
    at: &str,
    tags: BTreeMap<String, String>,
    fallback: Option<FallbackConfig>,
    problems: &mut Problems,
) -> Option<Arc<Subset>> {
    if tags.is_empty() {
        if fallback.is_some() {
            problems.add(format!("{at}.fallback"), "there is nothing to fall back from without `tags`");
        }
        return None;
    }
    let fallback = match fallback {
        None | Some(FallbackConfig::Refuse) => Fallback::Refuse,
        Some(FallbackConfig::Any) => Fallback::Any,
        Some(FallbackConfig::Tags(others)) => {
            if others.is_empty() || others == tags {
                let remedy = "name other tags, or write `any`";
                problems.add(format!("{at}.fallback.tags"), "are those of no other targets").remedy =
                    Some(remedy.into());
            }
            Fallback::Other(Arc::new(Subset::new(others, Fallback::Refuse)))
        }
    };
    Some(Arc::new(Subset::new(tags, fallback)))
}

/// The tags as records and metrics show them.
fn shown(subset: &Subset) -> String {
    let tags: Vec<_> = subset.tags().iter().map(|(name, value)| format!("{name}={value}")).collect();
    tags.join(",")
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
