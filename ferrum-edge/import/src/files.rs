//! Files that a configuration includes.

use std::io;
use std::path::{Component, Path, PathBuf};

use crate::{MAX_FILE_BYTES, MAX_FILES, MAX_TOTAL_BYTES};

/// Where included files come from.
pub trait Files {
    /// The text of a file.
    ///
    /// # Errors
    /// When it can't be read.
    fn read(&self, path: &Path) -> io::Result<String>;

    /// The names of the files in a folder.
    ///
    /// # Errors
    /// When it can't be read.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;
}

/// No file is read: each include is reported.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _path: &Path) -> io::Result<String> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn list(&self, _folder: &Path) -> io::Result<Vec<String>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The files of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<String> {
        use std::io::Read;
        let mut bytes = Vec::new();
        let most = MAX_FILE_BYTES as u64;
        std::fs::File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
        if bytes.len() > MAX_FILE_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder)?.take(MAX_FILES + 1) {
            let entry = entry?;
            if entry.path().is_file()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }
}

/// Reads included files, within the limits of one import.
pub(crate) struct IncludeReader<'f> {
    files: &'f dyn Files,
    count: usize,
    bytes: usize,
}

impl<'f> IncludeReader<'f> {
    pub(crate) fn new(files: &'f dyn Files) -> Self {
        Self { files, count: 0, bytes: 0 }
    }

    /// The text of a file; the reason in plain words when there is none.
    pub(crate) fn read(&mut self, path: &Path) -> Result<String, String> {
        self.count += 1;
        if self.count > MAX_FILES {
            return Err(format!("more than {MAX_FILES} files are included"));
        }
        let text = self.files.read(path).map_err(|error| why(&error))?;
        self.bytes += text.len();
        if self.bytes > MAX_TOTAL_BYTES {
            return Err(format!("the included files have more than {MAX_TOTAL_BYTES} bytes together"));
        }
        Ok(text)
    }

    /// The files that a pattern means, whose last part may have `*` and `?`.
    pub(crate) fn matching(&self, pattern: &Path) -> Result<Vec<PathBuf>, String> {
        let last = pattern.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let folder = pattern.parent().unwrap_or_else(|| Path::new(""));
        if !last.contains(['*', '?']) {
            return Ok(vec![pattern.to_owned()]);
        }
        if folder
            .components()
            .any(|part| matches!(part, Component::Normal(name) if name.to_string_lossy().contains('*')))
        {
            return Err("only the last part of the path may have `*`".to_owned());
        }
        let names = match self.files.list(folder) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(why(&error)),
        };
        // As in shells, hidden files are meant only by patterns that begin with a dot.
        let is_hidden = |name: &str| name.starts_with('.') && !last.starts_with('.');
        let fits = names.into_iter().filter(|name| glob(&last, name) && !is_hidden(name));
        Ok(fits.map(|name| folder.join(name)).collect())
    }
}

fn why(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::Unsupported => "included files are not read here".to_owned(),
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        _ => error.to_string(),
    }
}

/// Whether a name fits a pattern with `*` and `?`.
pub(crate) fn glob(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    p = at + 1;
                    n = from + 1;
                    star = Some((at, n));
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(p).all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::glob;

    #[test]
    fn patterns_of_names() {
        for (pattern, name, fits) in [
            ("*.conf", "a.conf", true),
            ("*.conf", ".conf", true),
            ("*.conf", "a.conf~", false),
            ("a?c*", "abcd", true),
            ("a*b*c", "aXbYbZc", true),
            ("*", "", true),
            ("", "a", false),
            ("**a", "bba", true),
        ] {
            assert_eq!(glob(pattern, name), fits, "{pattern} {name}");
        }
        // A pattern that would take a naive matcher for ever.
        assert!(!glob(&"*a".repeat(200), &"a".repeat(199)));
    }
}
