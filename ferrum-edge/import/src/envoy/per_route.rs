//! What Envoy's filters do otherwise for one host or route, and policies for pages of other origins.

use super::filters::TODO;
use super::{Envoy, Listener};
use crate::draft::{Cors, Plug};
use crate::tree::Node;

/// What holds for one route.
#[derive(Debug, Clone, Default)]
pub(super) struct OfRoute {
    /// Plugins of the listener that do not run.
    without: Vec<&'static str>,
    cors: Option<Plug>,
    is_closed: bool,
}

impl OfRoute {
    /// The listener's plugins, as far as they run for the route, and its own.
    pub(super) fn plugins(&self, of_listener: &[Plug]) -> Vec<Plug> {
        let kept = of_listener.iter().filter(|plug| !self.without.contains(&plug.name));
        kept.chain(&self.cors).cloned().collect()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }
}

impl Envoy<'_> {
    /// Reads the settings of filters at a virtual host or a route; `before` is what its host says.
    pub(super) fn of_route(
        &mut self,
        what: &str,
        level: &Node,
        before: &OfRoute,
        listener: &Listener,
    ) -> OfRoute {
        let mut made = before.clone();
        if let Some(policy) = level.get("cors").or_else(|| level.path(&["route", "cors"])) {
            made.cors = self.policy(&format!("{what}: cors"), policy);
        }
        for key in ["typed_per_filter_config", "per_filter_config"] {
            for (name, config) in level.get(key).map_or(&[][..], Node::entries) {
                self.of_filter(&format!("{what}: {key}: {name}"), config, listener, &mut made);
            }
        }
        made
    }

    fn of_filter(&mut self, what: &str, config: &Node, listener: &Listener, made: &mut OfRoute) {
        let kind = config.text_of("@type").and_then(|it| it.rsplit('.').next()).unwrap_or_default();
        let is_off = config.get("disabled").and_then(Node::bool) == Some(true);
        // Of several filters of a kind, the name says which one is meant.
        let is_one = listener.plugins.iter().filter(|plug| plug.name == "forward_auth").count() < 2;
        let is_jwt = config.text_of("@type").is_some_and(|it| it.contains(".jwt_authn."));
        match kind {
            "ExtAuthzPerRoute" if is_off && is_one => made.without.push("forward_auth"),
            "PerRouteConfig" if is_off && is_jwt => made.without.push("jwks_auth"),
            "CorsPolicy" => made.cors = self.policy(what, config),
            "LocalRateLimit" | "HTTPFault" | "BufferPerRoute" | "CompressorPerRoute" => {
                let why = "the settings for all routes are used";
                return self.out.not_converted(config.at, what, why, "see `ferrum-edge plugins`");
            }
            _ => {
                let why = "settings of this filter for one host or route are not converted";
                made.is_closed |= self.out.guard_not_converted(config.at, what, why, TODO);
                return;
            }
        }
        self.out.converted(config.at, what);
    }

    /// A policy for pages of other origins; none where its origins can't be said here.
    fn policy(&mut self, what: &str, policy: &Node) -> Option<Plug> {
        let exact = |it: &Node| it.text_of("exact").map(str::to_owned);
        let origins: Option<Vec<String>> =
            policy.each("allow_origin_string_match").iter().map(exact).collect();
        let is_true = |key: &str| {
            let said = policy.get(key);
            said.is_some_and(|it| {
                it.bool() == Some(true) || it.get("value").and_then(Node::bool) == Some(true)
            })
        };
        let credentials = is_true("allow_credentials");
        let Some(origins) =
            origins.filter(|all| !(all.is_empty() || credentials && all.iter().any(|it| it == "*")))
        else {
            let why = "origins by pattern, or every origin with credentials, are not known";
            self.out.not_converted(policy.at, what, why, "use the plugin `cors`");
            return None;
        };
        let mut config = Cors::default();
        config.allowed_origins(origins);
        config.allow_credentials(credentials);
        let list = |key: &str| {
            let words = policy.text_of(key).unwrap_or_default().split(',').map(str::trim);
            let words: Vec<&str> = words.filter(|it| !it.is_empty()).collect();
            (!words.is_empty()).then_some(words)
        };
        config.allowed_methods(list("allow_methods"));
        config.allowed_headers(list("allow_headers"));
        config.exposed_headers(list("expose_headers"));
        if let Some(age) = policy.get("max_age").and_then(Node::plain).and_then(|it| it.parse::<u64>().ok()) {
            config.max_age(age);
        }
        self.out.converted(policy.at, what);
        Some(Plug::of(config))
    }
}
