//! Writing field sections.

use http::{Method, StatusCode};

use super::table::{self, STATIC};
use crate::hpack::{huffman, integer};

/// Values shorter than this are not worth looking whether the Huffman code makes them shorter.
const MIN_CODED: usize = 8;

/// To be called before a section's first field: no entry of a dynamic table is needed (RFC 9204 §4.5.1).
pub(crate) fn begin(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0, 0]);
}

/// Adds a field; what is `sensitive` is marked as never to be kept by anybody (RFC 9204 §7.1.3).
pub(crate) fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8], sensitive: bool) {
    let Some(indexes) = table::find(name) else {
        let first = if sensitive { 0x30 } else { 0x20 };
        let coded = huffman::encoded_len(name);
        if coded < name.len() {
            integer::encode(out, first | 0x08, 3, coded);
            huffman::encode(name, out);
        } else {
            integer::encode(out, first, 3, name.len());
            out.extend_from_slice(name);
        }
        return text(out, value);
    };
    let exact = indexes.iter().find(|index| STATIC[usize::from(**index)].1.as_bytes() == value);
    if let Some(index) = exact.filter(|_| !sensitive) {
        return known(out, *index);
    }
    let first = if sensitive { 0x70 } else { 0x50 };
    integer::encode(out, first, 4, indexes.first().copied().map_or(0, usize::from));
    text(out, value);
}

/// Adds `:status`.
pub(crate) fn status(out: &mut Vec<u8>, status: StatusCode) {
    match status.as_u16() {
        200 => known(out, 25),
        304 => known(out, 26),
        404 => known(out, 27),
        _ => field(out, b":status", status.as_str().as_bytes(), false),
    }
}

/// Adds `:method`.
pub(crate) fn method(out: &mut Vec<u8>, method: &Method) {
    match *method {
        Method::GET => known(out, 17),
        Method::POST => known(out, 20),
        _ => field(out, b":method", method.as_str().as_bytes(), false),
    }
}

/// Adds `:scheme`.
pub(crate) fn scheme(out: &mut Vec<u8>, scheme: &str) {
    match scheme {
        "https" => known(out, 23),
        _ => field(out, b":scheme", scheme.as_bytes(), false),
    }
}

/// Adds `:path`.
pub(crate) fn path(out: &mut Vec<u8>, path: &str) {
    field(out, b":path", path.as_bytes(), false);
}

/// A field that stands in the static table.
fn known(out: &mut Vec<u8>, index: u8) {
    integer::encode(out, 0xc0, 6, usize::from(index));
}

/// A value, coded where that makes it shorter.
fn text(out: &mut Vec<u8>, value: &[u8]) {
    if value.len() >= MIN_CODED {
        let coded = huffman::encoded_len(value);
        if coded < value.len() {
            integer::encode(out, 0x80, 7, coded);
            return huffman::encode(value, out);
        }
    }
    integer::encode(out, 0, 7, value.len());
    out.extend_from_slice(value);
}
