//! `google.api.HttpBody`: bodies that are no JSON but what they are, with their content type.

use bytes::{Bytes, BytesMut};
use gateway_core::http::body::{Body, BodyError, GrpcPrefix};
use http::{HeaderMap, HeaderValue};
use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, Value};

const NAME: &str = "google.api.HttpBody";
/// What a body is whose sender does not say it (RFC 9110 §8.3).
const UNKNOWN: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// The message; its extensions are for gRPC alone.
#[derive(Clone, PartialEq, prost::Message)]
struct HttpBody {
    #[prost(string, tag = "1")]
    content_type: String,
    #[prost(bytes = "bytes", tag = "2")]
    data: Bytes,
}

/// A body and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RawBody {
    pub(super) content_type: HeaderValue,
    pub(super) data: Bytes,
}

/// Whether a message, or the one field of it that is sent, is such a body.
pub(super) fn is_raw(about: &MessageDescriptor, field: Option<&FieldDescriptor>) -> bool {
    match field {
        None => about.full_name() == NAME,
        Some(field) => is_raw_field(field),
    }
}

/// Whether a field has such a body.
pub(super) fn is_raw_field(field: &FieldDescriptor) -> bool {
    !field.is_list() && matches!(field.kind(), Kind::Message(about) if about.full_name() == NAME)
}

/// The bytes of a message with this body, or of a field that has it.
pub(super) fn encode_http_body(content_type: &str, body: &[u8], field: Option<&FieldDescriptor>) -> Vec<u8> {
    let content_type = content_type.to_owned();
    let message = HttpBody { content_type, data: Bytes::copy_from_slice(body) }.encode_to_vec();
    let Some(field) = field else { return message };
    let mut bytes = Vec::with_capacity(message.len() + 10);
    encode_key(field.number(), WireType::LengthDelimited, &mut bytes);
    encode_varint(message.len() as u64, &mut bytes);
    bytes.extend(message);
    bytes
}

/// The body that a message has.
///
/// # Errors
/// When it is no such message.
pub(super) fn read(
    message: &Bytes,
    about: &MessageDescriptor,
    field: Option<&FieldDescriptor>,
) -> Result<RawBody, BodyError> {
    const BAD: BodyError = BodyError::Framing("a gRPC message can't be read");
    let message = match field {
        None => message.clone(),
        Some(field) => {
            let message = DynamicMessage::decode(about.clone(), &**message).map_err(|_| BAD)?;
            match message.get_field(field).as_ref() {
                Value::Message(inner) => inner.encode_to_vec().into(),
                _ => return Err(BAD),
            }
        }
    };
    let HttpBody { content_type, data } = HttpBody::decode(message).map_err(|_| BAD)?;
    let content_type = HeaderValue::try_from(content_type).ok().filter(|value| !value.is_empty());
    Ok(RawBody { content_type: content_type.unwrap_or(UNKNOWN), data })
}

/// What a stream begins with.
pub(super) struct StreamBeginning {
    pub(super) content_type: HeaderValue,
    /// Bytes that were read, the first message among them.
    pub(super) rest: BytesMut,
    /// What came behind a stream that is over already.
    pub(super) trailers: Option<HeaderMap>,
}

/// Waits for the first message of a stream, which says what the body is.
///
/// # Errors
/// When it can't be read, or is larger than `limit`.
pub(super) async fn beginning(
    body: &mut Body,
    about: &MessageDescriptor,
    field: Option<&FieldDescriptor>,
    limit: u64,
) -> Result<StreamBeginning, BodyError> {
    let (mut rest, mut trailers) = (BytesMut::new(), None);
    let content_type = loop {
        if let Some(prefix) = GrpcPrefix::read(&rest, limit)? {
            if prefix.compressed {
                return Err(BodyError::Framing("a gRPC message is compressed, which was not asked for"));
            }
            if let Some(message) = rest.get(GrpcPrefix::BYTES..GrpcPrefix::BYTES + prefix.length) {
                break read(&Bytes::copy_from_slice(message), about, field)?.content_type;
            }
        }
        match body.frame().await.transpose()?.map(|frame| frame.into_data()) {
            Some(Ok(data)) => rest.extend_from_slice(&data),
            Some(Err(frame)) => trailers = frame.into_trailers().ok(),
            None => break UNKNOWN,
        }
    };
    Ok(StreamBeginning { content_type, rest, trailers })
}
