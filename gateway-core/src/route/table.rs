//! The route table: by host, then by path.

use std::sync::Arc;

use smallvec::SmallVec;

use super::host::clean_host;
use super::path::PathHash;
use super::paths::{Paths, RouteMatch};
use crate::config::condition::Condition;
use crate::config::index::Index;
use crate::config::model::Match;
use crate::config::pattern::MAX_SEGMENTS;
use crate::config::pattern::{HostPattern, PathPattern};

/// Routes by host and path.
///
/// The order, in which the first rule that covers a request takes it:
///
/// 1. Hosts in tiers: the exact name, then the `*.` pattern with the longest suffix, then rules for any host. The first
///    tier that has rules for the listener that the request came to (by `scheme`, `ports` and `addresses`) decides alone,
///    unless the table falls through.
/// 2. The higher priority; 0 where none is given.
/// 3. By kind of path: exact, with names in it, prefix on whole segments, regex, none at all.
/// 4. The longer path. Of two with names the one that has a text where the other has a name, from left to right. Of two
///    regexes the one with the longer literal start, then the one with the longer pattern, then the alphabetically
///    first: never the order in which they came, which a database doesn't keep.
/// 5. The one with more conditions. Two that tie here are refused, unless they exclude each other.
///
/// Conditions are looked at only for rules whose path covers the request's, so that the cost does not grow with the
/// number of routes. A clone costs a few pointers and shares everything; changing one route copies what leads to it.
#[derive(Clone)]
pub struct RouteTable<R> {
    exact: Index<Arc<str>, Arc<Paths<R>>>,
    /// By suffix with its leading dot.
    suffix: Index<Arc<str>, Arc<Paths<R>>>,
    any: Arc<Paths<R>>,
    hash: PathHash,
    falls_through: bool,
}

/// Why a route can't be put into the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// Another rule has the same host, path, priority and number of conditions, and may hold for the same request.
    #[error("this host and path belong to another route")]
    Taken,
    /// More than [`MAX_SEGMENTS`] segments.
    #[error("the path has more than {MAX_SEGMENTS} segments")]
    TooDeep,
}

impl<R> Default for RouteTable<R> {
    fn default() -> Self {
        Self {
            exact: Index::new(),
            suffix: Index::new(),
            any: Arc::new(Paths::default()),
            hash: PathHash::default(),
            falls_through: false,
        }
    }
}

