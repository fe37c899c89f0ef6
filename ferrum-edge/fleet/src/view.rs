//! The configuration of one group of edges, with the recent changes from which it makes deltas.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use crate::documents::{DocumentKey, DocumentSet, Hash, Position};
use crate::message::Transfer;

/// Changes that a view remembers, so that edges behind by no more than these get a delta.
const MAX_STEPS: usize = 4096;
/// Keys that these have in all.
const MAX_KEYS: usize = 200_000;

/// One group's configuration.
#[derive(Debug, Clone)]
pub struct View {
    position: Position,
    documents: DocumentSet,
    steps: VecDeque<Step>,
    /// Keys in `steps`.
    keys: usize,
    /// Transfers to the position of now, by the hash that they lead from.
    transfers: HashMap<Option<Hash>, Arc<Transfer>>,
}

#[derive(Debug, Clone)]
struct Step {
    from: Hash,
    changed: Vec<DocumentKey>,
}

impl View {
    /// A view of these documents.
    pub fn new(epoch: Arc<str>, revision: u64, documents: DocumentSet) -> Self {
        let position = Position { epoch, revision, hash: documents.hash() };
        Self { position, documents, steps: VecDeque::new(), keys: 0, transfers: HashMap::new() }
    }

    /// Where it is.
    pub const fn position(&self) -> &Position {
        &self.position
    }

    /// What it contains.
    pub const fn documents(&self) -> &DocumentSet {
        &self.documents
    }

    /// Goes on to other documents at another position.
    pub fn advance(&mut self, epoch: Arc<str>, revision: u64, documents: DocumentSet) {
        let hash = documents.hash();
        if hash != self.position.hash {
            let changed = self.documents.difference(&documents);
            self.keys += changed.len();
            self.steps.push_back(Step { from: self.position.hash, changed });
            while self.steps.len() > MAX_STEPS || self.keys > MAX_KEYS {
                let Some(oldest) = self.steps.pop_front() else { break };
                self.keys -= oldest.changed.len();
            }
            self.documents = documents;
        }
        self.position = Position { epoch, revision, hash };
        self.transfers.clear();
    }

    /// What leads an edge from a hash to the position of now: a delta where the view remembers it, else a snapshot.
    pub fn transfer(&mut self, from: Option<Hash>) -> Arc<Transfer> {
        let step = from.and_then(|from| self.steps.iter().rposition(|step| step.from == from));
        let from = from.filter(|_| step.is_some());
        if let Some(transfer) = self.transfers.get(&from) {
            return transfer.clone();
        }
        let (mut changed, mut deleted) = (Vec::new(), Vec::new());
        match step {
            Some(step) => {
                let steps = self.steps.iter().skip(step);
                let keys: BTreeSet<&DocumentKey> = steps.flat_map(|step| &step.changed).collect();
                for key in keys {
                    match self.documents.get(key) {
                        Some(text) => changed.push((key.clone(), text.clone())),
                        None => deleted.push(key.clone()),
                    }
                }
            }
            None => changed = self.documents.iter().map(|(key, text)| (key.clone(), text.clone())).collect(),
        }
        let transfer = Arc::new(Transfer::new(from, self.position.clone(), changed, deleted));
        self.transfers.insert(from, transfer.clone());
        transfer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(pairs: &[(&str, &str)]) -> DocumentSet {
        let mut set = DocumentSet::default();
        set.apply(pairs.iter().map(|(id, text)| (DocumentKey::new("proxies", *id), Some(*text))));
        set
    }

    #[test]
    fn a_delta_leads_from_any_remembered_state_to_now() {
        let states =
            [set(&[("a", "1"), ("b", "1")]), set(&[("a", "2"), ("b", "1")]), set(&[("a", "2"), ("c", "1")])];
        let mut view = View::new("e".into(), 1, states[0].clone());
        for (revision, state) in (2..).zip(&states[1..]) {
            view.advance("e".into(), revision, state.clone());
        }
        for state in &states[..2] {
            let transfer = view.transfer(Some(state.hash()));
            assert_eq!(transfer.from, Some(state.hash()));
            let mut reached = state.clone();
            let changed = transfer.changed.iter().map(|(key, text)| (key.clone(), Some(text.clone())));
            reached.apply(changed.chain(transfer.deleted.iter().map(|key| (key.clone(), None))));
            assert_eq!(reached.hash(), transfer.to.hash);
        }
        let whole = view.transfer(None);
        assert_eq!((whole.from, whole.changed.len()), (None, 2));
        let unknown = view.transfer(Some(set(&[("z", "1")]).hash()));
        assert!(Arc::ptr_eq(&whole, &unknown), "edges with unknown hashes share one snapshot");
    }

    #[test]
    fn memory_is_bounded_and_what_is_forgotten_costs_a_snapshot() {
        let mut view = View::new("e".into(), 0, set(&[("a", "0")]));
        let first = view.position().hash;
        for revision in 1..=(MAX_STEPS as u64 + 1) {
            view.advance("e".into(), revision, set(&[("a", &revision.to_string())]));
        }
        assert_eq!(view.steps.len(), MAX_STEPS);
        assert_eq!(view.transfer(Some(first)).from, None);
    }
}
