//! One connection to the database, the same for all three engines.
//!
//! Statements are written with `?` for each value. Values are always bound, never written into a statement.

pub(super) mod failure;
mod mysql;
pub(super) mod postgres;
pub(super) mod sqlite;
#[cfg(test)]
pub(in crate::store) mod work_counts;

use std::borrow::Cow;
use std::time::Duration;

use futures_util::TryStreamExt;
use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Row};
use tokio::time::timeout;

use super::location::{Engine, Location, Target};
use super::{Options, StoreError};
use failure::Failure;

/// A connection.
pub(super) struct StoreConnection {
    wire: Wire,
    /// For one statement, or for one row of its answer.
    wait_limit: Duration,
}

enum Wire {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
    MySql(MySqlConnection),
}

/// A value for a `?`.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Int(u64),
    Text(String),
    Null,
}

impl From<u64> for Value {
    fn from(it: u64) -> Self {
        Self::Int(it)
    }
}

impl From<&str> for Value {
    fn from(it: &str) -> Self {
        Self::Text(it.to_owned())
    }
}

impl From<String> for Value {
    fn from(it: String) -> Self {
        Self::Text(it)
    }
}

/// A row of an answer.
pub(super) enum Cells {
    Sqlite(SqliteRow),
    Postgres(PgRow),
    MySql(MySqlRow),
}

impl Cells {
    /// A number; what is negative is none of ours.
    pub(super) fn int(&self, column: usize) -> Result<u64, Failure> {
        let found: i64 = match self {
            Self::Sqlite(row) => row.try_get_unchecked(column),
            Self::Postgres(row) => row.try_get_unchecked(column),
            Self::MySql(row) => row.try_get_unchecked(column),
        }?;
        u64::try_from(found).map_err(|_| Failure::Row("a negative number".to_owned()))
    }

    /// A text; what is no UTF-8 is repaired, so that one broken row spoils nothing but itself.
    pub(super) fn text(&self, column: usize) -> Result<String, Failure> {
        self.maybe(column).map(Option::unwrap_or_default)
    }

    /// A text, or none.
    pub(super) fn maybe(&self, column: usize) -> Result<Option<String>, Failure> {
        let bytes: Option<Vec<u8>> = match self {
            Self::Sqlite(row) => row.try_get_unchecked(column)?,
            Self::Postgres(row) => return Ok(row.try_get_unchecked(column)?),
            Self::MySql(row) => row.try_get_unchecked(column)?,
        };
        Ok(bytes.map(|bytes| {
            String::from_utf8(bytes)
                .unwrap_or_else(|bad| String::from_utf8_lossy(bad.as_bytes()).into_owned())
        }))
    }
}

/// Runs `$body` with the connection, its type and its row's name.
macro_rules! each_engine {
    ($link:expr, |$connection:ident, $row:ident| $body:expr) => {
        match &mut $link.wire {
            Wire::Sqlite($connection) => {
                #[allow(unused_imports, reason = "not all statements have rows")]
                use Cells::Sqlite as $row;
                $body
            }
            Wire::Postgres($connection) => {
                #[allow(unused_imports, reason = "not all statements have rows")]
                use Cells::Postgres as $row;
                $body
            }
            Wire::MySql($connection) => {
                #[allow(unused_imports, reason = "not all statements have rows")]
                use Cells::MySql as $row;
                $body
            }
        }
    };
}

/// A query with its values bound.
macro_rules! bound {
    ($sql:expr, $values:expr) => {{
        let mut query = sqlx::query(AssertSqlSafe($sql));
        for value in $values {
            query = match value {
                Value::Int(it) => query.bind(i64::try_from(it).unwrap_or(i64::MAX)),
                Value::Text(it) => query.bind(it),
                Value::Null => query.bind(None::<String>),
            };
        }
        query
    }};
}

impl StoreConnection {
    /// Connects, within the time that is given for it.
    pub(super) async fn connect(location: &Location, options: &Options) -> Result<Self, Failure> {
        let opening = async {
            match &location.target {
                Target::Sqlite(path) => sqlite::connect(path, options).await.map(Wire::Sqlite),
                Target::Postgres(target) => postgres::connect(target).await.map(Wire::Postgres),
                Target::MySql(target) => mysql::connect(target, options).await.map(Wire::MySql),
            }
        };
        match timeout(options.connect_timeout, opening).await {
            Ok(wire) => Ok(Self { wire: wire?, wait_limit: options.statement_timeout }),
            Err(_) => Err(Failure::Timeout(options.connect_timeout)),
        }
    }

