//! The pause before another try.

use std::time::Duration;

use crate::config::model::Backoff;

/// How long to wait before retry number `retry`, counted from 0.
///
/// An exponential pause is drawn evenly from half to one and a half of `base × 2^retry`, and is never longer than
/// `max`, so that clients who failed together don't come back together.
pub fn pause(backoff: Backoff, retry: u32) -> Duration {
    match backoff {
        Backoff::None => Duration::ZERO,
        Backoff::Fixed(pause) => pause,
        Backoff::Exponential { base, max } => {
            let factor = 1_u32.checked_shl(retry).unwrap_or(u32::MAX);
            let middle = base.saturating_mul(factor).min(max);
            let nanos = u64::try_from(middle.as_nanos()).unwrap_or(u64::MAX / 2);
            let jitter = if nanos == 0 { 0 } else { fastrand::u64(..nanos) };
            Duration::from_nanos(nanos / 2).saturating_add(Duration::from_nanos(jitter)).min(max)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_pauses_are_as_written() {
        assert_eq!(pause(Backoff::None, 3), Duration::ZERO);
        assert_eq!(pause(Backoff::Fixed(Duration::from_millis(7)), 3), Duration::from_millis(7));
    }

    #[test]
    fn exponential_pauses_double_within_their_jitter() {
        let backoff = Backoff::Exponential { base: Duration::from_millis(100), max: Duration::from_secs(1) };
        for (retry, middle) in
            [(0, 100), (1, 200), (2, 400), (3, 800), (4, 1000), (40, 1000), (u32::MAX, 1000)]
        {
            for _ in 0..200 {
                let pause = pause(backoff, retry);
                assert!(pause >= Duration::from_millis(middle / 2), "{retry}: {pause:?}");
                assert!(pause < Duration::from_millis(middle * 3 / 2), "{retry}: {pause:?}");
                assert!(pause <= Duration::from_secs(1));
            }
        }
    }

    #[test]
    fn extreme_rules_do_not_overflow() {
        let backoff = |base, max| Backoff::Exponential { base, max };
        assert!(pause(backoff(Duration::MAX, Duration::MAX), u32::MAX) > Duration::ZERO);
        assert_eq!(pause(backoff(Duration::ZERO, Duration::MAX), 5), Duration::ZERO);
        assert_eq!(pause(backoff(Duration::MAX, Duration::ZERO), 5), Duration::ZERO);
    }
}
