//! How many exchanges the processor let pass, answered or failed.

use gateway_core::metrics::Metric;
use gateway_core::plugin::World;
use gateway_core::plugin::world::meters::Counter;

const STREAMS: Metric = Metric::counter(
    "ferrum_ext_proc_streams_total",
    "Exchanges by result of the processor: passed, replied (it sent an immediate response), failed (it failed or exceeded its time limit).",
);

/// Exchanges of one plugin config by their outcome.
pub(super) struct StreamCounts {
    pub(super) passed: Counter,
    pub(super) replied: Counter,
    pub(super) failed: Counter,
}

impl StreamCounts {
    pub(super) fn new(world: &World) -> Self {
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let count = |of| world.meters().counter(STREAMS, &["plugin_config", "outcome"], &[owner, of]);
        Self { passed: count("passed"), replied: count("replied"), failed: count("failed") }
    }
}
