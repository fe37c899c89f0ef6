//! Escapes of CSS.

use super::url::narrow;
use crate::bytes::{hex, is_space};

pub(super) fn decode(input: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(byte) = input.get(at).copied() {
        at += 1;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let Some(next) = input.get(at).copied() else { return };
        let digits = input.get(at..).unwrap_or_default().iter().take(6);
        let values: Vec<u8> = digits.map_while(|digit| hex(*digit)).collect();
        if values.is_empty() {
            // An escaped line end is nothing at all.
            if next != b'\n' {
                out.push(next);
            }
            at += 1;
            continue;
        }
        let code = values.iter().fold(0u32, |code, digit| code << 4 | u32::from(*digit));
        out.push(narrow((code >> 8) as u8, code as u8));
        at += values.len();
        // One white space ends an escape.
        if input.get(at).copied().is_some_and(is_space) {
            at += 1;
        }
    }
}
