//! The whole state of a breaker in one integer, so that every change is one compare-and-swap.

/// The highest count a breaker keeps: 20 bits.
pub(super) const MAX_COUNT: u32 = (1 << COUNT_BITS) - 1;

/// The latest moment a breaker can be open until: 40 bits of milliseconds, about 34 years.
pub(super) const MAX_MILLIS: u64 = (1 << PAYLOAD_BITS) - 1;

const COUNT_BITS: u32 = 20;
const PAYLOAD_BITS: u32 = 40;
const GENERATION_BITS: u32 = 22;

/// A breaker's state and the number of the period it is in, which wraps after four million changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) generation: u32,
    pub(super) state: BreakerState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BreakerState {
    Closed { failures: u32 },
    Open { until_ms: u64 },
    HalfOpen { probes: u32, successes: u32 },
}

impl Word {
    pub(super) const CLOSED: Self = Self { generation: 0, state: BreakerState::Closed { failures: 0 } };

    /// Another state of the same period.
    pub(super) fn with(self, state: BreakerState) -> Self {
        Self { state, ..self }
    }

    /// The first state of the next period.
    pub(super) fn next(self, state: BreakerState) -> Self {
        Self { generation: (self.generation + 1) & ((1 << GENERATION_BITS) - 1), state }
    }

    pub(super) fn pack(self) -> u64 {
        let (tag, payload) = match self.state {
            BreakerState::Closed { failures } => (0, u64::from(failures.min(MAX_COUNT))),
            BreakerState::Open { until_ms } => (1, until_ms.min(MAX_MILLIS)),
            BreakerState::HalfOpen { probes, successes } => {
                let probes = u64::from(probes.min(MAX_COUNT));
                (2, probes << COUNT_BITS | u64::from(successes.min(MAX_COUNT)))
            }
        };
        tag << (PAYLOAD_BITS + GENERATION_BITS) | u64::from(self.generation) << PAYLOAD_BITS | payload
    }

    pub(super) fn unpack(word: u64) -> Self {
        let payload = word & MAX_MILLIS;
        // Two 20-bit counts, so neither cast loses a bit.
        let (high, low) = ((payload >> COUNT_BITS) as u32, payload as u32 & MAX_COUNT);
        let state = match word >> (PAYLOAD_BITS + GENERATION_BITS) {
            0 => BreakerState::Closed { failures: low },
            1 => BreakerState::Open { until_ms: payload },
            _ => BreakerState::HalfOpen { probes: high, successes: low },
        };
        Self { generation: (word >> PAYLOAD_BITS) as u32 & ((1 << GENERATION_BITS) - 1), state }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn state() -> impl Strategy<Value = BreakerState> {
        prop_oneof![
            (0..=MAX_COUNT).prop_map(|failures| BreakerState::Closed { failures }),
            (0..=MAX_MILLIS).prop_map(|until_ms| BreakerState::Open { until_ms }),
            (0..=MAX_COUNT, 0..=MAX_COUNT)
                .prop_map(|(probes, successes)| BreakerState::HalfOpen { probes, successes }),
        ]
    }

    proptest! {
        #[test]
        fn survives_packing(generation in 0u32..1 << GENERATION_BITS, state in state()) {
            let word = Word { generation, state };
            prop_assert_eq!(Word::unpack(word.pack()), word);
        }
    }

    #[test]
    fn the_period_wraps() {
        let last = Word { generation: (1 << GENERATION_BITS) - 1, ..Word::CLOSED };
        assert_eq!(last.next(BreakerState::Open { until_ms: 1 }).generation, 0);
    }
}
