//! What the admin API listens on.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::AbortHandle;

/// A socket that a gateway which takes over may go on with.
pub(crate) type HandedSocket = Arc<dyn AsFd + Send + Sync>;

/// What is listened on, with the task that accepts; `None` is what is not handed on.
#[derive(Default)]
pub(crate) struct AdminListeners(Mutex<Vec<(Option<HandedSocket>, AbortHandle)>>);

impl AdminListeners {
    /// One more, with the task that accepts from it.
    pub(crate) fn add(&self, socket: Option<HandedSocket>, accepting: AbortHandle) {
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.push((socket, accepting));
    }

    /// Copies of the TCP sockets.
    pub(crate) fn copies(&self) -> Vec<OwnedFd> {
        let listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sockets = listeners.iter().filter_map(|(socket, _)| socket.as_ref());
        sockets.filter_map(|socket| socket.as_fd().try_clone_to_owned().ok()).collect()
    }

    /// Accepts nothing more.
    pub(crate) fn close(&self) {
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.drain(..).for_each(|(_, task)| task.abort());
    }
}
