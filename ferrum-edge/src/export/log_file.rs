//! Opens files that logs are appended to.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

/// Opens a file to append to it, and creates it where there is none. A named pipe that nobody reads is an error: to wait for a
/// reader would hold up the start for as long as none comes.
pub(super) fn append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let file = options.open(path).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NXIO) => io::Error::other("it is a pipe that nobody reads"),
        _ => error,
    })?;
    // Writing waits, as it does for every file: a thread of its own writes.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_pipe_is_opened_only_when_somebody_reads_it() {
        let path = std::env::temp_dir().join(format!("ferrum-edge-pipe-{}", std::process::id()));
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let refused = append(&path).unwrap_err();
        assert!(refused.to_string().contains("nobody reads"), "{refused}");
        let reading = OFlags::NONBLOCK.bits().cast_signed();
        let mut reader = OpenOptions::new().read(true).custom_flags(reading).open(&path).unwrap();
        let mut file = append(&path).unwrap();
        assert!(!fcntl_getfl(&file).unwrap().contains(OFlags::NONBLOCK), "writing waits for a slow reader");
        file.write_all(b"line\n").unwrap();
        let mut line = [0; 5];
        reader.read_exact(&mut line).unwrap();
        std::fs::remove_file(path).unwrap();
        assert_eq!(&line, b"line\n");
    }
}
