//! Letters, white space and NUL.

use crate::bytes::is_space;

/// White space as the rule language has it: with the no-break space of Latin-1.
fn is_blank(byte: u8) -> bool {
    is_space(byte) || byte == 0xa0
}

pub(super) fn lowercase(input: &[u8], out: &mut Vec<u8>) {
    out.extend(input.iter().map(u8::to_ascii_lowercase));
}

pub(super) fn uppercase(input: &[u8], out: &mut Vec<u8>) {
    out.extend(input.iter().map(u8::to_ascii_uppercase));
}

pub(super) fn remove_nulls(input: &[u8], out: &mut Vec<u8>) {
    out.extend(input.iter().filter(|byte| **byte != 0));
}

pub(super) fn replace_nulls(input: &[u8], out: &mut Vec<u8>) {
    out.extend(input.iter().map(|byte| if *byte == 0 { b' ' } else { *byte }));
}

pub(super) fn remove_whitespace(input: &[u8], out: &mut Vec<u8>) {
    out.extend(input.iter().filter(|byte| !is_blank(**byte)));
}

pub(super) fn compress_whitespace(input: &[u8], out: &mut Vec<u8>) {
    let mut blank_before = false;
    for byte in input {
        let blank = is_blank(*byte);
        if !blank {
            out.push(*byte);
        } else if !blank_before {
            out.push(b' ');
        }
        blank_before = blank;
    }
}

pub(super) fn trim(input: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(without_end(without_start(input)));
}

pub(super) fn trim_left(input: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(without_start(input));
}

pub(super) fn trim_right(input: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(without_end(input));
}

fn without_start(input: &[u8]) -> &[u8] {
    let from = input.iter().position(|byte| !is_blank(*byte)).unwrap_or(input.len());
    input.get(from..).unwrap_or_default()
}

fn without_end(input: &[u8]) -> &[u8] {
    let to = input.iter().rposition(|byte| !is_blank(*byte)).map_or(0, |at| at + 1);
    input.get(..to).unwrap_or_default()
}

pub(super) fn length(input: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(input.len().to_string().as_bytes());
}
