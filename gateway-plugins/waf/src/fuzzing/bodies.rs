//! Readers of bodies: what they make of any bytes is bounded, and the same as other readers make of them.

use crate::body::{
    ItemKind, Sink, TOO_MANY, Unreadable, form as forms, graphql as documents, json as jsons,
    multipart as parts, protobuf, text as texts, xml as xmls,
};
use crate::transform::Transform;

/// Values that are taken; more are refused.
const MAX_VALUES: usize = 1000;
const DEPTH: usize = 64;

/// What a reader found.
#[derive(Default, Debug, PartialEq, Eq)]
struct ReadItems {
    values: Vec<(ItemKind, Vec<u8>, Vec<u8>)>,
    file_bytes: usize,
}

impl Sink for ReadItems {
    fn take(&mut self, kind: ItemKind, name: &[u8], value: &[u8]) -> bool {
        self.values.push((kind, name.to_vec(), value.to_vec()));
        self.values.len() < MAX_VALUES
    }

    fn file_size(&mut self, bytes: usize) {
        self.file_bytes += bytes;
    }
}

impl ReadItems {
    fn by(read: impl FnOnce(&mut Self) -> Result<(), Unreadable>) -> (Self, Result<(), Unreadable>) {
        let mut found = Self::default();
        let read = read(&mut found);
        assert!(found.values.len() <= MAX_VALUES, "more values than may be");
        (found, read)
    }

    /// Bytes of all values; names of leaves repeat what is above them.
    fn bytes(&self) -> usize {
        self.values.iter().map(|(_, _, value)| value.len()).sum()
    }
}

pub(super) fn form(data: &[u8]) {
    let (found, read) = ReadItems::by(|found| forms::read(data, found));
    assert!(found.bytes() <= data.len(), "a form grows");
    let pairs = data.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).count();
    assert_eq!(found.values.len(), pairs.min(MAX_VALUES), "a pair is lost");
    // Written again with everything encoded, the same is read.
    if read.is_ok() {
        let mut again = Vec::new();
        for (_, name, value) in &found.values {
            for (text, mark) in [(name, b'='), (value, b'&')] {
                again.extend(text.iter().flat_map(|byte| format!("%{byte:02X}").into_bytes()));
                again.push(mark);
            }
        }
        assert_eq!(ReadItems::by(|found| forms::read(&again, found)), (found, Ok(())));
    }
}

pub(super) fn json(data: &[u8]) {
    let (found, read) = ReadItems::by(|found| jsons::read(data, DEPTH, found));
    // `\u00ff` takes six bytes; an unpaired half of a character becomes one of three.
    assert!(found.bytes() <= data.len(), "JSON grows");
    let plain = data.strip_prefix(b"\xef\xbb\xbf").unwrap_or(data);
    let Ok(theirs) = serde_json::from_slice::<serde_json::Value>(plain) else { return };
    let (count, depth) = leaves(&theirs);
    if depth <= DEPTH && count < MAX_VALUES {
        assert_eq!(read, Ok(()), "serde_json reads this");
        // Of a key that is there twice they keep one value.
        assert!(found.values.len() >= count, "{count} leaves, {found:?}");
        let mut texts = Vec::new();
        strings(&theirs, &mut texts);
        for text in texts {
            assert!(
                found.values.iter().any(|(_, _, value)| value == text.as_bytes()),
                "{text:?} is not seen"
            );
        }
    }
}

/// How many leaves there are, and how deep.
fn leaves(value: &serde_json::Value) -> (usize, usize) {
    let inner: Vec<(usize, usize)> = match value {
        serde_json::Value::Array(items) => items.iter().map(leaves).collect(),
        serde_json::Value::Object(members) => members.values().map(leaves).collect(),
        _ => return (1, 0),
    };
    (inner.iter().map(|it| it.0).sum(), inner.iter().map(|it| it.1).max().unwrap_or(0) + 1)
}

fn strings<'v>(value: &'v serde_json::Value, out: &mut Vec<&'v str>) {
    match value {
        serde_json::Value::String(text) => out.push(text),
        serde_json::Value::Array(items) => items.iter().for_each(|item| strings(item, out)),
        serde_json::Value::Object(members) => members.values().for_each(|item| strings(item, out)),
        _ => {}
    }
}

