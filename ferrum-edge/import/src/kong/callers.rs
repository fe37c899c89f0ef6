//! Plugins of consumers and of consumer groups: plugin configs for those callers, on every proxy that asks who callers are.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use super::counterparts::{Counterpart, counterpart};
use super::plugins::{attach, is_harmless};
use super::{Kong, is_off, name, replace_uri};
use crate::draft::{Import, Limit, Match, Plug, RateLimiting, draft};
use crate::error::Failure;
use crate::tree::Node;

/// Pairs of a plugin of callers and a proxy that an import may have: each is a reference in the configuration that is made.
const MAX_PAIRS: usize = 1_000_000;

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
    fn condition(&self) -> Match {
        match self {
            Self::Group(group) => draft!(Match { groups: [group_name(group)] }),
            Self::Consumer(name) => draft!(Match { consumers: [name] }),
        }
    }

    /// A condition that holds for other callers only. Those that it leaves out already stand in one list with these.
    fn excluded(&self, when: Option<Value>) -> Value {
        let (key, name) = match self {
            Self::Group(group) => ("groups", group_name(group)),
            Self::Consumer(name) => ("consumers", name.clone()),
        };
        let others = || Value::from(draft!(Match { not: self.condition() }));
        let Some(mut when) = when else { return others() };
        if let Some(list) = left_out(&mut when, key) {
            list.push(name.into());
            return when;
        }
        let Some(Value::Array(all)) = when.get_mut("all") else {
            return draft!(Match { all: [when, others()] }).into();
        };
        if let Some(list) = all.iter_mut().find_map(|one| left_out(one, key)) {
            list.push(name.into());
        } else {
            all.push(others());
        }
        when
    }
}

