//! A plugin config as written.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::condition::written::Condition;

/// One configured plugin.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PluginConfig {
    /// Unique among plugin configs: 1–254 letters, digits, `.`, `_` and `-`, beginning with a letter or digit. Required.
    #[serde(default)]
    #[schemars(length(max = 254))]
    pub id: Option<String>,
    /// Which plugin.
    #[schemars(length(min = 1, max = 255))]
    pub plugin_name: String,
    /// The plugin's own settings. Default none.
    #[serde(default)]
    pub config: serde_json::Value,
    /// Where it runs. Default `proxy` when `proxy_id` is given; else it has to be said.
    #[serde(default)]
    pub scope: Option<Scope>,
    /// The proxy of scope `proxy`.
    #[serde(default)]
    pub proxy_id: Option<String>,
    /// The owner of scope `owner`.
    #[serde(default)]
    #[schemars(length(max = 254))]
    pub owner: Option<String>,
    /// Default true; false is as if it were not there, except that its settings are still checked.
    #[serde(default)]
    pub enabled: Option<bool>,
    /// Runs directly before the named plugin instead of at its usual place.
    #[serde(default)]
    #[schemars(length(min = 1, max = 255))]
    pub before: Option<String>,
    /// Runs directly after the named plugin instead of at its usual place.
    #[serde(default)]
    #[schemars(length(min = 1, max = 255))]
    pub after: Option<String>,
    /// Which requests it runs for: a condition as in `matches` of proxies, and `consumers` and `groups`. Default all.
    #[serde(default)]
    pub when: Option<Condition>,
}

/// Where a plugin runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Every proxy that has none of that name of its own.
    Global,
    /// The proxy named by `proxy_id`.
    Proxy,
    /// The proxies that name it in their `plugins`, sharing its state.
    ProxyGroup,
    /// The proxies whose `owner` is this config's, sharing its state; beside their own and global configs of the plugin, and before them.
    Owner,
}
