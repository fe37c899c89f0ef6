//! A proxy that goes on as it was because its row can't be used any more: what it refers to may still change.

use std::sync::Arc;

use super::{Id, NamedObjects, Problem, Problems, Proxy, Reference, Scope};
use crate::model::PluginConfig;

/// The version that serves, with its upstream and its plugins as they are now: its own ones, those it names
/// (`references`), and every global one whose plugin isn't among them already.
///
/// # Errors
/// What it needs and can't have any more.
pub(super) fn again(
    before: &Proxy,
    references: &[Reference],
    known: &NamedObjects,
) -> Result<Proxy, Problems> {
    let mut problems = Problems::default();
    let mut proxy = before.clone();
    if before.backend.is_named {
        let id = &before.backend.upstream.id;
        match known.upstream(id.as_str()) {
            Some(group) => {
                proxy.backend.upstream = group.upstream.clone();
                proxy.backend.tls = proxy.backend.tls.map(|before| group.tls.clone().unwrap_or(before));
            }
            None => drop(problems.add("upstream_id", format!("there is no upstream `{id}`"))),
        }
    }
    let mut plugins: Vec<Arc<PluginConfig>> = known.scoped(before.id.as_str()).cloned().collect();
    for reference in references {
        let Reference::PluginConfig(id) = reference else { continue };
        match named(id, &before.id, known) {
            Ok(config) => plugins.extend(config),
            Err(problem) => problems.extend([problem]),
        }
    }
    let is_missing =
        |global: &&Arc<PluginConfig>| plugins.iter().all(|own| own.plugin_name != global.plugin_name);
    let globals: Vec<_> = known.globals().iter().filter(is_missing).cloned().collect();
    plugins.extend(globals);
    proxy.plugins = known.owned(before.owner()).cloned().chain(plugins).collect();
    problems.into_result(proxy)
}

/// The plugin config a proxy names; none while it is switched off.
fn named(id: &str, proxy: &Id, known: &NamedObjects) -> Result<Option<Arc<PluginConfig>>, Problem> {
    let configured = known.plugin(id).filter(|configured| match &configured.config.scope {
        Scope::ProxyGroup => true,
        Scope::Proxy(other) => other == proxy,
        Scope::Global | Scope::Owner(_) => false,
    });
    match configured {
        // One of its own runs already.
        Some(own) if matches!(own.config.scope, Scope::Proxy(_)) => Ok(None),
        Some(shared) => Ok(shared.enabled.then(|| shared.config.clone())),
        None => Err(Problem::new("plugins", format!("there is no plugin config `{id}` that it may name"))),
    }
}
