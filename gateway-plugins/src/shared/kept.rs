//! Encoders that a thread keeps for the next body: making one takes longer than encoding a short response.

use std::cell::RefCell;

/// Encoders that are free, each with its level.
pub(super) struct KeptEncoders<T>(RefCell<Vec<(u32, T)>>);

impl<T> KeptEncoders<T> {
    pub(super) const fn new() -> Self {
        Self(RefCell::new(Vec::new()))
    }

    /// Takes one of this level.
    pub(super) fn take(&self, level: u32) -> Option<T> {
        let mut kept = self.0.borrow_mut();
        let place = kept.iter().position(|(known, _)| *known == level)?;
        Some(kept.swap_remove(place).1)
    }

    /// Keeps one that is ready for another body, unless there are `most`.
    pub(super) fn keep(&self, level: u32, encoder: T, most: usize) {
        let mut kept = self.0.borrow_mut();
        if kept.len() < most {
            kept.push((level, encoder));
        }
    }

    #[cfg(test)]
    pub(super) fn clear(&self) {
        self.0.borrow_mut().clear();
    }

    #[cfg(test)]
    pub(super) fn levels(&self) -> Vec<u32> {
        self.0.borrow().iter().map(|(level, _)| *level).collect()
    }
}