/// The callers of a condition that is about nothing else than leaving them out.
fn left_out<'w>(when: &'w mut Value, key: &str) -> Option<&'w mut Vec<Value>> {
    let only = |value: &Value| value.as_object().is_some_and(|it| it.len() == 1);
    let is_it = only(when) && when.get("not").is_some_and(only);
    let list = when.get_mut("not").filter(|_| is_it)?.get_mut(key)?;
    list.as_array_mut()
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
    ///
    /// # Errors
    /// When there are too many pairs of such a plugin and a proxy.
    pub(super) fn place_caller_plugins(&mut self, file: &str) -> Result<(), Failure> {
        let mut all = std::mem::take(&mut self.caller_plugins);
        all.sort_by(|one, other| one.callers.cmp(&other.callers));
        let identifying = identifying(&self.out);
        let mut in_use: HashMap<&'static str, ConfigsInUse> = HashMap::new();
        for one in all {
            self.out.here = one.plugin.at;
            match self.caller_settings(&one) {
                Some(plug) => {
                    let ours = plug.name;
                    let known = in_use.entry(ours).or_insert_with(|| {
                        localise(&mut self.out, ours);
                        ConfigsInUse::of(&self.out, ours)
                    });
                    self.place_caller_plugin(&one, &plug, &identifying, known);
                }
                None if is_harmless(&name(&one.plugin), &one.plugin) => {
                    self.out.not_converted_here(&one.place, "its settings have no counterpart here");
                }
                None => self.leave_out(&one),
            }
            one.plugin.see_all();
            if in_use.values().map(|known| known.pairs).sum::<usize>() > MAX_PAIRS {
                let why =
                    format!("plugins of consumers and groups run for more than {MAX_PAIRS} routes in all");
                return Err(Failure::new(file, one.plugin.at.line, why));
            }
        }
        Ok(())
    }

    /// The same plugin of ours.
    fn caller_settings(&mut self, one: &CallerPlugin) -> Option<Plug> {
        let theirs = name(&one.plugin);
        let config = one.plugin.get("config")?;
        if theirs == "rate-limiting-advanced" {
            let limits = limits(config)?;
            return Some(Plug::of(draft!(RateLimiting { limits, limit_by: "consumer" })));
        }
        super::defaults::see(&theirs, &one.plugin);
        let Counterpart { plug, second } = counterpart(&mut self.out, &one.place, &theirs, config).ok()?;
        let lacks_groups = replace_uri::lacks_groups(&self.out, &plug, one.proxies.as_deref());
        // A condition of its own, such as a trigger, would have to hold beside that on the caller.
        (plug.when.is_none() && second.is_none() && !lacks_groups).then_some(plug)
    }

    fn place_caller_plugin(
        &mut self,
        one: &CallerPlugin,
        plug: &Plug,
        identifying: &BTreeMap<usize, &'static str>,
        known: &mut ConfigsInUse,
    ) {
        let ours = plug.name;
        let is_early = EARLY.contains(&ours);
        let mut meant: Vec<(usize, &'static str)> = match &one.proxies {
            Some(proxies) => proxies.iter().filter_map(|at| Some((*at, *identifying.get(at)?))).collect(),
            None => identifying.iter().map(|(at, last)| (*at, *last)).collect(),
        };
        meant.sort_unstable_by_key(|(at, _)| *at);
        let mut parts: Vec<(&'static str, Vec<usize>)> = Vec::new();
        for (at, last) in meant {
            match parts.iter_mut().find(|(known, _)| !is_early || *known == last) {
                Some((_, proxies)) => proxies.push(at),
                None => parts.push((last, vec![at])),
            }
        }
        if parts.is_empty() {
            let why = "no route asks who callers are";
            return self.out.not_needed(one.plugin.at, &one.place, why);
        }
        let mut overlaps = false;
        for (last, proxies) in parts {
            known.pairs += proxies.len();
            if is_early {
                overlaps |= proxies.iter().any(|at| known.proxies.contains(at));
            } else {
                self.narrow(ours, &proxies, &one.callers, known);
            }
            let id = self.out.shared_plugin(
                &format!("{}-{ours}", slug(&one.callers)),
                ours,
                (*plug.config).clone(),
            );
            if let Some(config) = self.out.plugin_configs.last_mut() {
                config["when"] = one.callers.condition().into();
                if is_early {
                    config["after"] = last.into();
                }
            }
            attach(&mut self.out, &proxies, &id);
            known.proxies.extend(&proxies);
            if let Callers::Group(_) = one.callers {
                let place = self.out.plugin_configs.len() - 1;
                known.configs.insert(id, ConfigInUse { place, is_of_group: true, users: proxies });
            }
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
            _ => self.out.converted(one.plugin.at, &one.place),
        }
    }

    /// Has what these proxies have of a plugin run for other callers only: Kong runs the one of the callers in its place.
    fn narrow(&mut self, ours: &str, proxies: &[usize], callers: &Callers, known: &mut ConfigsInUse) {
        let is_of_consumer = matches!(callers, Callers::Consumer(_));
        let mut copies = Vec::new();
        for (id, config) in &mut known.configs {
            // Of several groups of a caller, all plugins run.
            if config.is_of_group && !is_of_consumer {
                continue;
            }
            known.pairs += config.users.len();
            let (inside, others): (Vec<usize>, Vec<usize>) =
                config.users.iter().partition(|at| proxies.binary_search(at).is_ok());
            if inside.is_empty() {
                continue;
            }
            let Some(written) = self.out.plugin_configs.get_mut(config.place) else { continue };
            if others.is_empty() {
                let when = written.get_mut("when").map(Value::take);
                written["when"] = callers.excluded(when);
                continue;
            }
            // Other proxies do not know their callers: for them it stays as it is.
            let (when, settings) =
                (callers.excluded(written.get("when").cloned()), written["config"].clone());
            let copy = self.out.shared_plugin(&format!("{id}-others"), ours, settings);
            let place = self.out.plugin_configs.len() - 1;
            self.out.plugin_configs[place]["when"] = when;
            for at in &inside {
                rename(&mut self.out, *at, id, &copy);
            }
            config.users = others;
            copies.push((copy, ConfigInUse { place, is_of_group: false, users: inside }));
        }
        known.configs.extend(copies);
    }

    /// Leaves out the consumers that a guard is for: they would get in without it.
    fn leave_out(&mut self, one: &CallerPlugin) {
        let why = "its settings have no counterpart here; the consumers that it is for are left out";
        if !self.out.guard_not_converted(
            one.plugin.at,
            &one.place,
            why,
            "add it with plugins whose `when` names them",
        ) {
            return;
        }
        match &one.callers {
            Callers::Consumer(name) => self.left_out.usernames.insert(name.clone()),
            Callers::Group(group) => self.left_out.groups.insert(group_name(group)),
        };
    }
}

/// Consumers that are left out: they would get in without what guards them.
#[derive(Default)]
pub(super) struct LeftOut {
    pub(super) has_all: bool,
    pub(super) usernames: HashSet<String>,
    /// Usernames, ids and ids of one's own.
    pub(super) names: HashSet<String>,
    groups: HashSet<String>,
}

impl LeftOut {
    /// Takes them out of the consumers that are made.
    pub(super) fn apply(&self, consumers: &mut Vec<Value>) {
        let is_in =
            |known: &HashSet<String>, name: &Value| name.as_str().is_some_and(|it| known.contains(it));
        consumers.retain(|consumer| {
            let is_named = is_in(&self.usernames, &consumer["username"])
                || ["username", "id", "custom_id"].iter().any(|key| is_in(&self.names, &consumer[*key]));
            let groups = consumer["acl_groups"].as_array();
            let is_member = groups.is_some_and(|all| all.iter().any(|it| is_in(&self.groups, it)));
            !(self.has_all || is_named || is_member)
        });
    }
}

fn slug(callers: &Callers) -> String {
    match callers {
        Callers::Group(name) => format!("consumer-group-{name}"),
        Callers::Consumer(name) => format!("consumer-{name}"),
    }
}

