//! What edges of a control plane lack of a write: a plugin that their version does not have. What it protects is closed there.

use std::collections::BTreeSet;

use gateway_core::config::catalog::ObjectKind;
use serde_json::{Value, json};

use super::request::AuthorizedRequest;
use crate::fleet::FleetRole;
use crate::source::database::CommittedWrite;

/// Edges that an answer names.
const MAX_EDGES: usize = 100;

/// Each edge with the plugins that it lacks; `None` where no edge lacks one, and elsewhere than at a control plane.
pub(super) fn document(asked: &AuthorizedRequest, written: &CommittedWrite) -> Option<Value> {
    let lacking = list(asked, written);
    let edges =
        lacking.iter().take(MAX_EDGES).map(|(edge, plugins)| json!({ "edge": edge, "plugins": plugins }));
    (!lacking.is_empty()).then(|| json!({ "count": lacking.len(), "edges": edges.collect::<Vec<_>>() }))
}

/// The same as one line.
pub(super) fn line(asked: &AuthorizedRequest, written: &CommittedWrite) -> Option<String> {
    let lacking = list(asked, written);
    let edges =
        lacking.iter().take(MAX_EDGES).map(|(edge, plugins)| format!("{edge} lacks {}", plugins.join(", ")));
    (!lacking.is_empty()).then(|| edges.collect::<Vec<_>>().join("; "))
}

fn list(asked: &AuthorizedRequest, written: &CommittedWrite) -> Vec<(String, Vec<String>)> {
    let Some(FleetRole::Control(plane)) = &asked.fleet else { return Vec::new() };
    let configs = written.ops.iter().filter(|(_, op)| op.key().0 == ObjectKind::PluginConfigs);
    let names = configs.filter_map(|(_, op)| {
        let document: Value = serde_json::from_str(op.document()?).ok()?;
        document["plugin_name"].as_str().map(str::to_owned)
    });
    let names: BTreeSet<String> = names.collect();
    if names.is_empty() { Vec::new() } else { plane.edges_lacking(&names) }
}
