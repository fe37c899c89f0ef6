//! What a gateway is in a fleet.

use std::sync::Arc;

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
