//! Entry points for the fuzzers in `fuzz/`, and the replay of their corpus; nothing else may use them.
//!
//! A target is one row in [`TARGETS`], one file in `fuzz/fuzz_targets` with its row in `fuzz/Cargo.toml`, and one folder in
//! `fuzz/corpus`. An importer takes any text without a panic, and what it makes is whole: each id is there once, and what is named
//! is there.

use std::collections::HashSet;

use serde_json::Value;

use crate::{Format, NoFiles, Options};

/// What a fuzzer calls.
pub type Target = fn(&[u8]);

/// Each target, by the name its folder in `fuzz/corpus` has.
pub const TARGETS: [(&str, Target); 9] = [
    ("import_caddy_json", |data| converted(Format::CaddyJson, data)),
    ("import_caddyfile", |data| converted(Format::Caddyfile, data)),
    ("import_envoy", |data| converted(Format::Envoy, data)),
    ("import_haproxy", |data| converted(Format::Haproxy, data)),
    ("import_ingress", |data| converted(Format::Ingress, data)),
    ("import_kong", |data| converted(Format::Kong, data)),
    ("import_nginx", |data| converted(Format::Nginx, data)),
    ("import_openapi", |data| converted(Format::OpenApi, data)),
    ("import_traefik", |data| converted(Format::Traefik, data)),
];

/// Runs the target of this name on `data`.
///
/// # Panics
/// When something that must hold does not, or there is no such target.
pub fn run(name: &str, data: &[u8]) {
    match TARGETS.iter().find(|(known, _)| *known == name) {
        Some((_, target)) => target(data),
        None => panic!("no fuzz target is called {name}"),
    }
}

/// A text as a file of this format.
fn converted(format: Format, data: &[u8]) {
    let text = String::from_utf8_lossy(data).into_owned();
    let Ok(made) = crate::import(format, &[("file".to_owned(), text)], &NoFiles, Options::default()) else {
        return;
    };
    let document = made.document();
    let ids = |section: &str| -> HashSet<String> {
        let list = document[section].as_array().map_or(&[][..], Vec::as_slice);
        let ids: HashSet<String> =
            list.iter().filter_map(|it| it["id"].as_str()).map(str::to_owned).collect();
        assert_eq!(ids.len(), list.len(), "an id of {section} is missing or there twice");
        ids
    };
    let (upstreams, plugins, proxies) = (ids("upstreams"), ids("plugin_configs"), ids("proxies"));
    for proxy in document["proxies"].as_array().into_iter().flatten() {
        let named = proxy["plugins"].as_array().into_iter().flatten();
        let mut named = named.filter_map(|it| it["plugin_config_id"].as_str());
        assert!(named.all(|id| plugins.contains(id)), "a plugin config is not there: {proxy}");
        assert!(is_in(&proxy["upstream_id"], &upstreams), "an upstream is not there: {proxy}");
    }
    for plugin in document["plugin_configs"].as_array().into_iter().flatten() {
        assert!(is_in(&plugin["proxy_id"], &proxies), "a proxy is not there: {plugin}");
    }
}

/// Whether what an object names is there; one that names nothing does.
fn is_in(named: &Value, ids: &HashSet<String>) -> bool {
    named.as_str().is_none_or(|id| ids.contains(id))
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;
