//! The tables, and how they come to be.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::StoreError;
use super::link::StoreConnection;
use super::link::failure::Failure;
use super::link::sqlite;
use super::location::{Engine, Location};
use super::migrations::{KNOWN, MIGRATIONS};
use super::options::Options;

/// Bytes up to which SQLite's file is checked as a whole when it is first opened.
const CHECKED_BYTES: u64 = 32 << 20;

/// What a migration did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migrated {
    /// The schema before; 0 when there was none.
    pub from: u32,
    /// The schema now.
    pub to: u32,
}

/// The version of the schema that is there; 0 when there is none.
async fn found(link: &mut StoreConnection) -> Result<u32, Failure> {
    let there = match link.engine() {
        Engine::Sqlite => "SELECT COUNT(*) FROM sqlite_schema WHERE name = 'ferrum_migrations'",
        Engine::Postgres => {
            "SELECT COUNT(*) FROM pg_catalog.pg_class WHERE oid = to_regclass('ferrum_migrations')"
        }
        Engine::MySql => {
            "SELECT COUNT(*) FROM information_schema.tables \
             WHERE table_schema = DATABASE() AND table_name = 'ferrum_migrations'"
        }
    };
    let there = link.row(there, Vec::new()).await?;
    if there.map_or(Ok(0), |row| row.int(0))? == 0 {
        return Ok(0);
    }
    version(link).await
}

/// The version of a schema that is there.
async fn version(link: &mut StoreConnection) -> Result<u32, Failure> {
    let row = link.row("SELECT COALESCE(MAX(version), 0) FROM ferrum_migrations", Vec::new()).await?;
    let version = row.map_or(Ok(0), |row| row.int(0))?;
    u32::try_from(version).map_err(|_| Failure::Row("the schema's version".to_owned()))
}

/// Refuses a database whose schema is not this program's.
pub(super) async fn check(link: &mut StoreConnection, location: &Location) -> Result<(), Failure> {
    is_known(found(link).await?, location)
}

/// The same for a database that had this program's schema when it was connected to.
pub(super) async fn check_version(link: &mut StoreConnection, location: &Location) -> Result<(), Failure> {
    is_known(version(link).await?, location)
}

fn is_known(found: u32, location: &Location) -> Result<(), Failure> {
    let at = location.to_string();
    match found {
        KNOWN => Ok(()),
        0..KNOWN => Err(StoreError::NotMigrated { at, found, known: KNOWN }.into()),
        _ => Err(StoreError::NewerSchema { at, found, known: KNOWN }.into()),
    }
}

/// The steps that are missing, by name.
pub(super) async fn pending(location: &Location, options: &Options) -> Result<Vec<&'static str>, Failure> {
    let found = match StoreConnection::connect(location, options).await {
        Ok(mut link) => found(&mut link).await?,
        Err(Failure::File(_, error)) if error.kind() == std::io::ErrorKind::NotFound => 0,
        Err(other) => return Err(other),
    };
    if found > KNOWN {
        return Err(StoreError::NewerSchema { at: location.to_string(), found, known: KNOWN }.into());
    }
    Ok(MIGRATIONS.iter().skip(found as usize).map(|step| step.name).collect())
}

/// Brings the schema to this program's, creating SQLite's file where there is none. Of several programs that try at
/// once, one does it and the others find it done.
pub(super) async fn migrate(location: &Location, options: &Options) -> Result<Migrated, Failure> {
    if let Some(path) = location.path() {
        sqlite::create(path).map_err(|error| Failure::File(path.to_owned(), error))?;
    }
    let mut link = StoreConnection::connect(location, options).await?;
    let busy = options.busy_timeout;
    match link.engine() {
        Engine::Sqlite => {
            link.script(&format!("PRAGMA page_size = {}", sqlite::PAGE_BYTES)).await?;
            write_ahead(&mut link, location, busy).await?;
            link.script("BEGIN IMMEDIATE").await?;
        }
        Engine::Postgres => {
            let lock = format!(
                "BEGIN; SET LOCAL lock_timeout = {}; SELECT pg_advisory_xact_lock({LOCK})",
                busy.as_millis()
            );
            link.script(&lock).await?;
        }
        Engine::MySql => {
            let taken = format!("SELECT GET_LOCK('ferrum-edge-{LOCK}', {})", busy.as_secs().max(1));
            if link.row(&taken, Vec::new()).await?.map_or(Ok(0), |row| row.int(0))? != 1 {
                return Err(StoreError::Busy { waited: busy }.into());
            }
        }
    }
    let from = found(&mut link).await?;
    if from > KNOWN {
        return Err(StoreError::NewerSchema { at: location.to_string(), found: from, known: KNOWN }.into());
    }
    link.script(
        "CREATE TABLE IF NOT EXISTS ferrum_migrations (version BIGINT PRIMARY KEY, name VARCHAR(64) NOT NULL)",
    )
    .await?;
    for (version, step) in (1_u64..).zip(MIGRATIONS).skip(from as usize) {
        let sql = match link.engine() {
            Engine::Sqlite => step.sqlite,
            Engine::Postgres => step.postgres,
            Engine::MySql => step.mysql,
        };
        link.script(sql).await?;
        let done = vec![version.into(), step.name.into()];
        link.run("INSERT INTO ferrum_migrations (version, name) VALUES (?, ?)", done).await?;
    }
    if link.engine() == Engine::MySql {
        link.script(&format!("DO RELEASE_LOCK('ferrum-edge-{LOCK}')")).await?;
    } else {
        link.script("COMMIT").await?;
    }
    Ok(Migrated { from, to: KNOWN })
}

/// Switches SQLite's file to a write-ahead log. SQLite does not wait for other connections there, whatever its busy
/// timeout is, because two that switch at once could wait for each other; so the waiting is done here.
async fn write_ahead(link: &mut StoreConnection, location: &Location, busy: Duration) -> Result<(), Failure> {
    let deadline = Instant::now() + busy;
    loop {
        let mode = match link.row("PRAGMA journal_mode = WAL", Vec::new()).await {
            Ok(row) => row.map_or(Ok(String::new()), |row| row.text(0))?,
            Err(failure) if failure.is_busy() && Instant::now() < deadline => {
                sleep(SWITCH_AGAIN).await;
                continue;
            }
            Err(failure) if failure.is_busy() => return Err(StoreError::Busy { waited: busy }.into()),
            Err(failure) => return Err(failure),
        };
        return match mode.as_str() {
            "wal" => Ok(()),
            mode => Err(StoreError::Refused {
                at: location.to_string(),
                cause: format!("its journal mode stays `{mode}`; the file has to be on a local disk"),
            }
            .into()),
        };
    }
}

/// Between two attempts to switch the journal mode.
const SWITCH_AGAIN: Duration = Duration::from_millis(5);

/// The advisory lock of those who migrate: an arbitrary number, the same in every version.
const LOCK: u32 = 0x6665_7272;

/// Looks through a small SQLite file for damage.
pub(super) async fn examine(link: &mut StoreConnection, location: &Location) -> Result<(), Failure> {
    let Some(path) = location.path() else { return Ok(()) };
    if std::fs::metadata(path).map_or(0, |found| found.len()) > CHECKED_BYTES {
        return Ok(());
    }
    let Some(row) = link.row("PRAGMA quick_check(1)", Vec::new()).await? else { return Ok(()) };
    match row.text(0)?.as_str() {
        "ok" => Ok(()),
        cause => Err(StoreError::Corrupt { at: location.to_string(), cause: cause.to_owned() }.into()),
    }
}
