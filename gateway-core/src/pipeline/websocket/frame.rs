//! WebSocket frames (RFC 6455 §5): where each ends, and how heads and Close frames are written.

use crate::stream::relay::Watch;

/// Bytes of the longest head, mask included.
pub(super) const MAX_HEAD: usize = 14;
/// The opcode of a Close frame.
pub(super) const CLOSE: u8 = 8;

/// A frame's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) last: bool,
    /// The three reserved bits, for extensions.
    pub(super) reserved: u8,
    pub(super) opcode: u8,
    pub(super) mask: Option<[u8; 4]>,
    pub(super) length: u64,
    /// Bytes the head itself takes.
    pub(super) size: usize,
}

impl Head {
    /// The head at the beginning of `bytes`, once all of it is there.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (&first, &second) = (bytes.first()?, bytes.get(1)?);
        let (length, after) = match second & 0x7F {
            126 => (u64::from(u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?)), 4),
            127 => (u64::from_be_bytes(*bytes.get(2..)?.first_chunk()?), 10),
            short => (u64::from(short), 2),
        };
        let masked = second & 0x80 != 0;
        let mask = if masked { Some(*bytes.get(after..)?.first_chunk()?) } else { None };
        Some(Self {
            last: first & 0x80 != 0,
            reserved: first >> 4 & 7,
            opcode: first & 0x0F,
            mask,
            length,
            size: after + if masked { 4 } else { 0 },
        })
    }

    /// Appends the head of a whole frame.
    pub(super) fn write(out: &mut Vec<u8>, opcode: u8, length: usize, mask: Option<[u8; 4]>) {
        let masked = if mask.is_some() { 0x80 } else { 0 };
        out.push(0x80 | opcode);
        match (u8::try_from(length), u16::try_from(length)) {
            (Ok(short @ 0..126), _) => out.push(masked | short),
            (_, Ok(medium)) => {
                out.push(masked | 126);
                out.extend_from_slice(&medium.to_be_bytes());
            }
            _ => {
                out.push(masked | 127);
                out.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        out.extend_from_slice(mask.as_ref().map_or(&[], |mask| mask));
    }
}

/// Appends a whole frame; one for a target is masked, as a client's must be (RFC 6455 §5.3).
pub(super) fn write(out: &mut Vec<u8>, opcode: u8, payload: &[u8], masked: bool) {
    let mask = masked.then(|| fastrand::u32(..).to_ne_bytes());
    Head::write(out, opcode, payload.len(), mask);
    let start = out.len();
    out.extend_from_slice(payload);
    if let (Some(mask), Some(payload)) = (mask, out.get_mut(start..)) {
        apply(mask, 0, payload);
    }
}

/// A Close frame that says `code`.
pub(super) fn close(code: u16, masked: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(8);
    write(&mut out, CLOSE, &code.to_be_bytes(), masked);
    out
}

/// Masks or unmasks `payload`, whose first byte is the frame's `offset`th.
pub(super) fn apply(mask: [u8; 4], offset: usize, payload: &mut [u8]) {
    let mut key = mask;
    key.rotate_left(offset % 4);
    let wide = u64::from_ne_bytes([key[0], key[1], key[2], key[3], key[0], key[1], key[2], key[3]]);
    let mut words = payload.chunks_exact_mut(8);
    for word in &mut words {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        word.copy_from_slice(&(u64::from_ne_bytes(bytes) ^ wide).to_ne_bytes());
    }
    for (byte, key) in words.into_remainder().iter_mut().zip(key.iter().cycle()) {
        *byte ^= key;
    }
}

/// Follows the frames of one direction without opening them: knows where each ends, and whether one was a Close.
#[derive(Debug, Default, Clone)]
pub(super) struct Scanner {
    head: [u8; MAX_HEAD],
    filled: usize,
    /// Payload bytes of the frame under way still to come.
    rest: u64,
    closed: bool,
}

impl Scanner {
    /// Whether a frame has just ended, or none has begun.
    pub(super) fn at_boundary(&self) -> bool {
        self.filled == 0 && self.rest == 0
    }

    /// Whether a whole Close frame has passed.
    pub(super) fn is_closed(&self) -> bool {
        self.closed && self.at_boundary()
    }

    /// Takes bytes up to the end of the frame under way, at most; says how many.
    pub(super) fn take_frame(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while !self.at_boundary()
            && let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty())
        {
            taken += self.step(rest);
        }
        taken
    }

    /// Takes some of `bytes`, never past the end of a frame; says how many.
    fn step(&mut self, bytes: &[u8]) -> usize {
        if self.rest > 0 {
            let take = bytes.len().min(usize::try_from(self.rest).unwrap_or(usize::MAX));
            self.rest -= take as u64;
            return take;
        }
        // Mostly the whole head is there; else it is put together byte by byte.
        let whole = if self.filled == 0 { Head::read(bytes) } else { None };
        let (head, taken) = match whole {
            Some(head) => (Some(head), head.size),
            None => {
                if let (Some(slot), Some(byte)) = (self.head.get_mut(self.filled), bytes.first()) {
                    *slot = *byte;
                    self.filled += 1;
                }
                (Head::read(self.head.get(..self.filled).unwrap_or_default()), 1)
            }
        };
        if let Some(head) = head {
            self.filled = 0;
            self.rest = head.length;
            self.closed |= head.opcode == CLOSE;
        }
        taken
    }
}

