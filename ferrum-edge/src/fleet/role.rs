//! A gateway's role in a fleet: control plane or edge.

use std::sync::Arc;

use gateway_fleet::Position;
use gateway_telemetry::json::Rfc3339;
use serde_json::{Value, json};

use super::plane::ControlPlane;
use crate::source::control_plane::Edge;

/// What a gateway is in a fleet.
#[derive(Clone)]
pub(crate) enum FleetRole {
    /// It gives edges their configuration.
    Control(Arc<ControlPlane>),
    /// It gets its configuration from a control plane.
    Edge(Edge),
}

fn position(position: Option<&Position>) -> Value {
    position.map_or(Value::Null, |position| {
        json!({ "epoch": &*position.epoch, "revision": position.revision, "hash": position.hash.to_string() })
    })
}

/// What a gateway is in a fleet, for `/v1/status`; `null` outside of one.
pub(crate) fn standing(role: Option<&FleetRole>) -> Value {
    match role {
        None => Value::Null,
        Some(FleetRole::Control(plane)) => json!({ "role": "control-plane", "listening": plane.listening() }),
        Some(FleetRole::Edge(edge)) => {
            let edge = edge.standing();
            let refused = edge
                .refused
                .as_ref()
                .map(|(at, reason)| json!({ "position": position(Some(at)), "reason": reason }));
            let broken = edge.findings.broken.iter().map(
                |object| json!({ "kind": &*object.key.kind, "id": &*object.key.id, "reason": object.reason }),
            );
            let ends = std::time::UNIX_EPOCH + std::time::Duration::from_secs(edge.certificate_ends);
            json!({
                "role": "edge",
                "edge": edge.edge,
                "name": edge.name,
                "group": edge.group,
                "control_plane": edge.connected,
                "since": edge.since.map(|since| Rfc3339(since).to_string()),
                "problem": edge.problem,
                "served": position(edge.served.as_ref()),
                "refused": refused,
                "broken": broken.collect::<Vec<_>>(),
                "broken_count": edge.findings.count,
                "revoked": edge.revoked,
                "certificate_ends_at": Rfc3339(ends).to_string(),
                "last_good": position(edge.kept.as_ref()),
                "last_good_problem": edge.unsaved,
            })
        }
    }
}
