//! `${env:NAME}` and `${file:path}` inside text values.

use std::io;
use std::path::Path;

use super::tree::{Node, Trail, Value};
use crate::problem::{Problem, Problems};

/// Answers references; given by whoever may read the environment and files.
pub trait References {
    /// Whether a text may refer to this, such as `env:NAME`.
    ///
    /// # Errors
    /// Why it may not.
    fn permit(&self, _reference: &str) -> Result<(), Problem> {
        Ok(())
    }

    /// Whether texts stay as they are, references and all.
    fn keeps(&self) -> bool {
        false
    }

    /// The value of an environment variable; `None` when it isn't set.
    fn env(&self, name: &str) -> Option<String>;

    /// The text of a file.
    ///
    /// # Errors
    /// When it can't be read as text.
    fn file(&self, path: &Path) -> io::Result<String>;
}

/// Answers no reference, for texts that must not reach into the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoReferences;

impl References for NoReferences {
    fn env(&self, _name: &str) -> Option<String> {
        None
    }

    fn file(&self, _path: &Path) -> io::Result<String> {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "files may not be referred to from here"))
    }
}

/// Leaves every text as it is, for those who pass it on to somebody who answers.
#[derive(Debug, Clone, Copy, Default)]
pub struct KeepReferences;

impl References for KeepReferences {
    fn keeps(&self) -> bool {
        true
    }

    fn env(&self, _name: &str) -> Option<String> {
        None
    }

    fn file(&self, path: &Path) -> io::Result<String> {
        NoReferences.file(path)
    }
}

/// A text without references as it is meant: `$${env:` is `${env:`. `None` when it holds a reference.
pub fn literal(text: &str) -> Option<String> {
    struct Nothing;
    impl References for Nothing {
        fn permit(&self, _: &str) -> Result<(), Problem> {
            Err(Problem::new("", "a reference"))
        }

        fn env(&self, _: &str) -> Option<String> {
            None
        }

        fn file(&self, path: &Path) -> io::Result<String> {
            NoReferences.file(path)
        }
    }
    Expander { folder: Path::new(""), references: &Nothing }.text(text).ok()
}

/// Whether a document may hold a reference at all; quick, as it is asked of each object that is loaded.
pub(super) fn has_any(document: &str) -> bool {
    document.contains("${env:") || document.contains("${file:") || document.contains("\\u0024")
}

/// Replaces every reference in the text values at and below `node`; `$${env:` stands for a literal `${env:`.
pub(super) fn expand(node: &mut Node, folder: &Path, references: &dyn References, problems: &mut Problems) {
    if !references.keeps() {
        walk(node, &mut Trail::new(), &Expander { folder, references }, problems);
    }
}

struct Expander<'a> {
    folder: &'a Path,
    references: &'a dyn References,
}

fn walk(node: &mut Node, trail: &mut Trail, expander: &Expander<'_>, problems: &mut Problems) {
    match &mut node.value {
        Value::List(nodes) => {
            for (n, node) in nodes.iter_mut().enumerate() {
                let back = trail.position(n);
                walk(node, trail, expander, problems);
                trail.back(back);
            }
        }
        Value::Map(entries) => {
            for entry in entries {
                let back = trail.key(&entry.key);
                walk(&mut entry.value, trail, expander, problems);
                trail.back(back);
            }
        }
        Value::Text { text, loose } if text.contains("${") => match expander.text(text) {
            Ok(expanded) => {
                *loose = expanded != *text;
                *text = expanded;
            }
            Err(problem) => {
                problems.push(Problem { line: node.line, path: trail.as_str().to_owned(), ..problem });
            }
        },
        _ => {}
    }
}

impl Expander<'_> {
    fn text(&self, text: &str) -> Result<String, Problem> {
        let mut expanded = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let is_reference = after.starts_with("env:") || after.starts_with("file:");
            if let Some(before) = before.strip_suffix('$').filter(|_| is_reference) {
                expanded.push_str(before);
                expanded.push_str("${");
                rest = after;
                continue;
            }
            expanded.push_str(before);
            if !is_reference {
                expanded.push_str("${");
                rest = after;
                continue;
            }
            let Some((reference, after)) = after.split_once('}') else {
                return Err(Problem::new("", "a reference has no end").remedy("close it with `}`"));
            };
            expanded.push_str(&self.value(reference)?);
            rest = after;
        }
        expanded.push_str(rest);
        Ok(expanded)
    }

    fn value(&self, reference: &str) -> Result<String, Problem> {
        self.references.permit(reference)?;
        if let Some(name) = reference.strip_prefix("env:") {
            return self.references.env(name).ok_or_else(|| {
                Problem::new("", format!("the environment variable {name} is not set"))
                    .remedy(format!("set {name}, or write the value itself"))
            });
        }
        let path = self.folder.join(reference.strip_prefix("file:").unwrap_or(reference));
        match self.references.file(&path) {
            // Editors and `echo` end a file with a line break that nobody means.
            Ok(text) => Ok(text.trim_end_matches(['\r', '\n']).to_owned()),
            Err(error) => Err(Problem::new("", format!("{} can't be read: {error}", path.display()))
                .remedy("relative paths start at the folder of this file")),
        }
    }
}
