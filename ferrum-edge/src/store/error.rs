//! What may go wrong with the store, and what to do about it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::object::{MAX_DOCUMENT_BYTES, MAX_ID_BYTES, ObjectKind};

/// How long something lasted, where that is known.
fn lasting(word: &str, time: Duration) -> String {
    if time.is_zero() { " in time".to_owned() } else { format!("{word} {time:?}") }
}

/// Why the store did not do what was asked. No text in it holds a password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The address of the database makes no sense.
    #[error("this is not the address of a database: {0}")]
    Location(&'static str),
    /// The server can't be reached, or went away during the work; nothing was changed.
    #[error("the database at {at} can't be reached: {cause}")]
    Unreachable {
        /// Which.
        at: String,
        /// What the system said.
        cause: String,
    },
    /// It did not answer a moment ago, for this reason; nothing was changed.
    #[error("{cause}")]
    Away {
        /// As another of these said it.
        cause: String,
    },
    /// The server took too long; nothing was changed.
    #[error("the database at {at} did not answer{}", lasting(" within", *after))]
    Timeout {
        /// Which.
        at: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// The user may not.
    #[error("the database at {at} refuses this user: {cause}")]
    Denied {
        /// Which.
        at: String,
        /// What the server said.
        cause: String,
    },
    /// The server has no such database.
    #[error("there is no database at {at}")]
    NoDatabase {
        /// Which.
        at: String,
    },
    /// SQLite's file is not there.
    #[error("there is no file {}", .0.display())]
    NoFile(PathBuf),
    /// SQLite's file or folder can't be opened or created.
    #[error("{} can't be opened: {source}", path.display())]
    Open {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A pooler gives each transaction any connection to the server.
    #[error("the database at {at} is behind a pooler whose connections share sessions")]
    SharedSessions {
        /// Which.
        at: String,
    },
    /// Another writer held the database for too long; nothing was changed.
    #[error("another writer did not let go of the database{}", lasting(" within", *waited))]
    Busy {
        /// How long it was waited for.
        waited: Duration,
    },
    /// The database can't be written.
    #[error("the database at {at} can only be read")]
    ReadOnly {
        /// Which.
        at: String,
    },
    /// No space is left where the database is; nothing was changed.
    #[error("no space is left for the database at {at}")]
    Full {
        /// Which.
        at: String,
    },
    /// The database is damaged.
    #[error("the database at {at} is damaged: {cause}")]
    Corrupt {
        /// Which.
        at: String,
        /// What was found.
        cause: String,
    },
    /// The file is something else.
    #[error("{at} is not an SQLite database")]
    NotADatabase {
        /// Which.
        at: String,
    },
    /// Reading or writing the database's files failed.
    #[error("the files of the database at {at} can't be read or written: {cause}")]
    Io {
        /// Which.
        at: String,
        /// What the database said.
        cause: String,
    },
    /// The schema is not there, or older than this program's.
    #[error("the database at {at} has schema {found}, this program needs {known}")]
    NotMigrated {
        /// Which.
        at: String,
        /// 0 when there is none.
        found: u32,
        /// What this program works with.
        known: u32,
    },
    /// The schema comes from a newer program.
    #[error("the database at {at} has schema {found}, this program knows only up to {known}")]
    NewerSchema {
        /// Which.
        at: String,
        /// What is there.
        found: u32,
        /// What this program works with.
        known: u32,
    },
    /// The id of an object is none.
    #[error("an id among {kind} does not have 1 to {MAX_ID_BYTES} bytes, or holds a NUL")]
    Id {
        /// Of what.
        kind: ObjectKind,
    },
    /// The document of an object is too long, or holds a NUL.
    #[error(
        "the document of `{id}` among {kind} has {bytes} bytes; {MAX_DOCUMENT_BYTES} are possible, without a NUL"
    )]
    Document {
        /// Of what.
        kind: ObjectKind,
        /// Of which.
        id: String,
        /// How many it has.
        bytes: usize,
    },
    /// History does not reach back that far, or has not come that far.
    #[error("there is no history of revision {asked}; it reaches from {oldest} to {newest}")]
    NoHistory {
        /// What was asked for.
        asked: u64,
        /// The oldest state that can be restored.
        oldest: u64,
        /// The state of now.
        newest: u64,
    },
    /// The answer would be larger than is held in memory.
    #[error("this would take {objects} objects at once; the limit is {limit}")]
    TooMany {
        /// How many it would be.
        objects: u64,
        /// The limit.
        limit: u64,
    },
    /// An earlier step of this change failed; it can't be committed.
    #[error("an earlier step of this change failed, so all of it was taken back")]
    Broken,
    /// The connection was lost while committing, and could not be got again: the change is there as a whole or not at
    /// all, and which of the two will be seen once the database answers.
    #[error(
        "whether revision {revision} was written is not known: the database at {at} went away while it was committed"
    )]
    Unknown {
        /// Which.
        at: String,
        /// What it would be.
        revision: u64,
    },
    /// Something in the database is not as this program writes it.
    #[error("the database at {at} holds what can't be read: {cause}")]
    Unreadable {
        /// Which.
        at: String,
        /// What.
        cause: String,
    },
    /// This gateway can't serve a revision of the database; what it serves stays, and it tries again.
    #[error("revision {revision} can't be served: {cause}")]
    Unserved {
        /// Which.
        revision: u64,
        /// Why.
        cause: String,
    },
    /// Anything else the database said.
    #[error("the database at {at} refused: {cause}")]
    Refused {
        /// Which.
        at: String,
        /// What it said.
        cause: String,
    },
}

