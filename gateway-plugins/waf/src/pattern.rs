//! Regular expressions as the rule sets write them: for PCRE, and meant for bytes.

pub(crate) mod literals;

use regex::bytes::{Regex, RegexBuilder};

/// Memory that one compiled pattern may take.
const SIZE_LIMIT: usize = 8 << 20;

/// A pattern with what its matches must contain.
pub(crate) struct Pattern {
    pub(crate) regex: Regex,
    pub(crate) needs: literals::Needs,
}

/// Compiles a pattern. It sees bytes, `.` matches line ends, `^` and `$` are the value's ends.
pub(crate) fn compile(pattern: &str) -> Result<Pattern, PatternError> {
    let text = rewritten(pattern);
    let regex = RegexBuilder::new(&text)
        .unicode(false)
        .dot_matches_new_line(true)
        .size_limit(SIZE_LIMIT)
        .dfa_size_limit(SIZE_LIMIT)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(limit) => PatternError::TooLarge(limit),
            other => PatternError::Unusable(other),
        })?;
    Ok(Pattern { regex, needs: literals::needs(&text) })
}

/// Why a pattern can't be compiled.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PatternError {
    /// It needs more memory than this many bytes.
    #[error("the pattern takes more than {0} bytes")]
    TooLarge(usize),
    /// Its syntax is wrong, or it needs more than linear time.
    #[error("the pattern can't be used: {}", last_line(&.0.to_string()))]
    Unusable(#[source] regex::Error),
}

/// The reason, without the drawing that points at it.
fn last_line(text: &str) -> &str {
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or(text).trim_start_matches("error: ")
}

/// What PCRE reads otherwise than the `regex` crate, in the crate's words.
fn rewritten(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut rest = pattern.chars().peekable();
    // How many bytes of `out` the class began with, so that `]` as its first member is not its end.
    let mut class: Option<usize> = None;
    while let Some(c) = rest.next() {
        match (c, class) {
            ('\\', _) => escape(&mut rest, &mut out),
            ('[', None) => {
                out.push('[');
                out.extend(rest.next_if_eq(&'^'));
                if rest.next_if_eq(&']').is_some() {
                    out.push_str("\\]");
                }
                class = Some(out.len());
            }
            // `[:alpha:]` is a class of its own; any other bracket in a class is a bracket.
            ('[', Some(_)) if rest.peek() == Some(&':') => {
                out.push('[');
                for c in rest.by_ref() {
                    out.push(c);
                    if c == ']' {
                        break;
                    }
                }
            }
            ('[', Some(_)) => out.push_str("\\["),
            (']', Some(_)) => {
                out.push(']');
                class = None;
            }
            ('&' | '~', Some(_)) => {
                out.push('\\');
                out.push(c);
            }
            // `a--b` is a difference of sets in the crate, and a range or a hyphen in PCRE.
            ('-', Some(from)) if out.len() > from && rest.next_if_eq(&'-').is_some() => out.push_str("-\\-"),
            _ => out.push(c),
        }
    }
    out
}

fn escape(rest: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut String) {
    match rest.next() {
        None => out.push('\\'),
        // Word boundaries in the crate, plain characters in PCRE.
        Some(c @ ('<' | '>')) => out.push(c),
        Some('0') => out.push_str("\\x00"),
        Some('x') if rest.peek() == Some(&'{') => {
            let braced: String = rest.by_ref().skip(1).take_while(|c| *c != '}').collect();
            if braced.len() <= 2 {
                out.push_str(&format!("\\x{braced:0>2}"));
            } else {
                out.push_str(&format!("\\x{{{braced}}}"));
            }
        }
        Some('h') => out.push_str("[\\t ]"),
        Some('Z') => out.push_str("\\z"),
        Some('e') => out.push_str("\\x1b"),
        Some(c) => {
            out.push('\\');
            out.push(c);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn matches(pattern: &str, text: &[u8]) -> bool {
        compile(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}")).regex.is_match(text)
    }

    #[test]
    fn patterns_see_bytes() {
        assert!(matches(r"\x{bc}script\x{be}", b"\xbcscript\xbe"));
        assert!(matches(r"[\x{80}-\x{ff}]", b"\xff"));
        assert!(matches(r"^.$", b"\xff"));
        assert!(matches(r"a.b", b"a\nb"));
        assert!(!matches(r"^b$", b"a\nb"));
    }

    #[test]
    fn what_pcre_reads_otherwise_is_rewritten() {
        assert!(matches(r"[[a&&b~~c]", b"["));
        assert!(matches(r"[[a&&b]", b"&"));
        assert!(matches(r"[]a]", b"]"));
        assert!(matches(r"[^]a]x", b"bx"));
        assert!(matches(r"\<script\>", b"a<script>"));
        assert!(matches(r"a\0b", b"a\0b"));
        assert!(matches(r"[[:alpha:]]+1", b"ab1"));
        assert!(matches(r"[+--]x", b",x"));
    }

    #[test]
    fn what_would_take_more_than_linear_time_is_refused() {
        for pattern in [r"(a)\1", r"(?=a)b", r"(?<!a)b", r"(a", r"a{1000}{1000}{1000}"] {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
    }
}
