//! Limits that several gateways share, and what becomes of requests while they can't be asked.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::plugin::World;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::record::Metric;
use tokio::time::Instant;

use super::answer::Counted;
use super::settings::{Count, Limit};
use super::{Outcome, RateLimiting};
use crate::rate_table::{Rule, Standing};
use crate::redis_link::{OnError, Server};
use crate::shared_limits::{Mode, SharedLimits};

/// The shared limits of one plugin config.
pub(super) struct Together {
    pub(super) limits: Arc<SharedLimits>,
    rules: Box<[Rule]>,
    asked: Counter,
    local: Counter,
    allowed: Counter,
    denied: Counter,
}

const SHARED: Metric = Metric {
    name: "ferrum_rate_limiting_shared_total",
    kind: "counter",
    help: "Requests and sessions by how they were counted: shared, or without the store as local, allowed, denied.",
};
const UP: Metric = Metric {
    name: "ferrum_rate_limiting_shared_up",
    kind: "gauge",
    help: "1 while the store that gateways share is connected.",
};

impl Together {
    pub(super) fn new(server: Server, world: &World, limits: &[Limit]) -> Self {
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let count =
            |outcome| world.meters().counter(SHARED, &["plugin_config", "outcome"], &[owner, outcome]);
        let gauge = world.meters().gauge(UP, &["plugin_config"], &[owner]);
        Self {
            limits: Arc::new(SharedLimits::new(server, gauge, Instant::now())),
            rules: limits.iter().map(|limit| limit.rule).collect(),
            asked: count("shared"),
            local: count("local"),
            allowed: count("allowed"),
            denied: count("denied"),
        }
    }

    /// Counts with the other gateways, or as `on_error` says.
    pub(super) async fn ask(&self, plugin: &RateLimiting, (key, cost): (u64, u64), now: Instant) -> Outcome {
        if !self.limits.is_up() {
            return self.without(plugin, (key, cost), now);
        }
        let mode = if plugin.count == Count::All { Mode::Take } else { Mode::Look };
        let Ok(answer) = self.limits.ask(key, &self.rules, (mode, cost)).await else {
            return self.without(plugin, (key, cost), now);
        };
        self.asked.add(1);
        let passed = answer.refused.is_none();
        let standing =
            |(n, owed): (usize, Duration)| Some((n, self.rules.get(n)?.standing(passed, owed, cost)));
        let all: Vec<(usize, Standing)> = answer.owed.into_iter().enumerate().filter_map(standing).collect();
        let tightest = match answer.refused {
            Some(refused) => all.get(refused).copied(),
            None => all.iter().copied().min_by_key(|(_, standing)| standing.remaining),
        };
        let retry_in = all.iter().map(|(_, standing)| standing.retry_in).max().unwrap_or_default();
        Outcome::Counted(Counted {
            key,
            cost,
            passed,
            charged: false,
            tightest: tightest.unwrap_or_default(),
            retry_in,
        })
    }

    /// What `on_error` says.
    pub(super) fn without(&self, plugin: &RateLimiting, (key, cost): (u64, u64), now: Instant) -> Outcome {
        match self.limits.on_error() {
            OnError::Local => {
                self.local.add(1);
                Outcome::Counted(plugin.admit(key, cost, now))
            }
            OnError::Allow => {
                self.allowed.add(1);
                Outcome::Passes
            }
            OnError::Deny => {
                self.denied.add(1);
                Outcome::Unavailable
            }
        }
    }

    /// Takes so many, whatever is left. False where it could not be told.
    pub(super) fn charge(&self, key: u64, many: u64) -> bool {
        self.limits.tell(key, &self.rules, (Mode::Charge, many))
    }
}
