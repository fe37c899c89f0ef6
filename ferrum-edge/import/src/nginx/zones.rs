//! Zones of `limit_req` and `limit_conn`: all places that limit by one share its counters.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use crate::draft::{Import, PluginRef, draft};

/// Makes one plugin config of those that limit alike by one zone.
pub(super) fn share(out: &mut Import) {
    let mut groups: Vec<(Arc<str>, Vec<usize>)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (n, zone) in std::mem::take(&mut out.zones) {
        let Some(made) = out.plugin_configs.get(n) else { continue };
        let key = format!("{zone:?} {} {} {}", made["plugin_name"], made["config"], made["when"]);
        let at = *places.entry(key).or_insert(groups.len());
        match groups.get_mut(at) {
            Some((_, group)) => group.push(n),
            None => groups.push((zone, vec![n])),
        }
    }
    let mut named: HashMap<String, Vec<String>> = HashMap::new();
    let mut gone: Vec<usize> = Vec::new();
    for (zone, group) in groups.into_iter().filter(|(_, group)| group.len() > 1) {
        let id = out.id("plugin", &format!("zone-{zone}"));
        for n in &group {
            let proxy = out.plugin_configs[*n]["proxy_id"].as_str().unwrap_or_default().to_owned();
            let ids = named.entry(proxy).or_default();
            if !ids.contains(&id) {
                ids.push(id.clone());
            }
        }
        let one = &mut out.plugin_configs[group[0]];
        if let Some(one) = one.as_object_mut() {
            one.shift_remove("proxy_id");
        }
        one["id"] = id.into();
        one["scope"] = "proxy_group".into();
        gone.extend(group.iter().skip(1));
    }
    if named.is_empty() {
        return;
    }
    gone.sort_unstable();
    let mut n = 0;
    out.plugin_configs.retain(|_| {
        n += 1;
        gone.binary_search(&(n - 1)).is_err()
    });
    for proxy in &mut out.proxies {
        let Some(ids) = proxy["id"].as_str().and_then(|id| named.get(id)) else { continue };
        let more = ids.iter().map(|id| Value::from(draft!(PluginRef { plugin_config_id: id })));
        match proxy.get_mut("plugins").and_then(Value::as_array_mut) {
            Some(list) => list.extend(more),
            None => proxy["plugins"] = more.collect(),
        }
    }
}
