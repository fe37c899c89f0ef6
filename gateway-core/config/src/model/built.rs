//! A plugin that a check of its settings has built.

use std::any::Any;
use std::sync::Arc;

use crate::capabilities::Capabilities;
use crate::credential::CredentialType;
use crate::file::OldSpelling;
use crate::hook_set::HookSet;

/// What a configuration has to know of a built plugin.
pub trait CheckedSettings: Send + Sync {
    /// The hooks in which it takes a seat.
    fn hooks(&self) -> HookSet;

    /// What it declares of them.
    fn capabilities(&self) -> Capabilities;

    /// The type of credential that it checks.
    fn credential(&self) -> Option<&'static CredentialType>;

    /// Old spellings in its settings.
    fn old_spellings(&self) -> &[OldSpelling];

    /// The plugin, which only those who built it can make use of.
    fn plugin(self: Arc<Self>) -> Box<dyn Any>;
}

/// A plugin that was built to check its settings. There may be millions.
#[derive(Clone)]
pub struct BuiltPlugin(Arc<dyn CheckedSettings>);

impl BuiltPlugin {
    /// A built plugin.
    pub fn new(plugin: Arc<dyn CheckedSettings>) -> Self {
        Self(plugin)
    }

    /// The hooks in which it takes a seat.
    pub fn hooks(&self) -> HookSet {
        self.0.hooks()
    }

    /// What it declares of them.
    pub fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    /// The type of credential that it checks.
    pub fn credential(&self) -> Option<&'static CredentialType> {
        self.0.credential()
    }

    /// Old spellings in its settings.
    pub fn old_spellings(&self) -> &[OldSpelling] {
        self.0.old_spellings()
    }

    /// The plugin; `None` when it was built by others, as another type.
    pub fn plugin<P: Any>(&self) -> Option<P> {
        self.0.clone().plugin().downcast().ok().map(|plugin| *plugin)
    }
}
