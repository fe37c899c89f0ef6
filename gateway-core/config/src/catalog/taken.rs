//! What no two objects may have in common: names, hosts and paths, ports, credentials.

use std::collections::HashSet;
use std::sync::Arc;

use super::{Id, Problems};
use crate::claims::Claims;
use crate::consumer::{Consumers, SharedTrait};
use crate::index::Index;
use crate::model::Transport;
use crate::model::{Consumer, Proxy, Scheme, Settings, StreamRules, Traffic};
use crate::resolve::{UNTIE, may_share, reserved, tied};

/// Who has what. A clone is cheap.
#[derive(Clone, Default)]
pub(super) struct Taken {
    routes: Claims<Id>,
    ports: Index<(Transport, u16), Vec<Arc<Proxy>>>,
    proxy_names: Index<Arc<str>, Id>,
    upstream_names: Index<Arc<str>, Id>,
    /// By upstream: a new version may have another name.
    names_of_upstreams: Index<Id, Arc<str>>,
}

/// Why a proxy can't have its name, hosts and path, or ports.
#[derive(Debug, Default)]
pub(super) struct Lost {
    pub(super) problems: Problems,
    /// The proxies that have them.
    pub(super) owners: Vec<Id>,
}

impl Taken {
    /// Gives back everything a proxy has.
    pub(super) fn release(&mut self, proxy: &Arc<Proxy>) {
        if let Some(name) = &proxy.name
            && self.proxy_names.get(name).is_some_and(|owner| *owner == proxy.id)
        {
            self.proxy_names.remove(name);
        }
        match &proxy.traffic {
            Traffic::Http(rules) => self.routes.release(&rules.matches, &proxy.id),
            Traffic::Stream(rules) => {
                for place in places(proxy, rules) {
                    let Some(owners) = self.ports.get_mut(&place) else { continue };
                    owners.retain(|owner| owner.id != proxy.id);
                    if owners.is_empty() {
                        self.ports.remove(&place);
                    }
                }
            }
        }
    }

    /// Gives a proxy its name, and its hosts and path or its ports.
    pub(super) fn proxy(&mut self, proxy: &Arc<Proxy>, at: &str, settings: &Settings) -> Result<(), Lost> {
        let mut lost = Lost::default();
        if let Some(name) = &proxy.name
            && let Some(owner) = self.proxy_names.get(name).filter(|owner| **owner != proxy.id)
        {
            lost.problems
                .add(key(at, "name"), format!("`{name}` is the name of the proxy `{owner}` already"))
                .remedy = Some("give each its own".to_owned());
            lost.owners.push(owner.clone());
        }
        match &proxy.traffic {
            Traffic::Http(rules) => {
                if let Err(tie) = self.routes.claim(&rules.matches, rules.priority, &proxy.id) {
                    let (place, message) = tied(rules, tie.rule, &format!("the proxy `{}`", tie.owner));
                    lost.problems.add(key(at, &place), message).remedy = Some(UNTIE.to_owned());
                    lost.owners.push(tie.owner);
                }
            }
            Traffic::Stream(rules) => self.ports(proxy, rules, at, settings, &mut lost),
        }
        if !lost.problems.is_empty() {
            return Err(lost);
        }
        if let Some(name) = &proxy.name {
            self.proxy_names.insert(name.clone(), proxy.id.clone());
        }
        Ok(())
    }

    fn ports(
        &mut self,
        proxy: &Arc<Proxy>,
        rules: &StreamRules,
        at: &str,
        settings: &Settings,
        lost: &mut Lost,
    ) {
        let is_udp = transport(proxy) == Transport::Udp;
        if let Some(listener) = reserved(settings, is_udp, rules) {
            let message = format!("the gateway's own {listener} listener has this port");
            lost.problems.add(key(at, "listen_port"), message).remedy = Some("another port".to_owned());
        }
        let others = places(proxy, rules).filter_map(|place| self.ports.get(&place)).flatten();
        let mut meeting = others.filter(|other| match &other.traffic {
            Traffic::Stream(theirs) => other.id != proxy.id && !may_share(rules, theirs),
            Traffic::Http(_) => false,
        });
        if let Some(other) = meeting.next() {
            lost.problems
                .add(key(at, "listen_port"), format!("the proxy `{}` listens there already", other.id))
                .remedy =
                Some("another port, or `passthrough: true` and different `hosts` on both".to_owned());
            lost.owners.push(other.id.clone());
        }
        if !lost.problems.is_empty() {
            return;
        }
        for place in places(proxy, rules) {
            match self.ports.get_mut(&place) {
                Some(owners) => owners.push(proxy.clone()),
                None => drop(self.ports.insert(place, vec![proxy.clone()])),
            }
        }
    }

