//! Who is let in at the admin listener: connections that ask nothing starve nobody, and health is always answered.
//!
//! Connections are not limited by those who hold them: when there are too many, the oldest that is not being answered is
//! closed for the new one. Requests are limited; those for health need no place. A few file descriptors are kept free,
//! so that health is answered when the process has run out of them.

use std::collections::BTreeMap;
use std::fs::File;
use std::future::Future;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::SocketFlags;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use super::listener::{Accepted, Listener};

/// Where health is asked for: always answered, whoever else keeps the listener busy.
pub(super) const HEALTH_PATHS: [&str; 4] = ["/livez", "/healthz", "/readyz", "/startupz"];
/// Connections at a time.
const MAX_CONNECTIONS: usize = 512;
/// Requests answered at a time, save those for health; more wait.
const MAX_REQUESTS: usize = 64;
/// How long a request waits for a place.
const PLACE_TIMEOUT: Duration = Duration::from_secs(5);
/// File descriptors kept free.
const SPARE_DESCRIPTORS: usize = 8;

/// The door of one listener.
pub(super) struct Door {
    visitors: Mutex<Visitors>,
    places: Semaphore,
    spare: Mutex<Vec<File>>,
}

#[derive(Default)]
struct Visitors {
    /// By age.
    open: BTreeMap<u64, Arc<Visitor>>,
    next: u64,
}

/// One connection.
#[derive(Default)]
struct Visitor {
    /// A request of it is being answered.
    is_served: AtomicBool,
    /// It has to go.
    leave: Notify,
}

/// A connection's entry; gone when it is dropped.
pub(super) struct AdminSession {
    door: Arc<Door>,
    number: u64,
    visitor: Arc<Visitor>,
}

/// A request being answered.
pub(super) struct Served<'v> {
    visitor: &'v Visitor,
    _place: Option<SemaphorePermit<'v>>,
}

impl Door {
    pub(super) fn new() -> Arc<Self> {
        let door = Self {
            visitors: Mutex::default(),
            places: Semaphore::new(MAX_REQUESTS),
            spare: Mutex::default(),
        };
        door.save();
        Arc::new(door)
    }

    /// The next connection. When descriptors have run out, a spare one makes room for it.
    pub(super) async fn accept(&self, listener: &Listener) -> io::Result<Accepted> {
        self.save();
        match listener.accept().await {
            Err(error) if is_exhausted(&error) => self.accept_with_spare(listener, error),
            accepted => accepted,
        }
    }

    /// Other listeners of this process want the descriptor, too: between close and accept there is nothing else.
    fn accept_with_spare(&self, listener: &Listener, mut error: io::Error) -> io::Result<Accepted> {
        let mut spare = lock(&self.spare);
        while let Some(file) = spare.pop() {
            drop(file);
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match rustix::net::accept_with(listener.as_fd(), flags) {
                Ok(accepted) => return listener.adopt(accepted),
                Err(Errno::MFILE | Errno::NFILE) => error = Errno::MFILE.into(),
                Err(other) => return Err(other.into()),
            }
        }
        Err(error)
    }

    /// Takes descriptors back that were given away, as far as there are any.
    fn save(&self) {
        let mut spare = lock(&self.spare);
        while spare.len() < SPARE_DESCRIPTORS {
            let Ok(file) = File::open("/dev/null") else { return };
            spare.push(file);
        }
    }

    /// Lets a connection in; the oldest one that waits goes for it when there are too many.
    pub(super) fn enter(self: &Arc<Self>) -> AdminSession {
        let visitor = Arc::new(Visitor::default());
        let mut visitors = lock(&self.visitors);
        if visitors.open.len() >= MAX_CONNECTIONS {
            let mut waiting = visitors.open.iter();
            let oldest = waiting.find(|(_, visitor)| !visitor.is_served.load(Ordering::Relaxed));
            let oldest = oldest.map(|(number, _)| *number);
            if let Some(gone) = oldest.and_then(|number| visitors.open.remove(&number)) {
                gone.leave.notify_one();
            }
        }
        let number = visitors.next;
        visitors.next += 1;
        visitors.open.insert(number, visitor.clone());
        AdminSession { door: self.clone(), number, visitor }
    }
}

impl AdminSession {
    /// Serves the connection to its end, or until it has to go for another one.
    pub(super) async fn during<T>(&self, serving: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            served = serving => Some(served),
            () = self.visitor.leave.notified() => None,
        }
    }

    /// A place for a request for `path`; those for health need none. `None` when there was none for too long.
    pub(super) async fn serve(&self, path: &str) -> Option<Served<'_>> {
        let place = match HEALTH_PATHS.contains(&path) {
            true => None,
            false => {
                let place = tokio::time::timeout(PLACE_TIMEOUT, self.door.places.acquire());
                Some(place.await.ok()?.ok()?)
            }
        };
        self.visitor.is_served.store(true, Ordering::Relaxed);
        Some(Served { visitor: &self.visitor, _place: place })
    }
}

impl Drop for AdminSession {
    fn drop(&mut self) {
        lock(&self.door.visitors).open.remove(&self.number);
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        self.visitor.is_served.store(false, Ordering::Relaxed);
    }
}

fn is_exhausted(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn health_needs_no_place_and_others_wait_only_so_long() {
        let door = Door::new();
        let visit = door.enter();
        let mut served = Vec::new();
        for _ in 0..MAX_REQUESTS {
            served.push(visit.serve("/v1/status").await.unwrap());
        }
        assert!(visit.serve("/v1/status").await.is_none());
        assert!(visit.serve("/livez").now_or_never().flatten().is_some());
        served.pop();
        assert!(visit.serve("/v1/status").await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_that_asks_nothing_goes_for_a_new_one() {
        let door = Door::new();
        let visits: Vec<_> = (0..MAX_CONNECTIONS).map(|_| door.enter()).collect();
        let served = visits[0].serve("/v1/status").await;
        let new = door.enter();
        let stays =
            |visit: &AdminSession| visit.during(std::future::pending::<()>()).now_or_never().is_none();
        assert!(stays(&visits[0]) && !stays(&visits[1]) && stays(&visits[2]) && stays(&new));
        drop(served);
        drop(visits);
        assert_eq!(lock(&door.visitors).open.len(), 1);
    }
}
