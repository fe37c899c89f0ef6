//! What clients are told about limits: `RateLimit` and `RateLimit-Policy` of the IETF's draft, and `X-RateLimit-*`.

use std::fmt::Write as _;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;

/// What clients are told in headers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LimitHeaders {
    /// `RateLimit` and `RateLimit-Policy`.
    #[default]
    Ratelimit,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`.
    XRatelimit,
    /// All of them.
    Both,
    /// Nothing.
    None,
}

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Characters of a limit's name.
const MAX_NAME: usize = 64;

/// Whether a limit can have this name in headers.
pub(crate) fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(is_plain)
}

/// All limits as `RateLimit-Policy` says them: name, how much, and in how many seconds.
pub(crate) fn policy<'a>(limits: impl Iterator<Item = (&'a str, u64, u64)>) -> HeaderValue {
    let all: Vec<String> =
        limits.map(|(name, most, seconds)| format!("\"{name}\";q={most};w={seconds}")).collect();
    HeaderValue::from_str(&all.join(", ")).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// How a caller stands under the limit with the least left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stand<'a> {
    /// The limit's name.
    pub(crate) name: &'a str,
    /// How much it allows.
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    /// Seconds until all of it is there again.
    pub(crate) reset: u64,
}

/// Writes headers about one limit and all policies. What a target or another plugin said about limits of its own stays beside it; of
/// the headers that have room for one limit only, the tighter one stays.
pub(crate) fn write(which: LimitHeaders, policy: &HeaderValue, stand: Stand<'_>, headers: &mut HeaderMap) {
    let Stand { name, limit, remaining, reset } = stand;
    if matches!(which, LimitHeaders::Ratelimit | LimitHeaders::Both) {
        let mut text = String::with_capacity(name.len() + 32);
        let written = write!(text, "\"{name}\";r={remaining};t={reset}");
        if let (Ok(()), Ok(now)) = (written, HeaderValue::from_maybe_shared(Bytes::from(text))) {
            append(headers, RATELIMIT, now);
        }
        append(headers, POLICY, policy.clone());
    }
    if matches!(which, LimitHeaders::XRatelimit | LimitHeaders::Both) {
        let known = headers.get(REMAINING).and_then(|known| known.to_str().ok()?.parse::<u64>().ok());
        if known.is_none_or(|known| remaining <= known) {
            headers.insert(LIMIT, HeaderValue::from(limit));
            headers.insert(REMAINING, HeaderValue::from(remaining));
            headers.insert(RESET, HeaderValue::from(reset));
        }
    }
}

/// A response may pass here twice, when another plugin replaces it.
fn append(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    if !headers.get_all(&name).iter().any(|it| it == value) {
        headers.append(name, value);
    }
}
