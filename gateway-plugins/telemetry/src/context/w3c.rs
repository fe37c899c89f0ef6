//! W3C Trace Context, level 2, and W3C Baggage.

use gateway_core::trace::{SpanId, TraceContext, TraceId};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{Parent, hex, only, put};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
const BAGGAGE: HeaderName = HeaderName::from_static("baggage");

pub(super) static FIELDS: [HeaderName; 2] = [TRACEPARENT, TRACESTATE];
pub(super) static BAGGAGE_FIELDS: [HeaderName; 1] = [BAGGAGE];

/// Members of a `tracestate`; one with more is dropped (§3.3.1.1).
const MAX_MEMBERS: usize = 32;
/// Bytes of a `tracestate` that are passed on; members beyond are left out, the longest and the last first (§3.3.1.5).
pub const MAX_TRACESTATE_BYTES: usize = 512;
/// A member longer than this is the first to be left out.
const LONG_MEMBER: usize = 128;
/// Bytes of a `baggage` that is passed on; a longer one is dropped (W3C Baggage §3.3.2).
pub const MAX_BAGGAGE_BYTES: usize = 8192;
/// Members of a `baggage`; one with more is dropped.
const MAX_BAGGAGE_MEMBERS: usize = 64;

const SAMPLED: u8 = 1;
const RANDOM: u8 = 2;

/// The parent of a well-formed `traceparent`; one that was sent twice is not.
pub(super) fn read(headers: &HeaderMap) -> Option<Parent> {
    let mut parent = parent(only(headers, &TRACEPARENT)?)?;
    parent.state = state(headers);
    Some(parent)
}

fn parent(text: &str) -> Option<Parent> {
    let version = hex_byte(text.get(..2)?)?;
    // A later version may be longer, but begins alike (§4.3).
    let is_known = version == 0;
    let ends = match text.len() {
        55 => true,
        56.. => !is_known && text.as_bytes()[55] == b'-',
        _ => false,
    };
    let dashes = [2, 35, 52].into_iter().all(|at| text.as_bytes().get(at) == Some(&b'-'));
    if version == 0xff || !ends || !dashes {
        return None;
    }
    let (trace, span) = (hex(text.get(3..35)?, false)?, hex(text.get(36..52)?, false)?);
    let flags = hex_byte(text.get(53..55)?)?;
    let mut parent = Parent::new(TraceId(trace), Some(SpanId(span)), Some(flags & SAMPLED != 0));
    parent.random = flags & RANDOM != 0;
    Some(parent)
}

/// Two lower-case digits; zero is allowed here.
fn hex_byte(text: &str) -> Option<u8> {
    match text {
        "00" => Some(0),
        _ => hex::<1>(text, false).map(|[byte]| byte),
    }
}

/// Every `tracestate` field as one. What is no member is left out, and so is a key that was there already: the first is the newest
/// (§3.3.1.4). Nothing is left of one with too many members.
fn state(headers: &HeaderMap) -> String {
    let mut members: Vec<&str> = Vec::new();
    for field in headers.get_all(&TRACESTATE) {
        for (key, member) in field.as_bytes().split(|c| *c == b',').filter_map(state_member) {
            let is_new = members.iter().all(|known| known.split_once('=').is_none_or(|(of, _)| of != key));
            if is_new && members.len() == MAX_MEMBERS {
                return String::new();
            }
            if is_new {
                members.push(member);
            }
        }
    }
    shortened(members)
}

/// The key of a well-formed member, and the member.
fn state_member(text: &[u8]) -> Option<(&str, &str)> {
    let member = std::str::from_utf8(text).ok()?.trim_matches([' ', '\t']);
    let (key, value) = member.split_once('=')?;
    (is_key(key) && is_value(value)).then_some((key, member))
}

/// The members as one text within the limit.
fn shortened(mut members: Vec<&str>) -> String {
    let length = |members: &[&str]| members.iter().map(|member| member.len() + 1).sum::<usize>();
    while length(&members) > MAX_TRACESTATE_BYTES + 1 {
        let long = members.iter().rposition(|member| member.len() > LONG_MEMBER);
        members.remove(long.unwrap_or(members.len() - 1));
    }
    members.join(",")
}

