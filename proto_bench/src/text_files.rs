//! Files that are written and read whole.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Why a file cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {path}: {source}")]
    Write { path: PathBuf, source: io::Error },
    #[error("{path} is not a result of proto_bench: {source}")]
    Form { path: PathBuf, source: serde_json::Error },
}

/// Writes a text file, making its directory where that is missing.
///
/// # Errors
/// A file or directory that cannot be written.
pub fn write_file(path: &Path, text: &str) -> Result<(), FileError> {
    let fail = |source| FileError::Write { path: path.to_owned(), source };
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent).map_err(fail)?;
    }
    fs::write(path, text).map_err(fail)
}
