//! Which responses a setting applies to, by where they come from.

use gateway_core::http::exchange::Exchange;
use schemars::JsonSchema;
use serde::Deserialize;

/// Where a response comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResponseOrigin {
    /// Anywhere.
    #[default]
    All,
    /// A target, also if the response is served from the cache.
    Target,
    /// The gateway itself.
    Gateway,
}

impl ResponseOrigin {
    /// Whether the response to this exchange is one of these.
    pub fn has(self, exchange: &Exchange) -> bool {
        let is_of_target = exchange.is_from_target() || exchange.is_replay();
        match self {
            Self::All => true,
            Self::Target => is_of_target,
            Self::Gateway => !is_of_target,
        }
    }
}
