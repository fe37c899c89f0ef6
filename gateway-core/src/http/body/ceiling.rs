//! How much of bodies may be held in memory at one time, over all plugins that collect them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;

use super::BodyError;
use crate::config::model::MAX_COLLECTED;

static LIMIT: AtomicU64 = AtomicU64::new(MAX_COLLECTED);
static HELD: AtomicU64 = AtomicU64::new(0);

/// Sets the ceiling of this process, in bytes. What is held already stays.
pub fn limit_collected(bytes: u64) {
    LIMIT.store(bytes, Relaxed);
}

/// Bytes of collected bodies now held.
pub fn collected() -> u64 {
    HELD.load(Relaxed)
}

/// Room for some bytes; given back when dropped.
#[derive(Debug, Default)]
pub(super) struct Room(u64);

impl Room {
    /// Makes it larger.
    ///
    /// # Errors
    /// [`BodyError::NoRoom`] at the ceiling; the room stays as it is.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), BodyError> {
        let bytes = bytes as u64;
        let limit = LIMIT.load(Relaxed);
        let held = HELD.fetch_add(bytes, Relaxed);
        if held.saturating_add(bytes) > limit {
            HELD.fetch_sub(bytes, Relaxed);
            return Err(BodyError::NoRoom);
        }
        self.0 += bytes;
        Ok(())
    }

    /// The bytes, which keep the room until the last of them is dropped.
    pub(super) fn hold(self, bytes: Bytes) -> Bytes {
        if self.0 == 0 { bytes } else { Bytes::from_owner(Reservation { bytes, _room: self }) }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if self.0 > 0 {
            HELD.fetch_sub(self.0, Relaxed);
        }
    }
}

struct Reservation {
    bytes: Bytes,
    _room: Room,
}

impl AsRef<[u8]> for Reservation {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
