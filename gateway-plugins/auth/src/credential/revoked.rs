//! Tokens that are worth nothing any more, by their `jti` (RFC 7519 §4.1.7).

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use gateway_core::config::problem::Problems;
use gateway_core::config::units::Seconds;
use gateway_core::consumer::{Consumers, Standing};
use gateway_core::plugin::{Starter, World};
use gateway_plugin_common::watched::Watched;
use serde_json::{Map, Value};
use thiserror::Error;

/// Bytes of one file.
const MAX_FILE: u64 = 64 << 20;
/// Ids of all files together.
const MAX_IDS: usize = 1_000_000;

/// Ids of revoked tokens, in the settings and in files.
pub(crate) struct Revoked {
    ids: Arc<RevokedIds>,
    refresh: Seconds,
    /// Those of the settings in use.
    in_use: Arc<InUse>,
}

struct RevokedIds {
    listed: HashSet<String>,
    files: Arc<Watched<Ids>>,
}

/// What sessions ask that began under settings of before.
type InUse = ArcSwapOption<RevokedIds>;

/// For as long as the id of a session's token is not revoked.
struct TokenStanding {
    id: String,
    in_use: Arc<InUse>,
}

impl fmt::Debug for TokenStanding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenStanding").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Standing for TokenStanding {
    fn holds(&self, _consumers: &Consumers) -> bool {
        self.in_use.load().as_ref().is_none_or(|ids| !ids.has(&self.id))
    }
}

#[derive(Default)]
struct Ids(HashSet<Box<str>>);

impl Revoked {
    /// Reads the settings `revoked_tokens`, `revoked_token_files` and `revocation_refresh`.
    pub(crate) fn read(
        world: &World,
        listed: Vec<String>,
        files: Vec<PathBuf>,
        refresh: Seconds,
    ) -> Result<Self, Problems> {
        let files = Watched::new(world, "config.revoked_token_files", files, MAX_FILE, Ids::add_lines)?;
        let ids = Arc::new(RevokedIds { listed: listed.into_iter().collect(), files: Arc::new(files) });
        Ok(Self { ids, refresh, in_use: world.kept("revoked ids", InUse::default) })
    }

    /// Whether the token with these claims is revoked. One without a `jti` can't be.
    pub(crate) fn has(&self, claims: &Map<String, Value>) -> bool {
        if self.ids.listed.is_empty() && self.ids.files.is_empty() {
            return false;
        }
        claims.get("jti").and_then(Value::as_str).is_some_and(|id| self.ids.has(id))
    }

    /// For how long a session may go on that began with the token with these claims.
    pub(crate) fn standing(&self, claims: &Map<String, Value>) -> Option<Arc<dyn Standing>> {
        let id = claims.get("jti")?.as_str()?.to_owned();
        Some(Arc::new(TokenStanding { id, in_use: self.in_use.clone() }))
    }

    /// How often the files are looked at.
    pub(crate) fn every(&self) -> std::time::Duration {
        self.refresh.duration()
    }

    /// Puts the ids in use, and has the files read again when they change.
    pub(crate) fn start(&self, starter: &mut Starter<'_>) {
        self.in_use.store(Some(self.ids.clone()));
        if !self.ids.files.is_empty() {
            let (files, every) = (self.ids.files.clone(), self.every());
            starter.task("revoked", move |control| files.clone().keep_fresh(every, control));
        }
    }
}

impl RevokedIds {
    fn has(&self, id: &str) -> bool {
        self.listed.contains(id) || self.files.get().0.contains(id)
    }
}

/// Why a file of ids can't be used.
#[derive(Debug, Error)]
enum IdListError {
    #[error("it is not UTF-8")]
    NoText,
    #[error("there are more than {MAX_IDS} ids")]
    TooLong,
}

impl Ids {
    /// Adds what a file has: an id a line, `#` begins a comment.
    fn add_lines(&mut self, bytes: &[u8]) -> Result<(), IdListError> {
        let text = std::str::from_utf8(bytes).map_err(|_| IdListError::NoText)?;
        for line in text.trim_start_matches('\u{feff}').lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if self.0.len() >= MAX_IDS {
                return Err(IdListError::TooLong);
            }
            self.0.insert(line.into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use gateway_core::plugin::world::tasks::TaskControl;
    use serde_json::json;

    use super::*;
    use gateway_plugin_common::testing::Machine;

    #[tokio::test(start_paused = true)]
    async fn ids_in_the_settings_and_in_files_that_change() {
        let machine = Machine::default();
        machine.files.put("revoked", "# stolen\n\n b \n");
        let revoked = Revoked::read(&machine.world(), vec!["a".into()], vec!["revoked".into()], Seconds(5));
        let revoked = revoked.unwrap_or_else(|problems| panic!("{problems}"));
        let has = |claims: Value| revoked.has(claims.as_object().expect("an object"));
        assert!(has(json!({ "jti": "a" })) && has(json!({ "jti": "b" })));
        assert!(!has(json!({ "jti": "c" })) && !has(json!({})) && !has(json!({ "jti": ["a"] })));
        let (_handle, control) = TaskControl::new();
        let task = tokio::spawn(revoked.ids.files.clone().keep_fresh(revoked.refresh.duration(), control));
        tokio::task::yield_now().await;
        machine.files.put("revoked", "c\n");
        tokio::time::advance(std::time::Duration::from_secs(6)).await;
        while has(json!({ "jti": "b" })) {
            tokio::task::yield_now().await;
        }
        assert!(!has(json!({ "jti": "b" })) && has(json!({ "jti": "c" })) && !task.is_finished());
    }
}
