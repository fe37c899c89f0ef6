//! A few kept connections. A connection goes back only after all that was asked of it has ended well; whatever else
//! happens, a timeout or a dropped future among it, it is closed, and the next one asked for is new.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::link::failure::Failure;
use super::link::{StoreConnection, sqlite};
use super::location::Location;
use super::{Options, StoreError, schema};

/// Connections for one purpose.
pub(super) struct Pool {
    pub(super) location: Location,
    pub(super) options: Options,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<IdleConnection>>,
    /// Whether the file was looked through for damage.
    examined: AtomicBool,
}

struct IdleConnection {
    link: StoreConnection,
    file: Option<(u64, u64)>,
}

/// A connection in use.
pub(super) struct Lease {
    kept: Option<IdleConnection>,
    pool: Arc<Pool>,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    pub(super) fn new(location: Location, options: Options, size: usize) -> Arc<Self> {
        let permits = Arc::new(Semaphore::new(size.max(1)));
        Arc::new(Self {
            location,
            options,
            permits,
            idle: Mutex::default(),
            examined: AtomicBool::new(false),
        })
    }

    /// A connection on which `opening` has been carried out: the transaction is open. A kept connection that turns out
    /// to be dead is replaced by a new one, once.
    pub(super) async fn open(
        self: &Arc<Self>,
        opening: &[String],
        wait_limit: Duration,
    ) -> Result<Lease, Failure> {
        let permit = Arc::clone(&self.permits).acquire_owned();
        let Ok(Ok(permit)) = timeout(wait_limit, permit).await else {
            return Err(Failure::Crowded(wait_limit));
        };
        let mut lease = Lease { kept: None, pool: Arc::clone(self), _permit: permit };
        if let Some(kept) = self.kept() {
            let link = &mut lease.kept.insert(kept).link;
            match carry_out(link, opening).await {
                Ok(()) => return Ok(lease),
                Err(failure) if failure.is_stale() => self.forget(),
                Err(failure) => return Err(failure),
            }
        }
        let file = self.location.path().and_then(sqlite::identity);
        let mut link = StoreConnection::connect(&self.location, &self.options).await?;
        if !self.examined.load(Ordering::Acquire) {
            link.check_session(&self.location).await?;
        }
        schema::check(&mut link, &self.location).await?;
        if !self.examined.load(Ordering::Acquire) {
            schema::examine(&mut link, &self.location).await?;
            self.examined.store(true, Ordering::Release);
        }
        carry_out(&mut link, opening).await?;
        lease.kept = Some(IdleConnection { link, file });
        Ok(lease)
    }

    /// A kept connection; to the file that is there now, not to one that it has replaced.
    fn kept(&self) -> Option<IdleConnection> {
        let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        match self.location.path() {
            Some(path) if kept.file.is_none() || kept.file != sqlite::identity(path) => {
                self.forget();
                None
            }
            _ => Some(kept),
        }
    }

    /// Closes all that is kept.
    fn forget(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

async fn carry_out(link: &mut StoreConnection, opening: &[String]) -> Result<(), Failure> {
    for sql in opening {
        link.script(sql).await?;
    }
    Ok(())
}

impl Lease {
    /// The connection. There always is one until the lease ends.
    pub(super) fn link(&mut self) -> Result<&mut StoreConnection, Failure> {
        self.kept.as_mut().map(|kept| &mut kept.link).ok_or(Failure::Said(StoreError::Broken))
    }

    /// Gives the connection back after `work` if that was well, and ends its transaction before by `ending`.
    pub(super) async fn end<T>(mut self, work: Result<T, Failure>, ending: &str) -> Result<T, StoreError> {
        let value = work.map_err(|failure| failure.told(&self.pool.location))?;
        if let Some(mut kept) = self.kept.take()
            && kept.link.script(ending).await.is_ok()
        {
            self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
        }
        Ok(value)
    }

    /// Carries out `ending`, which decides, and then gives the connection back.
    pub(super) async fn settle(mut self, ending: &str) -> Result<(), Failure> {
        if let Some(mut kept) = self.kept.take() {
            kept.link.script(ending).await?;
            self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
        }
        Ok(())
    }
}
