//! Where a route of Envoy's leads: its cluster or shares of several, timeouts, retries and rewrites.

use serde_json::Value;

use super::{Backend, Envoy};
use crate::draft::{
    Hedging, Matcher, Plug, Proxy, Queue, Replaced, Retry, Rewrite, Split, Target, To, TrafficSplit, draft,
};
use crate::text;
use crate::tree::Node;

/// Keys of a route's action that change no target and no path, and have no counterpart.
const NOT_CONVERTED: &[&str] =
    &["hash_policy", "request_mirror_policies", "rate_limits", "max_stream_duration", "upgrade_configs"];

/// What a route to targets becomes.
#[derive(Default)]
pub(super) struct Forwarding {
    pub(super) settings: Proxy,
    pub(super) plugins: Vec<Plug>,
}

/// Requests that wait for a connection where Envoy is told nothing.
const PENDING: u64 = 1024;
/// How long Envoy's routes wait for an answer where they are told nothing.
const ROUTE_TIMEOUT_MS: u64 = 15_000;

/// A number, plain or in one of protobuf's wrappers.
pub(super) fn wrapped(node: &Node, key: &str) -> Option<u64> {
    let found = node.get(key)?;
    found.uint().or_else(|| found.get("value").and_then(Node::uint))
}

impl Envoy<'_> {
    /// `hedge_policy`: the time of one attempt is how long is waited before another one is made beside it.
    fn hedging(&mut self, what: &str, hedge: &Node, retry: Option<&Node>) -> Option<Hedging> {
        let what = format!("{what}: hedge_policy");
        for key in ["initial_requests", "additional_request_chance"] {
            if let Some(node) = hedge.get(key) {
                self.out.not_needed(node.at, format_args!("{what}.{key}"), "Envoy does nothing with it");
            }
        }
        if hedge.get("hedge_on_per_try_timeout").and_then(Node::bool) != Some(true) {
            self.out.not_needed(hedge.at, what, "nothing is hedged");
            return None;
        }
        let time = retry.and_then(|it| it.text_of("per_try_timeout")).and_then(|it| text::millis(it, 1000));
        let Some(delay) = time.filter(|delay| *delay > 0) else {
            self.out.not_needed(hedge.at, what, "without `per_try_timeout` nothing is hedged");
            return None;
        };
        let most = retry.and_then(|it| wrapped(it, "num_retries")).unwrap_or(1);
        let why = "only GET, HEAD, OPTIONS, PUT and DELETE are sent twice, and one in five requests at most";
        self.out.partial(hedge.at, what, why, "name unary gRPC methods in `hedging.grpc_methods`");
        Some(draft!(Hedging {
            delay: text::duration(delay.min(60_000)),
            max_hedges: most.clamp(1, 3),
            budget_percent: 20,
            methods: ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"],
        }))
    }

    /// `route:` of a route.
    pub(super) fn forwarded(
        &mut self,
        what: &str,
        route: &Node,
        path: &Matcher,
        made: &mut Forwarding,
    ) -> Option<To> {
        let Some(action) = route.get("route") else {
            self.out.not_converted(route.at, what, "what it does is not known; it answers 503", "");
            return None;
        };
        let mut backend = match (action.text_of("cluster"), action.get("weighted_clusters")) {
            (Some(name), _) => self.cluster(name, action.at)?,
            (None, Some(weighted)) => self.weighted(what, weighted, made)?,
            (None, None) => {
                self.out.not_converted(
                    action.at,
                    what,
                    "its cluster is not known beforehand; it answers 503",
                    "",
                );
                return None;
            }
        };
        let settings = &mut made.settings;
        settings.append(&mut backend.settings);
        settings.strip_listen_path(false);
        settings.preserve_host_header(true);
        let timeout = action.text_of("timeout").map_or(Some(15_000), |it| text::millis(it, 1000));
        if let Some(millis) = timeout {
            settings.total_timeout(text::duration(millis.min(86_400_000)));
        }
        if let Some(policy) = action.get("retry_policy") {
            settings.retry(retry(policy));
        }
        if let Some(hedge) = action.get("hedge_policy") {
            let hedging = self.hedging(what, hedge, action.get("retry_policy"));
            made.settings.hedging(hedging);
        }
        let mut rewrite = self.path_rewrite(what, route, action, path)?;
        let host = ["host_rewrite_literal", "host_rewrite"].iter().find_map(|key| action.text_of(key));
        match host {
            Some(host) => rewrite.host(host),
            None if action.get("auto_host_rewrite").is_some_and(|it| it.bool() == Some(true)) => {
                made.settings.preserve_host_header(false)
            }
            None => {}
        }
        if !rewrite.is_empty() {
            made.plugins.push(Plug::of(rewrite));
        }
        for key in NOT_CONVERTED {
            if let Some(node) = action.get(key) {
                let what = format!("{what}: {key}");
                self.out.not_converted(node.at, what, "it is not converted", "see `ferrum-edge plugins`");
            }
        }
        Some(backend.to)
    }

    /// Shares of several clusters: the first is the proxy's own, the others are upstreams of `traffic_split`.
    fn weighted(&mut self, what: &str, weighted: &Node, made: &mut Forwarding) -> Option<Backend> {
        let mut parts: Vec<(u64, Backend)> = Vec::new();
        for part in weighted.each("clusters") {
            let weight = wrapped(part, "weight").unwrap_or(0);
            let Some(name) = part.text_of("name") else { continue };
            for key in ["typed_per_filter_config", "per_filter_config"] {
                if let Some(node) = part.get(key).filter(|it| !it.is_empty()) {
                    let what = format!("{what}: weighted_clusters: {name}: {key}");
                    let why = "settings of filters for one cluster are not converted";
                    if self.out.guard_not_converted(node.at, what, why, super::filters::TODO) {
                        return None;
                    }
                }
            }
            if weight > 0 {
                parts.push((weight.min(1_000_000), self.cluster(name, part.at)?));
            }
        }
        let mut parts = parts.into_iter();
        let (first_weight, first) = parts.next()?;
        let mut splits = vec![draft!(Split { weight: first_weight })];
        for (weight, backend) in parts {
            let To::Upstream { id, .. } = &backend.to else { return None };
            if backend.settings != first.settings || is_tls(&backend.to) != is_tls(&first.to) {
                let why = "clusters that are asked in different ways can't share one route; it answers 503";
                self.out.not_converted(
                    weighted.at,
                    format_args!("{what}: weighted_clusters"),
                    why,
                    "use the plugin `traffic_split`",
                );
                return None;
            }
            splits.push(draft!(Split { upstream_id: id, weight }));
        }
        if splits.len() > 1 {
            made.plugins.push(Plug::of(draft!(TrafficSplit { splits })));
        }
        Some(first)
    }

    /// What becomes of the path; `None` where that can't be said here, so that the route is closed.
    fn path_rewrite(&mut self, what: &str, route: &Node, action: &Node, path: &Matcher) -> Option<Rewrite> {
        let mut rewrite = Rewrite::default();
        if let Some(to) = action.text_of("prefix_rewrite") {
            let of_match = || route.path(&["match", "prefix"]).and_then(Node::str).map(str::to_owned);
            let from = path.get("prefix").or_else(|| path.get("exact")).and_then(Value::as_str);
            // A prefix that may end within a segment is a regex here.
            let from = of_match().or_else(|| from.map(str::to_owned))?;
            let rule = draft!(Replaced {
                from: format!("^{}(.*)$", text::literal(&from)),
                to: format!("{}${{1}}", to.replace('$', "$$"))
            });
            rewrite.regex([rule]);
        } else if let Some(regex) = action.get("regex_rewrite") {
            let pair =
                regex.path(&["pattern", "regex"]).and_then(Node::str).zip(regex.text_of("substitution"));
            let Some((from, to)) = pair.filter(|(regex, _)| text::is_regex(regex)) else {
                let why = "this rewrite can't be converted";
                self.out.route_closed(regex.at, what, why, "use the plugin `rewrite`");
                return None;
            };
            let to = (0..10)
                .fold(to.replace('$', "$$"), |to, n| to.replace(&format!("\\{n}"), &format!("${{{n}}}")));
            rewrite.regex([draft!(Replaced { from, to, all: true })]);
        }
        Some(rewrite)
    }

    /// `circuit_breakers`: how many requests and connections each target may have, and how many requests wait for one.
    pub(super) fn cluster_limits(
        &mut self,
        what: &str,
        limits: &Node,
        targets: &mut [Target],
    ) -> Option<Queue> {
        let what = format!("{what}: circuit_breakers");
        let default = limits
            .each("thresholds")
            .iter()
            .find(|it| matches!(it.text_of("priority"), None | Some("DEFAULT")));
        let said = |key| default.and_then(|it| wrapped(it, key)).filter(|it| (1..=1_000_000).contains(it));
        let (requests, connections) = (said("max_requests"), said("max_connections"));
        if requests.is_none() && connections.is_none() {
            let why = "of its limits, `max_requests` and `max_connections` have counterparts";
            self.out.not_converted(limits.at, what, why, "set them at the targets");
            return None;
        }
        let count = u64::try_from(targets.len()).unwrap_or(1).max(1);
        for target in targets {
            target.max_requests(requests.map(|most| (most / count).max(1)));
            target.max_connections(connections.map(|most| (most / count).max(1)));
        }
        // Envoy's own defaults: so many wait, for as long as a route may take.
        let waiting = said("max_pending_requests").unwrap_or(PENDING);
        let queue = draft!(Queue { max_waiting: waiting, timeout: text::duration(ROUTE_TIMEOUT_MS) });
        limits.see_all();
        let why = "its limits are shared among the targets; others of its limits are not converted";
        self.out.partial(limits.at, what, why, "");
        connections.map(|_| queue)
    }
}

fn is_tls(to: &To) -> bool {
    matches!(to, To::Upstream { is_tls: true, .. } | To::Host { is_tls: true, .. })
}

fn retry(policy: &Node) -> Retry {
    let tries = wrapped(policy, "num_retries").unwrap_or(1);
    let on = policy.text_of("retry_on").unwrap_or_default();
    let mut codes: Vec<u64> = Vec::new();
    if on.contains("5xx") {
        codes.extend([500, 502, 503, 504]);
    } else if on.contains("gateway-error") {
        codes.extend([502, 503, 504]);
    }
    if on.contains("retriable-status-codes") {
        codes.extend(policy.each("retriable_status_codes").iter().filter_map(Node::uint));
    }
    draft!(Retry { max_retries: tries.min(100), retryable_status_codes: codes })
}
