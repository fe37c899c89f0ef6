//! Puts configurations of a control plane in use, each by its difference to the one before, in one swap.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use gateway_core::config::catalog::{Affected, Against, Catalog, Edit, ObjectKind, OnRefusal, ResolvedEdit};
use gateway_core::config::changes::Changes;
use gateway_core::config::model::{Id, Settings};
use gateway_core::plugin::Registry;
use gateway_fleet::{BrokenObject, Configuration, DocumentKey, DocumentSet, Findings, MAX_BROKEN};

use crate::engine::error::ReloadError;
use crate::engine::listeners::Ports;
use crate::engine::{Engine, Served};
use crate::source::database::{Documents, heavy, say_broken};
use crate::store::Object;

/// What is served, in the form in which it can be changed.
pub(crate) struct Applier {
    engine: Arc<Engine>,
    documents: Documents,
    registry: Registry,
    catalog: Catalog,
    /// Documents of kinds that this version does not know.
    unknown: Vec<DocumentKey>,
}

/// Documents as objects, in the order of kinds; and those of kinds that this version does not know.
pub(super) fn objects(documents: &DocumentSet) -> (Vec<Object>, Vec<DocumentKey>) {
    let (mut objects, mut unknown) = (Vec::with_capacity(documents.len()), Vec::new());
    for (key, text) in documents.iter() {
        match object(key, text) {
            Some(object) => objects.push(object),
            None => unknown.push(key.clone()),
        }
    }
    objects.sort_unstable_by(|one, other| (one.kind, &one.id).cmp(&(other.kind, &other.id)));
    (objects, unknown)
}

fn object(key: &DocumentKey, text: &str) -> Option<Object> {
    let (id, document) = (key.id.to_string(), text.to_owned());
    let kind = ObjectKind::named(&key.kind)?;
    Some(Object { kind, id, document, created_at: 0, updated_at: 0, revision: 0 })
}

/// What can't be used of a configuration.
pub(super) fn findings(catalog: &Catalog, unknown: &[DocumentKey]) -> Findings {
    first_of(broken(catalog, unknown).collect())
}

fn broken(catalog: &Catalog, unknown: &[DocumentKey]) -> impl Iterator<Item = BrokenObject> {
    let reason = "this version of the gateway knows no objects of this kind";
    let unknown = unknown.iter().map(|key| BrokenObject { key: key.clone(), reason: reason.to_owned() });
    let broken = catalog.broken().iter().map(|(kind, id, object)| BrokenObject {
        key: DocumentKey::new(kind.as_str(), id),
        reason: object.problems.to_string(),
    });
    unknown.chain(broken)
}

/// Proxies that answer nothing, or not on their ports, and why.
fn closed_proxies(engine: &Engine) -> BTreeMap<Id, String> {
    let snapshot = engine.snapshot();
    let mut closed = engine.streams.failed();
    closed.extend(snapshot.quarantined.iter().filter_map(|(id, route)| {
        let problems = route.quarantine.as_ref()?;
        Some((id.clone(), problems.to_string()))
    }));
    closed
}

fn first_of(all: Vec<BrokenObject>) -> Findings {
    let count = all.len() as u64;
    Findings { broken: all.into_iter().take(MAX_BROKEN).collect(), count }
}

impl Applier {
    /// Goes on from what the engine serves.
    pub(crate) fn new(
        engine: Arc<Engine>,
        documents: Documents,
        registry: Registry,
        catalog: Catalog,
    ) -> Self {
        let unknown = Vec::new();
        Self { engine, documents, registry, catalog, unknown }
    }

    /// What can't be used of what is served, on this machine and now: also proxies whose ports can't be opened.
    pub(super) fn findings(&self) -> Findings {
        let mut all: Vec<BrokenObject> = broken(&self.catalog, &self.unknown).collect();
        let known: BTreeSet<DocumentKey> = all.iter().map(|object| object.key.clone()).collect();
        let closed = closed_proxies(&self.engine).into_iter();
        let closed = closed.map(|(id, reason)| BrokenObject {
            key: DocumentKey::new(ObjectKind::Proxies.as_str(), id.as_str()),
            reason,
        });
        all.extend(closed.filter(|object| !known.contains(&object.key)));
        first_of(all)
    }

    /// Reads documents by other keys from now on.
    pub(super) fn read_by(&mut self, documents: Documents) {
        self.documents = documents;
    }

