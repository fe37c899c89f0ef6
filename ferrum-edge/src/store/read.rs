//! Reading the state of now. Everything here works within a transaction, be it a reader's or a change's.

use serde_json::Value as Json;

use super::link::failure::Failure;
use super::link::{Cells, StoreConnection, Value, marks};
use super::location::Engine;
use super::object::{Object, ObjectKind};

/// Ids asked for in one statement.
const IDS: usize = 256;
/// Objects a page may have.
pub const MAX_PAGE: usize = 1000;
/// Objects of which a page without filters is asked for when none is.
pub const DEFAULT_PAGE: usize = 100;
/// Rows looked at in one statement while filtering.
const FILTERED: usize = 4096;

const OBJECT: &str = "id, document, created_at, updated_at, revision";

/// What is to be listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Of what.
    pub kind: ObjectKind,
    /// Only ids after this one: the `next` of the page before.
    pub after: Option<String>,
    /// At most so many; 1 to [`MAX_PAGE`]. Default: [`DEFAULT_PAGE`].
    pub limit: usize,
    /// Fields and what they have to be, all of them. A field may lead inwards by dots. A text is compared as it is,
    /// a number, `true`, `false` and `null` as JSON writes it; a list fits when one of its items does.
    pub filters: Vec<(String, String)>,
}

impl Query {
    /// Everything of this kind, in pages.
    pub const fn all(kind: ObjectKind) -> Self {
        Self { kind, after: None, limit: DEFAULT_PAGE, filters: Vec::new() }
    }
}

/// A part of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// In the order of ids, by their bytes.
    pub objects: Vec<Object>,
    /// Where the next page begins; `None` when there is none.
    pub next: Option<String>,
}

/// The row that says where the store is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub(super) revision: u64,
    pub(super) changes: u64,
    pub(super) oldest: u64,
    pub(super) oldest_changes: u64,
}

pub(super) const HEAD: &str =
    "SELECT revision, changes, oldest, oldest_changes FROM ferrum_store WHERE id = 1";

pub(super) async fn head(link: &mut StoreConnection, sql: &str) -> Result<Head, Failure> {
    let row = link.row(sql, Vec::new()).await?;
    let row = row.ok_or_else(|| Failure::Row("ferrum_store is empty".to_owned()))?;
    Ok(Head { revision: row.int(0)?, changes: row.int(1)?, oldest: row.int(2)?, oldest_changes: row.int(3)? })
}

fn object(kind: ObjectKind, row: &Cells) -> Result<Object, Failure> {
    Ok(Object {
        kind,
        id: row.text(0)?,
        document: row.text(1)?,
        created_at: row.int(2)?,
        updated_at: row.int(3)?,
        revision: row.int(4)?,
    })
}

pub(super) async fn all<F>(link: &mut StoreConnection, mut each: F) -> Result<(), Failure>
where
    F: FnMut(Object) + Send,
{
    let sql = format!("SELECT {OBJECT} FROM ferrum_objects WHERE kind = ? ORDER BY id");
    for kind in ObjectKind::ALL {
        link.rows(&sql, vec![kind.as_str().into()], |row| {
            each(object(kind, &row)?);
            Ok(())
        })
        .await?;
    }
    Ok(())
}

pub(super) async fn many(
    link: &mut StoreConnection,
    kind: ObjectKind,
    ids: &[String],
) -> Result<Vec<Object>, Failure> {
    let mut found = Vec::with_capacity(ids.len());
    for part in ids.chunks(IDS) {
        // Two lengths of statement, so that the database keeps their plans: the last id stands for those that miss.
        let length = if part.len() == 1 { 1 } else { IDS };
        let sql = format!(
            "SELECT {OBJECT} FROM ferrum_objects WHERE kind = ? AND id IN ({}) ORDER BY id",
            marks(length)
        );
        let last = part.last().into_iter().cycle();
        let ids = part.iter().chain(last).take(length).map(|id| Value::from(id.as_str()));
        let values = std::iter::once(kind.as_str().into()).chain(ids).collect();
        link.rows(&sql, values, |row| {
            found.push(object(kind, &row)?);
            Ok(())
        })
        .await?;
    }
    Ok(found)
}

pub(super) async fn count(link: &mut StoreConnection, kind: ObjectKind) -> Result<u64, Failure> {
    let sql = "SELECT COUNT(*) FROM ferrum_objects WHERE kind = ?";
    link.row(sql, vec![kind.as_str().into()]).await?.map_or(Ok(0), |row| row.int(0))
}

pub(super) async fn list(link: &mut StoreConnection, query: &Query) -> Result<Page, Failure> {
    let limit = query.limit.clamp(1, MAX_PAGE);
    // The database only sorts out what can't fit; what fits is decided below, the same for every engine.
    let find = if link.engine() == Engine::Postgres { "strpos" } else { "instr" };
    let mut sql = format!("SELECT {OBJECT} FROM ferrum_objects WHERE kind = ? AND id > ?");
    let mut fixed: Vec<Value> = Vec::new();
    for (_, value) in &query.filters {
        // JSON may write any letter with a backslash; what has one is read.
        sql.push_str(&format!(" AND ({find}(document, ?) > 0 OR {find}(document, ?) > 0)"));
        fixed.extend([value.as_str().into(), "\\".into()]);
    }
    sql.push_str(" ORDER BY id LIMIT ?");
    let mut after = query.after.clone().unwrap_or_default();
    let mut page = Page { objects: Vec::new(), next: None };
    let step = if query.filters.is_empty() { limit + 1 } else { FILTERED };
    loop {
        let mut values: Vec<Value> = vec![query.kind.as_str().into(), after.as_str().into()];
        values.extend(fixed.iter().cloned());
        values.push((step as u64).into());
        let mut seen = 0;
        link.rows(&sql, values, |row| {
            seen += 1;
            let object = object(query.kind, &row)?;
            after.clone_from(&object.id);
            if page.objects.len() <= limit && fits(&object.document, &query.filters) {
                page.objects.push(object);
            }
            Ok(())
        })
        .await?;
        if page.objects.len() > limit {
            page.objects.truncate(limit);
            page.next = page.objects.last().map(|last| last.id.clone());
            return Ok(page);
        }
        if seen < step {
            return Ok(page);
        }
    }
}

/// Whether a document is what all `filters` ask for; what is no JSON is nothing anybody asks for.
fn fits(document: &str, filters: &[(String, String)]) -> bool {
    if filters.is_empty() {
        return true;
    }
    let Ok(document) = serde_json::from_str::<Json>(document) else { return false };
    filters.iter().all(|(field, value)| {
        let found = document.get(field).or_else(|| {
            field.split('.').try_fold(&document, |within, name| match within {
                Json::Object(fields) => fields.get(name),
                Json::Array(items) => items.get(name.parse::<usize>().ok()?),
                _ => None,
            })
        });
        found.is_some_and(|found| is(found, value))
    })
}

fn is(found: &Json, wanted: &str) -> bool {
    match found {
        Json::String(text) => text == wanted,
        Json::Array(items) => items.iter().any(|item| !item.is_array() && is(item, wanted)),
        Json::Object(_) => false,
        Json::Number(number) => number.to_string() == wanted,
        Json::Bool(is) => wanted == if *is { "true" } else { "false" },
        Json::Null => wanted == "null",
    }
}
