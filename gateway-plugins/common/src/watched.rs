//! Files that a plugin reads when it is built, and again whenever they change.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use gateway_core::config::problem::Problems;
use gateway_core::plugin::World;
use gateway_core::plugin::world::tasks::{TaskControl, TaskError};

/// Calls `refresh` on a thread for slow work now and then, for as long as the plugin is in use.
///
/// # Errors
/// The first that `refresh` has.
pub async fn refresh_regularly<E>(
    world: &World,
    every: Duration,
    mut control: TaskControl,
    refresh: impl Fn() -> Result<(), E> + Send + Sync + 'static,
) -> Result<(), TaskError>
where
    E: Into<TaskError> + Send + 'static,
{
    let refresh = Arc::new(refresh);
    loop {
        tokio::select! {
            () = control.ended() => return Ok(()),
            () = tokio::time::sleep(every) => {}
        }
        let refresh = refresh.clone();
        // With every thread busy, the next time is early enough.
        if let Ok(done) = world.run_blocking(move || refresh()).await {
            done.map_err(Into::into)?;
        }
    }
}

/// What some files say together.
pub struct Watched<T> {
    world: World,
    paths: Vec<PathBuf>,
    max_bytes: u64,
    merge: Merge<T>,
    now: ArcSwap<Read<T>>,
}

/// Adds what a file has.
type Merge<T> = Box<dyn Fn(&mut T, &[u8]) -> Result<(), MergeError> + Send + Sync>;
/// What a plugin says of a file that it can't use.
type MergeError = Box<dyn Error + Send + Sync>;

/// Why a file can't be used.
#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error(transparent)]
    Read(#[from] io::Error),
    #[error(transparent)]
    Merge(#[from] MergeError),
}

/// What was read, and how old the files were.
struct Read<T> {
    value: Arc<T>,
    modified: Vec<u128>,
}

impl<T: Default + Send + Sync + 'static> Watched<T> {
    /// Reads these files, each of at most `max_bytes`, in their order; `merge` adds what one has. `place` is the setting
    /// that names them.
    ///
    /// # Errors
    /// Every file that can't be used.
    pub fn new<E: Error + Send + Sync + 'static>(
        world: &World,
        place: &str,
        paths: Vec<PathBuf>,
        max_bytes: u64,
        merge: impl Fn(&mut T, &[u8]) -> Result<(), E> + Send + Sync + 'static,
    ) -> Result<Self, Problems> {
        let merge = move |to: &mut T, bytes: &[u8]| merge(to, bytes).map_err(MergeError::from);
        let (world, merge) = (world.clone(), Box::new(merge));
        let first = Read { value: Arc::new(T::default()), modified: Vec::new() };
        let files = Self { world, paths, max_bytes, merge, now: ArcSwap::from_pointee(first) };
        files.now.store(Arc::new(files.read(place)?));
        Ok(files)
    }

    /// What the files said when they were last read.
    pub fn get(&self) -> Arc<T> {
        self.now.load().value.clone()
    }

    /// Whether there are no files at all.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    fn read(&self, place: &str) -> Result<Read<T>, Problems> {
        let mut problems = Problems::default();
        let mut value = T::default();
        let mut modified = Vec::new();
        for (n, path) in self.paths.iter().enumerate() {
            // Asked before it is read: a change while it is read is seen the next time.
            modified.push(self.world.files().modified(path).unwrap_or(0));
            if let Err(why) = self.add(path, &mut value) {
                problems.add(format!("{place}[{n}]"), format!("{} can't be used: {why}", path.display()));
            }
        }
        problems.into_result(Read { value: Arc::new(value), modified })
    }

    /// Adds what one file has.
    fn add(&self, path: &Path, value: &mut T) -> Result<(), FileError> {
        let bytes = self.world.settings_file(path, self.max_bytes)?;
        Ok((self.merge)(value, &bytes)?)
    }

    /// Looks at the files now and then, for as long as the plugin is in use, and reads them when one has changed.
    ///
    /// # Errors
    /// Files that can't be used any more; what was read before stays in force.
    pub async fn keep_fresh(self: Arc<Self>, every: Duration, control: TaskControl) -> Result<(), TaskError> {
        let world = self.world.clone();
        refresh_regularly(&world, every, control, move || self.refresh()).await
    }

    fn refresh(&self) -> Result<(), Problems> {
        let modified: Vec<u128> =
            self.paths.iter().map(|path| self.world.files().modified(path).unwrap_or(0)).collect();
        if modified != self.now.load().modified {
            self.now.store(Arc::new(self.read("file")?));
        }
        Ok(())
    }
}
