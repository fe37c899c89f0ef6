//! Work that would hold up a worker, done on other threads, as much at a time as is allowed.

use tokio::sync::oneshot;

/// A piece of work.
pub type Job = Box<dyn FnOnce() + Send>;

/// Threads beside the workers. Its queue is bounded.
pub trait Blocking: Send + Sync {
    /// Takes a piece of work, to be done as soon as a thread is free. The work must not panic; [`run`] guards it.
    ///
    /// # Errors
    /// [`Busy`] when as much waits as may wait.
    fn take(&self, job: Job) -> Result<(), Busy>;
}

/// Too much work waits already, or the work failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too much work is waiting")]
pub struct Busy;

/// Does the work on one of the threads and waits for what it comes to.
///
/// # Errors
/// [`Busy`] when the queue is full, and when the work panicked.
pub async fn run<T: Send + 'static>(
    blocking: &dyn Blocking,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Busy> {
    let (done, result) = oneshot::channel();
    blocking.take(Box::new(move || {
        // A panic drops the sender, which is the answer; the thread goes on.
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        if let Ok(value) = worked {
            drop(done.send(value));
        }
    }))?;
    result.await.map_err(|_| Busy)
}

/// Does the work at once, where it is asked for. For tests and checks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Inline;

impl Blocking for Inline {
    fn take(&self, job: Job) -> Result<(), Busy> {
        job();
        Ok(())
    }
}
