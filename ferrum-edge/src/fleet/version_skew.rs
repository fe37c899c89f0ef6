//! What edges of an earlier release get: the configuration without what they don't know, as far as requests are answered rightly
//! without it.
//!
//! A schema says of a setting since which release there is one (`since`), and of a setting or of a plugin's settings as a whole
//! whether older edges may go without (`"older": "leave_out"`). Whatever says nothing is kept: an edge that does not know it can't
//! use the object, and closes what that would have protected. So guards are never dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use aws_lc_rs::digest::{SHA256, digest};
use gateway_core::config::catalog::ObjectKind;
use gateway_core::plugin::Registry;
use gateway_fleet::{Abilities, DocumentKey, DocumentSet};
use serde_json::Value;

/// Between a group and what stands for the abilities of its older edges; no group's name has one.
const SEPARATOR: char = '@';
/// Kinds of older edges that a group has at a time; further ones get everything, and close what they don't know.
const MAX_KINDS: usize = 16;
/// Nested settings are looked at so far: schemas refer to themselves.
const MAX_DEPTH: usize = 12;

type Release = (u64, u64, u64);

/// A setting that came after the first release.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Setting {
    kind: ObjectKind,
    /// Of which plugin's settings; `None` of objects themselves.
    plugin: Option<&'static str>,
    /// Keys that lead to it; `*` stands for any item or name.
    path: Vec<String>,
    since: Release,
    is_left_out: bool,
}

impl Setting {
    /// Such as `proxies.retry.new_setting`.
    fn name(&self) -> String {
        let plugin = self.plugin.map(|plugin| format!("({plugin})"));
        format!("{}{}.{}", self.kind, plugin.unwrap_or_default(), self.path.join("."))
    }

    fn is_in(&self, kind: ObjectKind, document: &Value) -> bool {
        let is_of_plugin = self.plugin.is_none_or(|plugin| document["plugin_name"] == plugin);
        kind == self.kind && is_of_plugin && !pointers_to(document, &self.path).is_empty()
    }
}

/// What edges may lack.
#[derive(Debug, Default)]
pub(super) struct Skew {
    settings: Vec<Setting>,
    /// Plugins without which requests are answered rightly.
    dispensable: BTreeSet<&'static str>,
    /// What the older edges of each group lack, by the name of their view.
    kinds: RwLock<BTreeMap<Arc<str>, OlderEdges>>,
}

/// Edges of a group that lack the same.
#[derive(Debug, Clone)]
pub(super) struct OlderEdges {
    pub(super) group: Arc<str>,
    pub(super) lacking: Arc<Lacking>,
}

/// What an edge lacks that it may go without.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Lacking {
    plugins: BTreeSet<&'static str>,
    settings: Vec<Setting>,
}

/// A configuration as older edges get it.
#[derive(Debug, Clone, Default)]
pub(super) struct Reduced {
    pub(super) documents: DocumentSet,
    /// What is left out, such as `plugin_configs/timing` or `proxies/shop: retry.new_setting`.
    pub(super) left_out: Vec<String>,
}

/// What is left out of a view, for reports.
#[derive(Debug, Clone, Default)]
pub(super) struct LeftOut {
    pub(super) count: usize,
    /// The first of it.
    pub(super) first: Vec<String>,
}

fn release(text: &str) -> Option<Release> {
    let mut numbers = text.split(['-', '+']).next()?.split('.').map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some((next()?, next()?, next()?))
}

/// The group of a view.
pub(super) fn group_of(view: &str) -> &str {
    view.split(SEPARATOR).next().unwrap_or(view)
}

/// Whether a view is a group's own, and not that of its older edges.
pub(super) fn is_whole(view: &str) -> bool {
    !view.contains(SEPARATOR)
}

impl Skew {
    /// As the schemas of this release say.
    pub(super) fn of(registry: &Registry) -> Self {
        let root = gateway_core::config::file::File::schema().as_value();
        let mut skew = Self::default();
        for kind in ObjectKind::ALL {
            let items = &root["properties"][kind.as_str()]["items"];
            collect(root, items, &mut Vec::new(), &mut |path, since, is_left_out| {
                skew.settings.push(Setting { kind, plugin: None, path, since, is_left_out });
            });
        }
        for entry in registry.entries() {
            let schema = (entry.schema)();
            skew.add_plugin(entry.name, schema.as_value());
        }
        skew
    }

