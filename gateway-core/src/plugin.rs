//! Plugins: what one is, where it may sit, what it may reach, and how a proxy's chain is built and run.
//!
//! The life of a plugin: [`Plugin::build`] makes it from its settings, whenever a configuration is checked; a build that
//! is not used is dropped without a trace. [`Plugin::attend`] takes its seats in the chain of each proxy it runs for.
//! After the configuration is published, [`Plugin::start`] begins its background tasks, once. When no configuration
//! uses it any more, its tasks are asked to end and it is dropped.

mod at_seat;
pub mod chain;
pub mod entry;
pub mod family;
pub mod hooks;
pub mod needs;
pub mod seat;
pub mod step;
pub(crate) mod unrouted;
pub mod world;

pub use crate::config::capabilities::{Capabilities, Capability};
pub use crate::config::hook_set::HookSet;
pub use chain::{Chain, PLUGIN_TIMEOUT};
pub use entry::{Built, Entry, Registry, entry};
pub use family::Family;
pub use hooks::{
    Authenticate, Hooks, OnAttempt, OnBytes, OnClose, OnConnect, OnEnd, OnMessage, OnRequest, OnResponse,
    OnTransfer, OnUnrouted, OwnPages,
};
pub use needs::{Need, Needs};
pub use seat::{Attempt, AttemptEnd, Seat, SeatNumber};
pub use step::{Claim, Decision, Finding, Foreseen, Foresight, Gate, Passage, Refusal, Step, Verdict};
pub use world::World;
pub use world::tasks::Starter;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::config::credential::CredentialType;
use crate::config::problem::Problems;

/// A feature that the operator can switch on for each proxy.
///
/// Implemented once per plugin file. On the hot path only the hooks a plugin took a seat in are ever called.
pub trait Plugin: Sized + Send + Sync + 'static {
    /// What users write as `plugin_name`; snake case, unique in the table.
    const NAME: &'static str;
    /// The plugins that lists show it with.
    const FAMILY: Family = Family::Other;
    /// The first paragraph of the plugin's page, in one sentence.
    const SUMMARY: &'static str;
    /// A small configuration with it, in YAML, for the reference page. Comments at its beginning say what requests it makes of
    /// which answers: `# curl -H 'x-api-key: a' http://127.0.0.1:8000/ -> 200`; a test carries them out. Empty where there is none.
    const EXAMPLE: &'static str = "";
    /// Whether a global plugin closes a proxy whose traffic it can't see, rather than leave that proxy without it.
    /// True unless said otherwise: false only for plugins that protect nothing, such as one that adds an id.
    const GUARDS: bool = true;
    /// What an operator can have it do while it runs, by name, each with one sentence. See [`Self::act`].
    const ACTIONS: &'static [(&'static str, &'static str)] = &[];
    /// The type of credential that it checks, where consumers have one for it.
    const CREDENTIAL: Option<&'static CredentialType> = None;
    /// Settings that have an effect only beside others: where what they need is missing, they are refused before `build`.
    const NEEDS: &'static [Needs] = &[];
    /// The plugin's settings; must refuse unknown fields. What its types can say (a range, a fixed set of words) is
    /// checked by its schema, with all problems reported at once.
    type Config: DeserializeOwned + JsonSchema;

    /// Makes a ready plugin from settings. May read files through `world`; opens no connection and starts no task.
    ///
    /// # Errors
    /// Everything that is wrong with the settings, each with a path that begins with `config`.
    fn build(config: Self::Config, world: &World) -> Result<Self, Problems>;

    /// What it declares of its hooks, as its settings have them. What says something of a seat that [`Self::attend`] does not take is
    /// refused.
    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE
    }

    /// Takes a seat in each hook this plugin wants; absent hooks cost nothing.
    fn attend(self: Arc<Self>, hooks: &mut Hooks);

    /// What it would decide about a request that is described and not sent, for `explain`. Counts nothing and changes nothing; may
    /// read counters that are kept outside. Runs on a thread that may block. `None` where the plugin foresees nothing.
    fn foresee(&self, foresight: &Foresight<'_>) -> Option<Foreseen> {
        let _ = foresight;
        None
    }

    /// Carries out one of [`Self::ACTIONS`] and says what came of it, as JSON. Called by the admin API, on a thread that may
    /// block.
    ///
    /// # Errors
    /// What is wrong with the input, each with a path into it.
    fn act(&self, action: &str, input: &serde_json::Value) -> Result<serde_json::Value, Problems> {
        let _ = input;
        Err(Problems::one("action", format!("there is no action `{action}`")))
    }

    /// Begins background work. Called once, after the configuration with this plugin is published. A task that needs the
    /// plugin captures `self.clone()`.
    fn start(self: &Arc<Self>, starter: &mut Starter<'_>) {
        let _ = starter;
    }
}

#[cfg(test)]
mod tests;
