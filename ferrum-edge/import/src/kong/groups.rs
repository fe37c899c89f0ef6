//! Consumer groups: their members, and their plugins.

use serde_json::Value;

use super::callers::{Callers, group_name};
use super::{Kong, list, name, text};
use crate::tree::Node;

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
            let place = self.consumers.get(&called).copied();
            if let Some(made) = place.and_then(|at| self.out.consumers.get_mut(at)) {
                add_group(made, &group_name(&own));
            }
        }
        for plugin in list(group, "plugins") {
            let place = format!("{place}, plugin {}", name(plugin));
            if !self.caller_plugin(&place, plugin, Callers::Group(own.clone()), None) {
                self.of_consumer(&place, plugin, None);
            }
        }
    }
}

/// Adds a group to a consumer in the making.
fn add_group(consumer: &mut Value, group: &str) {
    let known = consumer["acl_groups"].as_array().cloned().unwrap_or_default();
    if !known.iter().any(|it| it == group) {
        consumer["acl_groups"] = known.into_iter().chain([Value::from(group)]).collect();
    }
}
