//! Texts of several variables, such as `$host$uri`, that are compared with a text: each way to divide it among them.

use super::asked::Test;
use super::values::{MAX_PARTS, Variables};
use super::variable_names::{ValuePiece, pieces};
use crate::cond::Cond;

/// Pieces that a text may have, and characters of what it is compared with: a long text can be divided in many ways.
const MAX_PIECES: usize = 7;
const MAX_CHARS: usize = 200;

impl Variables {
    /// When a text of several variables passes a test; `None` when it can't be said here.
    pub(super) fn joined_holds(&self, source: &str, test: &Test<'_>, depth: usize) -> Option<Cond> {
        let pieces = pieces(source);
        if pieces.len() > MAX_PIECES {
            return None;
        }
        match test {
            Test::Same(wanted, ignores) => self.divided(&pieces, wanted, *ignores, depth),
            Test::True => {
                let empty = self.divided(&pieces, "", false, depth)?;
                Some(empty.or(self.divided(&pieces, "0", false, depth)?).negate())
            }
            Test::Regex(..) => None,
        }
    }

    fn divided(
        &self,
        pieces: &[ValuePiece<'_>],
        wanted: &str,
        ignores_case: bool,
        depth: usize,
    ) -> Option<Cond> {
        let Some((first, rest)) = pieces.split_first() else {
            return Some(if wanted.is_empty() { Cond::Always } else { Cond::Never });
        };
        let name = match first {
            ValuePiece::Text(text) => {
                let Some((start, after)) = wanted.split_at_checked(text.len()) else {
                    return Some(Cond::Never);
                };
                return match Test::Same(text, ignores_case).fits(start) {
                    true => self.divided(rest, after, ignores_case, depth),
                    false => Some(Cond::Never),
                };
            }
            ValuePiece::Variable(name) => *name,
        };
        if wanted.len() > MAX_CHARS {
            return None;
        }
        let is_own = self.is_of_request(name);
        let ends = wanted.char_indices().map(|(at, _)| at).chain([wanted.len()]);
        let mut made = Cond::Never;
        for (here, after) in ends.map(|end| wanted.split_at(end)) {
            if is_own && !may_be(name, here) {
                continue;
            }
            let after = self.divided(rest, after, ignores_case, depth)?;
            if after == Cond::Never {
                continue;
            }
            let own = self.holds(&format!("${{{name}}}"), &Test::Same(here, ignores_case), depth + 1)?;
            made = made.or(own.and(after));
            if made.parts(MAX_PARTS) > MAX_PARTS {
                return None;
            }
        }
        Some(made)
    }
}

/// Whether a variable of nginx's own may have this value.
fn may_be(name: &str, value: &str) -> bool {
    // An address of IPv6 has brackets and colons.
    let is_of_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '[' | ']' | ':');
    let is_of_method = |c: char| c.is_ascii_alphabetic() || matches!(c, '-' | '_');
    match name {
        "scheme" => value.eq_ignore_ascii_case("http") || value.eq_ignore_ascii_case("https"),
        "https" => value.is_empty() || value.eq_ignore_ascii_case("on"),
        "request_method" => !value.is_empty() && value.chars().all(is_of_method),
        "host" => !value.is_empty() && value.chars().all(is_of_host),
        "uri" | "document_uri" | "request_uri" => value.starts_with('/'),
        "is_args" => value.is_empty() || value == "?",
        _ => true,
    }
}
