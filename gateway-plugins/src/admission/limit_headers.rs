//! What clients are told about limits: `RateLimit` and `RateLimit-Policy` of the IETF's draft, and `X-RateLimit-*`.

use gateway_plugin_common::list_fields::append_once;
use http::{HeaderMap, HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;
use smallvec::SmallVec;

/// Rate limit header fields for clients.
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
    /// None.
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
        if let Some(now) = standing(name, remaining, reset) {
            append_once(headers, RATELIMIT, now);
        }
        append_once(headers, POLICY, policy.clone());
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

/// `"name";r=9;t=1`, written on the stack: this is on the path of every request.
fn standing(name: &str, remaining: u64, reset: u64) -> Option<HeaderValue> {
    let mut text = SmallVec::<[u8; MAX_NAME + 48]>::new();
    text.push(b'"');
    text.extend_from_slice(name.as_bytes());
    text.extend_from_slice(b"\";r=");
    number(&mut text, remaining);
    text.extend_from_slice(b";t=");
    number(&mut text, reset);
    HeaderValue::from_bytes(&text).ok()
}

/// Appends a number in decimal.
fn number<A: smallvec::Array<Item = u8>>(text: &mut SmallVec<A>, number: u64) {
    let mut digits = itoa::Buffer::new();
    text.extend_from_slice(digits.format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standing_is_written_as_the_draft_says() {
        let long = "n".repeat(MAX_NAME);
        for (name, remaining, reset, text) in [
            ("a", 0, 0, "\"a\";r=0;t=0".to_owned()),
            ("10-per-1s", 9, 60, "\"10-per-1s\";r=9;t=60".to_owned()),
            (&long, u64::MAX, u64::MAX, format!("\"{long}\";r={0};t={0}", u64::MAX)),
        ] {
            assert_eq!(standing(name, remaining, reset).expect("a value"), text);
        }
    }

    #[test]
    fn what_others_said_stays_and_nothing_is_said_twice() {
        let mut headers = HeaderMap::new();
        headers.insert(RATELIMIT, HeaderValue::from_static("\"other\";r=1;t=1"));
        let stand = Stand { name: "a", limit: 5, remaining: 4, reset: 1 };
        let policy = policy([("a", 5, 1)].into_iter());
        for _ in 0..2 {
            write(LimitHeaders::Both, &policy, stand, &mut headers);
        }
        let all: Vec<_> = headers.get_all(RATELIMIT).iter().collect();
        assert_eq!(all, ["\"other\";r=1;t=1", "\"a\";r=4;t=1"]);
        assert_eq!(headers.get_all(POLICY).iter().count(), 1);
        assert_eq!(headers[REMAINING], "4");
    }
}
