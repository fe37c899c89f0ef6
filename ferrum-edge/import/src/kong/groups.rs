//! Consumer groups, and their limits: `rate_limiting` for callers that are in the group.

use serde_json::{Value, json};

use super::{Kong, is_off, list, name, text};
use crate::tree::Node;

/// Periods of `rate-limiting`.
const PERIODS: [(&str, &str); 6] = [
    ("second", "1s"),
    ("minute", "1m"),
    ("hour", "1h"),
    ("day", "24h"),
    ("month", "720h"),
    ("year", "8760h"),
];

/// The gateway's group for a consumer group. Groups of the ACL plugin are others.
pub(super) fn group_name(name: &str) -> String {
    format!("consumer-group-{name}")
}

/// The consumer groups that a consumer names.
pub(super) fn of_consumer(consumer: &Node) -> Vec<String> {
    let each = list(consumer, "groups");
    let names = each.filter_map(|group| group.str().or_else(|| text(group, "name")).map(group_name));
    names.collect()
}

impl Kong {
    /// A consumer group: its members, and its plugins.
    pub(super) fn consumer_group(&mut self, group: &Node) {
        let (own, place) = (name(group), format!("consumer group {}", name(group)));
        for member in list(group, "consumers") {
            let called = member.str().or_else(|| text(member, "username")).unwrap_or_default();
            let called = self.usernames.get(called).cloned().unwrap_or_else(|| called.to_owned());
            let is_it = |made: &&mut Value| made["username"] == called.as_str();
            if let Some(made) = self.out.consumers.iter_mut().find(is_it) {
                add_group(made, &group_name(&own));
            }
        }
        for plugin in list(group, "plugins") {
            let place = format!("{place}, plugin {}", name(plugin));
            if !self.group_limit(&place, &own, plugin) {
                self.of_consumer(&place, plugin, None);
            }
        }
    }

    /// A limit for the members of a group; false for other plugins, and for limits that can't be said here.
    pub(super) fn group_limit(&mut self, place: &str, group: &str, plugin: &Node) -> bool {
        let limits = match (is_off(plugin), plugin.get("config")) {
            (false, Some(config)) => limits(&name(plugin), config),
            _ => None,
        };
        let Some(limits) = limits else { return false };
        plugin.see_all();
        let id = self.out.id("plugin", &format!("consumer-group-{group}-rate_limiting"));
        self.out.plugin_configs.push(json!({
            "id": id, "plugin_name": "rate_limiting", "scope": "global",
            "config": { "limits": limits, "limit_by": "consumer" },
            "when": { "groups": [group_name(group)] },
        }));
        let why = "limits of services and routes hold for the members as well; windows slide, and each gateway counts for itself";
        self.out.partial(plugin.at, place, why, "see the plugin `rate_limiting`");
        true
    }
}

/// Adds a group to a consumer in the making.
fn add_group(consumer: &mut Value, group: &str) {
    let known = consumer["acl_groups"].as_array().cloned().unwrap_or_default();
    if !known.iter().any(|it| it == group) {
        let all: Vec<Value> = known.into_iter().chain([json!(group)]).collect();
        consumer["acl_groups"] = json!(all);
    }
}

/// `limits` of `rate_limiting`; `None` where the plugin is another one, or has none.
fn limits(plugin: &str, config: &Node) -> Option<Vec<Value>> {
    let made: Vec<Value> = match plugin {
        "rate-limiting" => {
            let each = PERIODS.iter();
            each.filter_map(|(key, per)| Some(json!({ "rate": config.get(key)?.uint()?, "per": per })))
                .collect()
        }
        "rate-limiting-advanced" => {
            let (limits, windows) = (config.each("limit"), config.each("window_size"));
            if limits.len() != windows.len() {
                return None;
            }
            let pair = |(limit, window): (&Node, &Node)| {
                let (limit, window) = (limit.uint()?, window.uint().filter(|window| *window > 0)?);
                Some(json!({ "rate": limit, "per": format!("{window}s") }))
            };
            limits.iter().zip(windows).map(pair).collect::<Option<_>>()?
        }
        _ => return None,
    };
    (!made.is_empty()).then_some(made)
}
