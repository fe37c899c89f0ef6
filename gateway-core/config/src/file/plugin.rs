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
    /// Name of the plugin.
    #[schemars(length(min = 1, max = 255))]
    pub plugin_name: String,
    /// The plugin's own settings. Default none.
    #[serde(default)]
    pub config: serde_json::Value,
    /// Where it runs. Default `proxy` if `proxy_id` is given; otherwise required.
    #[serde(default)]
    pub scope: Option<Scope>,
    /// Proxy of the scope `proxy`.
    #[serde(default)]
    pub proxy_id: Option<String>,
    /// Owner of the scope `owner`.
    #[serde(default)]
    #[schemars(length(max = 254))]
    pub owner: Option<String>,
    /// Default true; if false, the plugin does not run, but its settings are still checked.
    #[serde(default)]
    pub enabled: Option<bool>,
    /// Runs directly before the named plugin instead of in its usual order.
    #[serde(default)]
    #[schemars(length(min = 1, max = 255))]
    pub before: Option<String>,
    /// Runs directly after the named plugin instead of in its usual order.
    #[serde(default)]
    #[schemars(length(min = 1, max = 255))]
    pub after: Option<String>,
    /// Requests for which it runs: a condition as in `matches` of proxies, and `consumers` and `groups`. Default all.
    #[serde(default)]
    pub when: Option<Condition>,
}

/// Where a plugin runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// All proxies without a plugin config of the same plugin.
    Global,
    /// The proxy named by `proxy_id`.
    Proxy,
    /// The proxies that list it in `plugins`, with shared state.
    ProxyGroup,
    /// The proxies whose `owner` is the owner of this plugin config, with shared state; before and in addition to their
    /// own and global plugin configs.
    Owner,
}
