//! Parts of an upstream, by the tags of its targets, that plugins choose for single requests.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use super::target::Target;
use arc_swap::ArcSwap;

/// Subsets that an upstream remembers its targets of; with more, all are found anew.
pub(super) const MAX_KNOWN: usize = 1000;

/// The targets that have some tags, and what happens when none of them is healthy.
#[derive(Debug)]
pub struct Subset {
    number: u64,
    tags: Box<[(String, String)]>,
    pub(super) fallback: Fallback,
}

/// What happens to a request when no target of its subset is healthy.
#[derive(Debug, Clone)]
pub enum Fallback {
    /// It is refused with 503.
    Refuse,
    /// It goes to any target of the upstream that the proxy uses.
    Any,
    /// It goes to another subset.
    Other(Arc<Subset>),
}

/// Why a request goes nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoSubset {
    /// No target has the tags.
    Empty,
    /// Those that have are unhealthy, or their breakers are open.
    Unhealthy,
}

/// For each target whether it is in a subset, by the subset's number.
type Masks = HashMap<u64, Arc<[bool]>, foldhash::fast::RandomState>;

/// What an upstream remembers of the subsets it was asked for. Read without a lock. Takes no room until it is first asked.
#[derive(Debug, Default)]
pub(super) struct KnownSubsets(OnceLock<Box<ArcSwap<Masks>>>);

impl Subset {
    /// The targets that have all of `tags`.
    pub fn new(tags: impl IntoIterator<Item = (String, String)>, fallback: Fallback) -> Self {
        static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);
        Self { number: NEXT_NUMBER.fetch_add(1, Relaxed), tags: tags.into_iter().collect(), fallback }
    }

    /// What its targets have in common.
    pub fn tags(&self) -> &[(String, String)] {
        &self.tags
    }

    /// The subset that stands in for this one.
    pub fn stand_in(&self) -> Option<&Arc<Self>> {
        match &self.fallback {
            Fallback::Other(subset) => Some(subset),
            Fallback::Refuse | Fallback::Any => None,
        }
    }

    fn mask(&self, list: &[Arc<Target>]) -> Arc<[bool]> {
        list.iter().map(|target| target.rules.has_tags(&self.tags)).collect()
    }
}

impl KnownSubsets {
    pub(super) fn mask(&self, subset: &Subset, list: &[Arc<Target>]) -> Arc<[bool]> {
        let known = self.0.get_or_init(Box::default);
        if let Some(mask) = known.load().get(&subset.number) {
            return mask.clone();
        }
        let mask = subset.mask(list);
        known.rcu(|masks| {
            let mut next = if masks.len() < MAX_KNOWN { Masks::clone(masks) } else { Masks::default() };
            next.insert(subset.number, mask.clone());
            next
        });
        mask
    }
}
