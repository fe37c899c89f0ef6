//! Which paths are meant, as users write it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A path pattern.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum PathMatch {
    /// `/prefix`, `/with/{names}` or `~regex`.
    Text(#[schemars(length(min = 1, max = 1000))] String),
    /// Another kind of match.
    Named(NamedPath),
}

/// A kind of path match: exactly one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NamedPath {
    /// Exactly this path.
    #[schemars(length(min = 1, max = 1000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact: Option<String>,
    /// This path and all below it, on whole segments.
    #[schemars(length(min = 1, max = 1000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Segments, of which `{name}` matches one, and `{name...}` at the end matches the rest.
    #[schemars(length(min = 1, max = 1000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Regex over the whole path.
    #[schemars(length(min = 1, max = 4000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
}
