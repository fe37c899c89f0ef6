//! Why the proxies that were not chosen were not.

use gateway_core::condition::Holds;
use gateway_core::config::model::{HostPattern, HttpRules, Match, PathPattern, Traffic};
use gateway_core::http::exchange::Exchange;
use gateway_core::route::host_name;
use gateway_core::snapshot::{Route, Snapshot};

/// Near misses that are told.
const MAX_NEAR: usize = 10;
/// Characters of a regex that is shown.
const MAX_REGEX: usize = 200;

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
    AllFits,
    /// Host and path fit, a condition does not hold.
    ConditionFails,
    PathFits,
    HostFits,
    Neither,
}

/// The chosen proxy and which of its matches took the request.
pub(super) type Winner<'s> = (&'s Route, &'s HttpRules, &'s Match);

impl Losers {
    /// Judges every proxy but the winner.
    pub(super) fn of(snapshot: &Snapshot, winner: Option<Winner<'_>>, exchange: &Exchange) -> Self {
        let mut judged: Vec<_> = snapshot
            .by_id
            .iter()
            .filter(|(_, route)| winner.is_none_or(|(winner, ..)| winner.proxy.id != route.proxy.id))
            .filter_map(|(id, route)| match &route.proxy.traffic {
                Traffic::Http(rules) => {
                    let nearest = rules.matches.iter().map(|rule| (distance(rule, exchange), rule));
                    let (distance, rule) = nearest.min_by_key(|(distance, _)| *distance)?;
                    Some((distance, id, (rules, rule)))
                }
                Traffic::Stream(_) => None,
            })
            .collect();
        judged.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
        let count = judged.len();
        let near: Vec<_> = judged
            .into_iter()
            .take_while(|(distance, ..)| *distance < Distance::Neither)
            .take(MAX_NEAR)
            .map(|(distance, id, (rules, rule))| {
                (id.to_string(), why(distance, rules, rule, winner, exchange))
            })
            .collect();
        Self { others: count - near.len(), near }
    }
}

/// The match that takes a request which was found to be the proxy's.
pub(super) fn taken_by<'r>(rules: &'r HttpRules, exchange: &Exchange) -> Option<&'r Match> {
    rules.matches.iter().min_by_key(|rule| distance(rule, exchange))
}

/// Why the chosen one was.
pub(super) fn reason(rules: &HttpRules, rule: &Match, path: &str) -> String {
    let path = match &rule.path {
        PathPattern::HostOnly => "any path".to_owned(),
        PathPattern::Exact(path) => format!("the path {path}"),
        PathPattern::Template(template) => format!("the template {}", template.as_str()),
        PathPattern::Prefix(prefix) if **prefix == *path => format!("the path {prefix}"),
        PathPattern::Prefix(prefix) => format!("the longest prefix is {prefix}"),
        PathPattern::Regex(regex) => format!("no prefix fits, {} does", regex_text(regex.as_str())),
    };
    let condition = if rule.condition.is_some() { ", its conditions hold" } else { "" };
    match rules.priority {
        0 => format!("{}, {path}{condition}", hosts(rule)),
        priority => format!("{}, priority {priority}, {path}{condition}", hosts(rule)),
    }
}

/// A regex that can be read. One with classes such as `\w` is much longer here than the user wrote it.
fn regex_text(regex: &str) -> String {
    match regex.is_ascii() && regex.len() <= MAX_REGEX {
        true => format!("the regex {regex}"),
        false => "its regex".to_owned(),
    }
}

fn hosts(rule: &Match) -> String {
    if rule.hosts.is_empty() {
        return "any host".to_owned();
    }
    let names: Vec<_> = rule
        .hosts
        .iter()
        .map(|host| match host {
            HostPattern::Exact(name) => name.to_string(),
            HostPattern::Suffix(suffix) => format!("*{suffix}"),
        })
        .collect();
    format!("host {}", names.join(" or "))
}

fn distance(rule: &Match, exchange: &Exchange) -> Distance {
    let path = exchange.uri().path();
    let covers = |host: &str| rule.hosts.iter().any(|pattern| pattern.covers(host));
    let host_fits = rule.hosts.is_empty() || host_name(exchange.authority(), covers);
    match (host_fits, rule.path.covers(path)) {
        (true, true) if rule.condition.as_ref().is_none_or(|condition| condition.holds(exchange)) => {
            Distance::AllFits
        }
        (true, true) => Distance::ConditionFails,
        (false, true) => Distance::PathFits,
        // Nearly every proxy takes any host; those that name this one are near.
        (true, false) if !rule.hosts.is_empty() || begins_alike(rule, path) => Distance::HostFits,
        _ => Distance::Neither,
    }
}

/// Whether a listen path and a path share their first segment, or one is the other's beginning.
fn begins_alike(rule: &Match, path: &str) -> bool {
    let (PathPattern::Prefix(prefix) | PathPattern::Exact(prefix)) = &rule.path else { return false };
    let first = |path: &str| path.trim_start_matches('/').split('/').next().unwrap_or_default().to_owned();
    first(prefix) == first(path) || prefix.starts_with(path) && path != "/" || path.starts_with(&**prefix)
}

fn why(
    distance: Distance,
    rules: &HttpRules,
    rule: &Match,
    winner: Option<Winner<'_>>,
    exchange: &Exchange,
) -> String {
    let path = match &rule.path {
        PathPattern::HostOnly => "any path".to_owned(),
        PathPattern::Exact(path) => format!("the path {path}"),
        PathPattern::Template(template) => format!("the template {}", template.as_str()),
        PathPattern::Prefix(prefix) => format!("the prefix {prefix}"),
        PathPattern::Regex(regex) => regex_text(regex.as_str()),
    };
    match (distance, winner) {
        (Distance::AllFits, None) => {
            "it fits, but a narrower host pattern has proxies of its own (see `host_fallthrough`)".to_owned()
        }
        (Distance::AllFits, Some((_, _, won))) if host_rank(won) < host_rank(rule) => {
            format!("it also matches, but {} is less exact than {}", hosts(rule), hosts(won))
        }
        (Distance::AllFits, Some((_, won, _))) if won.priority > rules.priority => {
            format!("it also matches, but its priority {} is lower than {}", rules.priority, won.priority)
        }
        (Distance::AllFits, Some((_, _, won))) if won.path == rule.path => {
            "it also matches, but has fewer conditions".to_owned()
        }
        (Distance::AllFits, Some(_)) => format!("it also matches, but {path} is less exact"),
        (Distance::ConditionFails, _) => {
            let failing =
                rule.condition.as_ref().map(|condition| condition.failing(exchange)).unwrap_or_default();
            format!("host and path fit, but these conditions do not hold: {} ({path})", failing.join(", "))
        }
        (Distance::PathFits, _) => format!("the path fits, the host does not ({})", hosts(rule)),
        (Distance::HostFits, _) => format!("the host fits, the path does not ({path})"),
        (Distance::Neither, _) => "neither host nor path fit".to_owned(),
    }
}

fn host_rank(rule: &Match) -> u8 {
    match rule.hosts.first() {
        Some(HostPattern::Exact(_)) => 0,
        Some(HostPattern::Suffix(_)) => 1,
        None => 2,
    }
}
