//! Middlewares that bound: rates, requests in flight, sizes, tries and failures.

use regex::Regex;

use super::{Made, number};
use crate::draft::{
    Backoff, CircuitBreaker, ConcurrencyLimiting, Exponential, Limit, Plug, RateLimiting, Redis,
    RequestSizeLimiting, ResponseSizeLimiting, Retry, SharedBy, draft,
};
use crate::text;
use crate::traefik::Traefik;
use crate::tree::Node;

impl Traefik<'_> {
    pub(super) fn rate_limit(&mut self, what: &str, settings: &Node, made: &mut Made) {
        let average = number(settings, "average").unwrap_or(0);
        let burst = number(settings, "burst").unwrap_or(1).max(1);
        let period =
            settings.get("period").and_then(Node::plain).map_or(Some(1000), |it| text::millis(&it, 1000));
        if average == 0 {
            return self.out.not_needed(settings.at, what, "a rate of 0 is no limit");
        }
        let Some(period) = period else {
            let todo = "use the plugin `rate_limiting`";
            return self.out.not_converted(settings.at, what, "its rate is not known", todo);
        };
        let limit = draft!(Limit { rate: average, per: format!("{period}ms"), burst });
        let by = self.criterion(what, settings, "address");
        let mut config = draft!(RateLimiting { limits: [limit], limit_by: by, headers: "none" });
        if let Some(redis) = settings.get("redis") {
            let urls: Vec<String> =
                super::list(redis, "endpoints").iter().map(|it| format!("redis://{it}")).collect();
            if !urls.is_empty() && redis.get("tls").is_none() {
                let mut connection = draft!(Redis { urls });
                connection.username(redis.text_of("username"));
                connection.password(redis.text_of("password"));
                connection.database(number(redis, "db"));
                config.redis(draft!(SharedBy { name: self.out.redis(connection) }));
            }
        }
        made.plugins.push(Plug::of(config));
        self.out.converted(settings.at, what);
    }

    /// By what requests are told apart.
    fn criterion(&mut self, what: &str, settings: &Node, default: &str) -> String {
        let Some(criterion) = settings.get("sourceCriterion") else { return default.to_owned() };
        if let Some(name) = criterion.text_of("requestHeaderName") {
            return format!("header:{name}");
        }
        if super::is_true(criterion, "requestHost") {
            return "template:${request.host}".to_owned();
        }
        let why = "requests are told apart by the client's address, as `gateway.trusted_proxies` says it";
        self.out.partial(criterion.at, format_args!("{what}.sourceCriterion"), why, "set `limit_by`");
        criterion.see_all();
        "address".to_owned()
    }

    pub(super) fn in_flight(&mut self, what: &str, settings: &Node, made: &mut Made) {
        let Some(amount) = number(settings, "amount").filter(|it| *it > 0) else {
            return self.out.not_converted(settings.at, what, "its amount is not known", "");
        };
        // Without a criterion Traefik counts by host.
        let by = self.criterion(what, settings, "template:${request.host}");
        let config = draft!(ConcurrencyLimiting { max_concurrent: amount, limit_by: by, status_code: 429 });
        made.plugins.push(Plug::of(config));
        self.out.converted(settings.at, what);
    }

    pub(super) fn buffering(&mut self, what: &str, settings: &Node, made: &mut Made) {
        let most = |key: &str| number(settings, key).filter(|it| *it > 0);
        let request = most("maxRequestBodyBytes");
        made.plugins.extend(request.map(|bytes| Plug::of(draft!(RequestSizeLimiting { max_size: bytes }))));
        let response = most("maxResponseBodyBytes");
        made.plugins.extend(response.map(|bytes| Plug::of(draft!(ResponseSizeLimiting { max_size: bytes }))));
        for key in ["memRequestBodyBytes", "memResponseBodyBytes"] {
            if let Some(node) = settings.get(key) {
                self.out.not_needed(node.at, format_args!("{what}.{key}"), "bodies pass as they come");
            }
        }
        self.out.converted(settings.at, what);
    }

    /// Traefik tries again where no answer came, whatever the method.
    pub(super) fn retry(&mut self, what: &str, settings: &Node, made: &mut Made) {
        let tries = number(settings, "attempts").unwrap_or(1);
        let mut retry = draft!(Retry { max_retries: tries.saturating_sub(1).min(100) });
        let pause = settings.get("initialInterval").and_then(Node::plain).and_then(|it| text::millis(&it, 1));
        if let Some(pause) = pause.filter(|it| *it > 0) {
            let pauses = draft!(Exponential { base: text::duration(pause.min(300_000)) });
            retry.backoff(draft!(Backoff { exponential: pauses }));
        }
        made.retry = Some(retry);
        self.out.converted(settings.at, what);
    }

    /// Shares of failures become failures in a row.
    pub(super) fn circuit_breaker(&mut self, what: &str, settings: &Node, made: &mut Made) {
        let expression = settings.text_of("expression").unwrap_or_default();
        let Some(statuses) = failures(expression) else {
            let why =
                "of its expressions, those by `NetworkErrorRatio()` and `ResponseCodeRatio()` are known";
            return self.out.not_converted(settings.at, what, why, "set `circuit_breaker` of the proxy");
        };
        let mut breaker =
            draft!(CircuitBreaker { failure_status_codes: statuses, trip_on_connection_errors: true });
        let pause =
            settings.get("fallbackDuration").and_then(Node::plain).and_then(|it| text::millis(&it, 1000));
        breaker.timeout(pause.map_or(10, text::seconds).clamp(1, 86_400));
        made.breaker = Some(breaker);
        settings.see_all();
        let why = "it opens after 5 failures in a row, not by their share";
        self.out.partial(settings.at, what, why, "set `circuit_breaker.failure_threshold`");
    }
}

/// Statuses that count as failures; none where only broken connections do.
fn failures(expression: &str) -> Option<Vec<u16>> {
    let ratio = Regex::new(r"^ResponseCodeRatio\((\d+),\s*(\d+),\s*\d+,\s*\d+\)\s*>\s*[\d.]+$").ok()?;
    let network = Regex::new(r"^NetworkErrorRatio\(\)\s*>\s*[\d.]+$").ok()?;
    let mut statuses = Vec::new();
    for part in expression.split("||").map(str::trim) {
        if let Some(found) = ratio.captures(part) {
            let (from, to): (u16, u16) = (found[1].parse().ok()?, found[2].parse().ok()?);
            let known = [500, 501, 502, 503, 504, 429];
            statuses.extend(known.into_iter().filter(|status| (from..to).contains(status)));
        } else if !network.is_match(part) {
            return None;
        }
    }
    Some(statuses)
}

#[cfg(test)]
mod tests {
    use super::failures;

    #[test]
    fn expressions() {
        assert_eq!(failures("NetworkErrorRatio() > 0.30"), Some(vec![]));
        assert_eq!(
            failures("NetworkErrorRatio() > 0.3 || ResponseCodeRatio(500, 600, 0, 600) > 0.25"),
            Some(vec![500, 501, 502, 503, 504])
        );
        assert_eq!(failures("LatencyAtQuantileMS(50.0) > 100"), None);
        assert_eq!(failures(""), None);
    }
}
