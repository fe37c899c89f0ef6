//! PostgreSQL: how it is connected to.

use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgConnection};

use super::Failure;

/// The options of every connection, also of the one that listens.
pub(in crate::store) fn options(target: &PgConnectOptions) -> PgConnectOptions {
    target.clone().application_name("ferrum-edge").disable_statement_logging()
}

pub(super) async fn connect(target: &PgConnectOptions) -> Result<PgConnection, Failure> {
    Ok(options(target).connect().await?)
}
