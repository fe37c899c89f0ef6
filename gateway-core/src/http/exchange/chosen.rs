//! Where plugins send a request instead of to the proxy's own targets.

use std::sync::Arc;

use super::Exchange;
use crate::balance::Subset;

impl Exchange {
    /// Sends the request to the targets of this upstream instead of the proxy's. The plugin has to have declared it with
    /// [`Hooks::may_choose`](crate::plugin::Hooks::may_choose), or the request is refused.
    pub fn choose_upstream(&mut self, id: Arc<str>) {
        self.rare().upstream = Some(id);
    }

    /// The upstream that a plugin chose.
    pub fn upstream(&self) -> Option<&Arc<str>> {
        self.rare.as_ref()?.upstream.as_ref()
    }

    /// Sends the request only to those targets that are in this subset, of the upstream it goes to. A plugin that may choose
    /// one declares it with [`Hooks::may_choose_subset`](crate::plugin::Hooks::may_choose_subset).
    pub fn choose_subset(&mut self, subset: Arc<Subset>) {
        self.rare().subset = Some(subset);
    }

    /// The subset that a plugin chose.
    pub fn subset(&self) -> Option<&Arc<Subset>> {
        self.rare.as_ref()?.subset.as_ref()
    }
}
