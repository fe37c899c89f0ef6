//! Answers as JSON: messages, streams of them, and errors by `google.rpc.Code`.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use bytes::{Buf, Bytes, BytesMut};
use gateway_core::http::body::{BodyError, GrpcPrefix, Transform, TransformOutput};
use gateway_core::http::exchange::LateStatus;
use http::{HeaderMap, HeaderValue, StatusCode};
use percent_encoding::percent_decode;
use prost::Message as _;
use prost_reflect::{DynamicMessage, FieldDescriptor, MessageDescriptor, SerializeOptions, Value};
use serde_json::{Value as Json, json};

use super::http_body;

/// How messages are written.
#[derive(Debug, Clone)]
pub(super) struct Writing {
    pub(super) options: SerializeOptions,
    /// The longest message.
    pub(super) limit: u64,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) code: u32,
    message: String,
    details: Vec<Json>,
}

/// `google.rpc.Status`, as it is in `grpc-status-details-bin`.
#[derive(Clone, PartialEq, prost::Message)]
struct Details {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, prost::Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

impl Status {
    /// What the fields of a response or its trailers say; `None` where they say nothing.
    pub(super) fn of(headers: &HeaderMap, about: &MessageDescriptor) -> Option<Self> {
        let text = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
        let code = std::str::from_utf8(text("grpc-status")?).ok().and_then(|code| code.parse().ok());
        let message =
            percent_decode(text("grpc-message").unwrap_or_default()).decode_utf8_lossy().into_owned();
        let details = text("grpc-status-details-bin").and_then(|value| {
            let bytes = STANDARD.decode(value).or_else(|_| STANDARD_NO_PAD.decode(value)).ok()?;
            Details::decode(&*bytes).ok()
        });
        let details = details.map(|it| it.details).unwrap_or_default();
        let details = details.iter().map(|each| detail(each, about)).collect();
        // 2 is unknown: whatever it is, it is no success.
        Some(Self { code: code.unwrap_or(2), message, details })
    }

    /// An error of the gateway's own.
    pub(super) fn new(code: u32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Vec::new() }
    }

    /// Tells the record, whose own place for it, the trailers, is not sent.
    pub(super) fn note(&self, ending: &LateStatus) {
        ending.set_code(u16::try_from(self.code).unwrap_or(2));
    }

