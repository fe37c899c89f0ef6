//! Tries ports of stream proxies again that other programs use.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::Engine;

/// How often.
const EVERY: Duration = Duration::from_secs(5);

/// Runs until the gateway ends.
///
/// # Errors
/// Never.
pub(super) async fn run(engine: Arc<Engine>) -> Result<(), Infallible> {
    loop {
        tokio::time::sleep(EVERY).await;
        if !engine.streams.failed().is_empty() {
            let with = engine.clone();
            // Whoever applies a configuration may hold it up.
            drop(tokio::task::spawn_blocking(move || with.retry_ports()).await);
        }
    }
}
