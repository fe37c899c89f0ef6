//! Selects the objects of a group: its assigned proxies, and the objects that they reference.
//!
//! Upstreams, plugin configs and credentials follow the proxies, so an edge never gets a secret that none of its objects references.
//! Every group gets plugin configs without a proxy. It also gets unreadable objects, because they may protect something.

use std::collections::{BTreeMap, BTreeSet};

use gateway_core::config::catalog::ObjectKind;
use gateway_fleet::{DocumentKey, DocumentSet};
use serde_json::Value;

use crate::access::grants::is_like;

/// The proxies that are meant for a group: ids, in which `*` stands for any text. None: all of them.
pub(super) type Patterns = Option<Vec<String>>;

/// What objects refer to.
#[derive(Debug, Default)]
pub(super) struct ReferenceIndex(BTreeMap<DocumentKey, ObjectReferences>);

/// What one object refers to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ObjectReferences {
    upstreams: BTreeSet<String>,
    plugin_configs: BTreeSet<String>,
    /// The proxy of a plugin config.
    proxy: Option<String>,
    /// The plugin of a plugin config.
    plugin: Option<String>,
    /// It is for every proxy, or can't be read.
    is_everybodys: bool,
}

/// What a group gets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Selection {
    keys: BTreeSet<DocumentKey>,
    /// Plugins whose credentials it gets.
    plugins: BTreeSet<String>,
}

impl Selection {
    /// Whether the group gets this document, as far as kinds go that have a choice.
    pub(super) fn has(&self, key: &DocumentKey) -> bool {
        self.keys.contains(key)
    }

    /// Whether the group gets credentials of this type.
    pub(super) fn has_plugin(&self, name: &str) -> bool {
        self.plugins.contains(name)
    }

    /// The plugins that its objects name.
    pub(super) const fn plugins(&self) -> &BTreeSet<String> {
        &self.plugins
    }

    /// The keys of which exactly one of two selections has the document.
    pub(super) fn difference<'s>(&'s self, other: &'s Self) -> impl Iterator<Item = &'s DocumentKey> {
        self.keys.symmetric_difference(&other.keys)
    }

    /// Whether consumers have other credentials for another selection.
    pub(super) fn has_same_plugins(&self, other: &Self) -> bool {
        self.plugins == other.plugins
    }
}

impl ObjectReferences {
    fn of(kind: Option<ObjectKind>, text: &str) -> Self {
        let Ok(document) = serde_json::from_str::<Value>(text) else {
            return Self { is_everybodys: true, ..Self::default() };
        };
        let mut references = Self::default();
        references.collect(&document);
        let text = |key: &str| document.get(key).and_then(Value::as_str).map(str::to_owned);
        match kind {
            Some(ObjectKind::PluginConfigs) => {
                references.plugin = text("plugin_name");
                references.proxy = text("proxy_id");
                let is_of_proxies = matches!(text("scope").as_deref(), Some("proxy" | "proxy_group"));
                references.is_everybodys = !is_of_proxies && references.proxy.is_none();
            }
            Some(_) => {}
            None => references.is_everybodys = true,
        }
        references
    }

    fn collect(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    match (key.as_str(), value.as_str()) {
                        ("upstream_id", Some(id)) => drop(self.upstreams.insert(id.to_owned())),
                        ("plugin_config_id", Some(id)) => drop(self.plugin_configs.insert(id.to_owned())),
                        _ => self.collect(value),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.collect(item)),
            _ => {}
        }
    }
}

impl ReferenceIndex {
    /// Takes up what a document refers to, `None` when it is gone.
    pub(super) fn note(&mut self, key: &DocumentKey, text: Option<&str>) {
        match text {
            Some(text) => {
                let references = ObjectReferences::of(ObjectKind::named(&key.kind), text);
                self.0.insert(key.clone(), references);
            }
            None => drop(self.0.remove(key)),
        }
    }

    /// Takes up all of a configuration.
    pub(super) fn of(documents: &DocumentSet) -> Self {
        let mut index = Self::default();
        documents.iter().for_each(|(key, text)| index.note(key, Some(text)));
        index
    }

