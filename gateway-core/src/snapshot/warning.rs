//! Warnings about a compiled configuration.

use std::collections::HashSet;

use super::Snapshot;
use crate::config::model::{PluginConfig, Scope};
use crate::config::resolve::idle;
use crate::config::warning::{Warning, WarningList};

/// What shows once a configuration is compiled: proxies that are closed for what their plugins can't do, and global plugins
/// that no proxy has traffic for.
pub fn warnings(snapshot: &Snapshot) -> Vec<Warning> {
    let (mut found, mut running) = (WarningList(Vec::new()), HashSet::new());
    let mut moved = HashSet::new();
    for (_, route) in snapshot.by_id.iter() {
        let runs = |config: &PluginConfig| {
            config.built.as_ref().is_none_or(|built| {
                idle(config, built.hooks(), built.capabilities(), &route.proxy.traffic).is_none()
            })
        };
        running.extend(
            route
                .chain
                .members()
                .map(|(config, _)| &**config)
                .filter(|config| runs(config))
                .map(|config| config.id.as_str()),
        );
    }
    for (_, route) in snapshot.by_id.iter() {
        for (config, guard) in
            route.chain.answers_before_guards().filter(|(config, _)| moved.insert(config.id.clone()))
        {
            found.add(
                "answers_before_guard",
                format!("plugin_configs.{}", config.id),
                format!("it answers requests of `{}` before `{guard}` has looked at them", route.proxy.id),
                "remove its `before`, or silence this warning where everybody may have what it answers",
            );
        }
    }
    let is_open = snapshot.by_id.len() > snapshot.quarantined.len();
    for (id, (config, _)) in snapshot.plugins.iter().filter(|_| is_open) {
        if config.scope == Scope::Global && !running.contains(id.as_str()) {
            let message = "no proxy has traffic that it runs for";
            found.add(
                "plugin_unused",
                format!("plugin_configs.{id}"),
                message,
                "remove it; `ferrum-edge plugins NAME` says what traffic a plugin runs for",
            );
        }
    }
    for (id, route) in snapshot.quarantined.iter() {
        for problem in route.quarantine.iter().flat_map(|problems| &problems.0) {
            let message = format!("it answers 503 to every request: {}: {}", problem.path, problem.message);
            found.add(
                "proxy_closed",
                format!("proxies.{id}"),
                message,
                "change or remove that plugin config",
            );
        }
    }
    found.0.sort_by(|a, b| (&a.path, &a.message).cmp(&(&b.path, &b.message)));
    found.0
}
