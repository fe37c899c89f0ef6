//! Changing the store: one change is one transaction, and one revision when it changes anything.
//!
//! Whoever has begun a change holds the one lock of all writers on this database, other gateways' among them, so what
//! it reads stays true until it commits. An engine's transaction that failed in the middle may have been ended by the
//! engine without a word; a change that met an error therefore does nothing any more.

mod settle;

pub(super) use settle::CHANNEL;

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use super::author::Author;
use super::gathered::Gathered;
use super::history::Counts;
use super::link::failure::Failure;
use super::link::{StoreConnection, Value, tuples};
use super::location::Engine;
use super::object::{MAX_DOCUMENT_BYTES, MAX_ID_BYTES, Object, ObjectKind, Op};
use super::pool::Lease;
use super::read::{self, Head, Page, Query};
use super::{Mark, Store, StoreError, history, schema};

/// Bytes of an author's name and source.
const MAX_NAME: usize = 255;
/// Bytes of a note.
pub(super) const MAX_NOTE: usize = 4096;
/// Rows written in one statement; a longer one is put together of these, so that the database keeps their plans.
const ROWS: [usize; 4] = [256, 32, 8, 1];
/// Bytes of documents in one statement.
const STATEMENT_BYTES: usize = 2 << 20;
/// Milliseconds after which a server ends a change that stands still, so that a dead gateway does not hold the lock.
const IDLE_MILLIS: u32 = 60_000;
/// Rows of history that are pruned with a commit, beside as many as twice what it wrote.
const PRUNED: u64 = 2000;

/// A change that has begun; dropping it takes everything back.
pub struct Transaction {
    pub(super) store: Store,
    lease: Option<Lease>,
    head: Head,
    base: Mark,
    author: Author,
    now: u64,
    counts: Counts,
    /// Whether something may have been changed twice, so that the counts have to be looked up.
    again: bool,
    /// What was done so far, where somebody wants to know.
    gathered: Option<Gathered>,
}

/// A row to be written.
struct Row {
    kind: ObjectKind,
    id: String,
    was: Option<String>,
    document: Option<String>,
}

impl Transaction {
    pub(super) async fn begin(store: Store, author: Author) -> Result<Self, StoreError> {
        let core = &store.core;
        let busy = core.options.busy_timeout;
        let (opening, lock) = opening(core.location.engine(), busy.as_millis());
        let begun = async {
            let mut lease = core.writer.open(&opening, busy).await?;
            let head = read::head(lease.link()?, &lock).await?;
            if core.location.engine() == Engine::Postgres {
                // Was meant for the writers' lock. A COMMIT that notifies waits for every other one on the server.
                lease.link()?.script("SET LOCAL lock_timeout = 0").await?;
            }
            // A newer program may have migrated the database since this one connected.
            schema::check_version(lease.link()?, &core.location).await?;
            let base = history::mark(lease.link()?, head.revision).await?;
            Ok::<_, Failure>((lease, head, base))
        };
        let (lease, head, base) = begun.await.map_err(|failure| match failure {
            Failure::Crowded(waited) => StoreError::Busy { waited },
            other => match other.told(&core.location) {
                StoreError::Busy { .. } => StoreError::Busy { waited: busy },
                other => other,
            },
        })?;
        let author = Author { name: cut(&author.name, MAX_NAME), source: cut(&author.source, MAX_NAME) };
        Ok(Self {
            head,
            base,
            lease: Some(lease),
            author,
            now: now(),
            counts: Counts::default(),
            again: false,
            gathered: None,
            store,
        })
    }

    /// Has another author signed for it from here on.
    pub(crate) fn sign(&mut self, author: &Author) {
        self.author = Author { name: cut(&author.name, MAX_NAME), source: cut(&author.source, MAX_NAME) };
    }

    /// The revision this change is made to.
    pub const fn base(&self) -> u64 {
        self.head.revision
    }

