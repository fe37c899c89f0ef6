//! Plugins of consumers and of consumer groups: plugin configs for those callers, on every proxy that asks who callers are.

use serde_json::{Value, json};

use super::plugins::{attach, is_harmless};
use super::{Kong, counterparts, is_off, name};
use crate::draft::Import;
use crate::tree::Node;

/// Plugins of ours that identify callers, in the order in which they run.
const IDENTIFYING: [&str; 8] = [
    "key_auth",
    "basic_auth",
    "ldap_auth",
    "hmac_auth",
    "jwt_auth",
    "jwks_auth",
    "oauth2_introspection",
    "oidc",
];

/// Kong's plugins that can be for some callers here.
const TRANSLATED: &[&str] = &[
    "bot-detection",
    "ip-restriction",
    "rate-limiting",
    "rate-limiting-advanced",
    "request-size-limiting",
    "request-termination",
    "request-transformer",
    "response-transformer",
];

/// Plugins of ours that run before callers are known, unless a plugin config says otherwise.
const EARLY: &[&str] = &["bot_detection", "ip_restriction", "request_size_limiting", "request_termination"];

/// Whom a plugin is for. What a consumer has of its own takes the place of what its groups have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Callers {
    Group(String),
    Consumer(String),
}

impl Callers {
    /// As a condition of a plugin config.
    fn condition(&self) -> Value {
        match self {
            Self::Group(group) => json!({ "groups": [group_name(group)] }),
            Self::Consumer(name) => json!({ "consumers": [name] }),
        }
    }
}

/// A plugin of callers, until all proxies are known.
pub(super) struct CallerPlugin {
    place: String,
    plugin: Node,
    callers: Callers,
    /// Positions of proxies; `None` is all.
    proxies: Option<Vec<usize>>,
}

impl Kong {
    /// Keeps a plugin of these callers until all proxies are known. False for what can't be for some callers here.
    pub(super) fn caller_plugin(
        &mut self,
        place: &str,
        plugin: &Node,
        callers: Callers,
        proxies: Option<Vec<usize>>,
    ) -> bool {
        let is_known = !is_off(plugin) && TRANSLATED.contains(&name(plugin).as_str());
        if is_known {
            let (place, plugin) = (place.to_owned(), plugin.clone());
            self.caller_plugins.push(CallerPlugin { place, plugin, callers, proxies });
        }
        is_known
    }

    /// Puts the plugins of callers where they run: groups first, so that those of consumers take their place.
    pub(super) fn place_caller_plugins(&mut self) {
        let mut all = std::mem::take(&mut self.caller_plugins);
        all.sort_by(|one, other| one.callers.cmp(&other.callers));
        let mut made: Vec<(String, Callers)> = Vec::new();
        for one in all {
            self.out.here = one.plugin.at;
            let theirs = name(&one.plugin);
            match self.caller_settings(&one) {
                Some((ours, settings)) => self.place_caller_plugin(&one, ours, &settings, &mut made),
                None if is_harmless(&theirs) => {
                    self.out.miss(&one.place, "its settings have no counterpart here");
                }
                None => self.leave_out(&one),
            }
            one.plugin.see_all();
        }
    }

    /// Our plugin's name and settings.
    fn caller_settings(&mut self, one: &CallerPlugin) -> Option<(&'static str, Value)> {
        let theirs = name(&one.plugin);
        let config = one.plugin.get("config")?;
        if theirs == "rate-limiting-advanced" {
            let limits = limits(config)?;
            return Some(("rate_limiting", json!({ "limits": limits, "limit_by": "consumer" })));
        }
        super::defaults::see(&theirs, &one.plugin);
        let (ours, mut settings) = counterparts::settings(&mut self.out, &one.place, &theirs, config).ok()?;
        // A condition of its own, such as a trigger, would have to hold beside that on the caller.
        let has_condition = settings.shift_remove(counterparts::WHEN).is_some();
        (!has_condition).then(|| (ours, Value::Object(settings)))
    }

