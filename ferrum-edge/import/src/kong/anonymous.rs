//! `X-Anonymous-Consumer`, in which Kong tells targets that a caller has not said who it is.

use std::collections::HashMap;

use serde_json::Value;

use super::callers::{localise, named_configs};
use super::plugins::{attach, authenticates};
use crate::draft::{HeaderRule, Import, Match, RequestTransformer, draft};

const FIELD: &str = "X-Anonymous-Consumer";

/// Has the field set for anonymous callers, and removes what clients send under this name, wherever callers are asked who they are.
pub(super) fn tell(out: &mut Import) {
    let anonymous = |config: &Value| config["config"]["anonymous"].as_str().map(str::to_owned);
    let configs = || out.plugin_configs.iter().filter(|config| authenticates(config));
    // Whom each lets by, by its id.
    let by_id: HashMap<&str, Option<String>> =
        configs().filter_map(|config| Some((config["id"].as_str()?, anonymous(config)))).collect();
    let everywhere: Vec<Option<String>> =
        configs().filter(|config| config["scope"] == "global").map(anonymous).collect();
    let mut groups: Vec<(Vec<String>, Vec<usize>)> = Vec::new();
    let mut places: HashMap<Vec<String>, usize> = HashMap::new();
    for (at, proxy) in out.proxies.iter().enumerate() {
        // Ports of TCP and UDP have no fields.
        if proxy.get("listen_port").is_some() {
            continue;
        }
        let own: Vec<&Option<String>> = named_configs(proxy).filter_map(|id| by_id.get(id)).collect();
        if own.is_empty() && everywhere.is_empty() {
            continue;
        }
        let mut names: Vec<String> = own.into_iter().chain(&everywhere).flatten().cloned().collect();
        names.sort_unstable();
        names.dedup();
        let place = *places.entry(names.clone()).or_insert(groups.len());
        match groups.get_mut(place) {
            Some((_, proxies)) => proxies.push(at),
            None => groups.push((names, vec![at])),
        }
    }
    if !groups.is_empty() {
        // Those rules would take the place of global ones.
        localise(out, "request_transformer");
    }
    for (names, proxies) in groups {
        let removed = draft!(HeaderRule { operation: "remove", target: "header", key: FIELD });
        let anonymous = (!names.is_empty()).then(|| draft!(Match { consumers: names }));
        let others = anonymous.clone().map(|these| draft!(Match { not: these }));
        rule(out, removed, others, &proxies);
        if anonymous.is_some() {
            let told = draft!(HeaderRule { operation: "set", target: "header", key: FIELD, value: "true" });
            rule(out, told, anonymous, &proxies);
        }
    }
}

/// A rule for these proxies, and for the callers that a condition means.
fn rule(out: &mut Import, rule: HeaderRule, when: Option<Match>, proxies: &[usize]) {
    let config = draft!(RequestTransformer { rules: [rule] }).into();
    let id = out.shared_plugin("x-anonymous-consumer", "request_transformer", config);
    if let (Some(when), Some(made)) = (when, out.plugin_configs.last_mut()) {
        made["when"] = when.into();
    }
    attach(out, proxies, &id);
}