    /// The same with its token.
    pub const fn base_mark(&self) -> &Mark {
        &self.base
    }

    /// When it began, as its objects will say: milliseconds since 1970-01-01 UTC.
    pub(crate) const fn time(&self) -> u64 {
        self.now
    }

    /// What has been changed so far.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Has what is done from here on gathered, for the audit.
    pub(crate) fn gather(&mut self) {
        self.gathered = Some(Gathered::default());
    }

    /// What was gathered.
    pub(crate) fn gathered(&mut self) -> Gathered {
        self.gathered.take().unwrap_or_default()
    }

    /// One object, as this change has left it.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn get(&mut self, kind: ObjectKind, id: &str) -> Result<Option<Object>, StoreError> {
        Ok(self.get_many(kind, &[id.to_owned()]).await?.pop())
    }

    /// Those of `ids` that there are, as this change has left them.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn get_many(&mut self, kind: ObjectKind, ids: &[String]) -> Result<Vec<Object>, StoreError> {
        let mut lease = self.take()?;
        let found = match lease.link() {
            Ok(link) => read::many(link, kind, ids).await,
            Err(failure) => Err(failure),
        };
        self.keep(lease, found)
    }

    /// A page of what is there, as this change has left it.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn list(&mut self, query: &Query) -> Result<Page, StoreError> {
        let mut lease = self.take()?;
        let found = match lease.link() {
            Ok(link) => read::list(link, query).await,
            Err(failure) => Err(failure),
        };
        self.keep(lease, found)
    }

    /// The steps that lead from what is there back to the state at `revision`: first what is put, what is referred to
    /// before what refers to it, then what is deleted, the other way around.
    ///
    /// # Errors
    /// [`StoreError::NoHistory`], [`StoreError::TooMany`], or when the database does not answer.
    pub async fn undo_ops(&mut self, revision: u64) -> Result<Vec<Op>, StoreError> {
        let (head, limit) = (self.head, self.store.core.options.max_diff);
        let mut lease = self.take()?;
        let found = match lease.link() {
            Ok(link) => history::undo(link, head, revision, limit).await,
            Err(failure) => Err(failure),
        };
        self.keep(lease, found)
    }

    /// Carries out steps, each object's last one; what changes nothing is left out. Says what these did.
    ///
    /// # Errors
    /// [`StoreError::Id`] and [`StoreError::Document`], after which the change goes on as if nothing had been asked;
    /// any other ends it.
    pub async fn put(&mut self, ops: Vec<Op>) -> Result<Counts, StoreError> {
        for op in &ops {
            check(op)?;
        }
        let mut lease = self.take()?;
        let written = match lease.link() {
            Ok(link) => self.write(link, ops).await,
            Err(failure) => Err(failure),
        };
        let counts = self.keep(lease, written)?;
        self.counts.created += counts.created;
        self.counts.updated += counts.updated;
        self.counts.deleted += counts.deleted;
        Ok(counts)
    }

    /// Takes everything back. Dropping does so too, only without waiting for it.
    pub async fn rollback(mut self) {
        if let Some(lease) = self.lease.take()
            && lease.settle("ROLLBACK").await.is_err()
        {
            tracing::debug!("a change was taken back by closing its connection");
        }
    }

    /// The connection, which is missing from here on until [`Self::keep`] gives it back: also when the caller's future
    /// is dropped in between.
    pub(super) fn take(&mut self) -> Result<Lease, StoreError> {
        self.lease.take().ok_or(StoreError::Broken)
    }

    pub(super) fn keep<T>(&mut self, lease: Lease, work: Result<T, Failure>) -> Result<T, StoreError> {
        match work {
            Ok(value) => {
                self.lease = Some(lease);
                Ok(value)
            }
            Err(failure) => Err(failure.told(&self.store.core.location)),
        }
    }

    /// The revision this change will be.
    const fn revision(&self) -> u64 {
        self.head.revision + 1
    }

    async fn write(&mut self, link: &mut StoreConnection, ops: Vec<Op>) -> Result<Counts, Failure> {
        // The last step of each object, in the order of the table, which is how it is written fastest.
        let mut last: BTreeMap<(ObjectKind, String), Option<String>> = BTreeMap::new();
        for op in ops {
            match op {
                Op::Put { kind, id, document } => last.insert((kind, id), Some(document)),
                Op::Delete { kind, id } => last.insert((kind, id), None),
            };
        }
        let mut counts = Counts::default();
        let mut last = last.into_iter().peekable();
        while last.peek().is_some() {
            let (mut batch, mut bytes) = (Vec::with_capacity(ROWS[0]), 0);
            while let Some(((kind, id), document)) = last.next() {
                bytes += document.as_ref().map_or(0, String::len);
                batch.push(Row { kind, id, was: None, document });
                let next = last.peek();
                let enough = batch.len() == ROWS[0] || bytes > STATEMENT_BYTES;
                if enough || next.is_none_or(|((other, _), _)| *other != kind) {
                    break;
                }
            }
            self.write_batch(link, batch, &mut counts).await?;
        }
        Ok(counts)
    }

    /// Writes rows of one kind.
    async fn write_batch(
        &mut self,
        link: &mut StoreConnection,
        mut batch: Vec<Row>,
        counts: &mut Counts,
    ) -> Result<(), Failure> {
        let Some(kind) = batch.first().map(|row| row.kind) else { return Ok(()) };
        let ids: Vec<String> = batch.iter().map(|row| row.id.clone()).collect();
        let mut there = read::many(link, kind, &ids).await?.into_iter().peekable();
        let deleted = self.counts.deleted + counts.deleted > 0;
        for row in &mut batch {
            if let Some(object) = there.next_if(|object| object.id == row.id) {
                self.again |= object.revision == self.revision();
                row.was = Some(object.document);
            } else {
                self.again |= deleted;
            }
        }
        batch.retain(|row| row.was != row.document);
        for row in &batch {
            match (&row.was, &row.document) {
                (None, _) => counts.created += 1,
                (Some(_), Some(_)) => counts.updated += 1,
                (Some(_), None) => counts.deleted += 1,
            }
            if let Some(gathered) = &mut self.gathered {
                gathered.add(kind.as_str(), &row.id, row.was.as_deref(), row.document.as_deref());
            }
        }
        self.write_history(link, &mut batch).await?;
        let (puts, deletes): (Vec<_>, Vec<_>) = batch.into_iter().partition(|row| row.document.is_some());
        self.write_objects(link, puts).await?;
        let gone = deletes.into_iter().map(|row| [kind.as_str().into(), row.id.into()]).collect();
        let sql = |rows| {
            format!("DELETE FROM ferrum_objects WHERE {}", vec!["(kind = ? AND id = ?)"; rows].join(" OR "))
        };
        in_parts::<2>(link, gone, sql).await
    }

    async fn write_history(&self, link: &mut StoreConnection, batch: &mut [Row]) -> Result<(), Failure> {
        let revision = self.revision();
        // What was there before this change counts, not what was there before this step of it.
        let kept = match link.engine() {
            Engine::MySql => "ON DUPLICATE KEY UPDATE revision = ferrum_changes.revision",
            _ => "ON CONFLICT DO NOTHING",
        };
        let rows: Vec<[Value; 4]> = batch
            .iter_mut()
            .map(|row| {
                let was = row.was.take().map_or(Value::Null, Value::Text);
                [revision.into(), row.kind.as_str().into(), row.id.as_str().into(), was]
            })
            .collect();
        in_parts(link, rows, |rows| {
            format!("INSERT INTO ferrum_changes (revision, kind, id, was) VALUES {} {kept}", tuples(rows, 4))
        })
        .await
    }

    async fn write_objects(&self, link: &mut StoreConnection, puts: Vec<Row>) -> Result<(), Failure> {
        let replaced = match link.engine() {
            Engine::MySql => {
                "ON DUPLICATE KEY UPDATE document = VALUES(document), updated_at = VALUES(updated_at), \
                 revision = VALUES(revision)"
            }
            _ => {
                "ON CONFLICT (kind, id) DO UPDATE SET document = excluded.document, \
                 updated_at = excluded.updated_at, revision = excluded.revision"
            }
        };
        let (now, revision) = (self.now, self.revision());
        let rows: Vec<[Value; 6]> = puts
            .into_iter()
            .map(|row| {
                let document = row.document.unwrap_or_default();
                [
                    row.kind.as_str().into(),
                    row.id.into(),
                    document.into(),
                    now.into(),
                    now.into(),
                    revision.into(),
                ]
            })
            .collect();
        in_parts(link, rows, |rows| {
            let places = tuples(rows, 6);
            format!(
                "INSERT INTO ferrum_objects (kind, id, document, created_at, updated_at, revision) \
                 VALUES {places} {replaced}"
            )
        })
        .await
    }
}

