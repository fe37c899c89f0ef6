//! What hooks decided: waited for in time, and a panic turned into an error.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::time::Instant;

use super::super::step::{Step, Verdict, Wait};
use super::PLUGIN_TIMEOUT;
use crate::http::reply::{Cause, Reply};

/// What a hook decided, waited for where needed.
pub(super) async fn verdict(step: Step<'_>) -> Result<(), Box<Reply>> {
    match step {
        Step::Next => Ok(()),
        Step::Reply(reply) => Err(reply),
        Step::Wait(future) => match within(future).await? {
            Verdict::Next => Ok(()),
            Verdict::Reply(reply) => Err(reply),
        },
    }
}

/// A waiting hook's decision, in time. Where the proxy has a total timeout, that comes first or after this.
pub(super) async fn within<T>(future: Wait<'_, T>) -> Result<T, Box<Reply>> {
    tokio::time::timeout(PLUGIN_TIMEOUT, future).await.map_err(|_| Box::new(Reply::new(Cause::PluginTimeout)))
}

/// As [`verdict`], with the moment from which on the hook waited, if it did.
pub(super) async fn timed(step: Step<'_>) -> (Option<Instant>, Result<(), Box<Reply>>) {
    let began = matches!(step, Step::Wait(_)).then(Instant::now);
    (began, verdict(step).await)
}

/// Runs a future in place and turns a panic in it into an error.
pub(crate) async fn guarded<F: Future>(future: std::pin::Pin<&mut F>) -> Result<F::Output, Panicked> {
    let mut future = future;
    std::future::poll_fn(move |cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(std::task::Poll::Pending) => std::task::Poll::Pending,
        Ok(std::task::Poll::Ready(value)) => std::task::Poll::Ready(Ok(value)),
        Err(_) => std::task::Poll::Ready(Err(Panicked)),
    })
    .await
}

/// A future panicked; it must not be polled again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Panicked;
