//! The stamp that tells one request from every other, and the payload bytes that follow from it.

use super::Fault;

/// Which request an answer must belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub connection: u32,
    pub lane: u32,
    /// Counts the requests of one lane; 48 bits travel.
    pub sequence: u64,
}

/// Makes and checks payloads: the stamp first, then bytes of a fixed random pool, from an offset that moves with the
/// stamp, so that two requests differ in every part and not in the stamp alone.
#[derive(Debug, Clone)]
pub struct Pattern {
    pool: Vec<u8>,
    size: usize,
}

impl Stamp {
    /// Bytes the stamp takes in a payload; shorter payloads carry as much of it as fits.
    pub const LENGTH: usize = 16;
    const MAGIC: [u8; 2] = [0xB7, 0x5A];

    /// The stamp as it travels: sequence (6), mark (2), connection (4), lane (4), little-endian.
    #[must_use]
    pub fn bytes(self) -> [u8; Self::LENGTH] {
        let mut out = [0; Self::LENGTH];
        out[..8].copy_from_slice(&self.sequence.to_le_bytes());
        out[6..8].copy_from_slice(&Self::MAGIC);
        out[8..12].copy_from_slice(&self.connection.to_le_bytes());
        out[12..].copy_from_slice(&self.lane.to_le_bytes());
        out
    }

    /// Reads a stamp back, if these bytes are one.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LENGTH] = bytes.first_chunk()?;
        let (head, tail) = bytes.split_at(8);
        if head[6..] != Self::MAGIC {
            return None;
        }
        let mut sequence = [0; 8];
        sequence[..6].copy_from_slice(&head[..6]);
        Some(Self {
            sequence: u64::from_le_bytes(sequence),
            connection: u32::from_le_bytes(*tail.first_chunk()?),
            lane: u32::from_le_bytes(*tail.last_chunk()?),
        })
    }

    /// The stamp in hexadecimal, for headers.
    #[must_use]
    pub fn hex(self) -> [u8; Self::LENGTH * 2] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut out = [0; Self::LENGTH * 2];
        for (pair, byte) in out.chunks_exact_mut(2).zip(self.bytes()) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        out
    }
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
