//! Any target, by weight.

use std::sync::Arc;

use super::field::Field;
use super::policy::Policy;
use super::target::Target;
use super::wheel::Wheel;

#[derive(Debug)]
pub(super) struct Random {
    wheel: Wheel,
}

impl Random {
    pub(super) fn new(targets: &[Arc<Target>]) -> Self {
        Self { wheel: Wheel::new(targets) }
    }
}

impl Policy for Random {
    fn pick(&self, field: &Field<'_>) -> Option<usize> {
        let index = self.wheel.at(fastrand::u64(..self.wheel.total()));
        if field.is_open(index) {
            return Some(index);
        }
        Wheel::at_open(field, fastrand::u64(..))
    }
}
