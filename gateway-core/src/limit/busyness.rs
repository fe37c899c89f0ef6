//! How much of its CPUs the gateway uses, for what may be done with less care while they are short.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The share of the workers' CPUs that the process has used of late; 0 while nobody measures it. Cheap to clone and to read.
#[derive(Debug, Clone, Default)]
pub struct Busyness(Arc<AtomicU32>);

/// What makes up all CPUs.
const ALL: f64 = 1000.0;

impl Busyness {
    /// Takes one measurement, a share between 0 and 1. The last one counts as much as all before it.
    pub fn measured(&self, share: f64) {
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        let mixed = f64::midpoint(f64::from(self.0.load(Relaxed)), share * ALL);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is between 0 and 1000"
        )]
        self.0.store(mixed.round() as u32, Relaxed);
    }

    /// In percent of all CPUs.
    pub fn percent(&self) -> u32 {
        self.0.load(Relaxed) / 10
    }
}

/// A step that follows the load up at once and down only when the load is clearly below, so that it does not flap.
///
/// Step 1 begins at `from`, the last at `to`, the others evenly between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps {
    /// Percent at which the first step begins.
    pub from: u32,
    /// Percent at which the last step begins.
    pub to: u32,
    /// How many there are; 0 is below all.
    pub count: u32,
}

/// How far below its beginning a step is left, in percent.
const MARGIN: u32 = 5;

impl Steps {
    /// The step for this load, in percent, after `before`.
    pub fn next(&self, load: u32, before: u32) -> u32 {
        let reached = |margin: u32| {
            (1..=self.count).rev().find(|step| load + margin >= self.begins(*step)).unwrap_or(0)
        };
        reached(0).max(reached(MARGIN).min(before))
    }

    fn begins(&self, step: u32) -> u32 {
        let width = self.to.saturating_sub(self.from);
        self.from + width * step.saturating_sub(1) / self.count.saturating_sub(1).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_measurement_is_half_of_what_counts() {
        let busyness = Busyness::default();
        busyness.measured(1.0);
        assert_eq!(busyness.percent(), 50);
        busyness.measured(1.0);
        assert_eq!(busyness.percent(), 75);
        (0..20).for_each(|_| busyness.measured(7.0));
        assert_eq!(busyness.percent(), 100);
        [f64::NAN, -1.0].into_iter().for_each(|share| busyness.measured(share));
        assert_eq!(busyness.percent(), 25);
    }

    #[test]
    fn steps_follow_the_load_up_at_once_and_down_late() {
        let steps = Steps { from: 60, to: 90, count: 4 };
        for (load, before, after) in [
            (0, 0, 0),
            (59, 0, 0),
            (60, 0, 1),
            (70, 0, 2),
            (80, 1, 3),
            (90, 0, 4),
            (100, 4, 4),
            (86, 4, 4),
            (85, 4, 4),
            (84, 4, 3),
            (56, 1, 1),
            (54, 1, 0),
            (30, 4, 0),
            (74, 3, 2),
            (75, 3, 3),
        ] {
            assert_eq!(steps.next(load, before), after, "{load} after {before}");
        }
        let one = Steps { from: 80, to: 80, count: 1 };
        assert_eq!((one.next(79, 0), one.next(80, 0), one.next(76, 1), one.next(74, 1)), (0, 1, 1, 0));
    }
}
