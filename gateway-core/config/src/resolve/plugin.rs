//! A plugin config.

use std::sync::Arc;

use serde_json::Value;

use super::{Notes, words};
use crate::capabilities::{Capabilities, Capability};
use crate::condition;
use crate::credential::CredentialTypes;
use crate::file;
use crate::hook_set::HookSet;
use crate::model::{BuiltPlugin, Id, Order, PluginConfig, PluginSettings, RedisServers, Scope, Traffic};
use crate::problem::{Problem, Problems};

/// Bytes of a plugin's settings, as JSON.
const MAX_CONFIG_BYTES: usize = 1 << 20;

/// Plugins that a program can be built without, each with the cargo feature that contains it.
pub const OPTIONAL_PLUGINS: [(&str, &str); 3] =
    [("ldap_auth", "ldap"), ("script", "script"), ("wasm", "wasm")];

/// The cargo feature without which a program lacks this plugin; `None` for plugins of every program.
pub fn feature_of_plugin(name: &str) -> Option<&'static str> {
    OPTIONAL_PLUGINS.iter().find(|(plugin, _)| *plugin == name).map(|(_, feature)| *feature)
}

/// Says why `name` is not among the plugins `names`, and what to do.
fn missing(name: &str, names: &[String]) -> (String, Option<String>) {
    match feature_of_plugin(name) {
        Some(feature) => (
            format!("the plugin `{name}` is not in this build"),
            Some(format!("build it with the feature `{feature}`")),
        ),
        None => (
            format!("there is no plugin `{name}`"),
            words::did_you_mean(name, names.iter().map(String::as_str)),
        ),
    }
}

/// Knows the plugins there are; implemented by the registry, and by closures that only check settings.
pub trait PluginCheck {
    /// Whether a plugin takes these settings, and the plugin that they make.
    ///
    /// # Errors
    /// What is wrong, each path beginning inside the settings. An empty path is the settings as a whole.
    fn check(&self, plugin_name: &str, id: Option<&Id>, config: &Value) -> Result<CheckedPlugin, Problems>;

    /// The names of all plugins; `None` when they aren't known, and then any name goes to [`Self::check`].
    fn names(&self) -> Option<Vec<String>> {
        None
    }

    /// The types of credentials that plugins check; `None` when they aren't known, and then credentials are left out.
    fn credential_types(&self) -> Option<CredentialTypes> {
        None
    }

    /// Whether there is a plugin of this name, or none of the names are known.
    fn is_known(&self, name: &str) -> bool {
        self.names().is_none_or(|names| names.iter().any(|known| known == name))
    }
}

/// The plugin that was built to check its settings; `None` where they were only looked at.
pub type CheckedPlugin = Option<BuiltPlugin>;

impl<F: Fn(&str, &Value) -> Result<(), Problems>> PluginCheck for F {
    fn check(&self, plugin_name: &str, _id: Option<&Id>, config: &Value) -> Result<CheckedPlugin, Problems> {
        self(plugin_name, config).map(|()| None)
    }
}

/// A plugin config, and whether it is switched on.
#[derive(Debug, Clone)]
pub struct Configured {
    /// The plugin config.
    pub config: Arc<PluginConfig>,
    /// Switched off it is as if absent, except that it may be named.
    pub enabled: bool,
}

/// Resolves a plugin config that stands at `at`. What it names of `gateway.redis` must exist where that is known.
///
/// # Errors
/// Every problem in it. Whether the proxy it names exists isn't looked at: in a database it may come later.
pub fn plugin_config(
    written: &file::PluginConfig,
    at: &str,
    plugins: &dyn PluginCheck,
    redis: Option<&RedisServers>,
) -> Result<Configured, Problems> {
    let mut notes = Notes::new(at);
    let id = words::id(&mut notes, written.id.as_deref());
    let empty = Value::Object(serde_json::Map::new());
    let config = if written.config.is_null() { &empty } else { &written.config };
    let settings = PluginSettings::new(config);
    let built = match settings.len() {
        ..=MAX_CONFIG_BYTES => built(&mut notes, written, config, id.as_ref(), plugins),
        _ => {
            notes.add("config", format!("this has more than {MAX_CONFIG_BYTES} bytes"));
            None
        }
    };
    if let Some(redis) = redis {
        super::redis::check(&mut notes, config, redis);
    }
    let scope = scope(&mut notes, written);
    let order = order(&mut notes, written, plugins).map(Box::new);
    let when = written.when.as_ref().and_then(|when| {
        let at = format!("{at}.when");
        match condition::compile(when, &at, condition::Use::Plugin) {
            Ok(when) => Some(Arc::new(when)),
            Err(problems) => {
                notes.problems.extend(problems.0);
                None
            }
        }
    });
    let (Some(id), Some(scope), true) = (id, scope, notes.problems.is_empty()) else {
        return Err(notes.problems);
    };
    let plugin_name = Arc::from(written.plugin_name.as_str());
    let config = Arc::new(PluginConfig { id, plugin_name, config: settings, scope, order, when, built });
    Ok(Configured { config, enabled: written.enabled.unwrap_or(true) })
}

