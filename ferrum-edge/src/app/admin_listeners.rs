//! What the admin API listens on.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::AbortHandle;

use crate::admin::Listener;

/// What is listened on, with the task that accepts.
#[derive(Default)]
pub(super) struct AdminListeners(Mutex<Vec<(Arc<Listener>, AbortHandle)>>);

impl AdminListeners {
    /// One more, with the task that accepts from it.
    pub(super) fn add(&self, listener: Arc<Listener>, accepting: AbortHandle) {
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.push((listener, accepting));
    }

    /// Copies of the TCP sockets.
    pub(super) fn copies(&self) -> Vec<OwnedFd> {
        let listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let tcp = listeners.iter().filter(|(listener, _)| matches!(**listener, Listener::Tcp(..)));
        tcp.filter_map(|(listener, _)| listener.as_fd().try_clone_to_owned().ok()).collect()
    }

    /// Accepts nothing more.
    pub(super) fn close(&self) {
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.drain(..).for_each(|(_, task)| task.abort());
    }
}
