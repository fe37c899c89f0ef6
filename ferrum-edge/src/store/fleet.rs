//! The fleet's rows: edges, invitations, the authority and the epoch. They are no part of the configuration's history.
//!
//! Every change is made under the writers' lock, and only if each row is as the writer knows it. So an invitation is used once, and
//! of several control planes that want to begin an epoch one does.

use super::author::Author;
use super::change::Transaction;
use super::link::StoreConnection;
use super::link::failure::Failure;
use super::{END, Store, StoreError};

/// The row whose version counts changes of the table.
const STAMP: &str = "stamp";

/// A row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FleetRow {
    /// Such as `edge`.
    pub(crate) kind: String,
    /// Unique within its kind.
    pub(crate) id: String,
    /// JSON.
    pub(crate) document: String,
    /// How often it was changed.
    pub(crate) version: u64,
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
    /// Every row, and how often the table was changed before.
    ///
    /// # Errors
    /// When the database does not answer.
    pub(crate) async fn fleet(&self) -> Result<(u64, Vec<FleetRow>), StoreError> {
        let mut lease = self.core.reading().await?;
        let rows = match lease.link() {
            Ok(link) => rows(link).await,
            Err(failure) => Err(failure),
        };
        lease.end(rows, END).await
    }

    /// How often the table was changed.
    ///
    /// # Errors
    /// When the database does not answer.
    pub(crate) async fn fleet_stamp(&self) -> Result<u64, StoreError> {
        let mut lease = self.core.reading().await?;
        let stamp = match lease.link() {
            Ok(link) => version(link, STAMP, "").await,
            Err(failure) => Err(failure),
        };
        Ok(lease.end(stamp, END).await?.unwrap_or(0))
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

async fn rows(link: &mut StoreConnection) -> Result<(u64, Vec<FleetRow>), Failure> {
    let (mut stamp, mut rows) = (0, Vec::new());
    let sql = "SELECT kind, id, document, version FROM ferrum_fleet ORDER BY kind, id";
    link.rows(sql, Vec::new(), |row| {
        let (kind, id) = (row.text(0)?, row.text(1)?);
        let (document, version) = (row.text(2)?, row.int(3)?);
        match kind == STAMP {
            true => stamp = version,
            false => rows.push(FleetRow { kind, id, document, version }),
        }
        Ok(())
    })
    .await?;
    Ok((stamp, rows))
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
    let sql = "UPDATE ferrum_fleet SET version = version + 1 WHERE kind = ? AND id = ''";
    link.run(sql, vec![STAMP.into()]).await?;
    Ok(true)
}
