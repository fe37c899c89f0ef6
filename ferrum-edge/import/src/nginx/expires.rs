//! `expires` and `limit_rate`: what nginx says of how long and how fast responses are.

use super::blocks::Directive;
use super::{Nginx, innermost};
use crate::draft::{BandwidthLimit, HeaderRule, Plug, ResponseTransformer, draft};
use crate::text;

/// Statuses of the responses that `expires` concerns.
const STATUSES: [u16; 10] = [200, 201, 204, 206, 301, 302, 303, 304, 307, 308];

impl Nginx<'_> {
    /// `expires TIME`, for answers of this status or, where there is none, for those of targets.
    pub(super) fn expires(
        &mut self,
        place: &str,
        levels: &[&Directive],
        status: Option<u16>,
        made: &mut Vec<Plug>,
    ) {
        let Some(expires) = innermost(levels, "expires") else { return };
        let what = format!("{place}: {expires}");
        let value = match expires.arguments.as_slice() {
            [time] if time == "off" => return self.out.converted(expires.at, what),
            [time] => cache_control(time),
            _ => None,
        };
        let Some(value) = value else {
            let todo = "use the plugin `response_transformer`";
            return self.out.not_converted(expires.at, what, "this time can't be converted", todo);
        };
        if status.is_some_and(|status| !STATUSES.contains(&status)) {
            return;
        }
        let why = "`Cache-Control` specifies the time; there is no `Expires`";
        self.out.partial(expires.at, what, why, "");
        let statuses: Vec<String> = STATUSES.iter().map(ToString::to_string).collect();
        let rules = [HeaderRule::field("set", "cache-control", value), HeaderRule::no_field("expires")];
        made.push(Plug::of(draft!(ResponseTransformer { rules, statuses })));
    }

    /// `limit_rate RATE`.
    pub(super) fn limit_rate(&mut self, place: &str, levels: &[&Directive], made: &mut Vec<Plug>) {
        let Some(limit) = innermost(levels, "limit_rate") else { return };
        let what = format!("{place}: {limit}");
        let rate = limit.arguments.first().and_then(|rate| text::bytes(rate, 1000));
        match rate {
            Some(0) => self.out.converted(limit.at, what),
            Some(rate) => {
                let why = "it applies to all responses for an address together; nginx limits each by itself";
                self.out.partial(limit.at, what, why, "see the plugin `bandwidth_limit`");
                made.push(Plug::of(draft!(BandwidthLimit { download: rate, limit_by: "address" })));
            }
            None => {
                let todo = "use the plugin `bandwidth_limit`";
                self.out.not_converted(limit.at, what, "this rate can't be converted", todo);
            }
        }
    }
}

/// The `Cache-Control` that nginx makes of a time.
pub(super) fn cache_control(time: &str) -> Option<String> {
    match (time, time.strip_prefix('-')) {
        ("epoch", _) => Some("no-cache".to_owned()),
        ("max", _) => Some("max-age=315360000".to_owned()),
        (_, Some(past)) => text::millis(past, 1000).map(|_| "no-cache".to_owned()),
        (time, None) => Some(format!("max-age={}", text::millis(time, 1000)? / 1000)),
    }
}
