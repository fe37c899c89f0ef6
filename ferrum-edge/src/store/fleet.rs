//! The fleet's rows: edges, invitations, the authority and the epoch. They are no part of the configuration's history.
//!
//! Every change is made under the writers' lock, and only if each row is as the writer knows it. So an invitation is used once, and
//! of several control planes that want to begin an epoch one does.
//!
//! `ferrum_fleet_changes` lists which rows the latest changes touched. A control plane that follows reads these rows alone, so that
//! enrolling an edge costs the same in a fleet of ten and of ten thousand.

use std::collections::BTreeSet;

use super::author::Author;
use super::change::Transaction;
use super::link::StoreConnection;
use super::link::failure::Failure;
use super::{END, Store, StoreError};

/// The row whose version counts changes of the table, and whose document is the token of the last listed one.
const STAMP: &str = "stamp";
/// Changes that are listed. A control plane that is further behind reads everything.
const KEPT: u64 = 1000;
/// Rows that are read one by one; of more, reading everything is cheaper.
const MAX_ROWS: usize = 500;

/// A row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FleetRow {
    /// Such as `edge`.
    pub(crate) kind: String,
    /// Unique within its kind.
    pub(crate) id: String,
    /// JSON, and how often it was changed; `None`: it is gone.
    pub(crate) content: Option<(String, u64)>,
}

/// A state of the rows: how often they were changed, and the token of that change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FleetMark {
    stamp: u64,
    token: String,
}

/// What has changed since a state.
#[derive(Debug)]
pub(crate) struct FleetChanges {
    /// The state of now.
    pub(crate) mark: FleetMark,
    /// `rows` are all there are, because the changes are not known one by one.
    pub(crate) is_whole: bool,
    pub(crate) rows: Vec<FleetRow>,
}

/// What becomes of a row.
#[derive(Debug, Clone)]
pub(crate) struct FleetOp {
    pub(crate) kind: &'static str,
    pub(crate) id: String,
    /// The version that it has to have; `None`: there has to be no such row.
    pub(crate) expected: Option<u64>,
    /// Its document from now on; `None` removes it.
    pub(crate) document: Option<String>,
}

impl Store {
    /// What has changed since `since`, by whichever control plane. Costs by that, and not by the number of rows.
    ///
    /// # Errors
    /// When the database does not answer.
    pub(crate) async fn follow_fleet(&self, since: &FleetMark) -> Result<FleetChanges, StoreError> {
        let mut lease = self.core.reading().await?;
        let changes = match lease.link() {
            Ok(link) => changes_since(link, since).await,
            Err(failure) => Err(failure),
        };
        lease.end(changes, END).await
    }

    /// One row.
    ///
    /// # Errors
    /// When the database does not answer.
    pub(crate) async fn fleet_row(&self, kind: &str, id: &str) -> Result<FleetRow, StoreError> {
        let mut lease = self.core.reading().await?;
        let found = match lease.link() {
            Ok(link) => row(link, kind, id).await,
            Err(failure) => Err(failure),
        };
        lease.end(found, END).await
    }

    /// Carries out all of `ops`, or nothing when a row is not as expected, which it says by `false`.
    ///
    /// # Errors
    /// As [`Store::begin`]; when the connection was lost while committing, it may have been done.
    pub(crate) async fn change_fleet(&self, ops: &[FleetOp]) -> Result<bool, StoreError> {
        let mut change = self.begin(Author::default()).await?;
        if !change.change_fleet(ops).await? {
            change.rollback().await;
            return Ok(false);
        }
        change.commit_audit().await?;
        Ok(true)
    }
}

impl Transaction {
    async fn change_fleet(&mut self, ops: &[FleetOp]) -> Result<bool, StoreError> {
        let mut lease = self.take()?;
        let changed = match lease.link() {
            Ok(link) => change(link, ops).await,
            Err(failure) => Err(failure),
        };
        self.keep(lease, changed)
    }
}

async fn changes_since(link: &mut StoreConnection, since: &FleetMark) -> Result<FleetChanges, Failure> {
    let (token, stamp) = row(link, STAMP, "").await?.content.unwrap_or_default();
    let mark = FleetMark { stamp, token };
    if mark == *since {
        return Ok(FleetChanges { mark, is_whole: false, rows: Vec::new() });
    }
    let Some(keys) = listed_since(link, since, stamp).await? else {
        return Ok(FleetChanges { mark, is_whole: true, rows: all(link).await? });
    };
    let mut rows = Vec::with_capacity(keys.len());
    for (kind, id) in keys {
        rows.push(row(link, &kind, &id).await?);
    }
    Ok(FleetChanges { mark, is_whole: false, rows })
}

