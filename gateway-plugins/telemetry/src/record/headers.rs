//! What records say of headers.

use gateway_core::http::credentials::redact_referer;
use gateway_core::http::exchange::Exchange;
use gateway_core::snapshot::ProxyState;
use http::header::{HeaderName, REFERER, USER_AGENT};
use http::{HeaderMap, HeaderValue};

use super::{Extras, FieldVisitor, trace};
use crate::redact;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The few headers that are logged; none that may carry a credential.
pub(super) fn usual(line: &mut impl FieldVisitor, exchange: &Exchange) {
    let logged = LoggedHeaders::of(&exchange.request.headers);
    // The id that a plugin gave goes before one that the client sent.
    if let Some(id) = exchange.id_in_use().as_ref().or(logged.request_id) {
        line.text("http.request.id", id);
    }
    if let Some(context) = exchange.trace {
        trace(line, context);
    } else if let Some(trace) = logged.traceparent.and_then(|value| trace_id(value.as_bytes())) {
        line.text("trace_id", trace);
    }
    if let Some(agent) = logged.agent {
        line.text("user_agent.original", agent);
    }
    if let Some(referer) = logged.referer {
        line.text("http.request.header.referer", redact_referer(referer.as_bytes()));
    }
}

/// Headers that every record has.
#[derive(Debug, Default, PartialEq, Eq)]
struct LoggedHeaders<'h> {
    request_id: Option<&'h HeaderValue>,
    traceparent: Option<&'h HeaderValue>,
    agent: Option<&'h HeaderValue>,
    referer: Option<&'h HeaderValue>,
}

impl<'h> LoggedHeaders<'h> {
    /// Up to so many fields, looking once through all costs less than looking each name up.
    const FEW: usize = 24;

    fn of(headers: &'h HeaderMap) -> Self {
        if headers.len() > Self::FEW {
            return Self {
                request_id: headers.get(REQUEST_ID),
                traceparent: headers.get(TRACEPARENT),
                agent: headers.get(USER_AGENT),
                referer: headers.get(REFERER),
            };
        }
        let mut found = Self::default();
        for (name, value) in headers {
            let place = match name {
                name if *name == USER_AGENT => &mut found.agent,
                name if *name == REFERER => &mut found.referer,
                name if *name == TRACEPARENT => &mut found.traceparent,
                name if *name == REQUEST_ID => &mut found.request_id,
                _ => continue,
            };
            // Of a field that came several times, the first.
            place.get_or_insert(value);
        }
        found
    }
}

/// The headers that were asked for, without credentials: those of well-known names, and those that the plugins of a proxy read.
pub(super) fn visit_configured(
    line: &mut impl FieldVisitor,
    exchange: &Exchange,
    extras: &Extras,
    route: Option<&ProxyState>,
) {
    let mut each = |headers: &HeaderMap, wanted: &[(HeaderName, Box<str>)]| {
        for (name, field) in wanted {
            // The referer is among the usual fields.
            if !headers.contains_key(name) || name == REFERER {
                continue;
            }
            match route.is_some_and(|route| route.plugins.read_credential_in(name)) {
                true => line.text(field, "REDACTED"),
                false => line.text(field, redact::header(headers, name)),
            }
        }
    };
    each(&exchange.request.headers, &extras.request_headers);
    if let Some((_, headers)) = exchange.answered() {
        each(headers, &extras.response_headers);
    }
}

/// The trace id of a W3C traceparent, if it is well-formed: `version-trace-parent-flags`.
fn trace_id(value: &[u8]) -> Option<&[u8]> {
    let mut parts = value.split(|byte| *byte == b'-');
    let (_version, trace) = (parts.next()?, parts.next()?);
    let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (trace.len() == 32 && trace.iter().all(is_hex) && trace.iter().any(|byte| *byte != b'0')).then_some(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_found_among_few_and_many() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("referer", "r"),
            ("x-request-id", "i"),
            ("user-agent", "a"),
            ("traceparent", "t"),
            ("referer", "2"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        let few = headers.clone();
        let few = LoggedHeaders::of(&few);
        let is = |found: Option<&HeaderValue>, value: &str| found.is_some_and(|found| found == value);
        assert!(is(few.referer, "r") && is(few.request_id, "i"), "{few:?}");
        assert!(is(few.agent, "a") && is(few.traceparent, "t"), "{few:?}");
        for n in 0..LoggedHeaders::FEW {
            headers.insert(HeaderName::try_from(format!("x-{n}")).unwrap(), HeaderValue::from_static("x"));
        }
        assert_eq!(LoggedHeaders::of(&headers), few);
        assert_eq!(LoggedHeaders::of(&HeaderMap::new()), LoggedHeaders::default());
    }

    #[test]
    fn takes_the_trace_of_a_wellformed_traceparent_only() {
        let good = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(trace_id(good), Some(&b"0af7651916cd43dd8448eb211c80319c"[..]));
        for bad in [
            &b"00-00000000000000000000000000000000-b7ad6b7169203331-01"[..],
            b"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            b"00-0af7-b7ad-01",
            b"",
            b"\"-",
        ] {
            assert_eq!(trace_id(bad), None);
        }
    }
}
