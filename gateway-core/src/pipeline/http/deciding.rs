//! Finds the setting that caused the end of an exchange.

use std::error::Error;
use std::time::Duration;

use crate::config::model::{Timeouts, Traffic};
use crate::http::reply::Cause;
use crate::http::upstream::PreventableError;
use crate::reason::{self, DecidingSetting, LimitValue};
use crate::snapshot::ProxyState;

/// Facts about an exchange that ended for a cause.
#[derive(Debug, Clone, Copy)]
pub(super) struct Circumstances<'a> {
    /// The matched proxy, if any.
    pub(super) route: Option<&'a ProxyState>,
    /// The limit on request bodies for proxies without a limit of their own.
    pub(super) max_request_body: u64,
    /// Whether the target had begun its response.
    pub(super) has_answer: bool,
    /// The error of the last attempt, if one failed.
    pub(super) failure: Option<&'a (dyn Error + Send + Sync + 'static)>,
}

/// The setting that ended an exchange for `cause`, with `word` as the reason; `None` if no setting did.
pub(super) fn deciding_setting(
    cause: Cause,
    word: &str,
    circumstances: Circumstances<'_>,
) -> Option<DecidingSetting> {
    if let Some(reason) = reason::of(word) {
        return Some(DecidingSetting { name: reason.setting, limit: None }).filter(|it| !it.name.is_empty());
    }
    let Circumstances { route, max_request_body, has_answer, failure } = circumstances;
    let timeouts = route.map(|route| &route.proxy.timeouts);
    let time = |of: fn(&Timeouts) -> Duration| {
        timeouts.map(|timeouts| of(timeouts)).filter(|time| !time.is_zero()).map(LimitValue::Time)
    };
    let (name, limit) = match cause {
        Cause::BodyTooLarge => match route.and_then(|route| max_body(&route.proxy.traffic)) {
            Some(most) => ("proxies.max_request_body", Some(LimitValue::Bytes(most))),
            None => ("gateway.limits.max_request_body", Some(LimitValue::Bytes(max_request_body))),
        },
        Cause::ConnectTimeout => ("proxies.backend_connect_timeout", time(|timeouts| timeouts.connect)),
        Cause::UpstreamTimeout if has_answer => {
            ("proxies.backend_idle_timeout", time(|timeouts| timeouts.idle))
        }
        Cause::UpstreamTimeout => {
            ("proxies.backend_first_byte_timeout", time(|timeouts| timeouts.first_byte))
        }
        Cause::TotalTimeout => ("proxies.total_timeout", time(|timeouts| timeouts.total)),
        // A script sent a bad head: no setting of the gateway selects another reader.
        Cause::UpstreamGarbage if route.is_some_and(|route| route.proxy.backend.fastcgi().is_some()) => {
            return None;
        }
        // Targets of an upstream are not those of the proxy.
        Cause::ConnectFailed | Cause::DnsFailed
            if route.is_some_and(|route| route.proxy.backend.is_named) =>
        {
            ("upstreams.targets", None)
        }
        Cause::TlsCertificate => {
            let known = failure.and_then(|failure| failure.downcast_ref::<PreventableError>());
            (known.map_or_else(|| cause.setting(), |known| known.setting), None)
        }
        other => (other.setting(), None),
    };
    Some(DecidingSetting { name, limit }).filter(|it| !it.name.is_empty())
}

fn max_body(traffic: &Traffic) -> Option<u64> {
    match traffic {
        Traffic::Http(rules) => rules.max_request_body,
        Traffic::Stream(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_names_the_setting_that_ran_out() {
        let of = |cause, has_answer| {
            let circumstances =
                Circumstances { route: None, max_request_body: 10 << 20, has_answer, failure: None };
            deciding_setting(cause, Cause::reason(cause), circumstances)
        };
        let name = |cause, has_answer| of(cause, has_answer).map(|it| it.name);
        assert_eq!(name(Cause::UpstreamTimeout, false), Some("proxies.backend_first_byte_timeout"));
        assert_eq!(name(Cause::UpstreamTimeout, true), Some("proxies.backend_idle_timeout"));
        assert_eq!(of(Cause::BodyTooLarge, false).and_then(|it| it.limit), Some(LimitValue::Bytes(10 << 20)));
        assert_eq!(name(Cause::BadHost, false), None);
        // A repeated request may be closed again: no setting prevents that.
        assert_eq!(name(Cause::UpstreamClosed, false), None);
    }

    #[test]
    fn no_word_has_two_meanings() {
        for cause in Cause::ALL {
            assert_eq!(reason::of(cause.reason()), None, "{}", cause.reason());
        }
    }
}
