//! Byte ranges (RFC 9110 §14).

use http::{HeaderMap, HeaderValue};

/// Ranges of one request that are answered as such; for more of them the whole is sent.
pub const MAX_RANGES: usize = 16;

/// What a `Range` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ranges {
    /// All of it: the field can't be read, or asks for more than it is worth.
    Whole,
    /// These parts, each from its first byte to the one behind its last.
    Parts(Vec<(u64, u64)>),
    /// Nothing that is there: 416.
    Unsatisfiable,
}

/// Reads the `Range` of a request for something of `length` bytes. Whoever asks for a lot of small or overlapping parts
/// gets the whole (RFC 9110 §17.15).
pub fn read(headers: &HeaderMap, length: u64) -> Ranges {
    let mut fields = headers.get_all(http::header::RANGE).iter();
    let (Some(field), None) = (fields.next(), fields.next()) else { return Ranges::Whole };
    let Some(set) = set_of(field) else { return Ranges::Whole };
    let mut parts = Vec::new();
    for (n, spec) in set.split(',').map(str::trim).filter(|spec| !spec.is_empty()).enumerate() {
        if n >= MAX_RANGES {
            return Ranges::Whole;
        }
        match part(spec, length) {
            None => return Ranges::Whole,
            Some(part) if part.0 < part.1 => parts.push(part),
            Some(_) => {}
        }
    }
    if parts.is_empty() {
        return Ranges::Unsatisfiable;
    }
    if parts.len() > 1 && parts.iter().map(|(from, to)| to - from).sum::<u64>() > length {
        return Ranges::Whole;
    }
    Ranges::Parts(parts)
}

fn set_of(field: &HeaderValue) -> Option<&str> {
    let (unit, set) = field.to_str().ok()?.split_once('=')?;
    let has_any = set.split(',').any(|spec| !spec.trim().is_empty());
    (unit.trim().eq_ignore_ascii_case("bytes") && has_any).then_some(set)
}

/// `None` is malformed; an empty part lies outside.
fn part(spec: &str, length: u64) -> Option<(u64, u64)> {
    let (first, last) = spec.split_once('-')?;
    if first.is_empty() {
        let suffix = number(last)?;
        return Some((length.saturating_sub(suffix), length));
    }
    let first = number(first)?;
    if last.is_empty() {
        return Some((first, length));
    }
    let last = number(last)?;
    (first <= last).then(|| (first, last.saturating_add(1).min(length)))
}

/// Digits only; what is too large is as large as can be.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX - 1))
}

/// `Content-Range` of a part.
pub fn content_range(from: u64, to: u64, length: u64) -> HeaderValue {
    value(&format!("bytes {from}-{}/{length}", to.saturating_sub(1)))
}

/// `Content-Range` where nothing asked for is there.
pub fn unsatisfied(length: u64) -> HeaderValue {
    value(&format!("bytes */{length}"))
}

fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static("bytes */*"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        use Ranges::{Parts, Unsatisfiable, Whole};
        let many = format!("bytes={}", vec!["0-0"; 17].join(","));
        let cases: &[(&str, Ranges)] = &[
            ("bytes=0-0", Parts(vec![(0, 1)])),
            ("bytes=2-5", Parts(vec![(2, 6)])),
            ("bytes=5-", Parts(vec![(5, 10)])),
            ("bytes=-3", Parts(vec![(7, 10)])),
            ("bytes=-30", Parts(vec![(0, 10)])),
            ("bytes=2-99999999999999999999999", Parts(vec![(2, 10)])),
            ("BYTES = 0-1, 4-5,", Parts(vec![(0, 2), (4, 6)])),
            ("bytes=0-1, 50-60", Parts(vec![(0, 2)])),
            ("bytes=10-", Unsatisfiable),
            ("bytes=-0", Unsatisfiable),
            ("bytes=18446744073709551615-", Unsatisfiable),
            ("bytes=5-2", Whole),
            ("bytes=a-2", Whole),
            ("bytes=+1-2", Whole),
            ("bytes=", Whole),
            ("bytes=--1", Whole),
            ("rows=0-1", Whole),
            ("0-1", Whole),
            // The same byte again and again.
            ("bytes=0-,0-,0-", Whole),
            (&many, Whole),
        ];
        for (text, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert("range", HeaderValue::from_str(text).unwrap());
            assert_eq!(read(&headers, 10), *expected, "{text}");
            headers.append("range", HeaderValue::from_static("bytes=1-1"));
            assert_eq!(read(&headers, 10), Whole, "two fields are no list");
        }
        let mut headers = HeaderMap::new();
        headers.insert("range", HeaderValue::from_static("bytes=0-"));
        assert_eq!(read(&headers, 0), Unsatisfiable);
    }
}
