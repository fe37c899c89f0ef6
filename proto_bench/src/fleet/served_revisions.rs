//! When which edge served which revision, and what went wrong.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::held_configuration::State;
use super::messages::{Hash, Position};
use crate::measure::Tally;

/// A change that the control plane has answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Commit {
    pub(super) revision: u64,
    /// When the call was sent: the commit is later, so delays are never shown too short.
    pub(super) sent: Instant,
}

/// What is known of the edges.
#[derive(Default)]
pub(super) struct Ledger(Mutex<Records>);

#[derive(Default)]
struct Records {
    edges: Vec<EdgeRecord>,
    /// The hash of each revision that an edge has served: two hashes of one revision are two configurations.
    hashes: HashMap<u64, Hash>,
    enrolled: usize,
    faults: Vec<String>,
    fault_count: usize,
}

#[derive(Default, Clone)]
struct EdgeRecord {
    is_slow: bool,
    connected: Option<Instant>,
    was_cut: bool,
    reconnections: u64,
    newest: u64,
    hash: Option<Hash>,
    served: Vec<Served>,
    state: Option<Arc<State>>,
}

#[derive(Clone, Copy)]
struct Served {
    revision: u64,
    at: Instant,
    /// When the connection began over which it came.
    connected: Instant,
}

/// How late edges served changes, in nanoseconds.
pub(super) struct Delays {
    /// For each change, the last edge.
    pub(super) by_all: Histogram<u64>,
    /// For each change and edge.
    pub(super) by_each: Histogram<u64>,
    /// Changes that an edge never served, nor anything newer.
    pub(super) missing: u64,
}

/// Faults that are kept with their words.
const MAX_FAULTS: usize = 20;

impl Ledger {
    pub(super) fn new(slow: impl Iterator<Item = bool>) -> Self {
        let edges = slow.map(|is_slow| EdgeRecord { is_slow, ..EdgeRecord::default() }).collect();
        Self(Mutex::new(Records { edges, ..Records::default() }))
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn fault(&self, fault: String) {
        let mut records = self.lock();
        records.fault_count += 1;
        if records.faults.len() < MAX_FAULTS {
            records.faults.push(fault);
        }
    }

    pub(super) fn enrolled(&self) {
        self.lock().enrolled += 1;
    }

    pub(super) fn connected(&self, edge: usize) {
        let mut records = self.lock();
        let record = &mut records.edges[edge];
        record.connected = Some(Instant::now());
        record.reconnections += u64::from(std::mem::take(&mut record.was_cut));
    }

    pub(super) fn disconnected(&self, edge: usize, is_cut: bool) {
        let mut records = self.lock();
        records.edges[edge].connected = None;
        records.edges[edge].was_cut |= is_cut;
    }

    pub(super) fn served(&self, edge: usize, at: &Position) {
        let now = Instant::now();
        let mut records = self.lock();
        let hash = *records.hashes.entry(at.revision).or_insert(at.hash);
        let record = &mut records.edges[edge];
        let connected = record.connected.unwrap_or(now);
        record.served.push(Served { revision: at.revision, at: now, connected });
        record.newest = record.newest.max(at.revision);
        record.hash = Some(at.hash);
        drop(records);
        if hash != at.hash {
            self.fault(format!("revision {} has two hashes", at.revision));
        }
    }

    pub(super) fn keep(&self, edge: usize, state: &Arc<State>) {
        self.lock().edges[edge].state = Some(state.clone());
    }

    /// Edges that are enrolled, are connected, and serve this revision or a newer one.
    pub(super) fn counts(&self, revision: u64) -> [usize; 3] {
        let records = self.lock();
        let connected = records.edges.iter().filter(|edge| edge.connected.is_some()).count();
        let serving = records.edges.iter().filter(|edge| edge.newest >= revision && edge.hash.is_some());
        [records.enrolled, connected, serving.count()]
    }

    /// Forgets when revisions were served: another phase begins.
    pub(super) fn begin(&self) {
        self.lock().edges.iter_mut().for_each(|edge| edge.served.clear());
    }

    /// How late the quick or the slow edges served these changes.
    pub(super) fn delays(&self, commits: &[Commit], slow: bool) -> Delays {
        let records = self.lock();
        let edges: Vec<&EdgeRecord> = records.edges.iter().filter(|edge| edge.is_slow == slow).collect();
        let Tally { latency: by_all, service: by_each, .. } = Tally::default();
        let mut delays = Delays { by_all, by_each, missing: 0 };
        let mut next = vec![0; edges.len()];
        for commit in commits {
            let mut last = None;
            for (edge, next) in edges.iter().zip(&mut next) {
                let served = &edge.served;
                while served.get(*next).is_some_and(|served| served.revision < commit.revision) {
                    *next += 1;
                }
                let Some(served) = served.get(*next) else {
                    delays.missing += 1;
                    continue;
                };
                // An edge that was away is late by the time since it is back.
                let delay = served.at.saturating_duration_since(commit.sent.max(served.connected));
                delays.by_each.saturating_record(nanos(delay));
                last = last.max(Some(delay));
            }
            if let Some(last) = last {
                delays.by_all.saturating_record(nanos(last));
            }
        }
        delays
    }

    /// Connections that edges made again after they were cut.
    pub(super) fn reconnections(&self) -> u64 {
        self.lock().edges.iter().map(|edge| edge.reconnections).sum()
    }

    /// Edges that serve the configuration of this hash, and the distinct states that they hold.
    pub(super) fn states(&self, hash: &Hash) -> (usize, Vec<Arc<State>>) {
        let records = self.lock();
        let same = records.edges.iter().filter(|edge| edge.hash.as_ref() == Some(hash)).count();
        let mut states: Vec<Arc<State>> = Vec::new();
        for state in records.edges.iter().filter_map(|edge| edge.state.as_ref()) {
            if !states.iter().any(|known| Arc::ptr_eq(known, state)) {
                states.push(state.clone());
            }
        }
        (same, states)
    }

    /// What went wrong; the last one counts those that are not listed.
    pub(super) fn faults(&self) -> Vec<String> {
        let records = self.lock();
        let mut faults = records.faults.clone();
        if records.fault_count > faults.len() {
            faults.push(format!("{} more faults of edges", records.fault_count - faults.len()));
        }
        faults
    }
}

fn nanos(delay: Duration) -> u64 {
    u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)
}
