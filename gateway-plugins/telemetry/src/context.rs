//! Trace context in headers: read from requests, written for targets.
//!
//! A format that is listed is read and written; what can't be read by its rules is dropped, so that targets never see
//! it. The formats come in the order in which they are asked; the first that has a context decides.

mod b3;
mod jaeger;
mod w3c;

use gateway_core::trace::{SpanId, TraceContext, TraceId};
use http::{HeaderMap, HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;

pub use w3c::{MAX_BAGGAGE_BYTES, MAX_TRACESTATE_BYTES, baggage_value};

/// Format of trace context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Propagator {
    /// `traceparent` and `tracestate` of W3C Trace Context.
    TraceContext,
    /// `baggage` of W3C Baggage; carries values in addition to the context.
    Baggage,
    /// B3, read in both forms and written as the single header `b3`.
    B3,
    /// B3, read in both forms and written as `x-b3-traceid`, `x-b3-spanid` and the others.
    B3Multi,
    /// `uber-trace-id` of Jaeger.
    Jaeger,
}

impl Propagator {
    /// The format of this name, as in `OTEL_PROPAGATORS`.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "tracecontext" => Self::TraceContext,
            "baggage" => Self::Baggage,
            "b3" => Self::B3,
            "b3multi" => Self::B3Multi,
            "jaeger" => Self::Jaeger,
            _ => return None,
        })
    }

    /// The header fields that it is read from, and that no target sees as the client sent them.
    pub fn fields(self) -> &'static [HeaderName] {
        match self {
            Self::TraceContext => &w3c::FIELDS,
            Self::Baggage => &w3c::BAGGAGE_FIELDS,
            Self::B3 | Self::B3Multi => &b3::FIELDS,
            Self::Jaeger => &jaeger::FIELDS,
        }
    }
}

/// The span of somebody else that a request came with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    /// Its trace.
    pub trace: TraceId,
    /// Its span; `None` where only the trace is known.
    pub span: Option<SpanId>,
    /// Whether it is recorded; `None` leaves that to us.
    pub sampled: Option<bool>,
    /// What systems on the way keep in `tracestate`, in its canonical form; empty where there is none.
    pub state: String,
    /// The bit that says that the trace id is random (W3C Trace Context, level 2).
    pub random: bool,
}

impl Parent {
    fn new(trace: TraceId, span: Option<SpanId>, sampled: Option<bool>) -> Self {
        Self { trace, span, sampled, state: String::new(), random: false }
    }
}

/// What the headers say. A format that says only whether to record, as B3 may, is `sampled` without a parent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Incoming {
    /// The span before ours.
    pub parent: Option<Parent>,
    /// Whether to record, where there is no parent.
    pub sampled: Option<bool>,
}

/// Looks whether requests have any field of some formats. Most have none, and need neither reading nor clearing.
#[derive(Debug, Clone, Copy)]
pub struct FirstLook {
    /// The letters that names of the fields begin with, one bit each: most other fields begin with others.
    letters: u32,
}

impl FirstLook {
    /// A look for these formats.
    pub fn of(propagators: &[Propagator]) -> Self {
        let fields = propagators.iter().flat_map(|propagator| propagator.fields());
        Self { letters: fields.fold(0, |letters, name| letters | letter(name)) }
    }

    /// Whether there is any field of these formats, which are those that this look is for.
    pub fn finds(self, propagators: &[Propagator], headers: &HeaderMap) -> bool {
        headers.keys().any(|name| {
            letter(name) & self.letters != 0
                && propagators.iter().any(|propagator| propagator.fields().contains(name))
        })
    }
}

/// The bit of the letter that a name begins with.
fn letter(name: &HeaderName) -> u32 {
    name.as_str().bytes().next().map_or(0, |first| 1 << (first & 31))
}

/// Reads the context by the first format that has one.
pub fn extract(propagators: &[Propagator], headers: &HeaderMap) -> Incoming {
    let mut only_sampled = None;
    for propagator in propagators {
        let found = match propagator {
            Propagator::TraceContext => Incoming { parent: w3c::read(headers), sampled: None },
            Propagator::Baggage => continue,
            Propagator::B3 | Propagator::B3Multi => b3::read(headers),
            Propagator::Jaeger => Incoming { parent: jaeger::read(headers), sampled: None },
        };
        if found.parent.is_some() {
            return found;
        }
        only_sampled = only_sampled.or(found.sampled);
    }
    Incoming { parent: None, sampled: only_sampled }
}

/// Takes every field of these formats out; of baggage, what is malformed or too long.
pub fn clear(propagators: &[Propagator], headers: &mut HeaderMap) {
    for propagator in propagators {
        if *propagator == Propagator::Baggage {
            w3c::mend_baggage(headers);
            continue;
        }
        for name in propagator.fields() {
            headers.remove(name);
        }
    }
}

/// Writes the context for whoever comes next, in every format listed. `parent` is the span before ours, for formats
/// that name it.
pub fn inject(
    propagators: &[Propagator],
    headers: &mut HeaderMap,
    context: TraceContext,
    parent: Option<&Parent>,
) {
    for propagator in propagators {
        match propagator {
            Propagator::TraceContext => w3c::write(headers, context, parent),
            Propagator::Baggage => {}
            Propagator::B3 => b3::write_single(headers, context),
            Propagator::B3Multi => b3::write_multi(headers, context),
            Propagator::Jaeger => jaeger::write(headers, context),
        }
    }
}

/// The one value of a field; `None` where there is none, or several.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok().map(str::trim),
        _ => None,
    }
}

fn put(headers: &mut HeaderMap, name: &HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// So many hexadecimal digits as bytes; upper case only where it is allowed, and not all zero.
fn hex<const BYTES: usize>(text: &str, upper: bool) -> Option<[u8; BYTES]> {
    if text.len() != BYTES * 2 {
        return None;
    }
    let mut bytes = [0; BYTES];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0], upper)? << 4 | digit(pair[1], upper)?;
    }
    bytes.iter().any(|byte| *byte != 0).then_some(bytes)
}

fn digit(digit: u8, upper: bool) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' if upper => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// An id of at most so many bytes, of whose leading zeros some may be missing.
fn padded<const BYTES: usize>(text: &str) -> Option<[u8; BYTES]> {
    if text.is_empty() || text.len() > BYTES * 2 {
        return None;
    }
    hex(&format!("{text:0>width$}", width = BYTES * 2), true)
}

#[cfg(test)]
mod tests;
