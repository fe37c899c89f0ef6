//! The configuration as it lives: objects come and go one change at a time, each checked against all the others.
//!
//! A file is resolved as a whole ([`super::resolve::document`]); a database changes in small pieces, among a million
//! objects that stay as they are. The catalog knows what objects refer to and what they may not have in common, so
//! that an [`Edit`] is checked, and turned into [`Changes`] for the compiler, at the cost of the edit. A clone is cheap
//! and shares everything: an edit is tried on one, which is kept when it was good and dropped when not.
//!
//! What is refused as an edit is *broken* when it is found in the database: nobody is there to be told. A broken object
//! is left alone and named, and the others serve. What depends on it is closed, not opened.

mod again;
mod broken;
mod check;
mod edit;
mod owners;
mod resolved;
mod taken;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::sync::Arc;

pub use broken::{BrokenObject, BrokenObjects, Closes};
pub use edit::{Edit, ObjectKind, Put};
pub use resolved::ResolvedEdit;

use super::changes::Changes;
use super::file;
use super::index::Index;
use super::model::{Consumer, Id, Proxy, Scope, Settings};
use super::problem::{Problem, Problems};
use super::resolve::{self, Configured, NamedObjects, ObjectPlace};
use crate::consumer::Consumers;
use taken::{ConsumerTrial, Taken};

/// Everything configured, as far as objects refer to each other or exclude each other.
#[derive(Clone, Default)]
pub struct Catalog {
    known: NamedObjects,
    taken: Taken,
    /// What each proxy names beside its own plugin configs; absent for those that name nothing.
    references: Index<Id, Arc<[Reference]>>,
    /// The other way round.
    users: Index<Reference, Index<Id, ()>>,
    broken: BrokenObjects,
    /// Proxies without a place, and who has it: they are tried again when those leave.
    waiting: Arc<BTreeMap<Id, Vec<Id>>>,
}

/// A shared object that a proxy names, whether or not it exists.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Reference {
    Upstream(Arc<str>),
    PluginConfig(Arc<str>),
    /// What runs for all proxies of an owner.
    Owner(Arc<str>),
}

/// The proxies an edit concerns though it doesn't put them: they have to be resolved again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Affected {
    /// These.
    Some(BTreeSet<Id>),
    /// Every proxy there is: a plugin config of all proxies changed.
    All,
}

/// The configuration that is in use: what edits are resolved against.
pub trait CurrentConfig {
    /// The gateway's own settings.
    fn settings(&self) -> &Settings;
    /// Every consumer.
    fn consumers(&self) -> &Consumers;
    /// The proxy with this id.
    fn proxy(&self, id: &str) -> Option<&Arc<Proxy>>;
    /// Whether that proxy answers 503 to everything.
    fn is_closed(&self, id: &str) -> bool;
    /// The ids of all proxies.
    fn proxy_ids(&self) -> Vec<&Id>;
}

/// What resolving an edit needs to know.
#[derive(Clone, Copy)]
pub struct Against<'a> {
    /// The configuration before the edit, compiled.
    pub previous: &'a dyn CurrentConfig,
    /// Where relative file paths start.
    pub folder: &'a Path,
}

/// What is done about an object that can't be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnRefusal {
    /// The whole edit is refused.
    Edit,
    /// That object alone is broken; while an older version of it is known, that one goes on.
    Object,
}

