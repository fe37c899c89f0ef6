//! Why there is no import at all.

/// The text is not of its format, breaks its grammar, or goes beyond a limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{what}", place(file, *line))]
pub struct Failure {
    file: String,
    line: u32,
    what: String,
}

impl Failure {
    pub(crate) fn new(file: &str, line: u32, what: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, what: what.into() }
    }
}

fn place(file: &str, line: u32) -> String {
    match line {
        0 => format!("{file}: "),
        line => format!("{file}:{line}: "),
    }
}
