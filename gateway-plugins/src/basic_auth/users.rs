//! Files as `htpasswd` writes them: `name:hash`, one a line.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::password::Stored;

/// Bytes of one file.
pub(super) const MAX_FILE: u64 = 64 << 20;
/// Users of all files together.
const MAX_USERS: usize = 500_000;

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
    pub(super) fn add_lines(&mut self, bytes: &[u8]) -> Result<(), String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
        for (n, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            self.add(line).map_err(|why| format!("line {}: {why}", n + 1))?;
        }
        Ok(())
    }

    fn add(&mut self, line: &str) -> Result<(), String> {
        if self.0.len() >= MAX_USERS {
            return Err(format!("there are more than {MAX_USERS} users"));
        }
        let (name, rest) = line.split_once(':').ok_or("there is no `:`")?;
        if name.is_empty() {
            return Err("there is no name".to_owned());
        }
        let hash = rest.split(':').next().unwrap_or_default();
        let stored = Stored::hash(hash)?;
        match self.0.entry(name.into()) {
            Entry::Occupied(_) => Err(format!("`{}` is there twice", name.escape_debug())),
            Entry::Vacant(place) => {
                place.insert(Arc::new([stored]));
                Ok(())
            }
        }
    }
}
