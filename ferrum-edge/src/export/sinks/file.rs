//! Files with rotation, and standard output.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use gateway_core::config::model::LogFile;
use gateway_telemetry::batch::Chunk;
use gateway_telemetry::deliver::{Deliver, Delivered, Failed};

use crate::export::log_file;

/// Writes lines to a file, and begins a new one when it is too long or too old.
pub(super) struct FileWriter {
    rules: LogFile,
    open: Mutex<OpenFile>,
    /// The file was moved away, and is to be opened anew.
    pub(super) reopen: Arc<AtomicBool>,
}

struct OpenFile {
    file: File,
    bytes: u64,
    since: SystemTime,
    part: Option<Remainder>,
}

/// What is written of a chunk that failed, which may be tried again.
struct Remainder {
    /// Of the chunk.
    print: u64,
    written: usize,
}

fn print(chunk: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(chunk);
    hasher.finish()
}

impl OpenFile {
    fn at(path: &Path) -> io::Result<Self> {
        let file = log_file::append(path)?;
        let about = file.metadata()?;
        let now = SystemTime::now();
        // Of a file that is gone on with, some file systems don't know the age.
        let since = if about.len() > 0 { about.created().unwrap_or(now) } else { now };
        Ok(Self { file, bytes: about.len(), since, part: None })
    }
}

impl FileWriter {
    pub(super) fn open(rules: LogFile) -> io::Result<Self> {
        let open = Mutex::new(OpenFile::at(&rules.path)?);
        Ok(Self { rules, open, reopen: Arc::default() })
    }

    /// Writes the lines of a chunk, to as many files as they need. What was written of a chunk that failed is not written
    /// again when the same chunk is tried once more.
    fn write(&self, chunk: &[u8]) -> io::Result<()> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if self.reopen.swap(false, Ordering::AcqRel) {
            *open = OpenFile::at(&self.rules.path)?;
        }
        // Hashing is for the rare chunk that comes after a failure.
        let mut at =
            open.part.take().filter(|part| part.print == print(chunk)).map_or(0, |part| part.written);
        while at < chunk.len() {
            let rest = chunk.get(at..).unwrap_or_default();
            match self.write_lines(&mut open, rest) {
                Ok(length) => at += length,
                Err(error) => {
                    open.part = Some(Remainder { print: print(chunk), written: at });
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Writes as many lines as fit into a file, at least one, and says how many bytes of `lines` they were.
    fn write_lines(&self, open: &mut OpenFile, lines: &[u8]) -> io::Result<usize> {
        let first = memchr::memchr(b'\n', lines).unwrap_or(lines.len());
        let room = |open: &OpenFile| self.rules.max_bytes.map(|max| max.saturating_sub(open.bytes));
        let age = SystemTime::now().duration_since(open.since).unwrap_or_default();
        let is_old = self.rules.max_age.is_some_and(|max| age >= max);
        let is_full = room(open).is_some_and(|room| first as u64 + 1 > room);
        if open.bytes > 0 && (is_full || is_old) {
            self.rotate()?;
            *open = OpenFile::at(&self.rules.path)?;
        }
        let room = room(open).map_or(usize::MAX, |room| usize::try_from(room).unwrap_or(usize::MAX));
        let end = match room > lines.len() {
            true => lines.len(),
            false => lines
                .get(..room)
                .and_then(|fits| memchr::memrchr(b'\n', fits))
                .map_or(first, |end| end.max(first)),
        };
        let fits = lines.get(..end).unwrap_or(lines);
        let before = open.bytes;
        let written = open.file.write_all(fits).and_then(|()| open.file.write_all(b"\n"));
        match written {
            Ok(()) => open.bytes += end as u64 + 1,
            // What is tried again must not be there in part.
            Err(_) => drop(open.file.set_len(before)),
        }
        written.map(|()| end + 1)
    }

    /// `path` becomes `path.1`, `path.1` becomes `path.2`, and so on; the last one goes.
    fn rotate(&self) -> io::Result<()> {
        let path = &self.rules.path;
        if self.rules.keep == 0 {
            return fs::remove_file(path);
        }
        for n in (1..self.rules.keep).rev() {
            let older = numbered(path, n);
            if older.exists() {
                fs::rename(older, numbered(path, n + 1))?;
            }
        }
        fs::rename(path, numbered(path, 1))
    }
}

fn numbered(path: &Path, n: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{n}"));
    name.into()
}

impl Deliver for FileWriter {
    async fn deliver(&self, chunk: &Chunk) -> Result<Delivered, Failed> {
        self.write(&chunk.bytes).map_err(|error| Failed::passing(error.to_string()))?;
        Ok(Delivered::default())
    }
}

/// Writes lines to standard output.
#[derive(Default)]
pub(super) struct StdoutWriter;

impl Deliver for StdoutWriter {
    async fn deliver(&self, chunk: &Chunk) -> Result<Delivered, Failed> {
        let mut out = io::stdout().lock();
        let written =
            out.write_all(&chunk.bytes).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
        // What is there in part can't be taken back: it is not written again.
        written.map_err(|error| Failed::lasting(error.to_string()))?;
        Ok(Delivered::default())
    }
}
