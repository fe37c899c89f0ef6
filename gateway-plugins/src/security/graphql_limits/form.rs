//! Operations in a form with files (the GraphQL multipart request specification): `operations` first, `map` second, the files after
//! them. Servers read forms each in its own way; where two could see different operations in one form, it is refused.

use std::collections::BTreeMap;

use bytes::Bytes;
use gateway_plugin_common::strict_json;
use http::header::CONTENT_DISPOSITION;
use http::{HeaderMap, StatusCode};
use memchr::memmem;

use super::GraphqlRefusal;
use super::settings::Limits;
use crate::security::multipart::{self, FormPart};

/// Parts of a form, and places that files go to.
const MAX_PARTS: usize = 102;

/// The operations of a form, as JSON.
pub(super) fn operations(boundary: &str, form: &Bytes, limits: &Limits) -> Result<Bytes, GraphqlRefusal> {
    let parts = multipart::parts(boundary, form, MAX_PARTS).ok_or_else(|| {
        GraphqlRefusal::malformed(format!("the form can't be read, or has more than {} files", MAX_PARTS - 2))
    })?;
    check_delimiters(boundary, form, parts.len())?;
    parts.iter().try_for_each(check_part)?;
    let [operations, map, files @ ..] = &*parts else {
        return Err(GraphqlRefusal::malformed("the form needs `operations` and `map`"));
    };
    if (&*operations.name, operations.is_file) != ("operations", false)
        || (&*map.name, map.is_file) != ("map", false)
    {
        return Err(GraphqlRefusal::malformed(
            "the form begins with `operations`, then `map`, and neither is a file",
        ));
    }
    let places = places(&map.content)?;
    if !places.values().flatten().all(|place| is_variable(place)) {
        return Err(GraphqlRefusal::malformed("files may stand for variables only"));
    }
    for (n, file) in files.iter().enumerate() {
        if !places.contains_key(&file.name) || files[..n].iter().any(|other| other.name == file.name) {
            return Err(GraphqlRefusal::malformed("a part of the form is not in `map`, or is there twice"));
        }
    }
    if operations.content.len() as u64 > limits.max_body {
        let message = format!("the operations have more than {} bytes", limits.max_body);
        return Err(GraphqlRefusal {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            reason: "graphql_too_large",
            message,
        });
    }
    Ok(operations.content.clone())
}

/// The places in `operations` that each file goes to.
fn places(map: &[u8]) -> Result<BTreeMap<String, Vec<String>>, GraphqlRefusal> {
    let places = strict_json::value(map).and_then(|map| serde_json::from_value(map).ok());
    places.ok_or_else(|| {
        GraphqlRefusal::malformed("`map` is not an object of lists of texts, or has a name twice")
    })
}

/// Whether a place of `map` is a variable: `variables.file`, or `0.variables.file` of a batch.
fn is_variable(place: &str) -> bool {
    let place = match place.split_once('.') {
        Some((number, rest)) if number.bytes().all(|c| c.is_ascii_digit()) => rest,
        _ => place,
    };
    place.strip_prefix("variables.").is_some_and(|name| !name.is_empty())
}

/// Nothing stands before the first part or after the last, and no file holds what a reader of bare line feeds takes for a delimiter.
fn check_delimiters(boundary: &str, form: &[u8], parts: usize) -> Result<(), GraphqlRefusal> {
    let delimiter = format!("--{boundary}");
    let is_closed = [format!("{delimiter}--"), format!("{delimiter}--\r\n")];
    let is_whole =
        form.starts_with(delimiter.as_bytes()) && is_closed.iter().any(|end| form.ends_with(end.as_bytes()));
    match is_whole && memmem::find_iter(form, &delimiter).count() == parts + 1 {
        true => Ok(()),
        false => Err(GraphqlRefusal::malformed(
            "the form has bytes outside of its parts, or its boundary within one",
        )),
    }
}

/// A part has a plain name, and nothing that would have it read in another way.
fn check_part(part: &FormPart) -> Result<(), GraphqlRefusal> {
    let others = ["content-type", "content-length"];
    let is_read = part.headers.iter().all(|(name, value)| match name.as_str() {
        "content-disposition" => true,
        "content-transfer-encoding" => matches!(value.as_bytes(), b"binary" | b"8bit" | b"7bit"),
        name => others.contains(&name),
    });
    match is_read && is_plainly_named(&part.headers) {
        true => Ok(()),
        false => Err(GraphqlRefusal::malformed("a part of the form has fields that are not read here")),
    }
}

/// `form-data; name="x"`, with `; filename="y"` or without.
fn is_plainly_named(headers: &HeaderMap) -> bool {
    let mut fields = headers.get_all(CONTENT_DISPOSITION).iter();
    let (Some(field), None) = (fields.next(), fields.next()) else { return false };
    let quoted = |text: &[u8]| !text.iter().any(|c| matches!(c, b'"' | b'\\'));
    let Some(rest) = field.as_bytes().strip_prefix(b"form-data; name=\"") else { return false };
    let Some(rest) = rest.strip_suffix(b"\"") else { return false };
    let separator = b"\"; filename=\"";
    match rest.windows(separator.len()).position(|window| window == separator) {
        Some(at) => quoted(&rest[..at]) && quoted(&rest[at + separator.len()..]),
        None => quoted(rest),
    }
}
