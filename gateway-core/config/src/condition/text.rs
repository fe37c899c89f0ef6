//! One value against what it may be.

use regex::bytes::{Regex, RegexBuilder};

use super::written::{NamedText, TextMatch};
use crate::pattern::regexes::{anchored, not_a_regex};

/// Bytes a compiled regex may take, so that one pattern can't eat the machine.
const MAX_REGEX_BYTES: usize = 1 << 20;

/// What a value may be.
#[derive(Debug, Clone, PartialEq)]
pub struct Text {
    rule: Rule,
    ignore_case: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Rule {
    Present,
    Absent,
    OneOf(Box<[Box<[u8]>]>),
    Prefix(Box<[u8]>),
    Suffix(Box<[u8]>),
    Contains(Box<[u8]>),
    Regex(Pattern),
}

/// A regex that equals another of the same text.
#[derive(Debug, Clone)]
struct Pattern(Regex);

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

/// The keys of a written match, of which it needs one.
pub(crate) const WAYS_TO_MATCH: &str = "one of: exact, one_of, prefix, suffix, contains, regex, present";

/// What is wrong with a written match.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TextError {
    #[error("this says nothing about the value")]
    Empty,
    #[error("this names more than one way to match")]
    Several,
    #[error("there is no text to compare")]
    NothingToCompare,
    #[error("{}", not_a_regex(.pattern, .error))]
    Regex { pattern: String, error: regex::Error },
}

impl TextError {
    /// The key inside the written map; empty for the map itself.
    pub(crate) fn key(&self) -> &'static str {
        match self {
            Self::Empty | Self::Several => "",
            Self::NothingToCompare => "ignore_case",
            Self::Regex { .. } => "regex",
        }
    }

    /// What to do about it.
    pub(crate) fn remedy(&self) -> &'static str {
        match self {
            Self::Empty | Self::Several => WAYS_TO_MATCH,
            Self::NothingToCompare => "remove it",
            Self::Regex { .. } => "see docs.rs/regex for the syntax",
        }
    }
}

impl Text {
    /// From what is written.
    ///
    /// # Errors
    /// What is wrong with what is written.
    pub(crate) fn compile(written: &TextMatch) -> Result<Self, TextError> {
        match written {
            TextMatch::Exact(text) => Ok(Self { rule: one(text), ignore_case: false }),
            TextMatch::Named(named) => Self::compile_named(named),
        }
    }

    fn compile_named(named: &NamedText) -> Result<Self, TextError> {
        let ignore_case = named.ignore_case.unwrap_or(false);
        let bytes = |text: &String| Box::from(text.as_bytes());
        let mut rules = Vec::new();
        rules.extend(named.exact.as_ref().map(|text| one(text)));
        rules.extend(named.one_of.as_ref().map(|all| Rule::OneOf(all.iter().map(bytes).collect())));
        rules.extend(named.prefix.as_ref().map(|text| Rule::Prefix(bytes(text))));
        rules.extend(named.suffix.as_ref().map(|text| Rule::Suffix(bytes(text))));
        rules.extend(named.contains.as_ref().map(|text| Rule::Contains(bytes(text))));
        rules.extend(named.present.map(|there| if there { Rule::Present } else { Rule::Absent }));
        if let Some(pattern) = &named.regex {
            rules.push(Rule::Regex(Pattern(regex(pattern, ignore_case)?)));
        }
        let mut rules = rules.into_iter();
        match (rules.next(), rules.next()) {
            (Some(rule), None) if ignore_case && matches!(rule, Rule::Present | Rule::Absent) => {
                Err(TextError::NothingToCompare)
            }
            (Some(rule), None) => Ok(Self { rule, ignore_case }),
            (None, _) => Err(TextError::Empty),
            (Some(_), Some(_)) => Err(TextError::Several),
        }
    }

    /// Whether a value, or the lack of one, is meant.
    pub fn fits(&self, value: Option<&[u8]>) -> bool {
        let Some(value) = value else { return self.rule == Rule::Absent };
        match &self.rule {
            Rule::Present => true,
            Rule::Absent => false,
            Rule::OneOf(all) => all.iter().any(|one| self.same(one, value)),
            Rule::Prefix(start) => value.get(..start.len()).is_some_and(|cut| self.same(start, cut)),
            Rule::Suffix(end) => {
                let at = value.len().checked_sub(end.len());
                at.and_then(|at| value.get(at..)).is_some_and(|cut| self.same(end, cut))
            }
            Rule::Contains(part) if !self.ignore_case => memchr::memmem::find(value, part).is_some(),
            Rule::Contains(part) => value.windows(part.len()).any(|cut| self.same(part, cut)),
            Rule::Regex(Pattern(regex)) => matches(regex, value),
        }
    }

    fn same(&self, a: &[u8], b: &[u8]) -> bool {
        if self.ignore_case { a.eq_ignore_ascii_case(b) } else { a == b }
    }

    /// Whether no value can fit both, as far as that is plain to see.
    pub(super) fn excludes(&self, other: &Self) -> bool {
        match (&self.rule, &other.rule) {
            (Rule::Absent, Rule::Absent) => false,
            (Rule::Absent, _) | (_, Rule::Absent) => true,
            (Rule::OneOf(all), _) => !all.iter().any(|value| other.fits_somehow(value, self.ignore_case)),
            (_, Rule::OneOf(all)) => !all.iter().any(|value| self.fits_somehow(value, other.ignore_case)),
            (Rule::Prefix(a), Rule::Prefix(b)) => {
                let shared = a.len().min(b.len());
                !a[..shared].eq_ignore_ascii_case(&b[..shared])
            }
            _ => false,
        }
    }

    /// Whether this may fit `value` in one of the spellings that `any_case` stands for.
    fn fits_somehow(&self, value: &[u8], any_case: bool) -> bool {
        if !any_case {
            return self.fits(Some(value));
        }
        match &self.rule {
            Rule::OneOf(all) => all.iter().any(|one| one.eq_ignore_ascii_case(value)),
            // A pattern that minds the case may fit some spelling: whether one is too much to find out.
            _ => true,
        }
    }
}

fn one(text: &str) -> Rule {
    Rule::OneOf([Box::from(text.as_bytes())].into())
}

/// Whether a regex fits a value. A byte that is no UTF-8 counts as the character U+FFFD, so that one such byte in a value
/// does not hide the rest of it from `.*` or `[^/]`.
fn matches(regex: &Regex, value: &[u8]) -> bool {
    let is_it = regex.is_match(value);
    is_it || std::str::from_utf8(value).is_err() && regex.is_match(String::from_utf8_lossy(value).as_bytes())
}

/// A regex over a whole value; `.` is any character, a line feed too.
fn regex(pattern: &str, ignore_case: bool) -> Result<Regex, TextError> {
    let mut builder = RegexBuilder::new(&anchored(pattern));
    builder.size_limit(MAX_REGEX_BYTES).case_insensitive(ignore_case).dot_matches_new_line(true);
    builder.build().map_err(|error| TextError::Regex { pattern: pattern.to_owned(), error })
}
