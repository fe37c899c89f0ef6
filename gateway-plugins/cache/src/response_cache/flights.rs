//! One request for each response that is missing: the others wait for it, for a bounded time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

/// What is under way; an `F` is a response that is being stored.
pub(super) struct Flights<F>(Mutex<UnderWay<F>>);

/// How far the first request for each key came.
type UnderWay<F> = HashMap<Arc<[u8]>, watch::Receiver<Phase<F>>>;

impl<F> Default for Flights<F> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// How far a request came. Where its sender is gone before it was answered, another one may take its place.
pub(super) enum Phase<F> {
    /// No head yet.
    Asked,
    /// A response that is being stored.
    Answered(Arc<F>),
    /// It has been answered; whoever finds nothing in the store now asks for itself.
    Settled,
}

/// The one that asks; the others are let go when it is dropped.
pub(super) struct Lead<F> {
    flights: Arc<Flights<F>>,
    key: Arc<[u8]>,
    phase: watch::Sender<Phase<F>>,
}

/// Who one is among those that ask for the same.
pub(super) enum FlightRole<F> {
    /// The first.
    Lead(Lead<F>),
    /// Another one has asked.
    Behind(watch::Receiver<Phase<F>>),
}

impl<F> Flights<F> {
    /// Takes the first place, or one behind it.
    pub(super) fn join(self: &Arc<Self>, key: Arc<[u8]>) -> FlightRole<F> {
        let mut flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One that has no sender any more is about to be removed.
        if let Some(ahead) = flights.get(&key).filter(|ahead| ahead.has_changed().is_ok()) {
            return FlightRole::Behind(ahead.clone());
        }
        let (phase, seen) = watch::channel(Phase::Asked);
        flights.insert(key.clone(), seen);
        FlightRole::Lead(Lead { flights: self.clone(), key, phase })
    }
}

impl<F> Lead<F> {
    /// Lets those behind read the response while it comes.
    pub(super) fn share(&self, fill: Arc<F>) {
        self.phase.send_replace(Phase::Answered(fill));
    }

    /// Lets those behind look for themselves.
    pub(super) fn settle(&self) {
        self.phase.send_replace(Phase::Settled);
    }
}

impl<F> Drop for Lead<F> {
    fn drop(&mut self) {
        self.flights.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}
