//! The revisioned store of the database mode: objects as JSON documents, changed by transactions that are numbered,
//! dated and signed, and can be taken back.
//!
//! ```no_run
//! # async fn example() -> Result<(), ferrum_edge::store::StoreError> {
//! use ferrum_edge::store::{Author, Location, ObjectKind, Op, Options, Store};
//!
//! let store = Store::open(Location::parse(Some("sqlite:/tmp/edge/ferrum.db"), None)?, Options::default());
//! store.migrate().await?;
//! let author = Author { name: "ann".to_owned(), source: "admin".to_owned() };
//! let mut change = store.begin(author).await?;
//! let document = r#"{"id":"shop","listen_path":"/shop"}"#.to_owned();
//! change.put(vec![Op::Put { kind: ObjectKind::Proxies, id: "shop".to_owned(), document }]).await?;
//! let revision = change.commit("open the shop").await?;
//! assert_eq!(store.revision().await?, revision);
//! # Ok(())
//! # }
//! ```
//!
//! - One row, `ferrum_store`, holds the revision; every writer locks it first, over all gateways on the database. So
//!   revisions are dense, and what a [`Transaction`] reads stays true until it commits.
//! - Readers work on one consistent snapshot and wait for no writer.
//! - Nothing here waits without end: see [`Options`]. After an error a later call tries with a new connection; the
//!   store never has to be opened anew.
//!
//! # Tables
//!
//! | table | contents |
//! |---|---|
//! | `ferrum_store` | one row: the current revision and the oldest that can be restored; writers lock it first |
//! | `ferrum_objects` | the current objects: kind, id, document, times, and the revision that changed each last |
//! | `ferrum_revisions` | each revision: when, who, why, how many objects, and a token by which its writer finds it again |
//! | `ferrum_changes` | an undo log: the document of each object before each revision |
//! | `ferrum_audit` | the entries of the audit with their hashes |
//! | `ferrum_fleet` | the edges of a control plane, invitations, the authority; not part of the history |
//! | `ferrum_fleet_changes` | which of those rows the latest changes touched, for control planes that follow |
//! | `ferrum_users` | users of the console: role, hash of the password, version; no part of the history |
//! | `ferrum_user_grants`, `ferrum_user_totp` | for what objects a user's role counts; the second factor, encrypted |
//! | `ferrum_pending` | changes that wait for the approval of another user, and what became of them; no part of the history |
//! | `ferrum_workspaces` | named sets of objects, for grants; no part of the history |
//! | `ferrum_usage`, `ferrum_usage_claims`, `ferrum_usage_history` | what traffic quotas count; no part of the history |
//! | `ferrum_migrations` | the version of the schema; a newer one is refused |
//!
//! - A change is one transaction and one revision, under one lock over all gateways on the database. A change without effect is no revision.
//! - The state at revision r is the current one with all later changes taken back. History is pruned in small pieces at each commit.
//! - Readers use one snapshot each and wait for no writer. Other gateways' revisions are seen by LISTEN/NOTIFY or by polling.
//! - Every wait is bounded. If a connection is lost during COMMIT, the store looks for its token under the lock; only if that fails as well,
//!   the result is unknown.
//! - SQLite runs in WAL mode with `synchronous=FULL`, file mode 0600, folder mode 0700. It is not for network file systems.
//! - `seal.rs`: keys are stored as SHA-256; what a scheme needs in clear is encrypted with AES-256-GCM, bound to owner and type.

mod audit;
mod author;
mod change;
mod error;
#[cfg(feature = "fleet")]
mod fleet;
mod gathered;
mod history;
mod link;
mod load_error;
mod location;
mod migrations;
mod object;
mod options;
#[cfg(feature = "console")]
mod passkeys;
mod pending;
mod pool;
mod read;
mod schema;
pub mod seal;
#[cfg(feature = "console")]
mod second_factor;
mod usage;
#[cfg(feature = "console")]
mod users;
mod watch;
mod workspaces;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::watch::{Receiver, Sender};
use tokio::task::JoinHandle;

