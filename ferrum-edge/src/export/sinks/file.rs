//! Files with rotation, and standard output.

use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use gateway_core::config::model::LogFile;
use gateway_telemetry::batch::Chunk;
use gateway_telemetry::deliver::{Deliver, Delivered, Failed};

use crate::line_file::{LineFile, Unwritten};

/// Writes lines to a file, and begins a new one when it is too long or too old.
pub(super) struct FileWriter {
    rules: LogFile,
    open: Mutex<OpenFile>,
    /// The file was moved away, and is to be opened anew.
    pub(super) reopen: Arc<AtomicBool>,
}

struct OpenFile {
    lines: LineFile,
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
        let lines = LineFile::append(path)?;
        let about = lines.file().metadata()?;
        let now = SystemTime::now();
        // Of a file that is gone on with, some file systems don't know the age.
        let since = if about.len() > 0 { about.created().unwrap_or(now) } else { now };
        Ok(Self { lines, since, part: None })
    }

    /// Bytes of the file, which others may have made shorter or longer; `None` of what is not a file on a disk.
    fn bytes(&self) -> io::Result<Option<u64>> {
        Ok(if self.lines.is_regular() { Some(self.lines.file().metadata()?.len()) } else { None })
    }

    /// Whether this file is the one at `path`: it may have been moved away or removed.
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let open = self.lines.file().metadata()?;
        let there = fs::metadata(path);
        Ok(there.is_ok_and(|there| (there.dev(), there.ino()) == (open.dev(), open.ino())))
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
            self.reopen(&mut open);
        }
        // Hashing is for the rare chunk that comes after a failure.
        let mut at =
            open.part.take().filter(|part| part.print == print(chunk)).map_or(0, |part| part.written);
        while at < chunk.len() {
            let rest = chunk.get(at..).unwrap_or_default();
            match self.write_lines(&mut open, rest) {
                Ok(length) => at += length,
                Err(failed) => {
                    let written = at + failed.written;
                    open.part = Some(Remainder { print: print(chunk), written });
                    return Err(failed.source);
                }
            }
        }
        Ok(())
    }

    fn reopen(&self, open: &mut OpenFile) {
        let path = self.rules.path.display();
        match OpenFile::at(&self.rules.path) {
            Ok(next) => *open = OpenFile { part: open.part.take(), ..next },
            Err(error) => tracing::error!(%path, %error, "a sink of the access log goes on in the old file"),
        }
    }

    /// Writes as many lines as fit into a file, at least one, and says how many bytes of `lines` they were.
    fn write_lines(&self, open: &mut OpenFile, lines: &[u8]) -> Result<usize, Unwritten> {
        let first = memchr::memchr(b'\n', lines).unwrap_or(lines.len());
        let room = self.room(open, first as u64 + 1).map_err(|source| Unwritten { written: 0, source })?;
        let end = match room > lines.len() {
            true => lines.len(),
            false => lines
                .get(..room)
                .and_then(|fits| memchr::memrchr(b'\n', fits))
                .map_or(first, |end| end.max(first)),
        };
        open.lines.write(lines.get(..=end).unwrap_or(lines)).map(|()| end + 1)
    }

    /// Begins a new file where this one is too old, or has no room for a line of so many bytes; says what room there is.
    fn room(&self, open: &mut OpenFile, line: u64) -> io::Result<usize> {
        let Some(mut bytes) = open.bytes()? else { return Ok(usize::MAX) };
        let age = SystemTime::now().duration_since(open.since).unwrap_or_default();
        let is_old = self.rules.max_age.is_some_and(|max| age >= max);
        let is_full = self.rules.max_size.is_some_and(|max| line > max.saturating_sub(bytes));
        if bytes > 0 && (is_full || is_old) {
            // One that somebody else has moved away needs no other name.
            if open.is_at(&self.rules.path)? {
                self.rotate()?;
            }
            *open = OpenFile::at(&self.rules.path)?;
            bytes = open.bytes()?.unwrap_or(0);
        }
        let room = self.rules.max_size.map_or(u64::MAX, |max| max.saturating_sub(bytes));
        Ok(usize::try_from(room).unwrap_or(usize::MAX))
    }

    /// `path` becomes `path.1`, `path.1` becomes `path.2`, and so on; the last one goes. Those behind a gap stay: who fails
    /// halfway and tries again loses nothing.
    fn rotate(&self) -> io::Result<()> {
        let path = &self.rules.path;
        if self.rules.keep == 0 {
            return fs::remove_file(path);
        }
        let gap = (1..self.rules.keep).find(|n| !numbered(path, *n).exists()).unwrap_or(self.rules.keep);
        for n in (1..gap).rev() {
            fs::rename(numbered(path, n), numbered(path, n + 1))?;
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
pub(super) struct StdoutWriter(Mutex<LineFile>);

impl StdoutWriter {
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self(Mutex::new(LineFile::stdout()?)))
    }
}

impl Deliver for StdoutWriter {
    async fn deliver(&self, chunk: &Chunk) -> Result<Delivered, Failed> {
        // Others who write whole lines there wait for this one.
        let _others = io::stdout().lock();
        let written = self.0.lock().unwrap_or_else(PoisonError::into_inner).write(&chunk.bytes);
        // What is there in part can't be taken back: it is not written again.
        written.map_err(|failed| Failed::lasting(failed.source.to_string()))?;
        Ok(Delivered::default())
    }
}
