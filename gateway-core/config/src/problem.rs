//! What is wrong with a configuration, said so that the person who wrote it can mend it.

use std::borrow::Cow;
use std::fmt;

use crate::credential_names::redact_text;

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
    /// How many problems beyond [`MAX_PROBLEMS`] this one stands for; 0 for a problem of its own.
    pub more: usize,
    /// Whether it is a mistake that a configuration is rejected for. Other problems of a proxy's plugins close that proxy alone.
    pub rejects: bool,
}

/// Problems kept of one configuration; of those beyond it only the number is kept.
pub const MAX_PROBLEMS: usize = 1000;
/// Bytes kept of a problem's path and of its message.
const MAX_TEXT_BYTES: usize = 2048;

impl Problem {
    /// A problem at `path`, its line to be filled in by whoever knows the document.
    pub fn new(path: impl Into<String>, message: impl fmt::Display) -> Self {
        Self {
            file: String::new(),
            line: 0,
            path: path.into(),
            message: message.to_string(),
            remedy: None,
            more: 0,
            rejects: false,
        }
    }

    /// Where it is: file, line and path, as far as they are known.
    pub fn place(&self) -> String {
        let line = if self.line > 0 { self.line.to_string() } else { String::new() };
        let parts = [&self.file, &line].into_iter().filter(|part| !part.is_empty());
        let file = parts.map(String::as_str).collect::<Vec<_>>().join(":");
        let parts = [&file, &self.path].into_iter().filter(|part| !part.is_empty());
        parts.map(String::as_str).collect::<Vec<_>>().join(": ")
    }

    /// What to write instead; what stands for many problems has none.
    pub fn shown_remedy(&self) -> Option<&str> {
        self.remedy.as_deref().filter(|_| self.more == 0)
    }

