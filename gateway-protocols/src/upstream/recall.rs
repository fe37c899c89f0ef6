//! Kept connections make room where a target may have only so many, and others wait for one.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use gateway_core::balance::KeptConnections;
use tokio::sync::watch;

use super::{Inner, Pools};

/// Tells all threads of a gateway that keep connections that one is wanted somewhere.
#[derive(Debug)]
pub(crate) struct Recall(watch::Sender<()>);

impl Default for Recall {
    fn default() -> Self {
        Self(watch::channel(()).0)
    }
}

impl Recall {
    /// One is wanted.
    pub(super) fn ask(&self) {
        self.0.send_replace(());
    }
}

impl Inner {
    /// Notes that connections of this pool are counted. From the first on, this thread gives up such ones when asked.
    pub(super) fn note_counted(self: &Arc<Self>, key: u64, kept: Option<KeptConnections>) {
        let Some(kept) = kept else { return };
        if let Ok(mut pools) = self.pools.try_borrow_mut() {
            let kept = pools.counted.entry(key).or_insert(kept);
            if kept.is_wanted() {
                // A connection that is shared from now on may be the one that others wait for.
                self.dialler.recall.ask();
            }
        }
        if self.gives_up.swap(true, Relaxed) {
            return;
        }
        let (inner, mut asked) = (Arc::downgrade(self), self.dialler.recall.0.subscribe());
        asked.mark_changed();
        tokio::spawn(async move {
            while asked.changed().await.is_ok() {
                let Some(inner) = inner.upgrade() else { return };
                let pools = inner.pools.try_borrow_mut();
                if let Ok(mut pools) = pools {
                    pools.give_up();
                }
            }
        });
    }
}

impl Pools {
    /// Closes connections that others wait for: idle ones first, then the shared ones with the fewest exchanges, which end
    /// before they close.
    fn give_up(&mut self) {
        let counted = std::mem::take(&mut self.counted);
        for (key, kept) in &counted {
            while self.keeps(*key) && kept.give_up() {
                self.close_one(*key);
            }
        }
        self.counted = counted;
    }

    fn close_one(&mut self, key: u64) {
        if let Some(oldest) = self.idle.take_oldest(key) {
            drop(oldest);
        } else if let Some(shared) = self.multiplex.take_least_busy(key) {
            drop(shared);
        } else if let Some(several) = self.quic.get_mut(&key).filter(|several| !several.is_empty()) {
            let loads = several.iter().enumerate().map(|(at, kept)| (kept.connection.load(), at));
            if let Some((_, at)) = loads.min() {
                drop(several.swap_remove(at));
            }
        } else {
            self.forget_alternative(key);
        }
    }

    fn keeps(&self, key: u64) -> bool {
        self.idle.count(key) > 0
            || self.multiplex.count(key) > 0
            || self.quic.get(&key).is_some_and(|several| !several.is_empty())
            || self.has_alternative(key)
    }

    /// Forgets the counts of pools without connections.
    pub(super) fn sweep_counted(&mut self) {
        let mut counted = std::mem::take(&mut self.counted);
        counted.retain(|key, _| self.keeps(*key));
        self.counted = counted;
    }
}
