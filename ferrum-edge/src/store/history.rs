//! Past states. The store keeps, for each revision and each object it changed, the document from before; a past state
//! is the present one with all later changes taken back.

use std::collections::HashMap;

use super::StoreError;
use super::author::Author;
use super::link::failure::Failure;
use super::link::{Cells, StoreConnection};
use super::object::{Object, ObjectKind, Op};
use super::read::Head;

/// Revisions a list may have.
pub const MAX_REVISIONS: usize = 1000;

/// What some steps did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Objects that were not there.
    pub created: u64,
    /// Objects whose document is another now.
    pub updated: u64,
    /// Objects that are gone.
    pub deleted: u64,
}

impl Counts {
    /// Objects that were changed in any way.
    pub const fn total(&self) -> u64 {
        self.created + self.updated + self.deleted
    }
}

/// A revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevisionInfo {
    /// Its number.
    pub revision: u64,
    /// When: milliseconds since 1970 UTC, by the clock of the gateway that wrote it.
    pub at: u64,
    /// Who.
    pub author: Author,
    /// Why.
    pub note: String,
    /// How much.
    pub counts: Counts,
}

/// A state of a database: which revision it is of, and by which token that one's writer finds it. Another history, such
/// as that of a restored backup, may have the number; it does not have the token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mark {
    /// The revision; 0 before the first.
    pub revision: u64,
    /// Empty before the first.
    pub token: String,
}

/// What became of one object between two states.
#[derive(Clone, PartialEq, Eq)]
pub struct Difference {
    /// Of what.
    pub kind: ObjectKind,
    /// Which.
    pub id: String,
    /// Its document in the first state; `None`: it was not there.
    pub before: Option<String>,
    /// Its document in the second state; `None`: it is not there.
    pub after: Option<String>,
}

impl std::fmt::Debug for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (before, after) = (self.before.is_some(), self.after.is_some());
        write!(f, "Difference({} {:?}, before: {before}, after: {after})", self.kind, self.id)
    }
}

/// What has changed since a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// These, in the order of kinds and ids; everything else is as it was.
    Objects {
        /// The state of now, which is the revision to ask with next time.
        revision: u64,
        /// Each object as it is now; `None`: it is gone.
        objects: Vec<(ObjectKind, String, Option<Object>)>,
    },
    /// Load anew: history does not reach back that far, or there are more than
    /// [`max_delta`](super::Options::max_delta), or the revision is none of this database's.
    TooOld,
}

/// What has changed since a state, for who follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    /// The state of now.
    pub mark: Mark,
    /// Each changed object as it is now, in the order of kinds and ids; `None`: it is gone.
    pub objects: Vec<(ObjectKind, String, Option<Object>)>,
    /// The proxies that were asked for, as they are now.
    pub proxies: Vec<Object>,
}

/// The mark of a revision; without a token when nothing is known of it.
pub(super) async fn mark(link: &mut StoreConnection, revision: u64) -> Result<Mark, Failure> {
    let sql = "SELECT token FROM ferrum_revisions WHERE revision = ?";
    let row = link.row(sql, vec![revision.into()]).await?;
    let token = row.map_or_else(|| Ok(String::new()), |row| row.text(0))?;
    Ok(Mark { revision, token })
}

/// How many objects all revisions up to `revision` changed; `None` when nothing is known of it.
async fn changes_at(link: &mut StoreConnection, head: Head, revision: u64) -> Result<Option<u64>, Failure> {
    match revision {
        _ if revision == head.revision => Ok(Some(head.changes)),
        _ if revision == head.oldest => Ok(Some(head.oldest_changes)),
        _ if revision < head.oldest || revision > head.revision => Ok(None),
        _ => {
            let sql = "SELECT changes FROM ferrum_revisions WHERE revision = ?";
            let row = link.row(sql, vec![revision.into()]).await?;
            row.map(|row| row.int(0)).transpose()
        }
    }
}

fn key(row: &Cells) -> Result<(ObjectKind, String), Failure> {
    let kind = row.text(0)?;
    let kind = ObjectKind::named(&kind).ok_or_else(|| Failure::Row(format!("the kind `{kind}`")))?;
    Ok((kind, row.text(1)?))
}

pub(super) async fn since(
    link: &mut StoreConnection,
    head: Head,
    revision: u64,
    limit: u64,
) -> Result<Changed, Failure> {
    let Some(before) = changes_at(link, head, revision).await? else { return Ok(Changed::TooOld) };
    if head.changes.saturating_sub(before) > limit {
        return Ok(Changed::TooOld);
    }
    let mut objects = Vec::new();
    let sql = "SELECT c.kind, c.id, o.document, o.created_at, o.updated_at, o.revision FROM \
               (SELECT DISTINCT kind, id FROM ferrum_changes WHERE revision > ?) c \
               LEFT JOIN ferrum_objects o ON o.kind = c.kind AND o.id = c.id";
    link.rows(sql, vec![revision.into()], |row| {
        let (kind, id) = key(&row)?;
        let object = match row.maybe(2)? {
            None => None,
            Some(document) => Some(Object {
                kind,
                id: id.clone(),
                document,
                created_at: row.int(3)?,
                updated_at: row.int(4)?,
                revision: row.int(5)?,
            }),
        };
        objects.push((kind, id, object));
        Ok(())
    })
    .await?;
    objects.sort_by(|(kind, id, _), (other, of, _)| (kind, id).cmp(&(other, of)));
    Ok(Changed::Objects { revision: head.revision, objects })
}

