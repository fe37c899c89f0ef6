//! Counts the changes that wait for an approval, for metrics and status. They are no revisions, so nothing tells of those that other
//! gateways on the database make or decide: the count is taken again every 15 s, and after each one of this gateway.

use std::convert::Infallible;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Reconciler;

/// Between two counts.
const INTERVAL: Duration = Duration::from_secs(15);

/// Counts until the reconciler is gone.
pub(super) async fn run(reconciler: Weak<Reconciler>) -> Result<(), Infallible> {
    loop {
        let Some(this) = reconciler.upgrade() else { return Ok(()) };
        let changed = this.pending_changed.clone();
        this.count_pending().await;
        drop(this);
        tokio::select! {
            () = changed.notified() => {}
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

impl Reconciler {
    /// While the database does not answer, the last count stays.
    async fn count_pending(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        match self.store.pending_count(now).await {
            Ok(count) => self.engine.telemetry.control.changes_pending.store(count, Ordering::Relaxed),
            Err(error) => tracing::debug!(%error, "the changes that wait could not be counted"),
        }
    }

    /// The changes that waited when they were counted last.
    pub(crate) fn pending_changes(&self) -> u64 {
        self.engine.telemetry.control.changes_pending.load(Ordering::Relaxed)
    }
}
