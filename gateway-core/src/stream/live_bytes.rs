//! The bytes of a session while it runs, for those who look at it from other threads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::relay::Carried;
use super::session::Direction;

/// Bytes that passed so far, and how many of them metrics have counted. Only the session's own task adds bytes.
#[derive(Debug, Default)]
pub struct LiveBytes {
    up: LiveCount,
    down: LiveCount,
}

#[derive(Debug, Default)]
struct LiveCount {
    bytes: AtomicU64,
    counted: AtomicU64,
}

impl LiveCount {
    /// What of a total nobody has counted yet; counts it.
    fn count(&self, total: u64) -> u64 {
        total.saturating_sub(self.counted.fetch_max(total, Relaxed))
    }
}

impl LiveBytes {
    /// So many passed.
    #[inline]
    pub(super) fn add(&self, direction: Direction, bytes: u64) {
        let count = match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        };
        // One task adds, so load and store suffice.
        count.bytes.store(count.bytes.load(Relaxed) + bytes, Relaxed);
    }

    /// Bytes so far.
    pub fn carried(&self) -> Carried {
        Carried { up: self.up.bytes.load(Relaxed), down: self.down.bytes.load(Relaxed) }
    }

    /// Bytes that nobody has counted yet; they are counted from now on. Each byte is counted once, whoever asks.
    pub fn uncounted(&self) -> Carried {
        let carried = self.carried();
        self.uncounted_of(carried)
    }

    /// The same of the session's final account.
    pub(crate) fn uncounted_of(&self, carried: Carried) -> Carried {
        Carried { up: self.up.count(carried.up), down: self.down.count(carried.down) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_counted_once() {
        let live = LiveBytes::default();
        live.add(Direction::Up, 5);
        live.add(Direction::Down, 7);
        live.add(Direction::Up, 1);
        assert_eq!(live.uncounted(), Carried { up: 6, down: 7 });
        assert_eq!(live.uncounted(), Carried::default());
        live.add(Direction::Up, 4);
        assert_eq!(live.uncounted_of(Carried { up: 12, down: 7 }), Carried { up: 6, down: 0 });
        assert_eq!(live.uncounted(), Carried::default());
    }
}
