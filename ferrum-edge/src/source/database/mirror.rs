//! The last good configuration: a copy in a file of this machine, to start from when the database server is away.
//!
//! The copy is a store of its own that is fed each revision after it was published, at the cost of what changed. It is
//! behind for a moment, never ahead: each of its revisions names the one it is a copy of, and of which database.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::store::{Author, Location, Mark, Op, Options, Store, StoreError};

/// Revisions that wait to be copied; beyond it the copy is made anew.
const WAITING: usize = 64;
/// Before what could not be saved is tried again.
const RETRY: Duration = Duration::from_secs(15);
/// The history of a copy is of no use.
const KEPT_REVISIONS: u64 = 2;
/// Who writes it.
const SOURCE: &str = "mirror";

/// The copy.
#[derive(Clone)]
pub(super) struct Mirror {
    store: Store,
    primary: Store,
    feed: mpsc::Sender<Fed>,
    standing: Arc<Mutex<MirrorStanding>>,
    _task: Arc<Task>,
}

/// How the copy stands, for status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MirrorStanding {
    /// The revision it is a copy of; `None` before the first.
    pub(crate) revision: Option<u64>,
    /// Why the newest revision is not in it.
    pub(crate) problem: Option<String>,
}

/// The task that writes the copy; ends with the last clone of the mirror.
struct Task(tokio::task::JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// One revision to be copied.
struct Fed {
    from: Mark,
    to: Mark,
    ops: Vec<Op>,
}

impl Mirror {
    /// The copy of `primary` in this file, brought up to date in the background. Has to be called within a runtime.
    ///
    /// # Errors
    /// When the file can't be created or used.
    pub(super) async fn open(path: PathBuf, primary: Store) -> Result<Self, StoreError> {
        let options = Options { keep_revisions: KEPT_REVISIONS, ..Options::default() };
        let store = Store::open(Location::sqlite(path), options);
        if let Err(error) = usable(&store).await {
            begin_anew(&store, error).await?;
        }
        let standing = Arc::new(Mutex::new(MirrorStanding {
            revision: copied(&store, &primary).await.map(|mark| mark.revision),
            problem: None,
        }));
        let (feed, fed) = mpsc::channel(WAITING);
        let copying = copy(store.clone(), primary.clone(), fed, standing.clone());
        let task = Task(tokio::spawn(copying));
        Ok(Self { store, primary, feed, standing, _task: Arc::new(task) })
    }

    /// How it stands.
    pub(super) fn standing(&self) -> MirrorStanding {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The copy.
    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// The state it is a copy of; `None` when there is none yet.
    pub(super) async fn mark(&self) -> Option<Mark> {
        copied(&self.store, &self.primary).await
    }

    /// This revision was read whole: unless it is the one copied, the copy is made anew.
    pub(super) fn follow(&self, mark: Mark) {
        self.feed(mark.clone(), mark, Vec::new());
    }

    /// Something was published: `ops` lead from one revision to the next. Never waits.
    pub(super) fn feed(&self, from: Mark, to: Mark, ops: Vec<Op>) {
        // When the queue is full, the next one that gets in finds a gap, and the copy is made anew.
        drop(self.feed.try_send(Fed { from, to, ops }));
    }
}

/// The state of `primary` that the copy is a copy of: both stand in the note of its newest own revision. A copy of
/// another database is none.
async fn copied(store: &Store, primary: &Store) -> Option<Mark> {
    let newest = store.revisions(None, 1).await.ok()?;
    let (mark, of) = newest.first()?.note.split_once(' ')?;
    (of == primary.location().to_string()).then_some(())?;
    // Older copies have no token, so they are made anew.
    let (revision, token) = mark.split_once(':').unwrap_or((mark, ""));
    Some(Mark { revision: revision.parse().ok()?, token: token.to_owned() })
}

/// The note by which [`copied`] knows it.
fn note(mark: &Mark, primary: &Store) -> String {
    format!("{}:{} {}", mark.revision, mark.token, primary.location())
}

async fn copy(
    store: Store,
    primary: Store,
    mut fed: mpsc::Receiver<Fed>,
    standing: Arc<Mutex<MirrorStanding>>,
) {
    // The state that could not be saved.
    let mut unsaved: Option<Mark> = None;
    loop {
        let next = match &unsaved {
            Some(mark) => match timeout(RETRY, fed.recv()).await {
                Ok(next) => next,
                Err(_) => Some(Fed { from: mark.clone(), to: mark.clone(), ops: Vec::new() }),
            },
            None => fed.recv().await,
        };
        let Some(fed) = next else { return };
        let (mark, revision) = (fed.to.clone(), fed.to.revision);
        // A panic is logged where it happens; the copy finds a gap at the next revision and is made anew.
        let taken = AssertUnwindSafe(take_or_mend(&store, &primary, fed)).catch_unwind().await;
        let problem = match taken {
            Ok(Ok(())) => None,
            Ok(Err(error)) => {
                if unsaved.is_none() {
                    tracing::warn!(
                        %error,
                        "the last good configuration could not be saved, and is tried again; a restart without the database \
                         would begin with an older one"
                    );
                }
                Some(error.to_string())
            }
            Err(_) => Some("saving it panicked; the log says where".to_owned()),
        };
        if problem.is_none() && unsaved.is_some() {
            tracing::info!(revision, "the last good configuration is saved again");
        }
        unsaved = problem.is_some().then_some(mark);
        let mut standing = standing.lock().unwrap_or_else(PoisonError::into_inner);
        if problem.is_none() {
            standing.revision = Some(revision);
        }
        standing.problem = problem;
    }
}

/// Takes over a revision; a damaged copy is put aside and made anew.
async fn take_or_mend(store: &Store, primary: &Store, fed: Fed) -> Result<(), StoreError> {
    let again = Fed { from: fed.from.clone(), to: fed.to.clone(), ops: Vec::new() };
    match take(store, primary, fed).await {
        Err(error) if is_damaged(&error) => {
            begin_anew(store, error).await?;
            take(store, primary, again).await
        }
        taken => taken,
    }
}

/// Whether the file itself is of no use.
fn is_damaged(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Corrupt { .. } | StoreError::NotADatabase { .. } | StoreError::Unreadable { .. }
    )
}

/// Creates and examines it.
async fn usable(store: &Store) -> Result<(), StoreError> {
    store.migrate().await?;
    store.revision().await.map(drop)
}

/// Puts a damaged file aside, under its name and `.damaged`, and begins another one.
async fn begin_anew(store: &Store, error: StoreError) -> Result<(), StoreError> {
    let Some(path) = store.location().path().filter(|_| is_damaged(&error)) else { return Err(error) };
    let beside = |end: &str| PathBuf::from(format!("{}{end}", path.display()));
    if let Err(source) = std::fs::rename(path, beside(".damaged")) {
        return Err(StoreError::Open { path: path.to_owned(), source });
    }
    for end in ["-wal", "-shm"] {
        // Of the file that was put aside; often there is none.
        drop(std::fs::remove_file(beside(end)));
    }
    let shown = path.display();
    tracing::warn!(path = %shown, %error, "the copy of the last good configuration was damaged; it is made anew");
    usable(store).await
}

/// Takes over a revision. Another gateway may write the same copy, so what is there is looked at under its lock.
async fn take(store: &Store, primary: &Store, Fed { from, to, ops }: Fed) -> Result<(), StoreError> {
    let author = Author { name: SOURCE.to_owned(), source: SOURCE.to_owned() };
    let mut change = store.begin(author).await?;
    let (ops, mark) = match copied(store, primary).await {
        Some(at) if at == to => {
            change.rollback().await;
            return Ok(());
        }
        Some(at) if at == from => (ops, to),
        _ => anew(store, primary).await?,
    };
    change.put(ops).await?;
    change.commit(&note(&mark, primary)).await.map(drop)
}

/// What makes the copy one of everything there is, and its revision.
async fn anew(store: &Store, primary: &Store) -> Result<(Vec<Op>, Mark), StoreError> {
    let mut ops = Vec::new();
    let mut there = std::collections::HashSet::new();
    let mark = primary
        .load(|object| {
            there.insert((object.kind, object.id.clone()));
            ops.push(Op::Put { kind: object.kind, id: object.id, document: object.document });
        })
        .await?;
    store
        .load(|object| {
            if !there.contains(&(object.kind, object.id.clone())) {
                ops.push(Op::Delete { kind: object.kind, id: object.id });
            }
        })
        .await?;
    Ok((ops, mark))
}