impl StoreError {
    /// What to do about it, as a sentence without a full stop.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Location(_) => {
                "write `sqlite:FILE`, `postgres://USER@HOST/DATABASE` or `mysql://USER@HOST/DATABASE`"
            }
            Self::Unreachable { .. } | Self::Away { .. } | Self::Timeout { .. } => {
                "see whether the database runs and can be reached from here, then try again"
            }
            Self::Denied { .. } => "check user, password and rights in `FERRUM_DB_URL`",
            Self::NoDatabase { .. } => "create it, or correct its name in `FERRUM_DB_URL`",
            Self::SharedSessions { .. } => {
                "have the pooler keep sessions (PgBouncer: `pool_mode=session`), or connect to the server itself"
            }
            Self::NoFile(_) => "run `ferrum-edge migrate` to create it, or correct `FERRUM_DB_URL`",
            Self::Open { .. } => "check that the folder exists and that this user may read and write it",
            Self::Busy { .. } => "try again; if it lasts, see which other program holds the database",
            Self::ReadOnly { .. } => "give this user the right to write the database, or use its primary",
            Self::Full { .. } => "make room on the database's disk, then try again",
            Self::Corrupt { .. } => "restore the database from a backup",
            Self::NotADatabase { .. } => "correct `FERRUM_DB_URL`, or move the file away",
            Self::Io { .. } => "check the disk and the system's log",
            Self::NotMigrated { .. } => "run `ferrum-edge migrate`",
            Self::NewerSchema { .. } => "run the newer program on it, or restore a backup from before it",
            Self::Id { .. } => "choose a shorter id",
            Self::Document { .. } => "make it smaller",
            Self::NoHistory { .. } => "choose a revision that is still listed",
            Self::TooMany { .. } => "take a smaller step",
            Self::Broken => "begin the change anew",
            Self::Unknown { .. } => "look at the revisions before trying again",
            Self::Unreadable { .. } => "correct or remove the row",
            Self::Unserved { .. } => "correct what it names, here or in the database",
            Self::Refused { .. } => "see what the database's own log says",
        }
    }

    /// Whether trying the same again later may help, without anybody mending anything in the request.
    pub fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::Away { .. }
                | Self::Timeout { .. }
                | Self::Busy { .. }
                | Self::Full { .. }
                | Self::Io { .. }
                | Self::Broken
        )
    }
}
