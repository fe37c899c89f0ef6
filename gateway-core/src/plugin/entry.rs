//! The table of known plugins and how one is built from its settings.

use std::sync::Arc;

use schemars::Schema;
use serde_json::Value;

use super::hooks::Hooks;
use super::{Plugin, World};
use crate::config::problem::{Problem, Problems};

/// A built plugin that can take its seats any number of times (a group shares one).
pub trait Attend: Send + Sync {
    /// Takes the plugin's seats.
    fn attend(&self, hooks: &mut Hooks);
}

struct Built<P>(Arc<P>);

impl<P: Plugin> Attend for Built<P> {
    fn attend(&self, hooks: &mut Hooks) {
        self.0.clone().attend(hooks);
    }
}

/// How a plugin is built from its settings.
type Build = fn(&Value, &World) -> Result<Arc<dyn Attend>, Problems>;

/// One row of the plugin table.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// What users write as `plugin_name`.
    pub name: &'static str,
    /// One sentence for the reference page.
    pub summary: &'static str,
    /// The settings' JSON Schema.
    pub schema: fn() -> Schema,
    build: Build,
}

/// The table row of a plugin.
pub const fn entry<P: Plugin>() -> Entry {
    Entry {
        name: P::NAME,
        summary: P::SUMMARY,
        schema: schema_of::<P>,
        build: |config, world| {
            let config = settings_of::<P>(config)?;
            Ok(Arc::new(Built(Arc::new(P::build(config, world)?))))
        },
    }
}

fn schema_of<P: Plugin>() -> Schema {
    schemars::schema_for!(P::Config)
}

fn settings_of<P: Plugin>(config: &Value) -> Result<P::Config, Problems> {
    // An absent `config` is an empty one, so that a plugin whose settings all have defaults needs none.
    let empty = Value::Object(serde_json::Map::new());
    let config = if config.is_null() { &empty } else { config };
    <P::Config as serde::Deserialize>::deserialize(config)
        .map_err(|error| Problems(vec![Problem::new("config", error.to_string())]))
}

/// The plugins this gateway knows, in execution order.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    entries: Vec<Entry>,
}

impl Registry {
    /// A registry with these plugins, in this order.
    pub fn new(entries: &[Entry]) -> Self {
        Self { entries: entries.to_vec() }
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

    /// The plugin's place in the execution order.
    pub fn place(&self, name: &str) -> Option<usize> {
        self.entries.iter().position(|entry| entry.name == name)
    }

    /// Builds a plugin from its settings.
    ///
    /// # Errors
    /// An unknown name with the nearest known one, or what the plugin finds wrong.
    pub fn build(&self, name: &str, config: &Value, world: &World) -> Result<Arc<dyn Attend>, Problems> {
        let Some(entry) = self.entries.iter().find(|entry| entry.name == name) else {
            let mut problem = Problem::new("plugin_name", format!("there is no plugin named `{name}`"));
            if let Some(near) = nearest(name, self.entries.iter().map(|entry| entry.name)) {
                problem = problem.remedy(format!("did you mean `{near}`?"));
            }
            return Err(Problems(vec![problem]));
        };
        (entry.build)(config, world)
    }
}

fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}
