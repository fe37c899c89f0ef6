//! Several URLs of one server, which requests ask for in turns, each as often as its weight says.

use super::{Fault, Stamp};
use crate::plan::Plan;

/// Something for each URL of a plan, and whose turn it is.
pub(super) struct Choice<T> {
    all: Vec<T>,
    /// Places in `all`, in the order in which they take turns.
    turns: Vec<usize>,
}

impl<T> Choice<T> {
    /// Makes one for each URL of a plan.
    pub(super) fn new(plan: &Plan, mut make: impl FnMut(&Plan) -> Result<T, Fault>) -> Result<Self, Fault> {
        let each = plan.each();
        let all = each.iter().map(|(plan, _)| make(plan)).collect::<Result<Vec<T>, Fault>>()?;
        Ok(Self { all, turns: turns(&each.iter().map(|(_, weight)| *weight).collect::<Vec<_>>()) })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.all.iter()
    }

    /// The place of the one whose turn a request is. Connections begin at different ones, so that all of them are asked for at any
    /// time.
    pub(super) fn place(&self, stamp: Stamp) -> usize {
        if self.turns.len() == 1 {
            return 0;
        }
        let start = u64::from(stamp.connection) * 31 + u64::from(stamp.lane) * 7;
        let turn = stamp.sequence.wrapping_add(start) % self.turns.len() as u64;
        usize::try_from(turn).ok().and_then(|turn| self.turns.get(turn)).copied().unwrap_or(0)
    }

    /// The one at a place.
    pub(super) fn at(&self, place: usize) -> &T {
        &self.all[place]
    }
}

/// Places in an order in which each comes as often as its weight says, spread evenly.
fn turns(weights: &[u32]) -> Vec<usize> {
    let total: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
    let mut credit = vec![0_i64; weights.len()];
    let mut made = Vec::new();
    for _ in 0..total.max(1) {
        for (credit, weight) in credit.iter_mut().zip(weights) {
            *credit += i64::from(*weight);
        }
        let next =
            (0..credit.len()).max_by_key(|place| (credit[*place], std::cmp::Reverse(*place))).unwrap_or(0);
        if let Some(credit) = credit.get_mut(next) {
            *credit -= i64::try_from(total).unwrap_or(i64::MAX);
        }
        made.push(next);
    }
    made
}

#[cfg(test)]
mod tests {
    use super::turns;

    #[test]
    fn turns_are_spread_evenly() {
        assert_eq!(turns(&[1]), [0]);
        assert_eq!(turns(&[1, 1, 1]), [0, 1, 2]);
        assert_eq!(turns(&[5, 1, 2]), [0, 2, 0, 0, 1, 0, 2, 0]);
    }
}
