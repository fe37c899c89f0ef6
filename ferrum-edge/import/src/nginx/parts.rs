//! A regex taken apart, for values that are pieces of a longer text here.

use regex_syntax::hir::{Class, ClassBytesRange, ClassUnicodeRange, Hir, HirKind, Look, Repetition};

/// Alternatives of one regex.
const MAX_ALTERNATIVES: usize = 64;

/// One alternative of a regex: its parts, and whether it holds at the beginning and at the end of the value only.
#[derive(Debug, Clone)]
pub(super) struct Alternative {
    starts: bool,
    ends: bool,
    parts: Vec<Hir>,
}

/// A text that is `left`, one character, and `right`.
pub(super) struct Halves {
    pub(super) left: String,
    pub(super) right: String,
}

/// The alternatives of an unanchored regex; `None` where they can't be told apart. Alternatives within one that may have the
/// character at which the value is split are told apart as well.
pub(super) fn alternatives(regex: &str, ignores_case: bool, split: Option<char>) -> Option<Vec<Alternative>> {
    let parsed =
        regex_syntax::ParserBuilder::new().case_insensitive(ignores_case).build().parse(regex).ok()?;
    sequences(&parsed, true, split)?.into_iter().map(Alternative::of).collect()
}

impl Alternative {
    fn of(mut parts: Vec<Hir>) -> Option<Self> {
        let is = |part: Option<&Hir>, look: Look| part.is_some_and(|it| *it.kind() == HirKind::Look(look));
        let (mut starts, mut ends) = (false, false);
        while is(parts.first(), Look::Start) {
            starts = true;
            parts.remove(0);
        }
        while is(parts.last(), Look::End) {
            ends = true;
            parts.pop();
        }
        (!parts.iter().any(has_anchor)).then_some(Self { starts, ends, parts })
    }

    pub(super) fn starts(&self) -> bool {
        self.starts
    }

    pub(super) fn ends(&self) -> bool {
        self.ends
    }

    /// As a regex over a whole value, in which none of these characters is; `other` is a regex for any one that may be.
    pub(super) fn over(&self, banned: &[char], other: &str) -> String {
        self.ended(&text(self.parts.iter().map(|part| without(part, banned)).collect()), other)
    }

    fn ended(&self, inner: &str, other: &str) -> String {
        let around = |is_anchored: bool| if is_anchored { String::new() } else { format!("{other}*") };
        format!("{}(?:{inner}){}", around(self.starts), around(self.ends))
    }

    /// The ways in which a match may lie on both sides of the first character of this kind; `None` where they can't be said.
    pub(super) fn around(&self, split: char) -> Option<Vec<Halves>> {
        let mut made = Vec::new();
        for (at, part) in self.parts.iter().enumerate().filter(|(_, part)| may_have(part, split)) {
            let (before, after) = match part.kind() {
                HirKind::Literal(literal) => {
                    let whole = std::str::from_utf8(&literal.0).ok()?;
                    let (before, after) = whole.split_once(split)?;
                    (Hir::literal(before.as_bytes()), Hir::literal(after.as_bytes()))
                }
                HirKind::Class(_) => (Hir::empty(), Hir::empty()),
                HirKind::Repetition(many) if matches!(many.sub.kind(), HirKind::Class(_)) => {
                    match (many.min, many.max) {
                        (0 | 1, None) => {
                            let any = Hir::repetition(Repetition { min: 0, ..many.clone() });
                            (any.clone(), any)
                        }
                        (0 | 1, Some(1)) => (Hir::empty(), Hir::empty()),
                        _ => return None,
                    }
                }
                _ => return None,
            };
            let left = self.parts[..at].iter().cloned().chain([before]).collect();
            let right = std::iter::once(after).chain(self.parts[at + 1..].iter().cloned()).collect();
            let left = format!("{}(?:{})", if self.starts { "" } else { ".*" }, text(left));
            let right = format!("(?:{}){}", text(right), if self.ends { "" } else { ".*" });
            made.push(Halves { left, right });
        }
        Some(made)
    }
}

