//! Messages of gRPC without their description: the texts of a protobuf message, named by the numbers of their fields.
//!
//! Without the description a field of bytes may be a text, a message or anything. What is a message is read as one, and what is
//! UTF-8 is a text besides, unless it is a message with control characters. Of other bytes the longer runs of UTF-8 are taken.

use super::{ItemKind, Sink, TOO_MANY, Unreadable, text};
use crate::transform::Transform;

/// Messages within each other that are read; each level reads its bytes once more.
const DEPTH: usize = 16;
/// Bytes of UTF-8 between others that are taken for a text.
const RUN: usize = 16;

/// Reads the payload of a message: protobuf, or a text such as JSON where it is none.
pub(crate) fn read(payload: &[u8], json_depth: usize, sink: &mut dyn Sink) -> Result<(), Unreadable> {
    let taken = match fields(payload) {
        Some(fields) => message(&fields, &mut b"grpc".to_vec(), DEPTH, sink),
        None if std::str::from_utf8(payload).is_ok() => return text::read(payload, json_depth, sink),
        None => runs(payload, b"grpc", sink),
    };
    taken.then_some(()).ok_or(TOO_MANY)
}

const FRAMES: Unreadable = Unreadable("the body is not messages of gRPC-Web");
const COMPRESSED: Unreadable = Unreadable("a message of gRPC-Web is compressed");

/// Reads a body of gRPC-Web: messages with flag and length, in Base64 where the type is `application/grpc-web-text`.
pub(crate) fn web(
    body: &[u8],
    is_text: bool,
    json_depth: usize,
    sink: &mut dyn Sink,
) -> Result<(), Unreadable> {
    let mut decoded = Vec::new();
    let mut rest = body;
    if is_text {
        // Pieces of Base64 may each have their padding.
        for piece in body.split(|byte| *byte == b'=') {
            Transform::Base64Decode.apply(piece, &mut decoded);
        }
        rest = &decoded;
    }
    while let Some((prefix, behind)) = rest.split_first_chunk::<5>() {
        let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
        let length = usize::try_from(length).map_err(|_| FRAMES)?;
        let payload = behind.get(..length).ok_or(FRAMES)?;
        match prefix[0] {
            0 => read(payload, json_depth, sink)?,
            1 => return Err(COMPRESSED),
            _ => return Err(FRAMES),
        }
        rest = &behind[length..];
    }
    if rest.is_empty() { Ok(()) } else { Err(FRAMES) }
}

fn message(fields: &[(u64, &[u8])], path: &mut Vec<u8>, depth: usize, sink: &mut dyn Sink) -> bool {
    let before = path.len();
    for (number, value) in fields {
        path.push(b'.');
        path.extend_from_slice(number.to_string().as_bytes());
        let taken = field(value, path, depth, sink);
        path.truncate(before);
        if !taken {
            return false;
        }
    }
    true
}

fn field(value: &[u8], path: &mut Vec<u8>, depth: usize, sink: &mut dyn Sink) -> bool {
    if value.is_empty() {
        return true;
    }
    let inner = fields(value).filter(|_| depth > 0);
    let is_text = std::str::from_utf8(value).is_ok();
    let has_controls = value.iter().any(|byte| byte.is_ascii_control() && !byte.is_ascii_whitespace());
    if let Some(inner) = &inner
        && !message(inner, path, depth - 1, sink)
    {
        return false;
    }
    match (is_text, &inner) {
        (true, Some(_)) if has_controls => true,
        (true, _) => sink.take(ItemKind::Argument, path, value),
        (false, Some(_)) => true,
        (false, None) => runs(value, path, sink),
    }
}

/// Takes the longer pieces of UTF-8.
fn runs(value: &[u8], path: &[u8], sink: &mut dyn Sink) -> bool {
    let mut pieces = value.utf8_chunks().map(|chunk| chunk.valid()).filter(|piece| piece.len() >= RUN);
    pieces.all(|piece| sink.take(ItemKind::Argument, path, piece.as_bytes()))
}

/// The fields of bytes of a message with their numbers; `None` if it is none. An empty one is a message without fields.
fn fields(mut text: &[u8]) -> Option<Vec<(u64, &[u8])>> {
    let mut found = Vec::new();
    while !text.is_empty() {
        let tag = varint(&mut text)?;
        let number = tag >> 3;
        if number == 0 || number > 0x1fff_ffff {
            return None;
        }
        match tag & 7 {
            0 => drop(varint(&mut text)?),
            1 => text = text.get(8..)?,
            2 => {
                let length = usize::try_from(varint(&mut text)?).ok()?;
                found.push((number, text.get(..length)?));
                text = text.get(length..)?;
            }
            5 => text = text.get(4..)?,
            // Groups: begin and end are tags alone, what is in them are fields like others.
            3 | 4 => {}
            _ => return None,
        }
    }
    Some(found)
}

fn varint(text: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for n in 0..10 {
        let (byte, rest) = text.split_first()?;
        *text = rest;
        value |= u64::from(byte & 0x7f).checked_shl(7 * n)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::Collected;

    fn found(payload: &[u8]) -> Vec<String> {
        let mut found = Collected::default();
        read(payload, 8, &mut found).unwrap();
        found.0.into_iter().map(|(_, name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn texts_are_found_at_every_depth() {
        // 1: 150, 2: "testing", 3: {1: "inner", 4: 1.0f}, 5: bytes
        let payload =
            b"\x08\x96\x01\x12\x07testing\x1a\x0c\x0a\x05inner\x25\x00\x00\x80\x3f\x2a\x03\xff\xfe\x00";
        assert_eq!(found(payload), ["grpc.2=testing", "grpc.3.1=inner"]);
        assert_eq!(found(b"{\"a\":\"b\"}"), ["json.a=b"]);
        assert_eq!(found(b""), Vec::<String>::new());
        assert_eq!(found(b"\xff\xff<script>alert(1)</script>\xff"), ["grpc=<script>alert(1)</script>"]);
        // A text that could be a message is both.
        assert_eq!(found(b"\x12\x0a(\x20(\x20(\x20(\x20(\x20"), ["grpc.2=( ( ( ( ( "]);
    }

    #[test]
    fn messages_of_grpc_web_are_found() {
        let body = b"\0\0\0\0\x03\x0a\x01a\0\0\0\0\x03\x12\x01b";
        let mut coded = Vec::new();
        Transform::Base64Encode.apply(body, &mut coded);
        for (body, is_text) in [(&body[..], false), (&coded, true)] {
            let mut found = Collected::default();
            assert_eq!(web(body, is_text, 8, &mut found), Ok(()));
            let got: Vec<_> = found.0.iter().map(|(_, name, value)| format!("{name}={value}")).collect();
            assert_eq!(got, ["grpc.1=a", "grpc.2=b"]);
        }
        for (body, why) in [(&b"\x01\0\0\0\0"[..], COMPRESSED), (b"\0\0\0\0\x09a", FRAMES), (b"\0", FRAMES)] {
            assert_eq!(web(body, false, 8, &mut Collected::default()), Err(why));
        }
    }

    #[test]
    fn depth_and_number_are_limited() {
        let mut payload = b"x".to_vec();
        for _ in 0..40 {
            let length = payload.len() as u8;
            payload = [&[0x0a, length][..], &payload].concat();
        }
        let mut sink = Collected::default();
        read(&payload, 8, &mut sink).unwrap();
        assert!(sink.0.len() <= DEPTH + 1);
        assert_eq!(read(&b"\x0a\x01x".repeat(2000), 8, &mut Collected::default()), Err(TOO_MANY));
    }
}
