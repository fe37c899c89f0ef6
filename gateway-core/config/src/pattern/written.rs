//! Which paths are meant, as users write it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which paths.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum PathMatch {
    /// `/prefix`, `/with/{names}` or `~regex`.
    Text(#[schemars(length(min = 1, max = 1000))] String),
    /// One of the ways, named.
    Named(NamedPath),
}

/// Which paths, the way of matching named. Exactly one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NamedPath {
    /// This path and no other.
    #[schemars(length(min = 1, max = 1000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact: Option<String>,
    /// This path and all below it, on whole segments.
    #[schemars(length(min = 1, max = 1000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Segments, of which `{name}` is any one, and `{name...}` at the end is all that is left.
    #[schemars(length(min = 1, max = 1000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// A regex over the whole path.
    #[schemars(length(min = 1, max = 4000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
}
