//! The regexes of one host that begin alike, tried as one.

use std::sync::{Arc, OnceLock};

use regex::{Regex, RegexSet, RegexSetBuilder};

use super::bucket::Bucket;
use crate::config::model::Match;

/// From so many on they are run as one set.
const SET_FROM: usize = 8;
/// Bytes the compiled set may take, and the memory one thread may use to run it. Each regex by itself has 1 MiB.
const MAX_SET: usize = 64 << 20;

/// Regexes in their order: the longer pattern first, then the alphabetically first.
#[derive(Clone)]
pub(super) struct Regexes<R> {
    list: Vec<(Regex, Bucket<R>)>,
    /// All of them as one; built by [`Regexes::prepare`], or with the first request.
    set: Arc<OnceLock<Option<RegexSet>>>,
}

impl<R> Default for Regexes<R> {
    fn default() -> Self {
        Self { list: Vec::new(), set: Arc::default() }
    }
}

impl<R: Clone> Regexes<R> {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The bucket that `choose` takes, of the regexes that cover a path, in their order.
    pub(super) fn find<'s, T>(
        &'s self,
        path: &str,
        mut choose: impl FnMut(&'s Regex, &'s Bucket<R>) -> Option<T>,
    ) -> Option<T> {
        if self.list.len() >= SET_FROM
            && let Some(set) = self.set()
        {
            let matching = set.matches(path);
            return matching.iter().find_map(|n| {
                let (regex, bucket) = self.list.get(n)?;
                choose(regex, bucket)
            });
        }
        self.list
            .iter()
            .filter(|(regex, _)| regex.is_match(path))
            .find_map(|(regex, bucket)| choose(regex, bucket))
    }

    /// Builds the set, so that no request has to.
    pub(super) fn prepare(&self) {
        if self.list.len() >= SET_FROM {
            self.set();
        }
    }

    fn set(&self) -> Option<&RegexSet> {
        let build = || {
            let patterns = self.list.iter().map(|(regex, _)| regex.as_str());
            RegexSetBuilder::new(patterns).size_limit(MAX_SET).dfa_size_limit(MAX_SET).build().ok()
        };
        self.set.get_or_init(build).as_ref()
    }

    pub(super) fn get(&self, regex: &Regex) -> Option<&Bucket<R>> {
        self.list.iter().find(|(known, _)| known.as_str() == regex.as_str()).map(|(_, bucket)| bucket)
    }

    pub(super) fn add(&mut self, regex: &Regex, rule: &Match, priority: i32, route: R) {
        if let Some((_, bucket)) = self.list.iter_mut().find(|(known, _)| known.as_str() == regex.as_str()) {
            return bucket.add(rule, priority, route);
        }
        let before = |known: &Regex| {
            let (known, new) = (known.as_str(), regex.as_str());
            new.len().cmp(&known.len()).then_with(|| known.cmp(new)).is_lt()
        };
        let at = self.list.partition_point(|(known, _)| before(known));
        self.list.insert(at, (regex.clone(), Bucket::new(rule, priority, route)));
        self.set = Arc::default();
    }

    pub(super) fn take(&mut self, regex: &Regex, rule: &Match, priority: i32) -> Option<R> {
        let at = self.list.iter().position(|(known, _)| known.as_str() == regex.as_str())?;
        let (taken, is_empty) = self.list[at].1.take(rule, priority)?;
        if is_empty {
            self.list.remove(at);
            self.set = Arc::default();
        }
        Some(taken)
    }
}