pub(crate) use audit::MAX_AUDIT_PAGE;
pub use author::Author;
pub use change::Transaction;
pub use error::StoreError;
#[cfg(feature = "fleet")]
pub(crate) use fleet::{FleetChanges, FleetMark, FleetOp, FleetRow};
pub(crate) use gathered::Gathered;
pub use history::{Changed, Counts, Difference, Followed, MAX_REVISIONS, Mark, RevisionInfo};
pub use load_error::LoadError;
pub use location::{Engine, Location, default_path, state_folder};
pub use object::{MAX_DOCUMENT_BYTES, MAX_ID_BYTES, Object, ObjectKind, Op};
pub use options::Options;
#[cfg(feature = "console")]
pub(crate) use passkeys::{MAX_PASSKEYS, Passkey};
pub(crate) use pending::{
    MAX_PENDING, MAX_PENDING_BYTES, MAX_PENDING_OBJECTS, MAX_PENDING_OF_AUTHOR, PendingChange,
    PendingDecision, PendingDocument, PendingObject, PendingState,
};
pub use read::{DEFAULT_PAGE, MAX_PAGE, Page, Query};
pub use schema::Migrated;
#[cfg(feature = "console")]
pub(crate) use second_factor::SecondFactor;
#[cfg(feature = "console")]
pub(crate) use users::{MAX_USERS, User, UserChange};
pub use watch::{Away, Signal};
pub(crate) use workspaces::{MAX_WORKSPACES, StoredWorkspace, WorkspaceChange};

use link::failure::Failure;
use pool::{Lease, Pool};
use read::Head;

/// What ends a reader's transaction.
const END: &str = "COMMIT";

/// A database; clones are the same one.
#[derive(Clone)]
pub struct Store {
    core: Arc<Core>,
    follower: Arc<Follower>,
}

/// What the store's clones, changes and follower share.
struct Core {
    location: Location,
    options: Options,
    readers: Arc<Pool>,
    /// One connection of its own for following: readers that are busy for long are no database that is away.
    looks: Arc<Pool>,
    writer: Arc<Pool>,
    signal: Sender<Signal>,
    /// How often this process has committed.
    commits: AtomicU64,
}

/// The task that follows the database; ends with the last clone of the store.
#[derive(Default)]
struct Follower(OnceLock<JoinHandle<()>>);

impl Drop for Follower {
    fn drop(&mut self) {
        if let Some(task) = self.0.get() {
            task.abort();
        }
    }
}

impl Core {
    fn told(&self, failure: Failure) -> StoreError {
        failure.told(&self.location)
    }

    /// A connection with a snapshot.
    async fn reading(&self) -> Result<Lease, StoreError> {
        self.snapshot(&self.readers).await
    }

    async fn snapshot(&self, pool: &Arc<Pool>) -> Result<Lease, StoreError> {
        let opening = match self.location.engine() {
            Engine::Sqlite => "BEGIN",
            Engine::Postgres => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            Engine::MySql => "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
        };
        let timeouts = self.options.connect_timeout;
        pool.open(&[opening.to_owned()], timeouts).await.map_err(|failure| self.told(failure))
    }

    /// The state of now.
    async fn mark(&self, pool: &Arc<Pool>) -> Result<Mark, StoreError> {
        let mut lease = self.snapshot(pool).await?;
        let found = async {
            let link = lease.link()?;
            let head: Head = read::head(link, read::HEAD).await?;
            history::mark(link, head.revision).await
        };
        let found: Result<_, Failure> = found.await;
        lease.end(found, END).await
    }

    fn written(&self) -> u64 {
        self.commits.load(Ordering::Acquire)
    }

    /// This process has written a revision.
    fn committed(&self, mark: Mark) {
        self.commits.fetch_add(1, Ordering::AcqRel);
        watch::tell(&self.signal, Ok(mark));
    }
}

/// Reads by `$work` within a snapshot.
macro_rules! reading {
    ($store:expr, |$link:ident| $work:expr) => {{
        let mut lease = $store.core.reading().await?;
        let found = async {
            let $link = lease.link()?;
            $work
        };
        let found: Result<_, Failure> = found.await;
        lease.end(found, END).await
    }};
}

