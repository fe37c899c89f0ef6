//! Characters beyond ASCII as `%u` escapes.

/// Also for what is encoded with more bytes than needed: those who accept that take it for the short form.
pub(super) fn to_unicode(input: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(first) = input.get(at).copied() {
        match sequence(input, at, first) {
            Some((code, length)) => {
                out.extend_from_slice(format!("%u{code:04x}").as_bytes());
                at += length;
            }
            None => {
                out.push(first);
                at += 1;
            }
        }
    }
}

/// The code point at `at` that takes more than one byte, with its length.
fn sequence(input: &[u8], at: usize, first: u8) -> Option<(u32, usize)> {
    let (length, bits) = match first {
        0xc0..=0xdf => (2, first & 0x1f),
        0xe0..=0xef => (3, first & 0x0f),
        0xf0..=0xf7 => (4, first & 0x07),
        _ => return None,
    };
    let mut code = u32::from(bits);
    for byte in input.get(at + 1..at + length)? {
        if byte & 0xc0 != 0x80 {
            return None;
        }
        code = code << 6 | u32::from(byte & 0x3f);
    }
    Some((code, length))
}

/// Whether every character is as short as it can be and exists.
pub(crate) fn is_valid(input: &[u8]) -> bool {
    std::str::from_utf8(input).is_ok()
}
