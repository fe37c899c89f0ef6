//! The fleet's gauges in `/metrics`.

use gateway_core::metrics::names;
use gateway_core::plugin::world::meters::{Gauge, Meters};

/// The fleet's numbers.
pub(super) struct FleetMeters {
    pub(super) enrolled: Gauge,
    pub(super) connected: Gauge,
    pub(super) behind: Gauge,
    pub(super) refusing: Gauge,
    pub(super) broken: Gauge,
}

impl FleetMeters {
    pub(super) fn new(meters: &Meters) -> Self {
        let gauge = |metric| meters.gauge(metric, &[], &[]);
        Self {
            enrolled: gauge(names::FLEET_EDGES),
            connected: gauge(names::FLEET_EDGES_CONNECTED),
            behind: gauge(names::FLEET_EDGES_BEHIND),
            refusing: gauge(names::FLEET_EDGES_REFUSING),
            broken: gauge(names::FLEET_BROKEN_OBJECTS),
        }
    }
}
