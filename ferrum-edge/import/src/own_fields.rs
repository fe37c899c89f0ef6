//! Header fields that the gateway writes itself.

use std::collections::HashSet;

use serde_json::Value;

use crate::draft::Import;

impl Import {
    /// Removes rules that would change fields that the gateway writes itself; it refuses them.
    pub(crate) fn remove_own_fields(&mut self) {
        let (mut own, mut framing) = (Vec::new(), Vec::new());
        let mut empty = HashSet::new();
        for config in &mut self.plugin_configs {
            let is_request = match config.get("plugin_name").and_then(Value::as_str) {
                Some("request_transformer") => true,
                Some("response_transformer") => false,
                _ => continue,
            };
            let Some(rules) = config["config"]["rules"].as_array_mut() else { continue };
            rules.retain(|rule| {
                let named = ["key", "new_key"].iter().filter_map(|key| rule[*key].as_str());
                let mut named = named.filter(|_| rule["target"] == "header").map(str::to_ascii_lowercase);
                let removed = named.find(|name| is_framing(name) || is_request && is_own(name));
                let Some(name) = removed else { return true };
                if is_framing(&name) && name != "host" {
                    framing.push(name)
                } else {
                    own.push(name)
                }
                false
            });
            if rules.is_empty() {
                empty.extend(config["id"].as_str().map(str::to_owned));
            }
        }
        let is_empty = |id: &Value| id.as_str().is_some_and(|id| empty.contains(id));
        if !empty.is_empty() {
            self.plugin_configs.retain(|config| !is_empty(&config["id"]));
            for proxy in &mut self.proxies {
                if let Some(plugins) = proxy.get_mut("plugins").and_then(Value::as_array_mut) {
                    plugins.retain(|plugin| !is_empty(&plugin["plugin_config_id"]));
                }
            }
        }
        for (names, is_harmless) in [(&mut own, false), (&mut framing, true)] {
            names.sort();
            names.dedup();
            for name in names.drain(..) {
                let what = format!("the field {name}");
                let why = "the gateway writes it itself, whatever a rule says";
                match is_harmless {
                    true => self.not_needed(self.here, what, why),
                    false => self.not_converted_here(what, why),
                }
            }
        }
    }
}

/// Fields that frame messages, which rules may not change in either direction.
pub(crate) fn is_framing(name: &str) -> bool {
    const FRAMING: [&str; 9] = [
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    FRAMING.contains(&name)
}

/// Whether the gateway describes the path of the request and its caller to targets in this field; the name is in lower case.
fn is_own(name: &str) -> bool {
    name.starts_with("x-consumer-") || matches!(name, "forwarded" | "via" | "x-credential-identifier")
}
