//! Traffic by proxy and target, counted only while somebody watches: `ferrum-edge top`, by the admin API.
//!
//! Nobody's request pays for it otherwise: it is fed where records are handed to those who follow them, which is looked
//! at for each record anyway.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gateway_core::config::model::Id;
use gateway_core::record::{ExchangeRecord, SessionRecord};
use gateway_telemetry::record::Record;
use serde_json::{Value, json};

use super::fine_histogram::FineHistogram;
use super::histogram::{BUCKETS, SECONDS, bucket_of};
use super::labels::CLASSES;

/// Pairs of proxy and target that are counted apart; all beyond are counted together.
const MAX_ROWS: usize = 10_000;
/// Callers that are counted apart; all beyond are counted together.
const MAX_CALLERS: usize = 1000;
/// After so long without a look nobody watches any more.
const LEASE: Duration = Duration::from_secs(15);

/// What is counted while somebody watches.
#[derive(Default)]
pub(crate) struct Traffic(Mutex<Option<Watch>>);

struct Watch {
    began: Instant,
    looked: Instant,
    rows: HashMap<Key, Row>,
    other: Row,
    /// By consumer or external identity; callers that nobody recognised are not among them.
    callers: HashMap<Arc<str>, Row>,
    other_callers: Row,
}

/// A proxy, the upstream that its request went to or would have gone to, and the target of the last attempt; none of them for what
/// the gateway answered itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    proxy: Option<Id>,
    upstream: Option<Arc<str>>,
    target: Option<Arc<str>>,
}

/// The counts of one pair since the watch began.
#[derive(Default)]
struct Row {
    classes: [u64; CLASSES],
    errors: u64,
    retries: u64,
    buckets: [u64; BUCKETS],
    fine: FineHistogram,
    seconds: f64,
    sessions: u64,
    bytes_in: u64,
    bytes_out: u64,
}

impl Traffic {
    /// Counts a record; false once nobody watches any more.
    pub(super) fn observe(&self, record: Record<'_>) -> bool {
        let mut watched = self.watched();
        let Some(watch) = watched.as_mut().filter(|watch| watch.looked.elapsed() < LEASE) else {
            *watched = None;
            return false;
        };
        let (route, chosen, target) = match record {
            Record::Exchange(record) => (record.route, record.exchange.upstream().cloned(), record.target),
            Record::Session(record) => (record.route, None, record.target),
        };
        let key = Key {
            proxy: route.map(|route| route.proxy.id.clone()),
            upstream: chosen.or_else(|| route.map(|route| route.proxy.backend.upstream.id.shared())),
            target: target.map(|target| target.authority().clone()),
        };
        let is_full = watch.rows.len() >= MAX_ROWS && !watch.rows.contains_key(&key);
        let row = match is_full {
            true => &mut watch.other,
            false => watch.rows.entry(key).or_default(),
        };
        match record {
            Record::Exchange(record) => row.exchange(record),
            Record::Session(record) => row.session(record),
        }
        watch.caller(record);
        true
    }

    /// The counts so far. From the first look on everything is counted, until nobody looks any more.
    pub(super) fn look(&self) -> Value {
        let mut watched = self.watched();
        let now = Instant::now();
        let is_new = watched.as_ref().is_none_or(|watch| now.duration_since(watch.looked) >= LEASE);
        if is_new {
            *watched = Some(Watch::new(now));
        }
        let Some(watch) = watched.as_mut() else { return Value::Null };
        watch.looked = now;
        let mut rows: Vec<Value> = watch.rows.iter().map(|(key, row)| row.shown(Some(key))).collect();
        if watch.other.is_used() {
            rows.push(watch.other.shown(None));
        }
        let mut callers: Vec<Value> =
            watch.callers.iter().map(|(name, row)| row.shown_of(Some(name))).collect();
        if watch.other_callers.is_used() {
            callers.push(watch.other_callers.shown_of(None));
        }
        json!({
            "seconds": now.duration_since(watch.began).as_secs_f64(),
            "bounds": SECONDS,
            "rows": rows,
            "callers": callers,
        })
    }

    pub(super) fn is_watched(&self) -> bool {
        self.watched().is_some()
    }

    fn watched(&self) -> MutexGuard<'_, Option<Watch>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    fn new(now: Instant) -> Self {
        Self {
            began: now,
            looked: now,
            rows: HashMap::new(),
            other: Row::default(),
            callers: HashMap::new(),
            other_callers: Row::default(),
        }
    }

    /// Counts a record for whom it is from.
    fn caller(&mut self, record: Record<'_>) {
        let identity = match record {
            Record::Exchange(record) => record.exchange.identity.as_ref(),
            Record::Session(record) => record.session.identity.as_ref(),
        };
        let Some(name) = identity.map(|identity| &identity.name) else { return };
        let is_full = self.callers.len() >= MAX_CALLERS && !self.callers.contains_key(name);
        let row = match is_full {
            true => &mut self.other_callers,
            false => self.callers.entry(name.clone()).or_default(),
        };
        match record {
            Record::Exchange(record) => row.exchange(record),
            Record::Session(record) => row.session(record),
        }
    }
}

impl Row {
    fn exchange(&mut self, record: &ExchangeRecord<'_>) {
        self.classes[usize::from(record.status / 100).clamp(1, CLASSES) - 1] += 1;
        // A 4xx is the client's error. A response that the gateway cut off has a status below 400, and counts.
        self.errors += u64::from(record.status >= 500 || (record.is_error && record.status < 400));
        let hedges = record.exchange.hedged().sent;
        self.retries += u64::from(record.attempts.saturating_sub(1 + hedges));
        self.buckets[bucket_of(record.duration)] += 1;
        self.fine.observe(record.duration);
        self.seconds += record.duration.as_secs_f64();
        self.bytes_in += record.request_bytes;
        self.bytes_out += record.response_bytes;
    }

    fn session(&mut self, record: &SessionRecord<'_>) {
        self.sessions += 1;
        self.bytes_in += record.bytes_up;
        self.bytes_out += record.bytes_down;
    }

    fn is_used(&self) -> bool {
        self.sessions > 0 || self.classes.iter().any(|count| *count > 0)
    }

    fn shown(&self, key: Option<&Key>) -> Value {
        let mut shown = self.counts(key.is_none());
        shown["proxy"] = json!(key.and_then(|key| key.proxy.as_ref()).map(Id::as_str));
        shown["upstream"] = json!(key.and_then(|key| key.upstream.as_deref()));
        shown["target"] = json!(key.and_then(|key| key.target.as_deref()));
        shown
    }

    fn shown_of(&self, caller: Option<&str>) -> Value {
        let mut shown = self.counts(caller.is_none());
        shown["caller"] = json!(caller);
        shown
    }

    fn counts(&self, is_rest: bool) -> Value {
        json!({
            "is_rest": is_rest,
            "classes": self.classes,
            "errors": self.errors,
            "retries": self.retries,
            "buckets": self.buckets,
            "fine": self.fine.0.iter().collect::<Vec<_>>(),
            "duration_seconds": self.seconds,
            "sessions": self.sessions,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
        })
    }
}