    fn add_plugin(&mut self, name: &'static str, schema: &Value) {
        if is_left_out(schema) {
            self.dispensable.insert(name);
        }
        let mut path = vec!["config".to_owned()];
        let settings = &mut self.settings;
        collect(schema, schema, &mut path, &mut |path, since, is_left_out| {
            let (kind, plugin) = (ObjectKind::PluginConfigs, Some(name));
            settings.push(Setting { kind, plugin, path, since, is_left_out });
        });
    }

    fn lacking(&self, abilities: &Abilities) -> Lacking {
        let Some(has) = release(&abilities.version) else { return Lacking::default() };
        let plugins = missing(abilities, self.dispensable.iter().copied());
        let is_lacking = |setting: &&Setting| setting.is_left_out && setting.since > has;
        Lacking { plugins, settings: self.settings.iter().filter(is_lacking).cloned().collect() }
    }

    /// The view that an edge of this group gets, and whether it is new.
    pub(super) fn view(&self, group: &str, abilities: &Abilities) -> (Arc<str>, bool) {
        let (group, lacking): (Arc<str>, _) = (group.into(), self.lacking(abilities));
        if lacking == Lacking::default() {
            return (group, false);
        }
        let names = lacking.plugins.iter().map(ToString::to_string);
        let all: Vec<String> = names.chain(lacking.settings.iter().map(Setting::name)).collect();
        let hash = digest(&SHA256, all.join("\n").as_bytes());
        let short: String = hash.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let view: Arc<str> = format!("{group}{SEPARATOR}{short}").into();
        let mut kinds = self.kinds.write().unwrap_or_else(PoisonError::into_inner);
        let is_room = kinds.values().filter(|older| older.group == group).count() < MAX_KINDS;
        let is_new = !kinds.contains_key(&view);
        if is_new && !is_room {
            return (group, false);
        }
        if is_new {
            kinds.insert(view.clone(), OlderEdges { group, lacking: Arc::new(lacking) });
        }
        (view, is_new)
    }

    /// Forgets the views of older edges that are not needed, and returns their names.
    pub(super) fn retain(&self, is_needed: impl Fn(&str) -> bool) -> Vec<Arc<str>> {
        let mut kinds = self.kinds.write().unwrap_or_else(PoisonError::into_inner);
        let unneeded: Vec<_> = kinds.keys().filter(|view| !is_needed(view)).cloned().collect();
        kinds.retain(|view, _| is_needed(view));
        unneeded
    }

    /// The views of older edges.
    pub(super) fn kinds(&self) -> Vec<(Arc<str>, OlderEdges)> {
        let kinds = self.kinds.read().unwrap_or_else(PoisonError::into_inner);
        kinds.iter().map(|(view, older)| (view.clone(), older.clone())).collect()
    }

    /// What an edge lacks of these documents: plugins, settings, and which of both are left out there.
    pub(super) fn lacking_of(&self, abilities: &Abilities, documents: &[(ObjectKind, Value)]) -> LackingOf {
        if abilities.version.is_empty() {
            return LackingOf::default();
        }
        let configs = documents.iter().filter(|(kind, _)| *kind == ObjectKind::PluginConfigs);
        let names: BTreeSet<&str> = configs.filter_map(|(_, one)| one["plugin_name"].as_str()).collect();
        let plugins = missing(abilities, names.into_iter());
        let has = release(&abilities.version).unwrap_or_default();
        let is_newer = |setting: &&Setting| {
            setting.since > has && documents.iter().any(|(kind, document)| setting.is_in(*kind, document))
        };
        let settings: Vec<&Setting> = self.settings.iter().filter(is_newer).collect();
        let left_out =
            plugins.iter().filter(|name| self.dispensable.contains(*name)).map(|name| (*name).to_owned());
        let left_out = left_out.chain(settings.iter().filter(|one| one.is_left_out).map(|one| one.name()));
        LackingOf {
            left_out: left_out.collect(),
            settings: settings.iter().map(|one| one.name()).collect(),
            plugins: plugins.into_iter().map(str::to_owned).collect(),
        }
    }
}

