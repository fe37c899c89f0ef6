//! Batches by POST: lines to any server, or a push to Loki.

use std::collections::BTreeMap;

use gateway_core::config::model::LogPost;
use gateway_core::config::problem::Problems;
use gateway_core::plugin::World;
use gateway_core::plugin::world::calls::{Client, Endpoint, EndpointError};
use gateway_telemetry::batch::Chunk;
use gateway_telemetry::deliver::{Deliver, Delivered, Failed};
use gateway_telemetry::otlp::{gzip, of_post};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Request};

/// Bytes of an answer that are read.
const MAX_ANSWER: u64 = 64 << 10;

/// Sends batches to a URL.
pub(super) struct PostSender {
    client: Client,
    target: String,
    headers: HeaderMap,
    gzip: bool,
    body: Body,
    timeout: std::time::Duration,
}

/// What a batch looks like.
pub(super) enum Body {
    /// Lines, each with a line feed behind it.
    Lines,
    /// What stands before and behind the entries of a push to Loki.
    Loki(String),
}

impl Body {
    /// A push to Loki with these labels.
    pub(super) fn loki(labels: &BTreeMap<String, String>) -> Self {
        let labels = serde_json::to_string(labels).unwrap_or_else(|_| "{}".to_owned());
        Self::Loki(format!("{{\"streams\":[{{\"stream\":{labels},\"values\":["))
    }
}

/// Why nothing can be sent to a URL.
#[derive(Debug, thiserror::Error)]
pub(super) enum PostError {
    #[error(transparent)]
    Url(#[from] EndpointError),
    #[error(transparent)]
    Client(#[from] Problems),
}

impl PostSender {
    pub(super) fn new(post: &LogPost, body: Body, world: &World) -> Result<Self, PostError> {
        let (endpoint, uri) = Endpoint::of_url(&post.url)?;
        let endpoint = endpoint.trusting(post.ca_path.clone()).within(post.timeout);
        let client = world.client(endpoint)?;
        let mut headers = post.post_headers.clone();
        headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(match body {
            Body::Lines => "application/x-ndjson",
            Body::Loki(_) => "application/json",
        }));
        if post.gzip {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        let target = uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
        Ok(Self { client, target, headers, gzip: post.gzip, body, timeout: post.timeout })
    }

    fn request(&self, chunk: &Chunk) -> Result<Request<gateway_core::http::body::Body>, Failed> {
        let (before, behind) = match &self.body {
            Body::Lines => ("", "\n"),
            Body::Loki(before) => (before.as_str(), "]}]}"),
        };
        let body = [before.as_bytes(), &chunk.bytes, behind.as_bytes()].concat();
        let body = if self.gzip { gzip(&body) } else { body };
        let request = Request::post(&self.target).body(gateway_core::http::body::Body::full(body));
        let mut request = request.map_err(|error| Failed::lasting(error.to_string()))?;
        request.headers_mut().extend(self.headers.clone());
        Ok(request)
    }

    async fn send(&self, chunk: &Chunk) -> Result<Delivered, Failed> {
        let request = self.request(chunk)?;
        let sending = self.client.send(request).await;
        let answer = sending.map_err(|error| Failed::of_call(&error, self.timeout))?;
        let (head, mut body) = answer.into_parts();
        // The status alone says whether it was taken.
        let said = body.collect(MAX_ANSWER).await.map(|(bytes, _)| bytes).unwrap_or_default();
        of_post(head.status, &head.headers, &said)
    }
}

impl Deliver for PostSender {
    async fn deliver(&self, chunk: &Chunk) -> Result<Delivered, Failed> {
        let in_time = tokio::time::timeout(self.timeout, self.send(chunk)).await;
        in_time.unwrap_or_else(|_| Err(Failed::passing("the server did not answer in time")))
    }
}
