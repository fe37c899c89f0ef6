//! What a client may do for nothing, and how often.
//!
//! Each is a bucket that empties with use and fills with time, and with work that was worth something. A client that
//! empties one is told to calm down and loses its connection.

use std::time::Duration;

use tokio::time::Instant;

/// Streams reset before they were answered, also those we had to reset because of what the client sent
/// (CVE-2023-44487, CVE-2025-8671): so many at once, ...
pub(crate) const MAX_RESETS: u32 = 200;
/// ... and so many a second for ever.
pub(crate) const RESETS_PER_SECOND: u32 = 50;
/// Frames that bring nothing (PING, SETTINGS, PRIORITY, empty DATA, unknown ones, WINDOW_UPDATE): so many at once, ...
pub(crate) const MAX_IDLE_FRAMES: u32 = 10_000;
/// ... and so many a second for ever, beside those earned.
pub(crate) const IDLE_FRAMES_PER_SECOND: u32 = 1_000;
/// Earned by each frame of a body and each head that goes to the peer; it answers them with window updates.
pub(crate) const IDLE_FRAMES_EARNED: u32 = 8;
/// Frames one header block may be cut into (CVE-2024-27316).
pub(crate) const MAX_CONTINUATIONS: u32 = 32;
/// Octets of a header block beyond those its fields may have.
pub(crate) const MAX_BLOCK_EXCESS: usize = 16 << 10;

/// One such bucket.
#[derive(Debug)]
struct Bucket {
    left: u32,
    most: u32,
    per_second: u32,
    /// When it was last filled by time.
    filled: Option<Instant>,
}

impl Bucket {
    fn new(most: u32, per_second: u32) -> Self {
        Self { left: most, most, per_second, filled: None }
    }

    fn add(&mut self, tokens: u32) {
        self.left = self.left.saturating_add(tokens).min(self.most);
    }

    /// Takes one; false when there is none.
    fn take(&mut self, now: Instant) -> bool {
        if self.left == 0 {
            let since = self.filled.map_or(Duration::ZERO, |filled| now.saturating_duration_since(filled));
            let tokens = since.as_millis().saturating_mul(u128::from(self.per_second)) / 1000;
            self.add(u32::try_from(tokens).unwrap_or(u32::MAX));
            self.filled = Some(now);
        } else if self.filled.is_none() {
            self.filled = Some(now);
        }
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }
}

/// The buckets of one connection.
#[derive(Debug)]
pub(crate) struct Floods {
    resets: Bucket,
    idle: Bucket,
}

impl Default for Floods {
    fn default() -> Self {
        Self {
            resets: Bucket::new(MAX_RESETS, RESETS_PER_SECOND),
            idle: Bucket::new(MAX_IDLE_FRAMES, IDLE_FRAMES_PER_SECOND),
        }
    }
}

impl Floods {
    /// A stream was reset before it was answered.
    pub(crate) fn reset(&mut self, now: Instant) -> bool {
        self.resets.take(now)
    }

    /// A frame brought nothing.
    pub(crate) fn idle_frame(&mut self, now: Instant) -> bool {
        self.idle.take(now)
    }

    /// A frame went out that the peer may answer.
    pub(crate) fn earned(&mut self) {
        self.idle.add(IDLE_FRAMES_EARNED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_empties_and_fills_with_time() {
        let start = Instant::now();
        let mut floods = Floods::default();
        let at_once = (0..MAX_RESETS + 10).filter(|_| floods.reset(start)).count();
        assert_eq!(at_once, MAX_RESETS as usize);
        let later = start + Duration::from_secs(1);
        let then = (0..MAX_RESETS).filter(|_| floods.reset(later)).count();
        assert_eq!(then, RESETS_PER_SECOND as usize);
    }

    #[test]
    fn frames_are_earned() {
        let now = Instant::now();
        let mut floods = Floods::default();
        while floods.idle_frame(now) {}
        floods.earned();
        assert_eq!((0..20).filter(|_| floods.idle_frame(now)).count(), IDLE_FRAMES_EARNED as usize);
    }
}
