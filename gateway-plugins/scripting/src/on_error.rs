//! The setting `on_error` of the plugins that run operators' own code.

use schemars::JsonSchema;
use serde::Deserialize;

/// What happens to an exchange whose code fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnError {
    /// It is rejected.
    #[default]
    Closed,
    /// It continues.
    Open,
}
