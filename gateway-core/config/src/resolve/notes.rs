//! Where an object of a document stands, and what is wrong with it.

use std::fmt;
use std::path::Path;

use crate::problem::{Problem, Problems, ValueProblem};

/// Where an object stands and where its relative paths start.
#[derive(Debug, Clone, Copy)]
pub struct ObjectPlace<'a> {
    /// The object's path in the document, such as `proxies[2]`; its problems' paths begin with it.
    pub at: &'a str,
    /// Relative file paths start here.
    pub folder: &'a Path,
}

/// Notes the problems of one object under its path.
pub(super) struct Notes<'a> {
    pub(super) at: &'a str,
    pub(super) problems: Problems,
}

impl<'a> Notes<'a> {
    pub(super) fn new(at: &'a str) -> Self {
        Self { at, problems: Problems::default() }
    }

    /// A problem with `key` of this object.
    pub(super) fn add(&mut self, key: &str, message: impl fmt::Display) -> &mut Problem {
        let dot = if self.at.is_empty() || key.is_empty() { "" } else { "." };
        self.problems.add(format!("{}{dot}{key}", self.at), message)
    }

    /// The value, or nothing with a problem noted at `key`.
    pub(super) fn value<T>(&mut self, key: &str, result: Result<T, ValueProblem>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(ValueProblem { message, remedy }) => {
                self.add(key, message).remedy = remedy;
                None
            }
        }
    }
}
