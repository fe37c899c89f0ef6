//! A worker's open connections, so that a drain reaches each of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use atomic_refcell::AtomicRefCell;
use futures_util::task::AtomicWaker;
use tokio::task::AbortHandle;

/// What a connection and its worker share.
#[derive(Debug, Default)]
pub(crate) struct ConnectionControl {
    draining: AtomicBool,
    /// The connection should end if it is idle.
    shedding: AtomicBool,
    /// TCP streams and WebSockets on it.
    streams: AtomicUsize,
    /// Wakes a connection that waits for its client.
    waker: AtomicWaker,
}

/// Marks a connection for as long as it carries a stream.
pub(crate) struct StreamMark<'c>(&'c ConnectionControl);

impl Drop for StreamMark<'_> {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ConnectionControl {
    /// Whether the connection should end when it can.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Whether the connection should end while it is idle: in a drain, or because the gateway is overloaded.
    pub(crate) fn leaves_when_idle(&self) -> bool {
        self.is_draining() || self.shedding.load(Ordering::Relaxed)
    }

    /// The connection is not idle: what was asked of idle ones is not for it.
    pub(crate) fn is_in_use(&self) {
        if self.shedding.load(Ordering::Relaxed) {
            self.shedding.store(false, Ordering::Relaxed);
        }
    }

    /// The connection carries a stream, which may outlive a drain.
    pub(crate) fn stream(&self) -> StreamMark<'_> {
        self.streams.fetch_add(1, Ordering::Relaxed);
        StreamMark(self)
    }

    /// Wants to be woken when the drain begins.
    pub(crate) fn watch(&self, cx: &std::task::Context<'_>) {
        self.waker.register(cx.waker());
    }
}

/// The open connections of one worker; touched by its own thread only.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    open: AtomicRefCell<OpenConnections>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    next: u64,
    connections: HashMap<u64, RegisteredConnection>,
    draining: bool,
}

#[derive(Debug)]
struct RegisteredConnection {
    entry: Arc<ConnectionControl>,
    task: Option<AbortHandle>,
}

impl Registry {
    /// Takes a connection in; the number takes it out again.
    pub(crate) fn add(&self, entry: Arc<ConnectionControl>) -> u64 {
        let Ok(mut open) = self.open.try_borrow_mut() else { return 0 };
        if open.draining {
            entry.draining.store(true, Ordering::Relaxed);
        }
        open.next += 1;
        let number = open.next;
        open.connections.insert(number, RegisteredConnection { entry, task: None });
        number
    }

    /// Names the task that serves a connection.
    pub(crate) fn attach(&self, number: u64, task: AbortHandle) {
        if let Ok(mut open) = self.open.try_borrow_mut()
            && let Some(connection) = open.connections.get_mut(&number)
        {
            connection.task = Some(task);
        }
    }

    /// The connection has ended.
    pub(crate) fn remove(&self, number: u64) {
        if let Ok(mut open) = self.open.try_borrow_mut() {
            open.connections.remove(&number);
        }
    }

    /// Connections now open.
    pub(crate) fn len(&self) -> usize {
        self.open.try_borrow().map_or(0, |open| open.connections.len())
    }

    /// Asks connections to end when they can.
    pub(crate) fn drain(&self) {
        let Ok(mut open) = self.open.try_borrow_mut() else { return };
        open.draining = true;
        for RegisteredConnection { entry, .. } in open.connections.values() {
            entry.draining.store(true, Ordering::Relaxed);
            entry.waker.wake();
        }
    }

    /// Asks idle connections to end.
    pub(crate) fn shed_idle(&self) {
        let Ok(open) = self.open.try_borrow() else { return };
        for RegisteredConnection { entry, .. } in open.connections.values() {
            entry.shedding.store(true, Ordering::Relaxed);
            entry.waker.wake();
        }
    }

    /// Ends what is left.
    pub(crate) fn abort(&self) {
        self.abort_where(|_| true);
    }

    /// Ends connections that carry no stream.
    pub(crate) fn abort_exchanges(&self) {
        self.abort_where(|entry| entry.streams.load(Ordering::Relaxed) == 0);
    }

    fn abort_where(&self, is_meant: impl Fn(&ConnectionControl) -> bool) {
        let Ok(open) = self.open.try_borrow() else { return };
        let meant = open.connections.values().filter(|connection| is_meant(&connection.entry));
        meant.filter_map(|connection| connection.task.as_ref()).for_each(AbortHandle::abort);
    }
}
