//! What becomes different from one configuration to the next.

use std::sync::Arc;

use super::model::{Consumer, Id, Proxy, Settings, Upstream};
use super::problem::Problems;
use crate::consumer::Consumers;

/// Changed objects of one kind.
#[derive(Debug)]
pub struct Edits<T> {
    /// New ones, and those that take the place of the one with their id.
    pub put: Vec<T>,
    /// Those that are gone.
    pub gone: Vec<Id>,
}

impl<T> Default for Edits<T> {
    fn default() -> Self {
        Self { put: Vec::new(), gone: Vec::new() }
    }
}

impl<T> Edits<T> {
    fn extend(&mut self, later: Self) {
        self.put.extend(later.put);
        self.gone.extend(later.gone);
    }

    /// True when nothing changes.
    pub fn is_empty(&self) -> bool {
        self.put.is_empty() && self.gone.is_empty()
    }
}

impl Edits<Arc<Consumer>> {
    /// Carries them out.
    pub fn apply(&self, consumers: &mut Consumers) {
        // All go before any comes: two may have swapped their names or keys.
        let replaced = self.put.iter().map(|consumer| &consumer.id);
        self.gone.iter().chain(replaced).for_each(|id| consumers.remove(id));
        self.put.iter().for_each(|consumer| consumers.insert(consumer));
    }
}

/// Everything that becomes different at once.
///
/// Whoever makes one sees to it that a proxy is among those put whenever its upstream or one of its plugin configs is:
/// a snapshot holds what a proxy needs, not where to look it up.
#[derive(Debug, Default)]
pub struct Changes {
    /// The revision of the source; by default one more than before.
    pub revision: Option<u64>,
    /// New settings of the gateway as a whole.
    pub settings: Option<Arc<Settings>>,
    /// Named upstreams.
    pub upstreams: Edits<Arc<Upstream>>,
    /// Proxies with everything they name.
    pub proxies: Edits<Arc<Proxy>>,
    /// Proxies that can't serve, with the reason: they keep their hosts and paths and answer 503.
    pub closed: Vec<(Arc<Proxy>, Problems)>,
    /// Consumers.
    pub consumers: Edits<Arc<Consumer>>,
    /// Plugin configs shared by several proxies that are gone.
    pub plugin_configs_gone: Vec<Id>,
}

impl Changes {
    /// Adds what is to become different after these.
    pub fn extend(&mut self, later: Self) {
        self.revision = later.revision.or(self.revision);
        self.settings = later.settings.or_else(|| self.settings.take());
        self.upstreams.extend(later.upstreams);
        self.proxies.extend(later.proxies);
        self.closed.extend(later.closed);
        self.consumers.extend(later.consumers);
        self.plugin_configs_gone.extend(later.plugin_configs_gone);
    }
}
