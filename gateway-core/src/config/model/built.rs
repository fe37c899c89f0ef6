//! A plugin that a check of its settings has built.

use std::any::Any;
use std::sync::Arc;

use crate::config::credential::CredentialType;
use crate::plugin::HookSet;

/// A plugin that was built to check its settings: what a configuration has to know of it, and the plugin itself, which only
/// those who built it can make use of.
#[derive(Clone)]
pub struct BuiltPlugin {
    /// The hooks in which it takes a seat.
    pub hooks: HookSet,
    /// The type of credential that it checks.
    pub credential: Option<&'static CredentialType>,
    plugin: Arc<dyn Any + Send + Sync>,
}

impl BuiltPlugin {
    /// A built plugin with what is to be known of it.
    pub fn new<P>(plugin: P, hooks: HookSet, credential: Option<&'static CredentialType>) -> Self
    where
        P: Any + Send + Sync,
    {
        Self { hooks, credential, plugin: Arc::new(plugin) }
    }

    /// The plugin; `None` when it was built by others, as another type.
    pub fn plugin<P: Any>(&self) -> Option<&P> {
        self.plugin.downcast_ref()
    }
}
