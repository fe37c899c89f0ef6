//! The file that keeps the usage across restarts.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::config::problem::Problems;
use gateway_core::plugin::World;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::world::tasks::TaskControl;
use serde::{Deserialize, Serialize};

use super::accounts::{Accounts, Saved};
use super::unix_now;

/// Bytes of the largest file that is read.
const MOST_BYTES: u64 = 1 << 30;
/// The version of the format.
const VERSION: u32 = 1;

/// Where the accounts are kept.
pub(super) struct StateFile {
    pub(super) world: World,
    pub(super) path: PathBuf,
    pub(super) every: Duration,
    pub(super) failed: Counter,
}

#[derive(Serialize, Deserialize)]
struct Content {
    version: u32,
    /// Whether the gateway ended in order after this was written.
    in_order: bool,
    accounts: Vec<Saved>,
}

impl StateFile {
    /// Has the accounts take over what the file says, where there is one.
    pub(super) fn read_into(&self, accounts: &Accounts) -> Result<(), Problems> {
        let wrong = |why: String| {
            let mut problems = Problems::default();
            problems.add("config.path", format!("{} can't be used: {why}", self.path.display())).remedy =
                Some("move the file away to begin anew".into());
            problems
        };
        let bytes = match self.world.files().read(&self.path, MOST_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(wrong(error.to_string())),
        };
        let content: Content = serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
        if content.version != VERSION {
            return Err(wrong(format!("its version is {}, not {VERSION}", content.version)));
        }
        accounts.restore(content.accounts, content.in_order, unix_now());
        Ok(())
    }

    /// Lets time go by for the accounts, and writes the file where something has changed and once more at the end.
    ///
    /// # Errors
    /// The file can't be written; what is counted goes on in memory, and writing is tried again.
    pub(super) async fn keep(
        self: Arc<Self>,
        accounts: Arc<Accounts>,
        mut control: TaskControl,
    ) -> Result<(), String> {
        loop {
            let ended = tokio::select! {
                () = control.ended() => true,
                () = tokio::time::sleep(self.every) => false,
            };
            accounts.turn(unix_now());
            self.write(&accounts, ended).await?;
            if ended {
                return Ok(());
            }
        }
    }

    async fn write(self: &Arc<Self>, accounts: &Arc<Accounts>, ended: bool) -> Result<(), String> {
        let Some(saved) = accounts.save(ended) else { return Ok(()) };
        let file = self.clone();
        let work = move || {
            let content = Content { version: VERSION, in_order: ended, accounts: saved };
            let bytes = serde_json::to_vec(&content).map_err(std::io::Error::from)?;
            file.world.files().replace(&file.path, &bytes)
        };
        match self.world.run_blocking(work).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                accounts.save_again();
                self.failed.add(1);
                Err(format!("{} can't be written: {error}", self.path.display()))
            }
            Err(_) => {
                // With every thread busy, the next time is early enough.
                accounts.save_again();
                Ok(())
            }
        }
    }
}
