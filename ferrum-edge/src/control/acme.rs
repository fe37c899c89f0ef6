//! Gets certificates from a CA and renews them (ACME, RFC 8555).
//!
//! What is got is a file like any other: it is written to the storage, and the watch for changed certificate files puts it in
//! use. Gateways that share a storage take turns by a lock; what one of them got is there for all.

mod bundle;
mod client;
mod error;
mod failure;
mod jose;
mod managed;
mod manager;
mod network;
mod order;
mod renewal;
pub(crate) mod storage;

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use gateway_core::config::model::{AcmeChallenge, Settings};

use tokio::task::JoinError;

use crate::engine::Engine;
use crate::export::AcmeCounts;
use error::AnswerError;
use manager::Manager;
use network::Network;
use storage::StoredChallenge;

/// What the rest of the gateway does for orders.
trait Surroundings: Send + Sync {
    /// What time it is.
    fn now(&self) -> SystemTime;

    /// Answers these challenges, and no others.
    fn answer(&self, challenges: &[StoredChallenge]) -> Result<(), AnswerError>;

    /// A certificate was stored.
    fn stored(&self);

    /// Whether nothing new is to be begun.
    fn is_ending(&self) -> bool;

    /// Where it is noted how certificates stand.
    fn counts(&self) -> &AcmeCounts;
}

impl Surroundings for Arc<Engine> {
    fn now(&self) -> SystemTime {
        self.clock.now()
    }

    fn answer(&self, challenges: &[StoredChallenge]) -> Result<(), AnswerError> {
        let of_kind = |kind: AcmeChallenge| challenges.iter().filter(move |one| one.kind == kind.as_str());
        let answers: HashMap<Box<str>, Box<str>> = of_kind(AcmeChallenge::Http01)
            .map(|one| (one.token.as_str().into(), one.authorization.as_str().into()))
            .collect();
        self.shared.challenges.replace(answers);
        let mut certificates = Vec::new();
        for one in of_kind(AcmeChallenge::TlsAlpn01) {
            let certificate = bundle::challenge(&one.name, &one.authorization)?;
            certificates.push((Box::from(one.name.as_str()), certificate));
        }
        Ok(self.frontend.challenges().replace(certificates)?)
    }

    fn stored(&self) {
        self.certificate_stored.notify_one();
    }

    fn is_ending(&self) -> bool {
        self.is_draining()
    }

    fn counts(&self) -> &AcmeCounts {
        &self.telemetry.control.acme
    }
}

/// Looks after the certificates of whatever configuration is in use, until the gateway ends.
///
/// # Errors
/// When a part of it panicked.
pub(super) async fn run(engine: Arc<Engine>) -> Result<(), JoinError> {
    // Requests to the CA are made on this runtime.
    gateway_protocols::calls::lend_beside(&engine.shared);
    let mut changes = engine.changes();
    loop {
        let settings = engine.snapshot().settings.clone();
        tokio::select! {
            ended = manage(&engine, &settings) => return ended,
            () = until(&mut changes, || differ(&settings, &engine.snapshot().settings)) => {}
        }
        engine.counts().statuses().clear();
        if let Err(error) = engine.answer(&[]) {
            tracing::warn!(%error, "challenges are still answered");
        }
    }
}

async fn manage(engine: &Arc<Engine>, settings: &Settings) -> Result<(), JoinError> {
    match &settings.acme {
        Some(rules) if settings.tls.certificates.iter().any(|files| files.acme.is_some()) => {
            let network = Arc::new(Network::new(engine.world(), rules.root_ca_path.clone()));
            Manager::new(Arc::new(engine.clone()), network, rules.clone(), &settings.tls.certificates)
                .run()
                .await
        }
        _ => std::future::pending().await,
    }
}

/// Waits until a change makes this true; for ever once there are no more.
async fn until(changes: &mut tokio::sync::watch::Receiver<u64>, is_true: impl Fn() -> bool) {
    loop {
        if is_true() {
            return;
        }
        if changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

fn differ(before: &Settings, after: &Settings) -> bool {
    before.acme != after.acme || before.tls.certificates != after.tls.certificates
}

/// Does what waits for a disk, where it holds nobody up.
fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Result<T, JoinError>> {
    tokio::task::spawn_blocking(work)
}

/// Seconds since 1970.
fn unix(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests;