    /// The same problem of something that stands at `at`.
    #[must_use]
    pub fn within(mut self, at: &str) -> Self {
        self.path = match (at, self.path.as_str()) {
            ("", _) => return self,
            (at, "") => at.to_owned(),
            (at, path) if path.starts_with('[') => format!("{at}{path}"),
            (at, path) => format!("{at}.{path}"),
        };
        self
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
        let place = self.place();
        if !place.is_empty() {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.message)?;
        match self.shown_remedy() {
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
    pub fn one(path: impl Into<String>, message: impl fmt::Display) -> Self {
        let mut problems = Self::default();
        problems.add(path, message);
        problems
    }

    /// Adds a problem and hands it back, so that a remedy can follow.
    pub fn add(&mut self, path: impl Into<String>, message: impl fmt::Display) -> &mut Problem {
        self.push(Problem::new(path, message))
    }

    /// Adds a problem and hands it back; beyond [`MAX_PROBLEMS`] it is only counted.
    pub fn push(&mut self, mut problem: Problem) -> &mut Problem {
        let weight = problem.more.max(1);
        let counted = match self.0.last() {
            Some(last) if last.more > 0 => Some(last.more),
            _ if self.0.len() >= MAX_PROBLEMS => Some(0),
            _ => None,
        };
        if let Some(before) = counted {
            if before > 0 {
                self.0.pop();
            }
            let more = before + weight;
            let plural = if more == 1 { "" } else { "s" };
            problem = Problem { more, ..Problem::new("", format!("and {more} more problem{plural}")) };
        } else {
            if let Cow::Owned(redacted) = redact_text(&problem.message) {
                problem.message = redacted;
            }
            shorten(&mut problem.path, MAX_TEXT_BYTES);
            shorten(&mut problem.message, MAX_TEXT_BYTES);
        }
        self.0.push(problem);
        let last = self.0.len() - 1;
        &mut self.0[last]
    }

    /// Adds several problems.
    pub fn extend(&mut self, more: impl IntoIterator<Item = Problem>) {
        for problem in more {
            self.push(problem);
        }
    }

    /// How many problems there are, also those that are only counted.
    pub fn count(&self) -> usize {
        self.0.iter().map(|problem| problem.more.max(1)).sum()
    }

    /// Whether further problems are only counted.
    pub fn is_full(&self) -> bool {
        self.0.len() >= MAX_PROBLEMS
    }

    /// The same, of a file.
    #[must_use]
    pub fn in_file(mut self, file: &str) -> Self {
        self.0
            .iter_mut()
            .filter(|problem| problem.file.is_empty())
            .for_each(|problem| file.clone_into(&mut problem.file));
        self
    }

    /// What is wrong, without where: for a place that the caller knows better.
    pub fn messages(&self) -> String {
        self.0.iter().map(|problem| problem.message.as_str()).collect::<Vec<_>>().join("; ")
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

/// Cuts a text to about `longest` bytes, behind a whole word where one ends in the second half, and marks the cut with `…`.
pub fn shorten(text: &mut String, longest: usize) {
    if text.len() <= longest {
        return;
    }
    // The white space that ends a word may be the first byte that is left out.
    let next = text.ceil_char_boundary(longest + 1);
    let shown = text.get(..next).unwrap_or_default();
    let word_end = shown.rfind(char::is_whitespace).filter(|end| *end > longest / 2);
    let end = word_end.unwrap_or_else(|| text.floor_char_boundary(longest));
    text.truncate(end);
    text.truncate(text.trim_end().len());
    text.push('…');
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

/// A text that may be a URL, without the user and password in it: what is refused is shown and logged. A password may hold any
/// character where it is written wrong, so that nothing before the last `@` is shown but the scheme.
pub fn without_user(text: &str) -> Cow<'_, str> {
    let Some((before, rest)) = text.rsplit_once('@') else { return Cow::Borrowed(text) };
    let scheme = before.split_once("://").map_or("", |(scheme, _)| scheme);
    let is_scheme = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let (scheme, sign) = if scheme.is_empty() || !is_scheme { ("", "") } else { (scheme, "://") };
    Cow::Owned(format!("{scheme}{sign}REDACTED@{rest}"))
}

/// What is wrong with a value, before its place is known.
#[derive(Debug)]
pub(crate) struct ValueProblem {
    pub(crate) message: String,
    pub(crate) remedy: Option<String>,
}

impl ValueProblem {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), remedy: None }
    }

    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_behind_a_word() {
        for (text, longest, expected) in [
            ("short", 5, "short"),
            ("connection refused by peer", 22, "connection refused by…"),
            ("connection refused by peer", 21, "connection refused by…"),
            ("connection refused by peer", 20, "connection refused…"),
            ("a refused-connection-without-a-space", 20, "a refused-connection…"),
            ("ääää", 3, "ä…"),
        ] {
            let mut cut = text.to_owned();
            shorten(&mut cut, longest);
            assert_eq!(cut, expected, "{text} to {longest}");
        }
    }

    #[test]
    fn problems_beyond_the_limit_are_counted_and_not_kept() {
        let mut problems = Problems::default();
        for n in 0..MAX_PROBLEMS + 5 {
            problems.add(format!("proxies[{n}]"), "wrong").remedy = Some("mend it".to_owned());
        }
        assert_eq!((problems.0.len(), problems.count()), (MAX_PROBLEMS + 1, MAX_PROBLEMS + 5));
        assert!(problems.to_string().ends_with("wrong (mend it)\nand 5 more problems"), "{problems}");
        let mut all = Problems::one("a", "one");
        all.extend(problems.0);
        assert_eq!((all.0.len(), all.count()), (MAX_PROBLEMS + 1, MAX_PROBLEMS + 6));
    }

    #[test]
    fn a_url_is_shown_without_its_user() {
        for (url, shown) in [
            ("https://u:SECRET@x/a?b", "https://REDACTED@x/a?b"),
            ("redis+tls://SECRET@x", "redis+tls://REDACTED@x"),
            ("https://u:SEC@R/ET?@x/", "https://REDACTED@x/"),
            ("u:SECRET@x", "REDACTED@x"),
            ("u:SEC://RET@x", "REDACTED@x"),
            ("https://x/", "https://x/"),
            ("", ""),
        ] {
            assert_eq!(without_user(url), shown);
        }
    }

    #[test]
    fn long_texts_are_cut() {
        let problems = Problems::one("", "é".repeat(10_000));
        assert!(problems.0[0].message.len() < 2100);
    }
}
