//! Traced exchanges that stand for the buckets of the durations.

use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use gateway_core::record::ExchangeRecord;
use gateway_core::trace::TraceId;

use super::histogram::{BUCKETS, bucket_of};
use super::labels::{CLASSES, VERSIONS};

/// An exchange that stands for those of its bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exemplar {
    pub(super) trace: TraceId,
    pub(super) took: Duration,
    pub(super) at: SystemTime,
}

/// The newest traced exchange of each bucket; one table a worker.
#[derive(Default)]
pub(super) struct Exemplars([[[Mutex<Option<Exemplar>>; BUCKETS]; CLASSES]; VERSIONS.len()]);

impl Exemplars {
    /// Keeps an exchange whose trace is recorded.
    pub(super) fn observe(&self, record: &ExchangeRecord<'_>, version: usize, class: usize) {
        let Some(context) = record.exchange.trace.filter(|context| context.sampled) else { return };
        let place =
            self.0.get(version).and_then(|classes| classes.get(class)?.get(bucket_of(record.duration)));
        // Only a scrape may hold it, and then the next exchange will do.
        if let Some(Ok(mut kept)) = place.map(Mutex::try_lock) {
            *kept = Some(Exemplar { trace: context.trace, took: record.duration, at: SystemTime::now() });
        }
    }

    /// What is kept of one bucket.
    pub(super) fn of(&self, version: usize, class: usize, bucket: usize) -> Option<Exemplar> {
        *self.0.get(version)?.get(class)?.get(bucket)?.lock().ok()?
    }
}
