//! The Huffman code of RFC 7541, Appendix B.
//!
//! The code is canonical: within a length codes follow each other in the order of their symbols. So the lengths below
//! are all that has to be written down, and every table is made from them while compiling.

use super::HpackError;

/// Symbols: 256 octets and the end of the string.
const SYMBOLS: usize = 257;
/// The symbol for the end of the string, which never stands in one.
const END: u16 = 256;
/// The longest code, in bits.
const LONGEST: usize = 30;
/// Codes up to so many bits are found in one look.
const FAST_BITS: u32 = 9;

/// Bits of the code of each symbol.
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// Everything that follows from the lengths.
struct Tables {
    /// Code of each symbol, in its low bits.
    codes: [u32; SYMBOLS],
    /// Symbols by length, then value.
    sorted: [u16; SYMBOLS],
    /// By length: the first code.
    first: [u32; LONGEST + 1],
    /// By length: how many codes.
    count: [u32; LONGEST + 1],
    /// By length: where its symbols begin in `sorted`.
    start: [u32; LONGEST + 1],
    /// By the next `FAST_BITS` bits: length in the high octet, symbol in the low one; zero where the code is longer.
    fast: [u16; 1 << FAST_BITS],
}

static TABLES: Tables = Tables::make();

impl Tables {
    const fn make() -> Self {
        let mut it = Self {
            codes: [0; SYMBOLS],
            sorted: [0; SYMBOLS],
            first: [0; LONGEST + 1],
            count: [0; LONGEST + 1],
            start: [0; LONGEST + 1],
            fast: [0; 1 << FAST_BITS],
        };
        let (mut code, mut placed, mut length) = (0_u32, 0_usize, 1_usize);
        while length <= LONGEST {
            code <<= 1;
            it.first[length] = code;
            it.start[length] = placed as u32;
            let mut symbol = 0;
            while symbol < SYMBOLS {
                if LENGTHS[symbol] as usize == length {
                    it.codes[symbol] = code;
                    it.sorted[placed] = symbol as u16;
                    it.fill_fast(code, length as u32, symbol as u16);
                    placed += 1;
                    code += 1;
                }
                symbol += 1;
            }
            it.count[length] = code - it.first[length];
            length += 1;
        }
        it
    }

    const fn fill_fast(&mut self, code: u32, length: u32, symbol: u16) {
        if length > FAST_BITS {
            return;
        }
        let spare = FAST_BITS - length;
        let mut suffix = 0;
        while suffix < 1 << spare {
            self.fast[((code << spare) | suffix) as usize] = (length as u16) << 8 | symbol;
            suffix += 1;
        }
    }

    /// Symbol and length of a code longer than `FAST_BITS`, at the top of `bits`.
    fn slow(&self, bits: u64, have: u32) -> Option<(u16, u32)> {
        for length in FAST_BITS + 1..=have.min(LONGEST as u32) {
            let at = length as usize;
            let offset = ((bits >> (64 - length)) as u32).wrapping_sub(self.first[at]);
            if offset < self.count[at] {
                return Some((self.sorted[(self.start[at] + offset) as usize], length));
            }
        }
        None
    }
}

/// Appends the octets a string stands for.
///
/// # Errors
/// When the padding is not the start of the end symbol or longer than seven bits, or the end symbol is in the string.
pub(crate) fn decode(input: &[u8], out: &mut Vec<u8>) -> Result<(), HpackError> {
    // The bits not yet used, from the top; zeros below them.
    let (mut bits, mut have) = (0_u64, 0_u32);
    let mut input = input.iter();
    loop {
        while have <= 56
            && let Some(octet) = input.next()
        {
            bits |= u64::from(*octet) << (56 - have);
            have += 8;
        }
        let entry = TABLES.fast[(bits >> (64 - FAST_BITS)) as usize];
        let length = u32::from(entry >> 8);
        if length != 0 && length <= have {
            out.push(entry as u8);
            bits <<= length;
            have -= length;
            continue;
        }
        match TABLES.slow(bits, have) {
            Some((END, _)) => return Err(HpackError::Huffman),
            Some((symbol, length)) => {
                out.push(symbol as u8);
                bits <<= length;
                have -= length;
            }
            // Not a whole symbol any more: it has to be padding, fewer than eight bits and all of them ones.
            None if have < 8 && (have == 0 || bits >> (64 - have) == (1 << have) - 1) => return Ok(()),
            None => return Err(HpackError::Huffman),
        }
    }
}

