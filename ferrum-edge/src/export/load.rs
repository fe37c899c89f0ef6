//! How loaded the gateway is.

use std::time::Duration;

use gateway_core::config::model::OverloadRules;
use gateway_core::limit::overload::OverloadLevel;

/// What was seen at the last look.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Load {
    /// Bytes of resident memory, without those of files.
    pub(crate) memory: u64,
    /// Bytes it may have, where there is a limit.
    pub(crate) memory_limit: Option<u64>,
    /// Open file descriptors.
    pub(crate) descriptors: u64,
    /// How many there may be, where there is a limit.
    pub(crate) descriptor_limit: Option<u64>,
    /// What follows from it.
    pub(crate) level: OverloadLevel,
    /// How long the slowest worker took to get to new work; zero where that is not looked at.
    pub(crate) delay: Duration,
}

impl Load {
    /// The larger share of a limit that is used.
    pub(crate) fn used(&self) -> f64 {
        let share =
            |used: u64, limit: Option<u64>| limit.map_or(0.0, |limit| used as f64 / limit.max(1) as f64);
        share(self.memory, self.memory_limit).max(share(self.descriptors, self.descriptor_limit))
    }

    /// How late workers are, as a share of what is allowed.
    pub(crate) fn lateness(&self, rules: OverloadRules) -> f64 {
        if rules.max_delay.is_zero() { 0.0 } else { self.delay.as_secs_f64() / rules.max_delay.as_secs_f64() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_limit_counts() {
        let load = Load {
            memory: 50,
            memory_limit: Some(100),
            descriptors: 90,
            descriptor_limit: Some(100),
            ..Load::default()
        };
        assert!((load.used() - 0.9).abs() < 1e-9);
        assert!((Load { memory_limit: None, descriptor_limit: None, ..load }).used() < 1e-9);
        let rules = OverloadRules { max_memory: None, max_delay: Duration::from_millis(100) };
        let late = Load { delay: Duration::from_millis(50), ..load };
        assert!((late.lateness(rules) - 0.5).abs() < 1e-9);
        assert!(late.lateness(OverloadRules::default()) < 1e-9);
    }
}
