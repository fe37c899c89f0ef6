//! Why the proxies that were not chosen were not.

use gateway_core::config::model::{HostPattern, HttpRules, PathPattern, Traffic};
use gateway_core::config::snapshot::{Route, Snapshot};

/// Near misses that are told.
const MAX_NEAR: usize = 10;

/// The proxies that were not chosen.
pub(super) struct Losers {
    /// Those that nearly were, nearest first: id and reason.
    pub(super) near: Vec<(String, String)>,
    /// How many others there are.
    pub(super) others: usize,
}

/// How near a proxy came; smaller is nearer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Distance {
    /// It would take the request if the chosen one were not there.
    BothFit,
    PathFits,
    HostFits,
    Neither,
}

impl Losers {
    /// Judges every proxy but the winner.
    pub(super) fn of(
        snapshot: &Snapshot,
        winner: Option<(&Route, &HttpRules)>,
        (host, path): (Option<&str>, &str),
    ) -> Self {
        let name = host.map(bare).unwrap_or_default();
        let mut judged: Vec<_> = snapshot
            .by_id
            .iter()
            .filter(|(_, route)| winner.is_none_or(|(winner, _)| winner.proxy.id != route.proxy.id))
            .filter_map(|(id, route)| match &route.proxy.traffic {
                Traffic::Http(rules) => Some((distance(rules, &name, path), id, rules)),
                Traffic::Stream(_) => None,
            })
            .collect();
        judged.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
        let count = judged.len();
        let near: Vec<_> = judged
            .into_iter()
            .take_while(|(distance, ..)| *distance < Distance::Neither)
            .take(MAX_NEAR)
            .map(|(distance, id, rules)| (id.to_string(), why(distance, rules, winner.map(|w| w.1))))
            .collect();
        Self { others: count - near.len(), near }
    }
}

/// Why the chosen one was.
pub(super) fn reason(rules: &HttpRules, path: &str) -> String {
    let path = match &rules.path {
        PathPattern::HostOnly => "any path".to_owned(),
        PathPattern::Exact(path) => format!("the path {path}"),
        PathPattern::Template(template) => format!("the template {}", template.as_str()),
        PathPattern::Prefix(prefix) if **prefix == *path => format!("the path {prefix}"),
        PathPattern::Prefix(prefix) => format!("the longest prefix is {prefix}"),
        PathPattern::Regex(regex) => format!("no prefix fits, the regex {regex} does"),
    };
    format!("{}, {path}", hosts(rules))
}

fn hosts(rules: &HttpRules) -> String {
    if rules.hosts.is_empty() {
        return "any host".to_owned();
    }
    let names: Vec<_> = rules
        .hosts
        .iter()
        .map(|host| match host {
            HostPattern::Exact(name) => name.to_string(),
            HostPattern::Suffix(suffix) => format!("*{suffix}"),
        })
        .collect();
    format!("host {}", names.join(" or "))
}

fn distance(rules: &HttpRules, host: &str, path: &str) -> Distance {
    let host_fits = rules.hosts.is_empty() || rules.hosts.iter().any(|pattern| pattern.covers(host));
    let path_fits = rules.path.covers(path);
    match (host_fits, path_fits) {
        (true, true) => Distance::BothFit,
        (false, true) => Distance::PathFits,
        // Nearly every proxy takes any host; those that name this one are near.
        (true, false) if !rules.hosts.is_empty() || begins_alike(rules, path) => Distance::HostFits,
        _ => Distance::Neither,
    }
}

/// Whether a listen path and a path share their first segment, or one is the other's beginning.
fn begins_alike(rules: &HttpRules, path: &str) -> bool {
    let PathPattern::Prefix(prefix) = &rules.path else { return false };
    let first = |path: &str| path.trim_start_matches('/').split('/').next().unwrap_or_default().to_owned();
    first(prefix) == first(path) || prefix.starts_with(path) && path != "/" || path.starts_with(&**prefix)
}

fn why(distance: Distance, rules: &HttpRules, winner: Option<&HttpRules>) -> String {
    let path = match &rules.path {
        PathPattern::HostOnly => "any path".to_owned(),
        PathPattern::Exact(path) => format!("the path {path}"),
        PathPattern::Template(template) => format!("the template {}", template.as_str()),
        PathPattern::Prefix(prefix) => format!("the prefix {prefix}"),
        PathPattern::Regex(regex) => format!("the regex {regex}"),
    };
    match distance {
        Distance::BothFit => match winner {
            Some(winner) if host_rank(winner) < host_rank(rules) => {
                format!("it fits too, but {} is less exact than {}", hosts(rules), hosts(winner))
            }
            _ => format!("it fits too, but {path} is less exact"),
        },
        Distance::PathFits => format!("the path fits, the host does not ({})", hosts(rules)),
        Distance::HostFits => format!("the host fits, the path does not ({path})"),
        Distance::Neither => "neither host nor path fit".to_owned(),
    }
}

fn host_rank(rules: &HttpRules) -> u8 {
    match rules.hosts.first() {
        Some(HostPattern::Exact(_)) => 0,
        Some(HostPattern::Suffix(_)) => 1,
        None => 2,
    }
}

/// A host as the route table compares it: lower case, no port, no trailing dot.
fn bare(host: &str) -> String {
    let name = match host.strip_prefix('[') {
        Some(_) => host.split_inclusive(']').next().unwrap_or(host),
        None => host.split(':').next().unwrap_or(host),
    };
    name.trim_end_matches('.').to_ascii_lowercase()
}
