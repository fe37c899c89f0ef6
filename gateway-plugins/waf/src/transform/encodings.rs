//! Base64, hexadecimal, digests and escapes of C.

use md5::Digest as _;

use super::javascript::octal;
use crate::bytes::{hex, hex_pair};

pub(super) fn escape_sequences(input: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(byte) = input.get(at).copied() {
        at += 1;
        let next = input.get(at).copied();
        let (value, length) = match (byte, next) {
            (b'\\', Some(b'a')) => (0x07, 1),
            (b'\\', Some(b'b')) => (0x08, 1),
            (b'\\', Some(b'f')) => (0x0c, 1),
            (b'\\', Some(b'n')) => (b'\n', 1),
            (b'\\', Some(b'r')) => (b'\r', 1),
            (b'\\', Some(b't')) => (b'\t', 1),
            (b'\\', Some(b'v')) => (0x0b, 1),
            (b'\\', Some(mark @ (b'\\' | b'?' | b'\'' | b'"'))) => (mark, 1),
            (b'\\', Some(b'x' | b'X')) => match hex_pair(input, at + 1) {
                Some(value) => (value, 3),
                None => (byte, 0),
            },
            (b'\\', Some(b'0'..=b'7')) => octal(input, at),
            _ => (byte, 0),
        };
        out.push(value);
        at += length;
    }
}

/// The six bits that a character of Base64 stands for, in either alphabet.
fn sextet(byte: u8) -> Option<u32> {
    let value = match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

/// Up to the first character that is not Base64.
pub(super) fn base64(input: &[u8], out: &mut Vec<u8>) {
    decode_base64(input.iter().map_while(|byte| sextet(*byte)), out);
}

/// Without regard to characters that are not Base64.
pub(super) fn base64_lax(input: &[u8], out: &mut Vec<u8>) {
    decode_base64(input.iter().filter_map(|byte| sextet(*byte)), out);
}

fn decode_base64(sextets: impl Iterator<Item = u32>, out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0u32, 0);
    for sextet in sextets {
        bits = bits << 6 | sextet;
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
}

pub(super) fn base64_encode(input: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for chunk in input.chunks(3) {
        let byte = |n: usize| u32::from(chunk.get(n).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for n in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * n) & 63) as usize];
            out.push(if n > chunk.len() { b'=' } else { digit });
        }
    }
}

pub(super) fn hex_decode(input: &[u8], out: &mut Vec<u8>) {
    for pair in input.chunks_exact(2) {
        match hex_pair(pair, 0) {
            Some(byte) => out.push(byte),
            None => return,
        }
    }
}

pub(super) fn hex_encode(input: &[u8], out: &mut Vec<u8>) {
    for byte in input {
        out.extend_from_slice(format!("{byte:02x}").as_bytes());
    }
}

/// `0x53514c` is `SQL`.
pub(super) fn sql_hex_decode(input: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(byte) = input.get(at) {
        let is_mark = *byte == b'0' && matches!(input.get(at + 1), Some(b'x' | b'X'));
        if is_mark && input.get(at + 2).copied().and_then(hex).is_some() {
            at += 2;
            while let Some(value) = hex_pair(input, at) {
                out.push(value);
                at += 2;
            }
            // A digit without its pair is skipped.
            if input.get(at).copied().and_then(hex).is_some() {
                at += 1;
            }
            continue;
        }
        out.push(*byte);
        at += 1;
    }
}

pub(super) fn md5(input: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&md5::Md5::digest(input));
}

pub(super) fn sha1(input: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&sha1::Sha1::digest(input));
}