impl Catalog {
    /// The proxies that must be resolved again along with this edit, those it puts or removes left out.
    pub fn affected(&self, edit: &Edit) -> Affected {
        let mut ids = BTreeSet::new();
        let mut all = false;
        let mut owners = Vec::new();
        let mut concerns = |scope: Option<Scope>| match scope {
            Some(Scope::Global) => all = true,
            Some(Scope::Proxy(id)) => drop(ids.insert(id)),
            Some(Scope::Owner(owner)) => owners.push(Reference::Owner(owner.shared())),
            Some(Scope::ProxyGroup) | None => {}
        };
        let mut references = Vec::new();
        let gone = |kind| edit.gone.iter().filter(move |(of, _)| *of == kind).map(|(_, id)| id.as_str());
        let upstreams = edit.upstreams.iter().filter_map(|put| put.object.id.as_deref());
        references
            .extend(upstreams.chain(gone(ObjectKind::Upstreams)).map(|id| Reference::Upstream(id.into())));
        for put in &edit.plugin_configs {
            concerns(resolve::scope_of(&put.object));
        }
        let configs = edit.plugin_configs.iter().filter_map(|put| put.object.id.as_deref());
        for id in configs.chain(gone(ObjectKind::PluginConfigs)) {
            concerns(self.known.plugin(id).map(|known| known.config.scope.clone()));
            // Nobody could tell which proxies it closed, so all of them find out.
            concerns(
                self.broken.plugin_config(id).map(|broken| broken.scope.clone().unwrap_or(Scope::Global)),
            );
            references.push(Reference::PluginConfig(id.into()));
        }
        if all {
            return Affected::All;
        }
        for reference in references.iter().chain(&owners) {
            ids.extend(
                self.users.get(reference).into_iter().flat_map(Index::iter).map(|(id, ())| id.clone()),
            );
        }
        let own: HashSet<&str> = edit
            .proxies
            .iter()
            .filter_map(|put| put.object.id.as_deref())
            .chain(gone(ObjectKind::Proxies))
            .collect();
        if !own.is_empty() {
            // Whoever is put or goes may leave a place that others wait for.
            let waiting = self.waiting.iter();
            let freed = waiting.filter(|(_, owners)| owners.iter().any(|owner| own.contains(owner.as_str())));
            ids.extend(freed.map(|(id, _)| id.clone()));
        }
        ids.retain(|id| !own.contains(id.as_str()));
        Affected::Some(ids)
    }

    /// Whom a plugin config that can't be used closes.
    pub fn closes<'a>(&self, id: &str, object: &'a BrokenObject) -> Closes<'a> {
        object.closes(self.known.plugin(id).map(|known| &known.config.scope))
    }

    /// A proxy is well, or gone.
    fn mended_proxy(&mut self, id: &str) {
        self.broken.forget(ObjectKind::Proxies, id);
        if self.waiting.contains_key(id) {
            Arc::make_mut(&mut self.waiting).remove(id);
        }
    }

    /// A proxy has no place until one of these leaves it.
    fn waits(&mut self, id: &Id, owners: Vec<Id>) {
        Arc::make_mut(&mut self.waiting).insert(id.clone(), owners);
    }

    /// The plugin configs that belong to this proxy alone, and go with it.
    pub fn plugin_configs_of(&self, proxy: &str) -> impl Iterator<Item = &Id> {
        self.known.all_scoped(proxy).iter().map(|configured| &configured.config.id)
    }

    /// The ids of every object of a kind, given the configuration as it is compiled; broken ones among them.
    pub fn ids(&self, kind: ObjectKind, current: &dyn CurrentConfig) -> BTreeSet<String> {
        let mut ids: BTreeSet<String> = match kind {
            ObjectKind::Upstreams => self.known.upstream_ids().map(str::to_owned).collect(),
            ObjectKind::PluginConfigs => self.known.plugin_ids().map(str::to_owned).collect(),
            ObjectKind::Proxies => current.proxy_ids().into_iter().map(Id::to_string).collect(),
            ObjectKind::Consumers => current.consumers().iter().map(|(id, _)| id.to_string()).collect(),
        };
        let broken = self.broken.iter().filter(|(of, ..)| *of == kind);
        ids.extend(broken.map(|(_, id, _)| id.to_owned()));
        ids
    }

    /// An object is gone: it is broken no more. For those whose ids are none, which no [`Edit`] can name.
    pub fn forget_broken(&mut self, kind: ObjectKind, id: &str) {
        match kind {
            ObjectKind::Proxies => self.mended_proxy(id),
            ObjectKind::Upstreams | ObjectKind::PluginConfigs | ObjectKind::Consumers => {
                self.broken.forget(kind, id)
            }
        }
    }

    /// The plugin configs that name a connection of `gateway.redis` which these settings don't have.
    pub fn without_redis(&self, settings: &Settings) -> Problems {
        let mut problems = Problems::default();
        let Some(redis) = &settings.redis else { return problems };
        for id in self.known.plugin_ids() {
            let Some(known) = self.known.plugin(id) else { continue };
            let config = &known.config.config;
            if !config.mentions("redis") {
                continue;
            }
            if let Some(name) = resolve::redis_of(&config.value()).filter(|name| !redis.contains_key(*name)) {
                problems
                    .add(
                        format!("gateway.redis.{name}"),
                        format!("the plugin config `{id}` needs this connection"),
                    )
                    .remedy = Some("keep it, or change the plugin config first".to_owned());
            }
        }
        problems
    }

    /// What was found in the database and can't be used.
    pub fn broken(&self) -> &BrokenObjects {
        &self.broken
    }

    /// Tries an edit on this catalog; `affected` are the proxies [`Self::affected`] asked for, as they are stored.
    /// After an error the catalog is of no use any more: work on a clone.
    ///
    /// # Errors
    /// Every problem of the edit. With [`OnRefusal::Object`] there is none.
    pub fn apply(
        &mut self,
        edit: ResolvedEdit,
        affected: Vec<Put<file::Proxy>>,
        against: Against<'_>,
        refusal: OnRefusal,
    ) -> Result<Changes, Problems> {
        let mut trial = Trial {
            catalog: self,
            against,
            refusal,
            consumers: ConsumerTrial::new(against.previous.consumers()),
            changes: Changes::default(),
            problems: Problems::default(),
        };
        let ResolvedEdit { edit, plugin_configs, consumers } = edit;
        trial.remove(&edit);
        trial.upstreams(&edit.upstreams);
        trial.plugin_configs(&edit.plugin_configs, plugin_configs);
        trial.proxies(&edit, affected);
        trial.consumers(&edit.consumers, consumers);
        // A database's row serves: what limits its owner does so whether or not there is the consumer.
        if refusal == OnRefusal::Edit {
            trial.owners(&edit);
        }
        let Trial { changes, problems, .. } = trial;
        problems.into_result(changes)
    }

    fn forget_references(&mut self, proxy: &Id) {
        for reference in self.references.remove(proxy).iter().flat_map(|list| list.iter()) {
            let Some(users) = self.users.get_mut(reference) else { continue };
            users.remove(proxy);
            if users.is_empty() {
                self.users.remove(reference);
            }
        }
    }

    fn note_references(&mut self, proxy: &Id, written: &file::Proxy) {
        let own = self.known.all_scoped(proxy.as_str());
        let own = |id: &str| own.iter().any(|configured| configured.config.id.as_str() == id);
        let configs = written.plugins.iter().map(|plugin| plugin.plugin_config_id.as_str());
        let configs = configs.filter(|id| !own(id)).map(|id| Reference::PluginConfig(id.into()));
        let upstream = written.upstream_id.as_deref().map(|id| Reference::Upstream(id.into()));
        let owner = written.owner.as_deref().map(|owner| Reference::Owner(owner.into()));
        let list: Arc<[Reference]> = configs.chain(upstream).chain(owner).collect();
        for reference in list.iter() {
            match self.users.get_mut(reference) {
                Some(users) => drop(users.insert(proxy.clone(), ())),
                None => {
                    let users = Index::from_iter([(proxy.clone(), ())]);
                    self.users.insert(reference.clone(), users);
                }
            }
        }
        if !list.is_empty() {
            self.references.insert(proxy.clone(), list);
        }
    }
}