impl Watch for Scanner {
    fn passed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = bytes.get(self.step(bytes)..).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> Vec<u8> {
        let mut bytes = Vec::new();
        for length in [0, 1, 125, 126, 127, 65_535, 65_536] {
            for masked in [false, true] {
                write(&mut bytes, 2, &vec![7; length], masked);
            }
        }
        bytes
    }

    #[test]
    fn boundaries_are_the_same_however_the_bytes_come() {
        let bytes = frames();
        for step in [1, 2, 3, 5, 13, 100, 4096, bytes.len()] {
            let mut scanner = Scanner::default();
            let mut last = 0;
            for (n, piece) in bytes.chunks(step).enumerate() {
                scanner.passed(piece);
                last = n * step + piece.len();
            }
            assert_eq!(last, bytes.len());
            assert!(scanner.at_boundary() && !scanner.is_closed(), "in steps of {step}");
            scanner.passed(&close(1000, true));
            assert!(scanner.is_closed());
        }
    }

    #[test]
    fn a_frame_is_taken_to_its_end_and_no_further() {
        let mut bytes = Vec::new();
        write(&mut bytes, 1, &[1; 300], false);
        let one = bytes.len();
        write(&mut bytes, 1, b"next", false);
        let mut scanner = Scanner::default();
        assert_eq!(scanner.take_frame(&bytes), 0, "no frame is under way");
        scanner.passed(&bytes[..3]);
        assert_eq!(scanner.take_frame(&bytes[3..]), one - 3);
        assert!(scanner.at_boundary());
    }

    #[test]
    fn masking_twice_is_no_masking_at_any_offset() {
        let plain: Vec<u8> = (0..100).collect();
        for offset in 0..9 {
            let mut bytes = plain.clone();
            let mask = [1, 2, 3, 4];
            apply(mask, offset, &mut bytes);
            let expected = |n: usize| plain[n] ^ mask[(offset + n) % 4];
            assert!(bytes.iter().enumerate().all(|(n, byte)| *byte == expected(n)));
            apply(mask, offset, &mut bytes);
            assert_eq!(bytes, plain);
        }
    }

    #[test]
    fn a_length_beyond_all_measure_is_no_overflow() {
        let mut scanner = Scanner::default();
        scanner.passed(&[0x82, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]);
        scanner.passed(&[0; 1000]);
        assert!(!scanner.at_boundary());
    }
}
