//! The last good configuration on an edge's disk: encrypted by the edge's key, and checked by its hash when it is read.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use gateway_fleet::{Configuration, SealError, open_configuration, seal_configuration};
use tokio::sync::watch;
use tokio::time::timeout;

use super::error::StateError;
use super::identity::replace;
use super::standing::SharedStanding;

/// Between two writes; only the newest configuration is written.
const PAUSE: Duration = Duration::from_millis(200);
/// Before a write that failed is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// The file.
#[derive(Clone)]
pub(super) struct LastGood {
    path: PathBuf,
    key: [u8; 32],
}

/// A configuration with the keys for its secrets.
pub(super) type KeptConfiguration = (Configuration, String);

impl LastGood {
    pub(super) const fn new(path: PathBuf, key: [u8; 32]) -> Self {
        Self { path, key }
    }

    /// What is there; `None` when there is nothing.
    ///
    /// # Errors
    /// When it is damaged, or another edge's.
    pub(super) fn read(&self) -> Result<Option<KeptConfiguration>, StateError> {
        match fs::read(&self.path) {
            Ok(bytes) => open_configuration(&bytes, &self.key).map(Some).map_err(|error| self.failed(error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StateError::of(&self.path, "read")(error)),
        }
    }

    fn failed(&self, error: SealError) -> StateError {
        StateError::Sealed { path: self.path.clone(), error }
    }

    /// Writes the first configuration before it is served. An edge that can't keep it serves all the same.
    pub(super) async fn keep_first(&self, kept: KeptConfiguration) {
        let file = self.clone();
        if let Some(error) = file.write_beside(kept).await {
            tracing::error!(error, "the first configuration could not be kept");
        }
    }

    fn write(&self, (configuration, keys): &KeptConfiguration) -> Result<(), StateError> {
        let sealed =
            seal_configuration(configuration, keys, &self.key).map_err(|error| self.failed(error))?;
        replace(&self.path, &sealed).map_err(StateError::of(&self.path, "written"))
    }

    /// Writes on a thread for slow work. Returns why it could not.
    async fn write_beside(self, kept: KeptConfiguration) -> Option<String> {
        match tokio::task::spawn_blocking(move || self.write(&kept)).await {
            Ok(written) => written.err().map(|error| error.to_string()),
            Err(panicked) => Some(panicked.to_string()),
        }
    }

    /// Writes what comes until the sender is gone, and tries again what could not be written.
    pub(super) async fn keep(
        self,
        mut newest: watch::Receiver<Option<KeptConfiguration>>,
        standing: SharedStanding,
    ) {
        let mut unsaved: Option<String> = None;
        loop {
            let changed = match unsaved {
                Some(_) => timeout(RETRY, newest.changed()).await.unwrap_or(Ok(())),
                None => newest.changed().await,
            };
            if changed.is_err() {
                return;
            }
            let Some(kept) = newest.borrow_and_update().clone() else { continue };
            let (file, position) = (self.clone(), kept.0.position.clone());
            let problem = file.write_beside(kept).await;
            match &problem {
                Some(error) if problem != unsaved => tracing::error!(
                    error,
                    "the last good configuration could not be kept, and is tried again; a restart without a control plane \
                     would begin with an older one"
                ),
                None if unsaved.is_some() => tracing::info!("the last good configuration is kept again"),
                _ => {}
            }
            standing.set(|standing| {
                if problem.is_none() {
                    standing.kept = Some(position);
                }
                standing.unsaved.clone_from(&problem);
            });
            unsaved = problem;
            tokio::time::sleep(PAUSE).await;
        }
    }
}