    /// Puts other settings of the gateway as a whole in use.
    ///
    /// # Errors
    /// When they can't be used.
    pub(super) fn reload(&self, settings: Arc<Settings>) -> Result<(), ReloadError> {
        let missing = self.catalog.without_redis(&settings);
        if !missing.is_empty() {
            let refused = ReloadError::from(missing);
            self.engine.telemetry.refused(&refused);
            return Err(refused);
        }
        let revision = self.engine.snapshot().revision;
        heavy(|| self.engine.reload_settings(settings, revision))
    }

    /// Compiles `to`, of which the engine serves `from`, tells what it can't use by `compiled`, and swaps. What is handed out tells
    /// when every worker serves it.
    ///
    /// # Errors
    /// When it can't be used as a whole; what was served stays.
    pub(super) fn apply(
        &mut self,
        from: &DocumentSet,
        to: &Configuration,
        compiled: impl FnOnce(Findings),
    ) -> Result<(Findings, Served), String> {
        let changed = from.difference(&to.documents);
        let mut edit = Edit::default();
        let mut gone = Vec::new();
        for key in &changed {
            let Some(kind) = ObjectKind::named(&key.kind) else { continue };
            match to.documents.get(key).and_then(|text| object(key, text)) {
                Some(object) => self.documents.put(&mut edit, &object),
                None => gone.push((kind, key.id.to_string())),
            }
        }
        edit.gone.extend(gone.iter().filter_map(|(kind, id)| Some((*kind, id.parse::<Id>().ok()?))));
        let affected = self.affected(&edit, &to.documents);
        let previous = self.engine.snapshot();
        let mut catalog = self.catalog.clone();
        let resolved = ResolvedEdit::new(edit, &self.registry, previous.settings.redis.as_ref());
        let against = Against { previous: &*previous, folder: Path::new("") };
        let applied = heavy(|| catalog.apply(resolved, affected, against, OnRefusal::Object));
        let mut changes: Changes = applied.map_err(|problems| problems.to_string())?;
        for (kind, id) in &gone {
            catalog.forget_broken(*kind, id);
        }
        changes.revision = Some(to.position.revision);
        let staged =
            heavy(|| self.engine.stage(changes, Ports::Possible)).map_err(|error| error.to_string())?;
        let unknown = to.documents.iter().filter(|(key, _)| ObjectKind::named(&key.kind).is_none());
        let unknown: Vec<DocumentKey> = unknown.map(|(key, _)| key.clone()).collect();
        compiled(findings(&catalog, &unknown));
        if catalog.broken().len() != self.catalog.broken().len() {
            say_broken(&catalog);
        }
        let served = self.engine.publish(staged);
        (self.catalog, self.unknown) = (catalog, unknown);
        let findings = self.findings();
        let broken = &self.engine.telemetry.control.broken;
        broken.store(findings.count, std::sync::atomic::Ordering::Relaxed);
        tracing::info!(
            revision = to.position.revision,
            objects = changed.len(),
            "followed the control plane"
        );
        Ok((findings, served))
    }

    /// The proxies that an edit concerns and does not contain.
    fn affected(
        &self,
        edit: &Edit,
        documents: &DocumentSet,
    ) -> Vec<gateway_core::config::catalog::Put<gateway_core::config::file::Proxy>> {
        let mut ids: BTreeSet<String> = match self.catalog.affected(edit) {
            Affected::Some(ids) => ids.iter().map(ToString::to_string).collect(),
            Affected::All => {
                let mut ids = self.catalog.ids(ObjectKind::Proxies, &*self.engine.snapshot());
                edit.proxies.iter().filter_map(|put| put.object.id.as_ref()).for_each(|id| {
                    ids.remove(id);
                });
                ids
            }
        };
        for (_, id) in edit.gone.iter().filter(|(kind, _)| *kind == ObjectKind::Proxies) {
            ids.remove(id.as_str());
        }
        let proxies = ids.iter().filter_map(|id| {
            let key = DocumentKey::new(ObjectKind::Proxies.as_str(), id.as_str());
            object(&key, documents.get(&key)?)
        });
        let proxies = proxies
            .map(|object| self.documents.stored(format!("{}.{}", ObjectKind::Proxies, object.id), &object));
        proxies.collect()
    }
}
