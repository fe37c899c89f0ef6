//! Kong's upstreams: their targets, how one is picked, and how they are asked whether they work.

use super::{Kong, list, name, some, text};
use crate::draft::{ActiveCheck, Cookie, HealthChecks, PassiveCheck, Target, Upstream, draft};
use crate::tree::Node;

/// The weight of a target that says none.
const WEIGHT: u64 = 100;

impl Kong {
    pub(super) fn upstream(&mut self, upstream: &Node) {
        let called = name(upstream);
        self.out.here = upstream.at;
        let place = format!("upstream {called}");
        let id = self.out.id("upstream", &called);
        let targets = self.targets(&place, upstream);
        if targets.is_empty() {
            self.out.not_converted_here(&place, "it has no targets; what names it is not converted either");
            return;
        }
        let mut made = draft!(Upstream { id: &id, targets });
        self.balancing(&place, upstream, &mut made);
        if let Some(checks) = upstream.get("healthchecks") {
            self.checks(&place, checks, &mut made);
        }
        self.report_object(
            &place,
            upstream,
            &[
                "targets",
                "algorithm",
                "hash_on",
                "hash_on_header",
                "hash_on_cookie",
                "hash_on_cookie_path",
                "healthchecks",
                "slots",
            ],
        );
        self.upstreams.insert(called, id);
        self.out.upstreams.push(made.into());
    }

    fn targets(&mut self, place: &str, upstream: &Node) -> Vec<Target> {
        let mut targets = Vec::new();
        let says_weights = list(upstream, "targets").any(|target| target.get("weight").is_some());
        for target in list(upstream, "targets") {
            let Some(address) = text(target, "target") else { continue };
            let place = format!("{place}, target {address}");
            let (host, port) = match address.rsplit_once(':') {
                Some((host, port)) if port.parse::<u16>().is_ok() => (host, port.parse().ok()),
                _ => (address, None),
            };
            let weight = target.get("weight").and_then(Node::uint);
            if weight == Some(0) {
                self.out.not_needed(target.at, &place, "a weight of 0 is no traffic");
                continue;
            }
            let mut made = self.target(&place, host, port);
            made.weight(says_weights.then(|| weight.unwrap_or(WEIGHT)));
            targets.push(made);
        }
        targets
    }

    fn balancing(&mut self, place: &str, upstream: &Node, made: &mut Upstream) {
        let hash_on = text(upstream, "hash_on").filter(|on| *on != "none");
        let algorithm = match text(upstream, "algorithm") {
            _ if hash_on.is_some() => "consistent_hashing",
            Some("least-connections") => "least_connections",
            Some("latency") => "least_latency",
            Some("consistent-hashing") => "consistent_hashing",
            Some("round-robin") | None => "weighted_round_robin",
            Some(other) => {
                self.out.not_converted_here(
                    format_args!("{place}.algorithm"),
                    format_args!("`{other}` is not known"),
                );
                return;
            }
        };
        made.algorithm(algorithm);
        if let Some(path) = text(upstream, "hash_on_cookie_path").filter(|_| hash_on == Some("cookie")) {
            // Kong gives clients without the cookie one.
            made.hash_on_cookie_config(draft!(Cookie { path, ttl: 0 }));
        }
        let hashed = match hash_on {
            None | Some("ip") => return,
            Some("header") => text(upstream, "hash_on_header").map(|name| format!("header:{name}")),
            Some("cookie") => text(upstream, "hash_on_cookie").map(|name| format!("cookie:{name}")),
            Some(_) => None,
        };
        match hashed {
            Some(hashed) => made.hash_on(hashed),
            None => self.out.not_converted_here(
                format_args!("{place}.hash_on"),
                "hashed by the client's address instead",
            ),
        }
    }

    /// `healthchecks`: without intervals and counts, as dumps have it, nothing is checked.
    fn checks(&mut self, place: &str, checks: &Node, made: &mut Upstream) {
        let place = format!("{place}.healthchecks");
        let number = |keys: &[&str]| checks.path(keys).and_then(seconds).filter(|it| *it > 0);
        let interval = [["active", "unhealthy", "interval"], ["active", "healthy", "interval"]]
            .iter()
            .filter_map(|keys| number(keys))
            .min();
        let failures =
            ["http_failures", "tcp_failures", "timeouts"].map(|key| number(&["passive", "unhealthy", key]));
        let passive = |most| {
            let statuses = some(statuses(checks, &["passive", "unhealthy", "http_statuses"]));
            draft!(PassiveCheck { unhealthy_threshold: most, unhealthy_status_codes: statuses })
        };
        let ours = draft!(HealthChecks {
            active: interval.map(|interval| active(checks, interval)),
            passive: failures.into_iter().flatten().min().map(passive),
        });
        checks.see_all();
        if ours.is_empty() {
            return self.out.not_needed(checks.at, place, "nothing is checked");
        }
        made.health_checks(ours);
        let why =
            "one count stands for failures of all kinds, and targets that were taken out are tried again";
        self.out.partial(checks.at, place, why, "see `health_checks` of upstreams");
    }
}

/// A number of seconds or times, which may be written with a fraction.
fn seconds(node: &Node) -> Option<u64> {
    let text = node.plain()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let more = u64::from(fraction.bytes().any(|digit| digit != b'0'));
    Some(whole.parse::<u64>().ok()? + more)
}

fn statuses(checks: &Node, keys: &[&str]) -> Vec<u64> {
    let all = checks.path(keys).map_or(&[][..], Node::items).iter().filter_map(Node::uint);
    all.filter(|status| (200..600).contains(status)).collect()
}

fn active(checks: &Node, interval: u64) -> ActiveCheck {
    let number = |keys: &[&str]| checks.path(keys).and_then(seconds).filter(|it| *it > 0);
    let kind = checks.path(&["active", "type"]).and_then(Node::str).unwrap_or("http");
    let mut made = draft!(ActiveCheck { interval: interval.min(86_400) });
    match kind {
        "tcp" => made.probe_type("tcp"),
        "grpc" | "grpcs" => made.probe_type("grpc"),
        _ => {
            made.http_path(checks.path(&["active", "http_path"]).and_then(Node::str).unwrap_or("/"));
            made.healthy_status_codes(some(statuses(checks, &["active", "healthy", "http_statuses"])));
        }
    }
    if matches!(kind, "https" | "grpcs") {
        made.use_tls(true);
    }
    made.timeout(number(&["active", "timeout"]).map(|timeout| timeout.min(300)));
    made.healthy_threshold(number(&["active", "healthy", "successes"]));
    let bad = ["http_failures", "tcp_failures", "timeouts"].map(|key| number(&["active", "unhealthy", key]));
    made.unhealthy_threshold(bad.into_iter().flatten().min());
    made
}
