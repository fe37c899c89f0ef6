//! Users of the console, in the database. They are no part of the revisions.

use std::sync::Arc;

use super::change::Transaction;
use super::link::failure::Failure;
use super::link::{Cells, StoreConnection};
use super::passkeys::{self, Passkey};
use super::second_factor::{self, SecondFactor};
use super::{Author, END, Store, StoreError};
use crate::access::Role;
use crate::access::grants::Grants;
use crate::audit::{ChainLine, Draft};

/// Users of one database.
pub(crate) const MAX_USERS: usize = 1000;

const COLUMNS: &str = "name, role, hash, must_change, version, created_at, changed_at, login_at";

/// Selects the columns of users, the grants (empty without a row of them), the second factor and the passkeys.
fn select() -> String {
    format!(
        "SELECT u.name, u.role, u.hash, u.must_change, u.version, u.created_at, u.changed_at, u.login_at, \
         COALESCE(g.grants, ''), {}, {} FROM ferrum_users u LEFT JOIN ferrum_user_grants g ON g.name = u.name {} {}",
        second_factor::SELECT,
        passkeys::SELECT,
        second_factor::JOIN,
        passkeys::JOIN
    )
}

/// Somebody who logs in by a name and a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// Of the password, by argon2id, as a PHC string.
    pub(crate) hash: String,
    /// The user has to choose a password before anything else.
    pub(crate) must_change: bool,
    /// Counts changes; sessions of an older one have ended.
    pub(crate) version: u64,
    /// Milliseconds since 1970 UTC; so are the others.
    pub(crate) created_at: u64,
    pub(crate) changed_at: u64,
    pub(crate) login_at: Option<u64>,
    /// For what objects the role counts; `None` for all.
    pub(crate) grants: Option<Arc<Grants>>,
    pub(crate) factor: SecondFactor,
    pub(crate) passkeys: Vec<Passkey>,
}

impl Store {
    /// Every user, in the order of names.
    ///
    /// # Errors
    /// When the database does not answer.
    pub(crate) async fn users(&self) -> Result<Vec<User>, StoreError> {
        let mut lease = self.core.reading().await?;
        let found = match lease.link() {
            Ok(link) => all(link).await,
            Err(failure) => Err(failure),
        };
        lease.end(found, END).await
    }

    /// The user of this name.
    ///
    /// # Errors
    /// When the database does not answer.
    pub(crate) async fn user(&self, name: &str) -> Result<Option<User>, StoreError> {
        let mut lease = self.core.reading().await?;
        let found = match lease.link() {
            Ok(link) => select_user(link, name).await,
            Err(failure) => Err(failure),
        };
        lease.end(found, END).await
    }

    /// Changes users, and adds an entry to the audit in the same transaction. `change` sees all of them under the lock of
    /// all writers; what it answers is written. `Err` writes nothing.
    ///
    /// # Errors
    /// When the database does not answer.
    pub(crate) async fn change_users<E>(
        &self,
        change: impl FnOnce(&[User], &mut Draft) -> Result<UserChange, E> + Send,
        mut draft: Draft,
    ) -> Result<Result<(Draft, ChainLine), E>, StoreError> {
        let mut transaction = self.begin(Author::default()).await?;
        let users = transaction.users().await?;
        let change = match change(&users, &mut draft) {
            Ok(change) => change,
            Err(error) => {
                transaction.rollback().await;
                return Ok(Err(error));
            }
        };
        transaction.write_user(change).await?;
        let line = transaction.audit(&draft).await?;
        transaction.commit_audit().await?;
        Ok(Ok((draft, line)))
    }

    /// Uses up a code of a user: `decide` sees the user under the lock of all writers and answers the second factor as it is
    /// afterwards, or `None` if the code is not accepted. Sessions go on. An entry of the audit is written if `decide` adds a
    /// change to the draft, and answered.
    ///
    /// # Errors
    /// When the database does not answer.
    pub(crate) async fn use_second_factor(
        &self,
        name: &str,
        decide: impl FnOnce(&User, &mut Draft) -> Option<SecondFactor> + Send,
        mut draft: Draft,
    ) -> Result<Option<Option<(Draft, ChainLine)>>, StoreError> {
        let mut transaction = self.begin(Author::default()).await?;
        let user = transaction.user(name).await?;
        let Some(factor) = user.and_then(|user| decide(&user, &mut draft)) else {
            transaction.rollback().await;
            return Ok(None);
        };
        transaction.write_second_factor(name, &factor).await?;
        let line = match draft.changes.is_empty() {
            true => None,
            false => Some(transaction.audit(&draft).await?),
        };
        transaction.commit_audit().await?;
        Ok(Some(line.map(|line| (draft, line))))
    }

    /// Uses a passkey of a user: `decide` sees the user and the time under the lock of all writers, and answers the passkeys as they are
    /// afterwards, or `None` if the login is not accepted. Sessions go on.
    ///
    /// # Errors
    /// When the database does not answer.
    pub(crate) async fn use_passkey(
        &self,
        name: &str,
        decide: impl FnOnce(&User, u64) -> Option<Vec<Passkey>> + Send,
    ) -> Result<bool, StoreError> {
        let mut transaction = self.begin(Author::default()).await?;
        let now = transaction.time();
        let user = transaction.user(name).await?;
        let Some(passkeys) = user.and_then(|user| decide(&user, now)) else {
            transaction.rollback().await;
            return Ok(false);
        };
        transaction.write_passkeys(name, &passkeys).await?;
        transaction.commit_audit().await?;
        Ok(true)
    }

