//! Patterns of hosts and paths: what they cover.

pub(crate) mod parse;
pub(crate) mod path_regex;
pub(crate) mod regexes;
mod template;
pub mod written;

use std::sync::Arc;

use regex::Regex;

pub use template::Segment;
pub use template::{BadTemplate, PathTemplate};

/// Segments of a path that are looked at; longer prefixes cannot be stored.
pub const MAX_SEGMENTS: usize = 64;

/// Which hosts a proxy answers for, in lower case and without a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// `api.example.com`
    Exact(Arc<str>),
    /// `*.example.com`, kept as `.example.com`; covers one or more labels, never the bare domain.
    Suffix(Arc<str>),
}

/// Which paths a proxy answers for.
#[derive(Debug, Clone)]
pub enum PathPattern {
    /// No `listen_path`: every path of its hosts, after every path-carrying proxy had its chance.
    HostOnly,
    /// One path.
    Exact(Arc<str>),
    /// Segments with names among them.
    Template(Arc<PathTemplate>),
    /// A prefix on whole segments: begins with `/`, has no trailing `/` unless it is `/` itself.
    Prefix(Arc<str>),
    /// `~regex`, anchored at both ends.
    Regex(Regex),
}

impl HostPattern {
    /// Whether this pattern covers a host name in lower case, without port and trailing dot.
    pub fn covers(&self, host: &str) -> bool {
        match self {
            Self::Exact(name) => **name == *host,
            Self::Suffix(suffix) => host.len() > suffix.len() && host.ends_with(&**suffix),
        }
    }

    /// Whether some host is covered by both.
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(a), b) => b.covers(a),
            (a, Self::Exact(b)) => a.covers(b),
            (Self::Suffix(a), Self::Suffix(b)) => a.ends_with(&**b) || b.ends_with(&**a),
        }
    }
}

/// Whether two lists of hosts have a host in common, an empty list being any host.
pub fn hosts_overlap(a: &[HostPattern], b: &[HostPattern]) -> bool {
    a.is_empty() || b.is_empty() || a.iter().any(|a| b.iter().any(|b| a.overlaps(b)))
}

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
