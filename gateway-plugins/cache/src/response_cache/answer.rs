//! Answers made of stored responses: conditions and ranges of the request, `Age`, `Cache-Status` (RFC 9211), `X-Cache`.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use gateway_core::http::body::Body;
use gateway_core::http::reply::Reply;
use gateway_plugin_common::conditional::{self, Precondition, Validators};
use gateway_plugin_common::range::{self, Ranges};
use http::header::{
    ACCEPT_RANGES, AGE, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE,
    DATE, ETAG, HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, RANGE, SET_COOKIE, TRAILER,
};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use tokio::time::Instant;

use super::fill::Fill;
use super::stored::{Head, Stored};
use super::tier::Tier;

const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");
const X_CACHE: HeaderName = HeaderName::from_static("x-cache");

/// What answers say about the cache.
#[derive(Debug, Clone)]
pub(super) struct Labels {
    /// The gateway's name, as `Cache-Status` writes it; `None` where it is not said.
    name: Option<Arc<str>>,
    x_cache: bool,
}

/// How a response came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// From the store, as it is.
    Hit,
    /// From the store, while it is asked for anew.
    WhileRevalidated,
    /// From the store, since the target failed.
    Failing,
    /// From the store, after the target said that it is still right.
    Revalidated,
    /// From a response that was on its way for another client.
    Collapsed,
    /// From the target; why it was asked, and whether the response is stored or why it is not.
    Forwarded(&'static str, Result<(), &'static str>),
}

impl How {
    /// The word for metrics and the record.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::WhileRevalidated => "stale_while_revalidate",
            Self::Failing => "stale_if_error",
            Self::Revalidated => "revalidated",
            Self::Collapsed => "collapsed",
            Self::Forwarded("bypass" | "request" | "method", _) => "bypass",
            Self::Forwarded("stale", _) => "expired",
            Self::Forwarded(..) => "miss",
        }
    }
}

impl Labels {
    pub(super) fn new(gateway: &str, cache_status: bool, x_cache: bool) -> Self {
        let is_token = gateway.starts_with(|c: char| c.is_ascii_alphabetic())
            && gateway.bytes().all(|c| c.is_ascii_alphanumeric() || b"-._".contains(&c));
        let printable: String =
            gateway.chars().filter(|c| matches!(c, ' '..='~') && !"\"\\".contains(*c)).collect();
        let name = if is_token { gateway.to_owned() } else { format!("\"{printable}\"") };
        Self { name: cache_status.then(|| name.into()), x_cache }
    }

    /// Says how a response came about, and which tier it came from where there are several.
    pub(super) fn put(&self, headers: &mut HeaderMap, how: How, ttl: Option<i64>, tier: Option<Tier>) {
        if let Some(name) = &self.name {
            let mut text = String::with_capacity(48);
            text.push_str(name);
            text.push_str(match how {
                How::Hit | How::WhileRevalidated | How::Failing => "; hit",
                How::Revalidated => "; fwd=stale; fwd-status=304; stored",
                How::Collapsed => "; fwd=miss; collapsed",
                How::Forwarded(..) => "; fwd=",
            });
            // Writing to a string can't fail.
            if let How::Forwarded(why, stored) = how {
                text.push_str(why);
                match stored {
                    Ok(()) => text.push_str("; stored"),
                    Err("") => {}
                    Err(detail) => _ = write!(text, "; detail={detail}"),
                }
            }
            if let Some(ttl) = ttl {
                text.push_str("; ttl=");
                text.push_str(itoa::Buffer::new().format(ttl));
            }
            if let Some(tier) = tier {
                text.push_str("; detail=");
                text.push_str(tier.word());
            }
            if let Ok(value) = HeaderValue::try_from(text) {
                // The cache that is nearest to the client comes last (RFC 9211 §2).
                headers.append(CACHE_STATUS, value);
            }
        }
        if self.x_cache {
            let word = match how {
                How::Hit | How::Collapsed => "HIT",
                How::WhileRevalidated | How::Failing => "STALE",
                How::Revalidated => "REVALIDATED",
                How::Forwarded("stale", _) => "EXPIRED",
                How::Forwarded("bypass" | "request" | "method", _) => "BYPASS",
                How::Forwarded(..) => "MISS",
            };
            headers.insert(X_CACHE, HeaderValue::from_static(word));
        }
    }
}

/// The headers of a response as they are stored.
pub(super) fn stored_headers(headers: &HeaderMap, strips_set_cookie: bool, now: SystemTime) -> HeaderMap {
    let mut kept = headers.clone();
    for name in [&AGE, &CONTENT_LENGTH, &TRAILER, &X_CACHE] {
        kept.remove(name);
    }
    if strips_set_cookie {
        kept.remove(SET_COOKIE);
    }
    if !kept.contains_key(DATE) {
        kept.insert(DATE, conditional::http_date(now));
    }
    kept
}

/// The stored headers with what a 304 that came now says anew (RFC 9111 §3.2); what describes the stored bytes stays.
pub(super) fn freshened(stored: &HeaderMap, said: &HeaderMap, now: SystemTime) -> HeaderMap {
    let mut headers = stored.clone();
    // A 304 that has been in another cache says how old it is; one that has not is not as old as what is stored.
    headers.remove(AGE);
    let kept = [&CONTENT_LENGTH, &CONTENT_ENCODING, &CONTENT_TYPE, &CONTENT_RANGE, &SET_COOKIE];
    for name in said.keys().filter(|name| !kept.contains(name)) {
        headers.remove(name);
        for value in said.get_all(name) {
            headers.append(name, value.clone());
        }
    }
    if !said.contains_key(DATE) {
        // RFC 9110 §6.6.1. By the stored date the response would be as old as before.
        headers.insert(DATE, conditional::http_date(now));
    }
    headers
}