/// One edit being tried.
struct Trial<'a, 'c> {
    catalog: &'c mut Catalog,
    against: Against<'a>,
    refusal: OnRefusal,
    /// Who has which names and credentials, so far.
    consumers: ConsumerTrial<'a>,
    changes: Changes,
    problems: Problems,
}

impl Trial<'_, '_> {
    /// Takes out what the edit removes, and the places of what it puts: two objects may swap them.
    fn remove(&mut self, edit: &Edit) {
        for (kind, id) in &edit.gone {
            self.catalog.forget_broken(*kind, id.as_str());
            match kind {
                ObjectKind::Upstreams => {
                    self.catalog.known.remove_upstream(id.as_str());
                    drop(self.catalog.taken.upstream_gone(id));
                    self.changes.upstreams.gone.push(id.clone());
                }
                ObjectKind::PluginConfigs => {
                    self.catalog.known.remove_plugin(id.as_str());
                    self.changes.plugin_configs_gone.push(id.clone());
                }
                ObjectKind::Proxies => {
                    self.release_proxy(id);
                    self.catalog.forget_references(id);
                    self.changes.proxies.gone.push(id.clone());
                }
                ObjectKind::Consumers => {
                    self.consumers.remove(id);
                    self.changes.consumers.gone.push(id.clone());
                }
            }
        }
    }

    fn release_proxy(&mut self, id: &Id) {
        if let Some(proxy) = self.against.previous.proxy(id.as_str()) {
            self.catalog.taken.release(proxy);
        }
    }