impl Store {
    /// The store at `location`. Touches nothing yet: the database may be away, and be there later.
    pub fn open(location: Location, options: Options) -> Self {
        let readers = Pool::new(location.clone(), options.clone(), options.connections);
        let looks = Pool::new(location.clone(), options.clone(), 1);
        let writer = Pool::new(location.clone(), options.clone(), 1);
        let (signal, commits) = (Sender::new(Signal::default()), AtomicU64::new(0));
        let core = Core { location, options, readers, looks, writer, signal, commits };
        Self { core: Arc::new(core), follower: Arc::default() }
    }

    /// Where it is.
    pub fn location(&self) -> &Location {
        &self.core.location
    }

    /// The steps by which the schema lags behind this program.
    ///
    /// # Errors
    /// [`StoreError::NewerSchema`], or when the database does not answer.
    pub async fn pending_migrations(&self) -> Result<Vec<&'static str>, StoreError> {
        let core = &self.core;
        schema::pending(&core.location, &core.options).await.map_err(|failure| core.told(failure))
    }

    /// Brings the schema to this program's. For SQLite it creates file and folder where they are missing, which only
    /// this user may then read.
    ///
    /// # Errors
    /// [`StoreError::NewerSchema`], or when the database does not answer or does not allow it.
    pub async fn migrate(&self) -> Result<Migrated, StoreError> {
        let core = &self.core;
        schema::migrate(&core.location, &core.options).await.map_err(|failure| core.told(failure))
    }

    /// The revision of now; 0 before the first.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn revision(&self) -> Result<u64, StoreError> {
        Ok(self.core.mark(&self.core.readers).await?.revision)
    }

    /// Hands every object to `each`, all from one state, in the order of kinds, then of ids by their bytes. Says which
    /// state it was.
    ///
    /// # Errors
    /// When the database does not answer, or fails in the middle.
    pub async fn load<F>(&self, each: F) -> Result<Mark, StoreError>
    where
        F: FnMut(Object) + Send,
    {
        reading!(self, |link| {
            let head = read::head(link, read::HEAD).await?;
            let mark = history::mark(link, head.revision).await?;
            read::all(link, each).await?;
            Ok(mark)
        })
    }

    /// One object.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn get(&self, kind: ObjectKind, id: &str) -> Result<Option<Object>, StoreError> {
        Ok(self.get_many(kind, &[id.to_owned()]).await?.pop())
    }

    /// Those of `ids` that there are.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn get_many(&self, kind: ObjectKind, ids: &[String]) -> Result<Vec<Object>, StoreError> {
        reading!(self, |link| read::many(link, kind, ids).await)
    }

    /// A page of objects.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        reading!(self, |link| read::list(link, query).await)
    }

    /// How many there are. Counts them, so it costs by their number.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn count(&self, kind: ObjectKind) -> Result<u64, StoreError> {
        reading!(self, |link| read::count(link, kind).await)
    }

    /// Begins a change, as the only one on this database.
    ///
    /// # Errors
    /// [`StoreError::Busy`] when another one does not end in time, or when the database does not answer.
    pub async fn begin(&self, author: Author) -> Result<Transaction, StoreError> {
        let begun = Transaction::begin(self.clone(), author).await;
        if let Err(error) = &begun
            && !matches!(
                error,
                StoreError::Busy { .. }
                    | StoreError::Full { .. }
                    | StoreError::ReadOnly { .. }
                    // It may not write; followers see for themselves whether they may read.
                    | StoreError::Denied { .. }
                    | StoreError::NewerSchema { .. }
            )
        {
            // Followers need not find out by themselves; their next look takes it back where it was for a moment.
            watch::tell_away(&self.core.signal, error.to_string());
        }
        begun
    }

    /// Why the database does not answer, as far as is known now.
    pub fn away(&self) -> Option<Away> {
        self.core.signal.borrow().away.clone()
    }

    /// What has changed since `revision`, by whomever.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn changed_since(&self, revision: u64) -> Result<Changed, StoreError> {
        let limit = self.core.options.max_delta;
        reading!(self, |link| {
            let head = read::head(link, read::HEAD).await?;
            history::since(link, head, revision, limit).await
        })
    }

    /// What has changed since `mark`, with the proxies that `concerned` names when it is told, all from one state;
    /// `None` when that can't be said, and everything has to be loaded anew: see [`Changed::TooOld`]. When the revision
    /// of `mark` has another token by now, it is of another history, and everything may be different.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn follow<F>(&self, mark: &Mark, concerned: F) -> Result<Option<Followed>, StoreError>
    where
        F: FnOnce(&[(ObjectKind, String, Option<Object>)]) -> Vec<String> + Send,
    {
        let limit = self.core.options.max_delta;
        reading!(self, |link| {
            let head = read::head(link, read::HEAD).await?;
            let now = history::mark(link, head.revision).await?;
            if history::mark(link, mark.revision).await? != *mark {
                return Ok(None);
            }
            let Changed::Objects { objects, .. } = history::since(link, head, mark.revision, limit).await?
            else {
                return Ok(None);
            };
            let proxies = read::many(link, ObjectKind::Proxies, &concerned(&objects)).await?;
            Ok(Some(Followed { mark: now, objects, proxies }))
        })
    }

    /// Whether a state is one of this store's history, as far as that is kept.
    ///
    /// # Errors
    /// When the database does not answer.
    #[cfg(feature = "fleet")]
    pub(crate) async fn has_mark(&self, mark: &Mark) -> Result<bool, StoreError> {
        reading!(self, |link| {
            let head = read::head(link, read::HEAD).await?;
            Ok(mark.revision <= head.revision && history::mark(link, mark.revision).await? == *mark)
        })
    }

    /// Revisions before `before` (by default: up to the newest), the newest first; at most `limit`, and
    /// [`MAX_REVISIONS`].
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn revisions(
        &self,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<RevisionInfo>, StoreError> {
        reading!(self, |link| {
            let head = read::head(link, read::HEAD).await?;
            history::revisions(link, head, before, limit).await
        })
    }

    /// One revision, if it is still known.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn revision_info(&self, revision: u64) -> Result<Option<RevisionInfo>, StoreError> {
        reading!(self, |link| {
            let head = read::head(link, read::HEAD).await?;
            history::revision(link, head, revision).await
        })
    }

    /// What one revision changed.
    ///
    /// # Errors
    /// [`StoreError::NoHistory`], [`StoreError::TooMany`], or when the database does not answer.
    pub async fn revision_changes(&self, revision: u64) -> Result<Vec<Difference>, StoreError> {
        self.diff(revision.saturating_sub(1), revision).await
    }

    /// What is different between two states, in either direction.
    ///
    /// # Errors
    /// [`StoreError::NoHistory`], [`StoreError::TooMany`], or when the database does not answer.
    pub async fn diff(&self, from: u64, to: u64) -> Result<Vec<Difference>, StoreError> {
        let limit = self.core.options.max_diff;
        reading!(self, |link| {
            let head = read::head(link, read::HEAD).await?;
            history::diff(link, head, from, to, limit).await
        })
    }

    /// The steps that lead from the state of now to the one at `revision`; see [`Transaction::undo_ops`], which knows that
    /// nobody else writes meanwhile.
    ///
    /// # Errors
    /// [`StoreError::NoHistory`], [`StoreError::TooMany`], or when the database does not answer.
    pub async fn undo_ops(&self, revision: u64) -> Result<Vec<Op>, StoreError> {
        let limit = self.core.options.max_diff;
        reading!(self, |link| {
            let head = read::head(link, read::HEAD).await?;
            history::undo(link, head, revision, limit).await
        })
    }

    /// Tells of every new revision, by whomever, and of the database going away. Has to be called within a runtime,
    /// on which the database is then followed until the last clone of the store is gone.
    pub fn watch(&self) -> Receiver<Signal> {
        self.follower.0.get_or_init(|| tokio::spawn(watch::follow(Arc::downgrade(&self.core))));
        self.core.signal.subscribe()
    }
}
