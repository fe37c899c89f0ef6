//! Levels that fall while the gateway is busy: what compresses a little worse leaves CPU to more requests.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use gateway_core::config::problem::Problems;
use gateway_core::limit::{Busyness, Steps};
use gateway_core::metrics::Metric;
use gateway_core::plugin::World;
use gateway_core::plugin::world::meters::{Counter, Gauge};
use gateway_plugin_common::coding::Coding;
use schemars::JsonSchema;
use serde::Deserialize;

/// How levels depend on load: the share of the workers' CPU time that the gateway used in the last half second.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AdaptToLoad {
    /// Percentage at which levels start to drop. Default 60.
    #[schemars(range(min = 1, max = 100))]
    from_percent: u32,
    /// Percentage at which levels are lowest: 1, and 0 for Brotli. Default 90.
    #[schemars(range(min = 1, max = 100))]
    to_percent: u32,
}

impl Default for AdaptToLoad {
    fn default() -> Self {
        Self { from_percent: 60, to_percent: 90 }
    }
}

/// Steps from the configured level to the lowest.
const STEPS: u32 = 4;

const STEP: Metric = Metric::gauge(
    "ferrum_compression_load_step",
    "By how many quarters levels are lowered because of the load, from 0 to 4.",
);
const LOWERED: Metric = Metric::counter(
    "ferrum_compression_lowered_total",
    "Responses compressed at a lower level than the configured one because of the load.",
);

/// The level for each response.
pub(super) struct LevelByLoad {
    busyness: Busyness,
    steps: Steps,
    step: AtomicU32,
    shown: Gauge,
    lowered: Counter,
}

impl LevelByLoad {
    pub(super) fn new(rules: AdaptToLoad, world: &World, problems: &mut Problems) -> Option<Self> {
        let AdaptToLoad { from_percent: from, to_percent: to } = rules;
        if from >= to {
            problems.add("config.adapt_to_load.to_percent", "has to be more than `from_percent`");
            return None;
        }
        let owner = [world.owner().map_or("", |owner| owner.config.as_str())];
        Some(Self {
            busyness: world.busyness().clone(),
            steps: Steps { from, to, count: STEPS },
            step: AtomicU32::new(0),
            shown: world.meters().gauge(STEP, &["plugin_config"], &owner),
            lowered: world.meters().counter(LOWERED, &["plugin_config"], &owner),
        })
    }

    /// The level for a response that would be compressed at this one.
    pub(super) fn level(&self, coding: Coding, level: u32) -> u32 {
        let before = self.step.load(Relaxed);
        let step = self.steps.next(self.busyness.percent(), before);
        if step != before {
            // Several workers may come here at a time; the next response sets it right.
            self.step.store(step, Relaxed);
            self.shown.set(i64::from(step));
        }
        let lowest = if coding == Coding::Br { 0 } else { 1 };
        level - level.saturating_sub(lowest) * step / STEPS
    }

    /// A response is compressed at a lower level than without the load.
    pub(super) fn lowered(&self) {
        self.lowered.add(1);
    }
}
