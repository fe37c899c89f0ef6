//! Where the database is.

use std::path::{Path, PathBuf};
use std::{env, fmt, fs};

use sqlx::mysql::MySqlConnectOptions;
use sqlx::postgres::PgConnectOptions;

use super::StoreError;

/// The folder of the default database for the superuser.
const SYSTEM_FOLDER: &str = "/var/lib/ferrum-edge";
/// The default database's file.
const FILE: &str = "ferrum.db";

/// What a PostgreSQL URL may say behind `?`.
const PARAMETERS_OF_POSTGRES: &[&str] = &[
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];
const UNKNOWN_OF_POSTGRES: &str = "it has an unknown parameter; there are `sslmode`, `sslrootcert`, `sslcert`, `sslkey`, `host`, \
     `hostaddr`, `port`, `dbname`, `user`, `password`, `application_name` and `options`";
/// What a MySQL URL may say behind `?`.
const PARAMETERS_OF_MYSQL: &[&str] =
    &["ssl-mode", "sslmode", "ssl-ca", "ssl-cert", "ssl-key", "socket", "charset", "collation"];
const UNKNOWN_OF_MYSQL: &str = "it has an unknown parameter; there are `ssl-mode`, `ssl-ca`, `ssl-cert`, `ssl-key`, `socket`, \
     `charset` and `collation`";

/// A kind of database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// A file, nothing to install.
    Sqlite,
    /// Shared by several gateways.
    Postgres,
    /// Shared by several gateways; MariaDB too.
    MySql,
}

impl Engine {
    /// As `FERRUM_DB_TYPE` names it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::MySql => "mysql",
        }
    }

    /// The engine of this name, also of its other names.
    pub fn named(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "sqlite" | "sqlite3" => Some(Self::Sqlite),
            "postgres" | "postgresql" => Some(Self::Postgres),
            "mysql" | "mariadb" => Some(Self::MySql),
            _ => None,
        }
    }
}

/// Where the database is, and how to get in. Neither `Display` nor `Debug` shows a password.
#[derive(Clone)]
pub struct Location {
    pub(super) target: Target,
    shown: String,
}

#[derive(Clone)]
pub(super) enum Target {
    Sqlite(PathBuf),
    Postgres(Box<PgConnectOptions>),
    MySql(Box<MySqlConnectOptions>),
}

impl Location {
    /// The database of `FERRUM_DB_URL` and `FERRUM_DB_TYPE`: `sqlite:FILE`, `postgres://…`, `mysql://…` (also
    /// `postgresql:` and `mariadb:`). Without a URL it is SQLite in [`default_path`]; a relative file is beneath that
    /// path's folder unless it begins with `./`. `engine` only has to agree with the URL.
    ///
    /// # Errors
    /// When it makes no sense; the text of it is not repeated, since it may hold a password.
    pub fn parse(url: Option<&str>, engine: Option<&str>) -> Result<Self, StoreError> {
        let wanted = match engine.filter(|name| !name.is_empty()) {
            Some(name) => Some(
                Engine::named(name)
                    .ok_or(StoreError::Location("the type is none of sqlite, postgres, mysql"))?,
            ),
            None => None,
        };
        let Some(url) = url.filter(|url| !url.is_empty()) else {
            return match wanted {
                None | Some(Engine::Sqlite) => Ok(Self::sqlite(default_path())),
                Some(_) => Err(StoreError::Location("a server needs a URL")),
            };
        };
        let (scheme, rest) = url.split_once(':').ok_or(StoreError::Location("it has no scheme"))?;
        let engine = Engine::named(scheme)
            .ok_or(StoreError::Location("its scheme is none of sqlite, postgres, mysql"))?;
        if wanted.is_some_and(|wanted| wanted != engine) {
            return Err(StoreError::Location("`FERRUM_DB_TYPE` and `FERRUM_DB_URL` disagree"));
        }
        let target = match engine {
            Engine::Sqlite => return sqlite_file(rest).map(Self::sqlite),
            Engine::Postgres => {
                known_parameters(rest, PARAMETERS_OF_POSTGRES)
                    .map_err(|()| StoreError::Location(UNKNOWN_OF_POSTGRES))?;
                let options = url.parse().map_err(|_| StoreError::Location("it can't be read as a URL"))?;
                Target::Postgres(Box::new(options))
            }
            Engine::MySql => {
                known_parameters(rest, PARAMETERS_OF_MYSQL)
                    .map_err(|()| StoreError::Location(UNKNOWN_OF_MYSQL))?;
                let url = format!("mysql:{rest}");
                let options = url.parse().map_err(|_| StoreError::Location("it can't be read as a URL"))?;
                Target::MySql(Box::new(options))
            }
        };
        Ok(Self { target, shown: shown(engine, rest) })
    }

