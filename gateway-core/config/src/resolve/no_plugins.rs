//! A plugin check for tests without plugins.

use super::{CheckedPlugin, PluginCheck};
use crate::credential::CredentialTypes;
use crate::model::Id;
use crate::problem::Problems;

pub(crate) struct NoPlugins;

impl PluginCheck for NoPlugins {
    fn check(&self, _: &str, _: Option<&Id>, _: &serde_json::Value) -> Result<CheckedPlugin, Problems> {
        Ok(None)
    }

    fn names(&self) -> Option<Vec<String>> {
        None
    }

    fn credential_types(&self) -> Option<CredentialTypes> {
        None
    }
}
