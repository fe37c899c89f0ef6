//! Vectors, edges, and a deterministic fuzz of the decoder.

use bytes::Bytes;
use http::{Method, StatusCode};

use super::table::{STATIC, find};
use super::*;
use crate::hpack::{HpackError, Name, Value};

fn text(name: &Name) -> String {
    match name {
        Name::Method => ":method".into(),
        Name::Scheme => ":scheme".into(),
        Name::Authority => ":authority".into(),
        Name::Path => ":path".into(),
        Name::Status => ":status".into(),
        Name::Protocol => ":protocol".into(),
        Name::Header(name) => name.to_string(),
        Name::Bad(_) => "?".into(),
    }
}

fn read(section: &[u8]) -> Result<Vec<(String, String)>, QpackError> {
    let mut fields = Vec::new();
    decode(&Bytes::copy_from_slice(section), usize::MAX, |field| {
        let value = match field.value {
            Value::Text(text) => String::from_utf8_lossy(&text).into_owned(),
            Value::Header(value) => String::from_utf8_lossy(value.as_bytes()).into_owned(),
            Value::Bad => "?".into(),
        };
        fields.push((text(&field.name), value));
    })
    .map(|_| fields)
}

fn written(fields: &[(&str, &str)], sensitive: bool) -> Vec<u8> {
    let mut out = Vec::new();
    begin(&mut out);
    for (name, value) in fields {
        field(&mut out, name.as_bytes(), value.as_bytes(), sensitive);
    }
    out
}

fn owned(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// RFC 9204 §B.1, the one example that needs no dynamic table.
#[test]
fn the_example_of_the_rfc() {
    let section = b"\x00\x00\x51\x0b/index.html";
    assert_eq!(read(section).unwrap(), owned(&[(":path", "/index.html")]));
    // The Huffman code makes ours shorter.
    let ours = written(&[(":path", "/index.html")], false);
    assert_eq!(ours[..4], [0, 0, 0x51, 0x88]);
    assert_eq!(read(&ours).unwrap(), owned(&[(":path", "/index.html")]));
}

/// RFC 9204 §B.2 to §B.5: blocks that need entries we never allowed.
#[test]
fn dynamic_entries_are_refused() {
    for section in [
        &[0x03, 0x81, 0x10, 0x11][..],
        &[0x05, 0x00, 0x80, 0xc1, 0x81],
        &[0x00, 0x00, 0x80],
        &[0x00, 0x00, 0x10],
        &[0x00, 0x00, 0x40, 0x00],
        &[0x00, 0x00, 0x00, 0x00],
    ] {
        assert_eq!(read(section), Err(QpackError::Dynamic), "{section:x?}");
    }
}

#[test]
fn what_is_broken_is_refused() {
    let truncated = QpackError::Coding(HpackError::Truncated);
    for (section, error) in [
        (&[][..], truncated),
        (&[0], truncated),
        (&[0, 0x80], QpackError::Base),
        (&[0, 0, 0xff], truncated),
        (&[0, 0, 0xff, 0x24], QpackError::Index),
        (&[0, 0, 0x5f, 0x54, 0], QpackError::Index),
        (&[0, 0, 0x51], truncated),
        (&[0, 0, 0x51, 5, b'/'], truncated),
        (&[0, 0, 0x51, 0x81, 0x00], QpackError::Coding(HpackError::Huffman)),
        (&[0, 0, 0x2a, 0xff], truncated),
        (&[0, 0, 0xff, 0x80, 0x80, 0x80, 0x80, 0x80, 1], QpackError::Coding(HpackError::Integer)),
    ] {
        assert_eq!(read(section), Err(error), "{section:x?}");
    }
    // Without fields, a section is a section.
    assert_eq!(read(&[0, 0]), Ok(Vec::new()));
    // A base that is never used may be any but a negative one (RFC 9204 §4.5.1.2).
    assert_eq!(read(&[0, 5, 0xd1]), Ok(owned(&[(":method", "GET")])));
}

#[test]
fn both_tables_say_the_same() {
    assert_eq!(STATIC.len(), 99);
    for (at, (name, value)) in STATIC.iter().enumerate() {
        let name = text(name);
        let indexes = find(name.as_bytes()).unwrap();
        assert!(indexes.contains(&u8::try_from(at).unwrap()), "{name} at {at}");
        let section = written(&[(&name, value)], false);
        let first = indexes.iter().position(|index| STATIC[usize::from(*index)].1 == *value).unwrap();
        let index = indexes[first];
        let expected = if index < 63 { vec![0, 0, 0xc0 | index] } else { vec![0, 0, 0xff, index - 63] };
        assert_eq!(section, expected, "{name}: {value}");
        assert_eq!(read(&section).unwrap(), owned(&[(&name, value)]));
    }
    for unknown in ["", "x", "x-request-id", ":protocol", "contenT-type"] {
        assert_eq!(find(unknown.as_bytes()), None, "{unknown}");
    }
}

#[test]
fn shortcuts_say_the_same_as_fields() {
    for code in (100..600).filter_map(|code| StatusCode::from_u16(code).ok()) {
        let mut short = vec![0, 0];
        status(&mut short, code);
        assert_eq!(short, written(&[(":status", code.as_str())], false));
    }
    for known in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::CONNECT] {
        let mut short = vec![0, 0];
        method(&mut short, &known);
        assert_eq!(short, written(&[(":method", known.as_str())], false));
    }
    for known in ["http", "https", "coap"] {
        let mut short = vec![0, 0];
        scheme(&mut short, known);
        assert_eq!(short, written(&[(":scheme", known)], false));
    }
    let mut short = vec![0, 0];
    path(&mut short, "/");
    assert_eq!(short, [0, 0, 0xc1]);
}

