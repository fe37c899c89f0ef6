//! The operators: what is asked of a value.

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, MatchKind};
use ipnet::IpNet;
use libinjectionrs::{SqliFlags, XssDetector};
use regex::bytes::Regex;

use crate::bytes::{ByteSet, number};
use crate::pattern::literals::{Needs, of_words};
use crate::pattern::{self, PatternError};
use crate::transform;

/// An operator with its argument, ready to use.
pub(crate) enum Operator {
    Always,
    Pattern(Regex),
    /// `@pm`, `@pmFromFile`: any of these words, in any case.
    Words(AhoCorasick),
    /// A comparison with a text or a number.
    Compare(Comparison, Vec<u8>),
    /// Only these bytes; matches a value that has another.
    Bytes(ByteSet),
    Utf8,
    UrlEncoding,
    Addresses(Vec<IpNet>),
    Sqli(Regex),
    Xss,
}

/// Comparisons, whose argument may also be known only while a request runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Contains,
    ContainsWord,
    BeginsWith,
    EndsWith,
    Same,
    Within,
    Equal,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
}

impl Comparison {
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "contains" | "strmatch" => Self::Contains,
            "containsword" => Self::ContainsWord,
            "beginswith" => Self::BeginsWith,
            "endswith" => Self::EndsWith,
            "streq" => Self::Same,
            "within" => Self::Within,
            "eq" => Self::Equal,
            "gt" => Self::Greater,
            "ge" => Self::GreaterOrEqual,
            "lt" => Self::Less,
            "le" => Self::LessOrEqual,
            _ => return None,
        })
    }

    pub(crate) fn is_numeric(self) -> bool {
        matches!(self, Self::Equal | Self::Greater | Self::GreaterOrEqual | Self::Less | Self::LessOrEqual)
    }

    /// Whether the value is so in relation to the argument.
    pub(crate) fn holds(self, value: &[u8], argument: &[u8]) -> bool {
        match self {
            Self::Contains => memchr::memmem::find(value, argument).is_some(),
            Self::ContainsWord => contains_word(value, argument),
            Self::BeginsWith => value.starts_with(argument),
            Self::EndsWith => value.ends_with(argument),
            Self::Same => value == argument,
            Self::Within => value.is_empty() || memchr::memmem::find(argument, value).is_some(),
            Self::Equal => number(value) == number(argument),
            Self::Greater => number(value) > number(argument),
            Self::GreaterOrEqual => number(value) >= number(argument),
            Self::Less => number(value) < number(argument),
            Self::LessOrEqual => number(value) <= number(argument),
        }
    }
}

fn contains_word(value: &[u8], word: &[u8]) -> bool {
    let is_word = |byte: Option<&u8>| byte.is_some_and(|it| it.is_ascii_alphanumeric() || *it == b'_');
    memchr::memmem::find_iter(value, word).any(|at| {
        let before = at.checked_sub(1).and_then(|at| value.get(at));
        !is_word(before) && !is_word(value.get(at + word.len()))
    })
}

/// What an operator found: where, for `capture`.
#[derive(Debug, Default)]
pub(crate) struct Captured {
    /// Whether more than the whole match is wanted.
    pub(crate) groups: bool,
    /// The whole match, then the groups.
    pub(crate) spans: Vec<Option<(usize, usize)>>,
}

/// Why an operator can't use its argument.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArgumentError {
    #[error("there are no words to look for")]
    NoWords,
    #[error("the words can't be used: {0}")]
    Words(#[source] aho_corasick::BuildError),
    #[error("`{0}` is not a range of bytes such as `32-126`")]
    ByteRange(String),
    #[error("`{0}` is not an address or network")]
    Address(String),
    #[error("there are no addresses")]
    NoAddresses,
}

/// What `libinjection` knows of since 2023 and the crate does not yet.
const INTO_FILE: &str = r"(?i)\binto(?:\s|/\*(?:[^*]|\*[^/])*\*/)+(?:out|dump)file\b";

impl Operator {
    pub(crate) fn sqli() -> Result<Self, PatternError> {
        pattern::compile(INTO_FILE).map(|it| Self::Sqli(it.regex))
    }