    fn upstreams(&mut self, puts: &[Put<file::Upstream>]) {
        let mut resolved = Vec::with_capacity(puts.len());
        for put @ Put { at, object, .. } in puts {
            let place = ObjectPlace { at, folder: self.against.folder };
            match put.resolved(|object| resolve::upstream(object, place)) {
                Ok(group) => resolved.push((at, group)),
                Err(problems) => self.refuse(ObjectKind::Upstreams, object.id.as_deref(), None, problems),
            }
        }
        // All give their names back before any takes a new one.
        let before: Vec<_> =
            resolved.iter().map(|(_, group)| self.catalog.taken.upstream_gone(&group.upstream.id)).collect();
        for ((at, group), before) in resolved.into_iter().zip(before) {
            let id = group.upstream.id.clone();
            match self.catalog.taken.upstream(&id, group.upstream.name.as_ref(), at) {
                Ok(()) => {
                    self.catalog.broken.forget(ObjectKind::Upstreams, id.as_str());
                    self.changes.upstreams.put.push(group.upstream.clone());
                    self.catalog.known.add_upstream(group);
                }
                Err(problems) => {
                    self.refuse(ObjectKind::Upstreams, Some(id.as_str()), None, problems);
                    // The version before goes on, with the name it had, unless that is another's by now.
                    drop(self.catalog.taken.upstream(&id, before.as_ref(), at));
                }
            }
        }
    }

    fn plugin_configs(
        &mut self,
        puts: &[Put<file::PluginConfig>],
        resolved: Vec<Result<Configured, Problems>>,
    ) {
        for (Put { object, .. }, resolved) in puts.iter().zip(resolved) {
            match resolved {
                Ok(configured) => {
                    let id = &configured.config.id;
                    self.catalog.broken.forget(ObjectKind::PluginConfigs, id.as_str());
                    let is_shared = configured.enabled && !matches!(configured.config.scope, Scope::Proxy(_));
                    if !is_shared {
                        self.changes.plugin_configs_gone.push(id.clone());
                    }
                    self.catalog.known.add_plugin(configured);
                }
                Err(problems) => {
                    let scope = resolve::scope_of(object);
                    self.refuse(ObjectKind::PluginConfigs, object.id.as_deref(), scope, problems);
                }
            }
        }
    }

    fn consumers(&mut self, puts: &[Put<file::Consumer>], read: Vec<Result<Consumer, Problems>>) {
        let mut resolved: Vec<(&str, Arc<Consumer>)> = Vec::with_capacity(puts.len());
        for (Put { at, object, .. }, read) in puts.iter().zip(read) {
            match read {
                Ok(consumer) => resolved.push((at, Arc::new(consumer))),
                Err(problems) => self.refuse(ObjectKind::Consumers, object.id.as_deref(), None, problems),
            }
        }
        for (_, consumer) in &resolved {
            self.consumers.remove(&consumer.id);
        }
        for (at, consumer) in resolved {
            match self.consumers.add(&consumer, at) {
                Ok(()) => {
                    self.catalog.broken.forget(ObjectKind::Consumers, consumer.id.as_str());
                    self.changes.consumers.put.push(consumer);
                }
                Err(problems) => {
                    self.refuse(ObjectKind::Consumers, Some(consumer.id.as_str()), None, problems);
                    // The version before goes on, with what it had.
                    let before = self.against.previous.consumers().by_id(consumer.id.as_str());
                    if let Some(before) = before.and_then(|identity| identity.consumer.as_ref())
                        && self.consumers.add(before, at).is_err()
                    {
                        // Somebody else was given what it had meanwhile.
                        self.changes.consumers.gone.push(consumer.id.clone());
                    }
                }
            }
        }
    }

    /// An object can't be used: the edit is refused, or the object noted as broken.
    fn refuse(&mut self, kind: ObjectKind, id: Option<&str>, scope: Option<Scope>, problems: Problems) {
        match (self.refusal, id) {
            (OnRefusal::Object, Some(id)) => self.catalog.broken.note(kind, id, scope, problems),
            (OnRefusal::Edit, _) | (OnRefusal::Object, None) => self.problems.extend(problems.0),
        }
    }
}

impl Against<'_> {
    fn settings(&self) -> &Settings {
        self.previous.settings()
    }
}
