//! What edges of a control plane lack of a write: plugins and settings that their version does not know. Some are left out there; what
//! uses the others is closed there.

use serde_json::{Value, json};

use super::request::AuthorizedRequest;
use crate::fleet::{FleetRole, LackingOf};
use crate::source::database::CommittedWrite;

/// Edges that an answer names.
const MAX_EDGES: usize = 100;

/// Each edge with what it lacks; `None` where no edge lacks anything, and elsewhere than at a control plane.
pub(super) fn document(asked: &AuthorizedRequest, written: &CommittedWrite) -> Option<Value> {
    let lacking = list(asked, written);
    let edges = lacking.iter().take(MAX_EDGES).map(|(edge, LackingOf { plugins, settings, left_out })| {
        json!({ "edge": edge, "plugins": plugins, "settings": settings, "left_out": left_out })
    });
    (!lacking.is_empty()).then(|| json!({ "count": lacking.len(), "edges": edges.collect::<Vec<_>>() }))
}

/// The same as one line.
pub(super) fn line(asked: &AuthorizedRequest, written: &CommittedWrite) -> Option<String> {
    let lacking = list(asked, written);
    let edges = lacking.iter().take(MAX_EDGES).map(|(edge, LackingOf { plugins, settings, left_out })| {
        let all = plugins.iter().chain(settings).map(String::as_str).collect::<Vec<_>>().join(", ");
        match left_out.is_empty() {
            true => format!("{edge} lacks {all}"),
            false => format!("{edge} lacks {all} (left out: {})", left_out.join(", ")),
        }
    });
    (!lacking.is_empty()).then(|| edges.collect::<Vec<_>>().join("; "))
}

fn list(asked: &AuthorizedRequest, written: &CommittedWrite) -> Vec<(String, LackingOf)> {
    let Some(FleetRole::Control(plane)) = &asked.fleet else { return Vec::new() };
    let documents = written.ops.iter().filter_map(|(_, op)| {
        let document: Value = serde_json::from_str(op.document()?).ok()?;
        Some((op.key().0, document))
    });
    let documents: Vec<_> = documents.collect();
    if documents.is_empty() { Vec::new() } else { plane.edges_lacking(&documents) }
}
