//! Where plugins run: of several with one name, a request has the one that is closest to its route.

use std::collections::{HashMap, HashSet};

use super::callers::Callers;
use super::{Kong, is_off, list, name, plugins, reference};
use crate::tree::{Node, NodeValue};

/// How close a plugin is to a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    RouteOfService,
    Route,
    Service,
    Everywhere,
}

/// A plugin, and the proxies that it is for.
pub(super) struct Scoped {
    rank: Rank,
    place: String,
    plugin: Node,
    /// Positions of proxies; `None` is all.
    proxies: Option<Vec<usize>>,
}

impl Kong {
    /// Keeps a plugin until all of them are known.
    pub(super) fn later(&mut self, rank: Rank, place: &str, plugin: &Node, proxies: Option<&[usize]>) {
        self.plugins.push(Scoped {
            rank,
            place: place.to_owned(),
            plugin: plugin.clone(),
            proxies: proxies.map(<[usize]>::to_vec),
        });
    }

    /// A plugin that stands apart from what it is for.
    pub(super) fn lone_plugin(&mut self, plugin: &Node) {
        let place = format!("plugin {}", name(plugin));
        let callers = match (reference(plugin, "consumer"), reference(plugin, "consumer_group")) {
            (Some(consumer), None) => {
                Some(Callers::Consumer(self.usernames.get(&consumer).cloned().unwrap_or(consumer)))
            }
            (None, Some(group)) => Some(Callers::Group(group)),
            _ => None,
        };
        if let Some(callers) = callers {
            let proxies = self.meant(plugin).1;
            if self.caller_plugin(&place, plugin, callers, proxies) {
                return;
            }
        }
        if reference(plugin, "consumer").is_some() || reference(plugin, "consumer_group").is_some() {
            self.of_consumer(&place, plugin, reference(plugin, "consumer"));
            return;
        }
        let (rank, proxies) = self.meant(plugin);
        self.later(rank, &place, plugin, proxies.as_deref());
    }

    /// What the references of an object mean: positions of proxies, `None` for all.
    fn meant(&self, object: &Node) -> (Rank, Option<Vec<usize>>) {
        let of_route = |name: String| self.of_route.get(&name).cloned().unwrap_or_default();
        let of_service = |name: String| self.of_service.get(&name).cloned().unwrap_or_default();
        match (reference(object, "route"), reference(object, "service")) {
            (Some(route), Some(service)) => {
                let of_service = of_service(service);
                let both =
                    of_route(route).into_iter().filter(|at| of_service.binary_search(at).is_ok()).collect();
                (Rank::RouteOfService, Some(both))
            }
            (Some(route), None) => (Rank::Route, Some(of_route(route))),
            (None, Some(service)) => (Rank::Service, Some(of_service(service))),
            (None, None) => (Rank::Everywhere, None),
        }
    }

    /// Puts all plugins where they run.
    pub(super) fn place_plugins(&mut self) {
        let mut all = std::mem::take(&mut self.plugins);
        all.sort_by_key(|scoped| scoped.rank);
        let mut had: HashMap<String, HashSet<usize>> = HashMap::new();
        for Scoped { place, plugin, proxies, .. } in &all {
            let called = name(plugin);
            let everywhere: Vec<usize>;
            let proxies = match proxies {
                Some(proxies) => proxies,
                // Proxies may have one of these without one in Kong, which would take the place of a global one.
                None if matches!(called.as_str(), "request-termination" | "ip-restriction") => {
                    everywhere = (0..self.out.proxies.len()).collect();
                    &everywhere
                }
                None => {
                    plugins::plugin(&mut self.out, place, plugin, plugins::Where::Everywhere);
                    continue;
                }
            };
            let mut left = proxies.clone();
            if !is_off(plugin) {
                let had = had.entry(called.clone()).or_default();
                left.retain(|at| had.insert(*at));
            }
            if left.is_empty() && !proxies.is_empty() {
                let why = "all of its routes have one of their own";
                self.out.not_needed(plugin.at, format_args!("{place}, plugin {called}"), why);
                plugin.see_all();
                continue;
            }
            plugins::plugin(&mut self.out, place, plugin, plugins::Where::Proxies(&left));
        }
    }

    /// Filters in WebAssembly of a service or a route, which may guard.
    pub(super) fn chains(&mut self, place: &str, chains: &Node, proxies: &[usize]) {
        for chain in chains.items() {
            self.chain(place, chain, plugins::Where::Proxies(proxies));
        }
    }

    /// The same where they stand apart.
    pub(super) fn lone_chain(&mut self, chain: &Node) {
        let (_, proxies) = self.meant(chain);
        let at = proxies.as_deref().map_or(plugins::Where::Everywhere, plugins::Where::Proxies);
        self.chain("filter_chains", chain, at);
    }

    fn chain(&mut self, place: &str, chain: &Node, at: plugins::Where<'_>) {
        chain.see_all();
        let runs = list(chain, "filters").any(|it| !is_off(it) && it.value != NodeValue::Null);
        if is_off(chain) || !runs {
            return self.out.not_needed(
                chain.at,
                format_args!("{place}, filter chain"),
                "it is switched off",
            );
        }
        let (place, why) = (format!("{place}, filter chain"), "there is no such plugin here");
        plugins::plugin_not_converted(&mut self.out, &place, "filter-chain", why, chain, at);
    }
}
