//! The audit in the database: appended within the transaction of what it tells of, under the writers' lock.

use serde_json::Value;

use super::author::Author;
use super::change::Transaction;
use super::gathered::Gathered;
use super::link::failure::Failure;
use super::link::{Cells, StoreConnection};
use super::location::Engine;
use super::options::Options;
use super::{END, Store, StoreError};
use crate::audit::{ChainLine, Draft, Query, Tip, Touched, Verified, Verifier};

/// Entries that are pruned with each one that is added, at most.
const PRUNED: u64 = 64;
/// Rows looked at in one statement.
const ROWS: u64 = 256;
/// Entries of a page.
pub(crate) const MAX_AUDIT_PAGE: usize = 1000;

impl Transaction {
    /// Adds an entry to the audit, which is there when this change is.
    ///
    /// # Errors
    /// When the database does not answer.
    pub(crate) async fn audit(&mut self, draft: &Draft) -> Result<ChainLine, StoreError> {
        let options = self.store.core.options.clone();
        let mut lease = self.take()?;
        let added = match lease.link() {
            Ok(link) => append(link, draft, &options).await,
            Err(failure) => Err(failure),
        };
        self.keep(lease, added)
    }
}

impl Store {
    /// Adds entries that tell of no change of the configuration.
    ///
    /// # Errors
    /// As [`Store::begin`]; nothing was added.
    pub(crate) async fn audit(&self, drafts: &[Draft]) -> Result<Vec<ChainLine>, StoreError> {
        let mut change = self.begin(Author::default()).await?;
        let mut lines = Vec::with_capacity(drafts.len());
        for draft in drafts {
            lines.push(change.audit(draft).await?);
        }
        change.commit_audit().await?;
        Ok(lines)
    }

    /// The newest entries that are wanted, the newest first.
    ///
    /// # Errors
    /// When the database does not answer.
    pub(crate) async fn audit_page(&self, query: &Query) -> Result<Vec<ChainLine>, StoreError> {
        let mut lease = self.core.reading().await?;
        let found = match lease.link() {
            Ok(link) => page(link, query).await,
            Err(failure) => Err(failure),
        };
        lease.end(found, END).await
    }

    /// Looks through the whole chain.
    ///
    /// # Errors
    /// When the database does not answer.
    pub(crate) async fn audit_verified(&self) -> Result<Verified, StoreError> {
        let mut lease = self.core.reading().await?;
        let found = match lease.link() {
            Ok(link) => verified(link).await,
            Err(failure) => Err(failure),
        };
        lease.end(found, END).await
    }
}

async fn append(link: &mut StoreConnection, draft: &Draft, options: &Options) -> Result<ChainLine, Failure> {
    let newest = "SELECT seq, hash FROM ferrum_audit ORDER BY seq DESC LIMIT 1";
    let tip = match link.row(newest, Vec::new()).await? {
        None => Tip::default(),
        Some(row) => Tip { seq: row.int(0)?, hash: row.text(1)? },
    };
    let line = draft.chained(&tip);
    let values = vec![line.seq.into(), line.at.into(), line.entry.as_str().into(), line.hash.as_str().into()];
    link.run("INSERT INTO ferrum_audit (seq, at, entry, hash) VALUES (?, ?, ?, ?)", values).await?;
    prune(link, &line, options).await?;
    Ok(line)
}

/// Removes the oldest entries as far as they are too old or too many. The newest stays, whatever its age: the chain goes
/// on from it.
async fn prune(link: &mut StoreConnection, newest: &ChainLine, options: &Options) -> Result<(), Failure> {
    let age = u64::try_from(options.keep_audit_for.as_millis()).unwrap_or(u64::MAX);
    let oldest_time = newest.at.saturating_sub(age);
    let mut gone = None;
    let mut is_old = true;
    let sql = "SELECT seq, at FROM ferrum_audit ORDER BY seq LIMIT ?";
    link.rows(sql, vec![PRUNED.into()], |row| {
        let (seq, at) = (row.int(0)?, row.int(1)?);
        is_old &= seq < newest.seq && (at < oldest_time || seq + options.keep_audit <= newest.seq);
        gone = if is_old { Some(seq) } else { gone };
        Ok(())
    })
    .await?;
    let Some(gone) = gone else { return Ok(()) };
    link.run("DELETE FROM ferrum_audit WHERE seq <= ?", vec![gone.into()]).await.map(drop)
}

fn line(row: &Cells) -> Result<ChainLine, Failure> {
    Ok(ChainLine { seq: row.int(0)?, at: row.int(1)?, entry: row.text(2)?, hash: row.text(3)? })
}

async fn page(link: &mut StoreConnection, query: &Query) -> Result<Vec<ChainLine>, Failure> {
    let limit = query.limit.clamp(1, MAX_AUDIT_PAGE);
    let find = if link.engine() == Engine::Postgres { "strpos" } else { "instr" };
    let mut sql =
        "SELECT seq, at, entry, hash FROM ferrum_audit WHERE seq < ? AND at >= ? AND at <= ?".to_owned();
    // The database only sorts out what can't fit. JSON may write any letter with a backslash; what has one is read.
    let mut fixed = Vec::new();
    for text in query.texts() {
        sql.push_str(&format!(" AND ({find}(entry, ?) > 0 OR {find}(entry, ?) > 0)"));
        fixed.extend([text.into(), "\\".into()]);
    }
    sql.push_str(" ORDER BY seq DESC LIMIT ?");
    // The store's numbers are signed.
    let most = i64::MAX.unsigned_abs();
    let mut before = query.before.unwrap_or(most).min(most);
    let mut found = Vec::new();
    loop {
        let since = query.since.unwrap_or(0).min(most);
        let mut values = vec![before.into(), since.into(), query.until.unwrap_or(most).min(most).into()];
        values.extend(fixed.iter().cloned());
        values.push(ROWS.into());
        let mut seen = 0;
        link.rows(&sql, values, |row| {
            seen += 1;
            let line = line(&row)?;
            before = line.seq;
            if found.len() < limit && query.fits(&line) {
                found.push(line);
            }
            Ok(())
        })
        .await?;
        if found.len() == limit || seen < ROWS {
            return Ok(found);
        }
    }
}

async fn verified(link: &mut StoreConnection) -> Result<Verified, Failure> {
    let mut verifier = Verifier::default();
    let sql = "SELECT seq, at, entry, hash FROM ferrum_audit ORDER BY seq";
    link.rows(sql, Vec::new(), |row| {
        verifier.add(&line(&row)?);
        Ok(())
    })
    .await?;
    Ok(verifier.finish())
}

impl Draft {
    /// Adds what a change did; `shown` takes the secrets out of a document of a kind.
    pub(crate) fn gathered(&mut self, all: Gathered, shown: impl Fn(&str, &str) -> Value) {
        self.changes_left_out = all.left_out;
        let changes = all.changes.into_iter().map(|gain| {
            let kind = gain.kind;
            let show = |document: Option<String>| document.map(|document| shown(&kind, &document));
            let documents_left_out = gain.documents.is_none();
            let (before, after) = gain.documents.unwrap_or_default();
            let (before, after) = (show(before), show(after));
            Touched { id: gain.id, action: gain.action.to_owned(), before, after, documents_left_out, kind }
        });
        self.changes = changes.collect();
    }
}
