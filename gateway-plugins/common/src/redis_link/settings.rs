//! What users write in a plugin's settings about the store.

use schemars::JsonSchema;
use serde::Deserialize;

/// Where gateways keep together what they count or store.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RedisConfig {
    /// The name of a connection in `gateway.redis`.
    #[schemars(length(min = 1, max = 64))]
    pub(super) name: String,
    /// What becomes of requests when the store is away or late: `local` goes by what this gateway knows alone, each gateway
    /// with the whole limit; `allow` lets them pass; `deny` refuses them with 503. Default `local`.
    #[serde(default)]
    pub(super) on_error: OnError,
}

impl RedisConfig {
    /// The connection of this name, for what goes on without it.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), on_error: OnError::Local }
    }
}

/// What becomes of requests when the store is away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// This gateway decides alone.
    #[default]
    Local,
    /// They pass.
    Allow,
    /// They are refused.
    Deny,
}
