//! What no two objects may have in common: names, hosts and paths, ports, credentials.

use std::collections::HashSet;
use std::sync::Arc;

use super::{Id, Problems};
use crate::claims::Claims;
use crate::consumer::{Consumers, SharedTrait};
use crate::index::Index;
use crate::model::{Consumer, Proxy, Settings, StreamRules, Traffic, Transport};
use crate::port_claims::PortClaims;
use crate::resolve::{SHARE_PORT, UNTIE, reserved, tied};

/// Who has what. A clone is cheap.
#[derive(Clone, Default)]
pub(super) struct Taken {
    routes: Claims<Id>,
    ports: PortClaims<Id>,
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
            Traffic::Stream(rules) => self.ports.release(proxy.backend.scheme.transport(), rules, &proxy.id),
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
        let transport = proxy.backend.scheme.transport();
        if let Some(listener) = reserved(settings, transport == Transport::Udp, rules) {
            let message = format!("the gateway's own {listener} listener has this port");
            lost.problems.add(key(at, "listen_port"), message).remedy = Some("another port".to_owned());
        }
        if !lost.problems.is_empty() {
            return;
        }
        if let Err(other) = self.ports.claim(transport, rules, &proxy.id) {
            lost.problems
                .add(key(at, "listen_port"), format!("the proxy `{other}` listens there already"))
                .remedy = Some(SHARE_PORT.to_owned());
            lost.owners.push(other);
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

    /// Whether a consumer has this id, username or custom id.
    pub(super) fn has(&self, name: &str) -> bool {
        let stays = |id: &Id| !self.gone.contains(id) && self.put.by_id(id.as_str()).is_none();
        let before = [self.before.by_id(name), self.before.by_name(name)];
        let mut before = before.into_iter().flatten().filter_map(|known| known.consumer.as_ref());
        before.any(|consumer| stays(&consumer.id))
            || self.put.by_id(name).is_some()
            || self.put.by_name(name).is_some()
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
