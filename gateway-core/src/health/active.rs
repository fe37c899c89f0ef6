//! Health by asking: counts the answers of probes in a row.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use arc_swap::ArcSwapOption;

use super::HealthChange;
use crate::config::model::ActiveHealth;

/// What probes say about one target. Healthy until proven otherwise.
#[derive(Debug)]
pub struct Active {
    rules: ActiveHealth,
    down: AtomicBool,
    /// Answers in a row that contradict `down`.
    against: AtomicU32,
    /// Why the last probe that went wrong did.
    failure: ArcSwapOption<String>,
}

impl Active {
    /// A target that counts as healthy until `unhealthy_threshold` probes in a row went wrong.
    pub fn new(rules: &ActiveHealth) -> Self {
        Self::resume(rules, false)
    }

    /// A target under new rules, which keeps the verdict reached under the old ones.
    pub fn resume(rules: &ActiveHealth, down: bool) -> Self {
        Self {
            rules: rules.clone(),
            down: AtomicBool::new(down),
            against: AtomicU32::new(0),
            failure: ArcSwapOption::empty(),
        }
    }

    /// How to ask, and how often.
    pub fn rules(&self) -> &ActiveHealth {
        &self.rules
    }

    /// Whether probes found the target unhealthy.
    pub fn is_down(&self) -> bool {
        self.down.load(Relaxed)
    }

    /// Why the last probe that went wrong did, as [`Active::note_failure`] was told.
    pub fn failure(&self) -> Option<Arc<String>> {
        self.failure.load_full()
    }

    /// Keeps why a probe went wrong, for operators.
    pub fn note_failure(&self, why: String) {
        self.failure.store(Some(Arc::new(why)));
    }

    /// Takes one probe's result. Fed by one prober at a time; says when the verdict changed.
    pub fn feed(&self, good: bool) -> Option<HealthChange> {
        let down = self.is_down();
        if good != down {
            self.against.store(0, Relaxed);
            return None;
        }
        let against = self.against.load(Relaxed).saturating_add(1);
        let needed = if down { self.rules.healthy_threshold } else { self.rules.unhealthy_threshold };
        if against < needed.max(1) {
            self.against.store(against, Relaxed);
            return None;
        }
        self.against.store(0, Relaxed);
        self.down.store(!down, Relaxed);
        Some(if down { HealthChange::Recovered } else { HealthChange::Failed })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::model::Probe;

    fn active(healthy: u32, unhealthy: u32) -> Active {
        Active::new(&ActiveHealth {
            probe: Probe::Tcp { tls: false, send: Box::default(), expect: None },
            interval: Duration::from_secs(10),
            timeout: Duration::from_secs(5),
            healthy_threshold: healthy,
            unhealthy_threshold: unhealthy,
        })
    }

    #[test]
    fn changes_sides_after_the_threshold_in_a_row() {
        let target = active(2, 3);
        assert_eq!(target.feed(false), None);
        assert_eq!(target.feed(false), None);
        assert_eq!(target.feed(true), None, "a good answer starts the count over");
        assert_eq!([(); 3].map(|()| target.feed(false)), [None, None, Some(HealthChange::Failed)]);
        assert!(target.is_down());
        assert_eq!(target.feed(true), None);
        assert_eq!(target.feed(false), None);
        assert_eq!([(); 2].map(|()| target.feed(true)), [None, Some(HealthChange::Recovered)]);
        assert!(!target.is_down());
    }

    #[test]
    fn a_threshold_of_zero_means_one() {
        let target = active(0, 0);
        assert_eq!(target.feed(false), Some(HealthChange::Failed));
        assert_eq!(target.feed(true), Some(HealthChange::Recovered));
    }

    #[test]
    fn new_rules_keep_the_verdict() {
        let old = active(3, 1);
        old.feed(false);
        assert!(Active::resume(old.rules(), old.is_down()).is_down());
    }
}