/// What an edge lacks of what is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LackingOf {
    pub(crate) plugins: Vec<String>,
    pub(crate) settings: Vec<String>,
    /// Of both, what is left out there; what uses the others is closed.
    pub(crate) left_out: Vec<String>,
}

fn missing<'n>(abilities: &Abilities, plugins: impl Iterator<Item = &'n str>) -> BTreeSet<&'n str> {
    let has = |name: &str| abilities.capabilities.iter().any(|one| one.strip_prefix("plugin:") == Some(name));
    plugins.filter(|name| !has(name)).collect()
}

fn is_left_out(schema: &Value) -> bool {
    schema["older"] == "leave_out"
}

/// Finds settings that say `since`.
fn collect(
    root: &Value,
    schema: &Value,
    path: &mut Vec<String>,
    found: &mut impl FnMut(Vec<String>, Release, bool),
) {
    if path.len() > MAX_DEPTH {
        return;
    }
    if let Some(name) = schema["$ref"].as_str()
        && let Some(to) = root.pointer(name.trim_start_matches('#'))
    {
        collect(root, to, path, found);
    }
    for (key, property) in schema["properties"].as_object().into_iter().flatten() {
        path.push(key.clone());
        match property["since"].as_str().and_then(release) {
            Some(since) => found(path.clone(), since, is_left_out(property)),
            None => collect(root, property, path, found),
        }
        path.pop();
    }
    for inner in
        ["items", "additionalProperties"].map(|key| &schema[key]).into_iter().filter(|one| one.is_object())
    {
        path.push("*".to_owned());
        collect(root, inner, path, found);
        path.pop();
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        schema[key].as_array().into_iter().flatten().for_each(|one| collect(root, one, path, found));
    }
}

/// The pointers to the values that a path leads to.
fn pointers_to(document: &Value, path: &[String]) -> Vec<String> {
    let mut pointers = vec![String::new()];
    for key in path {
        let mut next = Vec::new();
        for pointer in &pointers {
            match (document.pointer(pointer), key.as_str()) {
                (Some(Value::Array(items)), "*") => {
                    next.extend((0..items.len()).map(|at| format!("{pointer}/{at}")))
                }
                (Some(Value::Object(fields)), "*") => {
                    next.extend(fields.keys().map(|name| format!("{pointer}/{}", escaped(name))))
                }
                (Some(Value::Object(fields)), key) if fields.contains_key(key) => {
                    next.push(format!("{pointer}/{}", escaped(key)))
                }
                _ => {}
            }
        }
        pointers = next;
    }
    pointers
}

fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

impl Lacking {
    /// A configuration without what is lacked.
    pub(super) fn reduced(&self, whole: &DocumentSet) -> Reduced {
        let mut reduced = Reduced { documents: whole.clone(), left_out: Vec::new() };
        let configs = whole.iter().filter(|(key, _)| *key.kind == *ObjectKind::PluginConfigs.as_str());
        let is_lacked = |text: &str| {
            let is_mentioned = self.plugins.iter().any(|name| text.contains(name));
            let document: Option<Value> = is_mentioned.then(|| serde_json::from_str(text).ok()).flatten();
            document.is_some_and(|one| {
                one["plugin_name"].as_str().is_some_and(|name| self.plugins.contains(name))
            })
        };
        let dropped: BTreeSet<&DocumentKey> =
            configs.filter(|(_, text)| is_lacked(text)).map(|(key, _)| key).collect();
        let mut changes: Vec<(DocumentKey, Option<Arc<str>>)> = Vec::new();
        for (key, text) in whole.iter() {
            if dropped.contains(key) {
                reduced.left_out.push(format!("{}/{}", key.kind, key.id));
                changes.push((key.clone(), None));
            } else if let Some(text) = self.without(key, text, &dropped, &mut reduced.left_out) {
                changes.push((key.clone(), Some(text.into())));
            }
        }
        reduced.documents.apply(changes);
        reduced
    }

