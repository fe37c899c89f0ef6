//! The stamp that tells one request from every other.

/// Which request an answer must belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub connection: u32,
    pub lane: u32,
    /// Counts the requests of one lane; 48 bits travel.
    pub sequence: u64,
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
