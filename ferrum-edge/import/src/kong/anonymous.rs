//! `X-Anonymous-Consumer`, in which Kong tells targets that a caller has not said who it is.

use serde_json::{Value, json};

use super::callers::localise;
use super::plugins::{AUTHENTICATION, attach};
use crate::draft::Import;

const FIELD: &str = "X-Anonymous-Consumer";

/// Has the field set for anonymous callers, and removes what clients send under this name, wherever callers are asked who they are.
pub(super) fn tell(out: &mut Import) {
    let asks = |config: &&Value| AUTHENTICATION.iter().any(|name| config["plugin_name"] == *name);
    let configs: Vec<Value> = out.plugin_configs.iter().filter(asks).cloned().collect();
    let mut groups: Vec<(Vec<String>, Vec<usize>)> = Vec::new();
    for (at, proxy) in out.proxies.iter().enumerate() {
        // Ports of TCP and UDP have no fields.
        if proxy.get("listen_port").is_some() {
            continue;
        }
        let named = proxy.get("plugins").and_then(Value::as_array);
        let is_named =
            |id: &Value| named.is_some_and(|named| named.iter().any(|it| it["plugin_config_id"] == *id));
        let mine: Vec<&Value> =
            configs.iter().filter(|config| config["scope"] == "global" || is_named(&config["id"])).collect();
        if mine.is_empty() {
            continue;
        }
        let anonymous = mine.iter().filter_map(|config| config["config"]["anonymous"].as_str());
        let mut names: Vec<String> = anonymous.map(str::to_owned).collect();
        names.sort_unstable();
        names.dedup();
        match groups.iter_mut().find(|(known, _)| *known == names) {
            Some((_, proxies)) => proxies.push(at),
            None => groups.push((names, vec![at])),
        }
    }
    if !groups.is_empty() {
        // Those rules would take the place of global ones.
        localise(out, "request_transformer");
    }
    for (names, proxies) in groups {
        let removed = json!({ "operation": "remove", "target": "header", "key": FIELD });
        let others = (!names.is_empty()).then(|| json!({ "not": { "consumers": names } }));
        rule(out, removed, others, &proxies);
        if !names.is_empty() {
            let told = json!({ "operation": "set", "target": "header", "key": FIELD, "value": "true" });
            rule(out, told, Some(json!({ "consumers": names })), &proxies);
        }
    }
}

/// A rule for these proxies, and for the callers that a condition means.
fn rule(out: &mut Import, rule: Value, when: Option<Value>, proxies: &[usize]) {
    let id = out.shared_plugin("x-anonymous-consumer", "request_transformer", json!({ "rules": [rule] }));
    if let (Some(when), Some(made)) = (when, out.plugin_configs.last_mut()) {
        made["when"] = when;
    }
    attach(out, proxies, &id);
}
