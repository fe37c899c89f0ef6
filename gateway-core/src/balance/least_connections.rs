//! The target with the fewest exchanges in flight for its weight.

use std::sync::Arc;

use super::field::Field;
use super::policy::Policy;
use super::target::Target;
use super::weighted::Weighted;

#[derive(Debug)]
pub(super) struct LeastConnections {
    /// Decides among the equally busy, so that an idle upstream is used by weight and not from the top of its list.
    turns: Weighted,
}

impl LeastConnections {
    pub(super) fn new(targets: &[Arc<Target>]) -> Self {
        Self { turns: Weighted::new(targets) }
    }
}

impl Policy for LeastConnections {
    fn pick(&self, field: &Field<'_>) -> Option<usize> {
        least_busy(field, self.turns.at(field.turn()))
    }
}

/// The least busy open target; among equals the first from `start` on.
pub(super) fn least_busy(field: &Field<'_>, start: usize) -> Option<usize> {
    field
        .from(start)
        .filter(|index| field.is_open(*index))
        .reduce(|best, index| if field.is_less_busy(index, best) { index } else { best })
}
