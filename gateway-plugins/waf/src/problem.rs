//! What is wrong with rule files, with file and line.

use std::fmt;
use std::sync::Arc;

/// Where something stands in the rule files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleLocation {
    /// The file's name.
    pub file: Arc<str>,
    /// The line, beginning at 1.
    pub line: u32,
}

impl fmt::Display for RuleLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// How much a [`Problem`] matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Has no effect here: another setting of the gateway decides.
    Note,
    /// Can't be enforced: the rules are not used.
    Error,
}

/// Something in the rule files that can't be used as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where it is.
    pub place: RuleLocation,
    /// How much it matters.
    pub severity: Severity,
    /// What is wrong, and what would be right where that is known.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.severity {
            Severity::Note => "note: ",
            Severity::Error => "",
        };
        write!(f, "{}: {word}{}", self.place, self.message)
    }
}

/// Problems as they are found.
#[derive(Debug, Default)]
pub(crate) struct Problems(pub(crate) Vec<Problem>);

impl Problems {
    pub(crate) fn error(&mut self, place: &RuleLocation, message: impl fmt::Display) {
        self.0.push(Problem {
            place: place.clone(),
            severity: Severity::Error,
            message: message.to_string(),
        });
    }

    pub(crate) fn note(&mut self, place: &RuleLocation, message: impl fmt::Display) {
        self.0.push(Problem { place: place.clone(), severity: Severity::Note, message: message.to_string() });
    }
}
