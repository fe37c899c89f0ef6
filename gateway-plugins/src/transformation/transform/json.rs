//! Changes to JSON documents by JSON Pointer (RFC 6901).

use gateway_core::config::problem::Problems;
use gateway_core::template::{Facts, MAX_RENDERED, Moment, Template, TextContext};
use gateway_plugin_common::parse;
use serde_json::Value;

use super::{Operation, Rule, Unusable};
use gateway_core::template::Render;

/// Steps a pointer may have.
const MAX_STEPS: usize = 64;

/// A way through a document; at least one step.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pointer(Vec<String>);

/// A change of a document.
pub(super) struct DocumentChange {
    operation: Operation,
    at: Pointer,
    value: Option<Made>,
    new: Option<Pointer>,
}

/// A value whose texts may be templates.
enum Made {
    Text(Template),
    Is(Value),
    List(Vec<Self>),
    Map(Vec<(String, Self)>),
}

impl Made {
    fn asks_for_caller(&self) -> bool {
        match self {
            Self::Text(template) => template.asks_for_caller(),
            Self::Is(_) => false,
            Self::List(all) => all.iter().any(Self::asks_for_caller),
            Self::Map(all) => all.iter().any(|(_, made)| made.asks_for_caller()),
        }
    }
}

impl Made {
    fn templates<'m>(&'m self, all: &mut Vec<&'m Template>) {
        match self {
            Self::Text(template) => all.push(template),
            Self::Is(_) => {}
            Self::List(items) => items.iter().for_each(|item| item.templates(all)),
            Self::Map(fields) => fields.iter().for_each(|(_, field)| field.templates(all)),
        }
    }
}

impl DocumentChange {
    /// The templates that its value is made of.
    pub(super) fn templates(&self) -> Vec<&Template> {
        let mut all = Vec::new();
        self.value.iter().for_each(|value| value.templates(&mut all));
        all
    }

    /// Whether its value is made of who the caller is.
    pub(super) fn asks_for_caller(&self) -> bool {
        self.value.as_ref().is_some_and(Made::asks_for_caller)
    }
}

impl Pointer {
    /// Reads a pointer.
    ///
    /// # Errors
    /// What is wrong with it.
    fn read(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix('/') else {
            return Err(format!("`{text}` is not a JSON Pointer: it begins with `/`, as `/user/name`"));
        };
        let steps: Vec<String> =
            rest.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
        if steps.len() > MAX_STEPS {
            return Err(format!("this has more than {MAX_STEPS} steps"));
        }
        Ok(Self(steps))
    }

    /// The last step and what it is in, if that is there.
    fn parent<'d>(&self, document: &'d mut Value) -> Option<(&'d mut Value, &str)> {
        let (last, way) = self.0.split_last()?;
        let parent = way.iter().try_fold(document, |value, step| child(value, step))?;
        Some((parent, last))
    }

    /// As [`Self::parent`], making the maps that are missing on the way, also in the place of what else stands there. `None` where the
    /// document itself has no place for the first step.
    fn make_parent<'d>(&self, document: &'d mut Value) -> Option<(&'d mut Value, &str)> {
        let (last, _) = self.0.split_last()?;
        if !takes(document, &self.0[0]) && !document.is_null() {
            return None;
        }
        let mut value = document;
        for (step, next) in self.0.iter().zip(&self.0[1..]) {
            room(value, step);
            value = match value {
                Value::Object(map) => map.entry(step.clone()).or_insert(Value::Null),
                other => child(other, step)?,
            };
            room(value, next);
        }
        room(value, last);
        Some((value, last))
    }

    /// Whether something stands where a map is needed on the way.
    fn is_blocked(&self, document: &Value) -> bool {
        let mut value = document;
        for step in &self.0 {
            if !takes(value, step) {
                return !value.is_null();
            }
            let next = match value {
                Value::Object(map) => map.get(step),
                Value::Array(list) => index(step).and_then(|n| list.get(n)),
                _ => None,
            };
            let Some(next) = next else { return false };
            value = next;
        }
        false
    }

    fn get<'d>(&self, document: &'d mut Value) -> Option<&'d mut Value> {
        let (parent, last) = self.parent(document)?;
        child(parent, last)
    }

    fn take(&self, document: &mut Value) -> Option<Value> {
        let (parent, last) = self.parent(document)?;
        match parent {
            Value::Object(map) => map.remove(last),
            Value::Array(list) => index(last).filter(|n| *n < list.len()).map(|n| list.remove(n)),
            _ => None,
        }
    }

    /// Puts a value there, whatever is there or in the way. False where the document has no such place: it is a list or a plain value
    /// where the pointer needs a map.
    fn put(&self, document: &mut Value, value: Value) -> bool {
        let Some((parent, last)) = self.make_parent(document) else { return false };
        match parent {
            Value::Object(map) => {
                map.insert(last.to_owned(), value);
                true
            }
            Value::Array(list) if last == "-" => {
                list.push(value);
                true
            }
            Value::Array(list) => match index(last).and_then(|n| list.get_mut(n)) {
                Some(place) => {
                    *place = value;
                    true
                }
                None => false,
            },
            _ => false,
        }
    }
}

