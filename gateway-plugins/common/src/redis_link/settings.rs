//! What users write in a plugin's settings about the store.

use schemars::JsonSchema;
use serde::Deserialize;

/// Redis connection that gateways share.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RedisConfig {
    /// Name of a connection in `gateway.redis`.
    #[schemars(length(min = 1, max = 64))]
    pub(super) name: String,
    /// What happens to requests while Redis is unreachable or slow: `local` uses what this gateway knows, so each
    /// gateway has the whole limit; `allow` admits them; `deny` rejects them with 503. Default `local`.
    #[serde(default)]
    pub(super) on_error: OnError,
}

impl RedisConfig {
    /// The connection of this name, for what goes on without it.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), on_error: OnError::Local }
    }
}

/// What happens to requests while Redis is unreachable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// This gateway decides alone.
    #[default]
    Local,
    /// They pass.
    Allow,
    /// They are rejected.
    Deny,
}
