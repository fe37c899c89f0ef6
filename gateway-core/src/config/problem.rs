//! What is wrong with a configuration, said so that the person who wrote it can mend it.

use std::fmt;

/// One thing that is wrong, with the place and, where we know it, the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file, or a name such as `admin api`; empty when the caller adds it.
    pub file: String,
    /// 1-based line in the file; 0 when unknown.
    pub line: u32,
    /// The place inside the document in the reader's words, e.g. `proxies[2].listen_path`.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub remedy: Option<String>,
}

impl Problem {
    /// A problem at `path`, its line to be filled in by whoever knows the document.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { file: String::new(), line: 0, path: path.into(), message: message.into(), remedy: None }
    }

    /// Adds what to write instead.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            write!(f, "{}:", self.file)?;
        }
        if self.line > 0 {
            write!(f, "{}:", self.line)?;
        }
        if !self.file.is_empty() || self.line > 0 {
            f.write_str(" ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        match &self.remedy {
            Some(remedy) => write!(f, " ({remedy})"),
            None => Ok(()),
        }
    }
}

/// Every problem found in one pass, so that a file is mended in one go.
#[derive(Debug, Clone, Default, PartialEq, Eq, thiserror::Error)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// A list of one.
    pub fn one(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self(vec![Problem::new(path, message)])
    }

    /// Adds a problem and hands it back, so that a remedy can follow.
    pub fn add(&mut self, path: impl Into<String>, message: impl Into<String>) -> &mut Problem {
        self.0.push(Problem::new(path, message));
        let last = self.0.len() - 1;
        &mut self.0[last]
    }

    /// True when nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `Ok(value)` when nothing is wrong.
    ///
    /// # Errors
    /// The problems themselves, when there are any.
    pub fn into_result<T>(self, value: T) -> Result<T, Self> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, problem) in self.0.iter().enumerate() {
            if n > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}
