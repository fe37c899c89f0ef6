//! Targets that are named several times, as one.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

/// Targets of an upstream, each once.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    pub(crate) list: Vec<Value>,
    /// Places in the list, by host and port.
    places: HashMap<(String, Option<u64>), usize>,
}

impl Targets {
    /// Adds a target. One that is there already gets more weight, which this says, where that is all that differs; else the one
    /// that is asked first stays.
    pub(crate) fn join(&mut self, target: Value) -> bool {
        let weight = |target: &Value| target["weight"].as_u64().unwrap_or(1);
        let priority = |target: &Value| target["priority"].as_u64().unwrap_or(0);
        let without_weight = |target: &Value| {
            let mut rest = target.as_object().cloned().unwrap_or_default();
            rest.shift_remove("weight");
            rest
        };
        let host = target["host"].as_str().unwrap_or_default().to_owned();
        let place = *self.places.entry((host, target["port"].as_u64())).or_insert(self.list.len());
        match self.list.get_mut(place) {
            Some(known) if without_weight(known) == without_weight(&target) => {
                known["weight"] = json!((weight(known) + weight(&target)).min(65_535));
                return true;
            }
            // A backup that is a primary as well is asked anyway.
            Some(known) if priority(&target) < priority(known) => *known = target,
            Some(_) => {}
            None => self.list.push(target),
        }
        false
    }
}

/// Has each target of an upstream once.
pub(super) fn join_targets(upstream: &mut Value) {
    let Some(targets) = upstream.get_mut("targets").and_then(Value::as_array_mut) else { return };
    let mut joined = Targets::default();
    let mut is_heavier = false;
    for target in targets.drain(..) {
        is_heavier |= joined.join(target);
    }
    *targets = joined.list;
    if is_heavier && upstream.get("algorithm").is_none_or(|it| it == "round_robin") {
        upstream["algorithm"] = json!("weighted_round_robin");
    }
}

/// Removes the target of a proxy that answers by itself.
pub(crate) fn without_target(proxy: &mut Map<String, Value>) {
    proxy.retain(|key, _| {
        !(key.starts_with("backend_") || key == "upstream_id" || key == "strip_listen_path")
    });
}
