//! The route table: by host, then by path.

use std::sync::Arc;

use regex::Regex;
use smallvec::SmallVec;

use super::literal::literal_start;
use super::path::{PathHash, PathMap};
use crate::config::index::Index;
use crate::config::model::{HostPattern, PathPattern};

/// Segments of a listen path, and of a request's path that are looked at: deeper ones match their shorter prefixes.
pub const MAX_SEGMENTS: usize = super::path::MAX_SEGMENTS;

/// The longest host name there is (RFC 1035 §2.3.4); longer ones match as no host.
const MAX_HOST: usize = 253;

/// Routes by host and path.
///
/// Hosts are tried in tiers: the exact name, then `*.` patterns from the longest suffix to the shortest, then routes
/// for any host. Within a tier the longest prefix on whole segments wins, then regexes, then a route without a
/// path. A prefix anywhere in a tier beats every regex of that tier. When a tier knows the host but none of its
/// paths match, the next tier is tried.
///
/// Among regexes, those with the longer literal start win, then those with the longer pattern, then the
/// alphabetically first: never the order in which they came, which a database doesn't keep.
///
/// A clone costs a few pointers and shares everything; changing one route copies what leads to that route.
#[derive(Clone)]
pub struct RouteTable<R> {
    exact: Index<Arc<str>, Arc<Paths<R>>>,
    /// By suffix with its leading dot.
    suffix: Index<Arc<str>, Arc<Paths<R>>>,
    any: Arc<Paths<R>>,
    hash: PathHash,
}

/// What [`RouteTable::find`] found.
#[derive(Debug)]
pub struct Found<'t, R> {
    /// The route.
    pub route: &'t R,
    /// Bytes at the start of the path that the listen path took; 0 for `/` and for routes without a path.
    pub matched: usize,
    /// The regex that matched, for its captures.
    pub regex: Option<&'t Regex>,
}

