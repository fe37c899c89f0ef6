//! The receiving side of flow control (RFC 9113 §5.2): what the peer may still send, and when to let it send more.

use super::frame::{INITIAL_WINDOW, MAX_WINDOW};

/// A window that closes with what arrives and opens with what is taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inflow {
    /// What the peer may still send; less than nothing after a change of settings.
    left: i64,
    /// What it may send in all before anything is taken.
    size: u32,
    /// Taken, and not yet told to the peer.
    unclaimed: u32,
}

impl Inflow {
    /// A window the peer believes to be `left`, and that is to be `size`.
    pub(crate) fn new(left: u32, size: u32) -> Self {
        let size = size.min(MAX_WINDOW as u32);
        Self { left: i64::from(left), size, unclaimed: 0 }
    }

    /// The connection's; and by how much it is to be opened at the start.
    pub(crate) fn of_connection(size: u32) -> (Self, Option<u32>) {
        let size = size.clamp(INITIAL_WINDOW, MAX_WINDOW as u32);
        let more = size - INITIAL_WINDOW;
        (Self::new(size, size), (more > 0).then_some(more))
    }

    /// So much arrived; false when that is more than was allowed.
    pub(crate) fn arrived(&mut self, bytes: usize) -> bool {
        self.left -= bytes as i64;
        self.left >= 0
    }

    /// So much was taken; what to tell the peer, once that is worth a frame.
    pub(crate) fn taken(&mut self, bytes: usize) -> Option<u32> {
        self.unclaimed = self.unclaimed.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        if self.unclaimed == 0 || self.unclaimed < self.size / 2 {
            return None;
        }
        let increment = std::mem::take(&mut self.unclaimed);
        self.left += i64::from(increment);
        Some(increment)
    }

    /// The peer now reckons with another size.
    pub(crate) fn adjust(&mut self, by: i64) {
        self.left += by;
    }

    /// Doubles the window, up to `most`: its reader takes everything at once, so only the window holds the peer back.
    pub(crate) fn grow(&mut self, most: u32) -> Option<u32> {
        let size = self.size.saturating_mul(2).min(most.max(self.size));
        let more = size - self.size;
        self.size = size;
        self.left += i64::from(more);
        (more > 0).then_some(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_by_halves() {
        let mut flow = Inflow::new(100, 100);
        assert!(flow.arrived(60));
        assert_eq!(flow.taken(49), None);
        assert_eq!(flow.taken(1), Some(50));
        assert!(flow.arrived(90));
        assert!(!flow.arrived(1));
    }

    #[test]
    fn a_connection_opens_at_the_start() {
        assert_eq!(Inflow::of_connection(1 << 20).1, Some((1 << 20) - 65_535));
        assert_eq!(Inflow::of_connection(10).1, None);
        assert_eq!(Inflow::of_connection(u32::MAX).1, Some(MAX_WINDOW as u32 - 65_535));
    }

    #[test]
    fn it_grows_to_its_limit() {
        let mut flow = Inflow::new(100, 100);
        assert_eq!(flow.grow(300), Some(100));
        assert_eq!(flow.grow(300), Some(100));
        assert_eq!(flow.grow(300), None);
        assert!(flow.arrived(300));
    }
}
