//! A file that keeps what a plugin has counted across restarts.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gateway_core::config::problem::Problems;
use gateway_core::plugin::World;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::world::tasks::{TaskControl, TaskError};
use thiserror::Error;

/// What a [`UsageFile`] keeps.
pub(crate) trait Kept: Send + Sync + 'static {
    /// What is wrong with a file's contents.
    type Unusable: Display;

    /// Takes over the contents of the file.
    ///
    /// # Errors
    /// What is wrong with them.
    fn restore(&self, bytes: &[u8]) -> Result<(), Self::Unusable>;

    /// Called before each write, also where nothing has changed.
    fn before_write(&self) {}

    /// The new contents; `None` where nothing has changed. `is_last` is true when the gateway ends in order.
    fn contents(&self, is_last: bool) -> Option<io::Result<Vec<u8>>>;

    /// The contents could not be written: the next call returns them again.
    fn write_again(&self);
}

/// Why the file was not written.
#[derive(Debug, Error)]
#[error("{} can't be written: {error}", .path.display())]
struct UsageFileError {
    path: PathBuf,
    error: io::Error,
}

/// The file, and how often it is written.
pub(crate) struct UsageFile {
    pub(crate) world: World,
    pub(crate) path: PathBuf,
    pub(crate) every: Duration,
    /// Counts failures to write it.
    pub(crate) failed: Counter,
}

impl UsageFile {
    /// Refuses a folder that is not there and can't be made, since the folder above it is not there either: what is counted could
    /// never be kept.
    pub(crate) fn check_folder(&self, world: &World) -> Result<(), Problems> {
        let is_missing = |folder: &Path| {
            let listed = world.files().list(folder, 1);
            listed.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        let Some(folder) = self.path.parent() else { return Ok(()) };
        // Of a relative folder without another above it that is where the gateway was started.
        let above = folder.parent().filter(|above| !above.as_os_str().is_empty());
        let above = above.unwrap_or_else(|| Path::new("."));
        // A program may be without files at all.
        if is_missing(Path::new("/")) || !is_missing(folder) || !is_missing(above) {
            return Ok(());
        }
        let mut problems = Problems::default();
        problems.add("config.path", format!("there is no folder {}", above.display())).remedy =
            Some("make it, and let the gateway's user write there".into());
        Err(problems)
    }

    /// Restores what the file contains, where there is one.
    pub(crate) fn read_into(&self, kept: &impl Kept, most_bytes: u64) -> Result<(), Problems> {
        let restored = match self.world.files().read(&self.path, most_bytes) {
            Ok(bytes) => kept.restore(&bytes).map_err(|unusable| unusable.to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => Err(error.to_string()),
        };
        restored.map_err(|why| {
            let mut problems = Problems::default();
            problems.add("config.path", format!("{} can't be used: {why}", self.path.display())).remedy =
                Some("move the file away to begin anew".into());
            problems
        })
    }

    /// Writes the file again and again where its contents have changed, and once more at the end.
    ///
    /// # Errors
    /// The file can't be written; what is counted goes on in memory, and writing is tried again.
    pub(crate) async fn keep<K: Kept>(
        self: Arc<Self>,
        kept: Arc<K>,
        mut control: TaskControl,
    ) -> Result<(), TaskError> {
        loop {
            let is_last = tokio::select! {
                () = control.ended() => true,
                () = tokio::time::sleep(self.every) => false,
            };
            kept.before_write();
            self.write(&kept, is_last).await?;
            if is_last {
                return Ok(());
            }
        }
    }

    async fn write<K: Kept>(self: &Arc<Self>, kept: &Arc<K>, is_last: bool) -> Result<(), UsageFileError> {
        let (file, writing) = (self.clone(), kept.clone());
        let work = move || match writing.contents(is_last) {
            Some(bytes) => file.world.files().replace(&file.path, &bytes?),
            None => Ok(()),
        };
        match self.world.run_blocking(work).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                kept.write_again();
                self.failed.add(1);
                Err(UsageFileError { path: self.path.clone(), error })
            }
            // With every thread busy, the next time is early enough.
            Err(_) => Ok(()),
        }
    }
}
