//! PostgreSQL: how it is connected to.

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection, Row};

use super::Failure;

/// The options of every connection, also of the one that listens.
pub(in crate::store) fn options(target: &PgConnectOptions) -> PgConnectOptions {
    target.clone().application_name("ferrum-edge").disable_statement_logging()
}

pub(super) async fn connect(target: &PgConnectOptions) -> Result<PgConnection, Failure> {
    Ok(options(target).connect().await?)
}

/// Whether each connection has a session of its own. By way of a pooler that hands out transactions, such as PgBouncer
/// with `pool_mode=transaction`, two that ask one after the other get the same.
pub(super) async fn keeps_sessions(
    link: &mut PgConnection,
    target: &PgConnectOptions,
) -> Result<bool, Failure> {
    const SESSION: &str = "SELECT pg_backend_pid()";
    // Where the server takes no second connection, nobody shares the first one.
    let Ok(mut other) = connect(target).await else { return Ok(true) };
    // Without a prepared statement: that one would be left behind in a session of somebody else's.
    let of_this: i32 = sqlx::raw_sql(SESSION).fetch_one(link).await?.try_get(0)?;
    let of_other: i32 = sqlx::raw_sql(SESSION).fetch_one(&mut other).await?.try_get(0)?;
    drop(other.close().await);
    Ok(of_this != of_other)
}
