//! Settings that change something only beside others.
//!
//! A setting without effect is most often a mistake: whoever wrote it believes that it holds. So it is refused.

use serde_json::{Map, Value};

use crate::config::problem::Problems;

/// A setting that has an effect only where `need` is met.
#[derive(Debug, Clone, Copy)]
pub struct Needs {
    /// Its name; `providers[].scope_claim` for one in each object of a list, `search.filter` for one in an object. What it
    /// needs is beside it.
    pub setting: &'static str,
    /// What it needs.
    pub need: Need,
}

/// What has to be beside a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// One of these settings is given.
    Given(&'static [&'static str]),
    /// All of these settings are given.
    All(&'static [&'static str]),
    /// This setting, which is on by default, is not `false`, 0 or empty.
    On(&'static str),
    /// This setting is not given.
    Without(&'static str),
    /// This setting has this value, or a list with it.
    Is(&'static str, &'static str),
    /// The same for a setting that has this value by default.
    IsByDefault(&'static str, &'static str),
    /// One of these settings, texts or lists of them, has a text that begins so, such as `https://`.
    Begins(&'static [&'static str], &'static str),
}

impl Needs {
    /// One setting with what it needs.
    pub const fn new(setting: &'static str, need: Need) -> Self {
        Self { setting, need }
    }
}

/// Every setting that is given and has no effect.
pub(super) fn check(all: &[Needs], config: &Value) -> Problems {
    let mut problems = Problems::default();
    let Some(config) = config.as_object() else { return problems };
    for Needs { setting, need } in all {
        look(config, "config", setting, *need, &mut problems);
    }
    problems
}

fn look(within: &Map<String, Value>, path: &str, setting: &str, need: Need, problems: &mut Problems) {
    let Some((parent, leaf)) = setting.split_once('.') else {
        if is_on(within, setting) && !need.is_met(within) {
            problems.add(format!("{path}.{setting}"), format!("has no effect {}", need.missing())).remedy =
                Some(format!("remove it, or {}", need.remedy()));
        }
        return;
    };
    let (name, is_list) = parent.strip_suffix("[]").map_or((parent, false), |name| (name, true));
    let place = format!("{path}.{name}");
    match within.get(name) {
        Some(Value::Array(list)) if is_list => {
            for (n, item) in list.iter().enumerate() {
                if let Some(item) = item.as_object() {
                    look(item, &format!("{place}[{n}]"), leaf, need, problems);
                }
            }
        }
        Some(Value::Object(object)) => look(object, &place, leaf, need, problems),
        _ => {}
    }
}

/// Whether a setting is given and not switched off: `false`, 0, an empty text or list.
fn is_on(within: &Map<String, Value>, name: &str) -> bool {
    match within.get(name) {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::Bool(true)) => true,
        Some(Value::Number(number)) => number.as_f64() != Some(0.0),
        Some(Value::String(text)) => !is_nothing(text),
        Some(Value::Array(list)) => !list.is_empty(),
        // An object without fields takes the defaults of all.
        Some(Value::Object(_)) => true,
    }
}

/// An empty text, or a time or size of nothing, such as `0s`.
fn is_nothing(text: &str) -> bool {
    let unit = text.trim_start_matches('0');
    unit.is_empty() || (unit.len() < text.len() && unit.chars().all(|c| c.is_ascii_alphabetic()))
}

fn has(value: Option<&Value>, wanted: &str) -> bool {
    match value {
        Some(Value::String(text)) => text == wanted,
        Some(Value::Array(list)) => list.iter().any(|item| item == wanted),
        _ => false,
    }
}

fn begins(value: Option<&Value>, start: &str) -> bool {
    match value {
        Some(Value::String(text)) => text.starts_with(start),
        Some(Value::Array(list)) => list.iter().any(|item| begins(Some(item), start)),
        _ => false,
    }
}

impl Need {
    fn is_met(self, within: &Map<String, Value>) -> bool {
        match self {
            Self::Given(names) => names.iter().any(|name| is_on(within, name)),
            Self::All(names) => names.iter().all(|name| is_on(within, name)),
            Self::On(name) => within.get(name).is_none_or(Value::is_null) || is_on(within, name),
            Self::Without(name) => !is_on(within, name),
            Self::Is(name, wanted) => has(within.get(name), wanted),
            Self::IsByDefault(name, wanted) => {
                within.get(name).is_none_or(Value::is_null) || has(within.get(name), wanted)
            }
            Self::Begins(names, start) => names.iter().any(|name| begins(within.get(*name), start)),
        }
    }

