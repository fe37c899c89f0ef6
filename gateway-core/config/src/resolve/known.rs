//! What an object may refer to.

use std::sync::Arc;

use super::plugin::Configured;
use super::shared_values::SharedValues;
use crate::file::{self, Document};
use crate::index::Index;
use crate::model::{BackendTls, Id, PluginConfig, Scope, Upstream};
use crate::units::Millis;

/// An upstream, and how its targets' certificates are judged when it says so itself.
#[derive(Debug, Clone)]
pub struct Group {
    /// The upstream.
    pub upstream: Arc<Upstream>,
    /// Replaces what a proxy says; `None` leaves it to the proxy.
    pub tls: Option<Arc<BackendTls>>,
    /// Holds for proxies that do not say it themselves.
    pub sockets: Option<Arc<WrittenSockets>>,
}

/// How sockets to targets are made, as written.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WrittenSockets {
    /// `backend_source_address`, which is an address.
    pub source: Option<String>,
    /// `backend_interface`.
    pub interface: Option<String>,
    /// `backend_transparent`.
    pub transparent: Option<bool>,
    /// `backend_tcp_user_timeout`.
    pub user_timeout: Option<Millis>,
    /// `backend_mptcp`.
    pub mptcp: Option<bool>,
}

/// The upstreams and plugin configs that proxies may name, by id. A clone is cheap and shares everything.
#[derive(Debug, Clone, Default)]
pub struct NamedObjects {
    upstreams: Index<Arc<str>, Group>,
    plugins: Index<Arc<str>, Configured>,
    globals: Arc<Vec<Arc<PluginConfig>>>,
    /// By proxy, also those switched off.
    scoped: Index<Arc<str>, Vec<Configured>>,
    /// By owner, also those switched off.
    owned: Index<Arc<str>, Vec<Configured>>,
    /// Written but not valid: naming one is no further mistake.
    broken_upstreams: Index<Arc<str>, ()>,
    broken_plugins: Index<Arc<str>, ()>,
    /// Proxies for which a broken plugin config says that it runs.
    scoped_broken: Index<Arc<str>, ()>,
    shared: Arc<SharedValues>,
}

impl NamedObjects {
    /// Adds an upstream, or puts it in the place of one with its id.
    pub fn add_upstream(&mut self, group: Group) {
        self.upstreams.insert(group.upstream.id.shared(), group);
    }

    /// Removes an upstream.
    pub fn remove_upstream(&mut self, id: &str) {
        self.upstreams.remove(id);
    }

    /// Makes what a plugin config has in common with others one with theirs. It must not be held elsewhere yet.
    pub(super) fn share(&self, configured: &mut Configured) {
        let Some(config) = Arc::get_mut(&mut configured.config) else { return };
        (config.plugin_name, config.config) = self.shared.plugin(&config.plugin_name, &config.config);
        if let Scope::Proxy(proxy) = &mut config.scope {
            *proxy = self.shared_proxy_id(proxy.clone());
        }
    }

    /// The values that its objects have in common.
    pub(super) fn shared_values(&self) -> &SharedValues {
        &self.shared
    }

    /// Adds a plugin config, or puts it in the place of one with its id.
    pub fn add_plugin(&mut self, mut configured: Configured) {
        self.share(&mut configured);
        let config = configured.config.clone();
        if let Some(before) = self.plugins.insert(config.id.shared(), configured.clone()) {
            self.unlist(&before.config);
        }
        match &config.scope {
            Scope::Global if configured.enabled => Arc::make_mut(&mut self.globals).push(config),
            Scope::Proxy(proxy) => match self.scoped.get_mut(proxy.as_str()) {
                Some(scoped) => {
                    // There may be a million such lists, most of one or two.
                    scoped.reserve_exact(1);
                    scoped.push(configured);
                }
                None => drop(self.scoped.insert(proxy.shared(), vec![configured])),
            },
            Scope::Owner(owner) => match self.owned.get_mut(owner.as_str()) {
                Some(owned) => owned.push(configured),
                None => drop(self.owned.insert(owner.shared(), vec![configured])),
            },
            Scope::Global | Scope::ProxyGroup => {}
        }
    }

    /// Removes a plugin config.
    pub fn remove_plugin(&mut self, id: &str) {
        if let Some(Configured { config, .. }) = self.plugins.remove(id) {
            self.unlist(&config);
        }
    }

