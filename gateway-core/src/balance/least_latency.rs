//! The target that is expected to answer first: recent time to the first byte, times the exchanges ahead.
//!
//! Counting what is in flight keeps everybody from running to the fastest target at once. A target with too few
//! samples gets the ones it lacks first, and no more than those until they are back.

use super::field::Field;
use super::policy::Policy;

#[derive(Debug)]
pub(super) struct LeastLatency;

impl Policy for LeastLatency {
    fn pick(&self, field: &Field<'_>) -> Option<usize> {
        let now = field.millis();
        let mut best: Option<(usize, u128, u64)> = None;
        for index in field.from(field.next_index()).filter(|index| field.is_open(*index)) {
            let target = field.targets.get(index)?;
            let in_flight = field.in_flight(index);
            let latency = &target.vitals().latency;
            if latency.is_cold(in_flight) {
                return Some(index);
            }
            let expected = u128::from(latency.expected(in_flight, now));
            let weight = field.weight(index);
            let is_better =
                best.is_none_or(|(_, least, of)| expected * u128::from(of) < least * u128::from(weight));
            if is_better {
                best = Some((index, expected, weight));
            }
        }
        best.map(|(index, ..)| index)
    }
}
