//! Changes that wait for the approval of another user: rows of `ferrum_pending`. They are no part of the revisions.
//!
//! A row has the documents as they are to be stored, so secrets in it are hashed or encrypted. Once a change is decided, its documents
//! are removed and the row stays as a record.

use serde::{Deserialize, Serialize};

use super::change::{MAX_NOTE, Transaction, cut};
use super::link::failure::Failure;
use super::link::{Cells, StoreConnection};
use super::{Author, END, ObjectKind, Store, StoreError};
use crate::audit::{ChainLine, Draft};

/// Changes that wait in one database.
pub(crate) const MAX_PENDING: u64 = 200;
/// Changes of one author that wait.
pub(crate) const MAX_PENDING_OF_AUTHOR: u64 = 50;
/// Objects of one change.
pub(crate) const MAX_PENDING_OBJECTS: usize = 10_000;
/// Bytes of the documents of one change, before and after.
pub(crate) const MAX_PENDING_BYTES: usize = 8 << 20;
/// Numbers for which a decided change is kept.
const KEPT: u64 = 1000;
/// Bytes of a name.
const MAX_NAME: usize = 255;

const COLUMNS: &str = "number, state, author, source, role, note, base, created_at, expires_at, decided_by, decided_at, reason, revision, objects";

/// How a change stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PendingState {
    Pending,
    Approved,
    Rejected,
    Withdrawn,
    Expired,
}

impl PendingState {
    pub(crate) const ALL: [Self; 5] =
        [Self::Pending, Self::Approved, Self::Rejected, Self::Withdrawn, Self::Expired];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::Withdrawn => "withdrawn",
            Self::Expired => "expired",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

/// An object of a change, without its documents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PendingObject {
    pub(crate) kind: String,
    pub(crate) id: String,
    /// `create`, `update` or `delete`.
    pub(crate) action: String,
}

/// An object of a change as it was and as it is to be. Documents are as they are stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PendingDocument {
    pub(crate) kind: String,
    pub(crate) id: String,
    /// `None`: there was none.
    pub(crate) before: Option<String>,
    /// `None`: it is to be deleted.
    pub(crate) after: Option<String>,
}

/// A change that another user has to approve, or what became of it. Times are milliseconds since 1970 UTC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PendingChange {
    pub(crate) number: u64,
    pub(crate) state: PendingState,
    pub(crate) author: Author,
    /// The name of the role that the change needs.
    pub(crate) role: String,
    pub(crate) note: String,
    /// The revision that it was made to.
    pub(crate) base: u64,
    pub(crate) created_at: u64,
    pub(crate) expires_at: u64,
    pub(crate) decided_by: Option<String>,
    pub(crate) decided_at: Option<u64>,
    pub(crate) reason: String,
    /// The revision that came of it.
    pub(crate) revision: Option<u64>,
    pub(crate) objects: Vec<PendingObject>,
}

/// What ends the wait of a change.
#[derive(Debug, Clone)]
pub(crate) struct PendingDecision {
    pub(crate) number: u64,
    pub(crate) state: PendingState,
    pub(crate) by: String,
    pub(crate) reason: String,
    /// The revision that came of it; 0 for none.
    pub(crate) revision: u64,
}

impl PendingChange {
    /// The same as it stands at this time.
    pub(crate) fn at(mut self, now: u64) -> Self {
        if self.state == PendingState::Pending && self.expires_at <= now {
            self.state = PendingState::Expired;
        }
        self
    }

    /// The kinds and ids of its objects. An unknown kind, which a newer program may have written, is left out.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (ObjectKind, &str)> {
        self.objects.iter().filter_map(|object| Some((ObjectKind::named(&object.kind)?, object.id.as_str())))
    }
}

impl PendingDocument {
    pub(crate) fn action(&self) -> &'static str {
        match (&self.before, &self.after) {
            (None, _) => "create",
            (Some(_), Some(_)) => "update",
            (Some(_), None) => "delete",
        }
    }
}

impl Store {
    /// Changes in this state, or in any, the newest first, whose number is less than `before`.
    ///
    /// # Errors
    /// When the database does not answer.
    pub(crate) async fn pending_changes(
        &self,
        state: Option<PendingState>,
        before: Option<u64>,
        limit: usize,
        now: u64,
    ) -> Result<Vec<PendingChange>, StoreError> {
        let mut lease = self.core.reading().await?;
        let found = match lease.link() {
            Ok(link) => page(link, state, before, limit, now).await,
            Err(failure) => Err(failure),
        };
        lease.end(found, END).await
    }

