//! The less busy of two targets picked at random: nearly as even as looking at all, at a constant price.

use std::sync::Arc;

use super::field::Field;
use super::least_connections::least_busy;
use super::policy::Policy;
use super::target::Target;
use super::wheel::Wheel;

#[derive(Debug)]
pub(super) struct PowerOfTwo {
    wheel: Wheel,
}

impl PowerOfTwo {
    pub(super) fn new(targets: &[Arc<Target>]) -> Self {
        Self { wheel: Wheel::new(targets) }
    }
}

impl Policy for PowerOfTwo {
    /// The first by weight, which wins when both are equally busy; the second is any other one.
    fn pick(&self, field: &Field<'_>) -> Option<usize> {
        let len = field.len();
        let first = self.wheel.at(fastrand::u64(..self.wheel.total()));
        let second = (first + 1 + fastrand::usize(..len.saturating_sub(1).max(1))) % len.max(1);
        match (field.is_open(first), field.is_open(second)) {
            (true, true) if field.is_less_busy(second, first) => Some(second),
            (true, _) => Some(first),
            (false, true) => Some(second),
            (false, false) => least_busy(field, fastrand::usize(..len.max(1))),
        }
    }
}
