//! Bodies that are media by their type and their first bytes. No parser of arguments takes them for its own, however long they are.

use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// What files of a kind begin with, and at which byte.
const BEGINNINGS: &[(usize, &[u8])] = &[
    (0, b"\x89PNG\r\n\x1a\n"),
    (0, b"\xff\xd8\xff"),
    (0, b"GIF87a"),
    (0, b"GIF89a"),
    (0, b"II*\0"),
    (0, b"MM\0*"),
    (8, b"WEBP"),
    (8, b"WAVE"),
    (8, b"AVI "),
    // MP4, QuickTime, HEIC, AVIF.
    (4, b"ftyp"),
    (0, b"\x1aE\xdf\xa3"),
    (0, b"OggS\0"),
    (0, b"fLaC"),
    (0, b"ID3"),
    (0, b"%PDF-"),
    (0, b"PK\x03\x04"),
    (0, b"\x1f\x8b\x08"),
    (0, b"\x28\xb5\x2f\xfd"),
    (0, b"\xfd7zXZ\0"),
    (0, b"7z\xbc\xaf\x27\x1c"),
    (0, b"wOFF"),
    (0, b"wOF2"),
];

/// Whether a request says, once, that its body is of such a kind.
pub(super) fn is_media_type(headers: &HeaderMap) -> bool {
    let mut kinds = headers.get_all(CONTENT_TYPE).iter();
    let (Some(kind), None) = (kinds.next(), kinds.next()) else { return false };
    let kind = kind.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
    let kind = kind.trim_ascii().to_ascii_lowercase();
    let is_of = |family: &&[u8]| kind.starts_with(family);
    [&b"image/"[..], b"audio/", b"video/", b"font/"].iter().any(is_of)
        || matches!(
            &kind[..],
            b"application/pdf" | b"application/zip" | b"application/gzip" | b"application/octet-stream"
        )
}

/// Whether a body begins as one of them does.
pub(super) fn begins_as_media(body: &[u8]) -> bool {
    BEGINNINGS.iter().any(|(at, bytes)| body.get(*at..).is_some_and(|rest| rest.starts_with(bytes)))
}
