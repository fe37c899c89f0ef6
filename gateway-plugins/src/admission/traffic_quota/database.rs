//! Quotas in the database of the configuration: every second, a gateway adds its usage and reads that of all gateways.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gateway_core::plugin::world::tasks::{TaskControl, TaskError};
use gateway_core::plugin::world::usage::{UsageError, UsageStore};
use tokio::sync::{Mutex, Notify};

use super::accounts::Accounts;
use super::unix_now;

/// How often the database is asked.
const EVERY: Duration = Duration::from_secs(1);
/// Entries of the history that are read at start.
const MAX_HISTORY: usize = 2_000_000;

/// The quotas of one plugin config. Outlives changes of its settings.
pub(super) struct StoredAccounts {
    store: Arc<dyn UsageStore>,
    config: Box<str>,
    /// Held by the task that exchanges: of two, both would tell of the same bytes.
    turn: Mutex<()>,
    wake: Notify,
    has_begun: AtomicBool,
    /// The usage of all gateways has been read since the start.
    is_known: AtomicBool,
    knows_history: AtomicBool,
}

impl StoredAccounts {
    pub(super) fn new(store: Arc<dyn UsageStore>, config: &str) -> Self {
        Self {
            store,
            config: config.into(),
            turn: Mutex::default(),
            wake: Notify::new(),
            has_begun: AtomicBool::new(false),
            is_known: AtomicBool::new(false),
            knows_history: AtomicBool::new(false),
        }
    }

    /// Takes over what was used before the gateway started, once. If the database did not answer then, nothing passes until it does.
    pub(super) fn begin(&self, accounts: &Accounts) {
        if self.has_begun.swap(true, Ordering::Relaxed) {
            return;
        }
        let known = self.store.known_at_start(&self.config);
        if known.is_none() {
            accounts.set_limit(Some(0));
        }
        self.is_known.store(known.is_some(), Ordering::Relaxed);
        accounts.begin_storing(known.unwrap_or_default(), unix_now());
    }

    /// Exchanges soon: a key was reset.
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Exchanges for as long as the plugin is in use, and once more at the end.
    ///
    /// # Errors
    /// The last usage could not be stored.
    pub(super) async fn keep(
        self: Arc<Self>,
        accounts: Arc<Accounts>,
        mut control: TaskControl,
    ) -> Result<(), TaskError> {
        let _turn = tokio::select! {
            turn = self.turn.lock() => turn,
            () = control.ended() => return Ok(()),
        };
        let mut is_last = control.is_ended();
        loop {
            accounts.advance(unix_now());
            let exchanged = self.exchange(&accounts, is_last).await;
            match &exchanged {
                Ok(()) => control.health().works(),
                Err(why) => control.health().fails(&format!("the database does not store usage: {why}")),
            }
            if is_last {
                return Ok(exchanged?);
            }
            tokio::select! {
                () = control.ended() => is_last = true,
                () = tokio::time::sleep(EVERY) => {}
                () = self.wake.notified() => {}
            }
        }
    }

    async fn exchange(&self, accounts: &Accounts, is_last: bool) -> Result<(), UsageError> {
        let changes = accounts.changes(is_last);
        match self.store.exchange(&self.config, changes.clone(), unix_now()).await {
            Ok(usage) => {
                let is_first = !self.is_known.swap(true, Ordering::Relaxed);
                accounts.settle(&changes, &usage, is_first, unix_now());
                if is_first {
                    accounts.set_limit(None);
                }
            }
            Err(why) => {
                accounts.keep_changes(&changes);
                return Err(why);
            }
        }
        if !self.knows_history.load(Ordering::Relaxed) {
            let history = self.store.history(&self.config, MAX_HISTORY).await?;
            accounts.learn_history(history, unix_now());
            self.knows_history.store(true, Ordering::Relaxed);
        }
        let history = accounts.take_history(is_last, unix_now());
        if history.is_empty() {
            return Ok(());
        }
        let stored = self.store.add_history(&self.config, history.clone(), unix_now()).await;
        if stored.is_err() {
            accounts.keep_history(history);
        }
        stored
    }
}
