//! Files as `htpasswd` writes them: `name:hash`, one a line.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use gateway_core::consumer::{Consumers, Standing};
use gateway_plugin_common::watched::Watched;
use thiserror::Error;

use super::password::Stored;

/// Bytes of one file.
pub(super) const MAX_FILE: u64 = 64 << 20;
/// Users of all files together.
const MAX_USERS: usize = 500_000;

/// The users of the settings in use, for sessions that began under those of before.
pub(super) type InUse = ArcSwapOption<Watched<Users>>;

/// For as long as a user of a file is there with the password of then.
pub(super) struct FileStanding {
    pub(super) user: Box<str>,
    pub(super) stored: Arc<[Stored]>,
    pub(super) in_use: Arc<InUse>,
}

/// Without the hashes.
impl fmt::Debug for FileStanding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileStanding").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Standing for FileStanding {
    fn holds(&self, _consumers: &Consumers) -> bool {
        let Some(users) = self.in_use.load_full().map(|files| files.get()) else { return true };
        let known = users.get(&self.user);
        known.is_some_and(|now| now.iter().map(Stored::text).eq(self.stored.iter().map(Stored::text)))
    }
}

/// Users by name.
#[derive(Debug, Default)]
pub(super) struct Users(HashMap<Box<str>, Arc<[Stored]>>);

impl Users {
    pub(super) fn get(&self, name: &str) -> Option<&Arc<[Stored]>> {
        self.0.get(name)
    }

    /// The hash of anybody.
    pub(super) fn any(&self) -> Option<&Stored> {
        self.0.values().next()?.first()
    }

    /// Adds what a file has. What is after a second colon is a comment.
    ///
    /// # Errors
    /// The first line that can't be used, without anything of its hash.
    pub(super) fn add_lines(&mut self, bytes: &[u8]) -> Result<(), UserFileError> {
        let text = std::str::from_utf8(bytes).map_err(|_| UserFileError::NoText)?;
        for (n, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            self.add(line).map_err(|error| UserFileError::Line { number: n + 1, error })?;
        }
        Ok(())
    }

    fn add(&mut self, line: &str) -> Result<(), UserError> {
        if self.0.len() >= MAX_USERS {
            return Err(UserError::TooMany);
        }
        let (name, rest) = line.split_once(':').ok_or(UserError::NoColon)?;
        if name.is_empty() {
            return Err(UserError::NoName);
        }
        let hash = rest.split(':').next().unwrap_or_default();
        let stored = Stored::hash(hash).map_err(UserError::Hash)?;
        match self.0.entry(name.into()) {
            Entry::Occupied(_) => Err(UserError::Twice(name.escape_debug().to_string())),
            Entry::Vacant(place) => {
                place.insert(Arc::new([stored]));
                Ok(())
            }
        }
    }
}

/// Why a file of users can't be used.
#[derive(Debug, Error)]
pub(super) enum UserFileError {
    #[error("it is not UTF-8")]
    NoText,
    #[error("line {number}: {error}")]
    Line { number: usize, error: UserError },
}

/// What is wrong with a line of it; nothing of its hash.
#[derive(Debug, Error)]
pub(super) enum UserError {
    #[error("there are more than {MAX_USERS} users")]
    TooMany,
    #[error("there is no `:`")]
    NoColon,
    #[error("there is no name")]
    NoName,
    #[error("{0}")]
    Hash(&'static str),
    #[error("`{0}` is there twice")]
    Twice(String),
}
