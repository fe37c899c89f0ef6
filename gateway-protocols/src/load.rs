//! How many connections each worker has.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A connection that counts as open, with the worker that serves it or was handed it.
#[derive(Debug)]
pub(crate) struct Load {
    loads: Arc<[AtomicUsize]>,
    worker: usize,
}

impl Load {
    pub(crate) fn new(loads: Arc<[AtomicUsize]>, worker: usize) -> Self {
        loads[worker].fetch_add(1, Ordering::Relaxed);
        Self { loads, worker }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.loads[self.worker].fetch_sub(1, Ordering::Release);
    }
}
