//! The table of known plugins and how one is built from its settings.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use schemars::Schema;
use serde_json::Value;

use super::family::Family;
use super::hooks::Hooks;
use super::needs::{self, Needs};
use super::world::Owner;
use super::world::tasks::{Starter, TaskHandle, Tasks};
use super::{Foreseen, Foresight, Plugin, World};
use crate::config::capabilities::Capabilities;
use crate::config::credential::{CredentialType, CredentialTypes};
use crate::config::file::{OldSpelling, Rules, plugin_settings};
use crate::config::hook_set::HookSet;
use crate::config::model::{BuiltPlugin, CheckedSettings, Id};
use crate::config::nearest::nearest;
use crate::config::problem::{Problem, Problems};
use crate::config::resolve::{CheckedPlugin, PluginCheck};

/// A built plugin. It can take its seats any number of times (a group shares one).
pub trait Built: CheckedSettings {
    /// Takes the plugin's seats.
    fn attend(&self, hooks: &mut Hooks);

    /// Whether a proxy is closed rather than served without it.
    fn guards(&self) -> bool;

    /// What stands for the files that are part of its settings, as they were when it was built.
    fn sources(&self) -> u64;

    /// What it would decide about a request that is not sent; see [`Plugin::foresee`].
    fn foresee(&self, foresight: &Foresight<'_>) -> Option<Foreseen>;

    /// What an operator can have it do, by name, each with one sentence.
    fn actions(&self) -> &'static [(&'static str, &'static str)];

    /// Carries out one of [`Self::actions`]. May block.
    ///
    /// # Errors
    /// An unknown action, or what is wrong with the input.
    fn act(&self, action: &str, input: &Value) -> Result<Value, Problems>;

    /// Starts the plugin's tasks; called after each publication, it starts them once. They end with the plugin.
    fn start(&self, tasks: &dyn Tasks);
}

struct Instance<P> {
    plugin: Arc<P>,
    /// The id of its config; `None` where settings are only checked.
    config: Option<Id>,
    sources: u64,
    hooks: HookSet,
    old_spellings: Box<[OldSpelling]>,
    started: OnceLock<Box<[TaskHandle]>>,
}

impl<P: Plugin> CheckedSettings for Instance<P> {
    fn hooks(&self) -> HookSet {
        self.hooks
    }

    fn capabilities(&self) -> Capabilities {
        self.plugin.capabilities()
    }

    fn credential(&self) -> Option<&'static CredentialType> {
        P::CREDENTIAL
    }

    fn old_spellings(&self) -> &[OldSpelling] {
        &self.old_spellings
    }

    fn plugin(self: Arc<Self>) -> Box<dyn Any> {
        Box::new(self as Arc<dyn Built>)
    }
}

impl<P: Plugin> Built for Instance<P> {
    fn attend(&self, hooks: &mut Hooks) {
        self.plugin.clone().attend(hooks);
    }

    fn guards(&self) -> bool {
        P::GUARDS
    }

    fn sources(&self) -> u64 {
        self.sources
    }

    fn foresee(&self, foresight: &Foresight<'_>) -> Option<Foreseen> {
        self.plugin.foresee(foresight)
    }

    fn actions(&self) -> &'static [(&'static str, &'static str)] {
        P::ACTIONS
    }

    fn act(&self, action: &str, input: &Value) -> Result<Value, Problems> {
        if P::ACTIONS.iter().any(|(name, _)| *name == action) {
            return self.plugin.act(action, input);
        }
        let known: Vec<_> = P::ACTIONS.iter().map(|(name, _)| *name).collect();
        let mut problem = Problem::new("action", format!("`{}` has no action `{action}`", P::NAME));
        if !known.is_empty() {
            problem = problem.remedy(format!("it has {}", known.join(", ")));
        }
        Err(Problems(vec![problem]))
    }

    fn start(&self, tasks: &dyn Tasks) {
        let Some(config) = &self.config else { return };
        self.started.get_or_init(|| {
            let owner = Owner { plugin: P::NAME, config: config.clone() };
            let mut starter = Starter::new(tasks, owner);
            self.plugin.start(&mut starter);
            starter.into_handles().into()
        });
    }
}

/// How a plugin is built from its settings.
type Build = fn(&Value, &World) -> Result<Arc<dyn Built>, Problems>;

/// One row of the plugin table.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// What users write as `plugin_name`.
    pub name: &'static str,
    /// The plugins that lists show it with.
    pub family: Family,
    /// One sentence for the reference page.
    pub summary: &'static str,
    /// A small configuration with it, for the reference page; empty where there is none.
    pub example: &'static str,
    /// The settings' JSON Schema.
    pub schema: fn() -> Schema,
    /// What an operator can have it do while it runs, by name, each with one sentence.
    pub actions: &'static [(&'static str, &'static str)],
    /// The type of credential that it checks.
    pub credential: Option<&'static CredentialType>,
    /// Settings that have an effect only beside others.
    pub needs: &'static [Needs],
    build: Build,
}

/// The table row of a plugin.
pub const fn entry<P: Plugin>() -> Entry {
    Entry {
        name: P::NAME,
        family: P::FAMILY,
        summary: P::SUMMARY,
        example: P::EXAMPLE,
        schema: schema_of::<P>,
        actions: P::ACTIONS,
        credential: P::CREDENTIAL,
        needs: P::NEEDS,
        build: build_of::<P>,
    }
}

