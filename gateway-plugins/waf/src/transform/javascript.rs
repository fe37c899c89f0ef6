//! Escapes of JavaScript strings.

use super::url::narrow;
use crate::bytes::{hex, hex_pair};

pub(super) fn decode(input: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(byte) = input.get(at) {
        if *byte != b'\\' {
            out.push(*byte);
            at += 1;
            continue;
        }
        at += escape(input, at + 1, out) + 1;
    }
}

/// Writes what the escape at `at`, behind its backslash, stands for, and says how long it is.
fn escape(input: &[u8], at: usize, out: &mut Vec<u8>) -> usize {
    let Some(kind) = input.get(at).copied() else {
        out.push(b'\\');
        return 0;
    };
    match kind {
        b'u' if input.get(at + 1) == Some(&b'{') => {
            if let Some((byte, length)) = braced(input, at + 2) {
                out.push(byte);
                return length + 2;
            }
        }
        b'u' => {
            if let (Some(high), Some(low)) = (hex_pair(input, at + 1), hex_pair(input, at + 3)) {
                out.push(narrow(high, low));
                return 5;
            }
        }
        b'x' => {
            if let Some(byte) = hex_pair(input, at + 1) {
                out.push(byte);
                return 3;
            }
        }
        b'0'..=b'7' => {
            let (value, length) = octal(input, at);
            out.push(value);
            return length;
        }
        _ => {}
    }
    out.push(match kind {
        b'a' => 0x07,
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 0x0b,
        other => other,
    });
    1
}

/// `H…}`: a code point of up to six digits.
fn braced(input: &[u8], at: usize) -> Option<(u8, usize)> {
    let rest = input.get(at..)?;
    let end = rest.iter().take(9).position(|byte| *byte == b'}')?;
    let mut code = 0u32;
    for digit in rest.get(..end)? {
        code = code << 4 | u32::from(hex(*digit)?);
    }
    let [high, low] = [(code >> 8) as u8, code as u8];
    (end > 0).then(|| (narrow(high, low), end + 1))
}

/// Up to three octal digits whose value fits a byte.
pub(super) fn octal(input: &[u8], at: usize) -> (u8, usize) {
    let (mut value, mut length) = (0u16, 0);
    while let Some(digit @ b'0'..=b'7') = input.get(at + length) {
        let next = value * 8 + u16::from(digit - b'0');
        if length == 3 || next > 255 {
            break;
        }
        value = next;
        length += 1;
    }
    (value as u8, length)
}
