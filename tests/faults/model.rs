//! What the store has to hold by everything that was acknowledged.

use std::collections::{BTreeMap, BTreeSet};

/// Consumers that are written one by one.
pub(crate) const SINGLE: u32 = 6;
/// Consumers that are only written together; both have the same version.
pub(crate) const PAIR: [u32; 2] = [100, 101];

/// The version of a consumer's key; `None` when there is no such consumer.
pub(crate) type Version = Option<u64>;

/// What came of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Acknowledged,
    Refused,
    /// No answer, or one that leaves it open.
    Unknown,
}

/// What each consumer may be.
#[derive(Debug, Default)]
pub(crate) struct Model {
    may_be: BTreeMap<u32, BTreeSet<Version>>,
    /// Keys that open nothing any more, whatever happens.
    pub(crate) retired: Vec<String>,
}

/// The key of a consumer.
pub(crate) fn key(consumer: u32, version: u64) -> String {
    format!("key-{consumer}-{version}")
}

impl Model {
    /// What this consumer may be.
    pub(crate) fn of(&self, consumer: u32) -> BTreeSet<Version> {
        self.may_be.get(&consumer).cloned().unwrap_or_else(|| BTreeSet::from([None]))
    }

    /// Every consumer there ever was.
    pub(crate) fn consumers(&self) -> Vec<u32> {
        self.may_be.keys().copied().collect()
    }

    /// A key that opens something, as far as that is known.
    pub(crate) fn good_key(&self) -> Option<String> {
        let known = self.may_be.iter();
        known
            .filter_map(|(consumer, versions)| {
                Some(key(*consumer, versions.iter().flatten().next().copied()?))
            })
            .next()
    }

    /// Notes a write.
    pub(crate) fn wrote(&mut self, consumer: u32, version: Version, outcome: Outcome) {
        match outcome {
            Outcome::Refused => {}
            Outcome::Acknowledged => self.is(consumer, version),
            Outcome::Unknown => {
                let mut may_be = self.of(consumer);
                may_be.insert(version);
                self.may_be.insert(consumer, may_be);
            }
        }
    }

    /// Notes what a consumer is found to be; other keys of it are retired.
    pub(crate) fn is(&mut self, consumer: u32, version: Version) {
        let before = self.of(consumer);
        let gone = before.into_iter().flatten().filter(|old| Some(*old) != version);
        self.retired.extend(gone.map(|old| key(consumer, old)));
        self.may_be.insert(consumer, BTreeSet::from([version]));
    }
}