    /// Notes that a user has logged in. That is no change of the user.
    ///
    /// # Errors
    /// When the database does not answer.
    pub(crate) async fn user_logged_in(&self, name: &str) -> Result<(), StoreError> {
        let mut transaction = self.begin(Author::default()).await?;
        let now = transaction.time();
        let sql = "UPDATE ferrum_users SET login_at = ? WHERE name = ?";
        let mut lease = transaction.take()?;
        let done = match lease.link() {
            Ok(link) => link.run(sql, vec![now.into(), name.into()]).await,
            Err(failure) => Err(failure),
        };
        transaction.keep(lease, done)?;
        transaction.commit_audit().await
    }
}

/// What becomes of a user.
#[derive(Debug)]
pub(crate) enum UserChange {
    /// Its `version` and times are the store's.
    Put(User),
    Delete(String),
}

impl Transaction {
    async fn user(&mut self, name: &str) -> Result<Option<User>, StoreError> {
        let mut lease = self.take()?;
        let found = match lease.link() {
            Ok(link) => select_user(link, name).await,
            Err(failure) => Err(failure),
        };
        self.keep(lease, found)
    }

    async fn write_second_factor(&mut self, name: &str, factor: &SecondFactor) -> Result<(), StoreError> {
        let mut lease = self.take()?;
        let done = match lease.link() {
            Ok(link) => second_factor::write(link, name, factor).await,
            Err(failure) => Err(failure),
        };
        self.keep(lease, done)
    }

    async fn write_passkeys(&mut self, name: &str, passkeys: &[Passkey]) -> Result<(), StoreError> {
        let mut lease = self.take()?;
        let done = match lease.link() {
            Ok(link) => passkeys::write(link, name, passkeys).await,
            Err(failure) => Err(failure),
        };
        self.keep(lease, done)
    }

    async fn users(&mut self) -> Result<Vec<User>, StoreError> {
        let mut lease = self.take()?;
        let found = match lease.link() {
            Ok(link) => all(link).await,
            Err(failure) => Err(failure),
        };
        self.keep(lease, found)
    }

    async fn write_user(&mut self, change: UserChange) -> Result<(), StoreError> {
        let now = self.time();
        let mut lease = self.take()?;
        let done = match lease.link() {
            Ok(link) => write(link, change, now).await,
            Err(failure) => Err(failure),
        };
        self.keep(lease, done)
    }
}

async fn all(link: &mut StoreConnection) -> Result<Vec<User>, Failure> {
    let sql = format!("{} ORDER BY u.name LIMIT ?", select());
    let mut users = Vec::new();
    link.rows(&sql, vec![(MAX_USERS as u64).into()], |row| {
        users.push(user(&row)?);
        Ok(())
    })
    .await?;
    Ok(users)
}

async fn select_user(link: &mut StoreConnection, name: &str) -> Result<Option<User>, Failure> {
    let sql = format!("{} WHERE u.name = ?", select());
    link.row(&sql, vec![name.into()]).await?.map(|row| user(&row)).transpose()
}

/// Reads a user. An unknown role, which a newer program may have written, counts as `read`. Grants that cannot be read cover nothing.
fn user(row: &Cells) -> Result<User, Failure> {
    let role = Role::named(&row.text(1)?).unwrap_or(Role::Read);
    let written = row.text(8)?;
    let grants = (!written.is_empty()).then(|| {
        let read = serde_json::from_str(&written).ok().and_then(|grants| Grants::of(grants, role).ok());
        Arc::new(read.unwrap_or_else(Grants::nothing))
    });
    Ok(User {
        name: row.text(0)?,
        role,
        hash: row.text(2)?,
        must_change: row.int(3)? != 0,
        version: row.int(4)?,
        created_at: row.int(5)?,
        changed_at: row.int(6)?,
        login_at: Some(row.int(7)?).filter(|at| *at > 0),
        grants,
        factor: SecondFactor::of(row, 9)?,
        passkeys: passkeys::of(&row.text(14)?),
    })
}

async fn write(link: &mut StoreConnection, change: UserChange, now: u64) -> Result<(), Failure> {
    let user = match change {
        UserChange::Put(user) => user,
        UserChange::Delete(name) => {
            write_grants(link, &name, None).await?;
            second_factor::write(link, &name, &SecondFactor::default()).await?;
            passkeys::write(link, &name, &[]).await?;
            return link.run("DELETE FROM ferrum_users WHERE name = ?", vec![name.into()]).await.map(drop);
        }
    };
    write_grants(link, &user.name, user.grants.as_deref()).await?;
    second_factor::write(link, &user.name, &user.factor).await?;
    passkeys::write(link, &user.name, &user.passkeys).await?;
    let (role, hash, must_change) = (user.role.as_str(), user.hash.as_str(), u64::from(user.must_change));
    // A user that comes again after a removal is another one, whose sessions are not those of the former.
    let sql = "UPDATE ferrum_users SET role = ?, hash = ?, must_change = ?, version = version + 1, changed_at = ? WHERE name = ?";
    let values = vec![role.into(), hash.into(), must_change.into(), now.into(), user.name.as_str().into()];
    if link.run(sql, values).await? > 0 {
        return Ok(());
    }
    let sql = format!("INSERT INTO ferrum_users ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, 0)");
    let values = vec![
        user.name.into(),
        role.into(),
        hash.into(),
        must_change.into(),
        now.into(),
        now.into(),
        now.into(),
    ];
    link.run(&sql, values).await.map(drop)
}

async fn write_grants(
    link: &mut StoreConnection,
    name: &str,
    grants: Option<&Grants>,
) -> Result<(), Failure> {
    link.run("DELETE FROM ferrum_user_grants WHERE name = ?", vec![name.into()]).await?;
    let Some(grants) = grants else { return Ok(()) };
    let values = vec![name.into(), grants.to_string().into()];
    link.run("INSERT INTO ferrum_user_grants (name, grants) VALUES (?, ?)", values).await.map(drop)
}
