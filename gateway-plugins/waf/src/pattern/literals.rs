//! What every match of a pattern must contain, so that most values need not be searched at all.

use std::collections::BTreeSet;

use regex_syntax::hir::{Class, Hir, HirKind};

use crate::bytes::ByteSet;

/// Every match contains one of these, without regard to case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Nothing is known.
    Nothing,
    /// One of these literals in lower case, each of two bytes or more, or one of these bytes.
    OneOf(BTreeSet<Vec<u8>>, ByteSet),
}

/// Strings that one part of a pattern can stand for.
type Strings = BTreeSet<Vec<u8>>;

/// Alternatives that are kept at once.
const MOST: usize = 512;
/// Beyond this length a literal says no more.
const LONGEST: usize = 24;
/// A class of more bytes is not spelled out.
const WIDEST_CLASS: usize = 12;
/// A need for one of more bytes than these says nothing.
const MOST_BYTES: u32 = 80;

/// What is known of a part of a pattern.
struct PatternPart {
    /// Everything it can stand for, where that is little.
    exact: Option<Strings>,
    /// One of these is in each of its matches.
    best: Option<Strings>,
}

/// What every match of this pattern contains.
pub(crate) fn needs(pattern: &str) -> Needs {
    let parsed = regex_syntax::ParserBuilder::new()
        .unicode(false)
        .utf8(false)
        .dot_matches_new_line(true)
        .build()
        .parse(pattern);
    match parsed {
        Ok(hir) => of_strings(part(&hir).any()),
        Err(_) => Needs::Nothing,
    }
}

/// The need for one of these strings.
pub(crate) fn of_words(words: impl Iterator<Item = Vec<u8>>) -> Needs {
    of_strings(Some(words.map(|word| word.to_ascii_lowercase()).collect()))
}

fn of_strings(strings: Option<Strings>) -> Needs {
    let Some(strings) = strings.filter(is_useful) else { return Needs::Nothing };
    let mut bytes = ByteSet::default();
    let mut literals = BTreeSet::new();
    for string in strings {
        match string.as_slice() {
            [byte] => {
                bytes.insert(byte.to_ascii_lowercase());
                bytes.insert(byte.to_ascii_uppercase());
            }
            _ => drop(literals.insert(string)),
        }
    }
    if bytes.len() > MOST_BYTES { Needs::Nothing } else { Needs::OneOf(literals, bytes) }
}

fn is_useful(strings: &Strings) -> bool {
    !strings.is_empty() && strings.iter().all(|string| !string.is_empty())
}

/// How much a set of strings rules out: long ones more than short ones, few more than many.
fn worth(strings: &Strings) -> (usize, usize) {
    if !is_useful(strings) {
        return (0, 0);
    }
    let shortest = strings.iter().map(Vec::len).min().unwrap_or(0);
    // One byte that is a letter rules out next to nothing.
    let plain = strings.iter().filter(|it| it.len() == 1 && it[0].is_ascii_alphanumeric()).count();
    (shortest.min(4) * 2 - usize::from(shortest == 1 && plain > 0), MOST + 1 - strings.len().min(MOST))
}

fn better(a: Option<Strings>, b: Option<Strings>) -> Option<Strings> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if worth(&b) > worth(&a) { b } else { a }),
        (a, b) => a.or(b),
    }
    .filter(is_useful)
}

impl PatternPart {
    fn unknown() -> Self {
        Self { exact: None, best: None }
    }

    fn exactly(strings: Strings) -> Self {
        Self { exact: Some(strings), best: None }
    }

    /// The best that is known.
    fn any(self) -> Option<Strings> {
        better(self.best, self.exact)
    }
}

fn part(hir: &Hir) -> PatternPart {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => PatternPart::exactly(Strings::from([Vec::new()])),
        HirKind::Literal(literal) => {
            PatternPart::exactly(Strings::from([literal.0.iter().map(u8::to_ascii_lowercase).collect()]))
        }
        HirKind::Class(class) => of_class(class),
        HirKind::Capture(capture) => part(&capture.sub),
        HirKind::Repetition(repetition) => {
            let sub = part(&repetition.sub);
            match (repetition.min, repetition.max) {
                (0, Some(1)) => {
                    let exact = sub.exact.map(|mut exact| {
                        exact.insert(Vec::new());
                        exact
                    });
                    PatternPart { exact, best: None }
                }
                (0, _) => PatternPart::unknown(),
                (1, Some(1)) => sub,
                _ => PatternPart { exact: None, best: sub.any() },
            }
        }
        HirKind::Concat(parts) => of_row(parts),
        HirKind::Alternation(parts) => of_choice(parts),
    }
}

