//! Smooth weighted round robin: in turn by weight, with a heavy target's turns spread over the whole cycle.
//!
//! The cycle is laid out in advance, so that a pick is one turn of a shared cursor. Cycles too long to write down
//! (weights like 65535 and 1) are walked by a step close to the golden section of the wheel and coprime to its
//! circumference: every place is met exactly once in a cycle, and neighbours are far apart in time.

use std::sync::Arc;

use super::field::{Cursor, Field};
use super::policy::Policy;
use super::spread::GOLDEN;
use super::target::Target;
use super::wheel::Wheel;

/// The longest cycle that is written down, in turns.
const MAX_CYCLE: u64 = 1024;

/// Steps looked at on either side of the golden section. Among so many neighbours some are coprime to any sum of
/// weights.
const CANDIDATES: u64 = 500;

#[derive(Debug)]
pub(super) struct Weighted {
    cycle: Cycle,
    /// Turns of picks that met a closed target.
    detours: Cursor,
}

#[derive(Debug)]
enum Cycle {
    Written(Box<[u32]>),
    Walked { wheel: Wheel, step: u64 },
}

impl Weighted {
    pub(super) fn new(targets: &[Arc<Target>]) -> Self {
        let wheel = Wheel::new(targets);
        let cycle = match wheel.total() {
            total if total <= MAX_CYCLE => Cycle::Written(interleave(&wheel)),
            total => Cycle::Walked { step: golden_step(total), wheel },
        };
        Self { cycle, detours: Cursor::default() }
    }

    /// Whose turn it is, closed or not.
    pub(super) fn at(&self, turn: u64) -> usize {
        match &self.cycle {
            Cycle::Written(order) => {
                let place = turn % (order.len() as u64).max(1);
                order.get(place as usize).map_or(0, |index| *index as usize)
            }
            Cycle::Walked { wheel, step } => {
                let total = wheel.total();
                let walked = u128::from(turn % total) * u128::from(*step);
                wheel
                    .at(u64::try_from(walked)
                        .map_or_else(|_| (walked % u128::from(total)) as u64, |w| w % total))
            }
        }
    }
}

impl Policy for Weighted {
    fn pick(&self, field: &Field<'_>) -> Option<usize> {
        let index = self.at(field.turn());
        if field.is_open(index) {
            return Some(index);
        }
        Wheel::at_open(field, self.detours.turn().wrapping_mul(GOLDEN))
    }
}

/// One cycle in which the target furthest behind its share is always next.
fn interleave(wheel: &Wheel) -> Box<[u32]> {
    let weights: Vec<i64> = wheel.weights().map(|weight| weight as i64).collect();
    let total = if weights.is_empty() { 0 } else { wheel.total() as i64 };
    let mut behind = vec![0; weights.len()];
    let order = (0..total).map(|_| {
        let mut next = 0;
        for index in 0..weights.len() {
            behind[index] += weights[index];
            if behind[index] > behind[next] {
                next = index;
            }
        }
        behind[next] -= total;
        next as u32
    });
    order.collect()
}

/// A number near the golden section of `total` that shares no divisor with it and keeps picks even.
///
/// How evenly a walk covers the wheel is bounded by the sum of the partial quotients of `step / total`; among the
/// candidates the one with the least sum is taken.
fn golden_step(total: u64) -> u64 {
    let middle = ((u128::from(total) * u128::from(GOLDEN)) >> 64) as u64;
    (middle.saturating_sub(CANDIDATES)..middle + CANDIDATES)
        .filter_map(|step| Some((quotients(total, step)?, step)))
        .min()
        .map_or(1, |(_, step)| step)
}

/// The sum of the partial quotients of the fraction; `None` when it can be reduced.
fn quotients(mut large: u64, mut small: u64) -> Option<u64> {
    let mut sum = 0;
    while small != 0 {
        sum += large / small;
        (large, small) = (small, large % small);
    }
    (large == 1).then_some(sum)
}