/// Why a route can't be put into the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// The same host and path lead somewhere else already.
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

    /// The route for a request.
    ///
    /// `host` is the request's authority or Host header as received: a port and a trailing dot are ignored, letters
    /// count the same in both cases. `path` begins with `/` and has no query; other targets (`*`) can only match
    /// regexes that say so and routes without a path. Takes no lock and allocates nothing.
    #[inline]
    pub fn find(&self, host: Option<&str>, path: &str) -> Option<Found<'_, R>> {
        if self.exact.is_empty() && self.suffix.is_empty() {
            return self.any.find(self.hash, path);
        }
        let mut lower = SmallVec::<[u8; 256]>::new();
        let host = host.map_or(&[][..], |host| clean_host(host, &mut lower));
        if !self.exact.is_empty()
            && let Some(found) =
                get_host(&self.exact, self.hash, host).and_then(|paths| paths.find(self.hash, path))
        {
            return Some(found);
        }
        if !self.suffix.is_empty() {
            // From the second byte: a name cannot begin with a dot, a pattern's suffix always does.
            for dot in memchr::memchr_iter(b'.', host.get(1..).unwrap_or_default()) {
                let suffix = &host[dot + 1..];
                let found =
                    get_host(&self.suffix, self.hash, suffix).and_then(|paths| paths.find(self.hash, path));
                if found.is_some() {
                    return found;
                }
            }
        }
        self.any.find(self.hash, path)
    }

    /// Adds a route for each of `hosts` (none: any host).
    ///
    /// # Errors
    /// When one of the places is taken, or the path has more than [`MAX_SEGMENTS`] segments; the table then stays as
    /// it was.
    pub fn insert(&mut self, hosts: &[HostPattern], path: &PathPattern, route: R) -> Result<(), Conflict> {
        if let PathPattern::Prefix(prefix) = path
            && !self.hash.fits(prefix)
        {
            return Err(Conflict::TooDeep);
        }
        let hash = self.hash;
        if places(hosts).any(|host| self.paths(host).is_some_and(|paths| paths.get(hash, path).is_some())) {
            return Err(Conflict::Taken);
        }
        for host in places(hosts) {
            self.paths_mut(host).set(hash, path, route.clone());
        }
        Ok(())
    }

    /// Removes the routes at each of `hosts` with this path, and hands one of them back.
    pub fn remove(&mut self, hosts: &[HostPattern], path: &PathPattern) -> Option<R> {
        let hash = self.hash;
        let mut removed = None;
        for host in places(hosts) {
            if self.paths(host).is_none_or(|paths| paths.get(hash, path).is_none()) {
                continue;
            }
            let paths = self.paths_mut(host);
            removed = paths.remove(hash, path);
            if paths.is_empty() {
                self.forget(host);
            }
        }
        removed
    }

    /// Puts `route` in the place of those at each of `hosts` with this path; hosts without one stay without.
    /// Hands one of the replaced back.
    pub fn replace(&mut self, hosts: &[HostPattern], path: &PathPattern, route: R) -> Option<R> {
        let hash = self.hash;
        let mut replaced = None;
        for host in places(hosts) {
            if self.paths(host).is_some_and(|paths| paths.get(hash, path).is_some()) {
                replaced = self.paths_mut(host).set(hash, path, route.clone());
            }
        }
        replaced
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

/// What `f` makes of a host's name in lower case, without port and trailing dot; empty when there is none, or one that is
/// too long to be a host.
pub fn host_name<T>(host: Option<&str>, f: impl FnOnce(&str) -> T) -> T {
    let mut lower = SmallVec::<[u8; 256]>::new();
    let name = host.map_or(&[][..], |host| clean_host(host, &mut lower));
    f(std::str::from_utf8(name).unwrap_or_default())
}

/// The host's name in lower case, without port and trailing dot; empty when it is too long to be one.
/// `lower` is only written to when the name has capitals.
fn clean_host<'a>(host: &'a str, lower: &'a mut SmallVec<[u8; 256]>) -> &'a [u8] {
    let host = host.as_bytes();
    let end = if host.first() == Some(&b'[') {
        memchr::memchr(b']', host).map_or(host.len(), |bracket| bracket + 1)
    } else {
        memchr::memchr(b':', host).unwrap_or(host.len())
    };
    let name = &host[..end];
    let name = name.strip_suffix(b".").unwrap_or(name);
    if name.len() > MAX_HOST {
        return &[];
    }
    if !name.iter().any(u8::is_ascii_uppercase) {
        return name;
    }
    lower.extend_from_slice(name);
    lower.make_ascii_lowercase();
    lower
}

/// The routes of one host.
struct Paths<R> {
    prefixes: PathMap<R>,
    /// Under the segments every match begins with, best first.
    regexes: PathMap<Arc<[RegexRoute<R>]>>,
    host_only: Option<R>,
}

#[derive(Clone)]
struct RegexRoute<R> {
    regex: Regex,
    route: R,
}

impl<R> Default for Paths<R> {
    fn default() -> Self {
        Self { prefixes: PathMap::default(), regexes: PathMap::default(), host_only: None }
    }
}

impl<R: Clone> Clone for Paths<R> {
    fn clone(&self) -> Self {
        Self {
            prefixes: self.prefixes.clone(),
            regexes: self.regexes.clone(),
            host_only: self.host_only.clone(),
        }
    }
}

impl<R> Paths<R> {
    fn is_empty(&self) -> bool {
        self.prefixes.is_empty() && self.regexes.is_empty() && self.host_only.is_none()
    }
}

impl<R: Clone> Paths<R> {
    fn find(&self, hash: PathHash, path: &str) -> Option<Found<'_, R>> {
        self.prefixes
            .longest(hash, path, |route, matched| Some(Found { route, matched, regex: None }))
            .or_else(|| self.find_regex(hash, path))
            .or_else(|| self.host_only.as_ref().map(|route| Found { route, matched: 0, regex: None }))
    }

    fn find_regex(&self, hash: PathHash, path: &str) -> Option<Found<'_, R>> {
        if self.regexes.is_empty() {
            return None;
        }
        self.regexes.longest(hash, path, |routes, _| {
            routes.iter().find_map(|RegexRoute { regex, route }| {
                let matched = regex.find(path).filter(|found| found.start() == 0)?.end();
                Some(Found { route, matched, regex: Some(regex) })
            })
        })
    }

    fn get(&self, hash: PathHash, path: &PathPattern) -> Option<&R> {
        match path {
            PathPattern::HostOnly => self.host_only.as_ref(),
            // No proxy asks for these yet.
            PathPattern::Exact(_) | PathPattern::Template(_) => None,
            PathPattern::Prefix(prefix) => self.prefixes.get(hash, prefix),
            PathPattern::Regex(regex) => {
                let routes = self.regexes.get(hash, &literal_start(regex.as_str()))?;
                routes.iter().find(|r| r.regex.as_str() == regex.as_str()).map(|r| &r.route)
            }
        }
    }

    fn set(&mut self, hash: PathHash, path: &PathPattern, route: R) -> Option<R> {
        let old = match path {
            PathPattern::HostOnly => return self.host_only.replace(route),
            PathPattern::Exact(_) | PathPattern::Template(_) => return None,
            PathPattern::Prefix(prefix) => return self.prefixes.insert(hash, prefix, route),
            PathPattern::Regex(_) => self.remove(hash, path),
        };
        if let PathPattern::Regex(regex) = path {
            let start = Arc::from(literal_start(regex.as_str()));
            let mut routes = self.regexes.get(hash, &start).map_or_else(Vec::new, |routes| routes.to_vec());
            routes.push(RegexRoute { regex: regex.clone(), route });
            routes.sort_by(|a, b| {
                let (a, b) = (a.regex.as_str(), b.regex.as_str());
                b.len().cmp(&a.len()).then_with(|| a.cmp(b))
            });
            self.regexes.insert(hash, &start, routes.into());
        }
        old
    }

    fn remove(&mut self, hash: PathHash, path: &PathPattern) -> Option<R> {
        match path {
            PathPattern::HostOnly => self.host_only.take(),
            PathPattern::Exact(_) | PathPattern::Template(_) => None,
            PathPattern::Prefix(prefix) => self.prefixes.remove(hash, prefix),
            PathPattern::Regex(regex) => {
                let start = literal_start(regex.as_str());
                let mut routes = self.regexes.get(hash, &start)?.to_vec();
                let at = routes.iter().position(|r| r.regex.as_str() == regex.as_str())?;
                let removed = routes.remove(at);
                if routes.is_empty() {
                    self.regexes.remove(hash, &start);
                } else {
                    self.regexes.insert(hash, &Arc::from(start), routes.into());
                }
                Some(removed.route)
            }
        }
    }
}

#[cfg(test)]
mod tests;
