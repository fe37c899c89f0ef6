//! Which paths a pattern covers, and what its names stand for.

use regex::Regex;

use super::{Captures, PathTemplate};
use crate::config::model::PathPattern;

impl PartialEq for PathPattern {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::HostOnly, Self::HostOnly) => true,
            (Self::Exact(a), Self::Exact(b)) | (Self::Prefix(a), Self::Prefix(b)) => a == b,
            (Self::Template(a), Self::Template(b)) => a == b,
            (Self::Regex(a), Self::Regex(b)) => a.as_str() == b.as_str(),
            _ => false,
        }
    }
}

impl PathPattern {
    /// Whether it covers a path, which has no query.
    pub fn covers(&self, path: &str) -> bool {
        match self {
            Self::HostOnly => true,
            Self::Exact(exact) => **exact == *path,
            Self::Template(template) => template.covers(path),
            Self::Prefix(prefix) if **prefix == *"/" => path.starts_with('/'),
            Self::Prefix(prefix) => {
                path.strip_prefix(&**prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            Self::Regex(regex) => regex.is_match(path),
        }
    }

    /// The names that a template may ask for: a group of a regex without a name has its number.
    pub fn names(&self) -> Vec<String> {
        match self {
            Self::Template(template) => template.names().iter().map(|name| name.to_string()).collect(),
            Self::Regex(regex) => {
                let named =
                    |(n, name): (usize, Option<&str>)| name.map_or_else(|| n.to_string(), str::to_owned);
                regex.capture_names().enumerate().skip(1).map(named).collect()
            }
            Self::HostOnly | Self::Exact(_) | Self::Prefix(_) => Vec::new(),
        }
    }

    /// As written in a configuration; `None` for every path.
    pub fn written(&self) -> Option<String> {
        Some(match self {
            Self::HostOnly => return None,
            Self::Exact(path) => format!("={path}"),
            Self::Template(template) => template.as_str().to_owned(),
            Self::Prefix(prefix) => prefix.to_string(),
            Self::Regex(regex) => format!("~{}", regex.as_str()),
        })
    }
}

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
