//! Limits that several gateways share, and what becomes of requests while they can't be asked.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::metrics::Metric;
use gateway_core::plugin::World;
use gateway_core::plugin::world::meters::Counter;
use gateway_plugin_common::redis_link::{OnError, RedisConfig};
use tokio::time::Instant;

use super::answer::CountedExchange;
use super::leases::{LeaseDecision, Leases};
use super::settings::{Count, Lease, Limit};
use super::{LimitOutcome, RateLimiting};
use crate::admission::rate_table::{Rule, Standing};
use crate::admission::shared_limits::{Mode, SharedLimits};

/// The shared limits of one plugin config.
pub(super) struct Together {
    pub(super) limits: Arc<SharedLimits>,
    rules: Box<[Rule]>,
    leases: Option<Arc<Leases>>,
    asked: Counter,
    leased: Counter,
    local: Counter,
    allowed: Counter,
    denied: Counter,
}

const SHARED: Metric = Metric::counter(
    "ferrum_rate_limiting_shared_total",
    "Requests and sessions by how they were counted: shared, leased (from tokens taken before), or during an outage of the store as local, allowed, denied.",
);

/// What is known of a request at once.
pub(super) enum FirstDecision {
    /// What becomes of it.
    Outcome(LimitOutcome),
    /// The store has to be asked, for at most so much.
    Ask(u64),
}

impl Together {
    pub(super) fn new(
        redis: &RedisConfig,
        world: &World,
        limits: &[Limit],
        leases: Option<(usize, Lease)>,
    ) -> Self {
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let count =
            |outcome| world.meters().counter(SHARED, &["plugin_config", "outcome"], &[owner, outcome]);
        let leases = leases.map(|(keys, Lease { size, lifetime })| {
            let name = format!("leases of {size} for {lifetime:?}, {keys}");
            world.kept(&name, || Leases::new(keys, size, lifetime, Instant::now()))
        });
        Self {
            limits: Arc::new(SharedLimits::new(redis, world)),
            leases,
            rules: limits.iter().map(|limit| limit.rule).collect(),
            asked: count("shared"),
            leased: count("leased"),
            local: count("local"),
            allowed: count("allowed"),
            denied: count("denied"),
        }
    }

    pub(super) fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// What is known without asking: by a lease, or because the store can't be asked.
    pub(super) fn at_once(&self, plugin: &RateLimiting, key: u64, cost: u64, now: Instant) -> FirstDecision {
        let held = self.leases.as_ref().map(|leases| leases.take(key, cost, now));
        let (passed, tightest) = match held {
            Some(LeaseDecision::Passes(standing)) => (true, standing),
            Some(LeaseDecision::Refused(standing)) => (false, standing),
            Some(LeaseDecision::Ask(most)) if self.limits.is_up() => return FirstDecision::Ask(most),
            None if self.limits.is_up() => return FirstDecision::Ask(cost),
            Some(LeaseDecision::Ask(_)) | None => {
                if let Some(leases) = &self.leases {
                    leases.unanswered(key, now);
                }
                return FirstDecision::Outcome(self.without(plugin, key, cost, now));
            }
        };
        self.leased.add(1);
        let retry_in = tightest.1.retry_in;
        FirstDecision::Outcome(LimitOutcome::Counted(CountedExchange {
            key,
            cost,
            passed,
            charged: false,
            tightest,
            retry_in,
        }))
    }

    /// Counts with the other gateways, or as `on_error` says.
    pub(super) async fn ask(
        &self,
        plugin: &RateLimiting,
        key: u64,
        cost: u64,
        most: u64,
        now: Instant,
    ) -> LimitOutcome {
        let answered = match &self.leases {
            Some(_) => self.limits.lease(key, &self.rules, cost, most).await,
            None => {
                let mode = if plugin.count == Count::All { Mode::Take } else { Mode::Look };
                self.limits.ask(key, &self.rules, mode, cost).await.map(|answer| (answer, cost))
            }
        };
        let Ok((answer, granted)) = answered else {
            if let Some(leases) = &self.leases {
                leases.unanswered(key, now);
            }
            return self.without(plugin, key, cost, now);
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
        let tightest = tightest.unwrap_or_default();
        let retry_in = all.iter().map(|(_, standing)| standing.retry_in).max().unwrap_or_default();
        if let Some(leases) = &self.leases {
            match passed {
                // Whoever asked only for itself leaves the lease of the other one alone.
                true if most > cost => {
                    leases.granted(key, granted.saturating_sub(cost), tightest, Instant::now())
                }
                true => {}
                false => {
                    let whole = Standing { retry_in, ..tightest.1 };
                    leases.refused(key, cost, (tightest.0, whole), Instant::now());
                }
            }
        }
        LimitOutcome::Counted(CountedExchange { key, cost, passed, charged: false, tightest, retry_in })
    }

    /// What `on_error` says.
    pub(super) fn without(&self, plugin: &RateLimiting, key: u64, cost: u64, now: Instant) -> LimitOutcome {
        match self.limits.on_error() {
            OnError::Local => {
                self.local.add(1);
                LimitOutcome::Counted(plugin.admit(key, cost, now))
            }
            OnError::Allow => {
                self.allowed.add(1);
                LimitOutcome::Passes
            }
            OnError::Deny => {
                self.denied.add(1);
                LimitOutcome::Unavailable
            }
        }
    }

    /// Takes so many, whatever is left. False where it could not be told.
    pub(super) fn charge(&self, key: u64, many: u64) -> bool {
        self.limits.tell(key, &self.rules, Mode::Charge, many)
    }
}