impl<R: Clone> RouteTable<R> {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// True without routes.
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.suffix.is_empty() && self.any.is_empty()
    }

    /// Whether a request that no rule of its host takes goes on to the next tier of hosts.
    pub fn set_fall_through(&mut self, falls_through: bool) {
        self.falls_through = falls_through;
    }

    /// The route for a request.
    ///
    /// `host` is the request's authority or Host header as received: a port and a trailing dot are ignored, letters
    /// count the same in both cases. `path` begins with `/` and has no query; other targets (`*`) can only match exact
    /// paths and regexes that say so and routes without a path. `holds` answers whether a condition holds for the
    /// request. Takes no lock.
    #[inline]
    pub fn find(
        &self,
        host: Option<&str>,
        path: &str,
        mut holds: impl FnMut(&Condition) -> bool,
    ) -> Option<RouteMatch<'_, R>> {
        if self.exact.is_empty() && self.suffix.is_empty() {
            return self.any.find(self.hash, path, holds);
        }
        let mut lower = SmallVec::<[u8; 256]>::new();
        let host = host.map_or(&[][..], |host| clean_host(host, &mut lower));
        if !self.exact.is_empty()
            && let Some(paths) = get_host(&self.exact, self.hash, host)
        {
            let found = paths.find(self.hash, path, &mut holds);
            if found.is_some() || !(self.falls_through || paths.is_elsewhere(&mut holds)) {
                return found;
            }
        }
        if !self.suffix.is_empty() {
            // From the second byte: a name cannot begin with a dot, a pattern's suffix always does.
            for dot in memchr::memchr_iter(b'.', host.get(1..).unwrap_or_default()) {
                let suffix = &host[dot + 1..];
                let Some(paths) = get_host(&self.suffix, self.hash, suffix) else { continue };
                let found = paths.find(self.hash, path, &mut holds);
                if found.is_some() || !(self.falls_through || paths.is_elsewhere(&mut holds)) {
                    return found;
                }
            }
        }
        self.any.find(self.hash, path, holds)
    }

    /// Adds a route under each host of a rule (none: any host).
    ///
    /// # Errors
    /// When it ties with another rule, or the path has more than [`MAX_SEGMENTS`] segments; the table then stays as it
    /// was.
    pub fn insert(&mut self, rule: &Match, priority: i32, route: R) -> Result<(), Conflict> {
        if let PathPattern::Prefix(prefix) = &rule.path
            && !self.hash.fits(prefix)
        {
            return Err(Conflict::TooDeep);
        }
        let hash = self.hash;
        let taken = |host| self.paths(host).is_some_and(|paths| paths.is_taken(hash, rule, priority));
        if places(&rule.hosts).any(taken) {
            return Err(Conflict::Taken);
        }
        for host in places(&rule.hosts) {
            self.paths_mut(host).add(hash, rule, priority, route.clone());
        }
        Ok(())
    }

    /// Removes the routes that a rule has under each of its hosts, and hands one of them back.
    pub fn remove(&mut self, rule: &Match, priority: i32) -> Option<R> {
        let hash = self.hash;
        let mut removed = None;
        for host in places(&rule.hosts) {
            if self.paths(host).is_none() {
                continue;
            }
            let paths = self.paths_mut(host);
            removed = paths.remove(hash, rule, priority).or(removed);
            if paths.is_empty() {
                self.forget(host);
            }
        }
        removed
    }

    /// Builds what the first request under a rule would else have to build: the set of a host's regexes.
    pub fn prepare(&self, rule: &Match) {
        for host in places(&rule.hosts) {
            if let Some(paths) = self.paths(host) {
                paths.prepare(self.hash, &rule.path);
            }
        }
    }

    fn paths(&self, host: Option<&HostPattern>) -> Option<&Paths<R>> {
        match host {
            None => Some(&self.any),
            Some(HostPattern::Exact(name)) => get_host(&self.exact, self.hash, name.as_bytes()),
            Some(HostPattern::Suffix(name)) => get_host(&self.suffix, self.hash, name.as_bytes()),
        }
    }

    fn paths_mut(&mut self, host: Option<&HostPattern>) -> &mut Paths<R> {
        let (hosts, name) = match host {
            None => return Arc::make_mut(&mut self.any),
            Some(HostPattern::Exact(name)) => (&mut self.exact, name),
            Some(HostPattern::Suffix(name)) => (&mut self.suffix, name),
        };
        let hash = self.hash.host(name.as_bytes());
        if hosts.get_hashed(hash, |key| key == name).is_none() {
            hosts.insert_hashed(hash, name.clone(), Arc::default());
        }
        let paths = hosts.get_mut_hashed(hash, |key| key == name);
        Arc::make_mut(paths.expect("the entry was found or made just above"))
    }

    fn forget(&mut self, host: Option<&HostPattern>) {
        let (hosts, name) = match host {
            None => return,
            Some(HostPattern::Exact(name)) => (&mut self.exact, name),
            Some(HostPattern::Suffix(name)) => (&mut self.suffix, name),
        };
        hosts.remove_hashed(self.hash.host(name.as_bytes()), |key| key == name);
    }
}

/// The hosts a route stands under, `None` being any host.
fn places(hosts: &[HostPattern]) -> impl Iterator<Item = Option<&HostPattern>> {
    hosts.iter().map(Some).chain(hosts.is_empty().then_some(None))
}

fn get_host<'t, R>(
    hosts: &'t Index<Arc<str>, Arc<Paths<R>>>,
    hash: PathHash,
    name: &[u8],
) -> Option<&'t Paths<R>> {
    hosts.get_hashed(hash.host(name), |key| key.as_bytes() == name).map(|paths| &**paths)
}

#[cfg(test)]
mod tests;
