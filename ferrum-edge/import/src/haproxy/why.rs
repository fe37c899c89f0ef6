//! Why something is not converted.

use std::fmt;

/// Why a condition, or a whole rule, is not converted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Why {
    /// It asks for something that the gateway can't ask for.
    NotConverted,
    /// It asks for what this rule before it changes.
    Changed(String),
    /// It needs a variable of HAProxy's environment.
    Environment(String),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConverted => f.write_str("its condition can't be converted"),
            Self::Changed(rule) => write!(f, "its condition asks for what `{rule}` before it changes"),
            Self::Environment(name) => {
                write!(f, "it needs the environment variable `{name}`, whose value is not in the file")
            }
        }
    }
}

/// Why a rule about a header is left out: its condition, or what it says.
pub(super) fn no_counterpart(why: Option<Why>) -> String {
    why.map_or_else(|| "its value has no counterpart".to_owned(), |why| why.to_string())
}
