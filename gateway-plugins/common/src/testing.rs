//! What tests hand to plugins instead of a machine: files, other servers, and threads that do nothing until they are
//! allowed to.

pub mod net;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use gateway_core::plugin::World;
use gateway_core::plugin::world::blocking::{Blocking, Busy, Job};
use gateway_core::plugin::world::files::Files;
use gateway_core::plugin::world::meters::Meters;
use gateway_core::plugin::world::tasks::{Task, TaskControl, TaskName, Tasks};
use gateway_core::plugin::world::{Reach, Variables};

use net::Net;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A machine for one test.
#[derive(Clone, Default)]
pub struct Machine {
    pub files: Arc<Shelf>,
    pub net: Net,
    pub threads: Arc<Threads>,
    pub variables: Variables,
}

impl Machine {
    pub fn world(&self) -> World {
        World::new(Reach {
            gateway: "test".into(),
            calls: Arc::new(self.net.clone()),
            files: self.files.clone(),
            blocking: self.threads.clone(),
            meters: Meters::default(),
            variables: self.variables.clone(),
        })
    }
}

/// Files that a test changes.
#[derive(Default)]
pub struct Shelf(Mutex<HashMap<String, (u128, Bytes)>>, AtomicBool);

impl Shelf {
    /// Writes a file; each time it is newer than before.
    pub fn put(&self, path: &str, text: &str) {
        self.put_bytes(path, text.to_owned());
    }

    /// As [`Self::put`].
    pub fn put_bytes(&self, path: &str, bytes: impl Into<Bytes>) {
        let mut files = locked(&self.0);
        let version = files.get(path).map_or(1, |(version, _)| version + 1);
        files.insert(path.to_owned(), (version, bytes.into()));
    }

    /// Whether nothing can be written from now on.
    pub fn refuse(&self, refused: bool) {
        self.1.store(refused, Relaxed);
    }

    fn get(&self, path: &Path) -> io::Result<(u128, Bytes)> {
        let files = locked(&self.0);
        files.get(path.to_str().unwrap_or_default()).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Files for Shelf {
    fn read(&self, path: &Path, _limit: u64) -> io::Result<Bytes> {
        self.get(path).map(|(_, bytes)| bytes)
    }

    fn modified(&self, path: &Path) -> io::Result<u128> {
        self.get(path).map(|(version, _)| version)
    }

    fn list(&self, folder: &Path, limit: usize) -> io::Result<Vec<String>> {
        let files = locked(&self.0);
        let names = files.keys().filter_map(|path| Path::new(path).strip_prefix(folder).ok());
        let names = names.filter_map(|rest| Some(rest.iter().next()?.to_str()?.to_owned()));
        let names: std::collections::BTreeSet<String> = names.collect();
        match names.is_empty() {
            true => Err(io::ErrorKind::NotFound.into()),
            false => Ok(names.into_iter().take(limit).collect()),
        }
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        if self.1.load(Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.put_bytes(path.to_str().unwrap_or_default(), bytes.to_vec());
        Ok(())
    }
}

/// Threads for slow work: each piece is done at once, or kept until the test ends.
#[derive(Default)]
pub struct Threads {
    taken: AtomicUsize,
    busy: AtomicBool,
    kept: Mutex<Option<Vec<Job>>>,
}

impl Threads {
    /// From now on nothing is done.
    pub fn stop(&self) {
        *locked(&self.kept) = Some(Vec::new());
    }

    /// From now on all of them are busy.
    pub fn refuse(&self) {
        self.busy.store(true, Relaxed);
    }

    /// Does what was left undone, and everything from now on.
    pub fn go_on(&self) {
        let jobs = locked(&self.kept).take();
        jobs.into_iter().flatten().for_each(|job| job());
    }

    /// Pieces of work so far.
    pub fn taken(&self) -> usize {
        self.taken.load(Relaxed)
    }
}

impl Blocking for Threads {
    fn take(&self, job: Job) -> Result<(), Busy> {
        self.taken.fetch_add(1, Relaxed);
        if self.busy.load(Relaxed) {
            return Err(Busy);
        }
        match locked(&self.kept).as_mut() {
            Some(kept) => kept.push(job),
            None => job(),
        }
        Ok(())
    }
}

/// The value of a counter or gauge in whose line all of these words are; 0 where there is none.
pub fn metric(world: &World, name: &str, words: &[&str]) -> i64 {
    let text = world.meters().text();
    let is_it = |line: &&str| line.starts_with(name) && words.iter().all(|word| line.contains(word));
    text.lines().find(is_it).and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

/// Runs plugins' tasks beside a test.
pub struct Beside;

impl Tasks for Beside {
    fn run(&self, _name: TaskName, mut task: Task, control: TaskControl) {
        drop(tokio::spawn(async move {
            if let Err(why) = task(control).await {
                panic!("a task failed: {why}");
            }
        }));
    }
}

/// Waits until this holds, for half a minute of real time.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    until_async(what, async || holds()).await;
}

/// As [`until`].
pub async fn until_async(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let mut ticks = tokio::time::interval(std::time::Duration::from_millis(5));
    while !holds().await {
        assert!(std::time::Instant::now() < deadline, "{what}: not within half a minute");
        ticks.tick().await;
    }
}

/// A folder of a test, removed with it.
pub struct Folder(pub PathBuf);

impl Default for Folder {
    fn default() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("ferrum-plugins-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }
}

impl Folder {
    /// All files in it, and in its folders.
    pub fn files(&self) -> Vec<PathBuf> {
        let (mut files, mut folders) = (Vec::new(), vec![self.0.clone()]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
                let path = entry.path();
                if path.is_dir() { folders.push(path) } else { files.push(path) }
            }
        }
        files
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}
