//! What objects in a database may refer to on this machine. Whoever may write objects could otherwise read every secret of
//! the gateway's environment, so that only what its operator permits is answered.

use std::path::{Component, Path, PathBuf};
use std::str::FromStr;
use std::{env, io};

use gateway_core::config::file::References;
use gateway_core::config::problem::Problem;

use crate::source::file::Machine;

/// Variables of the gateway itself, its keys and tokens among them, are never answered.
const OWN: &str = "FERRUM_";

/// What objects may refer to; by default nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permitted {
    names: Vec<String>,
    paths: Vec<PathBuf>,
}

impl FromStr for Permitted {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let mut permitted = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part.split_once(':') {
                Some(("env", name)) if !name.is_empty() && !name.starts_with(OWN) => {
                    permitted.names.push(name.to_owned());
                }
                Some(("file", path)) if Path::new(path).is_absolute() => permitted.paths.push(path.into()),
                _ => {
                    return Err(Problem::new("", format!("`{part}` can't be permitted"))
                        .remedy("env:NAME, env:PREFIX_* or file:/PATH; never FERRUM_ variables"));
                }
            }
        }
        Ok(permitted)
    }
}

impl Permitted {
    fn takes_name(&self, name: &str) -> bool {
        let matches = |pattern: &String| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == pattern,
        };
        !name.starts_with(OWN) && self.names.iter().any(matches)
    }

    /// By where the path really leads: a link must not lead out of what is permitted.
    fn takes_path(&self, path: &Path) -> bool {
        let Ok(real) = path.canonicalize() else { return false };
        path.is_absolute() && self.has(&real)
    }

    /// Whether a setting may name this file or folder. It need not be there yet: then the folder counts that it would be in.
    pub(super) fn takes_file(&self, path: &Path) -> bool {
        real(path).is_some_and(|real| self.has(&real))
    }

    /// Whether a real path is one that is permitted, or beneath one.
    fn has(&self, real: &Path) -> bool {
        let mut permitted = self.paths.iter().filter_map(|permitted| self::real(permitted));
        permitted.any(|permitted| real.starts_with(permitted))
    }
}

/// Where a path leads, as far as it is there yet.
fn real(path: &Path) -> Option<PathBuf> {
    let is_plain = path.is_absolute() && !path.components().any(|part| part == Component::ParentDir);
    let there = path.ancestors().find(|part| part.symlink_metadata().is_ok()).filter(|_| is_plain)?;
    // A link that leads nowhere yet may lead anywhere later.
    let real = there.canonicalize().ok()?;
    let rest = path.strip_prefix(there).ok()?;
    Some(if rest.as_os_str().is_empty() { real } else { real.join(rest) })
}

impl References for Permitted {
    fn permit(&self, reference: &str) -> Result<(), Problem> {
        let is_permitted = match reference.split_once(':') {
            Some(("env", name)) => self.takes_name(name),
            Some(("file", path)) => self.takes_path(Path::new(path)),
            _ => false,
        };
        match is_permitted {
            true => Machine.permit(reference),
            false => {
                let message = format!("`${{{reference}}}` is not permitted here, or there is no such file");
                Err(Problem::new("", message).remedy("permit it by FERRUM_DB_REFERENCES on every gateway"))
            }
        }
    }

    fn env(&self, name: &str) -> Option<String> {
        env::var(name).ok()
    }

    fn file(&self, path: &Path) -> io::Result<String> {
        Machine.file(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_named_is_permitted() {
        let folder = env::temp_dir().join(format!("ferrum-references-{}", std::process::id()));
        let outside = folder.with_extension("outside");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("a"), "A").unwrap();
        std::fs::write(&outside, "secret").unwrap();
        std::os::unix::fs::symlink(&outside, folder.join("link")).unwrap();
        let shown = folder.display();
        let permitted: Permitted = format!("env:ONE, env:APP_*,file:{shown}").parse().unwrap();
        for (reference, is_permitted) in [
            ("env:ONE".to_owned(), true),
            ("env:ONES".to_owned(), false),
            ("env:APP_TOKEN".to_owned(), true),
            ("env:PATH".to_owned(), false),
            ("env:FERRUM_ADMIN_TOKEN".to_owned(), false),
            (format!("file:{shown}/a"), true),
            (format!("file:{shown}/none"), false),
            (format!("file:{shown}/link"), false),
            (format!("file:{shown}/../{}", outside.file_name().unwrap().to_string_lossy()), false),
            ("file:a".to_owned(), false),
            ("file:/etc/passwd".to_owned(), false),
        ] {
            assert_eq!(permitted.permit(&reference).is_ok(), is_permitted, "{reference}");
        }
        assert!(Permitted::default().permit("env:ONE").is_err());
        assert!("env:*".parse::<Permitted>().unwrap().permit("env:FERRUM_DB_URL").is_err());
        for wrong in ["ONE", "env:", "env:FERRUM_X", "file:relative", "vault:x"] {
            assert!(wrong.parse::<Permitted>().is_err(), "{wrong}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
        std::fs::remove_file(&outside).unwrap();
    }
}
