//! Whether the consumers that proxies belong to are there.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Edit, ObjectKind, Put, Reference, Trial};
use crate::file;
use crate::index::Index;

impl Trial<'_, '_> {
    /// Rejects proxies and plugin configs of unknown owners, and the removal or renaming of a consumer that proxies belong to. To be called
    /// once proxies and consumers are as the edit leaves them.
    pub(super) fn owners(&mut self, edit: &Edit) {
        let proxies = edit.proxies.iter().map(|Put { at, object, .. }| (at, object.owner.as_deref()));
        let of_owner = |config: &file::PluginConfig| config.scope == Some(file::Scope::Owner);
        let configs = edit.plugin_configs.iter().filter(|put| of_owner(&put.object));
        let configs = configs.map(|Put { at, object, .. }| (at, object.owner.as_deref()));
        for (at, owner) in proxies.chain(configs) {
            let Some(owner) = owner.filter(|owner| !self.consumers.has(owner)) else { continue };
            let dot = if at.is_empty() { "" } else { "." };
            self.problems.add(format!("{at}{dot}owner"), format!("there is no consumer `{owner}`")).remedy =
                Some("create it before, or in the same batch".to_owned());
        }
        for name in self.lost_names(edit) {
            let owned = self.catalog.users.get(&Reference::Owner(name.clone()));
            let Some((proxy, ())) = owned.and_then(|owned| Index::iter(owned).next()) else { continue };
            // What is wrong with one that the edit puts is reported above.
            if edit.proxies.iter().any(|put| put.object.id.as_deref() == Some(proxy.as_str())) {
                continue;
            }
            self.problems
                .add(String::new(), format!("the consumer `{name}` is the owner of the proxy `{proxy}`"))
                .remedy = Some("give the proxy another `owner`, or delete it first".to_owned());
        }
    }

    /// Returns the ids and names that no consumer has after the edit.
    fn lost_names(&self, edit: &Edit) -> BTreeSet<Arc<str>> {
        let gone = edit.gone.iter().filter(|(kind, _)| *kind == ObjectKind::Consumers);
        let put = edit.consumers.iter().filter_map(|put| put.object.id.as_deref());
        let changed = gone.map(|(_, id)| id.as_str()).chain(put);
        let before = self.against.previous.consumers();
        let mut names = BTreeSet::new();
        for consumer in changed.filter_map(|id| before.by_id(id)?.consumer.as_ref()) {
            names.insert(consumer.id.shared());
            names.insert(consumer.username.clone());
            names.extend(consumer.custom_id.clone());
        }
        names.retain(|name| !self.consumers.has(name));
        names
    }
}