/// Up to 256 characters, of which the first is a letter or a digit; `@` may stand anywhere else (§3.3.1.3.1).
fn is_key(key: &str) -> bool {
    let is_first = |c: &u8| matches!(c, b'a'..=b'z' | b'0'..=b'9');
    key.len() <= 256
        && key.as_bytes().first().is_some_and(is_first)
        && key.bytes().all(|c| is_first(&c) || matches!(c, b'_' | b'-' | b'*' | b'/' | b'@'))
}

/// Printable, without `,` and `=` (§3.3.1.3.2).
fn is_value(value: &str) -> bool {
    (1..=256).contains(&value.len())
        && value.bytes().all(|c| matches!(c, 0x20..=0x7e) && c != b',' && c != b'=')
}

pub(super) fn write(headers: &mut HeaderMap, context: TraceContext, parent: Option<&Parent>) {
    let random = parent.is_some_and(|parent| parent.random);
    let flags = u8::from(context.sampled) | if random { RANDOM } else { 0 };
    let mut value = *b"00-................................-................-00";
    value[3..35].copy_from_slice(&context.trace.hex());
    value[36..52].copy_from_slice(&context.span.hex());
    value[54] = b'0' + flags;
    if let Ok(value) = HeaderValue::from_bytes(&value) {
        headers.insert(TRACEPARENT, value);
    }
    if let Some(parent) = parent.filter(|parent| !parent.state.is_empty()) {
        put(headers, &TRACESTATE, &parent.state);
    }
}

/// Drops a `baggage` that is malformed or beyond its limits; several fields become one.
pub(super) fn mend_baggage(headers: &mut HeaderMap) {
    if !headers.contains_key(&BAGGAGE) {
        return;
    }
    let fields: Option<Vec<&str>> =
        headers.get_all(&BAGGAGE).iter().map(|field| field.to_str().ok()).collect();
    let joined = fields.unwrap_or_default().join(",");
    let count = joined.split(',').filter(|member| !member.trim().is_empty()).count();
    let is_good = (1..=MAX_BAGGAGE_MEMBERS).contains(&count)
        && joined.len() <= MAX_BAGGAGE_BYTES
        && joined.split(',').filter(|member| !member.trim().is_empty()).all(is_baggage_member);
    match is_good {
        true => put(headers, &BAGGAGE, &joined),
        false => drop(headers.remove(&BAGGAGE)),
    }
}

/// `key=value;property=value`, with white space around each.
fn is_baggage_member(member: &str) -> bool {
    let mut parts = member.split(';');
    let Some((key, value)) = parts.next().and_then(|pair| pair.split_once('=')) else { return false };
    let is_pair = is_token(key.trim()) && is_baggage_value(value.trim());
    is_pair
        && parts.all(|property| match property.split_once('=') {
            Some((key, value)) => is_token(key.trim()) && is_baggage_value(value.trim()),
            None => is_token(property.trim()),
        })
}

fn is_token(text: &str) -> bool {
    let others = b"!#$%&'*+-.^_`|~";
    !text.is_empty() && text.bytes().all(|c| c.is_ascii_alphanumeric() || others.contains(&c))
}

fn is_baggage_value(text: &str) -> bool {
    text.bytes().all(|c| c.is_ascii_graphic() && !matches!(c, b'"' | b',' | b';' | b'\\'))
}

/// The value of this key in the baggage, decoded.
pub fn baggage_value(headers: &HeaderMap, wanted: &str) -> Option<String> {
    let fields = headers.get_all(&BAGGAGE).iter().filter_map(|field| field.to_str().ok());
    let mut pairs = fields.flat_map(|field| field.split(',')).filter_map(|member| {
        let pair = member.split(';').next()?;
        pair.split_once('=').map(|(key, value)| (key.trim(), value.trim()))
    });
    let (_, value) = pairs.find(|(key, _)| *key == wanted)?;
    Some(percent_encoding::percent_decode_str(value).decode_utf8_lossy().into_owned())
}