    /// Gives an upstream its name, when it has one and gave back the one it had.
    pub(super) fn upstream(&mut self, id: &Id, name: Option<&Arc<str>>, at: &str) -> Result<(), Problems> {
        let Some(name) = name else { return Ok(()) };
        if let Some(owner) = self.upstream_names.get(name) {
            let mut problems = Problems::default();
            let message = format!("`{name}` is the name of the upstream `{owner}` already");
            problems.add(key(at, "name"), message).remedy = Some("give each its own".to_owned());
            return Err(problems);
        }
        self.upstream_names.insert(name.clone(), id.clone());
        self.names_of_upstreams.insert(id.clone(), name.clone());
        Ok(())
    }

    /// Gives back an upstream's name, and says which it was.
    pub(super) fn upstream_gone(&mut self, id: &Id) -> Option<Arc<str>> {
        let name = self.names_of_upstreams.remove(id)?;
        self.upstream_names.remove(&name);
        Some(name)
    }
}

/// Consumers while an edit is tried: those of before that it leaves alone, and its own beside them. Nothing of before is copied.
pub(super) struct ConsumerTrial<'a> {
    before: &'a Consumers,
    /// Those of before that are gone, or replaced.
    gone: HashSet<Id>,
    put: Consumers,
}

impl<'a> ConsumerTrial<'a> {
    pub(super) fn new(before: &'a Consumers) -> Self {
        Self { before, gone: HashSet::new(), put: Consumers::default() }
    }

    /// Takes back a consumer's names and credentials.
    pub(super) fn remove(&mut self, id: &Id) {
        self.put.remove(id);
        if self.before.by_id(id.as_str()).is_some() {
            self.gone.insert(id.clone());
        }
    }

    /// Gives a consumer its names and credentials.
    pub(super) fn add(&mut self, consumer: &Arc<Consumer>, at: &str) -> Result<(), Problems> {
        let before = self.before.collision(consumer, |other| self.gone.contains(&other.id));
        let Some((shared, owner)) = before.or_else(|| self.put.collision(consumer, |_| false)) else {
            self.put.insert(consumer);
            return Ok(());
        };
        let owner = owner.consumer.as_ref().map_or("", |owner| owner.id.as_str());
        let (place, message) = match shared {
            SharedTrait::Name(name) => {
                let place = if name == consumer.username { "username" } else { "custom_id" };
                (place.to_owned(), format!("`{name}` is a name of the consumer `{owner}` already"))
            }
            SharedTrait::Credential(kind) => (
                format!("credentials.{}", kind.name),
                format!("the consumer `{owner}` has the same {}", kind.key),
            ),
        };
        let mut problems = Problems::default();
        problems.add(key(at, &place), message).remedy = Some("give each its own".to_owned());
        Err(problems)
    }
}

fn key(at: &str, key: &str) -> String {
    if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") }
}

fn transport(proxy: &Proxy) -> Transport {
    match proxy.backend.scheme {
        Scheme::Udp | Scheme::Dtls => Transport::Udp,
        Scheme::Http | Scheme::Https | Scheme::Tcp | Scheme::Tcps => Transport::Tcp,
    }
}

fn places(proxy: &Proxy, rules: &StreamRules) -> impl Iterator<Item = (Transport, u16)> + use<> {
    let transport = transport(proxy);
    let (first, last) = rules.listen_ports;
    (first..=last).map(move |port| (transport, port))
}
