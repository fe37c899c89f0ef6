//! B3, as Zipkin's libraries send it: in one header or in several.

use gateway_core::trace::{SpanId, TraceContext, TraceId};
use http::{HeaderMap, HeaderName};

use super::{Incoming, Parent, hex, only, put};

const B3: HeaderName = HeaderName::from_static("b3");
const TRACE: HeaderName = HeaderName::from_static("x-b3-traceid");
const SPAN: HeaderName = HeaderName::from_static("x-b3-spanid");
const PARENT: HeaderName = HeaderName::from_static("x-b3-parentspanid");
const SAMPLED: HeaderName = HeaderName::from_static("x-b3-sampled");
const FLAGS: HeaderName = HeaderName::from_static("x-b3-flags");

pub(super) static FIELDS: [HeaderName; 6] = [B3, TRACE, SPAN, PARENT, SAMPLED, FLAGS];

/// The context in either form, whichever is written: callers that were not changed yet send the other one. The single header goes first.
pub(super) fn read(headers: &HeaderMap) -> Incoming {
    let single = only(headers, &B3).and_then(single).unwrap_or_default();
    if single.parent.is_some() {
        return single;
    }
    let multi = read_multi(headers);
    Incoming { sampled: single.sampled.or(multi.sampled), ..multi }
}

/// `trace-span-sampled-parent`, of which the last two may be missing; or what is sampled alone.
fn single(text: &str) -> Option<Incoming> {
    if let Some(sampled) = sampled(text) {
        return Some(Incoming { parent: None, sampled: Some(sampled) });
    }
    let parts: Vec<&str> = text.splitn(5, '-').collect();
    let (trace, span, decision) = match parts.as_slice() {
        [trace, span] => (trace, span, None),
        [trace, span, decision] => (trace, span, Some(sampled(decision)?)),
        [trace, span, decision, parent] => {
            hex::<8>(parent, true)?;
            (trace, span, Some(sampled(decision)?))
        }
        _ => return None,
    };
    let parent = Parent::new(trace_id(trace)?, Some(SpanId(hex(span, true)?)), decision);
    Some(Incoming { parent: Some(parent), sampled: None })
}

fn read_multi(headers: &HeaderMap) -> Incoming {
    let decision = match only(headers, &FLAGS) {
        Some("1") => Some(true),
        _ => only(headers, &SAMPLED).and_then(|text| match text {
            "true" => Some(true),
            "false" => Some(false),
            text => sampled(text).filter(|_| text != "d"),
        }),
    };
    let trace = only(headers, &TRACE).and_then(trace_id);
    let span = only(headers, &SPAN).and_then(|text| hex(text, true)).map(SpanId);
    match (trace, span) {
        (Some(trace), Some(span)) => {
            Incoming { parent: Some(Parent::new(trace, Some(span), decision)), sampled: None }
        }
        _ => Incoming { parent: None, sampled: decision },
    }
}

/// 16 or 32 digits.
fn trace_id(text: &str) -> Option<TraceId> {
    let mut id = [0; 16];
    match text.len() {
        32 => id = hex(text, true)?,
        16 => id[8..].copy_from_slice(&hex::<8>(text, true)?),
        _ => return None,
    }
    Some(TraceId(id))
}

/// `1`, `0`, and `d` for debugging, which is sampled in any case.
fn sampled(text: &str) -> Option<bool> {
    match text {
        "1" | "d" => Some(true),
        "0" => Some(false),
        _ => None,
    }
}

pub(super) fn write_single(headers: &mut HeaderMap, context: TraceContext) {
    let sampled = u8::from(context.sampled);
    put(headers, &B3, &format!("{}-{}-{sampled}", context.trace, context.span));
}

pub(super) fn write_multi(headers: &mut HeaderMap, context: TraceContext) {
    put(headers, &TRACE, &context.trace.to_string());
    put(headers, &SPAN, &context.span.to_string());
    put(headers, &SAMPLED, if context.sampled { "1" } else { "0" });
    // What named the span before ours would name the wrong one.
    headers.remove(&PARENT);
    headers.remove(&FLAGS);
}