    fn missing(self) -> String {
        match self {
            Self::Given(names) => format!("without {}", listed(names, "or")),
            Self::All(names) => format!("without {}", listed(names, "and")),
            Self::On(name) => format!("while `{name}` is off"),
            Self::Without(name) => format!("beside `{name}`"),
            Self::Is(name, wanted) | Self::IsByDefault(name, wanted) => {
                format!("without `{wanted}` in `{name}`")
            }
            Self::Begins(names, start) => format!("without `{start}` in {}", listed(names, "or")),
        }
    }

    fn remedy(self) -> String {
        match self {
            Self::Given(names) => format!("give {}", listed(names, "or")),
            Self::All(names) => format!("give {}", listed(names, "and")),
            Self::On(name) => format!("leave `{name}` on"),
            Self::Without(name) => format!("leave `{name}` out"),
            Self::Is(name, wanted) | Self::IsByDefault(name, wanted) => format!("set `{name}` to `{wanted}`"),
            Self::Begins(names, start) => format!("begin {} with `{start}`", listed(names, "or")),
        }
    }

    /// The settings it is about, for a test that they exist.
    pub fn names(self) -> Vec<&'static str> {
        match self {
            Self::Given(names) | Self::All(names) | Self::Begins(names, _) => names.to_vec(),
            Self::On(name) | Self::Without(name) | Self::Is(name, _) | Self::IsByDefault(name, _) => {
                vec![name]
            }
        }
    }
}

fn listed(names: &[&str], word: &str) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} {word} {last}", others.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_has_no_effect_is_named_with_what_it_needs() {
        let files = Need::Given(&["files", "urls"]);
        let both = Need::All(&["allow", "deny"]);
        for (setting, need, config, expected) in [
            ("refresh", files, json!({ "refresh": 5 }), "config.refresh"),
            ("refresh", files, json!({ "refresh": 5, "files": [] }), "config.refresh"),
            ("refresh", files, json!({ "refresh": 5, "files": ["a"] }), ""),
            ("refresh", files, json!({ "refresh": 5, "urls": ["a"] }), ""),
            ("refresh", files, json!({ "refresh": 0 }), ""),
            ("refresh", files, json!({ "refresh": "0s" }), ""),
            ("refresh", files, json!({ "refresh": "10s" }), "config.refresh"),
            ("mode", both, json!({ "mode": "x", "allow": ["a"] }), "config.mode"),
            ("mode", both, json!({ "mode": "x", "allow": ["a"], "deny": ["b"] }), ""),
            ("size", Need::On("ttl"), json!({ "size": 5 }), ""),
            ("size", Need::On("ttl"), json!({ "size": 5, "ttl": "1s" }), ""),
            ("size", Need::On("ttl"), json!({ "size": 5, "ttl": 0 }), "config.size"),
            ("size", Need::On("ttl"), json!({ "size": 0, "ttl": 0 }), ""),
            ("a", Need::Without("b"), json!({ "a": 1, "b": true }), "config.a"),
            ("a", Need::Without("b"), json!({ "a": 1, "b": false }), ""),
            ("a", Need::Is("kind", "x"), json!({ "a": 1 }), "config.a"),
            ("a", Need::Is("kind", "x"), json!({ "a": 1, "kind": "x" }), ""),
            ("a", Need::IsByDefault("kind", "x"), json!({ "a": 1 }), ""),
            ("a", Need::IsByDefault("kind", "x"), json!({ "a": 1, "kind": ["y"] }), "config.a"),
            ("a", Need::IsByDefault("kind", "x"), json!({ "a": 1, "kind": ["y", "x"] }), ""),
            (
                "ca",
                Need::Begins(&["url", "urls"], "https://"),
                json!({ "ca": "x", "url": "http://a" }),
                "config.ca",
            ),
            (
                "ca",
                Need::Begins(&["url", "urls"], "https://"),
                json!({ "ca": "x", "urls": ["https://a"] }),
                "",
            ),
            ("in.a", Need::Given(&["b"]), json!({ "in": { "a": 1 }, "b": 1 }), "config.in.a"),
            ("in.a", Need::Given(&["b"]), json!({ "in": { "a": 1, "b": 1 } }), ""),
            (
                "list[].a",
                Need::Given(&["b"]),
                json!({ "list": [{ "a": 1, "b": 1 }, { "a": 1 }] }),
                "config.list[1].a",
            ),
        ] {
            let problems = check(&[Needs::new(setting, need)], &config);
            let found = problems.0.first().map_or("", |problem| &problem.path);
            assert_eq!(found, expected, "{config}");
        }
        let problems = check(&[Needs::new("refresh", files)], &json!({ "refresh": 5 }));
        assert_eq!(problems.0[0].message, "has no effect without `files` or `urls`");
    }
}
