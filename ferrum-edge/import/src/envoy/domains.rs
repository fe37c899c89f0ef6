//! The domains of Envoy's virtual hosts, and which requests are theirs.

use std::collections::{BTreeSet, HashSet};

use super::routes::here;
use super::{Envoy, Listener};
use crate::draft::{Match, Matcher, Route, To, draft};
use crate::text;
use crate::tree::Node;

impl Envoy<'_> {
    /// The hosts of a virtual host. Names go before all others here: what holds for both is said of both.
    pub(super) fn domains(
        &mut self,
        what: &str,
        host: &Node,
        names: &[String],
        listener: &Listener,
    ) -> Vec<Facet> {
        let all: Vec<String> = host.texts("domains").iter().map(|it| it.to_ascii_lowercase()).collect();
        let known: HashSet<&str> = all.iter().map(String::as_str).collect();
        let mut seen: HashSet<&str> = HashSet::new();
        let is_any = takes_any(&all);
        let (mut hosts, mut made): (Vec<String>, Vec<Facet>) = (Vec::new(), Vec::new());
        for domain in &all {
            let name = without_port(domain);
            let rest = name.strip_prefix("*.").unwrap_or(name);
            if name == "*" {
                if has_number(domain) && !is_any {
                    self.with_ports += 1;
                    let lift = OF_ANY_WITH_PORT + self.with_ports * OF_NEXT_PORT;
                    made.extend(of_port(domain, lift, &all, listener));
                }
            } else if rest.contains('*') {
                for mut closed in self.close_domain(what, host, name, &all, listener) {
                    closed
                        .matches
                        .iter_mut()
                        .for_each(|one| *one = here(std::mem::take(one), names, listener));
                    self.out.route(closed);
                }
            } else if has_number(domain) && !known.contains(name) {
                // Without its port, the name is another virtual host's.
                self.with_ports += 1;
                let lift = OF_PORT + self.with_ports * OF_NEXT_PORT;
                let takes_usual = !listener.domains.contains(name);
                let authority = Some(with_port(domain, takes_usual));
                made.push(Facet { hosts: vec![name.to_owned()], authority, lift });
            } else if seen.insert(name) {
                hosts.push(name.to_owned());
            }
        }
        if !hosts.is_empty() {
            made.push(Facet { hosts, authority: None, lift: 0 });
        }
        if is_any {
            made.push(Facet { hosts: Vec::new(), authority: None, lift: 0 });
        }
        made
    }

    /// Closes hosts that no name of ours means: they would go to a virtual host for others, without what guards them.
    fn close_domain(
        &mut self,
        what: &str,
        host: &Node,
        domain: &str,
        all: &[String],
        listener: &Listener,
    ) -> Vec<Route> {
        let place = format!("{what}: {domain}");
        // Other names go before those for all others here, whatever the priority.
        let covering = covering(domain, &listener.domains);
        let is_own = covering.first().is_some_and(|name| all.iter().any(|it| without_port(it) == *name));
        let is_any = takes_any(all);
        if is_own || is_any && covering.is_empty() {
            self.out.not_needed(host.at, place, "the virtual host takes all others, and these with them");
            return Vec::new();
        }
        let why = "only names and `*.` in front of one are known; its requests are closed";
        if !self.out.guard_not_converted(host.at, place, why, "write the names out") {
            return Vec::new();
        }
        let pieces: Vec<String> = domain.split('*').map(text::literal).collect();
        let regex = format!("(?i){}(?::[0-9]+)?", pieces.join("[^:]+"));
        let mut route = Route::new(format!("closed-{domain}"), To::Closed);
        route.matches.push(draft!(Match { path: "/", authority: Matcher::regex(regex) }));
        // Several of them may mean the same host, and the gateway refuses ties.
        route.priority = Some(CLOSED + i64::try_from(self.out.proxies.len()).unwrap_or_default());
        let mut made = Vec::new();
        if !covering.is_empty() {
            let hosts = covering.into_iter().map(str::to_owned).collect();
            made.push(Route { hosts, ..route.clone() });
        }
        if !is_any {
            made.push(route);
        }
        made
    }
}

/// Whether domains take all others.
fn takes_any(domains: &[String]) -> bool {
    domains.iter().any(|domain| without_port(domain) == "*" && !has_number(domain))
}

