//! Kong's consumers, and plugins that are theirs.

use std::collections::HashMap;

use serde_json::Value;

use super::callers::Callers;
use super::{Kong, is_off, list, name, ours, plugins, some, text};
use crate::draft::{Consumer, draft};
use crate::report::At;
use crate::tree::Node;

impl Kong {
    pub(super) fn consumer(&mut self, consumer: &Node) {
        self.out.here = consumer.at;
        let username = text(consumer, "username").or_else(|| text(consumer, "custom_id"));
        let Some(username) = username else {
            self.out.not_converted_here("consumer", "it has neither username nor custom_id");
            return;
        };
        let place = format!("consumer {username}");
        let id = self.out.id("consumer", username);
        let custom_id = text(consumer, "custom_id").filter(|custom| *custom != username).map(str::to_owned);
        let (credentials, known_as) = plugins::credentials(&mut self.out, &place, username, consumer);
        let mut groups: Vec<String> =
            list(consumer, "acls").filter_map(|acl| text(acl, "group")).map(str::to_owned).collect();
        groups.extend(super::groups::of_consumer(consumer));
        let made = draft!(Consumer {
            id,
            username,
            custom_id: known_as.or(custom_id),
            credentials: (!credentials.is_empty()).then_some(credentials),
            acl_groups: some(groups),
        });
        self.report_object(
            &place,
            consumer,
            &[
                "username",
                "custom_id",
                "acls",
                "groups",
                "keyauth_credentials",
                "basicauth_credentials",
                "jwt_secrets",
                "hmacauth_credentials",
                "plugins",
            ],
        );
        if let Some(id) = text(consumer, "id") {
            self.usernames.insert(id.to_owned(), username.to_owned());
        }
        self.consumers.entry(username.to_owned()).or_insert(self.out.consumers.len());
        self.out.consumers.push(made.into());
        for plugin in list(consumer, "plugins") {
            let place = format!("{place}, plugin {}", name(plugin));
            if !self.caller_plugin(&place, plugin, Callers::Consumer(username.to_owned()), None) {
                self.of_consumer(&place, plugin, Some(username.to_owned()));
            }
        }
    }

    /// A plugin of one consumer. Where it guards, the consumer is left out: it would get in without it.
    pub(super) fn of_consumer(&mut self, place: &str, plugin: &Node, consumer: Option<String>) {
        self.out.here = plugin.at;
        let why = "plugins of consumers are not known here";
        plugin.see_all();
        let consumer = consumer.map(|name| self.usernames.get(&name).cloned().unwrap_or(name));
        if is_off(plugin) {
            self.out.not_needed(plugin.at, place, "it is switched off");
        } else if plugins::is_harmless(&name(plugin), plugin) {
            self.out.not_converted_here(place, why);
        } else if self.out.guard_not_converted(
            plugin.at,
            place,
            format_args!("{why}; the consumer is left out"),
            "add it with plugins whose `when` names it",
        ) {
            // Without one it is for a group of consumers, and any may be in it.
            match consumer {
                Some(name) => {
                    self.left_out.names.insert(name);
                }
                None => self.left_out.has_all = true,
            }
        }
    }

    /// Has authentication plugins name their anonymous consumer by its username. One that is not there, or was left out for what
    /// guards it, is none: then callers have to say who they are.
    pub(super) fn anonymous(&mut self) {
        let mut consumers: HashMap<&str, &str> = HashMap::new();
        for consumer in &self.out.consumers {
            let Some(username) = ours(consumer, "username") else { continue };
            for name in [Some(username), ours(consumer, "custom_id")].into_iter().flatten() {
                consumers.entry(name).or_insert(username);
            }
        }
        let mut gone = Vec::new();
        for config in &mut self.out.plugin_configs {
            let id = config["id"].as_str().unwrap_or_default().to_owned();
            let Some(settings) = config.get_mut("config").and_then(Value::as_object_mut) else { continue };
            let Some(said) = settings.get("anonymous").and_then(Value::as_str).map(str::to_owned) else {
                continue;
            };
            let called = self.usernames.get(&said).unwrap_or(&said);
            match consumers.get(called.as_str()).copied() {
                Some(username) => drop(settings.insert("anonymous".to_owned(), username.into())),
                None => {
                    settings.shift_remove("anonymous");
                    gone.push((id, said));
                }
            }
        }
        for (id, said) in gone {
            let why = "there is no such consumer here, or it was left out: callers have to say who they are";
            self.out.partial(At::default(), format_args!("plugin {id}: anonymous {said}"), why, "");
        }
    }
}