    fn place_caller_plugin(
        &mut self,
        one: &CallerPlugin,
        ours: &'static str,
        settings: &Value,
        made: &mut Vec<(String, Callers)>,
    ) {
        let is_early = EARLY.contains(&ours);
        localise(&mut self.out, ours);
        let is_meant = |at: &usize| one.proxies.as_ref().is_none_or(|proxies| proxies.contains(at));
        let mut parts: Vec<(&'static str, Vec<usize>)> = Vec::new();
        for at in (0..self.out.proxies.len()).filter(is_meant) {
            let Some(last) = last_identifying(&self.out, at) else { continue };
            match parts.iter_mut().find(|(known, _)| !is_early || *known == last) {
                Some((_, proxies)) => proxies.push(at),
                None => parts.push((last, vec![at])),
            }
        }
        if parts.is_empty() {
            let why = "no route asks who callers are";
            return self.out.needless(one.plugin.at, &one.place, why);
        }
        let mut overlaps = false;
        for (last, proxies) in parts {
            if is_early {
                overlaps |= proxies.iter().any(|at| !configs_of_plugin(&self.out, *at, ours).is_empty());
            } else {
                self.narrow(ours, &proxies, &one.callers, made);
            }
            let id =
                self.out.shared_plugin(&format!("{}-{ours}", slug(&one.callers)), ours, settings.clone());
            if let Some(config) = self.out.plugin_configs.last_mut() {
                config["when"] = one.callers.condition();
                if is_early {
                    config["after"] = json!(last);
                }
            }
            attach(&mut self.out, &proxies, &id);
            made.push((id, one.callers.clone()));
        }
        match ours {
            "rate_limiting" => {
                let why = "windows slide, and each gateway counts for itself";
                self.out.partial(one.plugin.at, &one.place, why, "see the plugin `rate_limiting`");
            }
            _ if overlaps => {
                let why = "the same plugin of a service or route holds for these callers as well";
                self.out.partial(one.plugin.at, &one.place, why, "");
            }
            _ => self.out.done(one.plugin.at, &one.place),
        }
    }

    /// Has what these proxies have of a plugin run for other callers only: Kong runs the one of the callers in its place.
    fn narrow(&mut self, ours: &str, proxies: &[usize], callers: &Callers, made: &[(String, Callers)]) {
        let of_callers = |id: &str| made.iter().find(|(known, _)| known == id).map(|(_, callers)| callers);
        let mut ids: Vec<String> =
            proxies.iter().flat_map(|at| configs_of_plugin(&self.out, *at, ours)).collect();
        ids.sort_unstable();
        ids.dedup();
        // Of several groups of a caller, all plugins run.
        ids.retain(|id| match (of_callers(id), callers) {
            (None, _) | (Some(Callers::Group(_)), Callers::Consumer(_)) => true,
            (Some(_), _) => false,
        });
        for id in ids {
            let users: Vec<usize> = (0..self.out.proxies.len())
                .filter(|at| configs_of_plugin(&self.out, *at, ours).contains(&id))
                .collect();
            let inside: Vec<usize> = users.iter().copied().filter(|at| proxies.contains(at)).collect();
            let Some(config) = self.out.plugin_configs.iter().find(|it| it["id"] == id.as_str()).cloned()
            else {
                continue;
            };
            let others = json!({ "not": callers.condition() });
            let when = match config.get("when") {
                Some(when) => json!({ "all": [when, others] }),
                None => others,
            };
            if inside.len() == users.len() {
                let own = self.out.plugin_configs.iter_mut().find(|it| it["id"] == id.as_str());
                own.into_iter().for_each(|own| own["when"] = when.clone());
                continue;
            }
            // Other proxies do not know their callers: for them it stays as it is.
            let copy = self.out.shared_plugin(&format!("{id}-others"), ours, config["config"].clone());
            if let Some(made) = self.out.plugin_configs.last_mut() {
                made["when"] = when;
            }
            for at in inside {
                rename(&mut self.out, at, &id, &copy);
            }
        }
    }

    /// Leaves out the consumers that a guard is for: they would get in without it.
    fn leave_out(&mut self, one: &CallerPlugin) {
        let why = "its settings have no counterpart here; the consumers that it is for are left out";
        if !self.out.guard(one.plugin.at, &one.place, why, "add it with plugins whose `when` names them") {
            return;
        }
        self.out.consumers.retain(|consumer| match &one.callers {
            Callers::Consumer(name) => consumer["username"] != name.as_str(),
            Callers::Group(group) => {
                let name = group_name(group);
                !consumer["acl_groups"].as_array().is_some_and(|all| all.iter().any(|it| *it == name))
            }
        });
    }
}

fn slug(callers: &Callers) -> String {
    match callers {
        Callers::Group(name) => format!("consumer-group-{name}"),
        Callers::Consumer(name) => format!("consumer-{name}"),
    }
}

/// Ids of the plugin configs of this plugin that a proxy names.
fn configs_of_plugin(out: &Import, at: usize, ours: &str) -> Vec<String> {
    let list = out.proxies.get(at).and_then(|proxy| proxy.get("plugins")).and_then(Value::as_array);
    let ids = list.into_iter().flatten().filter_map(|it| it["plugin_config_id"].as_str());
    let is_it = |id: &&str| out.plugin_configs.iter().any(|it| it["id"] == *id && it["plugin_name"] == ours);
    ids.filter(is_it).map(str::to_owned).collect()
}

/// Has a proxy name another plugin config instead of this one.
fn rename(out: &mut Import, at: usize, from: &str, to: &str) {
    let list =
        out.proxies.get_mut(at).and_then(|proxy| proxy.get_mut("plugins")).and_then(Value::as_array_mut);
    for it in list.into_iter().flatten().filter(|it| it["plugin_config_id"] == from) {
        it["plugin_config_id"] = json!(to);
    }
}

/// The last plugin by which a proxy asks who callers are; `None` for ports of TCP and UDP, and where callers are not asked.
fn last_identifying(out: &Import, at: usize) -> Option<&'static str> {
    if out.proxies.get(at)?.get("listen_port").is_some() {
        return None;
    }
    let is_everywhere =
        |name: &str| out.plugin_configs.iter().any(|it| it["plugin_name"] == name && it["scope"] == "global");
    IDENTIFYING
        .into_iter()
        .rev()
        .find(|name| is_everywhere(name) || !configs_of_plugin(out, at, name).is_empty())
}

