//! The answer that sends a file: its fields, conditions and ranges.

use std::collections::BTreeMap;

use bytes::Bytes;
use gateway_core::http::body::Body;
use gateway_core::http::reply::Reply;
use gateway_core::plugin::World;
use gateway_plugin_common::conditional::{self, Precondition, Validators};
use gateway_plugin_common::range::{self, Ranges};
use gateway_plugin_common::wildcard::Wildcard;
use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_TYPE, ETAG, LAST_MODIFIED, VARY,
};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use super::content::{self, Segment};
use super::find::File;
use super::mime;
use super::settings::Tags;

/// What answers say about files.
#[derive(Debug)]
pub(super) struct Answers {
    pub(super) tags: Tags,
    pub(super) cache_control: Vec<(Wildcard, HeaderValue)>,
    pub(super) types: BTreeMap<String, HeaderValue>,
    pub(super) default_type: HeaderValue,
    pub(super) charset: String,
    /// Whether another client may get the file in another coding.
    pub(super) varies: bool,
}

impl Answers {
    /// The response that sends a file.
    pub(super) fn file(
        &self,
        file: &File,
        method: &Method,
        request: &HeaderMap,
        world: &World,
    ) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        response.headers_mut().clone_from(file.headers.get_or_init(|| self.described(file)));
        let size = file.stamp.size;
        if file.is_not_found {
            *response.status_mut() = StatusCode::NOT_FOUND;
            // What is not there has no validators and no parts.
            for name in [ETAG, LAST_MODIFIED, ACCEPT_RANGES, CACHE_CONTROL] {
                response.headers_mut().remove(name);
            }
            return with_body(response, file, method, vec![Segment::Range(0, size)], world);
        }
        let etag = response.headers().get(ETAG).cloned();
        let etag = etag.as_ref().map(HeaderValue::as_bytes);
        let have = Validators { etag, modified: Some(file.stamp.modified_second()) };
        match conditional::evaluate(request, method, have) {
            Precondition::Proceed => {}
            Precondition::NotModified => {
                *response.status_mut() = StatusCode::NOT_MODIFIED;
                for name in [CONTENT_TYPE, CONTENT_ENCODING, ACCEPT_RANGES] {
                    response.headers_mut().remove(name);
                }
                return response;
            }
            Precondition::Failed => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::PRECONDITION_FAILED;
                return response;
            }
        }
        let ranges = match *method == Method::GET && conditional::range_counts(request, have) {
            true => range::read(request, size),
            false => Ranges::Whole,
        };
        match ranges {
            Ranges::Whole => with_body(response, file, method, vec![Segment::Range(0, size)], world),
            Ranges::Unsatisfiable => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
                response.headers_mut().insert(CONTENT_RANGE, range::unsatisfied(size));
                response
            }
            Ranges::Parts(parts) => {
                *response.status_mut() = StatusCode::PARTIAL_CONTENT;
                let segments = match parts.as_slice() {
                    [(from, to)] => {
                        response.headers_mut().insert(CONTENT_RANGE, range::content_range(*from, *to, size));
                        vec![Segment::Range(*from, *to)]
                    }
                    parts => several(response.headers_mut(), parts, size),
                };
                with_body(response, file, method, segments, world)
            }
        }
    }

    fn described(&self, file: &File) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, self.media_type(&file.path));
        if let Some(coding) = file.coding {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
        }
        if self.varies {
            headers.insert(VARY, HeaderValue::from(ACCEPT_ENCODING));
        }
        headers.insert(LAST_MODIFIED, conditional::http_date(file.stamp.modified_second()));
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        let weak = match self.tags {
            Tags::Strong => Some(""),
            Tags::Weak => Some("W/"),
            Tags::Off => None,
        };
        let coding = file.coding.map_or("", |coding| coding.name());
        let tag = weak.map(|weak| format!("{weak}\"{}{coding}\"", file.stamp.tag()));
        if let Some(tag) = tag.and_then(|tag| HeaderValue::try_from(tag).ok()) {
            headers.insert(ETAG, tag);
        }
        let rule = self.cache_control.iter().find(|(pattern, _)| pattern.fits(&file.path));
        if let Some((_, value)) = rule {
            headers.insert(CACHE_CONTROL, value.clone());
        }
        headers
    }

    fn media_type(&self, path: &str) -> HeaderValue {
        let Some(ending) = mime::ending(path) else { return self.default_type.clone() };
        if let Some(own) = self.types.get(&ending) {
            return own.clone();
        }
        match mime::of(&ending) {
            None => self.default_type.clone(),
            Some(known) if mime::is_text(known) && !self.charset.is_empty() => {
                let text = format!("{known}; charset={}", self.charset);
                HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(known))
            }
            Some(known) => HeaderValue::from_static(known),
        }
    }
}

fn with_body(
    mut response: Response<Body>,
    file: &File,
    method: &Method,
    segments: Vec<Segment>,
    world: &World,
) -> Response<Body> {
    if *method == Method::HEAD {
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(file.stamp.size));
    } else {
        *response.body_mut() = content::body(&file.content, segments, world);
    }
    response
}

/// Several parts as `multipart/byteranges` (RFC 9110 §14.6).
fn several(headers: &mut HeaderMap, parts: &[(u64, u64)], size: u64) -> Vec<Segment> {
    let boundary = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
    let own = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let mut segments = Vec::with_capacity(parts.len() * 2 + 1);
    for (n, (from, to)) in parts.iter().copied().enumerate() {
        let line = if n == 0 { "" } else { "\r\n" };
        let range = range::content_range(from, to, size);
        let range = range.to_str().unwrap_or_default();
        let head = format!("{line}--{boundary}\r\ncontent-type: {own}\r\ncontent-range: {range}\r\n\r\n");
        segments.push(Segment::Text(Bytes::from(head)));
        segments.push(Segment::Range(from, to));
    }
    segments.push(Segment::Text(Bytes::from(format!("\r\n--{boundary}--\r\n"))));
    let value = HeaderValue::try_from(format!("multipart/byteranges; boundary={boundary}"));
    headers.insert(CONTENT_TYPE, value.unwrap_or_else(|_| HeaderValue::from_static("multipart/byteranges")));
    segments
}

/// A page that the gateway made.
pub(super) fn page(media_type: &'static str, text: String) -> Reply {
    let mut response = Response::new(Body::full(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
    // The page names files: nothing in it may be run, wherever it is shown.
    let policy = HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'");
    response.headers_mut().insert("content-security-policy", policy);
    let mut reply = Reply::response(response);
    reply.is_error = Some(false);
    reply.reason("listing")
}