/// Whether a value has a place for this step.
fn takes(value: &Value, step: &str) -> bool {
    match value {
        Value::Object(_) => true,
        Value::Array(list) => step == "-" || index(step).is_some_and(|n| n < list.len()),
        _ => false,
    }
}

/// Makes a value a map where it has no place for this step; a list that is only too short stays one.
fn room(value: &mut Value, step: &str) {
    let is_short = value.is_array() && index(step).is_some();
    if !takes(value, step) && !is_short {
        *value = Value::Object(serde_json::Map::new());
    }
}

fn child<'d>(value: &'d mut Value, step: &str) -> Option<&'d mut Value> {
    match value {
        Value::Object(map) => map.get_mut(step),
        Value::Array(list) => list.get_mut(index(step)?),
        _ => None,
    }
}

/// A place in a list: digits without a leading zero.
fn index(step: &str) -> Option<usize> {
    let is_index = step == "0" || (!step.starts_with('0') && step.bytes().all(|b| b.is_ascii_digit()));
    if is_index { step.parse().ok() } else { None }
}

impl DocumentChange {
    pub(super) fn read(at: &str, rule: Rule, moment: Moment, problems: &mut Problems) -> Option<Self> {
        let mut pointer = |field: &str, text: &str| match Pointer::read(text) {
            Ok(pointer) => Some(pointer),
            Err(message) => {
                problems.add(format!("{at}.{field}"), message);
                None
            }
        };
        let key = pointer("key", &rule.key);
        let new = rule.new_key.as_deref().map(|new| pointer("new_key", new));
        let value = rule.value.and_then(|value| Made::read(&format!("{at}.value"), value, moment, problems));
        Some(Self { operation: rule.operation, at: key?, value, new: new.flatten() })
    }

    pub(super) fn value(&self, facts: &Facts<'_>) -> Result<Option<Value>, Unusable> {
        self.value.as_ref().map(|value| value.make(facts)).transpose()
    }

    /// Makes the change. False where the document has no place for a value that has to be there from now on.
    #[must_use]
    pub(super) fn apply(&self, document: &mut Value, value: Option<Value>) -> bool {
        match (self.operation, value, &self.new) {
            (Operation::Remove, ..) => {
                self.at.take(document);
                true
            }
            (Operation::Rename, _, Some(new)) => {
                self.at.take(document).is_none_or(|value| new.put(document, value))
            }
            (Operation::Append, Some(value), _) => {
                let is_blocked = self.at.is_blocked(document);
                match self.at.get(document) {
                    Some(Value::Array(list)) => {
                        list.push(value);
                        true
                    }
                    Some(Value::Null) | None if !is_blocked => {
                        self.at.put(document, Value::Array(vec![value]))
                    }
                    _ => true,
                }
            }
            (Operation::Add, Some(value), _)
                if self.at.get(document).is_none() && !self.at.is_blocked(document) =>
            {
                self.at.put(document, value)
            }
            (Operation::Update, Some(value), _) if self.at.get(document).is_some() => {
                self.at.put(document, value)
            }
            (Operation::Set, Some(value), _) => self.at.put(document, value),
            _ => true,
        }
    }
}

impl Made {
    fn read(at: &str, value: Value, moment: Moment, problems: &mut Problems) -> Option<Self> {
        Some(match value {
            Value::String(text) => {
                let template = parse::template(at, &text, moment, problems)?;
                match template.literal() {
                    Some(text) => Self::Is(Value::String(text.to_owned())),
                    None => Self::Text(template),
                }
            }
            Value::Array(list) => {
                let items = list.into_iter().filter_map(|item| Self::read(at, item, moment, problems));
                Self::List(items.collect())
            }
            Value::Object(map) => {
                let items = map
                    .into_iter()
                    .filter_map(|(key, item)| Some((key, Self::read(at, item, moment, problems)?)));
                Self::Map(items.collect())
            }
            other => Self::Is(other),
        })
    }

    fn make(&self, facts: &Facts<'_>) -> Result<Value, Unusable> {
        Ok(match self {
            Self::Is(value) => value.clone(),
            Self::Text(template) => {
                let mut out = Vec::new();
                template.render(facts, TextContext::Text, MAX_RENDERED, &mut out).map_err(|_| Unusable)?;
                Value::String(String::from_utf8_lossy(&out).into_owned())
            }
            Self::List(items) => {
                Value::Array(items.iter().map(|item| item.make(facts)).collect::<Result<_, _>>()?)
            }
            Self::Map(items) => {
                let made = items.iter().map(|(key, item)| Ok((key.clone(), item.make(facts)?)));
                Value::Object(made.collect::<Result<_, Unusable>>()?)
            }
        })
    }
}
