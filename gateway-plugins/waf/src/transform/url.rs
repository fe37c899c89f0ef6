//! Percent-encoding, with `%u` escapes as IIS reads them.

use crate::bytes::{hex, hex_pair};

pub(super) fn decode(input: &[u8], out: &mut Vec<u8>) {
    decode_with(input, out, false);
}

pub(super) fn decode_uni(input: &[u8], out: &mut Vec<u8>) {
    decode_with(input, out, true);
}

fn decode_with(input: &[u8], out: &mut Vec<u8>, wide: bool) {
    let mut at = 0;
    while let Some(byte) = input.get(at) {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                if let Some(value) = hex_pair(input, at + 1) {
                    out.push(value);
                    at += 2;
                } else if let Some(value) = wide.then(|| wide_escape(input, at + 1)).flatten() {
                    out.push(value);
                    at += 5;
                } else {
                    out.push(b'%');
                }
            }
            other => out.push(*other),
        }
        at += 1;
    }
}

/// The byte that `uHHHH` at `at` stands for.
fn wide_escape(input: &[u8], at: usize) -> Option<u8> {
    if !matches!(input.get(at), Some(b'u' | b'U')) {
        return None;
    }
    Some(narrow(hex_pair(input, at + 1)?, hex_pair(input, at + 3)?))
}

/// The byte that stands for a character of two bytes: full-width forms of ASCII are ASCII, else the lower byte.
pub(super) fn narrow(high: u8, low: u8) -> u8 {
    if high == 0xff && (1..0x5f).contains(&low) { low + 0x20 } else { low }
}

pub(super) fn encode(input: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in input {
        match byte {
            b' ' => out.push(b'+'),
            b'*' => out.push(b'*'),
            byte if byte.is_ascii_alphanumeric() => out.push(*byte),
            byte => {
                let pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
                out.extend_from_slice(&[b'%', pair[0], pair[1]]);
            }
        }
    }
}

/// Decodes `%HH` and `+` of a form or query, as those who read them do.
pub(crate) fn decode_form(input: &[u8], out: &mut Vec<u8>) {
    decode(input, out);
}

/// Whether every `%` is followed by two hexadecimal digits.
pub(crate) fn is_valid(input: &[u8]) -> bool {
    memchr::memchr_iter(b'%', input).all(|at| {
        input.get(at + 1).copied().and_then(hex).is_some()
            && input.get(at + 2).copied().and_then(hex).is_some()
    })
}
