//! The threads that carry the connections of edges, apart from the control runtime: a write to the database does not wait until a
//! thousand edges were sent the one before.

use std::future::Future;
use std::io;
use std::num::NonZero;
use std::thread::available_parallelism;

use tokio::runtime::{Builder, Runtime};

/// Threads at most. Sending an edge a change takes some 30 µs.
const MAX_THREADS: usize = 4;
/// Threads that compress large configurations.
const BLOCKING_THREADS: usize = 2;
/// Nothing here goes deep.
const STACK_BYTES: usize = 2 << 20;

/// Ends its tasks when it is dropped, which may be within another runtime.
pub(super) struct ConnectionThreads(Option<Runtime>);

impl ConnectionThreads {
    /// Starts them: one for each core, up to [`MAX_THREADS`].
    pub(super) fn new() -> io::Result<Self> {
        let cores = available_parallelism().map_or(1, NonZero::get);
        let runtime = Builder::new_multi_thread()
            .worker_threads(cores.min(MAX_THREADS))
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_stack_size(STACK_BYTES)
            .thread_name("fleet")
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    /// Carries out work there, and returns its result; an error if the threads end before.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        let runtime = self.0.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        runtime.spawn(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    /// Carries out work there.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.0 {
            runtime.spawn(work);
        }
    }
}

impl Drop for ConnectionThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
