//! Numbers with a prefix of a few bits (RFC 7541 §5.1).

use super::HpackError;

/// Reads a number whose first `prefix` bits are in the low bits of the first octet.
///
/// # Errors
/// When the octets end, or the number has more than 32 bits.
pub(crate) fn decode(input: &mut &[u8], prefix: u8) -> Result<usize, HpackError> {
    let (first, mut rest) = input.split_first().ok_or(HpackError::Truncated)?;
    let mask = (1_u16 << prefix) - 1;
    let mut value = u64::from(u16::from(*first) & mask);
    if value == u64::from(mask) {
        for shift in (0..).step_by(7) {
            let (octet, tail) = rest.split_first().ok_or(HpackError::Truncated)?;
            rest = tail;
            // Five octets hold 35 bits; more of them, even zeros, serve nobody.
            if shift > 28 {
                return Err(HpackError::Integer);
            }
            value += u64::from(octet & 0x7f) << shift;
            if octet & 0x80 == 0 {
                break;
            }
        }
    }
    *input = rest;
    u32::try_from(value).map(|value| value as usize).map_err(|_| HpackError::Integer)
}

/// Writes a number with a prefix of `prefix` bits; `first` holds the other bits of the first octet.
pub(crate) fn encode(out: &mut Vec<u8>, first: u8, prefix: u8, value: usize) {
    let mask = (1_usize << prefix) - 1;
    if value < mask {
        out.push(first | value as u8);
        return;
    }
    out.push(first | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn both_ways(prefix: u8, value: usize, octets: &[u8]) {
        let mut out = Vec::new();
        encode(&mut out, 0, prefix, value);
        assert_eq!(out, octets);
        let mut input = octets;
        assert_eq!(decode(&mut input, prefix), Ok(value));
        assert!(input.is_empty());
    }

    /// RFC 7541 §C.1.
    #[test]
    fn examples_of_the_rfc() {
        both_ways(5, 10, &[10]);
        both_ways(5, 1337, &[31, 154, 10]);
        both_ways(8, 42, &[42]);
    }

    #[test]
    fn edges() {
        both_ways(7, 126, &[126]);
        both_ways(7, 127, &[127, 0]);
        both_ways(4, 15, &[15, 0]);
        both_ways(8, u32::MAX as usize, &[255, 128, 254, 255, 255, 15]);
    }

    #[test]
    fn what_is_too_long_is_refused() {
        for bad in [&[31, 0x80, 0x80, 0x80, 0x80, 0x80, 0][..], &[31, 255, 255, 255, 255, 127]] {
            assert_eq!(decode(&mut &bad[..], 5), Err(HpackError::Integer), "{bad:?}");
        }
        for cut in [&[][..], &[31], &[31, 0x80]] {
            assert_eq!(decode(&mut &cut[..], 5), Err(HpackError::Truncated), "{cut:?}");
        }
    }
}
