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
pub(super) struct ReferenceIndex {
    objects: BTreeMap<DocumentKey, ObjectReferences>,
    /// How many plugin configs name a plugin.
    plugins: BTreeMap<String, usize>,
    /// Counts changes of what is above: while it stays, every group gets the same objects.
    version: u64,
}

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
    /// `None`: every object.
    keys: Option<BTreeSet<DocumentKey>>,
    /// Plugins whose credentials it gets.
    plugins: BTreeSet<String>,
}

impl Selection {
    /// No object.
    pub(super) fn nothing() -> Self {
        Self { keys: Some(BTreeSet::new()), plugins: BTreeSet::new() }
    }

    /// Whether the group gets this document, as far as kinds go that have a choice.
    pub(super) fn has(&self, key: &DocumentKey) -> bool {
        self.keys.as_ref().is_none_or(|keys| keys.contains(key))
    }

    /// Whether the group gets credentials of this type.
    pub(super) fn has_plugin(&self, name: &str) -> bool {
        self.plugins.contains(name)
    }

    /// The plugins that its objects name.
    pub(super) const fn plugins(&self) -> &BTreeSet<String> {
        &self.plugins
    }

    /// Whether the group gets every object.
    pub(super) const fn is_everything(&self) -> bool {
        self.keys.is_none()
    }

    /// The keys of which exactly one of two selections has the document, if neither has every object.
    pub(super) fn difference<'s>(&'s self, other: &'s Self) -> impl Iterator<Item = &'s DocumentKey> {
        let keys = self.keys.iter().zip(&other.keys);
        keys.flat_map(|(keys, others)| keys.symmetric_difference(others))
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
        let new = text.map(|text| ObjectReferences::of(ObjectKind::named(&key.kind), text));
        if self.objects.get(key) == new.as_ref() {
            return;
        }
        self.version += 1;
        if let Some(plugin) = new.as_ref().and_then(|new| new.plugin.clone()) {
            *self.plugins.entry(plugin).or_default() += 1;
        }
        let old = match new {
            Some(new) => self.objects.insert(key.clone(), new),
            None => self.objects.remove(key),
        };
        if let Some(plugin) = old.and_then(|old| old.plugin)
            && let Some(count) = self.plugins.get_mut(&plugin)
        {
            *count -= 1;
            if *count == 0 {
                self.plugins.remove(&plugin);
            }
        }
    }

    /// Counts changes after which a group may get other objects than before.
    pub(super) const fn version(&self) -> u64 {
        self.version
    }

    /// Takes up all of a configuration.
    pub(super) fn of(documents: &DocumentSet) -> Self {
        let mut index = Self::default();
        documents.iter().for_each(|(key, text)| index.note(key, Some(text)));
        index
    }

    /// What a group gets for whom these proxies are meant.
    pub(super) fn select(&self, patterns: &Patterns) -> Selection {
        let Some(patterns) = patterns else {
            return Selection { keys: None, plugins: self.plugins.keys().cloned().collect() };
        };
        let is_meant = |id: &str| patterns.iter().any(|pattern| is_like(pattern, id));
        let (mut keys, mut plugins) = (BTreeSet::new(), BTreeSet::new());
        let (mut upstreams, mut named) = (BTreeSet::new(), BTreeSet::new());
        let mut take =
            |keys: &mut BTreeSet<DocumentKey>, key: &DocumentKey, references: &ObjectReferences| {
                upstreams.extend(references.upstreams.iter().cloned());
                plugins.extend(references.plugin.clone());
                keys.insert(key.clone());
            };
        let of_kind =
            |kind: ObjectKind| self.objects.iter().filter(move |(key, _)| *key.kind == *kind.as_str());
        for (key, references) in of_kind(ObjectKind::Proxies) {
            if references.is_everybodys || is_meant(&key.id) {
                named.extend(references.plugin_configs.iter().map(String::as_str));
                take(&mut keys, key, references);
            }
        }
        for (key, references) in of_kind(ObjectKind::PluginConfigs) {
            let is_of_ours = references.proxy.as_deref().is_some_and(is_meant);
            if references.is_everybodys || is_of_ours || named.contains(&*key.id) {
                take(&mut keys, key, references);
            }
        }
        for (key, references) in &self.objects {
            let is_taken = match ObjectKind::named(&key.kind) {
                Some(ObjectKind::Upstreams) => references.is_everybodys || upstreams.contains(&*key.id),
                Some(ObjectKind::Consumers) | None => true,
                Some(ObjectKind::Proxies | ObjectKind::PluginConfigs) => false,
            };
            if is_taken {
                keys.insert(key.clone());
            }
        }
        Selection { keys: Some(keys), plugins }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_of_anything_but_references_selects_the_same() {
        let mut index = ReferenceIndex::default();
        let (proxy, config) = (DocumentKey::new("proxies", "a"), DocumentKey::new("plugin_configs", "k"));
        let mut versions = Vec::new();
        let mut note = |index: &mut ReferenceIndex, key: &DocumentKey, value: Option<Value>| {
            index.note(key, value.map(|value| value.to_string()).as_deref());
            versions.push(index.version());
        };
        note(&mut index, &proxy, Some(json!({ "upstream_id": "u", "backend_port": 1 })));
        note(&mut index, &proxy, Some(json!({ "upstream_id": "u", "backend_port": 2 })));
        note(&mut index, &proxy, Some(json!({ "upstream_id": "v", "backend_port": 2 })));
        for plugin in ["cors", "waf"] {
            note(&mut index, &config, Some(json!({ "plugin_name": plugin, "scope": "global" })));
            let plugins = index.select(&None).plugins;
            assert_eq!(plugins.into_iter().collect::<Vec<_>>(), [plugin]);
        }
        note(&mut index, &config, None);
        note(&mut index, &config, None);
        assert_eq!(versions, [1, 1, 2, 3, 4, 5, 5]);
        assert!(index.select(&None).plugins.is_empty());
    }

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
            let selected = documents.iter().map(|(key, _)| key).filter(|key| selection.has(key));
            let selected: BTreeSet<&DocumentKey> = selected.collect();
            let names: Vec<String> = selected.iter().map(|key| key.id.to_string()).collect();
            (names, selection.plugins.into_iter().collect::<Vec<_>>())
        };
        let (keys, plugins) = names(Some(vec!["a".to_owned()]));
        assert_eq!(keys, ["ann", "damaged", "global", "keys", "split", "without-scope", "a", "u1", "u3"]);
        assert_eq!(plugins, ["cors", "key_auth", "traffic_split", "waf"]);
        let (keys, plugins) = names(Some(vec!["b".to_owned()]));
        assert_eq!(keys, ["ann", "damaged", "global", "own", "without-scope", "b", "u2"]);
        assert!(!plugins.contains(&"key_auth".to_owned()));
        assert_eq!(names(None).0.len(), documents.len());
        assert_eq!(names(None).1, ["cors", "hmac_auth", "key_auth", "traffic_split", "waf"]);
        assert_eq!(names(Some(Vec::new())).0, ["ann", "damaged", "global", "without-scope"]);
    }
}