/// The keys of the rows that were changed since a state; `None` if some of these changes are not listed, if it is a state of another
/// history, or if there are more than [`MAX_ROWS`].
async fn listed_since(
    link: &mut StoreConnection,
    since: &FleetMark,
    newest: u64,
) -> Result<Option<BTreeSet<(String, String)>>, Failure> {
    let sql = "SELECT token FROM ferrum_fleet_changes WHERE stamp = ? LIMIT 1";
    let token = link.row(sql, vec![since.stamp.into()]).await?.map(|row| row.text(0)).transpose()?;
    if token.as_deref() != Some(&*since.token) {
        return Ok(None);
    }
    let (mut last, mut is_listed, mut count, mut keys) = (since.stamp, true, 0, BTreeSet::new());
    let sql = "SELECT stamp, kind, id FROM ferrum_fleet_changes WHERE stamp > ? ORDER BY stamp LIMIT ?";
    // One more than is taken shows that there are more.
    let limit = MAX_ROWS as u64 + 1;
    link.rows(sql, vec![since.stamp.into(), limit.into()], |row| {
        let stamp = row.int(0)?;
        is_listed &= stamp <= last + 1;
        last = stamp;
        count += 1;
        keys.insert((row.text(1)?, row.text(2)?));
        Ok(())
    })
    .await?;
    Ok(Some(keys).filter(|_| is_listed && last == newest && count <= MAX_ROWS))
}

/// Every row but the one that counts changes.
async fn all(link: &mut StoreConnection) -> Result<Vec<FleetRow>, Failure> {
    let mut rows = Vec::new();
    let sql = "SELECT kind, id, document, version FROM ferrum_fleet WHERE kind <> ? ORDER BY kind, id";
    link.rows(sql, vec![STAMP.into()], |row| {
        let (kind, id) = (row.text(0)?, row.text(1)?);
        rows.push(FleetRow { kind, id, content: Some((row.text(2)?, row.int(3)?)) });
        Ok(())
    })
    .await?;
    Ok(rows)
}

async fn row(link: &mut StoreConnection, kind: &str, id: &str) -> Result<FleetRow, Failure> {
    let sql = "SELECT document, version FROM ferrum_fleet WHERE kind = ? AND id = ?";
    let found = link.row(sql, vec![kind.into(), id.into()]).await?;
    let content = found.map(|row| Ok::<_, Failure>((row.text(0)?, row.int(1)?))).transpose()?;
    Ok(FleetRow { kind: kind.to_owned(), id: id.to_owned(), content })
}

async fn version(link: &mut StoreConnection, kind: &str, id: &str) -> Result<Option<u64>, Failure> {
    let sql = "SELECT version FROM ferrum_fleet WHERE kind = ? AND id = ?";
    let row = link.row(sql, vec![kind.into(), id.into()]).await?;
    row.map(|row| row.int(0)).transpose()
}

async fn change(link: &mut StoreConnection, ops: &[FleetOp]) -> Result<bool, Failure> {
    for op in ops {
        if version(link, op.kind, &op.id).await? != op.expected {
            return Ok(false);
        }
    }
    for FleetOp { kind, id, expected, document } in ops {
        let key = || vec![(*kind).into(), id.as_str().into()];
        let (sql, values) = match (document, expected) {
            (None, _) => ("DELETE FROM ferrum_fleet WHERE kind = ? AND id = ?", key()),
            (Some(document), None) => (
                "INSERT INTO ferrum_fleet (kind, id, document, version) VALUES (?, ?, ?, 1)",
                [key(), vec![document.as_str().into()]].concat(),
            ),
            (Some(document), Some(_)) => (
                "UPDATE ferrum_fleet SET document = ?, version = version + 1 WHERE kind = ? AND id = ?",
                [vec![document.as_str().into()], key()].concat(),
            ),
        };
        link.run(sql, values).await?;
    }
    list(link, ops).await?;
    Ok(true)
}

/// Counts the change, and lists what it touched.
async fn list(link: &mut StoreConnection, ops: &[FleetOp]) -> Result<(), Failure> {
    let stamp = version(link, STAMP, "").await?.unwrap_or(0) + 1;
    let token = format!("{:032x}", fastrand::u128(..));
    for op in ops {
        let sql = "INSERT INTO ferrum_fleet_changes (stamp, kind, id, token) VALUES (?, ?, ?, ?)";
        let values = vec![stamp.into(), op.kind.into(), op.id.as_str().into(), token.as_str().into()];
        link.run(sql, values).await?;
    }
    let sql = "UPDATE ferrum_fleet SET version = ?, document = ? WHERE kind = ? AND id = ''";
    link.run(sql, vec![stamp.into(), token.into(), STAMP.into()]).await?;
    let sql = "DELETE FROM ferrum_fleet_changes WHERE stamp <= ?";
    link.run(sql, vec![stamp.saturating_sub(KEPT).into()]).await.map(drop)
}
