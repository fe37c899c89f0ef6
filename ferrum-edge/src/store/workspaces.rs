//! Workspaces in the database: named sets of objects, for grants. They are no part of the revisions.

mod references;

use super::change::Transaction;
use super::link::StoreConnection;
use super::link::failure::Failure;
use super::{Author, END, Store, StoreError};
use crate::access::grants::Workspace;
use crate::audit::{ChainLine, Draft};

/// Workspaces of one database.
pub(crate) const MAX_WORKSPACES: usize = 1000;

/// A workspace as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredWorkspace {
    pub(crate) name: String,
    /// One that can't be read covers nothing.
    pub(crate) covers: Option<Workspace>,
    /// Milliseconds since 1970 UTC.
    pub(crate) changed_at: u64,
}

/// A change of one workspace.
#[derive(Debug)]
pub(crate) enum WorkspaceChange {
    Put(String, Workspace),
    Delete(String),
    /// Another name; what names the workspace follows.
    Rename {
        from: String,
        to: String,
        covers: Workspace,
    },
}

impl Store {
    /// Every workspace, in the order of names.
    ///
    /// # Errors
    /// When the database does not answer.
    pub(crate) async fn workspaces(&self) -> Result<Vec<StoredWorkspace>, StoreError> {
        let mut lease = self.core.reading().await?;
        let found = match lease.link() {
            Ok(link) => all(link).await,
            Err(failure) => Err(failure),
        };
        lease.end(found, END).await
    }

    /// Changes a workspace, and adds an entry to the audit in the same transaction. `change` sees all of them under the lock of all
    /// writers; what it answers is written. `Err` writes nothing.
    ///
    /// # Errors
    /// When the database does not answer.
    pub(crate) async fn change_workspace<E>(
        &self,
        change: impl FnOnce(&[StoredWorkspace], &mut Draft) -> Result<WorkspaceChange, E> + Send,
        mut draft: Draft,
    ) -> Result<Result<(Draft, ChainLine), E>, StoreError> {
        let mut transaction = self.begin(Author::default()).await?;
        let known = transaction.workspaces().await?;
        let change = match change(&known, &mut draft) {
            Ok(change) => change,
            Err(error) => {
                transaction.rollback().await;
                return Ok(Err(error));
            }
        };
        transaction.write_workspace(change).await?;
        let line = transaction.audit(&draft).await?;
        transaction.commit_audit().await?;
        Ok(Ok((draft, line)))
    }
}

impl Transaction {
    async fn workspaces(&mut self) -> Result<Vec<StoredWorkspace>, StoreError> {
        let mut lease = self.take()?;
        let found = match lease.link() {
            Ok(link) => all(link).await,
            Err(failure) => Err(failure),
        };
        self.keep(lease, found)
    }

    async fn write_workspace(&mut self, change: WorkspaceChange) -> Result<(), StoreError> {
        let now = self.time();
        let mut lease = self.take()?;
        let done = match lease.link() {
            Ok(link) => write(link, change, now).await,
            Err(failure) => Err(failure),
        };
        self.keep(lease, done)
    }
}

async fn all(link: &mut StoreConnection) -> Result<Vec<StoredWorkspace>, Failure> {
    let sql = "SELECT name, covers, changed_at FROM ferrum_workspaces ORDER BY name LIMIT ?";
    let mut found = Vec::new();
    link.rows(sql, vec![(MAX_WORKSPACES as u64).into()], |row| {
        let covers = serde_json::from_str(&row.text(1)?).ok();
        let covers = covers.and_then(|written| Workspace::of(written).ok());
        found.push(StoredWorkspace { name: row.text(0)?, covers, changed_at: row.int(2)? });
        Ok(())
    })
    .await?;
    Ok(found)
}

async fn write(link: &mut StoreConnection, change: WorkspaceChange, now: u64) -> Result<(), Failure> {
    let (old, new) = match change {
        WorkspaceChange::Put(name, covers) => (name.clone(), Some((name, covers))),
        WorkspaceChange::Delete(name) => (name, None),
        WorkspaceChange::Rename { from, to, covers } => {
            references::rename(link, &from, &to, now).await?;
            (from, Some((to, covers)))
        }
    };
    link.run("DELETE FROM ferrum_workspaces WHERE name = ?", vec![old.into()]).await?;
    if let Some((name, covers)) = new {
        let sql = "INSERT INTO ferrum_workspaces (name, covers, changed_at) VALUES (?, ?, ?)";
        link.run(sql, vec![name.into(), covers.to_string().into(), now.into()]).await?;
    }
    // Groups of edges get what workspaces cover: control planes look for this, and read everything, since no row is listed.
    let sql = "UPDATE ferrum_fleet SET version = version + 1 WHERE kind = 'stamp' AND id = ''";
    link.run(sql, Vec::new()).await.map(drop)
}
