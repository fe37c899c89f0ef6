//! Stored responses in files, which survive a restart.
//!
//! An index in memory says what there is, so that a worker never waits for a folder to be searched. A task writes, on
//! threads beside the workers, from a bounded queue; what does not fit into it is counted and stays in memory alone. A
//! file is checked byte by byte whenever it is read: one that is torn, cut off or changed is removed, never served.
//!
//! A folder belongs to one gateway at a time, by a lock on the file `lock` in it; another one that is told to use it
//! goes on without until it is free, as with `run --replace`. The task that gets the lock reads what there is first.

mod file;
mod index;

use std::collections::VecDeque;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gateway_core::plugin::World;
use gateway_core::plugin::world::tasks::{TaskControl, TaskError};
use rustix::fs::{FlockOperation, flock};
use thiserror::Error;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::key::Chooser;
use super::purge::Purge;
use super::stored::Stored;
use super::tier::{Address, TierMeters};
use super::wire::{self, Label};
use index::{Index, Number, Record};

/// Responses that wait to be written, and their bytes.
const MAX_QUEUED: (usize, u64) = (4096, 32 << 20);
/// Files that are read, purged or written by one piece of work.
const CHUNK: usize = 256;
/// How often a folder is asked for that another gateway has.
const RETRY: Duration = Duration::from_millis(500);
/// How long writing pauses after a failure, such as a full disk.
const PAUSE: Duration = Duration::from_secs(1);
/// What is written when the gateway ends, at most.
const FLUSH: Duration = Duration::from_secs(2);
/// Folders that files are spread over.
const FOLDERS: u64 = 256;

/// How much there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DiskLimits {
    /// Bytes of all files, each counted in blocks of 4 KiB.
    pub(super) bytes: u64,
    /// Bytes of a body.
    pub(super) object: u64,
}

/// The files of one plugin config.
pub(super) struct Disk {
    folder: Arc<Path>,
    limits: DiskLimits,
    world: World,
    index: Mutex<Index>,
    queue: Mutex<Queue>,
    work: Notify,
    /// Held by the task that writes.
    held: tokio::sync::Mutex<FolderLock>,
    next: AtomicU64,
    meters: TierMeters,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<PendingWrite>,
    bytes: u64,
}

struct PendingWrite {
    number: Number,
    head: Vec<u8>,
    stored: Arc<Stored>,
}

