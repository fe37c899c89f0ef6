//! Files that lines are appended to. A write that fails leaves no half line behind, on a full disk neither.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

/// A file, a pipe or standard output that takes whole lines.
#[derive(Debug)]
pub(crate) struct LineFile {
    file: File,
    /// What is left of a line can be taken back: it is a file that this gateway opened to append to it.
    can_cut: bool,
    /// It ends with a part of a line, which the next write ends first, so that its own line stands alone.
    torn: bool,
}

/// Lines could not be written, or not all of them.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub(crate) struct Unwritten {
    /// Bytes from the beginning that are there: whole lines only.
    pub(crate) written: usize,
    /// Why the next line is not.
    pub(crate) source: io::Error,
}

impl LineFile {
    /// Opens a file to append to it, and creates it where there is none, for its owner and group only: addresses and paths of
    /// requests are nobody else's. A named pipe that nobody reads is an error: to wait
    /// for a reader would hold up the start for as long as none comes.
    pub(crate) fn append(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o640).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        let file = options.open(path).map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::NXIO) => io::Error::other("it is a pipe that nobody reads"),
            _ => error,
        })?;
        // Writing waits, as it does for every file: a thread of its own writes.
        fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
        let about = file.metadata()?;
        let can_cut = about.is_file();
        // Who was killed in the midst of a line left its beginning. A file that may not be read is taken as it is.
        let torn = can_cut && about.len() > 0 && ends_within_a_line(path).unwrap_or(false);
        Ok(Self { file, can_cut, torn })
    }

    /// A file on a disk that is open already, whose last line is whole.
    pub(crate) fn of(file: File) -> Self {
        Self { file, can_cut: true, torn: false }
    }

    /// Standard output. What others wrote there is not touched.
    pub(crate) fn stdout() -> io::Result<Self> {
        let stdout = io::stdout().as_fd().try_clone_to_owned()?;
        Ok(Self { file: File::from(stdout), can_cut: false, torn: false })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Whether this is a file on a disk, which has a length and can be replaced by another one.
    pub(crate) fn is_regular(&self) -> bool {
        self.can_cut
    }

    /// Appends lines, of which the last one may lack its line feed.
    pub(crate) fn write(&mut self, lines: &[u8]) -> Result<(), Unwritten> {
        if self.torn {
            let (_, ended) = self.put(b"\n");
            ended.map_err(|source| Unwritten { written: 0, source })?;
            self.torn = false;
        }
        let (at, mut result) = self.put(lines);
        if result.is_ok() && !lines.ends_with(b"\n") {
            result = self.put(b"\n").1;
        }
        result.map_err(|source| {
            let there = lines.get(..at).unwrap_or(lines);
            let written = memchr::memrchr(b'\n', there).map_or(0, |end| end + 1);
            self.torn = written < at && !self.takes_back((at - written) as u64);
            Unwritten { written, source }
        })
    }

    /// Writes as much as can be, and says how much that was.
    fn put(&mut self, bytes: &[u8]) -> (usize, io::Result<()>) {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            match self.file.write(rest) {
                Ok(0) => return (at, Err(io::ErrorKind::WriteZero.into())),
                Ok(written) => at += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return (at, Err(error)),
            }
        }
        (at, Ok(()))
    }

    /// Removes so many bytes at the end, which were just written; says whether it could. Where another process has written
    /// behind them, they stay.
    fn takes_back(&self, bytes: u64) -> bool {
        let cut = || -> io::Result<bool> {
            // After a write, this is where it ended.
            let end = (&self.file).stream_position()?;
            if !self.can_cut || end != self.file.metadata()?.len() {
                return Ok(false);
            }
            self.file.set_len(end.saturating_sub(bytes))?;
            Ok(true)
        };
        cut().unwrap_or(false)
    }
}

/// Whether a file ends with something else than a line feed.
fn ends_within_a_line(path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    /// A path of a test's own.
    struct Place(PathBuf);

    impl Place {
        fn new() -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let name =
                format!("ferrum-edge-lines-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            Self(std::env::temp_dir().join(name))
        }

        fn pipe() -> (Self, File) {
            let place = Self::new();
            mknodat(CWD, &place.0, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
            let reading = OFlags::NONBLOCK.bits().cast_signed();
            let reader = OpenOptions::new().read(true).custom_flags(reading).open(&place.0).unwrap();
            (place, reader)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            drop(std::fs::remove_file(&self.0));
        }
    }

    #[test]
    fn a_pipe_is_opened_only_when_somebody_reads_it() {
        let (place, mut reader) = Place::pipe();
        let mut file = LineFile::append(&place.0).unwrap();
        assert!(
            !fcntl_getfl(&file.file).unwrap().contains(OFlags::NONBLOCK),
            "writing waits for a slow reader"
        );
        file.write(b"line\n").unwrap();
        let mut line = [0; 5];
        reader.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"line\n");
        drop((file, reader));
        let refused = LineFile::append(&place.0).unwrap_err();
        assert!(refused.to_string().contains("nobody reads"), "{refused}");
    }

    /// What is in a pipe can't be taken back: the next line begins behind a line feed.
    #[test]
    fn a_line_after_a_half_one_stands_alone() {
        let (place, mut reader) = Place::pipe();
        let mut file = LineFile::append(&place.0).unwrap();
        fcntl_setfl(&file.file, OFlags::NONBLOCK).unwrap();
        let long = [b"first\n".as_slice(), &[b'x'; 1 << 20]].concat();
        let failed = file.write(&long).unwrap_err();
        assert_eq!((failed.written, failed.source.kind()), (6, io::ErrorKind::WouldBlock));
        let mut taken = vec![0; 1 << 20];
        let _half = reader.read(&mut taken).unwrap();
        file.write(b"next").unwrap();
        let length = reader.read(&mut taken).unwrap();
        assert_eq!(&taken[..length], b"\nnext\n");
    }

    #[test]
    fn a_file_that_ends_within_a_line_is_gone_on_with_in_the_next_one() {
        let place = Place::new();
        std::fs::write(&place.0, "whole\nha").unwrap();
        LineFile::append(&place.0).unwrap().write(b"next\n").unwrap();
        LineFile::append(&place.0).unwrap().write(b"last").unwrap();
        assert_eq!(std::fs::read_to_string(&place.0).unwrap(), "whole\nha\nnext\nlast\n");
    }

    /// What another process wrote behind half a line, or what is left of a file that was emptied, is not touched.
    #[test]
    fn only_the_end_that_was_just_written_is_taken_back() {
        let place = Place::new();
        let mut file = LineFile::append(&place.0).unwrap();
        let (written, _) = file.put(b"whole\nhalf");
        assert!(file.takes_back(4));
        assert_eq!((written, std::fs::read(&place.0).unwrap().as_slice()), (10, b"whole\n".as_slice()));
        file.put(b"half").1.unwrap();
        LineFile::append(&place.0).unwrap().put(b" other's").1.unwrap();
        assert!(!file.takes_back(4));
        file.put(b"x").1.unwrap();
        OpenOptions::new().write(true).truncate(true).open(&place.0).unwrap();
        assert!(!file.takes_back(1));
        assert_eq!(std::fs::metadata(&place.0).unwrap().len(), 0);
    }
}
