//! What only shows between the objects of one document: things that stand twice, and things that aren't there.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use super::words;
use crate::claims::Claims;
use crate::consumer::{Consumers, SharedTrait};
use crate::file::{Document, Items, Proxy as Written, Scope};
use crate::model::{Consumer, HttpRules, Proxy, Settings, StreamRules, Traffic, Transport};
use crate::nearest::nearest;
use crate::pattern::PathPattern;
use crate::port_claims::PortClaims;
use crate::problem::Problems;

/// Ids, names and spellings.
pub(super) fn check(document: &Document, problems: &mut Problems) {
    once(problems, "proxies", "id", keys(&document.proxies, |p| p.id.as_deref()));
    once(problems, "proxies", "name", keys(&document.proxies, |p| p.name.as_deref()));
    once(problems, "upstreams", "id", keys(&document.upstreams, |u| u.id.as_deref()));
    once(problems, "upstreams", "name", keys(&document.upstreams, |u| u.name.as_deref()));
    once(problems, "plugin_configs", "id", keys(&document.plugin_configs, |p| p.id.as_deref()));
    once(problems, "consumers", "id", keys(&document.consumers, |c| c.id.as_deref()));
    once(problems, "consumers", "username", keys(&document.consumers, |c| c.username.as_deref()));
    once(problems, "consumers", "custom_id", keys(&document.consumers, |c| c.custom_id.as_deref()));
    custom_ids(document, problems);
    spellings(&document.proxies, problems);
}

/// Proxies, and plugin configs for the proxies of an owner, that belong to nobody there is.
pub(super) fn owners(document: &Document, problems: &mut Problems) {
    let consumers = &document.consumers;
    // Nobody knows the names of a consumer that could not be read.
    let are_all_read = consumers.unread.is_empty() && consumers.damaged.is_empty();
    let names: HashSet<&str> = keys(consumers, |c| c.id.as_deref())
        .chain(keys(consumers, |c| c.username.as_deref()))
        .chain(keys(consumers, |c| c.custom_id.as_deref()))
        .map(|(_, name)| name)
        .collect();
    let proxies = keys(&document.proxies, |p| p.owner.as_deref()).map(|it| ("proxies", it));
    let configs = keys(&document.plugin_configs, |config| {
        config.owner.as_deref().filter(|_| config.scope == Some(Scope::Owner))
    });
    for (section, (n, owner)) in proxies.chain(configs.map(|it| ("plugin_configs", it))) {
        if are_all_read && words::valid_id(owner).is_ok() && !names.contains(owner) {
            let message = format!("there is no consumer `{owner}`");
            let near = nearest(owner, names.iter().copied());
            let remedy = near
                .map_or_else(|| "add it to `consumers`".to_owned(), |near| format!("did you mean `{near}`?"));
            problems.add(format!("{section}[{n}].owner"), message).remedy = Some(remedy);
        }
    }
}

fn keys<'d, T>(
    items: &'d Items<T>,
    key: impl Fn(&'d T) -> Option<&'d str> + 'd,
) -> impl Iterator<Item = (usize, &'d str)> {
    items.read.iter().filter_map(move |(n, item)| Some((*n, key(item).filter(|text| !text.is_empty())?)))
}

fn once<'d>(
    problems: &mut Problems,
    section: &str,
    key: &str,
    values: impl Iterator<Item = (usize, &'d str)>,
) {
    let mut first = HashMap::new();
    for (n, value) in values {
        if let Some(earlier) = first.get(value) {
            problems
                .add(
                    format!("{section}[{n}].{key}"),
                    format!("`{value}` is the {key} of {section}[{earlier}] already"),
                )
                .remedy = Some("give each its own".to_owned());
            continue;
        }
        first.insert(value, n);
    }
}

/// One consumer's `custom_id` as another's username would make them take each other's place.
fn custom_ids(document: &Document, problems: &mut Problems) {
    let names: HashMap<&str, usize> =
        keys(&document.consumers, |c| c.username.as_deref()).map(|(n, name)| (name, n)).collect();
    for (n, custom_id) in keys(&document.consumers, |c| c.custom_id.as_deref()) {
        if let Some(other) = names.get(custom_id).filter(|other| **other != n) {
            let message = format!("`{custom_id}` is the username of consumers[{other}]");
            problems.add(format!("consumers[{n}].custom_id"), message).remedy =
                Some("give it another".to_owned());
        }
    }
}

fn spellings(proxies: &Items<Written>, problems: &mut Problems) {
    let mut first: Option<(usize, &str)> = None;
    for (n, proxy) in &proxies.read {
        let key = match (proxy.backend_scheme, proxy.backend_protocol) {
            (Some(_), None) => "backend_scheme",
            // Only this spelling has it.
            (None, Some(crate::file::Protocol::FastCgi)) => continue,
            (None, Some(_)) => "backend_protocol",
            _ => continue,
        };
        let (earlier, spelling) = *first.get_or_insert((*n, key));
        if spelling != key {
            let message = format!("proxies[{earlier}] has the other spelling, `{spelling}`");
            problems.add(format!("proxies[{n}].{key}"), message).remedy =
                Some("use one of the two in the whole document; `backend_scheme` is the newer".to_owned());
            return;
        }
    }
}

