//! What a client is told about its limits.

use std::time::Duration;

use gateway_core::http::reply::{Cause, Reply};
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::settings::Limit;
use crate::admission::limit_headers::{self, LimitHeaders, Stand};
use crate::admission::rate_table::Standing;

/// What an exchange counted for.
#[derive(Debug)]
pub(super) struct CountedExchange {
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

/// The answer to who came too often.
pub(super) fn refusal(status: StatusCode, retry_in: Duration) -> Reply {
    let seconds = whole_seconds(retry_in).max(1);
    let reply = Reply::new(Cause::TooManyRequests)
        .reason("rate_limited")
        .detail(format!("retry after {seconds} s"))
        .header(RETRY_AFTER, HeaderValue::from(seconds));
    if status == StatusCode::TOO_MANY_REQUESTS { reply } else { reply.status(status) }
}

/// The answer to a request that lacks what it is counted by.
pub(super) fn key_missing() -> Reply {
    let reply = Reply::new(Cause::Forbidden).detail("the request lacks what it is counted by");
    reply.reason("rate_limit_key_missing")
}

/// Every limit as a policy: as much as its burst, in the time in which that comes back.
pub(super) fn policy(limits: &[Limit]) -> HeaderValue {
    let one = |limit: &Limit| whole_seconds(limit.rule.refill()).max(1);
    limit_headers::policy(limits.iter().map(|limit| (&*limit.name, limit.burst, one(limit))))
}

/// Writes headers about the limit with the least left, and about all policies.
pub(super) fn write(
    which: LimitHeaders,
    policy: &HeaderValue,
    limits: &[Limit],
    tightest: usize,
    standing: Standing,
    headers: &mut HeaderMap,
) {
    let Some(Limit { name, burst, .. }) = limits.get(tightest) else { return };
    let (remaining, reset) = (standing.remaining, whole_seconds(standing.full_in));
    limit_headers::write(which, policy, Stand { name, limit: *burst, remaining, reset }, headers);
}

fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}
