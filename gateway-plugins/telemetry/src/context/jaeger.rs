//! Jaeger's own header: `trace:span:parent:flags`.

use gateway_core::trace::{SpanId, TraceContext, TraceId};
use http::{HeaderMap, HeaderName};

use super::{Parent, only, padded, put};

const UBER: HeaderName = HeaderName::from_static("uber-trace-id");

pub(super) static FIELDS: [HeaderName; 1] = [UBER];

const SAMPLED: u8 = 1;
const DEBUG: u8 = 2;

pub(super) fn read(headers: &HeaderMap) -> Option<Parent> {
    let text = only(headers, &UBER)?;
    // Some clients encode the colons.
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8().ok()?;
    let mut parts = decoded.splitn(5, ':');
    let (trace, span) = (padded(parts.next()?)?, padded(parts.next()?)?);
    let (_parent, flags) = (parts.next()?, parts.next()?);
    if parts.next().is_some() || flags.len() > 2 {
        return None;
    }
    let flags = u8::from_str_radix(flags, 16).ok()?;
    Some(Parent::new(TraceId(trace), Some(SpanId(span)), Some(flags & (SAMPLED | DEBUG) != 0)))
}

pub(super) fn write(headers: &mut HeaderMap, context: TraceContext) {
    let sampled = u8::from(context.sampled);
    put(headers, &UBER, &format!("{}:{}:0:{sampled}", context.trace, context.span));
}
