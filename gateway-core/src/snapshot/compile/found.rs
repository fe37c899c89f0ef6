//! What the compiler knows of services whose servers are found by DNS.

use std::collections::HashSet;
use std::sync::Arc;

use super::super::discovery::{self, Service};
use super::super::{Route, Snapshot};
use super::Compiler;
use crate::balance::Targets;
use crate::config::changes::{Changes, Edits};
use crate::config::model::{Id, Upstream};

impl Compiler {
    /// Whether anything is known of a service.
    pub fn knows(&self, name: &str) -> bool {
        self.services.contains_key(name)
    }

    /// Takes what a service's servers are, for configurations to come.
    pub fn learn(&mut self, name: &Arc<str>, services: &Arc<[Service]>) {
        self.services.insert(name.clone(), services.clone());
    }

    /// Takes what a service's servers are now; says what changes by that, `None` where nothing does.
    pub fn found(
        &mut self,
        name: &Arc<str>,
        services: &Arc<[Service]>,
        current: &Snapshot,
    ) -> Option<Changes> {
        self.learn(name, services);
        // Names that nobody uses any more are forgotten with the next one that is found.
        let used: HashSet<&str> =
            current.discovered.iter().flat_map(|(_, upstream)| discovery::names(upstream)).collect();
        self.services.retain(|known, _| used.contains(&**known));
        let put: Vec<Arc<Upstream>> = current
            .discovered
            .iter()
            .filter(|(_, upstream)| discovery::names(upstream).any(|known| *known == **name))
            .filter(|(id, upstream)| self.is_different(upstream, current.upstreams.get(*id)))
            .map(|(_, upstream)| upstream.clone())
            .collect();
        if put.is_empty() {
            return None;
        }
        let changed: HashSet<&Id> = put.iter().map(|upstream| &upstream.id).collect();
        let uses = |route: &&Arc<Route>| {
            let backend = &route.proxy.backend;
            backend.is_named && changed.contains(&backend.upstream.id)
        };
        let (mut proxies, mut closed) = (Vec::new(), Vec::new());
        for route in current.by_id.iter().map(|(_, route)| route).filter(uses) {
            match &route.quarantine {
                None => proxies.push(route.proxy.clone()),
                // What is closed for another reason stays closed.
                Some(why) => closed.push((route.proxy.clone(), (**why).clone())),
            }
        }
        Some(Changes {
            revision: Some(current.revision),
            closed,
            proxies: Edits { put: proxies, gone: Vec::new() },
            upstreams: Edits { put, gone: Vec::new() },
            ..Changes::default()
        })
    }

    /// Whether an upstream has other targets than those in use, by what is known now.
    fn is_different(&self, upstream: &Upstream, used: Option<&Arc<Targets>>) -> bool {
        let Some(found) = discovery::expanded(upstream, &self.services) else { return false };
        let used = used.map(|targets| targets.list()).unwrap_or_default();
        used.len() != found.targets.len()
            || used.iter().zip(&found.targets).any(|(target, rules)| *target.rules != **rules)
    }
}
