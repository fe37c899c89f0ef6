//! How many sessions a key may have open, and how many it may open in a second: what `connection_limit` and `udp_rate_limiting` share.

use std::hash::Hasher;
use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::metrics::Metric;
use gateway_core::plugin::World;
use gateway_core::plugin::world::meters::{Counter, Gauge};
use tokio::time::Instant;

use crate::admission::byte_caps::Setting;
use crate::admission::concurrency_limiting::places::{Entering, Limiter, Permit, PermitTable};
use crate::admission::rate_table::{MAX_PER_SECOND, Rule, Table};

/// The most sessions of a key: what the table counts to.
pub(crate) const MAX_CONCURRENT: u64 = 16_000_000;

/// The settings, as they are written in a plugin's.
pub(crate) struct GateSettings {
    /// Sessions at a time, with the name of the setting.
    pub(crate) concurrent: Setting<u64>,
    /// New sessions a second.
    pub(crate) rate: Setting<u64>,
    /// New sessions at once.
    pub(crate) burst: Setting<u64>,
    pub(crate) max_keys: usize,
}

/// The words for the records of refused sessions.
pub(crate) struct GateReasons {
    pub(crate) concurrent: &'static str,
    pub(crate) rate: &'static str,
}

/// Both limits of a plugin config.
pub(crate) struct SessionGate {
    limiter: Option<Arc<Limiter>>,
    rate: Option<Rule>,
    table: Arc<Table>,
    reasons: GateReasons,
    accepted: Counter,
    concurrent: Counter,
    limited: Counter,
}

impl SessionGate {
    /// Whether the settings limit anything.
    pub(crate) fn is_needed(settings: &GateSettings) -> bool {
        settings.concurrent.value.is_some() || settings.rate.value.is_some()
    }

    /// Checks the settings, and takes the tables that the plugin config had before. `sessions` counts by `outcome`, `evicted` counts
    /// keys that were forgotten early.
    pub(crate) fn new(
        settings: &GateSettings,
        reasons: GateReasons,
        [sessions, evicted]: [Metric; 2],
        world: &World,
        problems: &mut Problems,
    ) -> Self {
        check(settings.concurrent, MAX_CONCURRENT, problems);
        check(settings.rate, MAX_PER_SECOND, problems);
        if settings.rate.value.is_none() && settings.burst.value.is_some() {
            let why = format!("there is no burst without `{}`", settings.rate.name);
            problems.add(format!("config.{}", settings.burst.name), why);
        }
        let rate = settings.rate.value.and_then(|rate| {
            let rule = Rule::fine(rate, settings.burst.value.unwrap_or(rate));
            if rule.is_none() {
                problems.add(format!("config.{}", settings.burst.name), "is out of range for this rate");
            }
            rule
        });
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let count =
            |outcome| world.meters().counter(sessions, &["plugin_config", "outcome"], &[owner, outcome]);
        let keys = settings.max_keys;
        let limiter = settings.concurrent.value.map(|most| {
            let places = world.kept(&format!("places for {keys}"), || PermitTable::new(keys));
            Arc::new(Limiter::new(places, most, 0, Gauge::default()))
        });
        let evicted = world.meters().counter(evicted, &["plugin_config"], &[owner]);
        let rate_keys = if rate.is_some() { keys } else { 1 };
        let make = || Table::new(rate_keys, Instant::now(), evicted);
        Self {
            limiter,
            rate,
            table: world.kept(&format!("rates of {rate_keys} sessions"), make),
            reasons,
            accepted: count("accepted"),
            concurrent: count("concurrent"),
            limited: count("rate"),
        }
    }

    /// Begins the hash of a key.
    pub(crate) fn hasher(&self) -> impl Hasher + use<> {
        self.table.hasher()
    }

    /// Lets a session in. The permit gives its place back when it is dropped; `None` where places are not counted.
    ///
    /// # Errors
    /// The word for its record.
    pub(crate) fn enter(&self, key: u64) -> Result<Option<Permit>, &'static str> {
        let now = Instant::now();
        if let Some(rule) = self.rate
            && !self.table.take(key, rule, 1, now).passed
        {
            self.limited.add(1);
            return Err(self.reasons.rate);
        }
        let permit = match self.limiter.as_ref().map(|limiter| limiter.enter(key, false)) {
            None => None,
            Some(Entering::In(permit)) => Some(permit),
            Some(Entering::Line(_) | Entering::Refused(_)) => {
                if let Some(rule) = self.rate {
                    self.table.refund(key, rule, 1, now);
                }
                self.concurrent.add(1);
                return Err(self.reasons.concurrent);
            }
        };
        self.accepted.add(1);
        Ok(permit)
    }
}

fn check(setting: Setting<u64>, most: u64, problems: &mut Problems) {
    if let Some(value) = setting.value
        && !(1..=most).contains(&value)
    {
        problems.add(format!("config.{}", setting.name), format!("{value} is out of range (1 to {most})"));
    }
}
