//! Each target in turn, whatever its weight.

use super::field::Field;
use super::policy::Policy;

#[derive(Debug)]
pub(super) struct RoundRobin;

impl Policy for RoundRobin {
    fn pick(&self, field: &Field<'_>) -> Option<usize> {
        let start = field.next_index();
        let (passed, index) = field.from(start).enumerate().find(|(_, index)| field.is_open(*index))?;
        if passed > 0 {
            // Without this, whoever follows closed targets would get their turns on top of its own.
            field.skip(passed as u64);
        }
        Some(index)
    }
}
