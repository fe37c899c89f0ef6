//! The routes of one host, by path.

use std::sync::Arc;

use regex::Regex;
use smallvec::SmallVec;

use super::bucket::{Bucket, Candidate};
use super::captures::{Captures, of_regex, of_template};
use super::literal::literal_start;
use super::path::{PathHash, PathMap};
use super::regexes::Regexes;
use super::shapes::TemplateMap;
use crate::config::condition::Condition;
use crate::config::index::Index;
use crate::config::model::Match;
use crate::config::pattern::PathPattern;
use crate::config::pattern::PathTemplate;

/// What [`super::RouteTable::find`] found.
#[derive(Debug)]
pub struct RouteMatch<'t, R> {
    /// The route.
    pub route: &'t R,
    /// Bytes at the start of the path that the listen path took; 0 for `/` and for routes without a path.
    pub matched: usize,
    named: Named<'t>,
}

/// What has names for parts of the path.
#[derive(Debug, Clone, Copy)]
enum Named<'t> {
    Nothing,
    Template(&'t PathTemplate),
    Regex(&'t Regex),
}

impl<R> RouteMatch<'_, R> {
    /// What the names in the route's path stand for, in the path it was found by; `None` where it has none.
    #[inline]
    pub fn captures(&self, path: &str) -> Option<Box<Captures>> {
        let captures = match self.named {
            Named::Nothing => return None,
            Named::Template(template) => of_template(template, path),
            Named::Regex(regex) => of_regex(regex, path),
        };
        captures.map(Box::new)
    }
}

/// The routes of one host.
#[derive(Clone)]
pub(super) struct Paths<R> {
    prefixes: PathMap<Bucket<R>>,
    /// Under the segments every match begins with.
    regexes: PathMap<Regexes<R>>,
    host_only: Option<Bucket<R>>,
    /// How many rules it has.
    rules: usize,
    /// What most hosts have none of.
    special: Option<Arc<Special<R>>>,
}

#[derive(Clone)]
struct Special<R> {
    exact: Index<Arc<str>, Bucket<R>>,
    templates: TemplateMap<Bucket<R>>,
    /// Rules of the host, of any kind, that have a priority.
    prioritised: usize,
    /// What rules ask of the listener, and how many ask that.
    listeners: Vec<(Condition, usize)>,
}

impl<R> Default for Special<R> {
    fn default() -> Self {
        Self { exact: Index::new(), templates: TemplateMap::default(), prioritised: 0, listeners: Vec::new() }
    }
}

impl<R> Default for Paths<R> {
    fn default() -> Self {
        Self {
            prefixes: PathMap::default(),
            regexes: PathMap::default(),
            host_only: None,
            rules: 0,
            special: None,
        }
    }
}

impl<R> Paths<R> {
    pub(super) fn is_empty(&self) -> bool {
        self.rules == 0
    }

    /// Whether no rule of the host is for the listener that a request came to. Costs as much as there are listeners that
    /// rules name.
    #[cold]
    pub(super) fn is_elsewhere(&self, mut holds: impl FnMut(&Condition) -> bool) -> bool {
        let Some(special) = &self.special else { return false };
        let bound: usize = special.listeners.iter().map(|(_, rules)| rules).sum();
        bound == self.rules && !special.listeners.iter().any(|(listener, _)| holds(listener))
    }
}

