//! From what the engines say to what the store says.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use sqlx::error::DatabaseError;
use sqlx::mysql::MySqlDatabaseError;

use crate::store::StoreError;
use crate::store::location::Location;
use crate::store::migrations;

/// What went wrong below, before it is known where.
#[derive(Debug)]
pub(in crate::store) enum Failure {
    /// Already said.
    Said(StoreError),
    /// The engine or the way to it.
    Sqlx(sqlx::Error),
    /// No answer.
    Timeout(Duration),
    /// All connections stayed in use.
    Crowded(Duration),
    /// A row is not as we write it.
    Row(String),
    /// SQLite's file.
    File(PathBuf, io::Error),
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Sqlx(error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Said(error)
    }
}

impl Failure {
    /// Whether the connection may have been dead before it was used, so that another one may do better.
    pub(in crate::store) fn is_stale(&self) -> bool {
        match self {
            Self::Sqlx(sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed) => true,
            Self::Sqlx(sqlx::Error::Database(error)) => matches!(kind(error.as_ref()), FailureKind::Gone),
            _ => false,
        }
    }

    /// Whether another connection was in the way.
    pub(in crate::store) fn is_busy(&self) -> bool {
        match self {
            Self::Sqlx(sqlx::Error::Database(error)) => kind(error.as_ref()) == FailureKind::Busy,
            Self::Said(StoreError::Busy { .. }) => true,
            _ => false,
        }
    }

    /// Whether a commit that failed so may have been carried out nevertheless.
    pub(in crate::store) fn leaves_doubt(&self) -> bool {
        match self {
            Self::Timeout(_) => true,
            Self::Sqlx(sqlx::Error::Database(error)) => {
                matches!(kind(error.as_ref()), FailureKind::Gone | FailureKind::Io)
            }
            Self::Sqlx(_) => true,
            _ => false,
        }
    }

    /// As the store says it.
    pub(in crate::store) fn told(self, location: &Location) -> StoreError {
        let at = location.to_string();
        match self {
            Self::Said(error) => error,
            Self::Timeout(after) | Self::Crowded(after) => StoreError::Timeout { at, after },
            Self::Row(cause) => StoreError::Unreadable { at, cause },
            Self::File(path, source) if source.kind() == io::ErrorKind::NotFound => StoreError::NoFile(path),
            Self::File(path, source) => StoreError::Open { path, source },
            Self::Sqlx(sqlx::Error::Database(error)) => said(error.as_ref(), location),
            Self::Sqlx(sqlx::Error::Io(error)) => StoreError::Unreachable { at, cause: error.to_string() },
            Self::Sqlx(sqlx::Error::Tls(error)) => {
                StoreError::Unreachable { at, cause: format!("TLS: {error}") }
            }
            Self::Sqlx(sqlx::Error::Protocol(cause)) => StoreError::Unreachable { at, cause },
            Self::Sqlx(sqlx::Error::WorkerCrashed) => {
                StoreError::Unreachable { at, cause: "its thread ended".to_owned() }
            }
            // What is left is about values and columns; none of these repeats a URL, save the first.
            Self::Sqlx(sqlx::Error::Configuration(_)) => {
                StoreError::Refused { at, cause: "its settings can't be used".to_owned() }
            }
            Self::Sqlx(other) => StoreError::Unreadable { at, cause: other.to_string() },
        }
    }
}

/// What an engine's own error means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailureKind {
    Busy,
    Gone,
    Slow,
    Denied,
    NoDatabase,
    NoTable,
    NoOpen,
    ReadOnly,
    Full,
    Corrupt,
    NotADatabase,
    Io,
    Other,
}

fn said(error: &dyn DatabaseError, location: &Location) -> StoreError {
    let (at, cause) = (location.to_string(), error.message().to_owned());
    match kind(error) {
        FailureKind::Busy => StoreError::Busy { waited: Duration::ZERO },
        FailureKind::Gone => StoreError::Unreachable { at, cause },
        FailureKind::Slow => StoreError::Timeout { at, after: Duration::ZERO },
        FailureKind::Denied => StoreError::Denied { at, cause },
        FailureKind::NoDatabase => StoreError::NoDatabase { at },
        FailureKind::NoTable => StoreError::NotMigrated { at, found: 0, known: migrations::KNOWN },
        FailureKind::NoOpen => StoreError::Open {
            path: location.path().map(PathBuf::from).unwrap_or_default(),
            source: io::Error::other(cause),
        },
        FailureKind::ReadOnly => StoreError::ReadOnly { at },
        FailureKind::Full => StoreError::Full { at },
        FailureKind::Corrupt => StoreError::Corrupt { at, cause },
        FailureKind::NotADatabase => StoreError::NotADatabase { at },
        FailureKind::Io => StoreError::Io { at, cause },
        FailureKind::Other => StoreError::Refused { at, cause },
    }
}

