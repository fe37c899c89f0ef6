//! Keeps the usage of traffic quotas in the database, for plugins.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gateway_core::plugin::world::usage::{
    HistoryEntry, KeyUsage, UsageAnswer, UsageChange, UsageError, UsageStore,
};
use tokio::runtime::Handle;

use crate::store::{Store, StoreError};

/// Seconds between two times at which old usage is removed.
const PRUNE_EVERY: u64 = 3600;

/// The usage in the database. Plugins' tasks ask from another runtime; the connections stay on the one that opened the store.
pub(super) struct DatabaseUsage {
    store: Store,
    runtime: Handle,
    /// Names this run of the gateway in the database.
    gateway: Arc<str>,
    known_at_start: Option<HashMap<String, Vec<KeyUsage>>>,
    /// When old usage was removed last, in seconds since 1970.
    pruned: AtomicU64,
}

impl DatabaseUsage {
    /// Reads what was used so far. Has to be called on the runtime that keeps the store's connections.
    pub(super) async fn open(store: Store, now: u64) -> Self {
        let read = store.usage(now).await;
        let known_at_start = read
            .inspect_err(|error| tracing::warn!(%error, "the usage of traffic quotas can't be read yet"))
            .ok();
        let gateway = format!("{:032x}", fastrand::u128(..)).into();
        Self { store, runtime: Handle::current(), gateway, known_at_start, pruned: AtomicU64::new(0) }
    }

    fn run<'a, T: Send + 'static>(
        &'a self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> UsageAnswer<'a, T> {
        let work = self.runtime.spawn(work);
        Box::pin(async move {
            match work.await {
                Ok(answer) => answer.map_err(|error| UsageError::Database(error.into())),
                Err(_) => Err(UsageError::Ending),
            }
        })
    }
}

impl UsageStore for DatabaseUsage {
    fn known_at_start(&self, config: &str) -> Option<Vec<KeyUsage>> {
        let known = self.known_at_start.as_ref()?;
        Some(known.get(config).cloned().unwrap_or_default())
    }

    fn exchange<'a>(
        &'a self,
        config: &'a str,
        changes: Vec<UsageChange>,
        now: u64,
    ) -> UsageAnswer<'a, Vec<KeyUsage>> {
        let (store, config, gateway) = (self.store.clone(), config.to_owned(), self.gateway.clone());
        self.run(async move { store.exchange_usage(&config, &gateway, &changes, now).await })
    }

    fn add_history<'a>(
        &'a self,
        config: &'a str,
        entries: Vec<HistoryEntry>,
        now: u64,
    ) -> UsageAnswer<'a, ()> {
        let due = now.saturating_sub(self.pruned.load(Ordering::Relaxed)) >= PRUNE_EVERY;
        if due {
            self.pruned.store(now, Ordering::Relaxed);
        }
        let (store, config) = (self.store.clone(), config.to_owned());
        self.run(async move { store.add_usage_history(&config, &entries, due.then_some(now)).await })
    }

    fn history<'a>(&'a self, config: &'a str, limit: usize) -> UsageAnswer<'a, Vec<HistoryEntry>> {
        let (store, config) = (self.store.clone(), config.to_owned());
        self.run(async move { store.usage_history(&config, limit).await })
    }
}
