//! Plugin configs: where a plugin runs, and for which requests.

use super::settings::{Any, Text, settings};

settings! {
    /// One configured plugin.
    PluginConfig: "plugin_configs" {
        id: Text, plugin_name: Text, scope: Text, proxy_id: Text, config: Any, when: Any,
    }
}
