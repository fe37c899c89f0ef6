//! A declarative configuration with everything where it belongs: what stands apart from its owner, settings that plugins
//! share, defaults, and secrets that stand elsewhere.

use std::collections::HashMap;

use regex::{Captures, Regex};

use crate::draft::Import;
use crate::report::At;
use crate::tree::{Node, NodeValue};

/// Sections of the document whose objects belong to others: the others' section, and the key that names the owner.
const OWNED: &[(&str, &str, &str)] = &[
    ("targets", "upstreams", "upstream"),
    ("acls", "consumers", "consumer"),
    ("keyauth_credentials", "consumers", "consumer"),
    ("basicauth_credentials", "consumers", "consumer"),
    ("hmacauth_credentials", "consumers", "consumer"),
    ("jwt_secrets", "consumers", "consumer"),
    ("oauth2_credentials", "consumers", "consumer"),
    ("mtls_auth_credentials", "consumers", "consumer"),
];

/// The document with all of that in its place.
pub(super) fn whole(out: &mut Import, document: Node) -> Node {
    let version = document.get("_format_version").and_then(Node::plain).unwrap_or_default();
    let mut folding = Folding {
        out,
        shared: document.get("_plugin_configs").map_or_else(Vec::new, |it| it.entries().to_vec()),
        defaults: document.path(&["_info", "defaults"]).map_or_else(Vec::new, |it| it.entries().to_vec()),
        vaults: vaults(&document),
        is_old: version.starts_with("1.") || version.starts_with("2."),
        known: References::default(),
    };
    let mut entries = match document.value {
        NodeValue::Map(entries) => entries,
        _ => Vec::new(),
    };
    entries.retain(|(key, _)| key != "_plugin_configs" && key != "vaults");
    for (key, value) in &mut entries {
        folding.node(key, value);
    }
    for (section, owners, named) in OWNED {
        belong(&mut entries, section, owners, named);
    }
    Node::new(document.at, NodeValue::Map(entries))
}

/// Where texts of the environment stand: `${{ env "NAME" }}` of decK, and `{vault://VAULT/NAME}`.
struct References {
    deck: Option<Regex>,
    vault: Option<Regex>,
}

impl Default for References {
    fn default() -> Self {
        Self {
            deck: Regex::new(r#"\$\{\{\s*env\s+["']([A-Za-z_][A-Za-z0-9_]*)["']\s*\}\}"#).ok(),
            vault: Regex::new(r"^\{vault://([^/}]+)/([^}]+)\}$").ok(),
        }
    }
}

/// The vaults that are the environment, by the name under which they are referred to, and what their variables begin with.
fn vaults(document: &Node) -> HashMap<String, String> {
    let mut made = HashMap::from([("env".to_owned(), String::new())]);
    for vault in document.each("vaults").iter().filter(|it| it.text_of("name") == Some("env")) {
        let start = vault.path(&["config", "prefix"]).and_then(Node::str).unwrap_or_default();
        if let Some(prefix) = vault.text_of("prefix") {
            made.insert(prefix.to_owned(), start.to_owned());
        }
    }
    made
}

struct Folding<'o> {
    out: &'o mut Import,
    shared: Vec<(String, Node)>,
    defaults: Vec<(String, Node)>,
    vaults: HashMap<String, String>,
    /// Paths with letters of regexes are regexes, as they were before Kong 3.
    is_old: bool,
    known: References,
}