/// Octets `input` takes when coded.
pub(crate) fn encoded_len(input: &[u8]) -> usize {
    let bits: usize = input.iter().map(|octet| usize::from(LENGTHS[usize::from(*octet)])).sum();
    bits.div_ceil(8)
}

/// Appends `input`, coded.
pub(crate) fn encode(input: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut have) = (0_u64, 0_u32);
    for &octet in input {
        let length = u32::from(LENGTHS[usize::from(octet)]);
        bits = bits << length | u64::from(TABLES.codes[usize::from(octet)]);
        have += length;
        while have >= 8 {
            have -= 8;
            out.push((bits >> have) as u8);
        }
    }
    if have > 0 {
        let spare = 8 - have;
        out.push((bits << spare) as u8 | ((1_u16 << spare) - 1) as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(input: &[u8]) -> Result<Vec<u8>, HpackError> {
        let mut out = Vec::new();
        decode(input, &mut out).map(|()| out)
    }

    fn encoded(input: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(input, &mut out);
        out
    }

    /// Strings of RFC 7541 §C.4 and §C.6.
    #[test]
    fn examples_of_the_rfc() {
        let examples: [(&str, &[u8]); 4] = [
            ("www.example.com", &[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff]),
            ("no-cache", &[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]),
            ("custom-value", &[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xb8, 0xe8, 0xb4, 0xbf]),
            ("302", &[0x64, 0x02]),
        ];
        for (text, code) in examples {
            assert_eq!(encoded(text.as_bytes()), code, "{text}");
            assert_eq!(decoded(code).unwrap(), text.as_bytes());
            assert_eq!(encoded_len(text.as_bytes()), code.len());
        }
    }

    /// A few codes of Appendix B as they stand there, of every kind of length.
    #[test]
    fn codes_of_the_appendix() {
        let known = [
            (b'0', 0x0),
            (b'a', 0x3),
            (b'&', 0xf8),
            (b'~', 0x1ffd),
            (b'\\', 0x7fff0),
            (0, 0x1ff8),
            (10, 0x3fff_fffc),
            (255, 0x3ff_ffee),
            (199, 0x1ff_ffec),
        ];
        for (symbol, code) in known {
            assert_eq!(TABLES.codes[usize::from(symbol)], code, "{symbol}");
        }
        assert_eq!(TABLES.codes[usize::from(END)], 0x3fff_ffff);
    }

    #[test]
    fn every_octet_comes_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decoded(&encoded(&all)).unwrap(), all);
        for octet in all {
            for times in 1..9 {
                let text = vec![octet; times];
                assert_eq!(decoded(&encoded(&text)).unwrap(), text);
            }
        }
    }

    #[test]
    fn wrong_padding_is_refused() {
        // `0` is five zeros; the three bits after it have to be ones.
        assert_eq!(decoded(&[0b0000_0111]).unwrap(), b"0");
        assert_eq!(decoded(&[0b0000_0110]), Err(HpackError::Huffman));
        assert_eq!(decoded(&[0b0000_0111, 0xff]), Err(HpackError::Huffman), "more than seven bits");
        assert_eq!(decoded(&[0xff; 4]), Err(HpackError::Huffman), "the end symbol");
        assert_eq!(decoded(&[0xff]), Err(HpackError::Huffman));
        assert_eq!(decoded(&[]).unwrap(), b"");
    }
}
