//! A tree against the schema of our types: every unknown key, wrong type and value out of range at once.

use super::hints;
use super::legacy::{self, OldSpelling};
use super::rules::{Others, Properties, Rule, Rules};
use super::tree::{Node, Trail, Value};
use crate::nearest::nearest;
use crate::problem::{Problem, Problems};
use crate::units::Unit;

/// Checks `node` against one of the rules of a schema.
///
/// Two things are set right on the way, so that what passes can be read: a key with an empty value counts as absent,
/// and text that came from a reference becomes the number or truth value that is wanted.
/// Returns the old spellings that were replaced.
pub(super) fn check(
    rules: &Rules,
    rule: &Rule,
    node: &mut Node,
    at: &str,
    problems: &mut Problems,
) -> Vec<OldSpelling> {
    let mut checker = Checker { rules, trail: Trail::at(at), problems, old: Vec::new(), is_plugin: false };
    checker.check(rule, node);
    checker.old
}

/// Checks a plugin's own settings, whose texts may have several lines. Returns the old spellings that were replaced.
pub(super) fn check_plugin(
    rules: &Rules,
    node: &mut Node,
    at: &str,
    problems: &mut Problems,
) -> Vec<OldSpelling> {
    let mut checker = Checker { rules, trail: Trail::at(at), problems, old: Vec::new(), is_plugin: true };
    checker.check(rules.root(), node);
    checker.old
}

struct Checker<'s, 'p> {
    rules: &'s Rules,
    trail: Trail,
    problems: &'p mut Problems,
    /// The old spellings found so far, at most [`legacy::MAX_KEPT`].
    old: Vec<OldSpelling>,
    /// The settings of a plugin rather than of the gateway.
    is_plugin: bool,
}

