//! A file that keeps what a plugin has counted across restarts.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::config::problem::Problems;
use gateway_core::plugin::World;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::world::tasks::TaskControl;

/// What a [`UsageFile`] keeps.
pub(crate) trait Kept: Send + Sync + 'static {
    /// Takes over the contents of the file.
    ///
    /// # Errors
    /// What is wrong with them.
    fn restore(&self, bytes: &[u8]) -> Result<(), String>;

    /// Called before each write, also where nothing has changed.
    fn before_write(&self) {}

    /// The new contents; `None` where nothing has changed. `is_last` is true when the gateway ends in order.
    fn contents(&self, is_last: bool) -> Option<io::Result<Vec<u8>>>;

    /// The contents could not be written: the next call returns them again.
    fn write_again(&self);
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
    /// Restores what the file contains, where there is one.
    pub(crate) fn read_into(&self, kept: &impl Kept, most_bytes: u64) -> Result<(), Problems> {
        let restored = match self.world.files().read(&self.path, most_bytes) {
            Ok(bytes) => kept.restore(&bytes),
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
    ) -> Result<(), String> {
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

    async fn write<K: Kept>(self: &Arc<Self>, kept: &Arc<K>, is_last: bool) -> Result<(), String> {
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
                Err(format!("{} can't be written: {error}", self.path.display()))
            }
            // With every thread busy, the next time is early enough.
            Err(_) => Ok(()),
        }
    }
}