/// Why a plugin that took these seats, and declares this of them, does nothing for such traffic; `None` when it does something.
pub fn idle(
    config: &PluginConfig,
    taken: HookSet,
    capabilities: Capabilities,
    traffic: &Traffic,
) -> Option<Problem> {
    if config.when.is_some() && matches!(traffic, Traffic::Stream(_)) {
        let message = format!("`when` of the plugin config `{}` applies to HTTP requests only", config.id);
        return Some(Problem::new(format!("plugin_configs.{}.when", config.id), message).remedy("remove it"));
    }
    let is_stream = matches!(traffic, Traffic::Stream(rules) if rules.passthrough || !rules.is_datagram);
    let is_datagram = matches!(traffic, Traffic::Stream(rules) if rules.is_datagram);
    let taken = match is_stream {
        _ if capabilities.has(Capability::OnlyForDatagrams) && !is_datagram => HookSet::default(),
        true => capabilities.for_streams(taken),
        false => capabilities.for_datagrams(taken),
    };
    let (runs, kind) = match traffic {
        Traffic::Http(_) => (HookSet::EXCHANGE.with(HookSet::WEBSOCKET), "HTTP"),
        Traffic::Stream(rules) if rules.passthrough => (HookSet::STREAM, "passed-through"),
        Traffic::Stream(rules) if rules.is_datagram => (HookSet::DATAGRAM, "UDP and DTLS"),
        Traffic::Stream(_) => (HookSet::STREAM, "TCP and TLS"),
    };
    if taken.meets(runs) {
        return None;
    }
    let message = format!("the plugin `{}` does nothing for {kind} traffic", config.plugin_name);
    Some(Problem::new(format!("plugin_configs.{}", config.id), message).remedy(
        "remove it from this proxy; a global plugin can be limited to some proxies with scope `proxy_group`",
    ))
}

/// Where a plugin config says it runs, for as far as that can be told.
pub(crate) fn scope_of(written: &file::PluginConfig) -> Option<Scope> {
    scope(&mut Notes::new(""), written)
}

/// Builds the plugin to check its settings.
fn built(
    notes: &mut Notes<'_>,
    written: &file::PluginConfig,
    config: &Value,
    id: Option<&Id>,
    plugins: &dyn PluginCheck,
) -> CheckedPlugin {
    if !plugins.is_known(&written.plugin_name)
        && let Some(names) = plugins.names()
    {
        let (message, remedy) = missing(&written.plugin_name, &names);
        let remedy = remedy.or_else(|| Some("`ferrum-edge plugins` lists them".to_owned()));
        notes.add("plugin_name", message).remedy = remedy;
        return None;
    }
    let problems = match plugins.check(&written.plugin_name, id, config) {
        Ok(built) => return built,
        Err(problems) => problems,
    };
    for mut problem in problems.0 {
        let dot = if problem.path.is_empty() || problem.path.starts_with('[') { "" } else { "." };
        problem.path = format!("{}.config{dot}{}", notes.at, problem.path);
        notes.problems.push(problem);
    }
    None
}

fn scope(notes: &mut Notes<'_>, written: &file::PluginConfig) -> Option<Scope> {
    let proxy = written.proxy_id.as_deref();
    if written.owner.is_some() && written.scope != Some(file::Scope::Owner) {
        notes.add("owner", "only scope `owner` has an `owner`").remedy =
            Some("remove it, or write `scope: owner`".to_owned());
        return None;
    }
    match (written.scope, proxy) {
        (Some(file::Scope::Proxy) | None, Some(proxy)) => {
            notes.value("proxy_id", words::valid_id(proxy)).map(Scope::Proxy)
        }
        (Some(file::Scope::Proxy), None) => {
            notes.add("", "`proxy_id` is missing").remedy = Some("name the proxy it runs for".to_owned());
            None
        }
        (None, None) => {
            notes.add("", "`scope` is missing").remedy =
                Some("`global`, `proxy_group`, `owner` with `owner`, or `proxy` with `proxy_id`".to_owned());
            None
        }
        (Some(_), Some(_)) => {
            notes.add("proxy_id", "only scope `proxy` has a `proxy_id`").remedy =
                Some("remove it, or write `scope: proxy`".to_owned());
            None
        }
        (Some(file::Scope::Global), None) => Some(Scope::Global),
        (Some(file::Scope::ProxyGroup), None) => Some(Scope::ProxyGroup),
        (Some(file::Scope::Owner), None) => match written.owner.as_deref() {
            Some(owner) => notes.value("owner", words::valid_id(owner)).map(Scope::Owner),
            None => {
                notes.add("", "`owner` is missing").remedy =
                    Some("name the owner for whose proxies it runs".to_owned());
                None
            }
        },
    }
}

fn order(notes: &mut Notes<'_>, written: &file::PluginConfig, plugins: &dyn PluginCheck) -> Option<Order> {
    let (key, name) = match (&written.before, &written.after) {
        (None, None) => return None,
        (Some(_), Some(_)) => {
            notes.add("after", "`before` is given as well").remedy = Some("keep one of the two".to_owned());
            return None;
        }
        (Some(name), None) => ("before", name),
        (None, Some(name)) => ("after", name),
    };
    if *name == written.plugin_name {
        notes.add(key, "this is the plugin itself").remedy = Some("name another plugin".to_owned());
    }
    if let Some(names) = plugins.names()
        && !names.contains(name)
    {
        let (message, remedy) = missing(name, &names);
        notes.add(key, message).remedy = remedy;
    }
    let name = Arc::from(name.as_str());
    Some(if key == "before" { Order::Before(name) } else { Order::After(name) })
}
