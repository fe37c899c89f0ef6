//! How many at a time: counted permits that come back by themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A ceiling on things under way. A ceiling of 0 is none: nothing is counted then, and a permit costs nothing.
#[derive(Debug)]
pub struct Concurrency {
    ceiling: AtomicUsize,
    used: AtomicUsize,
}

/// One thing under way, until dropped.
#[derive(Debug)]
#[must_use = "dropping it gives the place back"]
pub struct Permit(Option<Arc<Concurrency>>);

impl Concurrency {
    /// No more than `ceiling` at a time; 0 is no limit.
    pub fn new(ceiling: usize) -> Arc<Self> {
        Arc::new(Self { ceiling: AtomicUsize::new(ceiling), used: AtomicUsize::new(0) })
    }

    /// A place, unless all are taken.
    pub fn permit(self: &Arc<Self>) -> Option<Permit> {
        let ceiling = self.ceiling();
        if ceiling == 0 {
            return Some(Permit(None));
        }
        let admit = |used| (used < ceiling).then_some(used + 1);
        self.used.fetch_update(Relaxed, Relaxed, admit).ok()?;
        Some(Permit(Some(self.clone())))
    }

    /// Places taken; stays 0 without a ceiling.
    pub fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// The ceiling; 0 is none.
    pub fn ceiling(&self) -> usize {
        self.ceiling.load(Relaxed)
    }

    /// Sets another ceiling. What is under way beyond a lower one ends in its own time; what began without any
    /// ceiling stays uncounted.
    pub fn resize(&self, ceiling: usize) {
        self.ceiling.store(ceiling, Relaxed);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(concurrency) = self.0.take() {
            concurrency.used.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[test]
    fn refuses_beyond_the_ceiling_and_recovers() {
        let places = Concurrency::new(2);
        let held = [places.permit().unwrap(), places.permit().unwrap()];
        assert!(places.permit().is_none());
        drop(held);
        assert_eq!(places.used(), 0);
        assert!(places.permit().is_some());
    }

    #[test]
    fn no_ceiling_counts_nothing() {
        let places = Concurrency::new(0);
        let held: Vec<_> = (0..1000).map(|_| places.permit().unwrap()).collect();
        assert_eq!((places.used(), held.len()), (0, 1000));
    }

    #[test]
    fn threads_never_exceed_the_ceiling() {
        let (places, start) = (Concurrency::new(3), Barrier::new(8));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    let held = (0..10_000).filter_map(|_| places.permit());
                    held.for_each(|_held| assert!(places.used() <= 3));
                });
            }
        });
        assert_eq!(places.used(), 0);
    }
}