/// Whether a 304 is about another response than the stored one, by a strong validator that is not its own (RFC 9111 §4.3.4).
/// nginx weakens the tag of what it compresses, but not that of the 304: the same tag made weak is no other.
pub(super) fn is_about_another(stored: &HeaderMap, said: &HeaderMap) -> bool {
    let own = stored.get(ETAG).map(HeaderValue::as_bytes);
    let own = own.map(|tag| tag.strip_prefix(b"W/").unwrap_or(tag));
    said.get(ETAG).is_some_and(|tag| !tag.as_bytes().starts_with(b"W/") && Some(tag.as_bytes()) != own)
}

/// Asks the target whether a stored response is still right; false where it has nothing to be recognised by.
pub(super) fn ask_again(request: &mut HeaderMap, stored: &HeaderMap) -> bool {
    let mut any = false;
    for (has, asks) in [(ETAG, IF_NONE_MATCH), (LAST_MODIFIED, IF_MODIFIED_SINCE)] {
        if let Some(value) = stored.get(has) {
            request.insert(asks, value.clone());
            any = true;
        }
    }
    any
}

/// What a response is made of.
pub(super) enum Content<'a> {
    /// All bytes are there.
    Stored(&'a Stored),
    /// They are on their way.
    Coming(&'a Arc<Fill>),
}

impl Content<'_> {
    fn head(&self) -> &Head {
        match self {
            Self::Stored(stored) => &stored.head,
            Self::Coming(fill) => &fill.head,
        }
    }
}

/// The response to a request, from what is stored or on its way.
pub(super) fn response(
    content: &Content<'_>,
    method: &Method,
    request: &HeaderMap,
    now: Instant,
) -> Response<Body> {
    let head = content.head();
    let mut response = Response::new(Body::empty());
    *response.status_mut() = head.status;
    response.headers_mut().clone_from(&head.headers);
    response.headers_mut().insert(AGE, HeaderValue::from(head.age(now).as_secs()));
    if conditional_is_met(head, method, request) {
        not_modified(&mut response);
        return response;
    }
    match content {
        Content::Stored(stored) => {
            let bytes = part(&mut response, method, request, &stored.body);
            if *method == Method::HEAD {
                response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
            } else {
                *response.body_mut() = Body::full(bytes);
            }
        }
        Content::Coming(fill) => *response.body_mut() = fill.body(),
    }
    response
}

/// Whether the client has a response already.
pub(super) fn conditional_is_met(head: &Head, method: &Method, request: &HeaderMap) -> bool {
    let asks = request.contains_key(IF_NONE_MATCH) || request.contains_key(IF_MODIFIED_SINCE);
    asks && head.status == StatusCode::OK
        && conditional::evaluate(request, method, Validators::of(&head.headers)) == Precondition::NotModified
}

/// Makes a 304 of a response.
pub(super) fn not_modified(response: &mut Response<Body>) {
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    for name in [CONTENT_LENGTH, CONTENT_TYPE, CONTENT_ENCODING, CONTENT_LANGUAGE] {
        response.headers_mut().remove(name);
    }
    *response.body_mut() = Body::empty();
}

/// The bytes asked for: all of them, or one range.
fn part(response: &mut Response<Body>, method: &Method, request: &HeaderMap, body: &Bytes) -> Bytes {
    let length = body.len() as u64;
    // Only GET has ranges (RFC 9110 §14.2), and only of something that is there.
    if *method != Method::GET || response.status() != StatusCode::OK {
        return body.clone();
    }
    response.headers_mut().entry(ACCEPT_RANGES).or_insert(HeaderValue::from_static("bytes"));
    // Most requests ask for all of it, and reading the response's validators costs.
    let is_range = request.contains_key(RANGE);
    if !is_range || !conditional::range_counts(request, Validators::of(response.headers())) {
        return body.clone();
    }
    match range::read(request, length) {
        Ranges::Parts(parts) if parts.len() == 1 => {
            let (from, to) = parts[0];
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            response.headers_mut().insert(CONTENT_RANGE, range::content_range(from, to, length));
            let at = |n: u64| usize::try_from(n).unwrap_or(body.len()).min(body.len());
            body.slice(at(from)..at(to))
        }
        Ranges::Unsatisfiable => {
            *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
            response.headers_mut().insert(CONTENT_RANGE, range::unsatisfied(length));
            for name in [CONTENT_TYPE, CONTENT_ENCODING, CONTENT_LANGUAGE] {
                response.headers_mut().remove(name);
            }
            Bytes::new()
        }
        // Several ranges may be answered with all of it.
        Ranges::Parts(_) | Ranges::Whole => body.clone(),
    }
}

/// A response of the cache as the answer to an exchange. What comes out of the cache is no error of the gateway's.
pub(super) fn reply(response: Response<Body>, how: How) -> Reply {
    let mut reply = Reply::response(response);
    (reply.is_error, reply.is_replay) = (Some(false), true);
    reply.reason(match how {
        How::Hit => "cache_hit",
        How::Collapsed => "cache_collapsed",
        _ => "cache_stale",
    })
}
