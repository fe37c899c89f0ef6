//! SQLite: how its file is created and opened.

use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use sqlx::ConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteSynchronous};

use super::Failure;
use crate::store::Options;

/// Bytes of a page. Larger than the default, so that most documents fit into the tree itself.
pub(in crate::store) const PAGE_BYTES: u64 = 8192;
/// KiB of pages each connection may keep in memory.
const CACHE_KIB: u32 = 8 << 10;
/// Bytes to which the write-ahead log is cut back after a checkpoint.
const WAL_BYTES: u64 = 64 << 20;
/// Rows that wait between SQLite's thread and the reader.
const ROWS_AHEAD: usize = 1024;

/// Opens the file, which must be there.
pub(super) async fn connect(path: &Path, options: &Options) -> Result<SqliteConnection, Failure> {
    std::fs::metadata(path).map_err(|error| Failure::File(path.to_owned(), error))?;
    // 0 leaves it at what SQLite allows.
    let pages = options.max_bytes.map_or(0, |bytes| (bytes / PAGE_BYTES).max(1));
    let connection = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .busy_timeout(options.busy_timeout)
        // What is acknowledged survives a power cut, too.
        .synchronous(SqliteSynchronous::Full)
        .pragma("cache_size", format!("-{CACHE_KIB}"))
        .pragma("journal_size_limit", WAL_BYTES.to_string())
        .pragma("max_page_count", pages.to_string())
        .row_buffer_size(ROWS_AHEAD)
        .thread_name(|n| format!("store-{n}"))
        .disable_statement_logging()
        .connect()
        .await?;
    Ok(connection)
}

/// Which file it is, so that one that was replaced is noticed.
pub(in crate::store) fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Creates the file where there is none, for this user's eyes only, and its folder.
pub(in crate::store) fn create(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        done => done.map(|_| ()),
    }
}