    /// `@pm` words.
    pub(crate) fn words(words: &[Vec<u8>]) -> Result<Self, ArgumentError> {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).filter(|word| !word.is_empty()).collect();
        if words.is_empty() {
            return Err(ArgumentError::NoWords);
        }
        AhoCorasickBuilder::new()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::LeftmostLongest)
            .build(words)
            .map(Self::Words)
            .map_err(ArgumentError::Words)
    }

    /// `1-255,9`.
    pub(crate) fn byte_range(argument: &str) -> Result<Self, ArgumentError> {
        let mut allowed = ByteSet::default();
        for part in argument.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            match (from.trim().parse::<u8>(), to.trim().parse::<u8>()) {
                (Ok(from), Ok(to)) if from <= to => allowed = allowed.with(ByteSet::range(from, to)),
                _ => return Err(ArgumentError::ByteRange(part.to_owned())),
            }
        }
        Ok(Self::Bytes(allowed))
    }

    /// `127.0.0.1,10.0.0.0/8`.
    pub(crate) fn addresses(argument: &str) -> Result<Self, ArgumentError> {
        let parts = argument.split(',').map(str::trim).filter(|part| !part.is_empty());
        let nets: Result<Vec<IpNet>, ArgumentError> = parts
            .map(|part| {
                let net =
                    part.parse().or_else(|_| part.parse().map(|address: std::net::IpAddr| address.into()));
                net.map_err(|_| ArgumentError::Address(part.to_owned()))
            })
            .collect();
        match nets?.as_slice() {
            [] => Err(ArgumentError::NoAddresses),
            nets => Ok(Self::Addresses(nets.to_vec())),
        }
    }

    /// What a value must contain to match at all.
    pub(crate) fn needs(&self) -> Needs {
        match self {
            Self::Compare(Comparison::Contains | Comparison::ContainsWord, text)
            | Self::Compare(Comparison::BeginsWith | Comparison::EndsWith | Comparison::Same, text)
                if !text.is_empty() =>
            {
                of_words(std::iter::once(text.clone()))
            }
            // One word or number alone is no injection.
            Self::Sqli(_) => Needs::OneOf(Default::default(), not_in_words()),
            // No tag, no comment and no attribute without one of these.
            Self::Xss => Needs::OneOf(Default::default(), ByteSet::of(b"<=")),
            _ => Needs::Nothing,
        }
    }

    /// Whether it costs more than a look at the value's length.
    pub(crate) fn reads_all(&self) -> bool {
        !matches!(self, Self::Always | Self::Addresses(_))
            && !matches!(self, Self::Compare(it, _) if it.is_numeric())
    }

    /// Whether it holds for this value. `bytes` are those that occur in it; `captured` takes what `capture` keeps.
    pub(crate) fn holds(
        &self,
        value: &[u8],
        bytes: &ByteSet,
        captured: Option<&mut Captured>,
        injection_bytes: usize,
    ) -> bool {
        match self {
            Self::Always => true,
            Self::Pattern(regex) => match captured {
                None => regex.is_match(value),
                Some(captured) if captured.groups => pattern_captures(regex, value, captured),
                captured => {
                    let found = regex.find(value).map(|found| (found.start(), found.end()));
                    if found.is_some() {
                        note(captured, found);
                    }
                    found.is_some()
                }
            },
            Self::Words(words) => match words.find(value) {
                None => false,
                Some(found) => {
                    note(captured, Some((found.start(), found.end())));
                    true
                }
            },
            Self::Compare(comparison, argument) => {
                let holds = comparison.holds(value, argument);
                if holds {
                    note(captured, Some((0, value.len())));
                }
                holds
            }
            Self::Bytes(allowed) => !bytes.is_within(allowed),
            Self::Utf8 => !transform::utf8_is_valid(value),
            Self::UrlEncoding => !transform::url_is_valid(value),
            Self::Addresses(nets) => {
                let address =
                    std::str::from_utf8(value).ok().and_then(|it| it.parse::<std::net::IpAddr>().ok());
                address.is_some_and(|address| nets.iter().any(|net| net.contains(&address.to_canonical())))
            }
            Self::Sqli(into_file) => {
                let value = value.get(..injection_bytes).unwrap_or(value);
                let found = sqli(value) || into_file.is_match(value);
                if found {
                    note(captured, Some((0, value.len())));
                }
                found
            }
            Self::Xss => {
                let value = value.get(..injection_bytes).unwrap_or(value);
                XssDetector::new().detect(value).is_injection()
            }
        }
    }
}

