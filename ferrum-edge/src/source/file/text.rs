//! Reading text files: no more than may be read, and not while somebody writes them.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use gateway_core::config::file::MAX_BYTES;

/// A file that was written less than this ago may be half written, and is read again.
const SETTLED: Duration = Duration::from_millis(50);
/// Reads of a file that is written again and again; after that it is taken as it is.
const MAX_READS: u32 = 20;

/// The text of a file. Of a regular file that is being written it waits for the end, for at most a second.
///
/// # Errors
/// When it can't be read, is no UTF-8, or is longer than [`MAX_BYTES`].
pub(crate) fn read(path: &Path) -> io::Result<String> {
    for _ in 1..MAX_READS {
        let (text, before, after) = read_once(path)?;
        if !after.is_file() || is_same(&before, &after) && is_settled(&after) {
            return text;
        }
        sleep(SETTLED);
    }
    read_once(path)?.0
}

/// One read, with what the file looked like before and after it. A text that is no UTF-8 may only be half there.
fn read_once(path: &Path) -> io::Result<(io::Result<String>, Metadata, Metadata)> {
    let mut file = File::open(path)?;
    let before = file.metadata()?;
    let most = MAX_BYTES as u64;
    if before.is_file() && before.len() > most {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    file.by_ref().take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_BYTES {
        return Err(too_long());
    }
    let text = String::from_utf8(bytes).map_err(not_utf8);
    Ok((text, before, file.metadata()?))
}

fn not_utf8(error: std::string::FromUtf8Error) -> io::Error {
    let at = error.utf8_error().valid_up_to();
    let bytes = error.into_bytes();
    let is_utf16 = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
    let what = if is_utf16 {
        "it is UTF-16; save it as UTF-8".to_owned()
    } else {
        let line = bytes.iter().take(at).filter(|byte| **byte == b'\n').count() + 1;
        format!("line {line} is not UTF-8; save it as UTF-8")
    };
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn too_long() -> io::Error {
    io::Error::new(
        io::ErrorKind::FileTooLarge,
        format!("it has more than the {MAX_BYTES} bytes that are read"),
    )
}

fn is_same(before: &Metadata, after: &Metadata) -> bool {
    before.len() == after.len() && before.modified().ok() == after.modified().ok()
}

/// Whether the last write was some time ago. What lies in the future tells nothing.
fn is_settled(file: &Metadata) -> bool {
    let age = file.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
    age.is_none_or(|age| age >= SETTLED)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    /// A file that goes with its test.
    struct Scratch(std::path::PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("ferrum-text-{}-{name}", std::process::id())))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            drop(fs::remove_file(&self.0));
        }
    }

    #[test]
    fn a_file_that_is_too_long_is_not_read() {
        let scratch = Scratch::new("long");
        let file = File::create(&scratch.0).unwrap();
        // Takes no room on the disk.
        file.set_len(MAX_BYTES as u64 + 1).unwrap();
        assert_eq!(read(&scratch.0).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn a_file_being_written_is_read_when_it_is_whole() {
        let scratch = Scratch::new("half");
        let whole = "proxies: []\n".repeat(1000);
        let mut file = File::create(&scratch.0).unwrap();
        let path = scratch.0.clone();
        let reading = std::thread::spawn(move || read(&path).unwrap());
        // Each write starts the reader's wait anew.
        for part in whole.as_bytes().chunks(whole.len() / 8) {
            file.write_all(part).unwrap();
        }
        let read = reading.join().unwrap();
        assert!(read.is_empty() || whole.starts_with(&read));
        assert_eq!(super::read(&scratch.0).unwrap(), whole);
    }
}
