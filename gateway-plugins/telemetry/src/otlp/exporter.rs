//! Sends items to a collector.

use std::io::Write;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use gateway_core::config::exporter::Protocol;
use gateway_core::http::body::Body;
use gateway_core::plugin::world::calls::Client;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, TE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Request};

use super::encoder::Encoding;
use super::reply;
use super::resource::Signal;
use crate::batch::Chunk;
use crate::deliver::{Deliver, Delivered, Failed};

/// Bytes of an answer that are read.
const MAX_ANSWER: u64 = 64 << 10;
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// Sends items of one signal to one collector.
#[derive(Debug, Clone)]
pub struct Exporter {
    client: Client,
    signal: Signal,
    protocol: Protocol,
    target: String,
    headers: HeaderMap,
    is_compressed: bool,
    timeout: Duration,
    /// Who sends.
    resource: Vec<(String, String)>,
}

impl Exporter {
    pub(super) fn new(
        client: Client,
        signal: Signal,
        protocol: Protocol,
        target: String,
        headers: HeaderMap,
        is_compressed: bool,
        timeout: Duration,
    ) -> Self {
        Self { client, signal, protocol, target, headers, is_compressed, timeout, resource: Vec::new() }
    }

    /// The same, for this resource.
    #[must_use]
    pub fn of_resource(self, resource: Vec<(String, String)>) -> Self {
        Self { resource, ..self }
    }

    /// How its items are encoded.
    pub fn encoding(&self) -> Encoding {
        match self.protocol {
            Protocol::HttpJson => Encoding::Json,
            Protocol::HttpProtobuf | Protocol::Grpc => Encoding::Protobuf,
        }
    }

    /// What stands between its items.
    pub fn separator(&self) -> Option<u8> {
        (self.encoding() == Encoding::Json).then_some(b',')
    }

    fn request(&self, items: &[u8]) -> Result<Request<Body>, Failed> {
        let message = self.signal.request(self.encoding(), &self.resource, items);
        let message = if self.is_compressed { gzip(&message) } else { message };
        let (content_type, body) = match self.protocol {
            Protocol::HttpProtobuf => ("application/x-protobuf", message),
            Protocol::HttpJson => ("application/json", message),
            Protocol::Grpc => ("application/grpc", framed(&message, self.is_compressed)?),
        };
        let request = Request::post(&self.target).body(Body::full(body));
        let mut request = request.map_err(|error| Failed::lasting(error.to_string()))?;
        let headers = request.headers_mut();
        *headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        let agent = concat!("ferrum-edge/", env!("CARGO_PKG_VERSION"));
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(agent));
        if self.protocol == Protocol::Grpc {
            headers.insert(TE, HeaderValue::from_static("trailers"));
        }
        if self.is_compressed {
            let name = if self.protocol == Protocol::Grpc { GRPC_ENCODING } else { CONTENT_ENCODING };
            headers.insert(name, HeaderValue::from_static("gzip"));
        }
        Ok(request)
    }
}

impl Deliver for Exporter {
    async fn deliver(&self, chunk: &Chunk) -> Result<Delivered, Failed> {
        let request = self.request(&chunk.bytes)?;
        let in_time = tokio::time::timeout(self.timeout, self.exchange(request)).await;
        in_time.unwrap_or_else(|_| Err(Failed::passing("the collector did not answer in time")))
    }
}

impl Exporter {
    async fn exchange(&self, request: Request<Body>) -> Result<Delivered, Failed> {
        let sending = self.client.send(request).await;
        let answer = sending.map_err(|error| Failed::of_call(&error, self.timeout))?;
        let (head, mut body) = answer.into_parts();
        let (bytes, trailers) = match body.collect(MAX_ANSWER).await {
            Ok((bytes, trailers)) => (bytes, trailers.unwrap_or_default()),
            // The collector has it, and says more than anybody reads.
            Err(_) if head.status.is_success() && self.protocol != Protocol::Grpc => Default::default(),
            Err(error) => return Err(Failed::passing(error.to_string())),
        };
        let bytes: Bytes = bytes;
        match self.protocol {
            Protocol::Grpc => reply::of_grpc(head.status, &head.headers, &trailers, &bytes),
            _ => reply::of_http(head.status, &head.headers, &bytes, self.encoding()),
        }
    }
}

/// A message of gRPC: whether it is compressed, its length, and itself.
fn framed(message: &[u8], is_compressed: bool) -> Result<Vec<u8>, Failed> {
    let length =
        u32::try_from(message.len()).map_err(|_| Failed::lasting("a message is too large for gRPC"))?;
    let mut framed = Vec::with_capacity(message.len() + 5);
    framed.push(u8::from(is_compressed));
    framed.extend_from_slice(&length.to_be_bytes());
    framed.extend_from_slice(message);
    Ok(framed)
}

/// The bytes, compressed quickly.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    // Writing to memory can't fail.
    let written = encoder.write_all(bytes);
    debug_assert!(written.is_ok(), "memory takes whatever is written");
    encoder.finish().unwrap_or_default()
}
