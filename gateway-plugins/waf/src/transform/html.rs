//! Character references of HTML.

use crate::bytes::hex;

/// Named references that can hide what rules look for. Longest names have ten letters.
const NAMED: &[(&str, u8)] = &[
    ("quot", b'"'),
    ("amp", b'&'),
    ("lt", b'<'),
    ("gt", b'>'),
    ("nbsp", 0xa0),
    ("apos", b'\''),
    ("tab", b'\t'),
    ("newline", b'\n'),
    ("excl", b'!'),
    ("num", b'#'),
    ("dollar", b'$'),
    ("percnt", b'%'),
    ("lpar", b'('),
    ("rpar", b')'),
    ("ast", b'*'),
    ("midast", b'*'),
    ("plus", b'+'),
    ("comma", b','),
    ("period", b'.'),
    ("sol", b'/'),
    ("colon", b':'),
    ("semi", b';'),
    ("equals", b'='),
    ("quest", b'?'),
    ("commat", b'@'),
    ("lsqb", b'['),
    ("lbrack", b'['),
    ("bsol", b'\\'),
    ("rsqb", b']'),
    ("rbrack", b']'),
    ("hat", b'^'),
    ("lowbar", b'_'),
    ("grave", b'`'),
    ("lcub", b'{'),
    ("lbrace", b'{'),
    ("verbar", b'|'),
    ("vert", b'|'),
    ("rcub", b'}'),
    ("rbrace", b'}'),
];
const LONGEST: usize = 8;
/// Digits that are read; browsers take any number of leading zeros.
const MAX_DIGITS: usize = 64;

pub(super) fn decode(input: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while at < input.len() {
        let rest = input.get(at..).unwrap_or_default();
        let Some(ampersand) = memchr::memchr(b'&', rest) else {
            out.extend_from_slice(rest);
            return;
        };
        let (plain, reference) = rest.split_at(ampersand);
        out.extend_from_slice(plain);
        let taken = match reference.get(1) {
            Some(b'#') => numeric(reference, out),
            Some(_) => named(reference, out),
            None => None,
        };
        match taken {
            Some(taken) => at += ampersand + taken,
            None => {
                out.push(b'&');
                at += ampersand + 1;
            }
        }
    }
}

/// How many bytes with a `;`, which may be missing.
fn with_end(text: &[u8], length: usize) -> usize {
    if text.get(length) == Some(&b';') { length + 1 } else { length }
}

fn numeric(text: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let is_hex = matches!(text.get(2), Some(b'x' | b'X'));
    let (from, base) = if is_hex { (3, 16) } else { (2, 10) };
    let digits = text.get(from..).unwrap_or_default();
    let value_of = |byte: &u8| hex(*byte).map(u32::from).filter(|value| *value < base);
    let count = digits.iter().take(MAX_DIGITS).take_while(|byte| value_of(byte).is_some()).count();
    if count == 0 {
        return None;
    }
    let code = digits
        .iter()
        .take(count)
        .filter_map(value_of)
        .fold(0u32, |code, digit| code.saturating_mul(base).saturating_add(digit));
    match u8::try_from(code) {
        Ok(byte) => out.push(byte),
        Err(_) => {
            let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    Some(with_end(text, from + count))
}

fn named(text: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let name = text.get(1..).unwrap_or_default();
    let count = name.iter().take(LONGEST + 1).take_while(|byte| byte.is_ascii_alphanumeric()).count();
    if !(2..=LONGEST).contains(&count) {
        return None;
    }
    let wanted = packed(name.get(..count)?);
    let at = PACKED.iter().position(|known| *known == wanted)?;
    out.push(NAMED.get(at)?.1);
    Some(with_end(text, 1 + count))
}

/// A name of up to eight letters as a number, in lower case: queries are full of ampersands, and numbers are soon compared.
const fn packed(name: &[u8]) -> u64 {
    let (mut number, mut at) = (0, 0);
    while at < name.len() {
        number = number << 8 | name[at].to_ascii_lowercase() as u64;
        at += 1;
    }
    number
}

const PACKED: [u64; NAMED.len()] = {
    let (mut all, mut at) = ([0; NAMED.len()], 0);
    while at < NAMED.len() {
        all[at] = packed(NAMED[at].0.as_bytes());
        at += 1;
    }
    all
};
