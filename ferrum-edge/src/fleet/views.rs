//! The configuration of each group of edges, kept up to date with the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gateway_core::config::catalog::ObjectKind;
use gateway_core::plugin::Registry;
use gateway_fleet::{DocumentKey, DocumentSet, Hash, Hub, MAX_BROKEN};
use serde_json::Value;

use super::roster::Roster;
use super::scope::{Patterns, ReferenceIndex, Selection};
use super::version_skew::{LeftOut, OlderEdges, Reduced};
use crate::source::database::{Documents, Permitted};
use crate::store::seal::Keys;
use crate::store::{Followed, Mark, Object, Store, StoreError};

/// Everything the store has, and every group's part of it.
pub(super) struct Views {
    store: Store,
    documents: Documents,
    registry: Registry,
    keys: Keys,
    hub: Arc<Hub>,
    mark: Mark,
    /// As stored.
    stored: DocumentSet,
    index: ReferenceIndex,
    /// Changed since groups were rendered.
    changed: BTreeSet<DocumentKey>,
    groups: BTreeMap<String, GroupView>,
    /// What older edges of a group get, by view, and the hash of the group's configuration that it is made from.
    reduced: BTreeMap<Arc<str>, (Hash, Reduced)>,
}

struct GroupView {
    documents: Documents,
    /// What the selection was made by: while neither changes, it stays.
    made_by: Option<(Patterns, u64)>,
    selection: Selection,
    rendered: DocumentSet,
}

/// What became of the store since a view of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StoreStep {
    /// The same history goes on.
    Further,
    /// A backup was restored.
    Forked,
}

type Changes = Vec<(DocumentKey, Option<Arc<str>>)>;

impl Views {
    /// Reads everything.
    ///
    /// # Errors
    /// When the database does not answer.
    pub(super) async fn load(
        store: Store,
        documents: Documents,
        registry: Registry,
        hub: Arc<Hub>,
    ) -> Result<Self, StoreError> {
        let keys = documents.keys().clone();
        let (mark, stored) = everything(&store).await?;
        let (index, changed) = (ReferenceIndex::of(&stored), BTreeSet::new());
        let (groups, reduced) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { store, documents, registry, keys, hub, mark, stored, index, changed, groups, reduced })
    }

    /// The newest revision that it has.
    pub(super) const fn revision(&self) -> u64 {
        self.mark.revision
    }

    /// Takes up what the store has; [`Self::publish`] gives it to edges.
    ///
    /// # Errors
    /// When the database does not answer; nothing has changed then.
    pub(super) async fn follow(&mut self) -> Result<StoreStep, StoreError> {
        let followed = self.store.follow(&self.mark, |_| Vec::new()).await?;
        let (mark, changes, step) = match followed {
            Some(Followed { mark, objects, .. }) => {
                let change = |(kind, id, object): (ObjectKind, String, Option<Object>)| {
                    (key(kind, &id), object.map(|object| Arc::from(object.document)))
                };
                (mark, objects.into_iter().map(change).collect(), StoreStep::Further)
            }
            None => {
                let is_known = self.store.has_mark(&self.mark).await?;
                let (mark, stored) = everything(&self.store).await?;
                let differing = self.stored.difference(&stored).into_iter();
                let changes: Changes =
                    differing.map(|key| (key.clone(), stored.get(&key).cloned())).collect();
                (mark, changes, if is_known { StoreStep::Further } else { StoreStep::Forked })
            }
        };
        self.mark = mark;
        for (key, text) in &changes {
            self.index.note(key, text.as_deref());
        }
        self.changed.extend(changes.iter().map(|(key, _)| key.clone()));
        self.stored.apply(changes);
        Ok(step)
    }

    /// The plugins that the objects of each group name.
    pub(super) fn plugins(&self) -> BTreeMap<String, BTreeSet<String>> {
        self.groups.iter().map(|(group, view)| (group.clone(), view.selection.plugins().clone())).collect()
    }

    /// Gives every group what it is to have, at this epoch; groups without edges are forgotten.
    pub(super) fn publish(&mut self, roster: &Roster, epoch: &Arc<str>) {
        let groups = roster.groups();
        let gone: Vec<String> =
            self.groups.keys().filter(|group| !groups.contains(*group)).cloned().collect();
        for group in gone {
            self.groups.remove(&group);
            self.hub.act(|core, _| {
                core.forget_view(&group);
                Vec::new()
            });
        }
        for group in groups {
            let patterns = roster.patterns(&group);
            let view = self.groups.remove(&group);
            let view = match view {
                Some(view) => self.rendered_again(view, &patterns),
                None => self.rendered_again(self.empty(&group), &patterns),
            };
            self.groups.insert(group, view);
        }
        self.changed.clear();
        let revision = self.mark.revision;
        for (group, view) in &self.groups {
            let (name, documents): (Arc<str>, _) = (group.as_str().into(), view.rendered.clone());
            self.hub.act(|core, now| core.advance(&name, epoch, revision, documents, now));
        }
        self.publish_reduced(roster, epoch);
    }

    /// Frees views of older edges that no connected edge gets. The next such edge has its view made again.
    pub(super) fn free_unneeded(&mut self, roster: &Roster) {
        self.hub.act(|core, _| {
            // An edge asks for its view once more when the core knows it, so none is freed that is needed from now on.
            for view in roster.skew.retain(|view| core.is_received(view)) {
                core.forget_view(&view);
                self.reduced.remove(&view);
            }
            Vec::new()
        });
    }

    /// Gives older edges what their group gets, without what they don't know.
    fn publish_reduced(&mut self, roster: &Roster, epoch: &Arc<str>) {
        for (name, OlderEdges { group, lacking }) in roster.skew.kinds() {
            let Some(whole) = self.groups.get(&*group).map(|view| &view.rendered) else {
                self.reduced.remove(&name);
                self.hub.act(|core, _| {
                    core.forget_view(&name);
                    Vec::new()
                });
                continue;
            };
            let hash = whole.hash();
            if self.reduced.get(&name).is_none_or(|(from, _)| *from != hash) {
                self.reduced.insert(name.clone(), (hash, lacking.reduced(whole)));
            }
            let documents =
                self.reduced.get(&name).map(|(_, reduced)| reduced.documents.clone()).unwrap_or_default();
            let revision = self.mark.revision;
            self.hub.act(|core, now| core.advance(&name, epoch, revision, documents, now));
        }
    }

    /// What is left out of the views of older edges: how much, and the first of it.
    pub(super) fn left_out(&self) -> BTreeMap<Arc<str>, LeftOut> {
        let of = |all: &[String]| LeftOut {
            count: all.len(),
            first: all.iter().take(MAX_BROKEN).cloned().collect(),
        };
        self.reduced.iter().map(|(view, (_, reduced))| (view.clone(), of(&reduced.left_out))).collect()
    }

    fn empty(&self, group: &str) -> GroupView {
        // Keys that were made from the operator's are keys.
        let keys = Keys::parse(&self.keys.of_group(group)).unwrap_or_default();
        let documents = Documents::new(&self.registry, keys, Permitted::default());
        let (selection, rendered) = (Selection::nothing(), DocumentSet::default());
        GroupView { documents, made_by: None, selection, rendered }
    }

    /// Renders what has changed, and what is meant for the group from now on or no more.
    fn rendered_again(&self, mut view: GroupView, patterns: &Patterns) -> GroupView {
        let made_by = Some((patterns.clone(), self.index.version()));
        let selection = match view.made_by == made_by {
            true => std::mem::take(&mut view.selection),
            false => self.index.select(patterns),
        };
        let mut keys: BTreeSet<&DocumentKey> = self.changed.iter().collect();
        if view.made_by != made_by {
            self.add_reselected(&view.selection, &selection, &mut keys);
        }
        let changes = keys.into_iter().map(|key| {
            let text = self.stored.get(key).filter(|_| selection.has(key));
            let rendered = text.map(|text| rekeyed(&self.documents, &view.documents, &selection, key, text));
            (key.clone(), rendered)
        });
        view.rendered.apply(changes.collect::<Vec<_>>());
        (view.selection, view.made_by) = (selection, made_by);
        view
    }

    /// Adds the objects that a group gets by exactly one of two selections, or gets differently.
    fn add_reselected<'k>(
        &'k self,
        old: &'k Selection,
        new: &'k Selection,
        keys: &mut BTreeSet<&'k DocumentKey>,
    ) {
        let stored = self.stored.iter().map(|(key, _)| key);
        if old.is_everything() != new.is_everything() {
            keys.extend(stored);
            return;
        }
        keys.extend(old.difference(new));
        if !old.has_same_plugins(new) {
            keys.extend(stored.filter(|key| *key.kind == *ObjectKind::Consumers.as_str()));
        }
    }
}

