//! Plugins: what one is, where it may sit, and how a proxy's chain is built and walked.

pub mod chain;
pub mod entry;
pub mod hooks;
pub mod step;
pub mod world;

pub use chain::Chain;
pub use entry::{Entry, Registry, entry};
pub use hooks::{Authenticate, Hooks, OnClose, OnConnect, OnEnd, OnMessage, OnRequest, OnResponse};
pub use step::{Claim, Finding, Step, Verdict};
pub use world::World;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::config::problem::Problems;

/// A feature the operator can switch on per proxy.
///
/// Implemented once per plugin file. `build` runs when a configuration is loaded, `attend` right after it; on the
/// hot path only the hooks a plugin took a seat in are ever called.
pub trait Plugin: Sized + Send + Sync + 'static {
    /// What users write as `plugin_name`; snake case, unique in the table.
    const NAME: &'static str;
    /// The first paragraph of the plugin's page, in one sentence.
    const SUMMARY: &'static str;
    /// The plugin's settings; must refuse unknown fields.
    type Config: DeserializeOwned + JsonSchema;

    /// Turns settings into a ready plugin.
    ///
    /// # Errors
    /// Every thing that is wrong with the settings.
    fn build(config: Self::Config, world: &World) -> Result<Self, Problems>;

    /// Takes a seat in each hook this plugin wants; absent hooks cost nothing.
    fn attend(self: Arc<Self>, hooks: &mut Hooks);
}
