//! Host patterns: what they cover, and whether two proxies ask for the same requests.

use std::hash::Hash;
use std::sync::Arc;

use super::PathTemplate;
use crate::config::index::Index;
use crate::config::model::{HostPattern, PathPattern};

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

/// Who asks for which hosts and paths: finds the proxy that a new one would collide with, without comparing it
/// with every other.
///
/// Two claims collide when they have the same path and some host in common. It is a mistake even where precedence
/// would pick one of them: the other would silently lose part of what it asks for.
///
/// A clone is cheap and shares everything, so that a change can be tried on one and thrown away.
#[derive(Debug, Clone)]
pub struct Claims<O> {
    paths: Index<PathKey, Hosts<O>>,
}

impl<O> Default for Claims<O> {
    fn default() -> Self {
        Self { paths: Index::new() }
    }
}

impl<O: Clone + Eq + Hash> Claims<O> {
    /// Records that `owner` asks for `path` at `hosts`.
    ///
    /// # Errors
    /// The owner of an overlapping claim, and what both ask for; nothing is recorded then. An owner never collides
    /// with itself.
    pub fn claim(&mut self, hosts: &[HostPattern], path: &PathPattern, owner: &O) -> Result<(), O> {
        let key = PathKey::from(path);
        let claimed = self.paths.get(&key);
        if let Some(other) = claimed.and_then(|claimed| claimed.collision(hosts, owner)) {
            return Err(other);
        }
        match self.paths.get_mut(&key) {
            Some(claimed) => claimed.add(hosts, owner),
            None => {
                let mut claimed = Hosts::default();
                claimed.add(hosts, owner);
                self.paths.insert(key, claimed);
            }
        }
        Ok(())
    }

    /// Takes a claim back.
    pub fn release(&mut self, hosts: &[HostPattern], path: &PathPattern, owner: &O) {
        let key = PathKey::from(path);
        if let Some(claimed) = self.paths.get_mut(&key) {
            claimed.take(hosts, owner);
            if claimed.any.is_none() && claimed.named.is_none() {
                self.paths.remove(&key);
            }
        }
    }
}

/// A path pattern as a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum PathKey {
    HostOnly,
    Exact(Arc<str>),
    Template(Arc<PathTemplate>),
    Prefix(Arc<str>),
    Regex(String),
}

impl From<&PathPattern> for PathKey {
    fn from(path: &PathPattern) -> Self {
        match path {
            PathPattern::HostOnly => Self::HostOnly,
            PathPattern::Exact(path) => Self::Exact(path.clone()),
            PathPattern::Template(template) => Self::Template(template.clone()),
            PathPattern::Prefix(prefix) => Self::Prefix(prefix.clone()),
            PathPattern::Regex(regex) => Self::Regex(regex.as_str().to_owned()),
        }
    }
}

/// The claims on one path.
#[derive(Debug, Clone)]
struct Hosts<O> {
    any: Option<O>,
    /// Absent while nobody claims the path at a host of its own, as with most of a million paths.
    named: Option<Arc<Named<O>>>,
}

/// The claims on one path at certain hosts.
#[derive(Debug, Clone)]
struct Named<O> {
    exact: Index<Arc<str>, O>,
    suffix: Index<Arc<str>, O>,
    /// For every suffix of a claimed name (with its leading dot): the names claimed below it.
    below: Index<Arc<str>, Index<Arc<str>, ()>>,
}

impl<O> Default for Hosts<O> {
    fn default() -> Self {
        Self { any: None, named: None }
    }
}

impl<O> Default for Named<O> {
    fn default() -> Self {
        Self { exact: Index::new(), suffix: Index::new(), below: Index::new() }
    }
}

impl<O: Clone + Eq> Hosts<O> {
    /// The owner of a claim that has a host in common with `hosts`, other than `owner`.
    fn collision(&self, hosts: &[HostPattern], owner: &O) -> Option<O> {
        let any = self.any.as_ref().filter(|found| *found != owner).cloned();
        any.or_else(|| self.named.as_ref()?.collision(hosts, owner))
    }

    fn add(&mut self, hosts: &[HostPattern], owner: &O) {
        if hosts.is_empty() {
            self.any = Some(owner.clone());
        } else {
            Arc::make_mut(self.named.get_or_insert_default()).add(hosts, owner);
        }
    }

    fn take(&mut self, hosts: &[HostPattern], owner: &O) {
        if hosts.is_empty() && self.any.as_ref() == Some(owner) {
            self.any = None;
        }
        if let Some(named) = &mut self.named {
            let named = Arc::make_mut(named);
            named.take(hosts, owner);
            if named.exact.is_empty() && named.suffix.is_empty() {
                self.named = None;
            }
        }
    }
}

