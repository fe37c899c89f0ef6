//! Prefixes that end within a segment: to Kong `/apix` begins with `/api`, to a proxy of ours it does not.

use serde_json::{Map, Value, json};

use crate::draft::{Import, set};
use crate::text;

/// By how much a longer prefix goes before a shorter one, at most: less than what a further condition counts.
const MAX_LENGTH: usize = 499;

/// Adds proxies for the paths that go on behind a prefix within a segment, where another proxy would take them.
pub(super) fn add(out: &mut Import) {
    let prefixes: Vec<Option<String>> = out.proxies.iter().map(prefix).collect();
    let is_taken = |at: usize, own: &str| {
        let mut others = out.proxies.iter().enumerate().filter(|(other, _)| *other != at);
        others.any(|(other, proxy)| {
            let takes = match prefixes.get(other).and_then(Option::as_deref) {
                Some(shorter) => own.len() > shorter.len() && own.starts_with(shorter.trim_end_matches('/')),
                None => proxy.get("listen_port").is_none(),
            };
            takes && may_share_hosts(proxy, &out.proxies[at])
        })
    };
    let within: Vec<(usize, String)> = prefixes
        .iter()
        .enumerate()
        .filter_map(|(at, own)| Some((at, own.clone()?)))
        .filter(|(at, own)| own != "/" && !is_only_below(&out.proxies[*at], own) && is_taken(*at, own))
        .collect();
    if within.is_empty() {
        return;
    }
    for (proxy, own) in out.proxies.iter_mut().zip(&prefixes) {
        if let (Value::Object(proxy), Some(own)) = (proxy, own) {
            let length = i64::try_from(own.len().min(MAX_LENGTH)).unwrap_or(0);
            let before = proxy.get("priority").and_then(Value::as_i64).unwrap_or(0);
            set(proxy, "priority", before + length);
        }
    }
    for (at, own) in within {
        let Some(Value::Object(proxy)) = out.proxies.get(at).cloned() else { continue };
        one(out, proxy, &own);
    }
}

/// The prefix of a proxy's paths; nothing for regexes and ports.
fn prefix(proxy: &Value) -> Option<String> {
    let path = proxy.get("listen_path")?.as_str()?;
    (!path.starts_with('~')).then(|| path.to_owned())
}

/// Whether a proxy is for what is below a path: a prefix of Kong's that ends with a slash does not go on within a segment.
fn is_only_below(proxy: &Value, own: &str) -> bool {
    let mut matches = proxy.get("matches").and_then(Value::as_array).into_iter().flatten();
    matches.any(|one| one["not"]["path"]["exact"] == own)
}

fn may_share_hosts(one: &Value, other: &Value) -> bool {
    let hosts = |proxy: &Value| -> Vec<String> {
        let all = proxy.get("hosts").and_then(Value::as_array).into_iter().flatten();
        all.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let (one, other) = (hosts(one), hosts(other));
    let fits = |name: &String, pattern: &String| {
        name == pattern || pattern.strip_prefix('*').is_some_and(|end| name.ends_with(end))
    };
    one.is_empty() || other.is_empty() || one.iter().any(|a| other.iter().any(|b| fits(a, b) || fits(b, a)))
}

/// The same proxy for the paths that go on within a segment. What is left of them gets a slash, as Kong has it.
fn one(out: &mut Import, mut proxy: Map<String, Value>, own: &str) {
    let before = proxy["id"].as_str().unwrap_or_default().to_owned();
    let id = out.id("proxy", &format!("{before}-within"));
    set(&mut proxy, "id", id.clone());
    proxy.shift_remove("listen_path");
    let path = json!({ "regex": format!("{}[^/].*", text::literal(own)) });
    let matches = proxy.get("matches").and_then(Value::as_array).cloned();
    let with_path = matches.unwrap_or_else(|| vec![json!({})]).into_iter().map(|mut one| {
        one["path"] = path.clone();
        one
    });
    set(&mut proxy, "matches", with_path.collect::<Vec<Value>>());
    let strips = proxy.get("strip_listen_path") == Some(&json!(true));
    let base = proxy.get("backend_path").and_then(Value::as_str).unwrap_or_default().to_owned();
    if strips {
        set(&mut proxy, "strip_listen_path", false);
        let to = format!("{}/${{1}}", base.trim_end_matches('/').replace('$', "$$"));
        let from = format!("^{}(.*)$", text::literal(own));
        out.plugin(&id, "rewrite", json!({ "regex": [{ "from": from, "to": to }] }));
    }
    plugins_as(out, &before, &id);
    out.proxies.push(Value::Object(proxy));
}

/// Gives a proxy copies of the plugins that are another one's alone, and has its records go where the other one's go.
pub(super) fn plugins_as(out: &mut Import, before: &str, id: &str) {
    super::logs::as_before(out, before, id);
    let mut copies: Vec<Value> =
        out.plugin_configs.iter().filter(|config| config["proxy_id"] == before).cloned().collect();
    for copy in &mut copies {
        let name = copy["plugin_name"].as_str().unwrap_or_default().to_owned();
        copy["id"] = json!(out.id("plugin", &format!("{id}-{name}")));
        copy["proxy_id"] = json!(id);
    }
    out.plugin_configs.extend(copies);
}
