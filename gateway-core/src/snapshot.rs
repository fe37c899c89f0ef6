//! A compiled configuration: what traffic reads. Published whole, in one swap; a request sees one from beginning to end.

pub mod compile;
pub mod discovery;
#[cfg(test)]
mod edit_tests;
pub mod streams;
mod warning;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::balance::Targets;
use crate::config::catalog::CurrentConfig;
use crate::config::changes::{Changes, Edits};
use crate::config::consumer::Consumers;
use crate::config::index::Index;
use crate::config::model::{Id, Model, Proxy, Settings, Upstream};
use crate::plugin::Chain;
use crate::plugin::chain::Member;
use crate::plugin::unrouted::Unrouted;
pub use crate::proxy_state::ProxyState;
pub use crate::proxy_state::{CredentialPlaces, Plugins};
use crate::route::RouteTable;
use streams::StreamTable;
pub use warning::warnings;

/// A proxy with everything its traffic needs, ready to be used.
pub struct Route {
    /// The proxy and its state.
    pub state: ProxyState,
    /// Its plugins, compiled.
    pub chain: Chain,
}

impl Deref for Route {
    type Target = ProxyState;

    fn deref(&self) -> &ProxyState {
        &self.state
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Route({})", self.proxy.id)
    }
}

/// A whole compiled configuration.
///
/// A clone is cheap and shares everything: the next one differs from it in what changed, and nothing else is copied.
#[derive(Clone)]
pub struct Snapshot {
    /// The source's: a file's counts up with each one published, from 1; a database has its own.
    pub revision: u64,
    /// What holds for the gateway as a whole.
    pub settings: Arc<Settings>,
    /// HTTP proxies by host and path.
    pub routes: RouteTable<Arc<Route>>,
    /// Stream proxies.
    pub streams: StreamTable<Route>,
    /// Every proxy by its id.
    pub by_id: Index<Id, Arc<Route>>,
    /// Those of them that are closed.
    pub quarantined: Index<Id, Arc<Route>>,
    /// Those of them whose targets are probed or whose TLS files are watched.
    pub tended: Index<Id, Arc<Route>>,
    /// Consumers by their credentials.
    pub consumers: Consumers,
    /// Named upstreams, by id, also those no proxy uses. A proxy's own target is found in its route.
    pub upstreams: Index<Id, Arc<Targets>>,
    /// Those of them with targets that are found by DNS, as they are configured.
    pub discovered: Index<Id, Arc<Upstream>>,
    /// Built plugins that several proxies share, by the id of their config.
    pub plugins: Index<Id, Member>,
    /// The global ones of them that see exchanges which no proxy's chain runs for.
    pub unrouted: Unrouted,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapshot(revision {}, {} proxies)", self.revision, self.by_id.len())
    }
}

impl Snapshot {
    /// The running plugins of a name with their configs, each once. Looks at every proxy.
    pub fn running(&self, plugin_name: &str) -> Vec<&Member> {
        let mut seen = HashSet::new();
        let members = self.by_id.iter().flat_map(|(_, route)| route.chain.members());
        members
            .filter(|(config, _)| *config.plugin_name == *plugin_name && seen.insert(config.id.as_str()))
            .collect()
    }

    /// The settings alone, as a model.
    pub fn settings_model(&self) -> Model {
        Model { settings: self.settings.clone(), ..Model::default() }
    }

    /// What is served, as a model: without consumers, and without plugin configs that no proxy runs.
    pub fn model(&self) -> Model {
        let proxies: Vec<_> = self.by_id.iter().map(|(_, route)| route.proxy.clone()).collect();
        let mut plugins = BTreeMap::new();
        for plugin in proxies.iter().flat_map(|proxy| &proxy.plugins) {
            plugins.entry(plugin.id.clone()).or_insert_with(|| plugin.clone());
        }
        Model {
            settings: self.settings.clone(),
            proxies,
            plugin_configs: plugins.into_values().collect(),
            ..Model::default()
        }
    }

    /// What takes it to a whole model: everything in the model is put, everything else goes.
    pub fn changes_to(&self, model: &Model) -> Changes {
        let upstreams: HashSet<&Id> = model.upstreams.iter().map(|upstream| &upstream.id).collect();
        let proxies: HashSet<&Id> = model.proxies.iter().map(|proxy| &proxy.id).collect();
        let consumers: HashSet<&Id> = model.consumers.iter().map(|consumer| &consumer.id).collect();
        let plugins: HashSet<&Id> = model.plugin_configs.iter().map(|config| &config.id).collect();
        Changes {
            revision: None,
            settings: Some(model.settings.clone()),
            upstreams: Edits {
                gone: missing(self.upstreams.iter(), &upstreams),
                put: model.upstreams.clone(),
            },
            proxies: Edits { gone: missing(self.by_id.iter(), &proxies), put: model.proxies.clone() },
            closed: Vec::new(),
            consumers: Edits {
                gone: missing(self.consumers.iter(), &consumers),
                put: model.consumers.clone(),
            },
            plugin_configs_gone: missing(self.plugins.iter(), &plugins),
        }
    }

    /// Nothing configured yet.
    pub fn empty(settings: Arc<Settings>) -> Self {
        Self {
            revision: 0,
            settings,
            routes: RouteTable::new(),
            streams: StreamTable::default(),
            by_id: Index::new(),
            quarantined: Index::new(),
            tended: Index::new(),
            consumers: Consumers::default(),
            upstreams: Index::new(),
            discovered: Index::new(),
            plugins: Index::new(),
            unrouted: Unrouted::default(),
        }
    }
}

fn missing<'a, T: 'a>(known: impl Iterator<Item = (&'a Id, T)>, kept: &HashSet<&Id>) -> Vec<Id> {
    known.map(|(id, _)| id).filter(|id| !kept.contains(id)).cloned().collect()
}

impl CurrentConfig for Snapshot {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn consumers(&self) -> &Consumers {
        &self.consumers
    }

    fn proxy(&self, id: &str) -> Option<&Arc<Proxy>> {
        self.by_id.get(id).map(|route| &route.proxy)
    }

    fn is_closed(&self, id: &str) -> bool {
        self.quarantined.contains_key(id)
    }

    fn proxy_ids(&self) -> Vec<&Id> {
        self.by_id.iter().map(|(id, _)| id).collect()
    }
}