fn kind(error: &dyn DatabaseError) -> FailureKind {
    if let Some(error) = error.try_downcast_ref::<MySqlDatabaseError>() {
        return mysql(error.number());
    }
    let code = error.code().unwrap_or_default();
    if error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().is_some() {
        return postgres(&code);
    }
    sqlite(code.parse().unwrap_or(1), error.message())
}

/// SQLite's extended result codes.
fn sqlite(code: u32, message: &str) -> FailureKind {
    /// `SQLITE_IOERR_SHMSIZE`: no room for the file that readers and writers share.
    const SHM_SIZE: u32 = 4874;
    match (code, code & 0xff) {
        (SHM_SIZE, _) | (_, 13) => FailureKind::Full,
        (_, 5 | 6) => FailureKind::Busy,
        (_, 8) => FailureKind::ReadOnly,
        (_, 10) => FailureKind::Io,
        (_, 11) => FailureKind::Corrupt,
        (_, 14) => FailureKind::NoOpen,
        (_, 3 | 23) => FailureKind::Denied,
        (_, 26) => FailureKind::NotADatabase,
        (_, 1) if message.starts_with("no such table") => FailureKind::NoTable,
        _ => FailureKind::Other,
    }
}

/// PostgreSQL's SQLSTATE (its manual, appendix A).
fn postgres(code: &str) -> FailureKind {
    match code {
        "28P01" | "28000" | "42501" => FailureKind::Denied,
        "3D000" => FailureKind::NoDatabase,
        "42P01" | "3F000" => FailureKind::NoTable,
        "55P03" | "40P01" | "40001" => FailureKind::Busy,
        "57014" => FailureKind::Slow,
        "53100" => FailureKind::Full,
        "25006" => FailureKind::ReadOnly,
        "58030" => FailureKind::Io,
        "53200" | "53300" | "53400" | "57P01" | "57P02" | "57P03" | "57P05" | "25P03" => FailureKind::Gone,
        code if code.starts_with("08") => FailureKind::Gone,
        code if code.starts_with("XX00") => FailureKind::Corrupt,
        _ => FailureKind::Other,
    }
}

/// The numbers of MySQL's and MariaDB's errors.
const fn mysql(number: u16) -> FailureKind {
    match number {
        1044 | 1045 | 1142 | 1143 | 1227 | 1370 | 1698 => FailureKind::Denied,
        1049 => FailureKind::NoDatabase,
        1146 => FailureKind::NoTable,
        1205 | 1213 => FailureKind::Busy,
        1021 | 1114 | 1041 => FailureKind::Full,
        1036 | 1290 | 1792 | 1836 => FailureKind::ReadOnly,
        1126 | 126 | 127 | 1034 | 1035 | 1194 | 1195 => FailureKind::Corrupt,
        1317 | 1969 | 3024 => FailureKind::Slow,
        1040 | 1053 | 1077 | 1079 | 1129 | 1130 | 1152 | 1158..=1161 | 1184 | 1203 | 1927 | 4031 => {
            FailureKind::Gone
        }
        _ => FailureKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What tests can't bring about on every machine, such as being root where files are read-only for all others.
    #[test]
    fn codes_mean_what_their_manuals_say() {
        let sqlite = |code| sqlite(code, "");
        // SQLITE_FULL, _BUSY, _BUSY_SNAPSHOT, _LOCKED, _READONLY, _READONLY_DBMOVED.
        assert_eq!(
            [13, 5, 517, 6].map(sqlite),
            [FailureKind::Full, FailureKind::Busy, FailureKind::Busy, FailureKind::Busy]
        );
        assert_eq!([8, 1032].map(sqlite), [FailureKind::ReadOnly; 2]);
        // SQLITE_IOERR_FSYNC, _IOERR_SHMSIZE, _CORRUPT_VTAB, _CANTOPEN_ISDIR, _NOTADB.
        assert_eq!([1034, 4874].map(sqlite), [FailureKind::Io, FailureKind::Full]);
        assert_eq!(
            [267, 526, 26].map(sqlite),
            [FailureKind::Corrupt, FailureKind::NoOpen, FailureKind::NotADatabase]
        );
        assert_eq!(
            ["53100", "25006", "08006", "57P03", "XX001", "55P03"].map(postgres),
            [
                FailureKind::Full,
                FailureKind::ReadOnly,
                FailureKind::Gone,
                FailureKind::Gone,
                FailureKind::Corrupt,
                FailureKind::Busy
            ]
        );
        assert_eq!(
            [1114, 1290, 1040, 1205, 1034, 1969].map(mysql),
            [
                FailureKind::Full,
                FailureKind::ReadOnly,
                FailureKind::Gone,
                FailureKind::Busy,
                FailureKind::Corrupt,
                FailureKind::Slow
            ]
        );
        assert_eq!(
            (postgres("42601"), mysql(1064), sqlite(1)),
            (FailureKind::Other, FailureKind::Other, FailureKind::Other)
        );
    }
}