/// Writes `rows` in parts of the few lengths there are, none of them too long for a server; `sql` is the statement for
/// so many.
async fn in_parts<const COLUMNS: usize>(
    link: &mut StoreConnection,
    rows: Vec<[Value; COLUMNS]>,
    sql: impl Fn(usize) -> String + Send,
) -> Result<(), Failure> {
    let mut rows = rows.into_iter();
    for length in ROWS {
        while rows.as_slice().get(..length).is_some_and(|part| length == 1 || is_short(part)) {
            let part = rows.by_ref().take(length).flatten().collect();
            link.run(&sql(length), part).await?;
        }
    }
    Ok(())
}

/// Whether these rows fit into one statement.
fn is_short<const COLUMNS: usize>(rows: &[[Value; COLUMNS]]) -> bool {
    let bytes = |value: &Value| if let Value::Text(text) = value { text.len() } else { 0 };
    rows.iter().flatten().map(bytes).sum::<usize>() <= STATEMENT_BYTES
}

impl Drop for Transaction {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        // Outside of a runtime the connection is closed, which takes the change back as well.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { lease.settle("ROLLBACK").await.is_ok() });
        }
    }
}

/// Refuses what the store can't hold.
fn check(op: &Op) -> Result<(), StoreError> {
    let (kind, id) = op.key();
    if id.is_empty() || id.len() > MAX_ID_BYTES || id.contains('\0') {
        return Err(StoreError::Id { kind });
    }
    match op.document() {
        Some(document) if document.len() > MAX_DOCUMENT_BYTES || document.contains('\0') => {
            Err(StoreError::Document { kind, id: id.to_owned(), bytes: document.len() })
        }
        _ => Ok(()),
    }
}

/// What begins a change, and what reads the head under the writers' lock.
fn opening(engine: Engine, busy_millis: u128) -> (Vec<String>, String) {
    match engine {
        Engine::Sqlite => (vec!["BEGIN IMMEDIATE".to_owned()], read::HEAD.to_owned()),
        Engine::Postgres => {
            let begin = format!(
                "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout = {busy_millis}; \
                 SET LOCAL idle_in_transaction_session_timeout = {IDLE_MILLIS}; \
                 SELECT set_config('synchronous_commit', 'on', true) \
                 WHERE current_setting('synchronous_commit') = 'off'"
            );
            (vec![begin], format!("{} FOR UPDATE", read::HEAD))
        }
        Engine::MySql => {
            (vec!["START TRANSACTION READ WRITE".to_owned()], format!("{} FOR UPDATE", read::HEAD))
        }
    }
}

/// Milliseconds since 1970 UTC.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// `text`, but no more than `bytes` of it, and no NUL.
pub(super) fn cut(text: &str, bytes: usize) -> String {
    let end = (0..=bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.get(..end).unwrap_or_default().replace('\0', " ")
}
