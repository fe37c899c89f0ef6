//! What an Ingress says of a host as a whole: ingress-nginx makes one server of all Ingresses of a host.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::annotations::{get, is_guard, says};
use super::{Ingress, Named};
use crate::draft::{Match, Matcher, Route, To, draft};
use crate::text;
use crate::tree::Node;

/// What Ingresses say of hosts.
#[derive(Debug, Default)]
pub(super) struct HostSettings {
    /// Hosts with a certificate, with `*.` in front for all below one.
    tls: BTreeSet<String>,
    /// Hosts that something guards that is not converted, and the Ingress that says so.
    guarded: BTreeMap<String, (String, String)>,
    /// Other names of hosts, and where they are said.
    aliases: BTreeMap<String, Vec<(String, Node)>>,
    all: BTreeSet<String>,
}

impl HostSettings {
    pub(super) fn of(ingresses: &[Named]) -> Self {
        let mut made = Self::default();
        for (name, ingress) in ingresses.iter().filter(|(_, ingress)| !says(ingress, "canary")) {
            let rules = ingress.path(&["spec", "rules"]).map_or(&[][..], Node::items);
            let hosts: Vec<String> =
                rules.iter().map(|rule| rule.text_of("host").unwrap_or("").to_ascii_lowercase()).collect();
            for tls in ingress.path(&["spec", "tls"]).map_or(&[][..], Node::items) {
                let listed = tls.texts("hosts");
                // Without a list, the certificate says which hosts it is for.
                let of = if listed.is_empty() { &hosts } else { &listed };
                made.tls.extend(of.iter().map(|host| host.to_ascii_lowercase()));
            }
            let is_asked = get(ingress, "auth-tls-secret").is_some_and(|it| !it.is_empty())
                || get(ingress, "auth-tls-verify-client").is_some_and(|it| it != "off");
            if is_asked || get(ingress, "server-snippet").is_some_and(|it| is_guard(&it)) {
                for host in &hosts {
                    made.guarded.entry(host.clone()).or_insert_with(|| name.clone());
                }
            }
            if let (Some(host), Some(said)) = (hosts.first(), get(ingress, "server-alias")) {
                let names = said.split(',').map(|it| it.trim().to_owned()).filter(|it| !it.is_empty());
                made.aliases
                    .entry(host.clone())
                    .or_default()
                    .extend(names.map(|alias| (alias, ingress.clone())));
            }
            made.all.extend(hosts);
        }
        made
    }

    /// Whether a host has other names, which are no hosts of their own.
    pub(super) fn has_aliases(&self, host: &str) -> bool {
        let own = |(alias, _): &(String, Node)| !self.all.contains(&alias.to_ascii_lowercase());
        self.aliases.get(host).is_some_and(|all| all.iter().any(own))
    }

    /// Whether there is a certificate for a host.
    pub(super) fn has_tls(&self, host: &str) -> bool {
        let below = host.split_once('.').map(|(_, rest)| format!("*.{rest}"));
        self.tls.contains(host) || below.is_some_and(|below| self.tls.contains(&below))
    }
}

impl Ingress<'_> {
    /// Whether another Ingress closes a host.
    pub(super) fn is_closed_host(
        &mut self,
        what: &str,
        namespace: &str,
        name: &str,
        rule: &Node,
        host: &str,
    ) -> bool {
        let Some((space, other)) = self.hosts.guarded.get(host).cloned() else { return false };
        if (space.as_str(), other.as_str()) == (namespace, name) {
            return false;
        }
        let what = format!("{what}: host {host}");
        let why = format!("Ingress {space}/{other} guards the whole host in a way that is not converted");
        self.out.guard_not_converted(rule.at, what, why, super::annotations::TODO)
    }

    /// Gives hosts their other names. One that is a host of its own stays that.
    pub(super) fn aliases(&mut self) {
        let all = std::mem::take(&mut self.hosts.aliases);
        for (host, aliases) in &all {
            let mut names: Vec<String> = Vec::new();
            for (alias, ingress) in aliases {
                let annotation = ingress.path(&["metadata", "annotations"]).map_or(ingress.at, |it| it.at);
                let alias = alias.to_ascii_lowercase();
                if let Some(regex) = alias.strip_prefix('~') {
                    self.alias_regex(annotation, &alias, regex);
                } else if self.hosts.all.contains(&alias) || host.is_empty() {
                    let why = "it is the host of another rule, or all hosts are meant anyway";
                    self.out.not_needed(annotation, format_args!("server-alias {alias}"), why);
                } else if !names.contains(&alias) {
                    names.push(alias);
                }
            }
            for proxy in &mut self.out.proxies {
                let Some(Value::Array(hosts)) = proxy.get_mut("hosts") else { continue };
                if hosts.iter().any(|it| it == host) {
                    hosts.extend(names.iter().cloned().map(Value::from));
                }
            }
        }
    }

    /// Closes the hosts that an alias means by a regex.
    fn alias_regex(&mut self, at: crate::report::At, alias: &str, regex: &str) {
        let what = format!("server-alias {alias}");
        let why = "of a regex, the hosts are closed";
        if !self.out.guard_not_converted(at, what, why, "write the names out") {
            return;
        }
        let mut route = Route::new("closed-alias", To::Closed);
        let mut one = draft!(Match { path: Matcher::prefix("/") });
        if let Some(regex) = text::host_regex(regex) {
            one.authority(Matcher::regex(regex));
        }
        route.matches.push(one);
        route.priority = Some(1_000_000);
        self.out.route(route);
    }
}
