//! The payload bytes that follow from a stamp: how they are made and checked.

use super::{Fault, Stamp};

/// Makes and checks payloads: the stamp first, then bytes of a fixed random pool, from an offset that moves with the
/// stamp, so that two requests differ in every part and not in the stamp alone.
#[derive(Debug, Clone)]
pub struct Pattern {
    pool: Vec<u8>,
    size: usize,
}

impl Pattern {
    /// How far the offset into the pool moves; a prime, so that its period fits no buffer size.
    const SPREAD: usize = 4093;

    /// Payloads of `size` bytes.
    #[must_use]
    pub fn new(size: usize) -> Self {
        let mut random = fastrand::Rng::with_seed(0x5EED);
        Self { pool: (0..size + Self::SPREAD).map(|_| random.u8(..)).collect(), size }
    }

    /// Bytes a payload has.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Writes the payload of this stamp; `out` has [`Self::size`] bytes.
    pub fn write(&self, stamp: Stamp, out: &mut [u8]) {
        let marked = self.size.min(Stamp::LENGTH);
        out[..marked].copy_from_slice(&stamp.bytes()[..marked]);
        out[marked..].copy_from_slice(&self.filling(stamp)[marked..]);
    }

    /// Checks that `got` is the payload of this stamp, every byte.
    ///
    /// # Errors
    /// A wrong length, the payload of another stamp, or the first wrong byte.
    pub fn check(&self, stamp: Stamp, got: &[u8]) -> Result<(), Fault> {
        if got.len() != self.size {
            return Err(Fault::Length { got: got.len(), expected: self.size });
        }
        let marked = self.size.min(Stamp::LENGTH);
        if got[..marked] == stamp.bytes()[..marked] && got[marked..] == self.filling(stamp)[marked..] {
            return Ok(());
        }
        Err(self.diagnose(stamp, got))
    }

    fn filling(&self, stamp: Stamp) -> &[u8] {
        let mixed =
            stamp.sequence.wrapping_mul(31) ^ u64::from(stamp.connection.wrapping_mul(17) ^ stamp.lane);
        let offset = usize::try_from(mixed % Self::SPREAD as u64).unwrap_or(0);
        &self.pool[offset..offset + self.size]
    }

    #[cold]
    fn diagnose(&self, stamp: Stamp, got: &[u8]) -> Fault {
        if let Some(other) = Stamp::read(got)
            && other != stamp
        {
            return Fault::Swapped { got: other, expected: stamp };
        }
        let mut right = vec![0; self.size];
        self.write(stamp, &mut right);
        Fault::Content { at: right.iter().zip(got).position(|(a, b)| a != b).unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::FaultKind;

    fn stamp(sequence: u64) -> Stamp {
        Stamp { connection: 7, lane: 3, sequence }
    }

    #[test]
    fn a_payload_passes_only_for_its_own_stamp() {
        for size in [0, 1, 15, 16, 17, 64, 9000] {
            let pattern = Pattern::new(size);
            let mut payload = vec![0; size];
            pattern.write(stamp(5), &mut payload);
            pattern.check(stamp(5), &payload).expect("its own");
            if size > 0 {
                assert!(pattern.check(stamp(6), &payload).is_err(), "size {size}");
            }
        }
    }

    #[test]
    fn what_is_wrong_is_told_apart() {
        let pattern = Pattern::new(64);
        let mut payload = [0; 64];
        pattern.write(stamp(5), &mut payload);
        let kind = |stamp, got: &[u8]| pattern.check(stamp, got).expect_err("wrong").kind();
        assert_eq!(kind(stamp(6), &payload), FaultKind::Swapped);
        assert_eq!(kind(stamp(5), &payload[..63]), FaultKind::Length);
        payload[40] ^= 1;
        assert!(matches!(pattern.check(stamp(5), &payload), Err(Fault::Content { at: 40 })));
    }

    #[test]
    fn stamps_survive_the_wire() {
        let original = Stamp { connection: u32::MAX, lane: 0, sequence: (1 << 48) - 1 };
        assert_eq!(Stamp::read(&original.bytes()), Some(original));
        assert_eq!(Stamp::read(&[0; 16]), None);
    }
}
