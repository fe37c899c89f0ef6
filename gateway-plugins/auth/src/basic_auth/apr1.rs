//! Apache's `apr1` hashes: a thousand rounds of MD5, as `htpasswd -m` and `openssl passwd -apr1` write them.
//!
//! No library of this tree has it, and files that nginx and Apache use are full of it.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use md5::{Digest as _, Md5};

pub(super) const PREFIX: &str = "$apr1$";
/// Bytes of a salt.
const MAX_SALT: usize = 8;
/// Digits of a hash: 128 bits, six a digit.
const DIGITS: usize = 22;
const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Which bytes of the digest become four digits together; the byte left over, 11, becomes the last two.
const ORDER: [[usize; 3]; 5] = [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]];

/// Salt and digits of a hash; `None` when it is none.
pub(super) fn parts(text: &str) -> Option<(&str, &str)> {
    let (salt, digits) = text.strip_prefix(PREFIX)?.split_once('$')?;
    let fits = (1..=MAX_SALT).contains(&salt.len())
        && digits.len() == DIGITS
        && digits.bytes().all(|digit| ALPHABET.contains(&digit));
    fits.then_some((salt, digits))
}

pub(super) fn verify(text: &str, password: &[u8]) -> bool {
    let Some((salt, digits)) = parts(text) else { return false };
    let made = encode(&hash(salt.as_bytes(), password));
    verify_slices_are_equal(made.as_bytes(), digits.as_bytes()).is_ok()
}

fn hash(salt: &[u8], password: &[u8]) -> [u8; 16] {
    let inner: [u8; 16] =
        Md5::new().chain_update(password).chain_update(salt).chain_update(password).finalize().into();
    let mut first = Md5::new().chain_update(password).chain_update(PREFIX).chain_update(salt);
    let mut left = password.len();
    while left > 0 {
        let taken = left.min(inner.len());
        first.update(inner.get(..taken).unwrap_or_default());
        left -= taken;
    }
    let mut bits = password.len();
    while bits > 0 {
        let odd = bits & 1 == 1;
        first.update(if odd { &[0] } else { password.get(..1).unwrap_or_default() });
        bits >>= 1;
    }
    let mut made: [u8; 16] = first.finalize().into();
    for round in 0..1000 {
        let odd = round % 2 == 1;
        let mut next = Md5::new();
        next.update(if odd { password } else { &made[..] });
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        next.update(if odd { &made[..] } else { password });
        made = next.finalize().into();
    }
    made
}

fn encode(hash: &[u8; 16]) -> String {
    let mut text = String::with_capacity(DIGITS);
    for [a, b, c] in ORDER {
        let word = u32::from(hash[a]) << 16 | u32::from(hash[b]) << 8 | u32::from(hash[c]);
        digits(word, 4, &mut text);
    }
    digits(u32::from(hash[11]), 2, &mut text);
    text
}

/// Six bits a digit, the lowest first.
fn digits(mut word: u32, count: usize, text: &mut String) {
    for _ in 0..count {
        let digit = usize::try_from(word & 63).unwrap_or(0);
        text.push(char::from(ALPHABET[digit]));
        word >>= 6;
    }
}