/// Parts as a regex, in characters that can be printed.
fn text(parts: Vec<Hir>) -> String {
    let whole = Hir::concat(parts).to_string();
    let is_plain = |c: char| c == ' ' || c.is_ascii_graphic();
    let each =
        whole.chars().map(|c| if is_plain(c) { c.to_string() } else { format!("\\x{{{:X}}}", u32::from(c)) });
    each.collect()
}

fn has_anchor(hir: &Hir) -> bool {
    let looks = hir.properties().look_set();
    [Look::Start, Look::End, Look::StartLF, Look::EndLF, Look::StartCRLF, Look::EndCRLF]
        .into_iter()
        .any(|look| looks.contains(look))
}

/// The rows of parts that a regex stands for, with its anchors as parts of their own.
fn sequences(hir: &Hir, is_outermost: bool, split: Option<char>) -> Option<Vec<Vec<Hir>>> {
    let is_split = || split.is_some_and(|split| may_have(hir, split));
    let made = match hir.kind() {
        HirKind::Capture(group) => sequences(&group.sub, is_outermost, split)?,
        HirKind::Alternation(all) if is_outermost || has_anchor(hir) || is_split() => {
            let each: Option<Vec<_>> = all.iter().map(|one| sequences(one, is_outermost, split)).collect();
            each?.into_iter().flatten().collect()
        }
        HirKind::Concat(all) => {
            let mut made: Vec<Vec<Hir>> = vec![Vec::new()];
            for one in all {
                let next = sequences(one, false, split)?;
                if made.len() * next.len() > MAX_ALTERNATIVES {
                    return None;
                }
                let longer = |known: &Vec<Hir>| {
                    let known = known.clone();
                    next.iter()
                        .map(move |more| known.iter().chain(more).cloned().collect())
                        .collect::<Vec<_>>()
                };
                made = made.iter().flat_map(longer).collect();
            }
            made
        }
        HirKind::Repetition(_) if has_anchor(hir) => return None,
        _ => vec![vec![hir.clone()]],
    };
    (made.len() <= MAX_ALTERNATIVES).then_some(made)
}

/// Whether a match of it may have this character.
fn may_have(hir: &Hir, wanted: char) -> bool {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => false,
        HirKind::Literal(literal) => String::from_utf8_lossy(&literal.0).contains(wanted),
        HirKind::Class(Class::Unicode(class)) => {
            class.iter().any(|range| (range.start()..=range.end()).contains(&wanted))
        }
        HirKind::Class(Class::Bytes(_)) => true,
        HirKind::Repetition(many) => may_have(&many.sub, wanted),
        HirKind::Capture(group) => may_have(&group.sub, wanted),
        HirKind::Concat(all) | HirKind::Alternation(all) => all.iter().any(|one| may_have(one, wanted)),
    }
}

/// The same for texts that have none of these characters.
fn without(hir: &Hir, banned: &[char]) -> Hir {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => hir.clone(),
        HirKind::Literal(literal) => {
            let is_banned = String::from_utf8_lossy(&literal.0).contains(banned);
            if is_banned { Hir::fail() } else { hir.clone() }
        }
        HirKind::Class(Class::Unicode(class)) => {
            let mut class = class.clone();
            let ranges = banned.iter().map(|c| ClassUnicodeRange::new(*c, *c));
            class.difference(&regex_syntax::hir::ClassUnicode::new(ranges));
            Hir::class(Class::Unicode(class))
        }
        HirKind::Class(Class::Bytes(class)) => {
            let mut class = class.clone();
            let ranges =
                banned.iter().filter_map(|c| u8::try_from(*c).ok()).map(|c| ClassBytesRange::new(c, c));
            class.difference(&regex_syntax::hir::ClassBytes::new(ranges));
            Hir::class(Class::Bytes(class))
        }
        HirKind::Repetition(many) => {
            Hir::repetition(Repetition { sub: Box::new(without(&many.sub, banned)), ..many.clone() })
        }
        HirKind::Capture(group) => without(&group.sub, banned),
        HirKind::Concat(all) => Hir::concat(all.iter().map(|one| without(one, banned)).collect()),
        HirKind::Alternation(all) => Hir::alternation(all.iter().map(|one| without(one, banned)).collect()),
    }
}
