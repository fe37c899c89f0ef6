//! Settings of plugins that say what is so anyway, as dumps have them.

use crate::tree::{Node, NodeValue};

/// A plugin, a setting of it, and the value that changes nothing; `*` is any value.
const DEFAULTS: &[(&str, &str, &str)] = &[
    ("correlation-id", "generator", "*"),
    ("cors", "allow_origin_absent", "true"),
    ("cors", "skip_cors_when_origin_is_empty", "false"),
    ("key-auth", "identity_realms", "*"),
    ("proxy-cache", "cache_control", "false"),
    ("proxy-cache", "ignore_uri_case", "false"),
    ("proxy-cache", "memory", "*"),
    ("proxy-cache", "request_method", "GET,HEAD"),
    ("proxy-cache", "response_headers", "*"),
    ("rate-limiting", "error_message", "API rate limit exceeded"),
    ("request-termination", "echo", "false"),
];

/// Counts as read what says nothing: such settings, and protocols that are all.
pub(super) fn see(theirs: &str, plugin: &Node) {
    let all = plugin.texts("protocols");
    let is_all = ["http", "https"].iter().all(|wanted| all.iter().any(|it| it == wanted));
    if let Some(protocols) = plugin.get("protocols").filter(|_| is_all) {
        protocols.see_all();
    }
    let Some(config) = plugin.get("config") else { return };
    for (_, key, default) in DEFAULTS.iter().filter(|(of, ..)| *of == theirs) {
        let entry = config.all_entries().iter().find(|(name, _)| name == key);
        if let Some((_, value)) = entry.filter(|(_, value)| *default == "*" || said(value) == *default) {
            value.see_all();
        }
    }
}

/// A value as one text, of a list with commas between its items.
fn said(value: &Node) -> String {
    match &value.value {
        NodeValue::List(list) => list.iter().filter_map(Node::plain).collect::<Vec<_>>().join(","),
        _ => value.plain().unwrap_or_default(),
    }
}
