//! Every transformation on the same bytes.

use crate::bytes::ByteSet;
use crate::transform::{GROWTH, Transform};

pub(super) fn transforms(data: &[u8]) {
    for transform in Transform::ALL {
        let out = applied(*transform, data);
        assert!(out.len() <= data.len() * GROWTH + 32, "{} grows", transform.name());
        let untouched = transform.triggers().is_some_and(|it| !it.meets(&ByteSet::of(data)));
        assert!(!untouched || out == data, "{} changes what it says it does not", transform.name());
        // It only appends: what was written before stays.
        let mut behind = b"before ".to_vec();
        transform.apply(data, &mut behind);
        assert_eq!(behind.strip_prefix(b"before "), Some(out.as_slice()), "{}", transform.name());
        if is_done_once(*transform) {
            assert_eq!(applied(*transform, &out), out, "{} twice", transform.name());
        }
    }
    for (there, back) in [
        (Transform::UrlEncode, Transform::UrlDecode),
        (Transform::UrlEncode, Transform::UrlDecodeUni),
        (Transform::Base64Encode, Transform::Base64Decode),
        (Transform::Base64Encode, Transform::Base64DecodeExt),
        (Transform::HexEncode, Transform::HexDecode),
    ] {
        assert_eq!(applied(back, &applied(there, data)), data, "{} and {}", there.name(), back.name());
    }
    assert_eq!(applied(Transform::Length, data), data.len().to_string().as_bytes());
}

/// Whether a second time changes nothing.
fn is_done_once(transform: Transform) -> bool {
    matches!(
        transform,
        Transform::Lowercase
            | Transform::Uppercase
            | Transform::RemoveNulls
            | Transform::ReplaceNulls
            | Transform::RemoveWhitespace
            | Transform::CompressWhitespace
            | Transform::Trim
            | Transform::TrimLeft
            | Transform::TrimRight
            | Transform::NormalizePath
            | Transform::NormalizePathWin
    )
}

fn applied(transform: Transform, input: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    transform.apply(input, &mut out);
    out
}