    /// SQLite in this file.
    pub fn sqlite(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let shown = path.display().to_string();
        Self { target: Target::Sqlite(path), shown }
    }

    /// Which kind of database it is.
    pub const fn engine(&self) -> Engine {
        match self.target {
            Target::Sqlite(_) => Engine::Sqlite,
            Target::Postgres(_) => Engine::Postgres,
            Target::MySql(_) => Engine::MySql,
        }
    }

    /// SQLite's file.
    pub fn path(&self) -> Option<&Path> {
        match &self.target {
            Target::Sqlite(path) => Some(path),
            _ => None,
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// Refuses parameters that the driver would leave out of account: a misspelt `sslmode` would have nobody ask for a
/// certificate. Their names are not repeated, since a password with a `?` may be among them.
fn known_parameters(rest: &str, known: &[&str]) -> Result<(), ()> {
    let query = rest.split('#').next().unwrap_or_default().split_once('?').map_or("", |(_, query)| query);
    let mut names = query.split('&').filter(|pair| !pair.is_empty());
    let is_known = |pair: &str| known.contains(&pair.split('=').next().unwrap_or_default());
    if names.all(is_known) { Ok(()) } else { Err(()) }
}

/// The file after `sqlite:`.
fn sqlite_file(rest: &str) -> Result<PathBuf, StoreError> {
    let path = rest.strip_prefix("//").unwrap_or(rest);
    if path.is_empty() || path == ":memory:" || path.contains('?') || path.contains('\0') {
        return Err(StoreError::Location("`sqlite:` has to be followed by a file's path and nothing else"));
    }
    let path = Path::new(path);
    let here = path.is_absolute() || path.starts_with(".") || path.starts_with("..");
    Ok(if here { path.to_owned() } else { state_folder().join(path) })
}

/// `scheme://user@host/database` without password and parameters.
fn shown(engine: Engine, rest: &str) -> String {
    let rest = rest.split(['?', '#']).next().unwrap_or("").trim_start_matches('/');
    let shown = match rest.rsplit_once('@') {
        Some((who, place)) => format!("{}@{place}", who.split(':').next().unwrap_or("")),
        None => rest.to_owned(),
    };
    format!("{}://{shown}", engine.as_str())
}

/// The file of the database when none is given: `ferrum.db` in [`state_folder`].
pub fn default_path() -> PathBuf {
    state_folder().join(FILE)
}

/// The folder of what a gateway keeps: `$FERRUM_STATE`, else `/var/lib/ferrum-edge` where this user may write there (as
/// root does), else `$XDG_DATA_HOME/ferrum-edge`, else `~/.local/share/ferrum-edge`.
pub fn state_folder() -> PathBuf {
    if let Some(folder) = env::var_os("FERRUM_STATE").filter(|folder| !folder.is_empty()) {
        return folder.into();
    }
    let system = Path::new(SYSTEM_FOLDER);
    let owned = fs::metadata(system).is_ok_and(|found| found.is_dir())
        && rustix::fs::access(system, rustix::fs::Access::WRITE_OK).is_ok();
    if owned || rustix::process::geteuid().is_root() {
        return system.to_owned();
    }
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/share")));
    data.map_or_else(|| PathBuf::from("."), |data| data.join("ferrum-edge"))
}
