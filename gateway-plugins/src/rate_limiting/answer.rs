//! What a client is told about its limits.

use std::time::Duration;

use gateway_core::http::reply::{Cause, Reply};
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::settings::{Fields, Limit};
use crate::rate_table::Standing;

/// What an exchange counted for.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) key: u64,
    /// What it took, or takes as a failure.
    pub(super) cost: u64,
    pub(super) passed: bool,
    /// Whether it was counted as a failure.
    pub(super) charged: bool,
    /// The limit with the least left, or the one that refused.
    pub(super) tightest: (usize, Standing),
    pub(super) retry_in: Duration,
}

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The answer to who came too often.
pub(super) fn refusal(status: StatusCode, retry_in: Duration) -> Reply {
    let reply = Reply::new(Cause::TooManyRequests)
        .reason("rate_limited")
        .detail("come back later")
        .header(RETRY_AFTER, HeaderValue::from(whole_seconds(retry_in).max(1)));
    if status == StatusCode::TOO_MANY_REQUESTS { reply } else { reply.status(status) }
}

/// Writes headers about the limit with the least left, and about all policies. What a target or another plugin said
/// about limits of its own stays beside it; of the headers that have room for one limit only, the tighter one stays.
pub(super) fn write(
    fields: Fields,
    limits: &[Limit],
    (tightest, standing): (usize, Standing),
    headers: &mut HeaderMap,
) {
    let Some(limit) = limits.get(tightest) else { return };
    let reset = whole_seconds(standing.full_in);
    if matches!(fields, Fields::Ratelimit | Fields::Both) {
        let now = format!("\"{}\";r={};t={reset}", limit.name, standing.remaining);
        let policies: Vec<String> = limits.iter().map(policy).collect();
        for (name, text) in [(RATELIMIT, now), (POLICY, policies.join(", "))] {
            let value = HeaderValue::from_str(&text).ok();
            // A response may pass here twice, when another plugin replaces it.
            if let Some(value) = value.filter(|value| !headers.get_all(&name).iter().any(|it| it == value)) {
                headers.append(name, value);
            }
        }
    }
    if matches!(fields, Fields::XRatelimit | Fields::Both) {
        let known = headers.get(REMAINING).and_then(|known| known.to_str().ok()?.parse::<u64>().ok());
        if known.is_none_or(|known| standing.remaining <= known) {
            headers.insert(LIMIT, HeaderValue::from(limit.burst));
            headers.insert(REMAINING, HeaderValue::from(standing.remaining));
            headers.insert(RESET, HeaderValue::from(reset));
        }
    }
}

/// A bucket as a policy: as much as its burst, in the time in which that comes back.
fn policy(limit: &Limit) -> String {
    format!("\"{}\";q={};w={}", limit.name, limit.burst, whole_seconds(limit.rule.refill()).max(1))
}

fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}