/// Has all proxies of HTTP name the global plugin configs of this plugin, where they have none of their own: one that is added to
/// some of them would take the place of a global one.
pub(super) fn localise(out: &mut Import, ours: &str) {
    let is_it = |it: &&mut Value| it["plugin_name"] == ours && it["scope"] == "global";
    let mut ids = Vec::new();
    for config in out.plugin_configs.iter_mut().filter(is_it) {
        config["scope"] = json!("proxy_group");
        ids.extend(config["id"].as_str().map(str::to_owned));
    }
    let is_http = |at: &usize| out.proxies.get(*at).is_some_and(|it| it.get("listen_port").is_none());
    let proxies: Vec<usize> = (0..out.proxies.len())
        .filter(is_http)
        .filter(|at| configs_of_plugin(out, *at, ours).is_empty())
        .collect();
    for id in ids {
        attach(out, &proxies, &id);
    }
}

/// The gateway's group for a consumer group. Groups of the ACL plugin are others.
pub(super) fn group_name(name: &str) -> String {
    format!("consumer-group-{name}")
}

/// `limits` of `rate_limiting` for `rate-limiting-advanced`; `None` where they can't be said here.
fn limits(config: &Node) -> Option<Vec<Value>> {
    let (limits, windows) = (config.each("limit"), config.each("window_size"));
    if limits.len() != windows.len() || limits.is_empty() {
        return None;
    }
    let pair = |(limit, window): (&Node, &Node)| {
        let (limit, window) = (limit.uint()?, window.uint().filter(|window| *window > 0)?);
        Some(json!({ "rate": limit, "per": format!("{window}s") }))
    };
    limits.iter().zip(windows).map(pair).collect()
}
