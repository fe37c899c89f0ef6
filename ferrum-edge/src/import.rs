//! Configurations of other gateways as ours, for the common cases; whatever isn't translated is named.
//!
//! A translation never guesses: what would behave otherwise here than there is left out and told, or told beside what
//! stands for it.

pub mod kong;
pub mod nginx;

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value, json};

/// A translated configuration.
#[derive(Debug, Clone, Default)]
pub struct Translation {
    /// Settings of the gateway as a whole.
    pub gateway: Map<String, Value>,
    /// Named groups of targets.
    pub upstreams: Vec<Value>,
    /// Plugins and where they run.
    pub plugin_configs: Vec<Value>,
    /// Everything that takes traffic.
    pub proxies: Vec<Value>,
    /// Everybody who may be recognised.
    pub consumers: Vec<Value>,
    /// What is not in the translation, or means something else in it, each with its place in the original.
    pub missing: Vec<String>,
    /// What answers 503 in the translation because what guarded it could not be translated.
    pub closed: Vec<String>,
    /// Leaves open what `closed` would have closed.
    open: bool,
    ids: BTreeSet<String>,
}

impl Translation {
    /// The whole as a configuration file's document.
    pub fn document(&self) -> Value {
        let mut document = Map::from_iter([("version".to_owned(), json!("1"))]);
        if !self.gateway.is_empty() {
            document.insert("gateway".to_owned(), Value::Object(self.gateway.clone()));
        }
        for (name, list) in [
            ("upstreams", &self.upstreams),
            ("plugin_configs", &self.plugin_configs),
            ("proxies", &self.proxies),
            ("consumers", &self.consumers),
        ] {
            if !list.is_empty() {
                document.insert(name.to_owned(), Value::Array(list.clone()));
            }
        }
        Value::Object(document)
    }

    /// Notes what could not be translated.
    fn miss(&mut self, place: impl fmt::Display, why: impl fmt::Display) {
        self.missing.push(format!("{place}: {why}"));
    }

    /// Notes something that guards and can't be translated; says whether what it guarded has to be closed.
    fn guard(&mut self, place: impl fmt::Display, why: impl fmt::Display) -> bool {
        if self.open {
            self.missing.push(format!("{place}: {why}; what it guarded is OPEN here"));
        } else {
            self.closed.push(format!("{place}: {why}"));
        }
        !self.open
    }

    /// A plugin config that answers everything by itself, for what names its id.
    fn answering(&mut self, name: &str, proxy: Option<&str>, (status, body): (u16, &str)) -> String {
        let id = self.id("plugin", name);
        let mut made = Map::from_iter([("id".to_owned(), json!(id))]);
        set(&mut made, "plugin_name", "request_termination");
        match proxy {
            Some(proxy) => set(&mut made, "proxy_id", proxy),
            None => set(&mut made, "scope", "proxy_group"),
        }
        let config = json!({ "status_code": status, "content_type": "text/plain", "body": body });
        set(&mut made, "config", config);
        self.plugin_configs.push(Value::Object(made));
        id
    }

    /// An id of this kind that looks like `name` and is nobody else's.
    fn id(&mut self, kind: &str, name: &str) -> String {
        let good = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' };
        let slug: String = name.chars().map(good).take(200).collect();
        let slug = slug.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let slug = if slug.is_empty() { kind } else { slug };
        let mut id = slug.to_owned();
        let mut n = 1;
        while !self.ids.insert(format!("{kind}/{id}")) {
            n += 1;
            id = format!("{slug}-{n}");
        }
        id
    }
}

/// What whoever asks for something that was closed is told.
const CLOSED: &str = "closed: what guards this was not imported";

/// Adds a field to an object that is being made.
fn set(object: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    object.insert(key.to_owned(), value.into());
}

#[cfg(test)]
mod tests;