fn schema_of<P: Plugin>() -> Schema {
    schemars::schema_for!(P::Config)
}

/// The rules of a type of settings, made once: there may be millions of plugin configs.
fn known_rules<P: Plugin>() -> Arc<Rules> {
    static KNOWN: LazyLock<Mutex<HashMap<TypeId, Arc<Rules>>>> = LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let rules = || Arc::new(Rules::new(schema_of::<P>().as_value()));
    known.entry(TypeId::of::<P>()).or_insert_with(rules).clone()
}

fn build_of<P: Plugin>(config: &Value, world: &World) -> Result<Arc<dyn Built>, Problems> {
    let (settings, old_spellings) = settings_of::<P>(config)?;
    let mut problems = needs::check(P::NEEDS, config);
    let world = world.to_build_with();
    let built = P::build(settings, &world);
    let plugin = match built {
        Ok(plugin) => problems.into_result(Arc::new(plugin))?,
        Err(more) => {
            problems.extend(more.0);
            return Err(problems);
        }
    };
    let mut hooks = Hooks::default();
    plugin.clone().attend(&mut hooks);
    let hooks = hooks.hook_set();
    if let Some(declared) = plugin.capabilities().without_seat(hooks) {
        let message = format!("`{}` declares {declared:?} and takes no seat in which it does so", P::NAME);
        return Err(Problems(vec![Problem::new("config", message).remedy("correct the plugin's code")]));
    }
    let (config, sources) = (world.owner().map(|owner| owner.config.clone()), world.sources());
    let old_spellings = old_spellings.into();
    Ok(Arc::new(Instance { plugin, config, sources, hooks, old_spellings, started: OnceLock::new() }))
}

fn settings_of<P: Plugin>(config: &Value) -> Result<(P::Config, Vec<OldSpelling>), Problems> {
    // An absent `config` is an empty one, so that a plugin whose settings all have defaults needs none.
    let empty = Value::Object(serde_json::Map::new());
    plugin_settings(&known_rules::<P>(), if config.is_null() { &empty } else { config })
}

/// Builds plugins to check them; what was built is what runs.
impl PluginCheck for Registry {
    fn check(&self, plugin_name: &str, id: Option<&Id>, config: &Value) -> Result<CheckedPlugin, Problems> {
        let built = self.build(plugin_name, id, config);
        built.map(|plugin| Some(BuiltPlugin::new(plugin))).map_err(|mut problems| {
            for problem in &mut problems.0 {
                let within = problem.path.strip_prefix("config").unwrap_or(&problem.path);
                problem.path = within.trim_start_matches('.').to_owned();
            }
            problems
        })
    }

    fn is_known(&self, name: &str) -> bool {
        self.place(name).is_some()
    }

    fn names(&self) -> Option<Vec<String>> {
        Some(self.entries.iter().map(|entry| entry.name.to_owned()).collect())
    }

    fn credential_types(&self) -> Option<CredentialTypes> {
        Some(Self::credential_types(self))
    }
}

/// The plugins this gateway knows, in execution order, and what they are built with.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    entries: Vec<Entry>,
    world: World,
}

impl Registry {
    /// A registry with these plugins, in this order, that can reach nothing outside.
    pub fn new(entries: &[Entry]) -> Self {
        Self { entries: entries.to_vec(), world: World::default() }
    }

    /// The same plugins, built in this world.
    #[must_use]
    pub fn with_world(self, world: World) -> Self {
        Self { world, ..self }
    }

    /// The plugin that a registry has built to check its settings.
    pub(crate) fn plugin_of(built: &BuiltPlugin) -> Option<Arc<dyn Built>> {
        built.plugin()
    }

    /// What plugins are built with.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Adds a plugin after all others, or replaces the one of its name.
    pub fn add(&mut self, entry: Entry) {
        match self.entries.iter_mut().find(|known| known.name == entry.name) {
            Some(known) => *known = entry,
            None => self.entries.push(entry),
        }
    }

    /// The plugins in execution order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The types of credentials that its plugins check.
    pub fn credential_types(&self) -> CredentialTypes {
        self.entries.iter().filter_map(|entry| entry.credential).collect()
    }

    /// The plugin's place in the execution order.
    pub fn place(&self, name: &str) -> Option<usize> {
        self.entries.iter().position(|entry| entry.name == name)
    }

    /// Builds a plugin from its settings. Nothing outside changes; tasks begin with [`Built::start`].
    ///
    /// # Errors
    /// An unknown name with the nearest known one, or what the plugin finds wrong.
    pub fn build(&self, name: &str, id: Option<&Id>, config: &Value) -> Result<Arc<dyn Built>, Problems> {
        let Some(entry) = self.entries.iter().find(|entry| entry.name == name) else {
            let mut problem = Problem::new("plugin_name", format!("there is no plugin named `{name}`"));
            if let Some(near) = nearest(name, self.entries.iter().map(|entry| entry.name)) {
                problem = problem.remedy(format!("did you mean `{near}`?"));
            }
            return Err(Problems(vec![problem]));
        };
        match id {
            None => (entry.build)(config, &self.world),
            Some(id) => {
                let owner = Owner { plugin: entry.name, config: id.clone() };
                (entry.build)(config, &self.world.owned_by(owner))
            }
        }
    }
}
