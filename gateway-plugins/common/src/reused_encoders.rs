//! Encoders that a thread keeps for the next body: making one takes longer than encoding a short response.

use std::cell::RefCell;

/// Encoders that are free, each with its level.
pub(super) struct ReusedEncoders<T>(RefCell<Vec<(u32, T)>>);

impl<T> ReusedEncoders<T> {
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

/// Fails where an encoder that was used before writes anything else than a new one, or what can't be decoded. `encoded` takes pieces of a
/// body, and whether each is flushed.
#[cfg(test)]
pub(super) fn assert_used_writes_as_new(
    forget: impl Fn(),
    encoded: impl Fn(&[&[u8]], bool) -> Vec<u8>,
    decoded: impl Fn(&[u8]) -> Vec<u8>,
) {
    let mut random = fastrand::Rng::with_seed(3);
    let noise: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(300_000).collect();
    let text = "the same words, again and again. ".repeat(20_000);
    let bodies: [&[&[u8]]; 5] =
        [&[b"short"], &[], &[&noise], &[text.as_bytes(), &noise, b""], &[&noise[..10], b"", text.as_bytes()]];
    for flushes in [false, true] {
        let new = bodies.map(|pieces| {
            forget();
            encoded(pieces, flushes)
        });
        let used = bodies.map(|pieces| encoded(pieces, flushes));
        assert!(new == used);
        for (pieces, bytes) in bodies.iter().zip(&used) {
            assert!(decoded(bytes) == pieces.concat());
        }
    }
}
