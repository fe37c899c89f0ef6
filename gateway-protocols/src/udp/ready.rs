//! The sockets that have something to read, out of very many.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll, ready};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use tokio::io::unix::AsyncFd;

/// An epoll set watched through its own descriptor.
pub(crate) struct ReadySet {
    set: AsyncFd<OwnedFd>,
}

/// Sockets looked at in one go.
const BATCH: usize = 128;

impl ReadySet {
    #[expect(deprecated, reason = "its successor is unsafe; an OwnedFd keeps the promise that one asks for")]
    pub(crate) fn new() -> io::Result<Self> {
        let set = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self { set: AsyncFd::new(set)? })
    }

    /// Watches a socket; `key` comes back when it can be read. Dropping the socket ends the watch.
    pub(crate) fn add(&self, socket: impl AsFd, key: u64) -> io::Result<()> {
        epoll::add(self.set.get_ref(), socket, EventData::new_u64(key), EventFlags::IN)?;
        Ok(())
    }

    /// The keys of some sockets that can be read; each comes again until it has been read empty.
    pub(crate) fn poll_ready(&self, cx: &mut Context<'_>, keys: &mut Vec<u64>) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.set.poll_read_ready(cx))?;
            let mut events = [const { MaybeUninit::<Event>::uninit() }; BATCH];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            let (events, _) = epoll::wait(guard.get_inner(), &mut events, Some(&now))?;
            if events.is_empty() {
                guard.clear_ready();
                continue;
            }
            keys.extend(events.iter().map(|event| event.data.u64()));
            return Poll::Ready(Ok(()));
        }
    }
}
