//! What is asked of a value, as nginx compares it.

use std::cell::RefCell;
use std::collections::HashMap;

use regex::{Regex, RegexBuilder};

use crate::text;

/// What is asked of a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Test<'t> {
    /// It is this; true where case does not matter.
    Same(&'t str, bool),
    /// A regex is found in it; true where case does not matter.
    Regex(&'t str, bool),
    /// It is neither empty nor `0`.
    True,
}

impl Test<'_> {
    /// Whether a plain text passes.
    pub(super) fn fits_text(&self, text: &str) -> bool {
        self.fits(text)
    }

    pub(super) fn fits(&self, text: &str) -> bool {
        match self {
            Self::Same(wanted, true) => text.eq_ignore_ascii_case(wanted),
            Self::Same(wanted, false) => text == *wanted,
            Self::Regex(regex, ignores) => {
                compiled(regex, *ignores).is_some_and(|regex| regex.is_match(text))
            }
            Self::True => !matches!(text, "" | "0"),
        }
    }
}

/// Regexes that are kept compiled: servers ask for the same ones, again and again.
const MAX_KEPT: usize = 200;

thread_local! {
    /// Those where case matters, and those where it does not.
    static KEPT: RefCell<[HashMap<String, Option<Regex>>; 2]> = RefCell::default();
}

/// A regex as it is looked for in a value.
fn compiled(regex: &str, ignores_case: bool) -> Option<Regex> {
    KEPT.with_borrow_mut(|kept| {
        let kept = &mut kept[usize::from(ignores_case)];
        if let Some(known) = kept.get(regex) {
            return known.clone();
        }
        let made = RegexBuilder::new(regex).case_insensitive(ignores_case).size_limit(1 << 20).build().ok();
        if kept.len() >= MAX_KEPT {
            kept.clear();
        }
        kept.insert(regex.to_owned(), made.clone());
        made
    })
}

/// A regex over a whole value, where it is one here too.
pub(super) fn flagged(regex: &str, ignores_case: bool) -> Option<String> {
    let made = format!("{}{}", if ignores_case { "(?i)" } else { "" }, text::anywhere(regex));
    text::is_regex(&made).then_some(made)
}

/// The words of the condition of an `if`, without its parentheses.
pub(super) fn words(arguments: &[String]) -> Option<Vec<&str>> {
    let (first, last) = (arguments.first()?.strip_prefix('(')?, arguments.last()?.strip_suffix(')')?);
    let mut made: Vec<&str> = match arguments {
        [_] => vec![first.strip_suffix(')')?],
        [_, inner @ .., _] => {
            std::iter::once(first).chain(inner.iter().map(String::as_str)).chain([last]).collect()
        }
        [] => Vec::new(),
    };
    // Parentheses may stand by themselves; an empty word in between is one.
    if made.len() > 1 && made.last().is_some_and(|word| word.is_empty()) {
        made.pop();
    }
    if made.first().is_some_and(|word| word.is_empty()) {
        made.remove(0);
    }
    Some(made)
}
