//! What Envoy's protocols over gRPC have in common: header fields in messages, and what a server may change of them.

use bytes::Bytes;
use gateway_core::http::body::Body;
use gateway_core::http::reply::final_status;
use http::header::{HeaderName, HeaderValue as FieldValue};
use http::{HeaderMap as Fields, StatusCode};

use crate::headers;

/// Header fields that a message may have after a server has changed it.
const MAX_FIELDS: usize = 1000;

#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderMap {
    #[prost(message, repeated, tag = "1")]
    pub headers: Vec<HeaderValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
    #[prost(bytes = "bytes", tag = "3")]
    pub raw_value: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderValueOption {
    #[prost(message, optional, tag = "1")]
    pub header: Option<HeaderValue>,
    #[prost(message, optional, tag = "2")]
    pub append: Option<BoolValue>,
    /// 0 as if nothing was said, 1 add if absent, 2 overwrite or add, 3 overwrite if it exists.
    #[prost(int32, tag = "3")]
    pub append_action: i32,
    #[prost(bool, tag = "4")]
    pub keep_empty_value: bool,
}

impl HeaderValueOption {
    /// Whether it does not say what becomes of a field that is there already.
    pub fn is_plain(&self) -> bool {
        self.append.is_none() && self.append_action == 0
    }

    /// The same for a message that is made of such options alone: several of one name, such as `Set-Cookie`, all count, unless one
    /// says that it overwrites.
    pub fn among_its_own(self) -> Self {
        match self.append_action {
            0 => Self { append: Some(BoolValue { value: true }), ..self },
            _ => self,
        }
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct BoolValue {
    #[prost(bool, tag = "1")]
    pub value: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderMutation {
    #[prost(message, repeated, tag = "1")]
    pub set_headers: Vec<HeaderValueOption>,
    #[prost(string, repeated, tag = "2")]
    pub remove_headers: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HttpStatus {
    #[prost(int32, tag = "1")]
    pub code: i32,
}

/// One field as it is told.
pub fn field(key: &str, value: &[u8]) -> HeaderValue {
    let raw_value = Bytes::copy_from_slice(value);
    HeaderValue { key: key.to_owned(), value: String::new(), raw_value }
}

/// Fields as they are told.
pub fn fields(headers: &Fields) -> impl Iterator<Item = HeaderValue> {
    headers.iter().map(|(name, value)| field(name.as_str(), value.as_bytes()))
}

/// What of a change is not about header fields.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RequestLine {
    pub path: Option<String>,
    pub status: Option<StatusCode>,
}

/// Why a change of header fields can't be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MutationError {
    /// The name or the value of this field.
    #[error("the other server sets `{0}` to what can't be written")]
    Unwritable(String),
    /// More fields than a message may have.
    #[error("the other server adds too many header fields")]
    TooManyFields,
}

/// Keeps the fields that another server decides about out of what may come behind the body.
pub fn withhold_trailers(mutation: &HeaderMutation, body: &mut Body) {
    let set = mutation.set_headers.iter().filter_map(|option| option.header.as_ref()).map(|field| &field.key);
    let names = mutation.remove_headers.iter().chain(set);
    names
        .filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok())
        .for_each(|name| body.withhold_trailer(&name));
}

/// Changes header fields: all that is asked for, or none. What frames a message, and who is asked, is left as it is.
///
/// # Errors
/// A name or value that can't be written, or too many fields.
pub fn apply(mutation: &HeaderMutation, headers: &mut Fields) -> Result<RequestLine, MutationError> {
    let mut line = RequestLine::default();
    let mut fields = Vec::with_capacity(mutation.set_headers.len());
    for option in &mutation.set_headers {
        let Some(field) = &option.header else { continue };
        let value = if field.raw_value.is_empty() { field.value.as_bytes() } else { &field.raw_value };
        let bad = || MutationError::Unwritable(field.key.clone());
        match field.key.as_str() {
            ":path" => line.path = Some(path(value).ok_or_else(bad)?),
            ":status" => {
                let status = StatusCode::from_bytes(value).ok();
                line.status = Some(status.and_then(|status| final_status(status.as_u16())).ok_or_else(bad)?);
            }
            key if key.starts_with(':') => {}
            key => {
                let name = HeaderName::from_bytes(key.as_bytes()).map_err(|_| bad())?;
                let value = FieldValue::from_bytes(value).map_err(|_| bad())?;
                if !headers::is_framing(&name) {
                    fields.push((name, value, option));
                }
            }
        }
    }
    // Whether they are too many shows when some have taken the place of others.
    let before = (headers.len() + fields.len() > MAX_FIELDS).then(|| headers.clone());
    for name in &mutation.remove_headers {
        if let Ok(name) = HeaderName::from_bytes(name.as_bytes())
            && !headers::is_framing(&name)
        {
            headers.remove(name);
        }
    }
    for (name, value, option) in fields {
        write(headers, name, value, option);
        if let Some(before) = before.as_ref().filter(|_| headers.len() > MAX_FIELDS) {
            headers.clone_from(before);
            return Err(MutationError::TooManyFields);
        }
    }
    Ok(line)
}

fn write(headers: &mut Fields, name: HeaderName, value: FieldValue, option: &HeaderValueOption) {
    if value.is_empty() && !option.keep_empty_value {
        // An empty value takes the field away.
        headers.remove(name);
        return;
    }
    let is_there = headers.contains_key(&name);
    match (option.append.as_ref().map(|append| append.value), option.append_action) {
        (Some(true), _) => drop(headers.try_append(name, value)),
        (None, 1) if is_there => {}
        (None, 3) if !is_there => {}
        _ => drop(headers.try_insert(name, value)),
    }
}

/// A path with its query, if it can be one: absolute, encoded, without dot segments.
fn path(value: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(value).ok()?;
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    let is_plain = |text: &str| text.bytes().all(|c| c.is_ascii_graphic() && c != b'#' && c != b'\\');
    let is_dots = |segment: &str| {
        let decoded = segment.to_ascii_lowercase().replace("%2e", ".");
        matches!(decoded.split(';').next(), Some("." | ".."))
    };
    let is_good = path.starts_with('/') && is_plain(path) && is_plain(query) && !path.split('/').any(is_dots);
    is_good.then(|| text.to_owned())
}