    /// A document without what is lacked; `None` if it has nothing of that.
    fn without(
        &self,
        key: &DocumentKey,
        text: &str,
        dropped: &BTreeSet<&DocumentKey>,
        left_out: &mut Vec<String>,
    ) -> Option<String> {
        let kind = ObjectKind::named(&key.kind)?;
        let is_mentioned =
            |setting: &Setting| setting.path.last().is_some_and(|name| text.contains(name.as_str()));
        let may_refer =
            kind == ObjectKind::Proxies && !dropped.is_empty() && text.contains("plugin_config_id");
        if !may_refer && !self.settings.iter().any(is_mentioned) {
            return None;
        }
        let mut document: Value = serde_json::from_str(text).ok()?;
        let mut is_changed = false;
        if may_refer && let Some(plugins) = document.get_mut("plugins").and_then(Value::as_array_mut) {
            let before = plugins.len();
            let is_dropped = |one: &Value| dropped.iter().any(|key| one["plugin_config_id"] == *key.id);
            plugins.retain(|one| !is_dropped(one));
            is_changed = plugins.len() < before;
        }
        for setting in
            self.settings.iter().filter(|setting| setting.is_in(kind, &document)).collect::<Vec<_>>()
        {
            for pointer in pointers_to(&document, &setting.path) {
                let Some((parent, name)) = pointer.rsplit_once('/') else { continue };
                let name = name.replace("~1", "/").replace("~0", "~");
                if let Some(Value::Object(fields)) = document.pointer_mut(parent) {
                    fields.remove(&name);
                }
            }
            left_out.push(format!("{}/{}: {}", key.kind, key.id, setting.path.join(".")));
            is_changed = true;
        }
        is_changed.then(|| document.to_string())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hello(version: &str, plugins: &[&str]) -> Abilities {
        let capabilities = plugins.iter().map(|name| format!("plugin:{name}")).collect();
        Abilities { version: version.to_owned(), capabilities, ..Abilities::default() }
    }

    /// A release in which settings of proxies and of plugins are new, and two plugins.
    fn skew() -> Skew {
        let mut skew = Skew::default();
        let schema = json!({
            "properties": {
                "old": {}, "retry": { "$ref": "#/$defs/Retry" },
                "hint": { "since": "0.2.0", "older": "leave_out" },
                "only_from": { "since": "0.2.0" },
                "routes": { "items": { "properties": { "note": { "since": "0.2.0", "older": "leave_out" } } } },
            },
            "$defs": { "Retry": { "properties": { "jitter": { "since": "0.2.0", "older": "leave_out" }, "again": { "$ref": "#/$defs/Retry" } } } },
        });
        collect(&schema, &schema, &mut Vec::new(), &mut |path, since, is_left_out| {
            skew.settings.push(Setting { kind: ObjectKind::Proxies, plugin: None, path, since, is_left_out });
        });
        skew.add_plugin("timing", &json!({ "older": "leave_out" }));
        skew.add_plugin(
            "keys",
            &json!({ "properties": {
            "realm": { "since": "0.2.0", "older": "leave_out" }, "hidden": { "since": "0.2.0" } } }),
        );
        skew
    }

    fn set(objects: &[(&str, &str, Value)]) -> DocumentSet {
        let mut set = DocumentSet::default();
        set.apply(
            objects.iter().map(|(kind, id, value)| (DocumentKey::new(*kind, *id), Some(value.to_string()))),
        );
        set
    }

    /// Each item × a guard or none × an older edge or one of this release.
    #[test]
    fn older_edges_get_everything_but_what_they_may_go_without() {
        let rows = [
            ("proxies", "hint", json!({ "hint": 1 }), Some(json!({}))),
            (
                "proxies",
                "retry.jitter",
                json!({ "retry": { "jitter": 1, "times": 2 } }),
                Some(json!({ "retry": { "times": 2 } })),
            ),
            (
                "proxies",
                "routes.*.note",
                json!({ "routes": [{ "note": 1, "to": 2 }, { "to": 3 }] }),
                Some(json!({ "routes": [{ "to": 2 }, { "to": 3 }] })),
            ),
            // A guard stays: the edge does not know it, and closes the proxy.
            ("proxies", "only_from", json!({ "only_from": ["10.0.0.0/8"] }), None),
            (
                "plugin_configs",
                "config.realm",
                json!({ "plugin_name": "keys", "config": { "realm": 1, "header": 2 } }),
                Some(json!({ "plugin_name": "keys", "config": { "header": 2 } })),
            ),
            (
                "plugin_configs",
                "config.hidden",
                json!({ "plugin_name": "keys", "config": { "hidden": true } }),
                None,
            ),
            // The same key of another plugin is another setting.
            (
                "plugin_configs",
                "config.realm",
                json!({ "plugin_name": "basic", "config": { "realm": 1 } }),
                None,
            ),
            ("proxies", "old", json!({ "old": 1 }), None),
        ];
        let skew = skew();
        for (kind, setting, document, expected) in rows {
            let whole = set(&[(kind, "one", document.clone())]);
            for (version, is_older) in
                [("0.1.0", true), ("0.1.9-rc.1", true), ("0.2.0", false), ("0.3.1", false)]
            {
                let lacking = skew.lacking(&hello(version, &["timing", "keys", "basic"]));
                let reduced = lacking.reduced(&whole);
                let got: Value =
                    serde_json::from_str(reduced.documents.get(&DocumentKey::new(kind, "one")).unwrap())
                        .unwrap();
                let left = expected.as_ref().filter(|_| is_older);
                assert_eq!(&got, left.unwrap_or(&document), "{setting} for {version}");
                let names: Vec<String> = left.map(|_| format!("{kind}/one: {setting}")).into_iter().collect();
                assert_eq!(reduced.left_out, names, "{setting} for {version}");
            }
        }
    }

    #[test]
    fn a_plugin_that_answers_do_not_depend_on_is_left_out_and_a_guard_is_not() {
        let skew = skew();
        let whole = set(&[
            ("plugin_configs", "t", json!({ "plugin_name": "timing" })),
            ("plugin_configs", "k", json!({ "plugin_name": "keys" })),
            (
                "proxies",
                "p",
                json!({ "plugins": [{ "plugin_config_id": "t" }, { "plugin_config_id": "k" }] }),
            ),
        ]);
        for (plugins, is_left_out) in
            [(&["keys"][..], true), (&[], true), (&["timing", "keys"], false), (&["timing"], false)]
        {
            let reduced = skew.lacking(&hello("0.2.0", plugins)).reduced(&whole);
            assert_eq!(
                reduced.left_out,
                if is_left_out { vec!["plugin_configs/t"] } else { vec![] },
                "{plugins:?}"
            );
            let proxy: Value =
                serde_json::from_str(reduced.documents.get(&DocumentKey::new("proxies", "p")).unwrap())
                    .unwrap();
            assert_eq!(proxy["plugins"].as_array().unwrap().len(), if is_left_out { 1 } else { 2 });
            assert!(
                reduced.documents.get(&DocumentKey::new("plugin_configs", "k")).is_some(),
                "it closes the proxy there"
            );
        }
    }

    #[test]
    fn edges_alike_share_a_view_and_their_kinds_are_bounded() {
        let skew = skew();
        let all = hello("0.2.0", &["timing", "keys"]);
        let view = |group: &str, abilities: &Abilities| skew.view(group, abilities).0;
        assert_eq!((&*view("eu", &all), &*view("eu", &Abilities::default())), ("eu", "eu"));
        let (older, is_new) = skew.view("eu", &hello("0.1.0", &["timing", "keys"]));
        assert!(is_new);
        assert_eq!(skew.view("eu", &hello("0.1.3", &["timing"])), (older.clone(), false));
        assert_eq!((group_of(&older), is_whole(&older), is_whole("eu")), ("eu", false, true));
        assert_ne!(older, view("us", &hello("0.1.0", &["timing", "keys"])));
        assert_eq!(skew.kinds().len(), 2);
        assert_eq!(skew.retain(|view| view.starts_with("us")), [older]);
        assert_eq!(skew.kinds().len(), 1);
        let documents = [
            (ObjectKind::Proxies, json!({ "hint": 1, "only_from": [] })),
            (ObjectKind::PluginConfigs, json!({ "plugin_name": "timing" })),
        ];
        let lacking = skew.lacking_of(&hello("0.1.0", &["keys"]), &documents);
        assert_eq!(lacking.plugins, ["timing"]);
        assert_eq!(lacking.settings, ["proxies.hint", "proxies.only_from"]);
        assert_eq!(lacking.left_out, ["timing", "proxies.hint"]);
        assert_eq!(skew.lacking_of(&all, &documents), LackingOf::default());
    }
}
