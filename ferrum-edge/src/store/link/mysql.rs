//! MySQL and MariaDB: how they are connected to.

use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor};

use super::Failure;
use crate::store::Options;

/// Seconds after which the server ends a connection nobody uses, also one that holds the writers' lock.
const IDLE_SECONDS: u32 = 120;

pub(super) async fn connect(
    target: &MySqlConnectOptions,
    options: &Options,
) -> Result<MySqlConnection, Failure> {
    let mut connection = target.clone().disable_statement_logging().connect().await?;
    let busy = options.busy_timeout.as_secs().max(1);
    // Snapshots are what readers rely on, whatever the server's defaults are; nothing may be cut short silently.
    let session = format!(
        "SET SESSION innodb_lock_wait_timeout = {busy}, wait_timeout = {IDLE_SECONDS}, \
         sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES'); \
         SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"
    );
    connection.execute(sqlx::raw_sql(AssertSqlSafe(session))).await?;
    Ok(connection)
}