const REVISION: &str =
    "SELECT revision, at, author, source, note, created, updated, deleted FROM ferrum_revisions";

fn info(row: &Cells) -> Result<RevisionInfo, Failure> {
    Ok(RevisionInfo {
        revision: row.int(0)?,
        at: row.int(1)?,
        author: Author { name: row.text(2)?, source: row.text(3)? },
        note: row.text(4)?,
        counts: Counts { created: row.int(5)?, updated: row.int(6)?, deleted: row.int(7)? },
    })
}

pub(super) async fn revisions(
    link: &mut StoreConnection,
    head: Head,
    before: Option<u64>,
    limit: usize,
) -> Result<Vec<RevisionInfo>, Failure> {
    let sql = format!("{REVISION} WHERE revision < ? AND revision > ? ORDER BY revision DESC LIMIT ?");
    let limit = limit.clamp(1, MAX_REVISIONS) as u64;
    let values = vec![before.unwrap_or(head.revision + 1).into(), head.oldest.into(), limit.into()];
    let mut found = Vec::new();
    link.rows(&sql, values, |row| {
        found.push(info(&row)?);
        Ok(())
    })
    .await?;
    Ok(found)
}

pub(super) async fn revision(
    link: &mut StoreConnection,
    head: Head,
    revision: u64,
) -> Result<Option<RevisionInfo>, Failure> {
    if revision <= head.oldest {
        return Ok(None);
    }
    let row = link.row(&format!("{REVISION} WHERE revision = ?"), vec![revision.into()]).await?;
    row.map(|row| info(&row)).transpose()
}

/// What became of each object between two states, in the order of kinds and ids.
pub(super) async fn diff(
    link: &mut StoreConnection,
    head: Head,
    from: u64,
    to: u64,
    limit: u64,
) -> Result<Vec<Difference>, Failure> {
    let (low, high) = (from.min(to), from.max(to));
    let (oldest, newest) = (head.oldest, head.revision);
    let known = |asked, changes: Option<u64>| {
        changes.ok_or(Failure::Said(StoreError::NoHistory { asked, oldest, newest }))
    };
    let first = known(low, changes_at(link, head, low).await?)?;
    let objects = known(high, changes_at(link, head, high).await?)?.saturating_sub(first);
    if objects > limit {
        return Err(StoreError::TooMany { objects, limit }.into());
    }
    // What stands before the first change after a state is that state.
    let mut found: HashMap<(ObjectKind, String), Difference> = HashMap::new();
    let sql = "SELECT c.kind, c.id, c.was, o.document FROM ferrum_changes c JOIN \
               (SELECT kind, id, MIN(revision) AS first FROM ferrum_changes \
               WHERE revision > ? AND revision <= ? GROUP BY kind, id) m \
               ON c.revision = m.first AND c.kind = m.kind AND c.id = m.id \
               LEFT JOIN ferrum_objects o ON o.kind = c.kind AND o.id = c.id";
    link.rows(sql, vec![low.into(), high.into()], |row| {
        let (kind, id) = key(&row)?;
        let difference = Difference { kind, id: id.clone(), before: row.maybe(2)?, after: row.maybe(3)? };
        found.insert((kind, id), difference);
        Ok(())
    })
    .await?;
    if high < newest && !found.is_empty() {
        let sql = "SELECT c.kind, c.id, c.was FROM ferrum_changes c JOIN \
                   (SELECT kind, id, MIN(revision) AS first FROM ferrum_changes \
                   WHERE revision > ? GROUP BY kind, id) m \
                   ON c.revision = m.first AND c.kind = m.kind AND c.id = m.id";
        link.rows(sql, vec![high.into()], |row| {
            if let Some(difference) = found.get_mut(&key(&row)?) {
                difference.after = row.maybe(2)?;
            }
            Ok(())
        })
        .await?;
    }
    let mut found: Vec<_> = found.into_values().filter(|it| it.before != it.after).collect();
    if from > to {
        for it in &mut found {
            std::mem::swap(&mut it.before, &mut it.after);
        }
    }
    found.sort_by(|one, other| (one.kind, &one.id).cmp(&(other.kind, &other.id)));
    Ok(found)
}

/// The steps that lead from the state of now back to the one at `revision`.
pub(super) async fn undo(
    link: &mut StoreConnection,
    head: Head,
    revision: u64,
    limit: u64,
) -> Result<Vec<Op>, Failure> {
    let differences = diff(link, head, head.revision, revision, limit).await?;
    let (puts, deletes): (Vec<_>, Vec<_>) = differences.into_iter().partition(|it| it.after.is_some());
    let puts = puts.into_iter().map(|it| Op::Put {
        kind: it.kind,
        id: it.id,
        document: it.after.unwrap_or_default(),
    });
    let deletes = deletes.into_iter().rev().map(|it| Op::Delete { kind: it.kind, id: it.id });
    Ok(puts.chain(deletes).collect())
}