fn sqli(value: &[u8]) -> bool {
    libinjectionrs::detect_sqli_with_flags(value, SqliFlags::FLAG_NONE).is_injection()
}

/// Every byte that no word and no number has.
fn not_in_words() -> ByteSet {
    let mut set = ByteSet::default();
    for byte in (0..=255u8).filter(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_') {
        set.insert(byte);
    }
    set
}

fn note(captured: Option<&mut Captured>, whole: Option<(usize, usize)>) {
    if let Some(captured) = captured {
        captured.spans.clear();
        captured.spans.push(whole);
    }
}

/// The groups up to nine, as TX has them.
fn pattern_captures(regex: &Regex, value: &[u8], captured: &mut Captured) -> bool {
    // Most searches find nothing, and that is known sooner without groups.
    if !regex.is_match(value) {
        return false;
    }
    let Some(groups) = regex.captures(value) else { return false };
    captured.spans.clear();
    captured.spans.extend(groups.iter().take(10).map(|group| group.map(|it| (it.start(), it.end()))));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(operator: &Operator, value: &[u8]) -> bool {
        operator.holds(value, &ByteSet::of(value), None, 8192)
    }

    #[test]
    fn comparisons() {
        for (name, value, argument, expected) in [
            ("contains", "abc", "b", true),
            ("containsword", "a bc", "b", false),
            ("containsword", "a b-c", "b", true),
            ("beginswith", "abc", "ab", true),
            ("endswith", "abc", "bc", true),
            ("streq", "abc", "ab", false),
            ("within", "GET", "GET POST", true),
            ("within", "PUT", "GET POST", false),
            ("eq", "05", "5", true),
            ("gt", "5", "5", false),
            ("ge", "5", "5", true),
            ("lt", "", "1", true),
            ("le", "6", "5", false),
        ] {
            let comparison = Comparison::named(name).unwrap();
            assert_eq!(comparison.holds(value.as_bytes(), argument.as_bytes()), expected, "{name} {value}");
        }
    }

    #[test]
    fn lists_of_things() {
        let words = Operator::words(&[b"Nikto".to_vec(), b"sqlmap".to_vec()]).unwrap();
        assert!(holds(&words, b"x NIKTO y") && !holds(&words, b"curl"));
        let bytes = Operator::byte_range("9, 32-126").unwrap();
        assert!(holds(&bytes, b"a\0") && !holds(&bytes, b"a b"));
        let nets = Operator::addresses("10.0.0.0/8, ::1").unwrap();
        assert!(holds(&nets, b"10.1.2.3") && holds(&nets, b"::1") && !holds(&nets, b"11.0.0.1"));
        assert!(holds(&nets, b"::ffff:10.0.0.1"));
        assert!(Operator::words(&[]).is_err() && Operator::byte_range("300").is_err());
        assert!(Operator::addresses("localhost").is_err() && Operator::addresses("").is_err());
    }

    #[test]
    fn injections() {
        let sqli = Operator::sqli().unwrap();
        assert!(holds(&sqli, b"1' OR '1'='1") && !holds(&sqli, b"a plain sentence, with a comma"));
        assert!(holds(&sqli, b"x into/**/outfile '/tmp/a'"));
        assert!(holds(&Operator::Xss, b"<script>alert(1)</script>") && !holds(&Operator::Xss, b"1 < 2"));
        assert!(!holds(&Operator::Utf8, "é".as_bytes()) && holds(&Operator::Utf8, b"\xc0\xaf"));
        assert!(!holds(&Operator::UrlEncoding, b"%41") && holds(&Operator::UrlEncoding, b"%4"));
    }
}