    fn unlist(&mut self, config: &PluginConfig) {
        match &config.scope {
            Scope::Global => Arc::make_mut(&mut self.globals).retain(|c| c.id != config.id),
            Scope::Proxy(proxy) => {
                let emptied = self.scoped.get_mut(proxy.as_str()).is_some_and(|scoped| {
                    scoped.retain(|c| c.config.id != config.id);
                    scoped.is_empty()
                });
                if emptied {
                    self.scoped.remove(proxy.as_str());
                }
            }
            Scope::Owner(owner) => {
                let emptied = self.owned.get_mut(owner.as_str()).is_some_and(|owned| {
                    owned.retain(|c| c.config.id != config.id);
                    owned.is_empty()
                });
                if emptied {
                    self.owned.remove(owner.as_str());
                }
            }
            Scope::ProxyGroup => {}
        }
    }

    /// The upstream with this id.
    pub fn upstream(&self, id: &str) -> Option<&Group> {
        self.upstreams.get(id)
    }

    /// The plugin config with this id, switched on or not.
    pub fn plugin(&self, id: &str) -> Option<&Configured> {
        self.plugins.get(id)
    }

    /// The switched-on plugin configs of every proxy, in the order they were added.
    pub fn globals(&self) -> &[Arc<PluginConfig>] {
        &self.globals
    }

    /// A proxy's id, as the one text that its plugin configs have already, if any.
    pub(super) fn shared_proxy_id(&self, id: Id) -> Id {
        self.scoped.get_key(id.as_str()).cloned().map_or(id, Id)
    }

    /// The switched-on plugin configs of one proxy that name it themselves, in the order they were added.
    pub fn scoped(&self, proxy: &str) -> impl Iterator<Item = &Arc<PluginConfig>> {
        self.all_scoped(proxy).iter().filter(|configured| configured.enabled).map(|c| &c.config)
    }

    /// The switched-on plugin configs for the proxies of an owner, in the order they were added.
    pub fn owned(&self, owner: Option<&Id>) -> impl Iterator<Item = &Arc<PluginConfig>> {
        let owned = owner.and_then(|owner| self.owned.get(owner.as_str())).map_or(&[][..], Vec::as_slice);
        owned.iter().filter(|configured| configured.enabled).map(|c| &c.config)
    }

    /// As [`Self::scoped`], also those switched off.
    pub fn all_scoped(&self, proxy: &str) -> &[Configured] {
        self.scoped.get(proxy).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn upstream_ids(&self) -> impl Iterator<Item = &str> {
        self.upstreams.iter().map(|(id, _)| &**id).chain(self.broken_upstreams.iter().map(|(id, ())| &**id))
    }

    pub(crate) fn plugin_ids(&self) -> impl Iterator<Item = &str> {
        self.plugins.iter().map(|(id, _)| &**id).chain(self.broken_plugins.iter().map(|(id, ())| &**id))
    }

    pub(super) fn is_broken_upstream(&self, id: &str) -> bool {
        self.broken_upstreams.contains_key(id)
    }

    pub(super) fn is_broken_plugin(&self, id: &str) -> bool {
        self.broken_plugins.contains_key(id)
    }

    /// Whether a plugin config that is not valid belongs to this proxy: it may be the one that answers for a target.
    pub(super) fn has_broken_plugin(&self, proxy: &str, named: &[file::Plugin]) -> bool {
        self.scoped_broken.contains_key(proxy)
            || named.iter().any(|plugin| self.is_broken_plugin(&plugin.plugin_config_id))
    }

    /// Notes what the document has and could not be read or resolved.
    pub(super) fn add_broken(&mut self, document: &Document) {
        let upstreams = document.upstreams.read.iter().filter_map(|(_, written)| written.id.as_ref());
        for id in upstreams.chain(&document.upstreams.unread) {
            if self.upstream(id).is_none() {
                self.broken_upstreams.insert(Arc::from(id.as_str()), ());
            }
        }
        let plugins = document.plugin_configs.read.iter().filter_map(|(_, written)| written.id.as_ref());
        for id in plugins.chain(&document.plugin_configs.unread) {
            if self.plugin(id).is_none() {
                self.broken_plugins.insert(Arc::from(id.as_str()), ());
            }
        }
        for (_, written) in &document.plugin_configs.read {
            if let (Some(id), Some(proxy)) = (&written.id, &written.proxy_id)
                && self.is_broken_plugin(id)
            {
                self.scoped_broken.insert(Arc::from(proxy.as_str()), ());
            }
        }
    }
}
