//! Leaves out log lines that repeat too fast.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Lines from one place in the program before any is left out.
const BURST: u32 = 100;
/// One more line each time this has passed.
const ONE_EACH: Duration = Duration::from_secs(1);

/// A layer that lets only so many lines through from each place in the program that logs. Debug and trace lines are
/// not limited: whoever asks for them wants all.
#[derive(Clone, Default)]
pub(crate) struct Repeats(Arc<SharedRepeats>);

#[derive(Default)]
struct SharedRepeats {
    /// As many as there are places that log.
    places: Mutex<HashMap<Identifier, CallSite>>,
    left_out: AtomicU64,
}

struct CallSite {
    metadata: &'static Metadata<'static>,
    /// When everything let through so far is paid for, at one line each [`ONE_EACH`].
    paid: Instant,
    /// Lines left out since the last report.
    left_out: u64,
}

impl Repeats {
    /// Lines left out so far.
    pub(super) fn left_out(&self) -> u64 {
        self.0.left_out.load(Ordering::Relaxed)
    }

    /// Lines left out since the last call, by place.
    pub(super) fn take(&self) -> Vec<(&'static Metadata<'static>, u64)> {
        let mut places = self.0.places.lock().unwrap_or_else(PoisonError::into_inner);
        let some = places.values_mut().filter(|place| place.left_out > 0);
        some.map(|place| (place.metadata, std::mem::take(&mut place.left_out))).collect()
    }

    /// One place that logged.
    #[cfg(test)]
    pub(super) fn place(&self) -> Option<&'static Metadata<'static>> {
        let places = self.0.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.values().map(|place| place.metadata).next()
    }

    /// Whether a line may be written now.
    pub(super) fn lets_through(&self, metadata: &'static Metadata<'static>, now: Instant) -> bool {
        if *metadata.level() > Level::INFO {
            return true;
        }
        let mut places = self.0.places.lock().unwrap_or_else(PoisonError::into_inner);
        let place =
            places.entry(metadata.callsite()).or_insert(CallSite { metadata, paid: now, left_out: 0 });
        let paid = place.paid.max(now) + ONE_EACH;
        if paid > now + ONE_EACH * BURST {
            place.left_out += 1;
            self.0.left_out.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        place.paid = paid;
        true
    }
}

impl<S: Subscriber> Layer<S> for Repeats {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        self.lets_through(event.metadata(), Instant::now())
    }
}