/// Whether the proxies that plugin configs name are there.
pub(super) fn plugin_targets(document: &Document, problems: &mut Problems) {
    let read = document.proxies.read.iter().filter_map(|(_, proxy)| proxy.id.as_deref());
    let ids: HashSet<&str> = read.chain(document.proxies.unread.iter().map(String::as_str)).collect();
    for (n, proxy) in keys(&document.plugin_configs, |config| config.proxy_id.as_deref()) {
        if !ids.contains(proxy) {
            let near = words::did_you_mean(proxy, ids.iter().copied());
            problems
                .add(format!("plugin_configs[{n}].proxy_id"), format!("there is no proxy `{proxy}`"))
                .remedy = near.or_else(|| Some("write it under `proxies`".to_owned()));
        }
    }
}

/// Two proxies that ask for the same requests.
pub(super) fn routes(proxies: &[(usize, Proxy)], problems: &mut Problems) {
    let mut claims = Claims::default();
    for (n, proxy) in proxies {
        let Traffic::Http(rules) = &proxy.traffic else {
            continue;
        };
        if let Err(tie) = claims.claim(&rules.matches, rules.priority, n) {
            let (key, message) = tied(rules, tie.rule, &format!("proxies[{}]", tie.owner));
            problems.add(format!("proxies[{n}].{key}"), message).remedy = Some(UNTIE.to_owned());
        }
    }
}

/// How two proxies that tie are told apart.
pub(crate) const UNTIE: &str =
    "give them different paths, hosts or `matches` that exclude each other, or one of them a `priority`";

/// The key and the message of a rule that ties with one of `other`.
pub(crate) fn tied(rules: &HttpRules, n: usize, other: &str) -> (String, String) {
    let Some(rule) = rules.matches.get(n) else { return (String::new(), String::new()) };
    let what = match (&rule.path, rule.hosts.is_empty()) {
        (PathPattern::HostOnly, _) => "hosts",
        (_, true) => "path",
        (_, false) => "path and hosts",
    };
    if rule.condition.is_some() || rules.matches.len() > 1 {
        let message =
            format!("nothing says whether this or {other} takes what both ask for: the same {what}");
        return (format!("matches[{n}]"), message);
    }
    let key = if what == "hosts" { "hosts" } else { "listen_path" };
    (key.to_owned(), format!("{other} takes this {what} already"))
}

/// What to do where two stream proxies cannot share a port.
pub(crate) const SHARE_PORT: &str =
    "another port, or `passthrough: true` and different `hosts` or `alpn` on both";

/// Two listeners on one port.
pub(super) fn ports(proxies: &[(usize, Proxy)], settings: Option<&Settings>, problems: &mut Problems) {
    let mut claims = PortClaims::default();
    for (n, proxy) in proxies {
        let Traffic::Stream(rules) = &proxy.traffic else { continue };
        let transport = proxy.backend.scheme.transport();
        let is_udp = transport == Transport::Udp;
        if let Some(listener) = settings.and_then(|settings| reserved(settings, is_udp, rules)) {
            let message = format!("the gateway's own {listener} listener has this port");
            problems.add(format!("proxies[{n}].listen_port"), message).remedy =
                Some("another port".to_owned());
        }
        // Only the first conflict is reported: the others are the same mistake.
        if let Err(other) = claims.claim(transport, rules, n) {
            let message = format!("proxies[{other}] listens there already");
            problems.add(format!("proxies[{n}].listen_port"), message).remedy = Some(SHARE_PORT.to_owned());
        }
    }
}

/// The gateway's own listener that has one of these ports.
pub(crate) fn reserved(settings: &Settings, is_udp: bool, rules: &StreamRules) -> Option<&'static str> {
    let (first, last) = rules.listen_ports;
    let is_taken = |address: SocketAddr| (first..=last).contains(&address.port());
    if is_udp {
        return settings.http3_addresses().any(is_taken).then_some("https");
    }
    let http = settings.http_addresses().any(is_taken).then_some("http");
    let https = || settings.https_addresses().any(is_taken).then_some("https");
    let admin = || settings.admin.is_some_and(is_taken).then_some("admin");
    http.or_else(https).or_else(admin)
}

/// Two consumers that show the same credential. The credential itself is not told.
pub(super) fn credentials(consumers: &[(usize, Arc<Consumer>)], problems: &mut Problems) {
    let mut seen = Consumers::default();
    let places: HashMap<&str, usize> = consumers.iter().map(|(n, c)| (c.id.as_str(), *n)).collect();
    for (n, consumer) in consumers {
        if let Some((SharedTrait::Credential(kind), owner)) = seen.collision(consumer, |_| false) {
            let other = owner.consumer.as_ref().and_then(|other| places.get(other.id.as_str()));
            let message = format!("consumers[{}] has the same {}", other.unwrap_or(n), kind.key);
            problems.add(format!("consumers[{n}].credentials.{}", kind.name), message).remedy =
                Some("give each its own".to_owned());
            continue;
        }
        seen.insert(consumer);
    }
}