    /// What a group gets for whom these proxies are meant.
    pub(super) fn select(&self, patterns: &Patterns) -> Selection {
        let is_meant = |id: &str| match patterns {
            None => true,
            Some(patterns) => patterns.iter().any(|pattern| is_like(pattern, id)),
        };
        let (mut selection, mut upstreams, mut named) =
            (Selection::default(), BTreeSet::new(), BTreeSet::new());
        let mut take = |selection: &mut Selection, key: &DocumentKey, references: &ObjectReferences| {
            upstreams.extend(references.upstreams.iter().cloned());
            selection.plugins.extend(references.plugin.clone());
            selection.keys.insert(key.clone());
        };
        let of_kind = |kind: ObjectKind| self.0.iter().filter(move |(key, _)| *key.kind == *kind.as_str());
        for (key, references) in of_kind(ObjectKind::Proxies) {
            if references.is_everybodys || is_meant(&key.id) {
                named.extend(references.plugin_configs.iter().map(String::as_str));
                take(&mut selection, key, references);
            }
        }
        for (key, references) in of_kind(ObjectKind::PluginConfigs) {
            let is_of_ours = references.proxy.as_deref().is_some_and(is_meant);
            if references.is_everybodys || is_of_ours || named.contains(&*key.id) || patterns.is_none() {
                take(&mut selection, key, references);
            }
        }
        for (key, references) in &self.0 {
            let is_taken = match ObjectKind::named(&key.kind) {
                Some(ObjectKind::Upstreams) => {
                    references.is_everybodys || upstreams.contains(&*key.id) || patterns.is_none()
                }
                Some(ObjectKind::Consumers) | None => true,
                Some(ObjectKind::Proxies | ObjectKind::PluginConfigs) => false,
            };
            if is_taken {
                selection.keys.insert(key.clone());
            }
        }
        selection
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_group_gets_what_its_proxies_refer_to() {
        let mut documents = DocumentSet::default();
        let all = [
            ("upstreams", "u1", json!({})),
            ("upstreams", "u2", json!({})),
            ("upstreams", "u3", json!({})),
            ("plugin_configs", "global", json!({ "plugin_name": "waf", "scope": "global" })),
            ("plugin_configs", "without-scope", json!({ "plugin_name": "cors" })),
            ("plugin_configs", "keys", json!({ "plugin_name": "key_auth", "scope": "proxy_group" })),
            (
                "plugin_configs",
                "own",
                json!({ "plugin_name": "hmac_auth", "scope": "proxy", "proxy_id": "b" }),
            ),
            (
                "plugin_configs",
                "split",
                json!({
                    "plugin_name": "traffic_split", "scope": "proxy_group", "config": { "to": [{ "upstream_id": "u3" }] },
                }),
            ),
            (
                "proxies",
                "a",
                json!({ "upstream_id": "u1", "plugins": [
                { "plugin_config_id": "keys" }, { "plugin_config_id": "split" }] }),
            ),
            ("proxies", "b", json!({ "upstream_id": "u2" })),
            ("consumers", "ann", json!({})),
        ];
        let put =
            |(kind, id, value): &(&str, &str, Value)| (DocumentKey::new(*kind, *id), Some(value.to_string()));
        documents.apply(all.iter().map(put));
        let broken = DocumentKey::new("plugin_configs", "damaged");
        documents.apply([(broken, Some("{".to_owned()))]);
        let index = ReferenceIndex::of(&documents);
        let names = |patterns: Patterns| {
            let selection = index.select(&patterns);
            let names: Vec<String> = selection.keys.iter().map(|key| key.id.to_string()).collect();
            (names, selection.plugins.into_iter().collect::<Vec<_>>())
        };
        let (keys, plugins) = names(Some(vec!["a".to_owned()]));
        assert_eq!(keys, ["ann", "damaged", "global", "keys", "split", "without-scope", "a", "u1", "u3"]);
        assert_eq!(plugins, ["cors", "key_auth", "traffic_split", "waf"]);
        let (keys, plugins) = names(Some(vec!["b".to_owned()]));
        assert_eq!(keys, ["ann", "damaged", "global", "own", "without-scope", "b", "u2"]);
        assert!(!plugins.contains(&"key_auth".to_owned()));
        assert_eq!(names(None).0.len(), documents.len());
        assert_eq!(names(Some(Vec::new())).0, ["ann", "damaged", "global", "without-scope"]);
    }
}
