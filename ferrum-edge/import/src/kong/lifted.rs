//! Routes that ask for more than those of a host: Kong asks them first, whatever hosts they have. Here a host's own proxies go
//! first, so that such a route is one of theirs, too.

use std::collections::BTreeMap;

use serde_json::Value;

use super::routes::MORE;
use super::within::Belongings;
use crate::draft::Import;
use crate::report::At;

/// Hosts of one proxy.
const MAX_HOSTS: usize = 100;
/// Proxies times hosts that are looked at.
const MAX_PAIRS: usize = 20_000_000;

/// Adds proxies for the hosts whose own routes ask for less.
pub(super) fn add(out: &mut Import) {
    let mut least: BTreeMap<String, i64> = BTreeMap::new();
    for proxy in out.proxies.iter().filter(|proxy| proxy.get("listen_port").is_none()) {
        for host in hosts(proxy) {
            let count = least.entry(host).or_insert(i64::MAX);
            *count = (*count).min(asks(proxy));
        }
    }
    if least.len().saturating_mul(out.proxies.len()) > MAX_PAIRS {
        let why = "Kong asks those with more conditions first, whatever hosts they have; here those of a host go first";
        let what = "routes with hosts beside routes without";
        return out.partial(At::default(), what, why, "give all of them hosts");
    }
    if least.is_empty() {
        return;
    }
    let belongings = Belongings::of(out);
    for at in 0..out.proxies.len() {
        let proxy = &out.proxies[at];
        if proxy.get("listen_port").is_some() {
            continue;
        }
        let (own, mine) = (hosts(proxy), asks(proxy));
        if !own.is_empty() && !own.iter().any(|host| host.starts_with('*')) {
            continue;
        }
        let is_wider = |host: &String| {
            let below = |pattern: &String| pattern.strip_prefix('*').is_some_and(|end| host.ends_with(end));
            own.is_empty() || !own.contains(host) && own.iter().any(below)
        };
        let mut wider: Vec<(&String, i64)> = least
            .iter()
            .map(|(host, count)| (host, *count))
            .filter(|(host, count)| mine >= *count && is_wider(host))
            .collect();
        // A host with a port is a plain one there, and only a condition here.
        if !wider.is_empty() && !proxy["matches"].to_string().contains("\"authority\"") {
            wider.retain(|(_, count)| mine > *count);
        }
        let lifted: Vec<String> = wider.into_iter().map(|(host, _)| host.clone()).collect();
        for hosts in lifted.chunks(MAX_HOSTS) {
            add_copy_for(out, &belongings, at, hosts);
        }
    }
}

fn hosts(proxy: &Value) -> Vec<String> {
    let all = proxy.get("hosts").and_then(Value::as_array).into_iter().flatten();
    all.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// How many things a proxy's route asks for.
fn asks(proxy: &Value) -> i64 {
    proxy.get("priority").and_then(Value::as_i64).unwrap_or(0) / MORE
}

/// Adds the same proxy for these hosts.
fn add_copy_for(out: &mut Import, belongings: &Belongings, at: usize, hosts: &[String]) {
    let mut copy = out.proxies[at].clone();
    let before = copy["id"].as_str().unwrap_or_default().to_owned();
    let id = out.id("proxy", &format!("{before}-hosts"));
    copy["id"] = id.as_str().into();
    copy["hosts"] = hosts.into();
    belongings.copy(out, &before, &id);
    out.proxies.push(copy);
}