/// Ids of the plugin configs that a proxy names.
pub(super) fn named_configs(proxy: &Value) -> impl Iterator<Item = &str> {
    let list = proxy.get("plugins").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(|it| it["plugin_config_id"].as_str())
}

/// A plugin config that proxies name, and that is not a consumer's.
struct ConfigInUse {
    /// Its place among all plugin configs.
    place: usize,
    is_of_group: bool,
    /// The proxies that name it, in order.
    users: Vec<usize>,
}

/// The plugin configs of one plugin that proxies name.
#[derive(Default)]
struct ConfigsInUse {
    configs: BTreeMap<String, ConfigInUse>,
    /// The proxies that name any, also a consumer's.
    proxies: HashSet<usize>,
    /// How many pairs of a plugin of callers and a proxy were looked at.
    pairs: usize,
}

impl ConfigsInUse {
    fn of(out: &Import, ours: &str) -> Self {
        let all = out.plugin_configs.iter().enumerate().filter(|(_, it)| it["plugin_name"] == ours);
        let places: HashMap<&str, usize> =
            all.filter_map(|(place, it)| Some((it["id"].as_str()?, place))).collect();
        let mut made = Self::default();
        for (at, proxy) in out.proxies.iter().enumerate() {
            for (id, place) in named_configs(proxy).filter_map(|id| Some((id, *places.get(id)?))) {
                let new = || ConfigInUse { place, is_of_group: false, users: Vec::new() };
                let config = made.configs.entry(id.to_owned()).or_insert_with(new);
                if config.users.last() != Some(&at) {
                    config.users.push(at);
                }
                made.proxies.insert(at);
            }
        }
        made
    }
}

/// Has a proxy name another plugin config instead of this one.
fn rename(out: &mut Import, at: usize, from: &str, to: &str) {
    let list =
        out.proxies.get_mut(at).and_then(|proxy| proxy.get_mut("plugins")).and_then(Value::as_array_mut);
    for it in list.into_iter().flatten().filter(|it| it["plugin_config_id"] == from) {
        it["plugin_config_id"] = to.into();
    }
}

/// The last plugin by which each proxy asks who callers are, by its position; ports of TCP and UDP, and proxies that do not ask
/// callers, are not among them.
fn identifying(out: &Import) -> BTreeMap<usize, &'static str> {
    let rank = |config: &Value| IDENTIFYING.iter().position(|name| config["plugin_name"] == *name);
    let global = out.plugin_configs.iter().filter(|it| it["scope"] == "global").filter_map(rank).max();
    let ranks: HashMap<&str, usize> =
        out.plugin_configs.iter().filter_map(|it| Some((it["id"].as_str()?, rank(it)?))).collect();
    let last = |proxy: &Value| {
        let own = named_configs(proxy).filter_map(|id| ranks.get(id).copied()).max();
        own.max(global).and_then(|last| IDENTIFYING.get(last).copied())
    };
    let http = out.proxies.iter().enumerate().filter(|(_, proxy)| proxy.get("listen_port").is_none());
    http.filter_map(|(at, proxy)| Some((at, last(proxy)?))).collect()
}

/// Has all proxies of HTTP name the global plugin configs of this plugin, where they have none of their own: one that is added to
/// some of them would take the place of a global one.
pub(super) fn localise(out: &mut Import, ours: &str) {
    let is_it = |it: &&mut Value| it["plugin_name"] == ours && it["scope"] == "global";
    let mut ids = Vec::new();
    for config in out.plugin_configs.iter_mut().filter(is_it) {
        config["scope"] = "proxy_group".into();
        ids.extend(config["id"].as_str().map(str::to_owned));
    }
    if ids.is_empty() {
        return;
    }
    let configs = out.plugin_configs.iter().filter(|it| it["plugin_name"] == ours);
    let known: HashSet<&str> = configs.filter_map(|it| it["id"].as_str()).collect();
    let is_without = |proxy: &Value| {
        proxy.get("listen_port").is_none() && !named_configs(proxy).any(|id| known.contains(id))
    };
    let proxies: Vec<usize> =
        out.proxies.iter().enumerate().filter(|(_, proxy)| is_without(proxy)).map(|(at, _)| at).collect();
    for id in ids {
        attach(out, &proxies, &id);
    }
}

/// The gateway's group for a consumer group. Groups of the ACL plugin are others.
pub(super) fn group_name(name: &str) -> String {
    format!("consumer-group-{name}")
}

/// `limits` of `rate_limiting` for `rate-limiting-advanced`; `None` where they can't be said here.
fn limits(config: &Node) -> Option<Vec<Limit>> {
    let (limits, windows) = (config.each("limit"), config.each("window_size"));
    if limits.len() != windows.len() || limits.is_empty() {
        return None;
    }
    let pair = |(limit, window): (&Node, &Node)| {
        let (limit, window) = (limit.uint()?, window.uint().filter(|window| *window > 0)?);
        Some(draft!(Limit { rate: limit, per: format!("{window}s") }))
    };
    limits.iter().zip(windows).map(pair).collect()
}
