//! The configuration as each group of edges gets it, following the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use gateway_core::config::catalog::ObjectKind;
use gateway_core::plugin::Registry;
use gateway_fleet::{DocumentKey, DocumentSet, Hub};

use super::roster::Roster;
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
    groups: BTreeMap<String, GroupView>,
}

struct GroupView {
    documents: Documents,
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
        Ok(Self { store, documents, registry, keys, hub, mark, stored, groups: BTreeMap::new() })
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
        self.stored.apply(changes.iter().cloned());
        for group in self.groups.values_mut() {
            let documents = (&self.documents, &group.documents);
            let rendered = changes.iter().map(|(key, text)| {
                (key.clone(), text.as_ref().map(|text| rekeyed(&documents.0, documents.1, key, text)))
            });
            group.rendered.apply(rendered.collect::<Vec<_>>());
        }
        Ok(step)
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
            if !self.groups.contains_key(&group) {
                let view = self.render(&group);
                self.groups.insert(group, view);
            }
        }
        let revision = self.mark.revision;
        for (group, view) in &self.groups {
            let (name, documents): (Arc<str>, _) = (group.as_str().into(), view.rendered.clone());
            self.hub.act(|core, now| core.advance(&name, epoch, revision, documents, now));
        }
    }

    fn render(&self, group: &str) -> GroupView {
        // Keys that were made from the operator's are keys.
        let keys = Keys::parse(&self.keys.of_group(group)).unwrap_or_default();
        let documents = Documents::new(&self.registry, keys, Permitted::default());
        let mut rendered = DocumentSet::default();
        let all = self.stored.iter();
        rendered.apply(
            all.map(|(key, text)| (key.clone(), Some(rekeyed(&self.documents, &documents, key, text)))),
        );
        GroupView { documents, rendered }
    }
}

/// A document with its secrets encrypted for a group. One whose secrets can't be opened stays as it is: an edge can't open them,
/// either, and closes what the object would have protected.
fn rekeyed(from: &Documents, to: &Documents, key: &DocumentKey, text: &Arc<str>) -> Arc<str> {
    let Some(kind @ (ObjectKind::Consumers | ObjectKind::PluginConfigs)) = ObjectKind::named(&key.kind)
    else {
        return text.clone();
    };
    let plain = from.opened(kind, text);
    let sealed = plain.and_then(|plain| to.seal(kind, &plain, None));
    sealed.map_or_else(|_| text.clone(), Arc::from)
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
