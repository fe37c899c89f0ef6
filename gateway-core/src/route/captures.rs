//! What the names in a route's path stood for.

use regex::Regex;

use crate::config::pattern::PathTemplate;

/// The named parts of a request's path, as they stand in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captures(Vec<(Box<str>, Box<str>)>);

impl Captures {
    /// These names and what they stood for.
    pub fn new<'a>(parts: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self(parts.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }

    /// What a name stood for; `None` for a name that isn't there and for a group that took no part.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| **known == *name).map(|(_, value)| &**value)
    }

    /// Every name with what it stood for.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }
}

/// What the names of a template stand for in a path.
pub(super) fn of_template(template: &PathTemplate, path: &str) -> Option<Captures> {
    let spans = template.spans(path)?;
    let cut = spans.iter().map(|(start, end)| path.get(*start as usize..*end as usize).unwrap_or_default());
    Some(Captures::new(template.names().iter().map(|name| &**name).zip(cut)))
}

/// Groups by name, and those without one by number.
pub(super) fn of_regex(regex: &Regex, path: &str) -> Option<Captures> {
    let found = regex.captures(path)?;
    let numbers: Vec<String> = (0..found.len()).map(|n| n.to_string()).collect();
    let parts = regex.capture_names().enumerate().skip(1).filter_map(|(n, name)| {
        Some((name.unwrap_or_else(|| numbers.get(n).map_or("", String::as_str)), found.get(n)?.as_str()))
    });
    Some(Captures::new(parts))
}
