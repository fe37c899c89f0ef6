//! The part of an edit's work that needs no catalog, and may be done on another thread.

use super::Edit;
use crate::model::{Consumer, RedisServers};
use crate::problem::Problems;
use crate::resolve::{self, Configured, PluginCheck};

/// An edit with the objects resolved that refer to no others. Most of the time that an edit takes goes there: plugins are
/// built to check their settings.
pub struct ResolvedEdit {
    pub(super) edit: Edit,
    /// In the order of the edit's.
    pub(super) plugin_configs: Vec<Result<Configured, Problems>>,
    /// In the order of the edit's.
    pub(super) consumers: Vec<Result<Consumer, Problems>>,
}

impl ResolvedEdit {
    /// Resolves what can be. `redis` are the connections of the gateway's settings, where those are known.
    pub fn new(edit: Edit, plugins: &dyn PluginCheck, redis: Option<&RedisServers>) -> Self {
        let types = plugins.credential_types();
        let configs = edit
            .plugin_configs
            .iter()
            .map(|put| put.resolved(|object| resolve::plugin_config(object, &put.at, plugins, redis)));
        let consumers = edit
            .consumers
            .iter()
            .map(|put| put.resolved(|object| resolve::consumer(object, &put.at, types.as_ref())));
        Self { plugin_configs: configs.collect(), consumers: consumers.collect(), edit }
    }
}
