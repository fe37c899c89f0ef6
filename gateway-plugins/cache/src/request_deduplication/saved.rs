//! An answer as it is stored: in memory, and as bytes for Redis.

use bytes::Bytes;
use gateway_core::http::body::Body;
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use prost::Message;

/// A stored answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Saved {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) trailers: Option<HeaderMap>,
}

/// What clients are told about a stored answer.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// Bytes that a header field takes besides its text.
const FIELD: u64 = 64;

impl Saved {
    /// What is stored of an answer. What belongs to its connection, and its length, which the gateway says itself, is not.
    pub(super) fn new(
        status: StatusCode,
        mut headers: HeaderMap,
        body: Bytes,
        trailers: Option<HeaderMap>,
    ) -> Self {
        for name in [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
            headers.remove(name);
        }
        // What comes off a connection keeps the whole of its buffer.
        Self { status, headers, body: Bytes::copy_from_slice(&body), trailers }
    }

    /// The answer for a repeated request.
    pub(super) fn response(&self) -> Response<Body> {
        let body = match &self.trailers {
            Some(trailers) => Body::full_with_trailers(self.body.clone(), trailers.clone()),
            None => Body::full(self.body.clone()),
        };
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers.clone();
        response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
        response
    }

    /// Bytes of memory it takes, about.
    pub(super) fn weight(&self) -> u64 {
        let fields = |headers: &HeaderMap| -> u64 {
            headers.iter().map(|(name, value)| (name.as_str().len() + value.len()) as u64 + FIELD).sum()
        };
        self.body.len() as u64 + fields(&self.headers) + self.trailers.as_ref().map_or(0, fields)
    }

    /// As bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let fields = |headers: &HeaderMap| -> Vec<Field> {
            let one = |(name, value): (&HeaderName, &HeaderValue)| Field {
                name: name.as_str().to_owned(),
                value: value.as_bytes().to_vec(),
            };
            headers.iter().map(one).collect()
        };
        let document = Document {
            status: self.status.as_u16().into(),
            headers: fields(&self.headers),
            body: self.body.to_vec(),
            trailers: self.trailers.as_ref().map(fields).unwrap_or_default(),
        };
        document.encode_to_vec()
    }

    /// From bytes; `None` where they are not an answer.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let document = Document::decode(bytes).ok()?;
        let fields = |fields: Vec<Field>| -> Option<HeaderMap> {
            let mut headers = HeaderMap::with_capacity(fields.len());
            for Field { name, value } in fields {
                let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
                headers.append(name, HeaderValue::from_bytes(&value).ok()?);
            }
            Some(headers)
        };
        let status = StatusCode::from_u16(u16::try_from(document.status).ok()?).ok()?;
        let trailers = fields(document.trailers)?;
        Some(Self {
            status: Some(status).filter(|status| !status.is_informational())?,
            headers: fields(document.headers)?,
            body: document.body.into(),
            trailers: (!trailers.is_empty()).then_some(trailers),
        })
    }
}

#[derive(Clone, PartialEq, Message)]
struct Document {
    #[prost(uint32, tag = "1")]
    status: u32,
    #[prost(message, repeated, tag = "2")]
    headers: Vec<Field>,
    #[prost(bytes = "vec", tag = "3")]
    body: Vec<u8>,
    #[prost(message, repeated, tag = "4")]
    trailers: Vec<Field>,
}

#[derive(Clone, PartialEq, Message)]
struct Field {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}
