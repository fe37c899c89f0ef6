//! The changes of a way of requests, by what they are about: most conditions and texts are about none of them.

use std::collections::HashMap;
use std::ops::Deref;
use std::rc::Rc;

use serde_json::Value;

use super::{RequestChange, What, before_changes};
use crate::cond::Cond;

/// Changes of one subject behind which conditions are not converted any more.
const MAX_OF_SUBJECT: usize = 1000;

/// Changes in the order in which they are made; a copy costs little until it is changed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Changes {
    list: Rc<Vec<RequestChange>>,
    /// Places in the list.
    places: Rc<HashMap<Subject, Vec<usize>>>,
}

/// What a change is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Subject {
    Path,
    Query,
    Method,
    Client,
    /// A header, in lower case.
    Header(String),
    /// Headers by what their names begin with.
    Headers,
}

impl Deref for Changes {
    type Target = [RequestChange];

    fn deref(&self) -> &Self::Target {
        &self.list
    }
}

impl Extend<RequestChange> for Changes {
    fn extend<T: IntoIterator<Item = RequestChange>>(&mut self, changes: T) {
        changes.into_iter().for_each(|change| self.push(change));
    }
}

impl Changes {
    pub(crate) fn push(&mut self, change: RequestChange) {
        Rc::make_mut(&mut self.places).entry(Subject::of(&change.what)).or_default().push(self.list.len());
        Rc::make_mut(&mut self.list).push(change);
    }

    /// A condition on what is left of a request after these changes, as one on what the client sent; `None` where that is not
    /// known.
    pub(crate) fn before(&self, cond: Cond) -> Option<Cond> {
        let Cond::Is(value) = &cond else { return Some(cond) };
        if self.list.is_empty() {
            return before_changes(cond, []);
        }
        let mut subjects = Vec::new();
        subjects_of_condition(value, &mut subjects);
        let mut places: Vec<usize> = Vec::new();
        for own in subjects.iter().filter_map(|subject| self.places.get(subject)) {
            if own.len() > MAX_OF_SUBJECT {
                return None;
            }
            places.extend(own);
        }
        places.sort_unstable();
        places.dedup();
        let concerning: Vec<&RequestChange> = places.iter().filter_map(|at| self.list.get(*at)).collect();
        before_changes(cond, concerning.iter().copied())
    }

    /// Whether a template has something that is changed by any of these.
    pub(crate) fn are_in(&self, template: &str) -> bool {
        let names = template.split("${").skip(1).map(|rest| rest.split('}').next().unwrap_or_default());
        let mut subjects = names.flat_map(subjects_of_name);
        subjects.any(|subject| self.places.contains_key(&subject))
            || template.contains("${request.")
                && self.places.get(&Subject::Headers).is_some_and(|places| {
                    places.iter().filter_map(|at| self.list.get(*at)).any(|it| it.what.is_in(template))
                })
    }
}

impl Subject {
    fn of(what: &What) -> Self {
        match what {
            What::AnyQuery => Self::Query,
            What::Method(_) | What::AnyMethod => Self::Method,
            What::AnyClient => Self::Client,
            What::AnyHeader(name) if name.ends_with('*') => Self::Headers,
            What::NoHeader(name) | What::Header(name, _) | What::AnyHeader(name) => {
                Self::Header(name.to_ascii_lowercase())
            }
            _ => Self::Path,
        }
    }
}

/// What a variable of a template is about.
fn subjects_of_name(name: &str) -> Vec<Subject> {
    if name.starts_with("client.") {
        return vec![Subject::Client];
    }
    match name.strip_prefix("request.").unwrap_or_default() {
        "path" => vec![Subject::Path],
        "target" => vec![Subject::Path, Subject::Query],
        "query" => vec![Subject::Query],
        "method" => vec![Subject::Method],
        "host" | "authority" => vec![Subject::Header("host".to_owned())],
        name if name.starts_with("query.") => vec![Subject::Query],
        name if name.starts_with("cookie.") => vec![Subject::Header("cookie".to_owned())],
        name => {
            let header = name.strip_prefix("header.").map(|name| Subject::Header(name.to_ascii_lowercase()));
            header.into_iter().collect()
        }
    }
}

/// What a condition looks at; see [`What::concerns`].
fn subjects_of_condition(cond: &Value, made: &mut Vec<Subject>) {
    let header = |name: &str| [Subject::Header(name.to_ascii_lowercase()), Subject::Headers];
    for (key, value) in cond.as_object().into_iter().flatten() {
        match (key.as_str(), value) {
            ("all" | "any", Value::Array(list)) => {
                list.iter().for_each(|one| subjects_of_condition(one, made));
            }
            ("not", one) => subjects_of_condition(one, made),
            ("path", _) => made.push(Subject::Path),
            ("headers", Value::Object(named)) => made.extend(named.keys().flat_map(|name| header(name))),
            ("hosts" | "authority", _) => made.extend(header("host")),
            ("cookies", _) => made.extend(header("cookie")),
            ("content_types", _) => made.extend(header("content-type")),
            ("query" | "query_string", _) => made.push(Subject::Query),
            ("methods", _) => made.push(Subject::Method),
            ("clients", _) => made.push(Subject::Client),
            ("grpc", _) => made.extend(header("content-type").into_iter().chain([Subject::Path])),
            _ => {}
        }
    }
}
