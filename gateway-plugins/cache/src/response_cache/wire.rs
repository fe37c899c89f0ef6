//! A stored response as bytes, for the tiers below memory.
//!
//! Numbers are big-endian, texts have their length in front. Instants are written as milliseconds since 1970, so that
//! they mean the same after a restart and to other gateways.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tokio::time::Instant;

use super::key::Variant;
use super::policy::Policy;
use super::stored::{Head, Stored};
use super::tier::{Address, Mark};

/// Bytes that a head may have; one that has more stays in memory alone.
pub(super) const MAX_HEAD: usize = 256 << 10;
/// Which way of writing this is.
const VERSION: u8 = 1;
/// Clocks that were set back so far are believed, in milliseconds.
const MAX_SKEW: u64 = 60_000;

/// What is written about a response besides its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Label {
    pub(super) address: Address,
    /// Host, path and query, as purges name them.
    pub(super) url: Box<str>,
    /// Which purges it has seen.
    pub(super) mark: Mark,
}

/// A response as it was written, without its body.
#[derive(Debug)]
pub(super) struct StoredHead {
    pub(super) label: Label,
    pub(super) head: Head,
    /// When it was received, in milliseconds since 1970.
    pub(super) received: u64,
}

/// Milliseconds since 1970.
pub(super) fn unix_millis() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, millis)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Writes a head; `None` where it is too large.
pub(super) fn write(label: &Label, head: &Head, now: Instant) -> Option<Vec<u8>> {
    let mut out = Out(Vec::with_capacity(512));
    out.0.push(VERSION);
    out.0.extend_from_slice(&label.address.place);
    out.0.extend_from_slice(&label.address.parts);
    out.number(label.mark.epoch);
    out.number(label.mark.number);
    out.text(label.url.as_bytes());
    out.0.extend_from_slice(&head.status.as_u16().to_be_bytes());
    out.number(unix_millis().saturating_sub(millis(now.saturating_duration_since(head.received))));
    let policy = &head.policy;
    for duration in
        [policy.lifetime, policy.stale_while_revalidate, policy.stale_if_error, policy.initial_age]
    {
        out.number(millis(duration));
    }
    out.0.push(u8::from(policy.must_revalidate));
    out.count(head.variant.len());
    for (name, value) in &head.variant {
        out.text(name.as_str().as_bytes());
        out.0.push(u8::from(value.is_some()));
        out.text(value.as_deref().unwrap_or_default());
    }
    out.count(head.tags.len());
    head.tags.iter().for_each(|tag| out.text(tag.as_bytes()));
    out.count(head.headers.len());
    for (name, value) in &head.headers {
        out.text(name.as_str().as_bytes());
        out.text(value.as_bytes());
    }
    (out.0.len() <= MAX_HEAD).then_some(out.0)
}

/// Reads what [`write()`] wrote. `None` where it is not that, whole.
pub(super) fn read(bytes: &[u8], now: Instant) -> Option<StoredHead> {
    let mut rest = In(bytes);
    if rest.byte()? != VERSION {
        return None;
    }
    let address = Address { place: *rest.array()?, parts: *rest.array()? };
    let mark = Mark { epoch: rest.number()?, number: rest.number()? };
    let url = rest.string()?;
    let status = StatusCode::from_u16(u16::from_be_bytes(*rest.array()?)).ok()?;
    let received = rest.number()?;
    let mut duration = || rest.number().map(Duration::from_millis);
    let mut policy = Policy {
        lifetime: duration()?,
        stale_while_revalidate: duration()?,
        stale_if_error: duration()?,
        initial_age: duration()?,
        must_revalidate: false,
    };
    policy.must_revalidate = rest.byte()? != 0;
    let mut variant = Vec::new();
    for _ in 0..rest.count()? {
        let name = HeaderName::from_bytes(rest.text()?).ok()?;
        let is_there = rest.byte()? != 0;
        let value = rest.text()?;
        variant.push((name, is_there.then(|| Box::from(value))));
    }
    let mut tags = Vec::new();
    for _ in 0..rest.count()? {
        tags.push(rest.string()?);
    }
    let mut headers = HeaderMap::new();
    for _ in 0..rest.count()? {
        let name = HeaderName::from_bytes(rest.text()?).ok()?;
        headers.append(name, HeaderValue::from_bytes(rest.text()?).ok()?);
    }
    if !rest.0.is_empty() {
        return None;
    }
    let since = since(received)?;
    // An instant can't be earlier than the machine's start; what is missing counts as age.
    let at = now.checked_sub(since).unwrap_or_else(|| {
        policy.initial_age += since;
        now
    });
    let head = Head { status, headers, policy, received: at, variant: variant.into(), tags: tags.into() };
    Some(StoredHead { label: Label { address, url, mark }, head, received })
}

/// How long ago that was; `None` for a moment that is to come.
fn since(received: u64) -> Option<Duration> {
    let now = unix_millis();
    (received <= now.saturating_add(MAX_SKEW)).then(|| Duration::from_millis(now.saturating_sub(received)))
}

impl StoredHead {
    /// The response, with its body, and the moment a purge marked it stale (milliseconds since 1970; 0 is not at all).
    pub(super) fn with(self, body: Bytes, stale_since: u64) -> Arc<Stored> {
        let stored = Stored::new(Arc::new(self.head), body);
        if stale_since > 0 {
            stored.mark_stale_after(Duration::from_millis(stale_since.saturating_sub(self.received)));
        }
        Arc::new(stored)
    }
}

/// What a variant is found by: the names and values that it was chosen by.
pub(super) fn digest_of(variant: &Variant) -> [u8; 16] {
    let mut out = Out(Vec::new());
    for (name, value) in variant {
        out.text(name.as_str().as_bytes());
        out.0.push(u8::from(value.is_some()));
        out.text(value.as_deref().unwrap_or_default());
    }
    super::tier::digest(&[&out.0])
}

struct Out(Vec<u8>);

impl Out {
    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_be_bytes());
    }

    fn count(&mut self, count: usize) {
        // More than fits makes the head too large anyway.
        self.0.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes());
    }

    fn text(&mut self, text: &[u8]) {
        self.count(text.len());
        self.0.extend_from_slice(text);
    }
}

struct In<'a>(&'a [u8]);

impl<'a> In<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn array<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(first)
    }

    fn number(&mut self) -> Option<u64> {
        self.array().map(|bytes| u64::from_be_bytes(*bytes))
    }

    fn count(&mut self) -> Option<usize> {
        usize::try_from(u32::from_be_bytes(*self.array()?)).ok()
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.count()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(text)
    }

    fn string(&mut self) -> Option<Box<str>> {
        std::str::from_utf8(self.text()?).ok().map(Box::from)
    }
}