    pub(super) fn http(&self) -> StatusCode {
        let status = match self.code {
            0 => 200,
            1 => 499,
            3 | 9 | 11 => 400,
            4 => 504,
            5 => 404,
            6 | 10 => 409,
            7 => 403,
            8 => 429,
            12 => 501,
            14 => 503,
            16 => 401,
            _ => 500,
        };
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    pub(super) fn json(&self) -> Json {
        json!({ "code": self.code, "message": self.message, "details": self.details })
    }
}

/// A detail as JSON, where its type is in the descriptor set.
fn detail(any: &Any, about: &MessageDescriptor) -> Json {
    let name = any.type_url.rsplit('/').next().unwrap_or_default();
    let known = about.parent_pool().get_message_by_name(name);
    let message = known.and_then(|about| DynamicMessage::decode(about, &*any.value).ok());
    let written = message.and_then(|message| serde_json::to_value(&message).ok());
    match written {
        Some(Json::Object(mut fields)) => {
            fields.insert("@type".into(), json!(any.type_url));
            Json::Object(fields)
        }
        Some(value) => json!({ "@type": any.type_url, "value": value }),
        None => json!({ "@type": any.type_url, "value": STANDARD.encode(&any.value) }),
    }
}

/// Takes the next message off a body; `None` where it is not there whole.
///
/// # Errors
/// When it is too large, or compressed, which was not asked for.
pub(super) fn next(rest: &mut BytesMut, limit: u64) -> Result<Option<Bytes>, BodyError> {
    let Some(prefix) = GrpcPrefix::read(rest, limit)? else { return Ok(None) };
    if prefix.compressed {
        return Err(BodyError::Framing("a gRPC message is compressed, which was not asked for"));
    }
    if rest.len() - GrpcPrefix::BYTES < prefix.length {
        return Ok(None);
    }
    rest.advance(GrpcPrefix::BYTES);
    Ok(Some(rest.split_to(prefix.length).freeze()))
}

/// A message as JSON, or the one field of it that is the answer.
///
/// # Errors
/// When it is no such message.
pub(super) fn written(
    message: &[u8],
    about: &MessageDescriptor,
    field: Option<&FieldDescriptor>,
    writing: &Writing,
) -> Result<Vec<u8>, BodyError> {
    const BAD: BodyError = BodyError::Framing("a gRPC message can't be read");
    let message = DynamicMessage::decode(about.clone(), message).map_err(|_| BAD)?;
    let mut out = Vec::new();
    let mut json = serde_json::Serializer::new(&mut out);
    match field {
        None => message.serialize_with_options(&mut json, &writing.options).map_err(|_| BAD)?,
        Some(field) => match message.get_field(field).as_ref() {
            Value::Message(inner) => {
                inner.serialize_with_options(&mut json, &writing.options).map_err(|_| BAD)?;
            }
            _ => {
                // What is not set is written all the same: it is the answer.
                let options = writing.options.clone().skip_default_fields(false);
                let whole = message
                    .serialize_with_options(serde_json::value::Serializer, &options)
                    .map_err(|_| BAD)?;
                let named = [field.json_name(), field.name()];
                let value = named.iter().find_map(|name| whole.get(*name)).cloned();
                out = value.unwrap_or(Json::Null).to_string().into_bytes();
            }
        },
    }
    Ok(out)
}

/// A stream of messages, as a JSON array or as one line for each.
pub(super) struct Streamed {
    pub(super) about: MessageDescriptor,
    pub(super) field: Option<FieldDescriptor>,
    pub(super) writing: Writing,
    pub(super) lines: bool,
    /// Messages are pieces of one body, which is no JSON.
    pub(super) is_raw: bool,
    pub(super) rest: BytesMut,
    pub(super) has_begun: bool,
    pub(super) status: Option<Status>,
    pub(super) ending: LateStatus,
}

impl Streamed {
    fn put(&mut self, item: &[u8], out: &mut TransformOutput) {
        let (before, after): (&[u8], &[u8]) = match (self.lines, self.has_begun) {
            (true, _) => (b"", b"\n"),
            (false, false) => (b"[", b""),
            (false, true) => (b",", b""),
        };
        self.has_begun = true;
        out.data([before, item, after].concat());
    }
}

impl Transform for Streamed {
    fn data(&mut self, data: Bytes, out: &mut TransformOutput) -> Result<(), BodyError> {
        self.rest.extend_from_slice(&data);
        self.take(out)
    }

    fn trailers(&mut self, trailers: HeaderMap, _out: &mut TransformOutput) -> Result<(), BodyError> {
        self.status = Status::of(&trailers, &self.about);
        Ok(())
    }

    fn end(&mut self, out: &mut TransformOutput) -> Result<(), BodyError> {
        // What was read before it was known what the body is.
        self.take(out)?;
        if !self.rest.is_empty() {
            return Err(BodyError::Framing("a gRPC message is cut off"));
        }
        let status = self.status.take().unwrap_or_else(|| Status::new(2, "the call ended without a status"));
        status.note(&self.ending);
        if self.is_raw {
            // There is no other way to say so in such a body.
            return match status.code {
                0 => Ok(()),
                _ => Err(BodyError::Framing("the call failed in the midst of its answer")),
            };
        }
        if status.code != 0 {
            self.put(json!({ "error": status.json() }).to_string().as_bytes(), out);
        }
        if !self.lines {
            out.data(Bytes::from_static(if self.has_begun { b"]" } else { b"[]" }));
        }
        Ok(())
    }
}

impl Streamed {
    /// Puts out the messages that are there whole.
    fn take(&mut self, out: &mut TransformOutput) -> Result<(), BodyError> {
        while let Some(message) = next(&mut self.rest, self.writing.limit)? {
            if self.is_raw {
                out.data(http_body::read(&message, &self.about, self.field.as_ref())?.data);
                continue;
            }
            let item = written(&message, &self.about, self.field.as_ref(), &self.writing)?;
            self.put(&item, out);
        }
        Ok(())
    }
}
