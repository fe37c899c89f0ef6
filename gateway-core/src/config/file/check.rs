//! A tree against the schema of our types: every unknown key, wrong type and value out of range at once.

use serde_json::Value as Json;

use super::hints::{self, nearest};
use super::tree::{Node, Trail, Value};
use crate::config::problem::{Problem, Problems};
use crate::config::units::{self, Unit};

/// Checks `node` against `schema`, whose definitions stand in `root`.
///
/// Two things are set right on the way, so that what passes can be read: a key with an empty value counts as absent,
/// and text that came from a reference becomes the number or truth value that is wanted.
pub(super) fn check(root: &Json, schema: &Json, node: &mut Node, at: &str, problems: &mut Problems) {
    Checker { root, trail: Trail::at(at), problems, is_plugin: false }.check(schema, node);
}

/// Checks a plugin's own settings, whose texts may have several lines.
pub(super) fn check_plugin(schema: &Json, node: &mut Node, at: &str, problems: &mut Problems) {
    Checker { root: schema, trail: Trail::at(at), problems, is_plugin: true }.check(schema, node);
}

struct Checker<'s, 'p> {
    root: &'s Json,
    trail: Trail,
    problems: &'p mut Problems,
    /// The settings of a plugin rather than of the gateway.
    is_plugin: bool,
}

