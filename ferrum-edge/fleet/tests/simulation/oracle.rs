//! What must hold at every moment of a simulation.

use std::collections::{BTreeMap, BTreeSet};

use gateway_fleet::{Hash, Position};

/// How often each case was met.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    pub(crate) snapshots: usize,
    pub(crate) deltas: usize,
    pub(crate) unchanged: usize,
    pub(crate) refusals: usize,
    pub(crate) resyncs: usize,
    pub(crate) forks: usize,
    pub(crate) rechecks: usize,
    pub(crate) coalesced: usize,
    pub(crate) revocations: usize,
    pub(crate) replaced: usize,
    pub(crate) retried: usize,
}

impl Coverage {
    pub(crate) fn add(&mut self, other: &Self) {
        self.snapshots += other.snapshots;
        self.deltas += other.deltas;
        self.unchanged += other.unchanged;
        self.refusals += other.refusals;
        self.resyncs += other.resyncs;
        self.forks += other.forks;
        self.rechecks += other.rechecks;
        self.coalesced += other.coalesced;
        self.revocations += other.revocations;
        self.replaced += other.replaced;
        self.retried += other.retried;
    }

    pub(crate) fn assert_met(&self) {
        let all = [
            self.snapshots,
            self.deltas,
            self.unchanged,
            self.refusals,
            self.resyncs,
            self.forks,
            self.rechecks,
            self.coalesced,
            self.revocations,
            self.replaced,
            self.retried,
        ];
        assert!(all.iter().all(|count| *count > 0), "{self:?}");
    }
}

/// Looks at everything that happens.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    pub(crate) seed: u64,
    /// Every configuration that the store ever had, by group.
    rendered: BTreeMap<String, BTreeSet<Hash>>,
    /// What each edge has served last.
    served: BTreeMap<usize, Position>,
    /// Transfers without a final verdict, by control plane and session.
    open: BTreeSet<(usize, u64)>,
    revoked: BTreeSet<usize>,
    pub(crate) coverage: Coverage,
}

impl Oracle {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    pub(crate) fn rendered(&mut self, group: &str, hash: Hash) {
        self.rendered.entry(group.to_owned()).or_default().insert(hash);
    }

    /// An edge serves something from now on.
    pub(crate) fn serves(&mut self, edge: usize, groups: &[&str], position: &Position) {
        let is_known = groups.iter().any(|group| self.rendered[*group].contains(&position.hash));
        assert!(is_known, "seed {}: edge {edge} serves what never was a revision: {position}", self.seed);
        if let Some(before) = self.served.insert(edge, position.clone()) {
            let (from, to) = (before.revision, position.revision);
            assert!(
                before.may_be_followed_by(position),
                "seed {}: edge {edge} went back from {from} to {to}",
                self.seed
            );
        }
    }

    /// A restart takes an edge back to what is on its disk.
    pub(crate) fn restarted(&mut self, edge: usize) {
        self.served.remove(&edge);
    }

    pub(crate) fn sent(&mut self, control: usize, session: u64, edge: usize) {
        assert!(
            self.open.insert((control, session)),
            "seed {}: two transfers to edge {edge} are under way",
            self.seed
        );
        assert!(!self.revoked.contains(&edge), "seed {}: edge {edge} is revoked", self.seed);
    }

    pub(crate) fn answered(&mut self, control: usize, session: u64) {
        self.open.remove(&(control, session));
    }

    pub(crate) fn revoked(&mut self, edge: usize) {
        self.revoked.insert(edge);
        self.coverage.revocations += 1;
    }

    pub(crate) fn is_revoked(&self, edge: usize) -> bool {
        self.revoked.contains(&edge)
    }
}