/// The names such as `*.foo.com` that take what a pattern such as `*-int.foo.com` means, the longest first. In Envoy the
/// longer pattern goes first; one that ends with a `*` has only what those that begin with one leave.
fn covering<'d>(pattern: &str, domains: &'d BTreeSet<String>) -> Vec<&'d str> {
    let Some(end) = pattern.strip_prefix('*').filter(|end| !end.contains('*')) else { return Vec::new() };
    let names = domains.iter().map(|domain| without_port(domain));
    let is_wider = |name: &&str| {
        let rest = name.strip_prefix('*').filter(|rest| rest.starts_with('.') && !rest.contains('*'));
        rest.is_some_and(|rest| end.len() > rest.len() && end.ends_with(rest))
    };
    let mut made: Vec<&str> = names.filter(is_wider).collect();
    made.sort_by_key(|name| std::cmp::Reverse(name.len()));
    made.dedup();
    made
}

/// What `*:8080` takes: Envoy compares hosts with their ports, so also what other virtual hosts' names would take here.
fn of_port(domain: &str, lift: i64, all: &[String], listener: &Listener) -> Vec<Facet> {
    let authority = Some(with_port(domain, false));
    let is_name = |name: &&str| {
        let rest = name.strip_prefix("*.").unwrap_or(name);
        !rest.contains('*') && !all.iter().any(|own| own == name)
    };
    let mut hosts: Vec<String> =
        listener.domains.iter().map(|it| without_port(it)).filter(is_name).map(str::to_owned).collect();
    hosts.sort();
    hosts.dedup();
    let any = Facet { hosts: Vec::new(), authority, lift };
    if hosts.is_empty() { vec![any] } else { vec![Facet { hosts, ..any.clone() }, any] }
}

/// Hosts that a virtual host is for.
#[derive(Debug, Clone)]
pub(super) struct Facet {
    /// None are all others.
    hosts: Vec<String>,
    /// A regex over the host and its port, where only one port is meant.
    authority: Option<String>,
    /// By how much it goes before others.
    lift: i64,
}

/// The least priority of what is closed for a host that can't be said.
const CLOSED: i64 = 2_000_000;
/// By how much what is for all hosts with one port goes before what is for a host.
const OF_ANY_WITH_PORT: i64 = 4_000_000;
/// By how much what is for a host with its port goes before what is for the host, or for another port.
const OF_PORT: i64 = 100_000_000;
/// The same between two hosts with ports; no multiple of the distance between routes.
const OF_NEXT_PORT: i64 = 100_007;

impl Facet {
    /// Makes a route one for these hosts, and for what comes to a listener.
    pub(super) fn put(&self, route: &mut Route, names: &[String], listener: &Listener) {
        route.hosts.clone_from(&self.hosts);
        for one in &mut route.matches {
            *one = here(std::mem::take(one), names, listener);
            if let Some(authority) = &self.authority {
                *one =
                    std::mem::take(one).with_facet(&draft!(Match { authority: Matcher::regex(authority) }));
            }
        }
        route.priority = route.priority.map(|priority| priority + self.lift);
    }
}

/// A regex over the host and port of a domain that has one.
fn with_port(domain: &str, takes_usual: bool) -> String {
    let literal = match domain.strip_prefix('*') {
        // Of all hosts, or those below one.
        Some(end) if end.starts_with(':') => format!(".*{}", text::literal(end)),
        Some(end) => format!("[^:]+{}", text::literal(end)),
        None => text::literal(domain),
    };
    // Where a port is the usual one, nobody writes it.
    let usual = literal.strip_suffix(":80").or_else(|| literal.strip_suffix(":443"));
    let ending = literal.rsplit(':').next().unwrap_or_default();
    match usual.filter(|_| takes_usual) {
        Some(host) => format!("(?i){host}(?::{ending})?"),
        None => format!("(?i){literal}"),
    }
}

/// Whether a domain has a port.
pub(super) fn has_number(domain: &str) -> bool {
    domain.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}

/// A domain without its port, which is not looked at.
fn without_port(domain: &str) -> &str {
    let parts = domain.rsplit_once(':').filter(|(_, port)| *port == "*" || port.parse::<u16>().is_ok());
    parts.map_or(domain, |(host, _)| host)
}
