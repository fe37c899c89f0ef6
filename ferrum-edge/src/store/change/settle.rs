//! How a change ends: its revision is written, old history pruned, and the whole committed.

use std::time::{Duration, Instant};

use super::{Counts, MAX_NOTE, PRUNED, Transaction, cut, opening};
use crate::store::link::failure::Failure;
use crate::store::link::{StoreConnection, Value};
use crate::store::location::Engine;
use crate::store::read;
use crate::store::{Mark, Store, StoreError};

/// Between two attempts to learn how a commit ended.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// The channel on which PostgreSQL tells of revisions.
pub(in crate::store) const CHANNEL: &str = "ferrum_revision";

impl Transaction {
    /// Makes it a revision, and says which; when nothing was changed it is none, and the answer is [`Self::base`].
    /// `note` says why, for people.
    ///
    /// # Errors
    /// [`StoreError::Unknown`] when the connection was lost while committing and how it ended could not be learned.
    /// With any other nothing was changed.
    pub async fn commit(self, note: &str) -> Result<u64, StoreError> {
        Ok(self.commit_marked(note).await?.revision)
    }

    /// As [`Self::commit`], and says by which token the revision is found.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub async fn commit_marked(mut self, note: &str) -> Result<Mark, StoreError> {
        let mut lease = self.take()?;
        let token = format!("{:032x}", fastrand::u128(..));
        let written = match lease.link() {
            Ok(link) => self.write_revision(link, note, &token).await,
            Err(failure) => Err(failure),
        };
        let core = &self.store.core;
        let counts = written.map_err(|failure| failure.told(&core.location))?;
        if counts.total() == 0 {
            lease.settle("ROLLBACK").await.map_err(|failure| failure.told(&core.location))?;
            return Ok(self.base_mark().clone());
        }
        let revision = self.revision();
        match lease.settle("COMMIT").await {
            Ok(()) => {}
            Err(failure) if failure.leaves_doubt() => {
                let cause = failure.told(&core.location);
                if !learned(&self.store, revision, &token).await? {
                    return Err(cause);
                }
            }
            Err(failure) => return Err(failure.told(&core.location)),
        }
        let mark = Mark { revision, token };
        core.committed(mark.clone());
        Ok(mark)
    }

    /// Ends a change that added entries to the audit and nothing else.
    ///
    /// # Errors
    /// When it may not have been kept.
    pub(crate) async fn commit_audit(mut self) -> Result<(), StoreError> {
        let lease = self.take()?;
        lease.settle("COMMIT").await.map_err(|failure| failure.told(&self.store.core.location))
    }

    async fn write_revision(
        &mut self,
        link: &mut StoreConnection,
        note: &str,
        token: &str,
    ) -> Result<Counts, Failure> {
        let revision = self.revision();
        if self.again {
            self.counts = recount(link, revision).await?;
        }
        let counts = self.counts;
        if counts.total() == 0 {
            return Ok(counts);
        }
        let changes = self.head.changes + counts.total();
        let values: Vec<Value> = vec![
            revision.into(),
            self.now.into(),
            self.author.name.as_str().into(),
            self.author.source.as_str().into(),
            cut(note, MAX_NOTE).into(),
            token.into(),
            counts.created.into(),
            counts.updated.into(),
            counts.deleted.into(),
            changes.into(),
        ];
        link.run(
            "INSERT INTO ferrum_revisions \
             (revision, at, author, source, note, token, created, updated, deleted, changes) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            values,
        )
        .await?;
        let (oldest, oldest_changes) = self.oldest(link, changes).await?;
        link.run(
            "UPDATE ferrum_store SET revision = ?, changes = ?, oldest = ?, oldest_changes = ? WHERE id = 1",
            vec![revision.into(), changes.into(), oldest.into(), oldest_changes.into()],
        )
        .await?;
        prune(link, oldest, PRUNED + 2 * counts.total()).await?;
        if link.engine() == Engine::Postgres {
            let told = vec![CHANNEL.into(), revision.to_string().into()];
            link.row("SELECT pg_notify(?, ?)", told).await?;
        }
        Ok(counts)
    }

    /// The oldest state that is still kept, and how many changes led to it.
    async fn oldest(&self, link: &mut StoreConnection, changes: u64) -> Result<(u64, u64), Failure> {
        let options = &self.store.core.options;
        let revision = self.revision();
        let mut oldest = self.head.oldest.max(revision.saturating_sub(options.keep_revisions));
        if changes - self.head.oldest_changes > options.keep_changes {
            let sql = "SELECT MIN(revision) FROM ferrum_revisions WHERE changes >= ? AND revision > ?";
            let values = vec![(changes - options.keep_changes).into(), self.head.oldest.into()];
            let row = link.row(sql, values).await?;
            oldest = oldest.max(row.map_or(Ok(0), |row| row.int(0))?);
        }
        // The last change can always be taken back.
        oldest = oldest.min(self.head.revision);
        if oldest == self.head.oldest {
            return Ok((oldest, self.head.oldest_changes));
        }
        let sql = "SELECT changes FROM ferrum_revisions WHERE revision = ?";
        let row = link.row(sql, vec![oldest.into()]).await?;
        Ok((oldest, row.map_or(Ok(self.head.oldest_changes), |row| row.int(0))?))
    }
}