/// A document as a group gets it: its secrets encrypted for the group, and of a consumer the credentials that the group's plugins
/// check. One whose secrets can't be opened stays as it is: an edge can't open them, either, and closes what the object would have
/// protected.
fn rekeyed(
    from: &Documents,
    to: &Documents,
    selection: &Selection,
    key: &DocumentKey,
    text: &Arc<str>,
) -> Arc<str> {
    let Some(kind @ (ObjectKind::Consumers | ObjectKind::PluginConfigs)) = ObjectKind::named(&key.kind)
    else {
        return text.clone();
    };
    let reduced = match kind {
        ObjectKind::Consumers => {
            with_credentials(text, |name| selection.has_plugin(from.credential_name(name).unwrap_or(name)))
        }
        _ => None,
    };
    let text = reduced.map_or_else(|| text.clone(), Arc::from);
    let plain = from.opened(kind, &text);
    let sealed = plain.and_then(|plain| to.seal(kind, &plain, None));
    sealed.map_or(text, Arc::from)
}

/// A consumer's document with some of its credentials; `None` if it has no others.
fn with_credentials(text: &str, is_kept: impl Fn(&str) -> bool) -> Option<String> {
    let mut document: Value = serde_json::from_str(text).ok()?;
    let credentials = document.get_mut("credentials")?.as_object_mut()?;
    let before = credentials.len();
    credentials.retain(|name, _| is_kept(name));
    (credentials.len() < before).then(|| document.to_string())
}

fn key(kind: ObjectKind, id: &str) -> DocumentKey {
    DocumentKey::new(kind.as_str(), id)
}

async fn everything(store: &Store) -> Result<(Mark, DocumentSet), StoreError> {
    let mut all: Changes = Vec::new();
    let take = |object: Object| all.push((key(object.kind, &object.id), Some(Arc::from(object.document))));
    let mark = store.load(take).await?;
    let mut stored = DocumentSet::default();
    stored.apply(all);
    Ok((mark, stored))
}
