//! From what was written to what is meant: every rule that a single value's type cannot say.
//!
//! One object at a time ([`proxy()`], [`upstream()`], [`consumer()`], [`plugin_config()`], [`settings()`]), against what it may
//! refer to ([`NamedObjects`]), so that a database can apply one change without reading everything again. What only shows
//! between objects (ids, names, ports and paths used twice) is [`document`]'s, for a whole file.

mod acme;
mod admin_approval;
mod admin_oidc;
mod backend;
mod consumer;
mod fastcgi;
mod forwarded;
mod gateway;
mod hedging;
mod known;
mod log;
#[cfg(test)]
pub(crate) mod no_plugins;
mod notes;
mod plugin;
mod proxy;
mod proxy_protocol;
mod redis;
mod shared_values;
mod starttls;
mod tls;
mod traffic;
mod unique;
mod upstream;
mod words;

use std::path::Path;
use std::sync::Arc;

pub use consumer::consumer;
pub use gateway::settings;
pub(super) use gateway::values;
pub use known::{Group, NamedObjects};
use notes::Notes;
pub use notes::ObjectPlace;
pub use plugin::idle;
pub(super) use plugin::scope_of;
pub use plugin::{
    CheckedPlugin, Configured, OPTIONAL_PLUGINS, PluginCheck, feature_of_plugin, plugin_config,
};
pub(super) use proxy::closed_proxy;
pub use proxy::proxy;
pub(super) use redis::named as redis_of;
pub(super) use unique::{SHARE_PORT, UNTIE, reserved, tied};
pub use upstream::upstream;

use super::file::{self, Document, Items};
use super::model::{Id, Model};
use super::problem::Problems;

impl std::str::FromStr for Id {
    type Err = Problems;

    /// An id that stands by itself, such as one in a path.
    fn from_str(text: &str) -> Result<Self, Problems> {
        let mut notes = Notes::new("id");
        let id = notes.value("", words::valid_id(text));
        id.ok_or(notes.problems)
    }
}

/// A whole document, with `plugins` to say which plugins there are and whether their settings are right.
///
/// # Errors
/// Every problem of the document, also those found while reading it, in the order of its lines.
pub fn document(document: &Document, folder: &Path, plugins: &dyn PluginCheck) -> Result<Model, Problems> {
    let mut problems = Problems::default();
    let settings = settings(&document.gateway, ObjectPlace { at: "gateway", folder });
    let settings = taken(settings, "gateway", Some(&document.gateway_damage), &mut problems);
    let mut known = NamedObjects::default();

    let upstreams = each(&document.upstreams, "upstreams", &mut problems, |written, at| {
        upstream(written, ObjectPlace { at, folder })
    });
    for (_, group) in &upstreams {
        known.add_upstream(group.clone());
    }
    // Without settings, or with some that can't be read, nobody knows which connections there are.
    let is_unread = document.gateway_damage.iter().any(|path| path.starts_with("gateway.redis"));
    let redis = settings.as_ref().filter(|_| !is_unread).and_then(|settings| settings.redis.as_ref());
    let mut configured = each(&document.plugin_configs, "plugin_configs", &mut problems, |written, at| {
        plugin_config(written, at, plugins, redis)
    });
    for (_, configured) in &mut configured {
        known.share(configured);
        known.add_plugin(configured.clone());
    }
    known.add_broken(document);
    let proxies = each(&document.proxies, "proxies", &mut problems, |written, at| {
        proxy(written, ObjectPlace { at, folder }, &known)
    });
    let types = plugins.credential_types();
    let consumers = each(&document.consumers, "consumers", &mut problems, |written, at| {
        consumer(written, at, types.as_ref()).map(Arc::new)
    });

    unique::check(document, &mut problems);
    unique::plugin_targets(document, &mut problems);
    unique::routes(&proxies, &mut problems);
    unique::ports(&proxies, settings.as_ref(), &mut problems);
    unique::credentials(&consumers, &mut problems);
    unique::owners(document, &mut problems);

    let mut all = document.problems.clone();
    all.extend(document.places.locate(problems).0);
    all.0.sort_by_key(|problem| (problem.more > 0, problem.line));
    let mut settings = settings.unwrap_or_default();
    settings.old_spellings = document.old_spellings.clone().into();
    let model = Model {
        settings: Arc::new(settings),
        proxies: proxies.into_iter().map(|(_, proxy)| Arc::new(proxy)).collect(),
        consumers: consumers.into_iter().map(|(_, consumer)| consumer).collect(),
        upstreams: upstreams.into_iter().map(|(_, group)| group.upstream).collect(),
        plugin_configs: configured.into_iter().filter(|(_, c)| c.enabled).map(|(_, c)| c.config).collect(),
    };
    all.into_result(model)
}

/// Reads and resolves a text in one go; `adjust` lays environment and flags over its `gateway` section, and may ask more
/// of the document.
///
/// # Errors
/// Every problem of the text, and those `adjust` found.
pub fn load(
    text: &str,
    origin: &file::Origin,
    references: &dyn file::References,
    plugins: &dyn PluginCheck,
    adjust: impl FnOnce(&mut Document) -> Problems,
) -> Result<Model, Problems> {
    let mut read = file::parse(text, origin, references);
    let mut problems = adjust(&mut read);
    match document(&read, &origin.folder, plugins) {
        Ok(model) => problems.into_result(model),
        Err(more) => {
            problems.extend(more.0);
            Err(problems)
        }
    }
}

/// Resolves the items of a section; those that can't be are left out, their problems noted.
fn each<W, T>(
    items: &Items<W>,
    section: &str,
    problems: &mut Problems,
    mut resolve: impl FnMut(&W, &str) -> Result<T, Problems>,
) -> Vec<(usize, T)> {
    let mut resolved = Vec::with_capacity(items.read.len());
    for (n, written) in &items.read {
        let at = format!("{section}[{n}]");
        let damage = items.damaged.get(n);
        let item = taken(resolve(written, &at), &at, damage, problems);
        // What only half of an item says must not collide with others.
        resolved.extend(item.filter(|_| damage.is_none()).map(|item| (*n, item)));
    }
    resolved
}

fn taken<T>(
    result: Result<T, Problems>,
    at: &str,
    damage: Option<&Vec<String>>,
    problems: &mut Problems,
) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(more) => {
            let damage = damage.map_or(&[][..], Vec::as_slice);
            problems.extend(more.0.into_iter().filter(|problem| is_news(&problem.path, at, damage)));
            None
        }
    }
}

/// Whether a problem of a damaged object is one of its own: what is missing may stand in what couldn't be read.
pub(super) fn is_news(path: &str, at: &str, damage: &[String]) -> bool {
    damage.is_empty()
        || path != at && damage.iter().all(|d| !d.starts_with(path) && !path.starts_with(d.as_str()))
}

#[cfg(test)]
mod tests;
