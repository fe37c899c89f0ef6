//! Sets of bytes, and small helpers on bytes.

/// A set of byte values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ByteSet([u64; 4]);

impl ByteSet {
    /// The bytes that occur in `text`.
    pub(crate) fn of(text: &[u8]) -> Self {
        let mut set = [0_u64; 4];
        if text.is_ascii() {
            // Two words stay in registers.
            let (mut low, mut high) = (0_u64, 0_u64);
            for byte in text {
                let bit = 1_u64 << (byte & 63);
                let is_high = u64::from(byte >> 6).wrapping_neg();
                high |= bit & is_high;
                low |= bit & !is_high;
            }
            (set[0], set[1]) = (low, high);
            return Self(set);
        }
        for byte in text {
            set[usize::from(byte >> 6)] |= 1 << (byte & 63);
        }
        Self(set)
    }

    pub(crate) fn range(from: u8, to: u8) -> Self {
        let mut set = Self::default();
        for byte in from..=to {
            set.insert(byte);
        }
        set
    }

    pub(crate) fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    #[cfg(test)]
    pub(crate) fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] & (1 << (byte & 63)) != 0
    }

    pub(crate) fn meets(&self, other: &Self) -> bool {
        (0..4).any(|n| self.0[n] & other.0[n] != 0)
    }

    /// Whether everything in it is in `other` too.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        (0..4).all(|n| self.0[n] & !other.0[n] == 0)
    }

    #[must_use]
    pub(crate) fn with(mut self, other: Self) -> Self {
        for n in 0..4 {
            self.0[n] |= other.0[n];
        }
        self
    }

    #[must_use]
    pub(crate) fn common(mut self, other: Self) -> Self {
        for n in 0..4 {
            self.0[n] &= other.0[n];
        }
        self
    }

    pub(crate) fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Each byte in it.
    pub(crate) fn iter(self) -> impl Iterator<Item = u8> {
        (0..4u8).flat_map(move |n| {
            let mut word = self.0[usize::from(n)];
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros())?;
                word &= word - 1;
                Some(n * 64 + bit as u8)
            })
        })
    }
}

/// The value of a hexadecimal digit.
pub(crate) fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// The byte that two hexadecimal digits at `at` stand for.
pub(crate) fn hex_pair(text: &[u8], at: usize) -> Option<u8> {
    Some(hex(*text.get(at)?)? << 4 | hex(*text.get(at + 1)?)?)
}

/// What C's `isspace` takes.
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

/// The number at the beginning of a text, as C's `atoi` reads it; 0 where there is none.
pub(crate) fn number(text: &[u8]) -> i64 {
    let text = text.trim_ascii_start();
    let (negative, digits) = match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, text),
    };
    let mut value = 0i64;
    for digit in digits.iter().take_while(|byte| byte.is_ascii_digit()) {
        value = value.saturating_mul(10).saturating_add(i64::from(digit - b'0'));
    }
    if negative { value.saturating_neg() } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_hold_what_was_put_in() {
        let set = ByteSet::of(b"a\0\xff?");
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, b'?', b'a', 0xff]);
        assert!(set.has(b'a') && !set.has(b'b'));
        assert!(set.meets(&ByteSet::of(b"xa")) && !set.meets(&ByteSet::of(b"xyz")));
        assert!(ByteSet::of(b"b").is_within(&ByteSet::range(b'a', b'c')));
    }

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        for (text, value) in [("12x", 12), (" -7", -7), ("", 0), ("x", 0), ("99999999999999999999", i64::MAX)]
        {
            assert_eq!(number(text.as_bytes()), value, "{text}");
        }
    }
}
