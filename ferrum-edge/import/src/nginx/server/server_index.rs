//! Which servers have a port, a name, or all that no other one takes; looked up, for a file may have many servers.

use std::collections::{HashMap, HashSet};

use super::{HostPattern, Server};
use crate::draft::{Match, draft};
use crate::ports::Ports;

/// All servers of `http`. Ports and servers are named by their numbers.
pub(super) struct ServerIndex<'s> {
    ports: &'s Ports,
    /// The ports of each server.
    mine: Vec<Vec<usize>>,
    /// By port, the server that is asked for all that no other one on it takes.
    defaults: Vec<Option<usize>>,
    /// By port, the last server that has regexes.
    last_regexes: Vec<Option<usize>>,
    /// The first server on a port that has a name.
    owners: HashMap<(usize, &'s str), usize>,
    /// How many servers have names with wildcards.
    wild_count: usize,
    /// Whether a server has patterns, or names that can't be said here.
    has_patterns: bool,
    /// Whether there is a name that a server has on some ports, and nobody on others.
    pub(super) has_foreign_names: bool,
}

impl<'s> ServerIndex<'s> {
    pub(super) fn new(servers: &'s [Server<'_>], ports: &'s Ports) -> Self {
        let port_count = ports.count();
        let mut mine = Vec::with_capacity(servers.len());
        let (mut named, mut first) = (vec![None; port_count], vec![None; port_count]);
        let mut last_regexes = vec![None; port_count];
        let mut owners = HashMap::new();
        for (n, server) in servers.iter().enumerate() {
            let has_regexes = server.patterns.iter().any(HostPattern::is_regex);
            let mut own = Vec::with_capacity(server.listens.len());
            for (listen, port) in server.listens.iter().filter_map(|it| Some((it, ports.place(&it.port())?)))
            {
                own.push(port);
                first[port].get_or_insert(n);
                if listen.is_default {
                    named[port].get_or_insert(n);
                }
                if has_regexes {
                    last_regexes[port] = Some(n);
                }
            }
            own.sort_unstable();
            own.dedup();
            for port in &own {
                for name in &server.names {
                    owners.entry((*port, name.as_str())).or_insert(n);
                }
            }
            mine.push(own);
        }
        let names: HashSet<&String> = servers.iter().flat_map(|server| &server.names).collect();
        let is_wild = |server: &&Server<'_>| server.has_wildcard();
        Self {
            ports,
            mine,
            defaults: named.into_iter().zip(first).map(|(named, first)| named.or(first)).collect(),
            last_regexes,
            // The map has one entry for each name on each port on which a server has that name.
            has_foreign_names: owners.len() < names.len() * port_count,
            owners,
            wild_count: servers.iter().filter(is_wild).count(),
            has_patterns: servers.iter().any(|it| !it.unknown.is_empty() || !it.patterns.is_empty()),
        }
    }

    /// Whether a server is asked for all that no other one on the port takes.
    fn is_default(&self, n: usize, port: usize) -> bool {
        self.defaults[port] == Some(n)
    }

    /// The names of a server that no server before it has on the port.
    fn own_names(&self, server: &'s Server<'_>, n: usize, port: usize) -> Vec<&'s String> {
        let is_own = |name: &&String| self.owners.get(&(port, name.as_str())).is_none_or(|owner| *owner >= n);
        server.names.iter().filter(is_own).collect()
    }

    /// The hosts and ports of a server's requests, as keys of matches.
    pub(super) fn facets(&self, server: &'s Server<'_>, n: usize) -> Vec<Match> {
        let mine = &self.mine[n];
        let served: Vec<(usize, Vec<&String>, bool)> = mine
            .iter()
            .map(|port| (*port, self.own_names(server, n, *port), self.is_default(n, *port)))
            .collect();
        let Some((_, names, default)) = served.first() else { return Vec::new() };
        // What patterns mean, and what is closed for names that can't be said, is not what the default server is asked for by its
        // own names.
        let wild = self.wild_count > usize::from(server.has_wildcard()) || self.has_patterns;
        let mut made = Vec::new();
        let mut add = |hosts: Option<&[&String]>, facet: Match| {
            let with_hosts = |hosts| draft!(Match { hosts }).with_facet(&facet);
            made.push(hosts.map_or_else(|| facet.clone(), with_hosts));
        };
        let alike =
            |(_, own, is_default): &(usize, Vec<&String>, bool)| own == names && is_default == default;
        if self.is_everywhere(n) && served.iter().all(alike) {
            if !names.is_empty() && (!default || wild) {
                add(Some(names), Match::default());
            }
            if *default {
                add(None, Match::default());
            }
        } else {
            for (port, names, is_default) in &served {
                if !names.is_empty() {
                    add(Some(names), self.facet(*port));
                }
                if *is_default {
                    add(None, self.facet(*port));
                }
            }
        }
        made
    }

    fn is_everywhere(&self, n: usize) -> bool {
        self.mine[n].len() == self.defaults.len()
    }

    fn facet(&self, port: usize) -> Match {
        self.ports.at(port).map(|port| self.ports.facet(port)).unwrap_or_default()
    }

    /// A match on the ports of a server.
    pub(super) fn on_ports(&self, n: usize, one: Match) -> Vec<Match> {
        self.on_some_ports(&self.mine[n], one)
    }

    /// A match on some of the ports.
    pub(super) fn on_some_ports(&self, some: &[usize], one: Match) -> Vec<Match> {
        match some.len() == self.defaults.len() {
            true => vec![one],
            false => some.iter().map(|port| one.clone().with_facet(&self.facet(*port))).collect(),
        }
    }

    /// The ports of a server on which others may take what none of its names is: those where it is not the default one, or where a
    /// server behind it has regexes.
    pub(super) fn shared_ports(&self, n: usize) -> Vec<usize> {
        let is_shared = |port: &&usize| {
            !self.is_default(n, **port) || self.last_regexes[**port].is_some_and(|last| last > n)
        };
        self.mine[n].iter().filter(is_shared).copied().collect()
    }
}
