//! The file in which is kept what callers have used.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::config::problem::Problems;
use gateway_core::plugin::World;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::world::tasks::TaskControl;

use super::table::Table;
use super::unix_now;

/// Where a table is kept.
pub(super) struct File {
    pub(super) world: World,
    pub(super) path: PathBuf,
    pub(super) every: Duration,
    pub(super) failed: Counter,
}

impl File {
    /// Has a table take over what the file says, where there is one.
    pub(super) fn read_into(&self, table: &Table, most_bytes: u64) -> Result<(), Problems> {
        let wrong = |why: String| {
            let mut problems = Problems::default();
            problems.add("config.path", format!("{} can't be used: {why}", self.path.display())).remedy =
                Some("move the file away to begin anew".into());
            problems
        };
        let bytes = match self.world.files().read(&self.path, most_bytes) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(wrong(error.to_string())),
        };
        table.read(&bytes, unix_now()).map_err(|bad| wrong(bad.to_string()))
    }

    /// Writes the file now and then, and once more at the end.
    ///
    /// # Errors
    /// The file can't be written; what is counted goes on in memory, and writing is tried again.
    pub(super) async fn keep(
        self: Arc<Self>,
        table: Arc<Table>,
        mut control: TaskControl,
    ) -> Result<(), String> {
        loop {
            let ended = tokio::select! {
                () = control.ended() => true,
                () = tokio::time::sleep(self.every) => false,
            };
            self.write(&table).await?;
            if ended {
                return Ok(());
            }
        }
    }

    async fn write(self: &Arc<Self>, table: &Arc<Table>) -> Result<(), String> {
        let (file, writing) = (self.clone(), table.clone());
        let work = move || match writing.changes(unix_now()) {
            Some(bytes) => file.world.files().replace(&file.path, &bytes),
            None => Ok(()),
        };
        match self.world.run_blocking(work).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                table.write_again();
                self.failed.add(1);
                Err(format!("{} can't be written: {error}", self.path.display()))
            }
            // With every thread busy, the next time is early enough.
            Err(_) => Ok(()),
        }
    }
}
