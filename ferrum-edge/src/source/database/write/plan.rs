//! What a write comes to, object by object.

use gateway_core::config::catalog::{Edit, ObjectKind};
use gateway_core::config::model::Id;

use super::{Documents, Live};
use crate::store::{Object, Op, PendingChange};

/// What became of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectOutcome {
    Created,
    Updated,
    Unchanged,
    Deleted,
}

/// What is to be done, object by object.
#[derive(Default)]
pub(super) struct Plan {
    /// See `CommittedWrite::revived`.
    pub(super) revived: Vec<String>,
    pub(super) done: Vec<(ObjectOutcome, Op)>,
    /// The documents in the clear, as they are checked; beside `done`.
    pub(super) sent: Vec<Option<String>>,
    /// Where each stands in the request; beside `done`.
    pub(super) places: Vec<String>,
    /// The change that was approved, where this is one.
    pub(super) approved: Option<PendingChange>,
    /// The object that a request with one step is about, as it was.
    pub(super) only: Option<Object>,
}

impl Plan {
    pub(super) fn push(&mut self, at: &str, done: ObjectOutcome, op: Op, sent: Option<String>) {
        self.done.push((done, op));
        self.sent.push(sent);
        self.places.push(at.to_owned());
    }

    /// The object of a request with one step as this change leaves it.
    pub(super) fn object_after(&mut self, time: u64, revision: u64) -> Option<Object> {
        let was = self.only.take();
        let [(done, Op::Put { kind, id, document })] = self.done.as_slice() else { return None };
        if *done == ObjectOutcome::Unchanged {
            return was;
        }
        let created_at = was.map_or(time, |was| was.created_at);
        let (kind, id, document) = (*kind, id.clone(), document.clone());
        Some(Object { kind, id, document, created_at, updated_at: time, revision })
    }

    /// A proxy's own plugin configs go with it.
    pub(super) fn cascade(&mut self, live: &Live) {
        let put: std::collections::HashSet<(ObjectKind, String)> =
            self.done.iter().map(|(_, op)| (op.key().0, op.key().1.to_owned())).collect();
        let gone =
            self.done.iter().filter(|(done, _)| *done == ObjectOutcome::Deleted).map(|(_, op)| op.key());
        let proxies: Vec<String> =
            gone.filter(|(kind, _)| *kind == ObjectKind::Proxies).map(|(_, id)| id.to_owned()).collect();
        for proxy in proxies {
            for id in live.catalog.plugin_configs_of(&proxy) {
                let key = (ObjectKind::PluginConfigs, id.to_string());
                if !put.contains(&key) {
                    self.push("", ObjectOutcome::Deleted, Op::Delete { kind: key.0, id: key.1 }, None);
                }
            }
        }
    }

    /// What the store is to do.
    pub(super) fn ops(&self) -> Vec<Op> {
        self.done
            .iter()
            .filter(|(done, _)| *done != ObjectOutcome::Unchanged)
            .map(|(_, op)| op.clone())
            .collect()
    }

    /// The same for the catalog.
    pub(super) fn edit(&self, documents: &Documents) -> Edit {
        let mut edit = Edit::default();
        for (((_, op), sent), at) in self.done.iter().zip(&self.sent).zip(&self.places) {
            let (kind, id) = op.key();
            match sent {
                None => edit.gone.extend(id.parse::<Id>().ok().map(|id| (kind, id))),
                Some(document) => documents.put_sent(&mut edit, kind, at, id, document),
            }
        }
        edit
    }
}
