//! Where the servers are that tests start.
//!
//! Tests start real peers: databases, caches, directories, other proxies. `cargo xtask prepare` installs them; a test whose server
//! is absent fails and names that command.

pub mod ports;

use std::path::{Path, PathBuf};

/// The program of this name, from the path or from a folder where Debian keeps servers. Of several versions, the newest.
///
/// # Panics
/// When it is not installed: the message names the command that installs it.
pub fn program(name: &str) -> PathBuf {
    find_program(name).unwrap_or_else(|| missing(name))
}

/// As [`program`], for a program whose name has its version behind this, such as `php-fpm8.2`.
///
/// # Panics
/// When none is installed.
pub fn versioned_program(start: &str) -> PathBuf {
    let mut all: Vec<_> =
        folders().iter().flat_map(|folder| entries(folder)).filter(|path| is_version(path, start)).collect();
    all.sort();
    all.pop().unwrap_or_else(|| missing(start))
}

/// The first of these files that is there.
///
/// # Panics
/// When none is: the message names the command that installs `what`.
pub fn file(what: &str, paths: &[&str]) -> PathBuf {
    let found = paths.iter().map(PathBuf::from).find(|path| path.is_file());
    found.unwrap_or_else(|| missing(what))
}

fn missing(what: &str) -> ! {
    panic!("{what} is not installed: `cargo xtask prepare` installs what tests need")
}

fn find_program(name: &str) -> Option<PathBuf> {
    folders().into_iter().map(|folder| folder.join(name)).find(|path| path.is_file())
}

fn folders() -> Vec<PathBuf> {
    // Debian keeps the programs of PostgreSQL out of the path, and servers out of that of users who are not root.
    let mut folders: Vec<_> =
        entries(Path::new("/usr/lib/postgresql")).map(|version| version.join("bin")).collect();
    folders.sort();
    folders.reverse();
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    folders.extend(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    folders
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn is_version(path: &Path, start: &str) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.strip_prefix(start)
        .is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_its_name_or_by_its_start() {
        assert!(program("sh").is_file());
        assert!(is_version(Path::new("/usr/sbin/php-fpm8.2"), "php-fpm"));
        assert!(is_version(Path::new("/usr/sbin/php-fpm"), "php-fpm"));
        assert!(!is_version(Path::new("/usr/sbin/php-fpm-helper"), "php-fpm"));
    }

    #[test]
    #[should_panic(expected = "`cargo xtask prepare`")]
    fn the_command_is_named_where_a_program_is_missing() {
        program("a-program-that-is-nowhere");
    }
}