    /// How many changes wait at this time.
    ///
    /// # Errors
    /// When the database does not answer.
    pub(crate) async fn pending_count(&self, now: u64) -> Result<u64, StoreError> {
        let mut lease = self.core.reading().await?;
        let found = match lease.link() {
            Ok(link) => count(link, now).await,
            Err(failure) => Err(failure),
        };
        lease.end(found, END).await
    }

    /// The change of this number with its documents, which a decided one lacks.
    ///
    /// # Errors
    /// When the database does not answer.
    pub(crate) async fn pending_change(
        &self,
        number: u64,
    ) -> Result<Option<(PendingChange, Vec<PendingDocument>)>, StoreError> {
        let mut lease = self.core.reading().await?;
        let found = match lease.link() {
            Ok(link) => change_with_documents(link, number).await,
            Err(failure) => Err(failure),
        };
        lease.end(found, END).await
    }

    /// Ends the wait of a change without applying it, and adds an entry to the audit in the same transaction. `decide` sees the change
    /// under the lock of all writers, and the time. `Err` writes nothing.
    ///
    /// # Errors
    /// When the database does not answer.
    pub(crate) async fn decide_pending<E>(
        &self,
        number: u64,
        decide: impl FnOnce(Option<PendingChange>, &mut Draft) -> Result<PendingDecision, E> + Send,
        mut draft: Draft,
    ) -> Result<Result<(Draft, ChainLine), E>, StoreError> {
        let mut transaction = self.begin(Author::default()).await?;
        let now = transaction.time();
        let known = transaction.pending(number).await?.map(|(change, _)| change.at(now));
        let decision = match decide(known, &mut draft) {
            Ok(decision) => decision,
            Err(error) => {
                transaction.rollback().await;
                return Ok(Err(error));
            }
        };
        transaction.end_pending(&decision).await?;
        let line = transaction.audit(&draft).await?;
        transaction.commit_audit().await?;
        Ok(Ok((draft, line)))
    }
}

impl Transaction {
    /// The change of this number with its documents.
    pub(crate) async fn pending(
        &mut self,
        number: u64,
    ) -> Result<Option<(PendingChange, Vec<PendingDocument>)>, StoreError> {
        let mut lease = self.take()?;
        let found = match lease.link() {
            Ok(link) => change_with_documents(link, number).await,
            Err(failure) => Err(failure),
        };
        self.keep(lease, found)
    }

    /// How many changes wait, and how many of them are of this author.
    pub(crate) async fn pending_counts(&mut self, author: &str) -> Result<(u64, u64), StoreError> {
        let now = self.time();
        let mut lease = self.take()?;
        let found = match lease.link() {
            Ok(link) => counts(link, author, now).await,
            Err(failure) => Err(failure),
        };
        self.keep(lease, found)
    }

    /// Keeps a change until it is approved, and answers it with its number. What is over is pruned.
    pub(crate) async fn propose(
        &mut self,
        change: PendingChange,
        documents: &[PendingDocument],
    ) -> Result<PendingChange, StoreError> {
        let now = self.time();
        let mut lease = self.take()?;
        let kept = match lease.link() {
            Ok(link) => insert(link, change, documents, now).await,
            Err(failure) => Err(failure),
        };
        self.keep(lease, kept)
    }

    /// Ends the wait of a change.
    pub(crate) async fn end_pending(&mut self, decision: &PendingDecision) -> Result<(), StoreError> {
        let now = self.time();
        let mut lease = self.take()?;
        let done = match lease.link() {
            Ok(link) => decide(link, decision, now).await,
            Err(failure) => Err(failure),
        };
        self.keep(lease, done)
    }
}

/// Reads a row. A state that a newer program may have written counts as decided.
fn change(row: &Cells) -> Result<PendingChange, Failure> {
    let objects = row.text(13)?;
    Ok(PendingChange {
        number: row.int(0)?,
        state: PendingState::from_name(&row.text(1)?).unwrap_or(PendingState::Rejected),
        author: Author { name: row.text(2)?, source: row.text(3)? },
        role: row.text(4)?,
        note: row.text(5)?,
        base: row.int(6)?,
        created_at: row.int(7)?,
        expires_at: row.int(8)?,
        decided_by: Some(row.text(9)?).filter(|name| !name.is_empty()),
        decided_at: Some(row.int(10)?).filter(|at| *at > 0),
        reason: row.text(11)?,
        revision: Some(row.int(12)?).filter(|revision| *revision > 0),
        objects: serde_json::from_str(&objects).map_err(|error| Failure::Row(error.to_string()))?,
    })
}