pub(super) fn multipart(data: &[u8]) {
    // The content type is a line of its own; without one the boundary is `B`.
    let (kind, body) = match memchr::memchr(b'\n', data).filter(|_| data.starts_with(b"multipart/")) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (&b"multipart/form-data; boundary=B"[..], data),
    };
    let Ok(boundary) = parts::boundary(kind) else { return };
    assert!((1..=70).contains(&boundary.len()));
    let (found, read) = ReadItems::by(|found| parts::read(body, &boundary, 100, found));
    // A name is repeated with each line of a part's head.
    assert!(found.bytes() + found.file_bytes <= body.len() * 2, "a body grows");
    if read.is_err() {
        return;
    }
    let mark = [b"--", boundary.as_slice()].concat();
    for (kind, _, value) in &found.values {
        let ends = [&b"\n"[..], b"\r"].map(|end| [end, &mark].concat());
        let hidden = ends.iter().any(|end| memchr::memmem::find(value, end).is_some());
        assert!(*kind != ItemKind::Argument || !hidden, "a part is hidden in another");
    }
    // What was understood is understood again with another boundary and plain heads.
    let mut again = Vec::new();
    let texts = found.values.iter().filter(|(kind, name, value)| {
        *kind == ItemKind::Argument
            && !name.iter().any(|byte| b"\"\\\r\n".contains(byte))
            && !has(value, b"--Z")
    });
    let mut expected = Vec::new();
    for (_, name, value) in texts.take(50) {
        again.extend_from_slice(b"--Z\r\ncontent-disposition: form-data; name=\"");
        again.extend_from_slice(name);
        again.extend_from_slice(b"\"\r\n\r\n");
        again.extend_from_slice(value);
        again.extend_from_slice(b"\r\n");
        expected.push((name, value));
    }
    again.extend_from_slice(b"--Z--");
    let (got, read) = ReadItems::by(|found| parts::read(&again, b"Z", 100, found));
    assert_eq!(read, Ok(()), "{again:?}");
    let got = got.values.iter().filter(|it| it.0 == ItemKind::Argument).map(|(_, name, value)| (name, value));
    assert_eq!(got.collect::<Vec<_>>(), expected);
}

fn has(text: &[u8], needle: &[u8]) -> bool {
    memchr::memmem::find(text, needle).is_some()
}

pub(super) fn xml(data: &[u8]) {
    let (found, read) = ReadItems::by(|found| xmls::read(data, DEPTH, found));
    // A number that is no character becomes one of three bytes, and is written in at least four.
    assert!(found.bytes() <= data.len(), "XML grows");
    if read.is_ok() {
        // Spaces around a document change nothing.
        let plain = data.strip_prefix(b"\xef\xbb\xbf").unwrap_or(data);
        let spaced = [b" \n", plain, b"\n "].concat();
        let (again, read) = ReadItems::by(|found| xmls::read(&spaced, DEPTH, found));
        assert_eq!(read, Ok(()));
        assert_eq!(again.values, found.values);
    }
    // A tree written from what was found, escaped, gives the same texts.
    let mut document = b"<r>".to_vec();
    let mut expected = Vec::new();
    for (_, _, value) in found.values.iter().filter(|it| it.0 == ItemKind::Text).take(100) {
        document.extend_from_slice(b"<t>");
        let escaped = value.iter().flat_map(|byte| match byte {
            b'<' => b"&lt;".to_vec(),
            b'&' => b"&amp;".to_vec(),
            byte => vec![*byte],
        });
        document.extend(escaped);
        document.extend_from_slice(b"</t>");
        expected.push(value.clone());
    }
    document.extend_from_slice(b"</r>");
    let (got, read) = ReadItems::by(|found| xmls::read(&document, DEPTH, found));
    assert_eq!(read, Ok(()));
    assert_eq!(got.values.into_iter().map(|it| it.2).collect::<Vec<_>>(), expected);
}

pub(super) fn text(data: &[u8]) {
    let (found, read) = ReadItems::by(|found| texts::read(data, DEPTH, found));
    let (guessed, _) = ReadItems::by(|found| texts::guess(data, DEPTH, found));
    assert!(guessed.values.len() <= found.values.len());
    // Whatever is no JSON is there as it is.
    let whole = found.values.last().is_some_and(|(_, _, value)| value == data);
    let is_json = ReadItems::by(|found| jsons::read(data, DEPTH, found)).1.is_ok();
    assert!(read.is_err() || is_json || whole, "{data:?} is not looked at");
    assert!(found.bytes() <= data.len() * 2);
    // An escape less never makes a text longer.
    let mut decoded = Vec::new();
    Transform::JsDecode.apply(data, &mut decoded);
    assert!(decoded.len() <= data.len());
}

pub(super) fn graphql(data: &[u8]) {
    let (found, _) = ReadItems::by(|found| documents::strings(data, found).then_some(()).ok_or(TOO_MANY));
    // An unpaired half of a character in six bytes becomes one of three.
    assert!(found.bytes() <= data.len(), "a document grows");
    if memchr::memchr(b'"', data).is_none() {
        assert!(found.values.is_empty());
    }
}

pub(super) fn grpc(data: &[u8]) {
    let (found, _) = ReadItems::by(|found| protobuf::read(data, DEPTH, found));
    // Each level of messages may be a text besides.
    assert!(found.bytes() <= data.len() * 17, "a message grows");
    let field = |text: &[u8]| {
        let mut message = vec![0x0a];
        let mut length = text.len();
        while length > 0x7f {
            message.push((length as u8) | 0x80);
            length >>= 7;
        }
        message.push(length as u8);
        message.extend_from_slice(text);
        message
    };
    // A text in a field is seen, whatever else it could be.
    let text: String =
        String::from_utf8_lossy(data).chars().filter(|it| !it.is_control()).take(500).collect();
    let (found, _) = ReadItems::by(|found| protobuf::read(&field(text.as_bytes()), DEPTH, found));
    let is_seen = found.values.iter().any(|(_, _, value)| value == text.as_bytes());
    assert!(text.is_empty() || is_seen || found.values.len() >= MAX_VALUES, "{text:?} is not seen");
}
