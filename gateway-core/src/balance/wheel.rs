//! Targets laid out on a wheel, each as wide as its weight.

use std::sync::Arc;

use super::field::Field;
use super::target::Target;

/// Weights in lowest terms and the places on the wheel where each target's share ends.
#[derive(Debug)]
pub(super) struct Wheel {
    ends: Box<[u64]>,
}

impl Wheel {
    pub(super) fn new(targets: &[Arc<Target>]) -> Self {
        let divisor = targets.iter().fold(0, |divisor, target| gcd(divisor, target.weight())).max(1);
        let mut end = 0;
        let ends = targets.iter().map(|target| {
            end += target.weight() / divisor;
            end
        });
        Self { ends: ends.collect() }
    }

    /// The circumference: the sum of the weights in lowest terms, at least 1.
    pub(super) fn total(&self) -> u64 {
        self.ends.last().copied().unwrap_or(1)
    }

    /// The target at a place below [`Self::total`].
    pub(super) fn at(&self, place: u64) -> usize {
        self.ends.partition_point(|end| *end <= place)
    }

    /// The weights in lowest terms.
    pub(super) fn weights(&self) -> impl Iterator<Item = u64> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        self.ends.iter().zip(starts).map(|(end, start)| end - start)
    }

    /// The open target at `fraction` (of 2^64) of a wheel made of the open targets only.
    ///
    /// Taken when the wheel stopped at a closed target: its share goes to the others by their weights.
    pub(super) fn at_open(field: &Field<'_>, fraction: u64) -> Option<usize> {
        let open = || (0..field.len()).filter(|index| field.is_open(*index));
        let total: u64 = open().map(|index| field.weight(index)).sum();
        // Below `total`, so the cast loses nothing.
        let mut place = ((u128::from(fraction) * u128::from(total)) >> 64) as u64;
        let mut last = None;
        for index in open() {
            let weight = field.weight(index);
            if place < weight {
                return Some(index);
            }
            place -= weight;
            last = Some(index);
        }
        // Reached only when a target closed between the two walks.
        last
    }
}

fn gcd(mut left: u64, mut right: u64) -> u64 {
    while right != 0 {
        (left, right) = (right, left % right);
    }
    left
}