fn of_class(class: &Class) -> PatternPart {
    let mut bytes = Strings::new();
    let mut count = 0;
    match class {
        Class::Bytes(class) => {
            for range in class.ranges() {
                count += usize::from(range.end() - range.start()) + 1;
                if count > 256 - WIDEST_CLASS {
                    return PatternPart::unknown();
                }
                bytes.extend((range.start()..=range.end()).map(|byte| vec![byte.to_ascii_lowercase()]));
            }
        }
        Class::Unicode(class) => {
            for range in class.ranges() {
                let (Ok(from), Ok(to)) = (u8::try_from(range.start()), u8::try_from(range.end())) else {
                    return PatternPart::unknown();
                };
                if !to.is_ascii() {
                    return PatternPart::unknown();
                }
                bytes.extend((from..=to).map(|byte| vec![byte.to_ascii_lowercase()]));
            }
        }
    }
    if bytes.len() <= WIDEST_CLASS {
        return PatternPart::exactly(bytes);
    }
    PatternPart { exact: None, best: (bytes.len() <= MOST_BYTES as usize).then_some(bytes) }
}

/// One part after the other: what must be in any of them must be in the whole.
fn of_row(parts: &[Hir]) -> PatternPart {
    let mut best = None;
    let mut open = Some(Strings::from([Vec::new()]));
    let mut is_exact = true;
    for hir in parts {
        let next = part(hir);
        let joined = match (&open, &next.exact) {
            (Some(open), Some(exact)) => joined(open, exact),
            _ => None,
        };
        if let Some(joined) = joined {
            open = Some(joined);
            continue;
        }
        is_exact = false;
        best = better(best, open.take());
        best = better(best, next.best);
        // What follows may continue this part.
        open = next.exact.or_else(|| Some(Strings::from([Vec::new()])));
    }
    if is_exact {
        return PatternPart { exact: open, best: None };
    }
    PatternPart { exact: None, best: better(best, open) }
}

fn joined(open: &Strings, exact: &Strings) -> Option<Strings> {
    if open.len() * exact.len() > MOST || open.iter().any(|it| it.len() >= LONGEST) {
        return None;
    }
    Some(open.iter().flat_map(|a| exact.iter().map(move |b| [a.as_slice(), b].concat())).collect())
}

/// One part or another: each must have something.
fn of_choice(parts: &[Hir]) -> PatternPart {
    let parts: Vec<PatternPart> = parts.iter().map(part).collect();
    let exact = parts.iter().try_fold(Strings::new(), |mut all, part| {
        all.extend(part.exact.as_ref()?.iter().cloned());
        (all.len() <= MOST).then_some(all)
    });
    if exact.is_some() {
        return PatternPart { exact, best: None };
    }
    let mut all = Strings::new();
    for part in parts {
        match part.any() {
            Some(strings) => all.extend(strings),
            None => return PatternPart::unknown(),
        }
        if all.len() > MOST * 4 {
            return PatternPart::unknown();
        }
    }
    PatternPart { exact: None, best: Some(all) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn literals(pattern: &str) -> Vec<String> {
        match needs(pattern) {
            Needs::Nothing => vec![],
            Needs::OneOf(literals, bytes) => {
                let text = |it: &Vec<u8>| String::from_utf8_lossy(it).into_owned();
                literals.iter().map(text).chain(bytes.iter().map(|b| text(&vec![b]))).collect()
            }
        }
    }

    #[test]
    fn the_longest_needed_literal_is_found() {
        assert_eq!(literals(r"(?i)un[\s\x0b]+select"), ["select"]);
        assert_eq!(literals(r"(?i)\b(?:abc|de[fg]h)\s*\("), ["abc", "defh", "degh"]);
        assert_eq!(literals(r"a?b?c*"), Vec::<String>::new());
        assert_eq!(literals(r"[^a]+;*[<]"), ["<"]);
        assert_eq!(literals(r"x(?:yz)?1"), ["x1", "xyz1"]);
        assert_eq!(literals(r"(?:foo)+.*ba"), ["foo"]);
        assert_eq!(literals(r"foo|.*"), Vec::<String>::new());
    }
}
