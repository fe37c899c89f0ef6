//! Changes to JSON documents by JSON Pointer (RFC 6901).

use std::ops::Range;

use gateway_core::config::problem::Problems;
use gateway_core::template::{Facts, MAX_RENDERED, Moment, Template, TextContext};
use gateway_plugin_common::parse;
use serde_json::Value;

use super::splice::{Document, PlaceKind, index, nested};
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

/// Why a text is no pointer that can be used.
#[derive(Debug, thiserror::Error)]
enum PointerError {
    #[error("`{0}` is not a JSON Pointer: it begins with `/`, as `/user/name`")]
    NoSlash(String),
    #[error("this has more than {MAX_STEPS} steps")]
    TooManySteps,
}

impl Pointer {
    /// Reads a pointer.
    ///
    /// # Errors
    /// What is wrong with it.
    fn read(text: &str) -> Result<Self, PointerError> {
        let Some(rest) = text.strip_prefix('/') else {
            return Err(PointerError::NoSlash(text.to_owned()));
        };
        let steps: Vec<String> =
            rest.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
        if steps.len() > MAX_STEPS {
            return Err(PointerError::TooManySteps);
        }
        Ok(Self(steps))
    }

    /// What a document has there.
    fn get(&self, document: &Document) -> Option<Range<usize>> {
        self.0.iter().try_fold(document.root(), |value, step| document.child(&value, step))
    }

    /// Whether something stands where a map is needed on the way.
    fn is_blocked(&self, document: &Document) -> bool {
        let mut value = document.root();
        for step in &self.0 {
            if !document.takes(&value, step) {
                return document.kind(&value) != PlaceKind::Null;
            }
            let Some(next) = document.child(&value, step) else { return false };
            value = next;
        }
        false
    }

    /// Takes out what a document has there.
    fn take(&self, document: &mut Document) -> Option<Vec<u8>> {
        let (last, way) = self.0.split_last()?;
        let parent = way.iter().try_fold(document.root(), |value, step| document.child(&value, step))?;
        document.remove(&parent, last)
    }

    /// Puts a value there, whatever is there or in the way, and makes the maps that are missing on the way. False where the document has
    /// no such place: it is a list or a plain value where the pointer needs a map, or a list on the way is too short.
    fn put(&self, document: &mut Document, value: &[u8]) -> bool {
        let mut place = document.root();
        let is_room = self.0.first().is_some_and(|step| document.takes(&place, step));
        if !is_room && document.kind(&place) != PlaceKind::Null {
            return false;
        }
        for (n, step) in self.0.iter().enumerate() {
            let (rest, is_last) = (self.0.get(n + 1..).unwrap_or_default(), n + 1 == self.0.len());
            match (document.kind(&place), document.child(&place, step)) {
                (_, Some(child)) => place = child,
                (PlaceKind::Object, None) => {
                    document.push(&place, Some(step), &nested(rest, value));
                    return true;
                }
                (PlaceKind::List, None) if step == "-" && is_last => {
                    document.push(&place, None, value);
                    return true;
                }
                // One that is only too short stays a list.
                (PlaceKind::List, None) if step == "-" || index(step).is_some() => return false,
                _ => {
                    document.replace(place, &nested(self.0.get(n..).unwrap_or_default(), value));
                    return true;
                }
            }
        }
        document.replace(place, value);
        true
    }
}

impl DocumentChange {
    pub(super) fn read(at: &str, rule: Rule, moment: Moment, problems: &mut Problems) -> Option<Self> {
        let mut pointer = |field: &str, text: &str| match Pointer::read(text) {
            Ok(pointer) => Some(pointer),
            Err(why) => {
                problems.add(format!("{at}.{field}"), why);
                None
            }
        };
        let key = pointer("key", &rule.key);
        let new = rule.new_key.as_deref().map(|new| pointer("new_key", new));
        let value = rule.value.and_then(|value| Made::read(&format!("{at}.value"), value, moment, problems));
        Some(Self { operation: rule.operation, at: key?, value, new: new.flatten() })
    }

    /// Its value as text.
    pub(super) fn value(&self, facts: &Facts<'_>) -> Result<Option<String>, Unusable> {
        let made = self.value.as_ref().map(|value| value.make(facts)).transpose()?;
        Ok(made.map(|value| value.to_string()))
    }

    /// Makes the change. False where the document has no place for a value that has to be there from now on.
    #[must_use]
    pub(super) fn apply(&self, document: &mut Document, value: Option<&str>) -> bool {
        match (self.operation, value.map(str::as_bytes), &self.new) {
            (Operation::Remove, ..) => {
                self.at.take(document);
                true
            }
            (Operation::Rename, _, Some(new)) => {
                self.at.take(document).is_none_or(|value| new.put(document, &value))
            }
            (Operation::Append, Some(value), _) => {
                let place = self.at.get(document);
                match place.as_ref().map(|place| document.kind(place)) {
                    Some(PlaceKind::List) => {
                        place.iter().for_each(|list| document.push(list, None, value));
                        true
                    }
                    Some(PlaceKind::Null) | None if !self.at.is_blocked(document) => {
                        self.at.put(document, &[b"[", value, b"]"].concat())
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