/// What the task that writes has.
#[derive(Default)]
struct FolderLock {
    /// Keeps the folder from other gateways.
    lock: Option<File>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disk {
    /// Nothing is opened before [`Self::run`].
    pub(super) fn new(folder: PathBuf, limits: DiskLimits, world: &World, meters: TierMeters) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos());
        Self {
            folder: folder.into(),
            limits,
            world: world.clone(),
            index: Mutex::new(Index::unread()),
            queue: Mutex::default(),
            work: Notify::new(),
            held: tokio::sync::Mutex::default(),
            // Names of an earlier run are smaller, unless the clock was set back; a file that is there is never opened anew.
            next: AtomicU64::new(u64::try_from(now).unwrap_or(1)),
            meters,
        }
    }

    fn measure(&self, index: &Index) {
        self.meters.bytes.set(i64::try_from(index.bytes()).unwrap_or(i64::MAX));
        self.meters.objects.set(i64::try_from(index.len()).unwrap_or(i64::MAX));
    }

    pub(super) fn may_have(&self, address: &Address) -> bool {
        locked(&self.index).has(address)
    }

    /// Reads the response for a request.
    pub(super) async fn find(
        &self,
        address: &Address,
        chooser: &Chooser<'_>,
        now: Instant,
    ) -> Option<(Arc<Stored>, Label)> {
        let Some((number, size)) = locked(&self.index).find(address, chooser) else {
            self.meters.miss.add(1);
            return None;
        };
        let (path, most) = (path_of(&self.folder, number), self.limits.object.max(size));
        let Ok(read) = self.world.run_blocking(move || file::read(&path, most)).await else {
            self.meters.busy.add(1);
            return None;
        };
        let whole = read.ok().and_then(|(front, body)| {
            let written = wire::read(&front.head, now)?;
            (written.label.address == *address).then_some((front, body, written))
        });
        let mut index = locked(&self.index);
        let Some((front, body, written)) = whole else {
            // Where it is known no more, it was removed in the meantime.
            match index.get(number) {
                Some(_) => self.meters.damaged.add(1),
                None => self.meters.miss.add(1),
            }
            index.remove(number);
            self.measure(&index);
            self.work.notify_one();
            return None;
        };
        let Some(stale_since) = index.get(number).map(|record| record.stale_since.max(front.stale_since))
        else {
            self.meters.miss.add(1);
            return None;
        };
        drop(index);
        self.meters.hit.add(1);
        let label = written.label.clone();
        Some((written.with(body, stale_since), label))
    }

    /// Has a response written.
    pub(super) fn put(&self, label: Label, stored: Arc<Stored>) {
        let Some(head) = wire::write(&label, &stored.head, Instant::now()) else {
            self.meters.dropped.add(1);
            return;
        };
        let number = self.next.fetch_add(1, Relaxed);
        let size = file::size_of(head.len(), stored.body.len());
        let record = Record {
            address: label.address,
            variant: stored.head.variant.clone(),
            url: label.url,
            tags: stored.head.tags.clone(),
            size,
            received: wire::unix_millis(),
            stale_since: 0,
            is_written: false,
            was_used: false,
        };
        let is_full = {
            let queue = locked(&self.queue);
            queue.waiting.len() >= MAX_QUEUED.0 || queue.bytes.saturating_add(size) > MAX_QUEUED.1
        };
        let mut index = locked(&self.index);
        if is_full {
            // What is there is older than what memory has now.
            let address = record.address;
            index.forget(&address, &record.variant);
            self.meters.dropped.add(1);
        } else {
            match index.add(number, record, self.limits.bytes) {
                Ok(evicted) => self.meters.evicted.add(evicted),
                Err(()) => return self.meters.dropped.add(1),
            }
            let mut queue = locked(&self.queue);
            queue.bytes += size;
            queue.waiting.push_back(PendingWrite { number, head, stored });
        }
        self.measure(&index);
        drop(index);
        self.work.notify_one();
    }

    pub(super) fn invalidate(&self, place: &[u8; 16]) {
        let mut index = locked(&self.index);
        if index.invalidate(place) {
            self.measure(&index);
            self.work.notify_one();
        }
    }

    /// Removes what a purge covers, or marks it stale; says how many. The files are gone when it returns.
    pub(super) fn purge(&self, purge: &Purge) -> u64 {
        let now = wire::unix_millis();
        let numbers = locked(&self.index).note(purge, now);
        let mut count = 0;
        for chunk in numbers.chunks(CHUNK) {
            let (covered, marked) = locked(&self.index).purge(purge, now, chunk);
            count += covered;
            for number in marked {
                if file::mark_stale(&path_of(&self.folder, number), now).is_err() {
                    // It can't be kept as one that is fresh.
                    locked(&self.index).remove(number);
                }
            }
        }
        let mut index = locked(&self.index);
        let doomed = index.take_doomed();
        self.measure(&index);
        drop(index);
        remove_files(&self.folder, &doomed);
        count
    }

    /// Writes what is to be written, for as long as the plugin is in use.
    pub(super) async fn run(self: Arc<Self>, mut control: TaskControl) -> Result<(), TaskError> {
        let mut held = tokio::select! {
            held = self.held.lock() => held,
            () = control.ended() => return Ok(()),
        };
        if held.lock.is_none() {
            let Some(lock) = self.open(&mut control).await? else { return Ok(()) };
            held.lock = Some(lock);
            self.read_all().await;
        }
        loop {
            self.write_some().await;
            if locked(&self.queue).waiting.is_empty() {
                tokio::select! {
                    () = self.work.notified() => {}
                    () = control.ended() => break,
                }
            }
            if control.is_ended() {
                break;
            }
        }
        drop(tokio::time::timeout(FLUSH, async { while self.write_some().await {} }).await);
        Ok(())
    }

    /// Makes the folder, and waits until it is this gateway's. `None` where that is not wanted any more.
    async fn open(&self, control: &mut TaskControl) -> Result<Option<File>, CacheFolderError> {
        let mut was_told = false;
        loop {
            let folder = self.folder.clone();
            let opened = self.world.run_blocking(move || open(&folder)).await;
            match opened {
                Ok(Ok(lock)) => return Ok(Some(lock)),
                Ok(Err(error)) if error.kind() != ErrorKind::WouldBlock => {
                    return Err(CacheFolderError { folder: self.folder.clone(), error });
                }
                Ok(Err(_)) if !was_told => {
                    was_told = true;
                    tracing::warn!(folder = %self.folder.display(), "another gateway uses this cache folder; waiting for it");
                }
                Ok(Err(_)) | Err(_) => {}
            }
            tokio::select! {
                () = tokio::time::sleep(RETRY) => {}
                () = control.ended() => return Ok(None),
            }
        }
    }

    /// Reads what an earlier run has left.
    async fn read_all(&self) {
        let folder = self.folder.clone();
        let listed = self.retried(move || list(&folder)).await;
        let (mut kept, mut refused) = (0_u64, 0_u64);
        for chunk in listed.chunks(CHUNK) {
            let (folder, chunk, most) = (self.folder.clone(), chunk.to_vec(), self.limits.object);
            let known = self.retried(move || {
                let read = |number| (number, known(&path_of(&folder, number), most));
                chunk.iter().copied().map(read).collect::<Vec<_>>()
            });
            let mut bad = Vec::new();
            for (number, record) in known.await {
                let mut index = locked(&self.index);
                let added = record.and_then(|mut record| {
                    record.stale_since = index.missed(&record)?;
                    index.add(number, record, self.limits.bytes).ok()
                });
                match added {
                    Some(evicted) => {
                        kept += 1;
                        self.meters.evicted.add(evicted);
                    }
                    None => bad.push(number),
                }
            }
            refused += bad.len() as u64;
            let folder = self.folder.clone();
            self.retried(move || remove_files(&folder, &bad)).await;
        }
        let mut index = locked(&self.index);
        index.is_read();
        self.measure(&index);
        drop(index);
        if kept + refused > 0 {
            let folder = self.folder.display();
            tracing::info!(%folder, kept, removed = refused, "stored responses of an earlier run");
        }
    }

    /// Work beside the workers, again where there is too much of it.
    async fn retried<T: Send + 'static>(&self, work: impl Fn() -> T + Send + Sync + 'static) -> T {
        let work = Arc::new(work);
        loop {
            let again = work.clone();
            if let Ok(done) = self.world.run_blocking(move || again()).await {
                return done;
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Removes and writes some files; says whether there was anything to do.
    async fn write_some(&self) -> bool {
        let doomed = locked(&self.index).take_doomed();
        let waiting: Vec<PendingWrite> = {
            let mut queue = locked(&self.queue);
            let most = queue.waiting.len().min(CHUNK / 8);
            let waiting: Vec<PendingWrite> = queue.waiting.drain(..most).collect();
            queue.bytes -= waiting.iter().map(PendingWrite::size).sum::<u64>();
            waiting
        };
        if doomed.is_empty() && waiting.is_empty() {
            return false;
        }
        let wanted: Vec<(PendingWrite, u64)> = {
            let index = locked(&self.index);
            let stale = |waiting: PendingWrite| Some((index.get(waiting.number)?.stale_since, waiting));
            waiting.into_iter().filter_map(stale).map(|(stale, waiting)| (waiting, stale)).collect()
        };
        let folder = self.folder.clone();
        let again = doomed.clone();
        let numbers: Vec<Number> = wanted.iter().map(|(waiting, _)| waiting.number).collect();
        let work = self.world.run_blocking(move || {
            remove_files(&folder, &doomed);
            let write = |(waiting, stale): (PendingWrite, u64)| {
                let path = path_of(&folder, waiting.number);
                let written = file::write(&path, &waiting.head, &waiting.stored.body, stale);
                (waiting.number, stale, written)
            };
            wanted.into_iter().map(write).collect::<Vec<_>>()
        });
        let Ok(done) = work.await else {
            // The threads have too much to do.
            self.give_up(again, &numbers);
            tokio::time::sleep(RETRY).await;
            return true;
        };
        let mut failure = None;
        for (number, stale, written) in done {
            match written {
                Ok(()) => self.confirm(number, stale),
                Err(error) => {
                    self.meters.failed.add(1);
                    locked(&self.index).remove(number);
                    failure = Some(error);
                }
            }
        }
        self.measure(&locked(&self.index));
        if let Some(error) = failure {
            tracing::warn!(folder = %self.folder.display(), %error, "stored responses can't be written");
            tokio::time::sleep(PAUSE).await;
        }
        true
    }

    /// Nothing came of this work: what was to be removed is removed later, what was to be written is not.
    fn give_up(&self, doomed: Vec<Number>, numbers: &[Number]) {
        let mut index = locked(&self.index);
        index.put_back(doomed);
        numbers.iter().for_each(|number| index.remove(*number));
        self.meters.dropped.add(numbers.len() as u64);
        self.measure(&index);
    }

    /// A file has been written; what happened in the meantime is caught up with.
    fn confirm(&self, number: Number, stale: u64) {
        let since = locked(&self.index).was_written(number);
        match since {
            Some(since) if since != stale => {
                if file::mark_stale(&path_of(&self.folder, number), since).is_err() {
                    locked(&self.index).remove(number);
                }
            }
            Some(_) => {}
            None => {
                self.meters.overtaken.add(1);
                remove_files(&self.folder, &[number]);
                return;
            }
        }
        self.meters.written.add(1);
    }
}

impl PendingWrite {
    fn size(&self) -> u64 {
        file::size_of(self.head.len(), self.stored.body.len())
    }
}

fn path_of(folder: &Path, number: Number) -> PathBuf {
    folder.join(format!("{:02x}", number % FOLDERS)).join(format!("{number:016x}"))
}

/// The cache folder can't be used.
#[derive(Debug, Error)]
#[error("the cache folder {} can't be used: {error}", .folder.display())]
struct CacheFolderError {
    folder: Arc<Path>,
    error: io::Error,
}

/// Makes the folder, for this user alone, and locks it.
fn open(folder: &Path) -> io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let lock =
        OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(folder.join("lock"))?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    for n in 0..FOLDERS {
        DirBuilder::new().recursive(true).mode(0o700).create(folder.join(format!("{n:02x}")))?;
    }
    Ok(lock)
}

/// The numbers of the files there are, the oldest first. What was being written when the gateway ended is removed.
fn list(folder: &Path) -> Vec<Number> {
    let mut numbers = Vec::new();
    for n in 0..FOLDERS {
        let Ok(entries) = std::fs::read_dir(folder.join(format!("{n:02x}"))) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let number = name.to_str().filter(|name| name.len() == 16);
            match number.and_then(|name| u64::from_str_radix(name, 16).ok()) {
                Some(number) if number % FOLDERS == n => numbers.push(number),
                _ => drop(std::fs::remove_file(entry.path())),
            }
        }
    }
    numbers.sort_unstable();
    numbers
}

/// What the head of a file says; `None` where it is no file of ours, or not whole.
fn known(path: &Path, most: u64) -> Option<Record> {
    let (front, _) = file::read_front(path, most).ok()?;
    let written = wire::read(&front.head, Instant::now())?;
    Some(Record {
        address: written.label.address,
        variant: written.head.variant,
        url: written.label.url,
        tags: written.head.tags,
        size: file::size_of(front.head.len(), usize::try_from(front.body_length).unwrap_or(usize::MAX)),
        received: written.received,
        stale_since: front.stale_since,
        is_written: true,
        was_used: false,
    })
}

fn remove_files(folder: &Path, numbers: &[Number]) {
    for number in numbers {
        // One that was never written is not there.
        drop(std::fs::remove_file(path_of(folder, *number)));
    }
}