    /// Makes sure that this connection's session is its own, where a server could be behind a pooler.
    pub(super) async fn check_session(&mut self, location: &Location) -> Result<(), Failure> {
        let (Wire::Postgres(link), Target::Postgres(target)) = (&mut self.wire, &location.target) else {
            return Ok(());
        };
        match timeout(self.wait_limit, postgres::keeps_sessions(link, target)).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(StoreError::SharedSessions { at: location.to_string() }.into()),
            Ok(Err(failure)) => Err(failure),
            Err(_) => Err(Failure::Timeout(self.wait_limit)),
        }
    }

    pub(super) const fn engine(&self) -> Engine {
        match self.wire {
            Wire::Sqlite(_) => Engine::Sqlite,
            Wire::Postgres(_) => Engine::Postgres,
            Wire::MySql(_) => Engine::MySql,
        }
    }

    /// Carries out one statement; says how many rows it touched.
    pub(super) async fn run(&mut self, sql: &str, values: Vec<Value>) -> Result<u64, Failure> {
        #[cfg(test)]
        work_counts::statement();
        let wait_limit = self.wait_limit;
        let sql = spelled(self.engine(), sql);
        let done = each_engine!(self, |connection, _Row| {
            let work = bound!(sql, values).execute(connection);
            timeout(wait_limit, work).await.map(|done| done.map(|done| done.rows_affected()))
        });
        Ok(done.map_err(|_| Failure::Timeout(wait_limit))??)
    }

    /// Carries out statements that take no values and may be several, such as those that begin or end a transaction.
    pub(super) async fn script(&mut self, sql: &str) -> Result<(), Failure> {
        let wait_limit = self.wait_limit;
        let sql = sql.to_owned();
        let done = each_engine!(self, |connection, _Row| {
            let work = sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection);
            timeout(wait_limit, work).await.map(|done| done.map(|_| ()))
        });
        Ok(done.map_err(|_| Failure::Timeout(wait_limit))??)
    }

    /// Hands each row of the answer to `each`.
    pub(super) async fn rows<F>(&mut self, sql: &str, values: Vec<Value>, mut each: F) -> Result<(), Failure>
    where
        F: FnMut(Cells) -> Result<(), Failure> + Send,
    {
        #[cfg(test)]
        work_counts::statement();
        let wait_limit = self.wait_limit;
        let sql = spelled(self.engine(), sql);
        each_engine!(self, |connection, Row| {
            let mut rows = bound!(sql, values).fetch(connection);
            while let Some(row) =
                timeout(wait_limit, rows.try_next()).await.map_err(|_| Failure::Timeout(wait_limit))??
            {
                #[cfg(test)]
                work_counts::row();
                each(Row(row))?;
            }
        });
        Ok(())
    }

    /// The one row of an answer, if there is one.
    pub(super) async fn row(&mut self, sql: &str, values: Vec<Value>) -> Result<Option<Cells>, Failure> {
        let mut found = None;
        self.rows(sql, values, |row| {
            found = Some(row);
            Ok(())
        })
        .await?;
        Ok(found)
    }
}

/// A statement as the engine wants it: PostgreSQL numbers its values.
fn spelled(engine: Engine, sql: &str) -> String {
    if engine != Engine::Postgres {
        return sql.to_owned();
    }
    let mut spelled = String::with_capacity(sql.len() + 16);
    for (n, part) in sql.split('?').enumerate() {
        if n > 0 {
            spelled.push('$');
            spelled.push_str(itoa::Buffer::new().format(n));
        }
        spelled.push_str(part);
    }
    spelled
}

/// `(?, ?), (?, ?)`: `rows` of `columns` values.
pub(super) fn tuples(rows: usize, columns: usize) -> String {
    let one = format!("({})", marks(columns));
    vec![one.as_str(); rows].join(", ")
}

/// `?, ?, ?`.
pub(super) fn marks(values: usize) -> Cow<'static, str> {
    if values == 1 { Cow::Borrowed("?") } else { Cow::Owned(vec!["?"; values].join(", ")) }
}