impl<O: Clone + Eq> Named<O> {
    fn collision(&self, hosts: &[HostPattern], owner: &O) -> Option<O> {
        let other = |found: Option<&O>| found.filter(|found| *found != owner).cloned();
        if hosts.is_empty() {
            let mut owners = self.exact.iter().chain(self.suffix.iter()).map(|(_, owner)| owner);
            return owners.find(|found| *found != owner).cloned();
        }
        hosts.iter().find_map(|host| match host {
            HostPattern::Exact(name) => {
                other(self.exact.get(name)).or_else(|| suffixes(name).find_map(|s| other(self.suffix.get(s))))
            }
            HostPattern::Suffix(name) => other(self.suffix.get(name))
                .or_else(|| suffixes(name).find_map(|s| other(self.suffix.get(s))))
                .or_else(|| {
                    let mut below = self.below.get(name)?.iter();
                    below.find_map(|(name, ())| other(self.owner(name)))
                }),
        })
    }

    fn owner(&self, name: &str) -> Option<&O> {
        if name.starts_with('.') { self.suffix.get(name) } else { self.exact.get(name) }
    }

    fn add(&mut self, hosts: &[HostPattern], owner: &O) {
        for host in hosts {
            let (claims, name) = match host {
                HostPattern::Exact(name) => (&mut self.exact, name),
                HostPattern::Suffix(name) => (&mut self.suffix, name),
            };
            claims.insert(name.clone(), owner.clone());
            for suffix in suffixes(name) {
                if !self.below.contains_key(suffix) {
                    self.below.insert(Arc::from(suffix), Index::new());
                }
                if let Some(names) = self.below.get_mut(suffix) {
                    names.insert(name.clone(), ());
                }
            }
        }
    }

    fn take(&mut self, hosts: &[HostPattern], owner: &O) {
        for host in hosts {
            let (claims, name) = match host {
                HostPattern::Exact(name) => (&mut self.exact, name),
                HostPattern::Suffix(name) => (&mut self.suffix, name),
            };
            if claims.get(name) != Some(owner) {
                continue;
            }
            claims.remove(name);
            for suffix in suffixes(name) {
                let emptied = self.below.get_mut(suffix).is_some_and(|names| {
                    names.remove(name);
                    names.is_empty()
                });
                if emptied {
                    self.below.remove(suffix);
                }
            }
        }
    }
}

/// The suffixes of a name that a wider pattern could be, each with its leading dot, without the name itself.
fn suffixes(name: &str) -> impl Iterator<Item = &str> {
    name.match_indices('.').filter(|(at, _)| *at > 0).filter_map(|(at, _)| name.get(at..))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> HostPattern {
        match text.strip_prefix('*') {
            Some(suffix) => HostPattern::Suffix(suffix.into()),
            None => HostPattern::Exact(text.into()),
        }
    }

    #[test]
    fn coverage() {
        let cases = [
            ("a.example.com", "a.example.com", true),
            ("a.example.com", "b.example.com", false),
            ("*.example.com", "a.example.com", true),
            ("*.example.com", "b.a.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "*.a.example.com", true),
            ("*.example.com", "*.example.org", false),
            ("*.example.com", "*.badexample.com", false),
        ];
        for (a, b, expected) in cases {
            assert_eq!(pattern(a).overlaps(&pattern(b)), expected, "{a} {b}");
            assert_eq!(pattern(b).overlaps(&pattern(a)), expected, "{b} {a}");
        }
    }

    fn hosts() -> impl Strategy<Value = Vec<HostPattern>> {
        proptest::collection::vec("(\\*\\.)?([ab]\\.){0,2}[ab]".prop_map(|text| pattern(&text)), 0..3)
    }

    proptest! {
        #[test]
        fn claims_agree_with_comparing_all(
            wishes in proptest::collection::vec((hosts(), any::<bool>(), any::<bool>()), 1..20),
        ) {
            let path = |root: bool| if root { PathPattern::HostOnly } else { PathPattern::Prefix("/".into()) };
            let mut claims = Claims::default();
            let mut held: Vec<(Vec<HostPattern>, bool, usize)> = Vec::new();
            for (n, (hosts, root, release)) in wishes.into_iter().enumerate() {
                let free = !held.iter().any(|(h, r, _)| *r == root && hosts_overlap(h, &hosts));
                let claimed = claims.claim(&hosts, &path(root), &n);
                prop_assert_eq!(claimed.is_ok(), free);
                if let Err(owner) = claimed {
                    prop_assert!(held.iter().any(|(h, r, o)| *o == owner && *r == root && hosts_overlap(h, &hosts)));
                } else {
                    held.push((hosts, root, n));
                }
                if release {
                    let (hosts, root, owner) = held.swap_remove(0);
                    claims.release(&hosts, &path(root), &owner);
                    if held.is_empty() {
                        prop_assert!(claims.paths.is_empty());
                    }
                }
                if held.is_empty() {
                    break;
                }
            }
        }
    }
}