impl Folding<'_> {
    /// A value of a section. Who reads it is not known yet.
    fn node(&mut self, section: &str, node: &mut Node) {
        node.forget_read();
        match &mut node.value {
            NodeValue::Text(text) => {
                if let Some(made) = self.text(node.at, text) {
                    *text = made;
                }
            }
            NodeValue::List(list) => list.iter_mut().for_each(|item| self.node(section, item)),
            NodeValue::Map(made) => {
                made.iter_mut().for_each(|(key, value)| self.node(key, value));
                self.settings(made);
                let singular = section.strip_suffix('s').unwrap_or(section);
                if let Some((_, defaults)) = self.defaults.iter().find(|(key, _)| key == singular) {
                    fill(made, defaults.all_entries());
                }
                if self.is_old && section == "routes" {
                    made.iter_mut()
                        .filter(|(key, _)| key == "paths")
                        .for_each(|(_, paths)| as_regexes(paths));
                }
            }
            NodeValue::Null | NodeValue::Bool(_) | NodeValue::Int(_) | NodeValue::Float(_) => {}
        }
    }

    /// Gives a plugin the settings that it shares with others. Its own count where both say something.
    fn settings(&self, plugin: &mut Vec<(String, Node)>) {
        let Some(at) = plugin.iter().position(|(key, value)| key == "_config" && value.str().is_some())
        else {
            return;
        };
        let shared = self.shared.iter().find(|(name, _)| Some(name.as_str()) == plugin[at].1.str());
        // One that is not there is named, as a key that nobody reads.
        let Some((_, shared)) = shared else { return };
        let place = plugin.remove(at).1.at;
        match plugin.iter_mut().find(|(key, _)| key == "config") {
            Some((_, Node { value: NodeValue::Map(own), .. })) => fill(own, shared.all_entries()),
            Some((_, config)) => *config = shared.clone(),
            None => plugin.push(("config".to_owned(), Node::new(place, shared.value.clone()))),
        }
    }

    /// A text with references to variables as the gateway writes them; `None` without references. One that stayed as it is would
    /// be a secret that everybody knows.
    fn text(&mut self, at: At, text: &str) -> Option<String> {
        if !text.contains('{') {
            return None;
        }
        if let Some(found) = self.known.vault.as_ref().and_then(|regex| regex.captures(text.trim())) {
            return Some(self.secret(at, &found[1], &found[2]));
        }
        let deck = self.known.deck.as_ref().filter(|_| text.contains("${{"))?;
        Some(deck.replace_all(text, |found: &Captures<'_>| format!("${{env:{}}}", &found[1])).into_owned())
    }

    /// A secret of a vault as a variable.
    fn secret(&mut self, at: At, vault: &str, name: &str) -> String {
        let upper = |text: &str| -> String {
            let good = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
            text.chars().map(good).collect()
        };
        if let Some(start) = self.vaults.get(vault).filter(|_| !name.contains('/')) {
            return format!("${{env:{}{}}}", upper(start), upper(name));
        }
        let variable = format!("VAULT_{}_{}", upper(vault), upper(name));
        let what = format!("{{vault://{vault}/{name}}}");
        let why = format!("the vault is not asked; its value is read from the variable {variable}");
        self.out.partial(at, what, why, "set the variable");
        format!("${{env:{variable}}}")
    }
}

/// Adds what is not there yet.
fn fill(entries: &mut Vec<(String, Node)>, more: &[(String, Node)]) {
    for (key, value) in more {
        match entries.iter_mut().find(|(known, _)| known == key) {
            None => entries.push((key.clone(), value.clone())),
            Some((_, own)) => {
                if let NodeValue::Map(own) = &mut own.value {
                    fill(own, value.all_entries());
                }
            }
        }
    }
}

/// Marks the paths that were regexes before Kong 3 as such.
fn as_regexes(paths: &mut Node) {
    let NodeValue::List(list) = &mut paths.value else { return };
    for path in list {
        let NodeValue::Text(text) = &mut path.value else { continue };
        let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || ".-_~/%".contains(c));
        if !is_plain && !text.starts_with('~') {
            text.insert(0, '~');
        }
    }
}

/// Gives each object of a section to its owner, and leaves those whose owner is not there.
fn belong(entries: &mut Vec<(String, Node)>, section: &str, owners: &str, named: &str) {
    let Some(at) = entries.iter().position(|(key, value)| key == section && !value.is_empty()) else {
        return;
    };
    let (key, Node { at: place, value, .. }) = entries.remove(at);
    let NodeValue::List(list) = value else { return entries.insert(at, (key, Node::new(place, value))) };
    let mut left = Vec::new();
    let mut all = entries.iter_mut().find(|(key, _)| key == owners).map(|(_, all)| &mut all.value);
    let places = all.as_deref().map(places).unwrap_or_default();
    for item in list {
        let owner = item.get(named).and_then(|it| {
            let name = it.str().or_else(|| ["id", "name", "username"].iter().find_map(|key| it.text_of(key)));
            name.map(str::to_owned)
        });
        let place = owner.and_then(|owner| places.get(&owner).copied());
        let found = match (place, &mut all) {
            (Some(place), Some(NodeValue::List(all))) => all.get_mut(place),
            _ => None,
        };
        match found.map(|found| &mut found.value) {
            Some(NodeValue::Map(owner)) => give(owner, section, item),
            _ => left.push(item),
        }
    }
    if !left.is_empty() {
        entries.insert(at, (key, Node::list(place, left)));
    }
}

/// Where the objects of a list are, by what others may name them by.
fn places(list: &NodeValue) -> HashMap<String, usize> {
    let mut made = HashMap::new();
    let NodeValue::List(list) = list else { return made };
    for (place, it) in list.iter().enumerate() {
        for (key, value) in it.all_entries() {
            if let (true, Some(name)) =
                (["username", "name", "id", "custom_id"].contains(&key.as_str()), value.str())
            {
                made.entry(name.to_owned()).or_insert(place);
            }
        }
    }
    made
}

/// Adds an object to its owner's list.
fn give(owner: &mut Vec<(String, Node)>, section: &str, item: Node) {
    match owner.iter_mut().find(|(key, _)| key == section) {
        Some((_, Node { value: NodeValue::List(list), .. })) => list.push(item),
        Some((_, other)) => *other = Node::list(item.at, vec![item]),
        None => owner.push((section.to_owned(), Node::list(item.at, vec![item]))),
    }
}
