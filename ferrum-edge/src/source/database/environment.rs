//! A database as the environment describes it. Secrets come this way only: never from a flag, never from a file of
//! settings that somebody checks in.

use std::path::PathBuf;
use std::time::Duration;

use gateway_core::config::problem::{Problem, Problems};
use gateway_core::config::units::Unit;

use super::Database;
use super::references::Permitted;
use crate::access::Access;
use crate::access::environment::given;
use crate::access::kept_token::{TOKEN_FILE, kept_access};
use crate::store::seal::Keys;
use crate::store::{Engine, Location, Options, default_path, state_folder};
use crate::variables::{taken, variable};

/// The file with the token of the admin API that is made when the environment sets none: beside SQLite's file, else in the
/// folder of what a gateway keeps.
pub fn token_file(location: &Location) -> PathBuf {
    let beside = location.path().map(|path| path.with_file_name(TOKEN_FILE));
    beside.unwrap_or_else(|| state_folder().join(TOKEN_FILE))
}

/// Where the database is: as a flag says, else as the environment does.
///
/// # Errors
/// When that is no address.
pub fn location(url: Option<&str>, engine: Option<&str>) -> Result<Location, Problems> {
    let url = url.map_or_else(|| variable("FERRUM_DB_URL"), |url| Ok(Some(url.to_owned())));
    let engine = engine.map_or_else(|| variable("FERRUM_DB_TYPE"), |engine| Ok(Some(engine.to_owned())));
    let (url, engine) = (url.map_err(one)?, engine.map_err(one)?);
    // A kind that is none is not the fault of the URL.
    let is_kind = |name: &str| name.is_empty() || Engine::named(name).is_some();
    let at = if engine.as_deref().is_none_or(is_kind) { "FERRUM_DB_URL" } else { "FERRUM_DB_TYPE" };
    Location::parse(url.as_deref(), engine.as_deref())
        .map_err(|error| one(Problem::new(at, error.to_string()).remedy(error.remedy())))
}

impl Database {
    /// The database at `location`, the rest as the environment says.
    ///
    /// # Errors
    /// Every problem there is; none repeats a secret.
    pub fn from_environment(location: Location) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let options = options(&mut problems);
        let keys = keys(&mut problems);
        let access = access(&mut problems, &location);
        let mirror = match taken(&mut problems, "FERRUM_DB_LAST_GOOD").as_deref() {
            Some("off") => None,
            Some(path) => Some(PathBuf::from(path)),
            None if location.engine() == Engine::Sqlite => None,
            None => Some(default_path().with_file_name(last_good_file(&location))),
        };
        let references = references(&mut problems);
        problems.into_result(Self { location, options, keys, references, mirror, access })
    }
}

impl Database {
    /// The database at `location` for a tool that works on it and ends: with its own access, and without a copy of
    /// the last good configuration.
    ///
    /// # Errors
    /// Every problem of the environment.
    pub(crate) fn for_tools(location: Location, access: Access) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let options = options(&mut problems);
        let keys = keys(&mut problems);
        let references = references(&mut problems);
        problems.into_result(Self { location, options, keys, references, mirror: None, access })
    }
}

/// The last good configuration of a database, in the folder of the default one. Each has a file of its own: gateways on
/// several may run on one machine.
fn last_good_file(location: &Location) -> String {
    let digest = gateway_core::consumer::digest(location.to_string().as_bytes());
    let name: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("last-good-{name}.db")
}

fn one(problem: Problem) -> Problems {
    Problems(vec![problem])
}

fn number(problems: &mut Problems, name: &str) -> Option<u64> {
    let text = taken(problems, name)?;
    let number = text.parse().ok().filter(|number| *number > 0);
    if number.is_none() {
        problems.add(name, "expected a number above 0");
    }
    number
}

/// A duration above 0 whose plain number counts `unit`.
fn duration(problems: &mut Problems, name: &str, unit: Duration) -> Option<Duration> {
    let text = taken(problems, name)?;
    let read = match text.trim().parse::<u32>() {
        Ok(count) => Some(unit.saturating_mul(count)),
        Err(_) => Unit::Milliseconds.read(&text).ok().map(Duration::from_millis),
    };
    let read = read.filter(|duration| !duration.is_zero());
    if read.is_none() {
        problems.add(name, format!("`{text}` is not a duration above 0")).remedy =
            Some("such as 500ms, 1m or 30d".to_owned());
    }
    read
}

fn options(problems: &mut Problems) -> Options {
    let mut options = Options::default();
    if let Some(kept) = number(problems, "FERRUM_DB_KEEP_REVISIONS") {
        options.keep_revisions = kept;
    }
    if let Some(kept) = number(problems, "FERRUM_DB_KEEP_AUDIT") {
        options.keep_audit = kept;
    }
    if let Some(kept) = duration(problems, "FERRUM_DB_KEEP_AUDIT_DAYS", Duration::from_secs(86_400)) {
        options.keep_audit_for = kept;
    }
    options.poll_interval = duration(problems, "FERRUM_DB_POLL_INTERVAL_MS", Duration::from_millis(1));
    options
}

fn references(problems: &mut Problems) -> Permitted {
    const NAME: &str = "FERRUM_DB_REFERENCES";
    let Some(text) = taken(problems, NAME) else { return Permitted::default() };
    text.parse().unwrap_or_else(|problem: Problem| {
        problems.0.push(Problem { path: NAME.to_owned(), ..problem });
        Permitted::default()
    })
}

fn keys(problems: &mut Problems) -> Keys {
    const NAME: &str = "FERRUM_DB_ENCRYPTION_KEY";
    let Some(text) = taken(problems, NAME) else { return Keys::default() };
    Keys::parse(&text).unwrap_or_else(|error| {
        problems.add(NAME, error.to_string()).remedy = Some(error.remedy().to_owned());
        Keys::default()
    })
}

fn access(problems: &mut Problems, location: &Location) -> Access {
    let access = given(problems);
    if !access.is_empty() || !problems.is_empty() {
        return access;
    }
    kept_access(&token_file(location)).unwrap_or_else(|problem| {
        problems.0.push(problem);
        access
    })
}
