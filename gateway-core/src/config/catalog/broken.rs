//! What was found in the database and can't be used.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Kind;
use crate::config::model::{Id, Scope};
use crate::config::problem::{Problem, Problems};

/// An object that can't be used.
#[derive(Debug, Clone)]
pub struct BrokenObject {
    /// What is wrong with it.
    pub problems: Problems,
    /// Where a plugin config would run; `None` for other kinds, and when not even that can be told.
    pub scope: Option<Scope>,
}

/// Every object that can't be used, by kind and id. A clone is cheap.
#[derive(Debug, Clone, Default)]
pub struct Broken(Arc<BTreeMap<(Kind, String), BrokenObject>>);

impl Broken {
    /// Notes an object.
    pub fn note(&mut self, kind: Kind, id: &str, scope: Option<Scope>, problems: Problems) {
        Arc::make_mut(&mut self.0).insert((kind, id.to_owned()), BrokenObject { problems, scope });
    }

    /// An object is well, or gone.
    pub(super) fn mended(&mut self, kind: Kind, id: &str) {
        if self.0.is_empty() {
            return;
        }
        let key = (kind, id.to_owned());
        if self.0.contains_key(&key) {
            Arc::make_mut(&mut self.0).remove(&key);
        }
    }

    /// Every one of them.
    pub fn iter(&self) -> impl Iterator<Item = (Kind, &str, &BrokenObject)> {
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

    /// A plugin config, when it is broken.
    pub(super) fn plugin_config(&self, id: &str) -> Option<&BrokenObject> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&(Kind::PluginConfigs, id.to_owned()))
    }

    /// Why this proxy must not serve: a plugin config that would run for it can't be used, and no older version of it
    /// runs in its place. `older` tells where the older version of a plugin config runs.
    pub(super) fn closing<'a>(&self, proxy: &Id, older: impl Fn(&str) -> Option<&'a Scope>) -> Problems {
        let runs_for = |scope: Option<&Scope>| match scope {
            Some(Scope::Proxy(id)) => id == proxy,
            // Proxies that name it find out by themselves.
            Some(Scope::ProxyGroup) => false,
            // It may have been meant to protect this one, too.
            Some(Scope::Global) | None => true,
        };
        // An older version for another proxy stands in for nothing here.
        let stands_in = |id: &str, scope: Option<&Scope>| {
            older(id).is_some_and(|older| scope.is_none_or(|scope| scope == older))
        };
        let configs = self.iter().filter(|(kind, id, object)| {
            let scope = object.scope.as_ref();
            *kind == Kind::PluginConfigs && runs_for(scope) && !stands_in(id, scope)
        });
        let problems = configs.map(|(_, id, object)| {
            let why = object.problems.0.first().map_or_else(String::new, ToString::to_string);
            Problem::new("plugins", format!("the plugin config `{id}` can't be used: {why}"))
        });
        Problems(problems.collect())
    }
}