/// What a change did in which objects were touched more than once.
async fn recount(link: &mut StoreConnection, revision: u64) -> Result<Counts, Failure> {
    // What came and went within the change never was.
    let never = "DELETE FROM ferrum_changes WHERE revision = ? AND was IS NULL AND NOT EXISTS \
                 (SELECT 1 FROM ferrum_objects o WHERE o.kind = ferrum_changes.kind AND o.id = ferrum_changes.id)";
    link.run(never, vec![revision.into()]).await?;
    let sql = "SELECT COUNT(*), COUNT(c.was), COUNT(o.id) FROM ferrum_changes c \
               LEFT JOIN ferrum_objects o ON o.kind = c.kind AND o.id = c.id WHERE c.revision = ?";
    let Some(row) = link.row(sql, vec![revision.into()]).await? else { return Ok(Counts::default()) };
    let (all, before, after) = (row.int(0)?, row.int(1)?, row.int(2)?);
    let (created, deleted) = (all - before, all - after);
    Ok(Counts { created, updated: all - created - deleted, deleted })
}

/// Removes history up to `oldest`, at most `rows` of it.
async fn prune(link: &mut StoreConnection, oldest: u64, rows: u64) -> Result<(), Failure> {
    if oldest == 0 {
        return Ok(());
    }
    let sql = match link.engine() {
        Engine::MySql => "DELETE FROM ferrum_changes WHERE revision <= ? ORDER BY revision, kind, id LIMIT ?",
        Engine::Postgres => {
            "DELETE FROM ferrum_changes WHERE ctid = ANY (ARRAY(SELECT ctid \
             FROM ferrum_changes WHERE revision <= ? ORDER BY revision, kind, id LIMIT ?))"
        }
        Engine::Sqlite => {
            "DELETE FROM ferrum_changes WHERE (revision, kind, id) IN (SELECT revision, kind, id \
             FROM ferrum_changes WHERE revision <= ? ORDER BY revision, kind, id LIMIT ?)"
        }
    };
    link.run(sql, vec![oldest.into(), rows.into()]).await?;
    link.run("DELETE FROM ferrum_revisions WHERE revision <= ?", vec![oldest.into()]).await?;
    Ok(())
}

/// Whether the revision with this token was written, asked of the database over a new connection. The writers' lock is
/// taken for it: as long as the old connection's commit is still under way, it has that lock.
async fn learned(store: &Store, revision: u64, token: &str) -> Result<bool, StoreError> {
    let core = &store.core;
    let unknown = || StoreError::Unknown { at: core.location.to_string(), revision };
    let deadline = Instant::now() + core.options.settle_timeout;
    loop {
        match ask(store, revision).await {
            Ok(Some(found)) => return Ok(found == token),
            Ok(None) => return Ok(false),
            Err(Failure::Said(StoreError::NoHistory { .. })) => return Err(unknown()),
            Err(failure) => tracing::warn!(
                "whether revision {revision} was written is not known yet: {}",
                failure.told(&core.location)
            ),
        }
        if Instant::now() + ASK_AGAIN > deadline {
            return Err(unknown());
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// The token of a revision.
async fn ask(store: &Store, revision: u64) -> Result<Option<String>, Failure> {
    let core = &store.core;
    let busy = core.options.busy_timeout;
    let (opening, lock) = opening(core.location.engine(), busy.as_millis());
    let mut lease = core.writer.open(&opening, busy).await?;
    let head = read::head(lease.link()?, &lock).await?;
    if head.oldest >= revision {
        let (asked, oldest, newest) = (revision, head.oldest, head.revision);
        return Err(StoreError::NoHistory { asked, oldest, newest }.into());
    }
    let sql = "SELECT token FROM ferrum_revisions WHERE revision = ?";
    let found = lease.link()?.row(sql, vec![revision.into()]).await?;
    let found = found.map(|row| row.text(0)).transpose()?;
    lease.settle("ROLLBACK").await?;
    Ok(found)
}