async fn page(
    link: &mut StoreConnection,
    state: Option<PendingState>,
    before: Option<u64>,
    limit: usize,
    now: u64,
) -> Result<Vec<PendingChange>, Failure> {
    // What has expired is marked at the next write only.
    let (filter, states): (&str, &[&str]) = match state {
        None => ("", &[]),
        Some(PendingState::Pending) => (" AND state = ? AND expires_at > ?", &["pending"]),
        Some(PendingState::Expired) => {
            (" AND (state = ? OR state = ? AND expires_at <= ?)", &["expired", "pending"])
        }
        Some(other) => (" AND state = ?", &[other.as_str()]),
    };
    let sql =
        format!("SELECT {COLUMNS} FROM ferrum_pending WHERE number < ?{filter} ORDER BY number DESC LIMIT ?");
    let most = i64::MAX.unsigned_abs();
    let mut values = vec![before.unwrap_or(most).min(most).into()];
    values.extend(states.iter().map(|state| (*state).into()));
    if filter.contains("expires_at") {
        values.push(now.into());
    }
    values.push((limit as u64).into());
    let mut found = Vec::new();
    link.rows(&sql, values, |row| {
        found.push(change(&row)?.at(now));
        Ok(())
    })
    .await?;
    Ok(found)
}

async fn change_with_documents(
    link: &mut StoreConnection,
    number: u64,
) -> Result<Option<(PendingChange, Vec<PendingDocument>)>, Failure> {
    let sql = format!("SELECT {COLUMNS}, documents FROM ferrum_pending WHERE number = ?");
    let Some(row) = link.row(&sql, vec![number.min(i64::MAX.unsigned_abs()).into()]).await? else {
        return Ok(None);
    };
    let documents = row.text(14)?;
    let documents = match documents.is_empty() {
        true => Vec::new(),
        false => serde_json::from_str(&documents).map_err(|error| Failure::Row(error.to_string()))?,
    };
    Ok(Some((change(&row)?, documents)))
}

const COUNT: &str = "SELECT COUNT(*) FROM ferrum_pending WHERE state = 'pending' AND expires_at > ?";

async fn count(link: &mut StoreConnection, now: u64) -> Result<u64, Failure> {
    link.row(COUNT, vec![now.into()]).await?.map_or(Ok(0), |row| row.int(0))
}

async fn counts(link: &mut StoreConnection, author: &str, now: u64) -> Result<(u64, u64), Failure> {
    let all = count(link, now).await?;
    let sql = format!("{COUNT} AND author = ?");
    let own = link.row(&sql, vec![now.into(), cut(author, MAX_NAME).into()]).await?;
    Ok((all, own.map_or(Ok(0), |row| row.int(0))?))
}

async fn insert(
    link: &mut StoreConnection,
    mut change: PendingChange,
    documents: &[PendingDocument],
    now: u64,
) -> Result<PendingChange, Failure> {
    let newest = link.row("SELECT COALESCE(MAX(number), 0) FROM ferrum_pending", Vec::new()).await?;
    change.number = newest.map_or(Ok(0), |row| row.int(0))? + 1;
    let written = |error: serde_json::Error| Failure::Row(error.to_string());
    let sql = format!(
        "INSERT INTO ferrum_pending ({COLUMNS}, documents) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, '', 0, '', 0, ?, ?)"
    );
    let values = vec![
        change.number.into(),
        change.state.as_str().into(),
        cut(&change.author.name, MAX_NAME).into(),
        cut(&change.author.source, MAX_NAME).into(),
        change.role.as_str().into(),
        cut(&change.note, MAX_NOTE).into(),
        change.base.into(),
        change.created_at.into(),
        change.expires_at.into(),
        serde_json::to_string(&change.objects).map_err(written)?.into(),
        serde_json::to_string(documents).map_err(written)?.into(),
    ];
    link.run(&sql, values).await?;
    let expired = "UPDATE ferrum_pending SET state = 'expired', documents = '' WHERE state = 'pending' AND expires_at <= ?";
    link.run(expired, vec![now.into()]).await?;
    let over = "DELETE FROM ferrum_pending WHERE number <= ? AND state <> 'pending'";
    link.run(over, vec![change.number.saturating_sub(KEPT).into()]).await?;
    Ok(change)
}

async fn decide(link: &mut StoreConnection, decision: &PendingDecision, now: u64) -> Result<(), Failure> {
    let sql = "UPDATE ferrum_pending SET state = ?, decided_by = ?, decided_at = ?, reason = ?, revision = ?, documents = '' \
               WHERE number = ?";
    let values = vec![
        decision.state.as_str().into(),
        cut(&decision.by, MAX_NAME).into(),
        now.into(),
        cut(&decision.reason, MAX_NOTE).into(),
        decision.revision.into(),
        decision.number.into(),
    ];
    link.run(sql, values).await.map(drop)
}