impl<'s> Checker<'s, '_> {
    fn problem(&mut self, line: u32, message: String) -> &mut Problem {
        self.problems.push(Problem { line, ..Problem::new(self.trail.as_str(), message) })
    }

    fn check(&mut self, rule: &'s Rule, node: &mut Node) {
        let rule = self.rules.follow(rule);
        loosen(rule, node);
        if self.unit(rule, node) {
            return;
        }
        self.number_as_word(rule, node);
        if let Some(choices) = &rule.choices {
            return self.choose(choices, node);
        }
        if !takes(rule, &node.value) {
            return self.wrong_type(&rule.types, node);
        }
        match &mut node.value {
            Value::Number(number) => {
                self.range(rule, number.as_f64().unwrap_or(0.0), &number.to_string(), node.line);
            }
            Value::Text { text, .. } => self.text(rule, text, node.line),
            Value::List(nodes) => self.list(rule, nodes, node.line),
            Value::Map(_) => self.map(rule, node),
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Writes `5s` and `0.005` the one way in which they are stored, and checks the range. `true`: nothing more is to
    /// be said about the value.
    fn unit(&mut self, rule: &Rule, node: &mut Node) -> bool {
        let Some(unit) = rule.unit else { return false };
        let read = match &node.value {
            Value::Text { text, .. } => unit.read(text),
            Value::Number(number) if unit == Unit::Milliseconds => match unit.of_number(number) {
                Some(count) => Ok(count),
                None if number.as_f64().is_some_and(|seconds| seconds > 0.0) => {
                    Err(unit.not_whole(&number.to_string()))
                }
                None => return false,
            },
            _ => return false,
        };
        let count = match read {
            Ok(count) => count,
            Err(bad) => {
                self.problem(node.line, bad.message).remedy = Some(bad.remedy);
                node.value = Value::Null;
                return true;
            }
        };
        let shown = match &node.value {
            Value::Text { text, .. } => text.clone(),
            _ => unit.plain(count).to_string(),
        };
        self.range(rule, unit.plain(count), &shown, node.line);
        node.value = Node::of_json(&unit.canonical(count)).value;
        true
    }

    /// Reads `1.2` as text where the words to choose from are numbers, as versions are.
    fn number_as_word(&self, rule: &'s Rule, node: &mut Node) {
        let Value::Number(number) = &node.value else { return };
        let all = rule.choices.as_deref().unwrap_or_default();
        let mut words =
            all.iter().map(|choice| self.rules.follow(choice)).chain([rule]).flat_map(|rule| &rule.words);
        if words.any(|word| word.starts_with(|c: char| c.is_ascii_digit())) {
            node.value = Value::Text { text: number.to_string(), loose: false };
        }
    }

    /// One of several rules: the one whose type fits the value, so that its problems are told rather than all.
    fn choose(&mut self, choices: &'s [Rule], node: &mut Node) {
        let rules = self.rules;
        let followed = || choices.iter().map(|choice| rules.follow(choice));
        if let Value::Text { text, .. } = &node.value
            && followed().any(|choice| !choice.words.is_empty())
        {
            let words: Vec<&str> = followed().flat_map(|choice| &choice.words).map(|word| &**word).collect();
            return self.word(&words, text, node.line);
        }
        if matches!(node.value, Value::Map(_)) && followed().all(|choice| choice.tag.is_some()) {
            let choices: Vec<&Rule> = followed().collect();
            return self.tagged(&choices, node);
        }
        let mut fitting = followed().filter(|choice| takes(choice, &node.value));
        match (fitting.next(), fitting.next()) {
            (None, _) => {
                let types: Vec<&str> = followed().flat_map(|choice| &choice.types).copied().collect();
                self.wrong_type(&types, node);
            }
            (Some(only), None) => self.check(only, node),
            (Some(first), Some(second)) => {
                let several: Vec<&Rule> = [first, second].into_iter().chain(fitting).collect();
                self.best(&several, node);
            }
        }
    }

    /// A map of one key, which says what its value is.
    fn tagged(&mut self, choices: &[&'s Rule], node: &mut Node) {
        let Value::Map(entries) = &node.value else {
            return;
        };
        let tags: Vec<&str> = choices.iter().filter_map(|choice| choice.tag.as_deref()).collect();
        let [entry] = entries.as_slice() else {
            self.problem(node.line, format!("expected one key, found {}", entries.len())).remedy =
                Some(format!("one of: {}", tags.join(", ")));
            return;
        };
        if let Some(choice) = choices.iter().find(|choice| choice.tag.as_deref() == Some(&entry.key)) {
            return self.check(choice, node);
        }
        self.word(&tags, &entry.key, entry.line);
    }

    /// Several maps may be meant: the one with the fewest problems was.
    fn best(&mut self, choices: &[&'s Rule], node: &mut Node) {
        let tries = choices.iter().map(|choice| {
            let (mut problems, mut attempt) = (Problems::default(), node.clone());
            let trail = Trail::at(self.trail.as_str());
            let is_plugin = self.is_plugin;
            let mut checker =
                Checker { rules: self.rules, trail, problems: &mut problems, old: Vec::new(), is_plugin };
            checker.check(choice, &mut attempt);
            let old = checker.old;
            (problems, attempt, old)
        });
        if let Some((problems, attempt, old)) = tries.min_by_key(|(problems, ..)| problems.count()) {
            self.problems.extend(problems.0);
            self.old.extend(old);
            *node = attempt;
        }
    }

    fn wrong_type(&mut self, types: &[&str], node: &Node) {
        let mut wanted: Vec<&str> = types.iter().filter(|t| **t != "null").map(|t| title(t)).collect();
        wanted.dedup();
        let number_wanted = types.iter().any(|t| matches!(*t, "integer" | "number"));
        let (is, remedy) = match &node.value {
            Value::Null => ("nothing", None),
            Value::Bool(_) => ("a boolean", None),
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
            Value::Text { text, .. } => ("a string", text_remedy(text, types)),
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
        let message = format!("expected {}, found {is}", wanted.join(" or "));
        self.problem(node.line, message).remedy = remedy;
    }

    /// Checks the bounds of a number, which messages show as `number`.
    fn range(&mut self, rule: &Rule, value: f64, number: &str, line: u32) {
        let (low, high, above) = (rule.minimum, rule.maximum, rule.exclusive_minimum);
        if above.is_some_and(|above| value <= above) {
            self.problem(line, format!("{number} is too small")).remedy =
                above.map(|n| format!("more than {n}"));
        }
        if low.is_none_or(|low| value >= low) && high.is_none_or(|high| value <= high) {
            return;
        }
        let counted = match rule.unit {
            Some(Unit::Bytes) => " bytes",
            Some(Unit::Milliseconds | Unit::Seconds) => " seconds",
            None => "",
        };
        let remedy = match (low, high) {
            (Some(low), Some(high)) => format!("{low} to {high}{counted}"),
            (Some(low), None) => format!("{low}{counted} or more"),
            (None, high) => format!("at most {}{counted}", high.unwrap_or_default()),
        };
        self.problem(line, format!("{number} is out of range")).remedy = Some(remedy);
    }

    fn text(&mut self, rule: &Rule, text: &str, line: u32) {
        if !rule.words.is_empty() {
            let words: Vec<&str> = rule.words.iter().map(|word| &**word).collect();
            return self.word(&words, text, line);
        }
        // Whatever ends in a log line must not be able to forge another one. A plugin's own settings may have lines.
        let may_have_lines = self.is_plugin || rule.is_document || rule.types.is_empty();
        if text.chars().any(|c| c.is_control() && !(may_have_lines && matches!(c, '\n' | '\t' | '\r'))) {
            self.problem(line, "this has control characters".to_owned()).remedy =
                Some("remove them".to_owned());
        }
        let length = text.chars().count() as u64;
        if let Some(most) = rule.max_length.filter(|most| length > *most) {
            self.problem(line, format!("this has {length} characters, at most {most} are allowed"));
        }
        if rule.min_length.is_some_and(|least| length < least) {
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

    fn list(&mut self, rule: &'s Rule, nodes: &mut [Node], line: u32) {
        if let Some(most) = rule.max_items.filter(|most| nodes.len() as u64 > *most) {
            self.problem(line, format!("this has {} items, at most {most} are allowed", nodes.len()));
        }
        let Some(items) = &rule.items else {
            return;
        };
        for (n, node) in nodes.iter_mut().enumerate() {
            let back = self.trail.position(n);
            self.check(items, node);
            self.trail.back(back);
        }
    }

    fn map(&mut self, rule: &'s Rule, node: &mut Node) {
        let Value::Map(entries) = &mut node.value else {
            return;
        };
        let line = node.line;
        let known = rule.properties.as_ref();
        let property = |key: &str| known.and_then(|known| known.get(key));
        if let (Some(known), Others::Nothing) = (known, &rule.others) {
            legacy::rename(entries, |key| known.get(key).is_some(), self.trail.as_str(), &mut self.old);
        }
        entries.retain(|entry| !matches!(entry.value.value, Value::Null) || property(&entry.key).is_none());
        for entry in entries.iter_mut() {
            let back = self.trail.key(&entry.key);
            match (property(&entry.key), &rule.others) {
                (Some(rule), _) => self.check(rule, &mut entry.value),
                (None, Others::Nothing) => self.unknown(&entry.key, entry.line, known),
                (None, Others::Rule(rule)) => self.check(rule, &mut entry.value),
                (None, Others::Anything) => {}
            }
            self.trail.back(back);
        }
        for key in &rule.required {
            if entries.iter().all(|entry| *entry.key != **key) {
                self.problem(line, format!("`{key}` is missing"));
            }
        }
    }

    fn unknown(&mut self, key: &str, line: u32, known: Option<&Properties>) {
        if self.problems.is_full() {
            // Looking for what was meant takes long, and nobody sees it.
            self.problem(line, String::new());
            return;
        }
        let newer = known.and_then(|known| legacy::newer(key, |name| known.get(name).is_some()));
        if let Some(newer) = newer {
            self.problem(line, format!("this is the older name of `{newer}`")).remedy =
                Some(format!("keep `{newer}` alone"));
            return;
        }
        let elsewhere = if self.is_plugin { None } else { hints::key(self.trail.as_str(), key) };
        let elsewhere = elsewhere.map(str::to_owned);
        let near = nearest(key, known.into_iter().flat_map(Properties::names));
        let remedy = elsewhere.or_else(|| near.map(|near| format!("did you mean `{near}`?")));
        let names = || known.into_iter().flat_map(Properties::names);
        let remedy = remedy.unwrap_or_else(|| match self.is_plugin {
            true => hints::known_keys(key, names(), "`ferrum-edge plugins NAME` lists a plugin's settings"),
            false => hints::other_key(self.trail.as_str(), key, names()),
        });
        self.problem(line, format!("unknown key `{key}`")).remedy = Some(remedy);
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

/// Turns text that came from a reference into what is wanted, where it can.
fn loosen(rule: &Rule, node: &mut Node) {
    let Value::Text { text, loose: true } = &node.value else {
        return;
    };
    let types = &rule.types;
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

/// Whether the type of a value is one of those wanted.
fn takes(rule: &Rule, value: &Value) -> bool {
    rule.types.is_empty() || rule.types.iter().any(|wanted| fits(wanted, value))
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
        "string" => "a string",
        "array" => "a list",
        "object" => "a map",
        other => other,
    }
}
