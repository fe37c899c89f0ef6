//! What is to become different, as written.

use std::fmt;

use crate::file;
use crate::model::Id;
use crate::problem::Problems;
use crate::resolve::is_news;

/// A kind of object, in the order in which they are resolved: later ones refer to earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObjectKind {
    /// Named groups of targets.
    Upstreams,
    /// Plugins and where they run.
    PluginConfigs,
    /// Everything that takes traffic.
    Proxies,
    /// Everybody who may be recognised.
    Consumers,
}

impl ObjectKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Upstreams, Self::PluginConfigs, Self::Proxies, Self::Consumers];

    /// As it stands in files, paths and tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Upstreams => "upstreams",
            Self::PluginConfigs => "plugin_configs",
            Self::Proxies => "proxies",
            Self::Consumers => "consumers",
        }
    }

    /// One of them, for sentences.
    pub fn singular(self) -> &'static str {
        match self {
            Self::Upstreams => "upstream",
            Self::PluginConfigs => "plugin config",
            Self::Proxies => "proxy",
            Self::Consumers => "consumer",
        }
    }

    /// The kind that is called so.
    pub fn named(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An object that comes, or takes the place of the one with its id.
#[derive(Debug, Clone)]
pub struct Put<T> {
    /// Where it stands in what was sent, such as `proxies[2]`; its problems' paths begin with it. May be empty.
    pub at: String,
    /// The object; what could be read of it, when it is damaged.
    pub object: T,
    /// What of it can't be read.
    pub damage: Option<Problems>,
}

impl<T> Put<T> {
    /// An object that could be read whole.
    pub fn new(at: impl Into<String>, object: T) -> Self {
        Self { at: at.into(), object, damage: None }
    }

    /// Resolves it; of a damaged one the rest is looked at, too, so that all its problems are told at once.
    pub(super) fn resolved<R>(&self, resolve: impl FnOnce(&T) -> Result<R, Problems>) -> Result<R, Problems> {
        let resolved = resolve(&self.object);
        let Some(damage) = &self.damage else { return resolved };
        let mut all = damage.clone();
        if let Err(more) = resolved {
            let paths: Vec<String> = damage.0.iter().map(|problem| problem.path.clone()).collect();
            all.extend(more.0.into_iter().filter(|problem| is_news(&problem.path, &self.at, &paths)));
        }
        Err(all)
    }
}

/// Everything that is to become different at once.
#[derive(Debug, Clone, Default)]
pub struct Edit {
    /// Named groups of targets.
    pub upstreams: Vec<Put<file::Upstream>>,
    /// Plugins and where they run.
    pub plugin_configs: Vec<Put<file::PluginConfig>>,
    /// Everything that takes traffic.
    pub proxies: Vec<Put<file::Proxy>>,
    /// Everybody who may be recognised.
    pub consumers: Vec<Put<file::Consumer>>,
    /// What goes.
    pub gone: Vec<(ObjectKind, Id)>,
}

impl Edit {
    /// True when nothing is to change.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Objects put and removed.
    pub fn len(&self) -> usize {
        self.upstreams.len()
            + self.plugin_configs.len()
            + self.proxies.len()
            + self.consumers.len()
            + self.gone.len()
    }
}