/// RFC 9204 §4.5.4, §4.5.6: the N bit says that nobody may keep it.
#[test]
fn secrets_are_marked() {
    assert_eq!(written(&[("authorization", "Basic x")], true), b"\x00\x00\x7f\x45\x07Basic x");
    let own = written(&[("x-key", "k")], true);
    assert_eq!(own[2] & 0xf0, 0x30);
    assert_eq!(read(&own).unwrap(), owned(&[("x-key", "k")]));
    // Also where the table has the very value.
    assert_eq!(written(&[("age", "0")], true)[2], 0x72);
}

#[test]
fn the_limit_counts_as_the_rfc_does() {
    let section = Bytes::from(written(&[("a", "b"), ("cc", "dd")], false));
    let count = |limit| {
        let mut fields = 0;
        let listed = decode(&section, limit, |_| fields += 1).unwrap();
        (fields, listed)
    };
    // Name, value, and 32 octets each (RFC 9114 §4.2.2).
    assert_eq!(count(34 + 36), (2, Listed::Whole));
    assert_eq!(count(34 + 35), (1, Listed::BeyondLimit));
    assert_eq!(count(33), (0, Listed::BeyondLimit));
}

/// What is read can be written and read again, whatever it is; nothing that is not a section is taken for one by a
/// panic.
#[test]
fn anything_is_read_or_refused() {
    let mut random = fastrand::Rng::with_seed(9204);
    let seeds = [
        written(&[(":method", "GET"), (":path", "/a/b?c"), ("user-agent", "curl/8.0"), ("x-a", "1")], false),
        written(&[("cookie", "a=b; c=d"), ("content-type", "text/html; charset=utf-8")], true),
        vec![0, 0],
    ];
    let mut sound = 0;
    for round in 0..40_000 {
        let mut section = seeds[round % seeds.len()].clone();
        for _ in 0..random.usize(..4) {
            match random.u8(..4) {
                0 => section.push(random.u8(..)),
                1 => drop(section.pop()),
                2 => section.insert(random.usize(..=section.len()), random.u8(..)),
                _ => {
                    let at = random.usize(..section.len().max(1));
                    if let Some(octet) = section.get_mut(at) {
                        *octet = random.u8(..);
                    }
                }
            }
        }
        let Ok(fields) = read(&section) else { continue };
        if fields.iter().any(|(name, value)| name == "?" || value.contains(['?', '\u{fffd}'])) {
            continue;
        }
        sound += 1;
        let again: Vec<(&str, &str)> = fields.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(read(&written(&again, round % 2 == 0)).unwrap(), fields);
    }
    assert!(sound > 5_000, "{sound}");
}
