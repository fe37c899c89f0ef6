//! What was found in the database and can't be used.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ObjectKind;
use crate::model::{Id, Scope};
use crate::problem::{Problem, Problems};

/// An object that can't be used.
#[derive(Debug, Clone)]
pub struct BrokenObject {
    /// What is wrong with it.
    pub problems: Problems,
    /// Where a plugin config would run; `None` for other kinds, and when not even that can be told.
    pub scope: Option<Scope>,
}

/// Whom a plugin config that can't be used closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closes<'a> {
    /// An older version of it runs in its place.
    Nothing,
    /// The proxy it belongs to.
    Proxy(&'a Id),
    /// The proxies that name it.
    Naming,
    /// The proxies of this owner.
    Owner(&'a Id),
    /// Every proxy: it is for all of them, or whom it was meant to protect can't be told.
    Everything,
}

impl BrokenObject {
    /// Whom it closes, being a plugin config; `older` is where its older version runs, when one is known.
    pub(super) fn closes(&self, older: Option<&Scope>) -> Closes<'_> {
        // An older version for another proxy stands in for nothing here.
        if older.is_some_and(|older| self.scope.as_ref().is_none_or(|scope| scope == older)) {
            return Closes::Nothing;
        }
        match &self.scope {
            Some(Scope::Proxy(id)) => Closes::Proxy(id),
            Some(Scope::ProxyGroup) => Closes::Naming,
            Some(Scope::Owner(owner)) => Closes::Owner(owner),
            // It may have been meant to protect any of them.
            Some(Scope::Global) | None => Closes::Everything,
        }
    }
}

/// Every object that can't be used, by kind and id. A clone is cheap.
#[derive(Debug, Clone, Default)]
pub struct BrokenObjects(Arc<BTreeMap<(ObjectKind, String), BrokenObject>>);

impl BrokenObjects {
    /// Notes an object.
    pub fn note(&mut self, kind: ObjectKind, id: &str, scope: Option<Scope>, problems: Problems) {
        Arc::make_mut(&mut self.0).insert((kind, id.to_owned()), BrokenObject { problems, scope });
    }

    /// An object can be used again, or is gone.
    pub(super) fn forget(&mut self, kind: ObjectKind, id: &str) {
        if self.0.is_empty() {
            return;
        }
        let key = (kind, id.to_owned());
        if self.0.contains_key(&key) {
            Arc::make_mut(&mut self.0).remove(&key);
        }
    }

    /// Every one of them.
    pub fn iter(&self) -> impl Iterator<Item = (ObjectKind, &str, &BrokenObject)> {
        self.0.iter().map(|((kind, id), object)| (*kind, id.as_str(), object))
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether everything can be used.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this object is broken.
    pub(super) fn has(&self, kind: ObjectKind, id: &str) -> bool {
        !self.is_empty() && self.0.contains_key(&(kind, id.to_owned()))
    }

    /// A plugin config, when it is broken.
    pub(super) fn plugin_config(&self, id: &str) -> Option<&BrokenObject> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&(ObjectKind::PluginConfigs, id.to_owned()))
    }

    /// Why this proxy must not serve: a plugin config that would run for it can't be used, and no older version of it
    /// runs in its place. `older` tells where the older version of a plugin config runs.
    pub(super) fn closing<'a>(
        &self,
        proxy: &Id,
        owner: Option<&str>,
        older: impl Fn(&str) -> Option<&'a Scope>,
    ) -> Problems {
        let configs = self.iter().filter(|(kind, id, object)| {
            *kind == ObjectKind::PluginConfigs
                && match object.closes(older(id)) {
                    Closes::Proxy(closed) => closed == proxy,
                    Closes::Owner(closed) => owner == Some(closed.as_str()),
                    Closes::Everything => true,
                    // Proxies that name it find out by themselves.
                    Closes::Naming | Closes::Nothing => false,
                }
        });
        let problems = configs.map(|(_, id, object)| {
            let why = object.problems.0.first().map_or_else(String::new, ToString::to_string);
            Problem::new("plugins", format!("the plugin config `{id}` can't be used: {why}"))
        });
        Problems(problems.collect())
    }
}