impl<R: Clone> Paths<R> {
    /// The route for a path: the first whose condition holds.
    #[inline]
    pub(super) fn find(
        &self,
        hash: PathHash,
        path: &str,
        mut holds: impl FnMut(&Condition) -> bool,
    ) -> Option<RouteMatch<'_, R>> {
        let mut is_meant = move |candidate: &Candidate<'_, R>| candidate.condition.is_none_or(&mut holds);
        if self.special.as_ref().is_none_or(|special| special.prioritised == 0) {
            return self.each(hash, path, |candidate, found| is_meant(&candidate).then_some(found));
        }
        let mut all = SmallVec::<[(Candidate<'_, R>, RouteMatch<'_, R>); 8]>::new();
        let none: Option<()> = self.each(hash, path, |candidate, found| {
            all.push((candidate, found));
            None
        });
        debug_assert!(none.is_none());
        // Stable: among equals the order in which they came is the one without priorities.
        all.sort_by_key(|(candidate, _)| std::cmp::Reverse(candidate.priority));
        all.into_iter().find_map(|(candidate, found)| is_meant(&candidate).then_some(found))
    }

    /// Shows every route that covers a path, in the order they have without priorities, until one is chosen.
    #[inline]
    fn each<'t, T>(
        &'t self,
        hash: PathHash,
        path: &str,
        mut choose: impl FnMut(Candidate<'t, R>, RouteMatch<'t, R>) -> Option<T>,
    ) -> Option<T> {
        if let Some(special) = &self.special
            && let Some(chosen) = special.each(hash, path, &mut choose)
        {
            return Some(chosen);
        }
        let mut choose = |candidate: Candidate<'t, R>, matched, named| {
            let route = candidate.route;
            choose(candidate, RouteMatch { route, matched, named })
        };
        let by_prefix = self.prefixes.longest(hash, path, |bucket, matched| {
            bucket.each(|candidate| choose(candidate, matched, Named::Nothing))
        });
        if by_prefix.is_some() {
            return by_prefix;
        }
        if !self.regexes.is_empty() {
            let by_regex = self.regexes.longest(hash, path, |regexes, _| {
                regexes.find(path, |regex, bucket| {
                    let named = if regex.captures_len() > 1 { Named::Regex(regex) } else { Named::Nothing };
                    bucket.each(|candidate| choose(candidate, path.len(), named))
                })
            });
            if by_regex.is_some() {
                return by_regex;
            }
        }
        self.host_only.as_ref()?.each(|candidate| choose(candidate, 0, Named::Nothing))
    }

    fn bucket(&self, hash: PathHash, path: &PathPattern) -> Option<&Bucket<R>> {
        match path {
            PathPattern::HostOnly => self.host_only.as_ref(),
            PathPattern::Exact(path) => {
                let exact = &self.special.as_ref()?.exact;
                exact.get_hashed(hash.host(path.as_bytes()), |key| key == path)
            }
            PathPattern::Template(template) => self.special.as_ref()?.templates.get(hash, template),
            PathPattern::Prefix(prefix) => self.prefixes.get(hash, prefix),
            PathPattern::Regex(regex) => self.regexes.get(hash, &literal_start(regex.as_str()))?.get(regex),
        }
    }

    /// Whether a rule ties with one that is here.
    pub(super) fn is_taken(&self, hash: PathHash, rule: &Match, priority: i32) -> bool {
        self.bucket(hash, &rule.path).is_some_and(|bucket| bucket.is_taken(rule, priority))
    }

    pub(super) fn add(&mut self, hash: PathHash, rule: &Match, priority: i32, route: R) {
        self.rules += 1;
        if priority != 0 {
            Arc::make_mut(self.special.get_or_insert_default()).prioritised += 1;
        }
        if let Some(listener) = of_listener(rule) {
            let listeners = &mut Arc::make_mut(self.special.get_or_insert_default()).listeners;
            match listeners.iter_mut().find(|(known, _)| *known == listener) {
                Some((_, rules)) => *rules += 1,
                None => listeners.push((listener, 1)),
            }
        }
        let new = |route| Bucket::new(rule, priority, route);
        match &rule.path {
            PathPattern::HostOnly => match &mut self.host_only {
                Some(bucket) => bucket.add(rule, priority, route),
                None => self.host_only = Some(new(route)),
            },
            PathPattern::Exact(path) => {
                let exact = &mut Arc::make_mut(self.special.get_or_insert_default()).exact;
                let hash = hash.host(path.as_bytes());
                match exact.get_mut_hashed(hash, |key| key == path) {
                    Some(bucket) => bucket.add(rule, priority, route),
                    None => drop(exact.insert_hashed(hash, path.clone(), new(route))),
                }
            }
            PathPattern::Template(template) => {
                let templates = &mut Arc::make_mut(self.special.get_or_insert_default()).templates;
                match templates.get_mut(hash, template) {
                    Some(bucket) => bucket.add(rule, priority, route),
                    None => templates.insert(hash, template, new(route)),
                }
            }
            PathPattern::Prefix(prefix) => match self.prefixes.get(hash, prefix) {
                Some(bucket) => {
                    let mut bucket = bucket.clone();
                    bucket.add(rule, priority, route);
                    self.prefixes.insert(hash, prefix, bucket);
                }
                None => drop(self.prefixes.insert(hash, prefix, new(route))),
            },
            PathPattern::Regex(regex) => {
                let start = Arc::from(literal_start(regex.as_str()));
                let mut regexes = self.regexes.get(hash, &start).cloned().unwrap_or_default();
                regexes.add(regex, rule, priority, route);
                self.regexes.insert(hash, &start, regexes);
            }
        }
    }

    pub(super) fn remove(&mut self, hash: PathHash, rule: &Match, priority: i32) -> Option<R> {
        let removed = self.take(hash, rule, priority)?;
        self.rules -= 1;
        if priority != 0
            && let Some(special) = &mut self.special
        {
            Arc::make_mut(special).prioritised -= 1;
        }
        if let (Some(listener), Some(special)) = (of_listener(rule), &mut self.special) {
            let listeners = &mut Arc::make_mut(special).listeners;
            listeners.iter_mut().filter(|(known, _)| *known == listener).for_each(|(_, rules)| *rules -= 1);
            listeners.retain(|(_, rules)| *rules > 0);
        }
        let is_plain = |special: &Special<R>| {
            special.prioritised == 0
                && special.listeners.is_empty()
                && special.exact.is_empty()
                && special.templates.is_empty()
        };
        if self.special.as_deref().is_some_and(is_plain) {
            self.special = None;
        }
        Some(removed)
    }

    fn take(&mut self, hash: PathHash, rule: &Match, priority: i32) -> Option<R> {
        match &rule.path {
            PathPattern::HostOnly => {
                let (removed, is_empty) = self.host_only.as_mut()?.take(rule, priority)?;
                if is_empty {
                    self.host_only = None;
                }
                Some(removed)
            }
            PathPattern::Exact(path) => {
                let exact = &mut Arc::make_mut(self.special.as_mut()?).exact;
                let hash = hash.host(path.as_bytes());
                let (removed, is_empty) =
                    exact.get_mut_hashed(hash, |key| key == path)?.take(rule, priority)?;
                if is_empty {
                    exact.remove_hashed(hash, |key| key == path);
                }
                Some(removed)
            }
            PathPattern::Template(template) => {
                let templates = &mut Arc::make_mut(self.special.as_mut()?).templates;
                let (removed, is_empty) = templates.get_mut(hash, template)?.take(rule, priority)?;
                if is_empty {
                    templates.remove(hash, template);
                }
                Some(removed)
            }
            PathPattern::Prefix(prefix) => {
                let mut bucket = self.prefixes.get(hash, prefix)?.clone();
                let (removed, is_empty) = bucket.take(rule, priority)?;
                if is_empty {
                    self.prefixes.remove(hash, prefix);
                } else {
                    self.prefixes.insert(hash, prefix, bucket);
                }
                Some(removed)
            }
            PathPattern::Regex(regex) => {
                let start = literal_start(regex.as_str());
                let mut regexes = self.regexes.get(hash, &start)?.clone();
                let removed = regexes.take(regex, rule, priority)?;
                if regexes.is_empty() {
                    self.regexes.remove(hash, &start);
                } else {
                    self.regexes.insert(hash, &Arc::from(start), regexes);
                }
                Some(removed)
            }
        }
    }

    /// Builds what the first request would else have to build.
    pub(super) fn prepare(&self, hash: PathHash, path: &PathPattern) {
        if let PathPattern::Regex(regex) = path
            && let Some(regexes) = self.regexes.get(hash, &literal_start(regex.as_str()))
        {
            regexes.prepare();
        }
    }
}

fn of_listener(rule: &Match) -> Option<Condition> {
    rule.condition.as_deref()?.of_listener()
}

impl<R: Clone> Special<R> {
    fn each<'t, T>(
        &'t self,
        hash: PathHash,
        path: &str,
        choose: &mut impl FnMut(Candidate<'t, R>, RouteMatch<'t, R>) -> Option<T>,
    ) -> Option<T> {
        if !self.exact.is_empty()
            && let Some(bucket) = self.exact.get_hashed(hash.host(path.as_bytes()), |key| **key == *path)
        {
            let chosen = bucket.each(|candidate| {
                let route = candidate.route;
                choose(candidate, RouteMatch { route, matched: path.len(), named: Named::Nothing })
            });
            if chosen.is_some() {
                return chosen;
            }
        }
        if self.templates.is_empty() {
            return None;
        }
        self.templates.find(hash, path, |bucket| {
            bucket.each(|candidate| {
                let (route, template) = (candidate.route, candidate.template);
                let named = template.map_or(Named::Nothing, Named::Template);
                choose(candidate, RouteMatch { route, matched: path.len(), named })
            })
        })
    }
}
