//! Changes to header fields.

use gateway_core::config::problem::Problems;
use gateway_core::http::forwarding::{is_settable, is_told};
use gateway_core::template::{Facts, Moment, Render, Template, TextContext};
use gateway_plugin_common::headers;
use gateway_plugin_common::parse;
use http::header::{COOKIE, Entry, REFRESH, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::replace::{Rendered, Replacer, ValueKind, replace};
use super::{Operation, Rule, Unusable, text_value};

/// A change of a header field.
pub(super) struct HeaderChange {
    operation: Operation,
    name: HeaderName,
    value: Option<Template>,
    new: Option<HeaderName>,
    replacers: Vec<Replacer>,
}

/// What a change writes, made before anything changes.
pub(crate) struct HeaderValues<'r> {
    value: Option<HeaderValue>,
    replacements: Vec<Rendered<'r>>,
}

impl HeaderChange {
    pub(super) fn read(at: &str, rule: Rule, moment: Moment, problems: &mut Problems) -> Option<Self> {
        let mut read = |field: &str, name: &str| {
            let name = parse::header_name(&format!("{at}.{field}"), name, problems)?;
            if headers::is_framing(&name) {
                problems
                    .add(format!("{at}.{field}"), format!("`{name}` is the gateway's own to write"))
                    .remedy =
                    (name == http::header::HOST).then(|| "the plugin `rewrite` changes the host".into());
            } else if moment != Moment::Response && is_told(&name) && !is_settable(&name) {
                let message = format!("the gateway writes `{name}` itself, whatever a rule says");
                problems.add(format!("{at}.{field}"), message).remedy = Some("use another name".into());
            }
            Some(name)
        };
        let name = read("key", &rule.key);
        let new = rule.new_key.as_deref().map(|new| read("new_key", new));
        let value = text_value(at, rule.value.as_ref(), moment, problems);
        let replacers =
            Replacer::read_all(&format!("{at}.replacements"), rule.replacements, moment, problems);
        Some(Self { operation: rule.operation, name: name?, value, new: new.flatten(), replacers })
    }

    pub(super) fn templates(&self) -> impl Iterator<Item = &Template> {
        self.value.iter().chain(self.replacers.iter().flat_map(Replacer::templates))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &HeaderName> {
        std::iter::once(&self.name).chain(&self.new)
    }

    /// Renders what it writes.
    pub(super) fn values(&self, facts: &Facts<'_>) -> Result<HeaderValues<'_>, Unusable> {
        let mut buffer = Vec::new();
        let value = match &self.value {
            None => None,
            Some(value) => Some(value.field(&self.name, facts, &mut buffer).map_err(|_| Unusable)?),
        };
        let context = match self.name == COOKIE || self.name == SET_COOKIE {
            true => TextContext::Cookie,
            false => TextContext::Text,
        };
        let headers = facts.response.map_or(&facts.exchange.request.headers, |(_, headers)| headers);
        let is_there = headers.contains_key(&self.name);
        let replacements = self.replacers.iter().filter(|_| is_there).map(|one| one.render(facts, context));
        Ok(HeaderValues { value, replacements: replacements.collect::<Result<_, _>>()? })
    }

    pub(super) fn apply(&self, headers: &mut HeaderMap, values: HeaderValues<'_>) -> Result<(), Unusable> {
        let name = &self.name;
        let is_there = headers.contains_key(name);
        match (self.operation, values.value, &self.new) {
            (Operation::Remove, ..) => {
                headers.remove(name);
            }
            (Operation::Rename, _, Some(new)) if is_there => {
                let values: Vec<HeaderValue> = headers.get_all(name).iter().cloned().collect();
                headers.remove(name);
                headers.remove(new);
                for value in values {
                    headers.append(new, value);
                }
            }
            (Operation::Append, Some(value), _) => {
                headers.append(name, value);
            }
            (Operation::Set, Some(value), _) => {
                headers.insert(name, value);
            }
            (Operation::Add, Some(value), _) if !is_there => {
                headers.insert(name, value);
            }
            (Operation::Update, Some(value), _) if is_there => {
                headers.insert(name, value);
            }
            (Operation::Replace, ..) => {
                let Entry::Occupied(mut field) = headers.entry(name) else { return Ok(()) };
                for value in field.iter_mut() {
                    if let Some(made) = replaced(name, value, &values.replacements)? {
                        *value = made;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The new value of a field; `None` where it stays.
fn replaced(
    name: &HeaderName,
    value: &HeaderValue,
    replacements: &[Rendered<'_>],
) -> Result<Option<HeaderValue>, Unusable> {
    let bytes = value.as_bytes();
    let url = match *name == REFRESH {
        false => 0,
        true => match bytes.windows(4).position(|part| part.eq_ignore_ascii_case(b"url=")) {
            Some(at) => at + 4,
            None => return Ok(None),
        },
    };
    let (before, own) = bytes.split_at(url);
    let Some(made) = replace(replacements, own, ValueKind::Text)? else { return Ok(None) };
    HeaderValue::from_bytes([before, &made].concat().trim_ascii()).map(Some).map_err(|_| Unusable)
}
