//! Which proxies take all requests of which others.

use std::collections::HashMap;
use std::sync::Arc;

use crate::model::{HostPattern, Id, Match, PathPattern, Proxy};

/// A priority, and a proxy that has it.
type RankedProxy<'p> = (i32, &'p Id);

/// What unconditional matches take, by host and path, with the highest priority of each.
#[derive(Default)]
pub(super) struct Covers<'p> {
    all: HashMap<(Option<HostPattern>, Cover), RankedProxy<'p>>,
    prefixes: HashMap<(Option<HostPattern>, Arc<str>), RankedProxy<'p>>,
}

/// Why one goes before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Its priority is higher.
    Priority,
    /// It is a prefix, and the other one a regex of the same priority.
    Kind,
}

/// The paths that a match takes.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Cover {
    Everything,
    Under(Arc<str>),
    Exactly(Arc<str>),
    Regex(String),
}

impl<'p> Covers<'p> {
    pub(super) fn add(&mut self, one: &Match, priority: i32, proxy: &'p Proxy) {
        let cover = match &one.path {
            _ if one.condition.is_some() => return,
            PathPattern::HostOnly => Cover::Everything,
            PathPattern::Prefix(prefix) if &**prefix == "/" => Cover::Everything,
            PathPattern::Prefix(prefix) => Cover::Under(prefix.clone()),
            PathPattern::Exact(path) => Cover::Exactly(path.clone()),
            PathPattern::Regex(regex) => Cover::Regex(regex.as_str().to_owned()),
            PathPattern::Template(_) => return,
        };
        let hosts: Vec<Option<HostPattern>> = match one.hosts.as_slice() {
            [] => vec![None],
            hosts => hosts.iter().cloned().map(Some).collect(),
        };
        let raise = |known: &mut RankedProxy<'p>| {
            if known.0 < priority {
                *known = (priority, &proxy.id);
            }
        };
        for host in hosts {
            if let PathPattern::Prefix(prefix) = &one.path {
                raise(self.prefixes.entry((host.clone(), prefix.clone())).or_insert((priority, &proxy.id)));
            }
            raise(self.all.entry((host, cover.clone())).or_insert((priority, &proxy.id)));
        }
    }

    /// One of those that take everything this match takes and go before it.
    pub(super) fn above(&self, taken: &Match, priority: i32) -> Option<(&'p Id, Why)> {
        let covers = covers_of(&taken.path);
        let before = match &taken.path {
            PathPattern::Regex(regex) => prefixes_of(regex.as_str()),
            _ => Vec::new(),
        };
        let of_host = |host: Option<HostPattern>| {
            let higher = covers.iter().filter_map(|cover| self.all.get(&(host.clone(), cover.clone())));
            let higher = higher.filter(|(by, _)| *by > priority).map(|(_, id)| (*id, Why::Priority)).next();
            let kind = before.iter().filter_map(|prefix| self.prefixes.get(&(host.clone(), prefix.clone())));
            let kind = kind.filter(|(by, _)| *by >= priority).map(|(_, id)| (*id, Why::Kind)).next();
            higher.or(kind)
        };
        match taken.hosts.as_slice() {
            [] => of_host(None),
            hosts => {
                let all = hosts.iter().map(|host| of_host(Some(host.clone()))).collect::<Option<Vec<_>>>();
                all?.first().copied()
            }
        }
    }
}

/// Prefixes under which every path is that a regex over the whole path fits.
fn prefixes_of(regex: &str) -> Vec<Arc<str>> {
    let inner = regex.strip_prefix("^(?:").and_then(|it| it.strip_suffix(")$")).unwrap_or(regex);
    let mut prefixes = vec![Arc::from("/")];
    let literal = literal_start(inner);
    // What follows the last slash may go on within the segment.
    let ends = literal.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0);
    prefixes.extend(ends.filter_map(|end| Some(Arc::from(literal.get(..end)?))));
    prefixes
}

/// The text that everything begins with that a regex fits.
fn literal_start(regex: &str) -> String {
    let mut depth = 0_i32;
    let mut rest = regex.chars().peekable();
    let (mut text, mut is_open) = (String::new(), true);
    while let Some(c) = rest.next() {
        match c {
            '\\' => match rest.next() {
                Some(c) if is_open && c.is_ascii_punctuation() => text.push(c),
                _ => is_open = false,
            },
            '|' if depth == 0 => return String::new(),
            '(' | '[' => {
                depth += 1;
                is_open = false;
            }
            ')' | ']' => depth -= 1,
            '?' | '*' | '{' if is_open => {
                text.pop();
                is_open = false;
            }
            '.' | '+' | '^' | '$' | '?' | '*' | '{' => is_open = false,
            c if is_open => text.push(c),
            _ => {}
        }
    }
    text
}

/// Everything that takes all of these paths.
fn covers_of(path: &PathPattern) -> Vec<Cover> {
    let mut covers = vec![Cover::Everything];
    match path {
        PathPattern::Prefix(path) | PathPattern::Exact(path) => {
            let ends = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0).chain([path.len()]);
            covers.extend(ends.filter_map(|end| Some(Cover::Under(Arc::from(path.get(..end)?)))));
        }
        PathPattern::Regex(regex) => covers.push(Cover::Regex(regex.as_str().to_owned())),
        PathPattern::HostOnly | PathPattern::Template(_) => {}
    }
    if let PathPattern::Exact(path) = path {
        covers.push(Cover::Exactly(path.clone()));
    }
    covers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_regex_begins_with() {
        for (regex, expected) in [
            (r"/items/\d+", "/items/"),
            (r"/a\.b/c?", "/a.b/"),
            (r"/a|/b", ""),
            (r"/(a|b)/c", "/"),
            (r"(?i)/a", ""),
            (r"/a+", "/a"),
            (r"/a{0,2}", "/"),
            (r".*\.png", ""),
            (r"/x/[ab|]+", "/x/"),
        ] {
            assert_eq!(literal_start(regex), expected, "{regex}");
        }
    }
}