impl<'s> Checker<'s, '_> {
    fn problem(&mut self, line: u32, message: String) -> &mut Problem {
        self.problems.push(Problem { line, ..Problem::new(self.trail.as_str(), message) })
    }

    fn check(&mut self, schema: &'s Json, node: &mut Node) {
        let schema = self.follow(schema);
        loosen(schema, node);
        if !self.unit(schema, node) {
            return;
        }
        self.number_as_word(schema, node);
        if let Some(choices) = choices(schema) {
            return self.choose(choices, node);
        }
        let types = types(schema);
        if !types.is_empty() && !types.iter().any(|wanted| fits(wanted, &node.value)) {
            return self.wrong_type(&types, node);
        }
        match &mut node.value {
            Value::Number(number) => self.number(schema, number.clone(), node.line),
            Value::Text { text, .. } => {
                let text = text.clone();
                self.text(schema, &text, node.line);
            }
            Value::List(nodes) => self.list(schema, nodes, node.line),
            Value::Map(_) => self.map(schema, node),
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Turns `5s` into the number that is meant, so that its range is checked like any other's. `false`: it can't be read,
    /// and nothing more is to be said about it.
    fn unit(&mut self, schema: &Json, node: &mut Node) -> bool {
        let unit = schema.get(units::KEYWORD).and_then(Json::as_str).and_then(Unit::named);
        let (Some(unit), Value::Text { text, .. }) = (unit, &node.value) else { return true };
        match unit.read(text) {
            Ok(number) => node.value = Value::Number(number.into()),
            Err(bad) => {
                self.problem(node.line, bad.message).remedy = Some(bad.remedy);
                node.value = Value::Null;
                return false;
            }
        }
        true
    }

    /// Reads `1.2` as text where the words to choose from are numbers, as versions are.
    fn number_as_word(&self, schema: &'s Json, node: &mut Node) {
        let Value::Number(number) = &node.value else { return };
        let all = choices(schema).unwrap_or_default();
        let words = all.iter().map(|choice| self.follow(choice)).chain([schema]).flat_map(allowed);
        if words.into_iter().any(|word| word.starts_with(|c: char| c.is_ascii_digit())) {
            node.value = Value::Text { text: number.to_string(), loose: false };
        }
    }

    fn follow(&self, schema: &'s Json) -> &'s Json {
        let Some(target) = schema.get("$ref").and_then(Json::as_str).and_then(|to| to.strip_prefix('#'))
        else {
            return schema;
        };
        // A pointer is read part by part each time; nearly all of them name a definition.
        let found = match target.strip_prefix("/$defs/") {
            Some(name) if !name.contains(['/', '~']) => self.root.get("$defs").and_then(|all| all.get(name)),
            _ => self.root.pointer(target),
        };
        found.unwrap_or(schema)
    }

    /// One of several schemas: the one whose type fits the value, so that its problems are told rather than all.
    fn choose(&mut self, choices: &'s [Json], node: &mut Node) {
        let choices: Vec<&Json> = choices.iter().map(|choice| self.follow(choice)).collect();
        let words: Vec<&str> = choices.iter().flat_map(|choice| allowed(choice)).collect();
        if let (Value::Text { text, .. }, false) = (&node.value, words.is_empty()) {
            let text = text.clone();
            return self.word(&words, &text, node.line);
        }
        let tags: Vec<&str> = choices.iter().filter_map(|choice| tag(choice)).collect();
        if let (Value::Map(_), true) = (&node.value, tags.len() == choices.len()) {
            return self.tagged(&choices, &tags, node);
        }
        let fitting: Vec<&&Json> = choices
            .iter()
            .filter(|choice| {
                let types = types(choice);
                types.is_empty() || types.iter().any(|wanted| fits(wanted, &node.value))
            })
            .collect();
        match fitting.as_slice() {
            [] => {
                let types: Vec<&str> = choices.iter().flat_map(|choice| types(choice)).collect();
                self.wrong_type(&types, node);
            }
            [only] => self.check(only, node),
            several => self.best(several, node),
        }
    }

    /// A map of one key, which says what its value is.
    fn tagged(&mut self, choices: &[&'s Json], tags: &[&str], node: &mut Node) {
        let Value::Map(entries) = &node.value else {
            return;
        };
        let [entry] = entries.as_slice() else {
            self.problem(node.line, format!("this has to have one key, and has {}", entries.len())).remedy =
                Some(format!("one of: {}", tags.join(", ")));
            return;
        };
        if let Some(choice) = choices.iter().find(|choice| tag(choice) == Some(&entry.key)) {
            return self.check(choice, node);
        }
        self.word(tags, &entry.key.clone(), entry.line);
    }

    /// Several maps may be meant: the one with the fewest problems was.
    fn best(&mut self, schemas: &[&&'s Json], node: &mut Node) {
        let tries = schemas.iter().map(|schema| {
            let (mut problems, mut attempt) = (Problems::default(), node.clone());
            let trail = Trail::at(self.trail.as_str());
            let is_plugin = self.is_plugin;
            Checker { root: self.root, trail, problems: &mut problems, is_plugin }
                .check(schema, &mut attempt);
            (problems, attempt)
        });
        if let Some((problems, attempt)) = tries.min_by_key(|(problems, _)| problems.count()) {
            self.problems.extend(problems.0);
            *node = attempt;
        }
    }

    fn wrong_type(&mut self, types: &[&str], node: &Node) {
        let mut wanted: Vec<&str> = types.iter().filter(|t| **t != "null").map(|t| title(t)).collect();
        wanted.dedup();
        let number_wanted = types.iter().any(|t| matches!(*t, "integer" | "number"));
        let (is, remedy) = match &node.value {
            Value::Null => ("nothing", None),
            Value::Bool(_) => ("a truth value", None),
            Value::Number(_) if number_wanted => {
                let may_have_unit = types.contains(&"string");
                let remedy = if may_have_unit {
                    "a whole number, or one with a unit, such as `1500ms` or `1.5s`"
                } else {
                    "write a whole number"
                };
                ("a number with a fraction or a sign", Some(remedy.to_owned()))
            }
            Value::Number(_) => {
                ("a number", types.contains(&"string").then(|| "put it in quotes".to_owned()))
            }
            Value::Text { text, .. } => ("text", text_remedy(text, types)),
            Value::List(_) => ("a list", None),
            Value::Map(_) => ("a map", None),
        };
        let wants_map = types.contains(&"object");
        let hint =
            if self.is_plugin { None } else { hints::value(self.trail.as_str(), &node.value, wants_map) };
        // A number in quotes is a number.
        let hint = hint.filter(|_| !number_wanted || remedy.is_none());
        let remedy = hint.or(remedy).or_else(|| match node.value {
            Value::Text { .. } if number_wanted => Some("write a number".to_owned()),
            Value::Bool(true) if wants_map => Some("write its settings, or `{}` for the defaults".to_owned()),
            Value::Bool(false) if wants_map => Some("leave it out".to_owned()),
            Value::List(_) | Value::Map(_) => None,
            _ => types.contains(&"array").then(|| "write a list, even of one: `[…]`".to_owned()),
        });
        let message = format!("this has to be {}, and is {is}", wanted.join(" or "));
        self.problem(node.line, message).remedy = remedy;
    }

    fn number(&mut self, schema: &Json, number: serde_json::Number, line: u32) {
        let value = number.as_f64().unwrap_or(0.0);
        let low = schema.get("minimum").and_then(Json::as_f64);
        let high = schema.get("maximum").and_then(Json::as_f64);
        let above = schema.get("exclusiveMinimum").and_then(Json::as_f64);
        if above.is_some_and(|above| value <= above) {
            self.problem(line, format!("{number} is too small")).remedy =
                above.map(|n| format!("more than {n}"));
        }
        if low.is_none_or(|low| value >= low) && high.is_none_or(|high| value <= high) {
            return;
        }
        let remedy = match (low, high) {
            (Some(low), Some(high)) => format!("{low} to {high}"),
            (Some(low), None) => format!("{low} or more"),
            (None, high) => format!("at most {}", high.unwrap_or_default()),
        };
        self.problem(line, format!("{number} is out of range")).remedy = Some(remedy);
    }

    fn text(&mut self, schema: &'s Json, text: &str, line: u32) {
        let words = allowed(schema);
        if !words.is_empty() {
            return self.word(&words, text, line);
        }
        // Whatever ends in a log line must not be able to forge another one. A plugin's own settings may have lines.
        let may_have_lines = self.is_plugin || schema.get("type").is_none();
        if text.chars().any(|c| c.is_control() && !(may_have_lines && matches!(c, '\n' | '\t' | '\r'))) {
            self.problem(line, "this has control characters".to_owned()).remedy =
                Some("remove them".to_owned());
        }
        let length = text.chars().count() as u64;
        if let Some(most) = schema.get("maxLength").and_then(Json::as_u64).filter(|most| length > *most) {
            self.problem(line, format!("this has {length} characters, at most {most} are allowed"));
        }
        if schema.get("minLength").and_then(Json::as_u64).is_some_and(|least| length < least) {
            self.problem(line, "this is empty".to_owned()).remedy =
                Some("write it, or leave the key out".to_owned());
        }
    }

    fn word(&mut self, words: &[&str], text: &str, line: u32) {
        if words.contains(&text) {
            return;
        }
        let remedy = hints::word(text, words);
        self.problem(line, format!("`{text}` is not known here")).remedy = Some(remedy);
    }

    fn list(&mut self, schema: &'s Json, nodes: &mut [Node], line: u32) {
        if let Some(most) =
            schema.get("maxItems").and_then(Json::as_u64).filter(|most| nodes.len() as u64 > *most)
        {
            self.problem(line, format!("this has {} items, at most {most} are allowed", nodes.len()));
        }
        let Some(items) = schema.get("items") else {
            return;
        };
        for (n, node) in nodes.iter_mut().enumerate() {
            let back = self.trail.position(n);
            self.check(items, node);
            self.trail.back(back);
        }
    }

    fn map(&mut self, schema: &'s Json, node: &mut Node) {
        let Value::Map(entries) = &mut node.value else {
            return;
        };
        let line = node.line;
        let known = schema.get("properties").and_then(Json::as_object);
        let others = schema.get("additionalProperties");
        if let Some(known) = known {
            entries.retain(|entry| {
                !(known.contains_key(&entry.key) && matches!(entry.value.value, Value::Null))
            });
        }
        for entry in entries.iter_mut() {
            let back = self.trail.key(&entry.key);
            match (known.and_then(|known| known.get(&entry.key)), others) {
                (Some(schema), _) => self.check(schema, &mut entry.value),
                (None, Some(Json::Bool(false))) => self.unknown(&entry.key, entry.line, known),
                (None, Some(schema)) => self.check(schema, &mut entry.value),
                (None, None) => {}
            }
            self.trail.back(back);
        }
        let required = schema.get("required").and_then(Json::as_array);
        for key in required.into_iter().flatten().filter_map(Json::as_str) {
            if entries.iter().all(|entry| entry.key != key) {
                self.problem(line, format!("`{key}` is missing"));
            }
        }
    }

    fn unknown(&mut self, key: &str, line: u32, known: Option<&serde_json::Map<String, Json>>) {
        if self.problems.is_full() {
            // Looking for what was meant takes long, and nobody sees it.
            self.problem(line, String::new());
            return;
        }
        let elsewhere = if self.is_plugin { None } else { hints::key(self.trail.as_str(), key) };
        let elsewhere = elsewhere.map(str::to_owned);
        let near = nearest(key, known.into_iter().flat_map(|known| known.keys().map(String::as_str)));
        let remedy = elsewhere.or_else(|| near.map(|near| format!("did you mean `{near}`?")));
        self.problem(line, "this key is not known".to_owned()).remedy = remedy.or_else(|| {
            let other = match self.is_plugin {
                true => "`ferrum-edge plugins NAME` lists a plugin's settings",
                false => hints::other_key(self.trail.as_str(), key),
            };
            Some(other.to_owned())
        });
    }
}

fn text_remedy(text: &str, types: &[&str]) -> Option<String> {
    if types.contains(&"boolean") {
        return match text.to_ascii_lowercase().as_str() {
            "yes" | "on" | "y" | "true" => Some("write true".to_owned()),
            "no" | "off" | "n" | "false" => Some("write false".to_owned()),
            _ => Some("write true or false".to_owned()),
        };
    }
    let is_number = text.trim().parse::<f64>().is_ok();
    let number_wanted = types.iter().any(|t| matches!(*t, "integer" | "number"));
    (is_number && number_wanted).then(|| "remove the quotes".to_owned())
}

/// Turns text that came from a reference into what the schema wants, where it can.
fn loosen(schema: &Json, node: &mut Node) {
    let Value::Text { text, loose: true } = &node.value else {
        return;
    };
    let types = types(schema);
    if types.contains(&"string") {
        return;
    }
    let text = text.trim();
    if types.contains(&"boolean")
        && let Ok(value) = text.parse()
    {
        node.value = Value::Bool(value);
    } else if types.iter().any(|t| matches!(*t, "integer" | "number"))
        && let Ok(number) = serde_json::from_str(text)
    {
        node.value = Value::Number(number);
    }
}

fn choices(schema: &Json) -> Option<&[Json]> {
    let choices = schema.get("anyOf").or_else(|| schema.get("oneOf"))?;
    choices.as_array().map(Vec::as_slice)
}

/// The only key of a map that stands for one variant of several.
fn tag(schema: &Json) -> Option<&str> {
    let required = schema.get("required")?.as_array()?;
    let properties = schema.get("properties")?.as_object()?;
    match required.as_slice() {
        [only] if properties.len() == 1 => only.as_str(),
        _ => None,
    }
}

fn types(schema: &Json) -> Vec<&str> {
    match schema.get("type") {
        Some(Json::String(one)) => vec![one],
        Some(Json::Array(several)) => several.iter().filter_map(Json::as_str).collect(),
        _ => Vec::new(),
    }
}

/// The words a text may be, when they are listed.
fn allowed(schema: &Json) -> Vec<&str> {
    let one = schema.get("const").and_then(Json::as_str);
    let several = schema.get("enum").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
    one.into_iter().chain(several).collect()
}

fn fits(wanted: &str, value: &Value) -> bool {
    match wanted {
        "null" => matches!(value, Value::Null),
        "boolean" => matches!(value, Value::Bool(_)),
        "integer" => matches!(value, Value::Number(number) if number.is_u64() || number.is_i64()),
        "number" => matches!(value, Value::Number(_)),
        "string" => matches!(value, Value::Text { .. }),
        "array" => matches!(value, Value::List(_)),
        "object" => matches!(value, Value::Map(_)),
        _ => true,
    }
}

fn title(wanted: &str) -> &str {
    match wanted {
        "boolean" => "true or false",
        "integer" => "a whole number",
        "number" => "a number",
        "string" => "text",
        "array" => "a list",
        "object" => "a map",
        other => other,
    }
}
