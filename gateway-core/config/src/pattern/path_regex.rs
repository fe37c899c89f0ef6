//! Regexes over paths, brought into the spelling that requests have when they are matched.
//!
//! Requests are matched percent-encoded: `é` is `%C3%A9`, a space `%20`. A regex may be written with the characters themselves, in
//! literals and in classes; here they become what requests contain. `~/café/.*` and `~/[a-zé]+` then match what browsers send.

use std::borrow::Cow;

use regex_syntax::hir::{
    Capture, Class, ClassBytes, ClassBytesRange, ClassUnicode, Hir, HirKind, Repetition,
};

use crate::spelling::{in_request_spelling as spelled, may_be_raw, push_octet};

/// Characters of a class that are escaped one by one; a larger class matches any escaped character that is not ASCII.
const MAX_ESCAPED: usize = 512;

/// Any escaped character that is not ASCII: two to four octets of UTF-8.
const ESCAPED_CHARACTER: &str = "%[C-F][0-9A-F](?:%[89AB][0-9A-F]){1,3}";

/// The pattern with every character that a path may not contain raw in its escaped form; as it is where it has none, or is not a
/// regex, which its compilation reports.
pub fn in_request_spelling(pattern: &str) -> Cow<'_, str> {
    let Ok(hir) = regex_syntax::Parser::new().parse(pattern) else { return Cow::Borrowed(pattern) };
    match respelled(&hir) {
        Some(changed) => Cow::Owned(changed.to_string()),
        None => Cow::Borrowed(pattern),
    }
}

/// The same expression in the spelling of requests; `None` where nothing changes.
fn respelled(hir: &Hir) -> Option<Hir> {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => None,
        HirKind::Literal(literal) => {
            let new = literal_spelling(&literal.0);
            (new.as_bytes() != &*literal.0).then(|| Hir::literal(new.into_bytes()))
        }
        HirKind::Class(Class::Unicode(class)) => unicode_class(class),
        HirKind::Class(Class::Bytes(class)) => byte_class(class),
        HirKind::Repetition(Repetition { min, max, greedy, sub }) => {
            let sub = Box::new(respelled(sub)?);
            Some(Hir::repetition(Repetition { min: *min, max: *max, greedy: *greedy, sub }))
        }
        HirKind::Capture(Capture { index, name, sub }) => {
            let sub = Box::new(respelled(sub)?);
            Some(Hir::capture(Capture { index: *index, name: name.clone(), sub }))
        }
        HirKind::Concat(parts) => each(parts).map(Hir::concat),
        HirKind::Alternation(parts) => each(parts).map(Hir::alternation),
    }
}

fn each(parts: &[Hir]) -> Option<Vec<Hir>> {
    let changed: Vec<Option<Hir>> = parts.iter().map(respelled).collect();
    changed.iter().any(Option::is_some).then(|| {
        changed.into_iter().zip(parts).map(|(new, old)| new.unwrap_or_else(|| old.clone())).collect()
    })
}

/// A literal as a request's path contains it. What looks like a broken escape stays: a class may complete it.
fn literal_spelling(literal: &[u8]) -> String {
    let mut out = String::with_capacity(literal.len());
    let mut rest = literal;
    while let Some((&octet, tail)) = rest.split_first() {
        let escape = rest.get(..3).and_then(|escape| std::str::from_utf8(escape).ok());
        if octet == b'%'
            && let Some(known) = escape.and_then(|escape| spelled(escape).ok())
        {
            out.push_str(&known);
            rest = rest.get(3..).unwrap_or_default();
            continue;
        }
        rest = tail;
        match octet == b'%' || may_be_raw(octet) {
            true => out.push(octet.into()),
            false => push_octet(&mut out, octet),
        }
    }
    out
}

fn unicode_class(class: &ClassUnicode) -> Option<Hir> {
    let holds = |c: char| class.ranges().iter().any(|range| range.start() <= c && c <= range.end());
    let ascii: Vec<u8> = (0..0x80_u8).filter(|octet| holds((*octet).into())).collect();
    // Digits of other scripts, which `\d` covers, and the letters that `(?i)` takes for k and s: nobody means them.
    let is_incidental = |c: &char| {
        ascii == b"0123456789" || (*c == '\u{212a}' && holds('k')) || (*c == '\u{17f}' && holds('s'))
    };
    let beyond = class.ranges().iter().flat_map(|range| range.start().max('\u{80}')..=range.end());
    let mut escaped = Vec::new();
    for c in beyond.filter(|c| !is_incidental(c)) {
        if escaped.len() == MAX_ESCAPED {
            let any = regex_syntax::Parser::new().parse(ESCAPED_CHARACTER).ok()?;
            return alternatives(&ascii, vec![any]);
        }
        escaped.push(Hir::literal(literal_spelling(c.encode_utf8(&mut [0; 4]).as_bytes()).into_bytes()));
    }
    alternatives(&ascii, escaped)
}

fn byte_class(class: &ClassBytes) -> Option<Hir> {
    let octets = class.ranges().iter().flat_map(|range| range.start()..=range.end());
    let (ascii, beyond): (Vec<u8>, Vec<u8>) = octets.partition(u8::is_ascii);
    alternatives(&ascii, beyond.iter().map(|octet| escaped_octet(*octet)).collect())
}

/// One of these octets, escaped where a path may not contain them raw, or one of these expressions.
fn alternatives(ascii: &[u8], beyond: Vec<Hir>) -> Option<Hir> {
    let is_escape_itself = b"%0123456789ABCDEF".iter().all(|octet| ascii.contains(octet));
    if is_escape_itself {
        // `.`, `[^/]`: what it matches is escaped by characters that it matches.
        return None;
    }
    let (raw, escaped): (Vec<u8>, Vec<u8>) =
        ascii.iter().copied().partition(|octet| *octet == b'%' || may_be_raw(*octet));
    let mut all: Vec<Hir> = escaped.into_iter().map(escaped_octet).chain(beyond).collect();
    if all.is_empty() {
        return None;
    }
    let ranges = raw.iter().map(|octet| ClassBytesRange::new(*octet, *octet));
    all.insert(0, Hir::class(Class::Bytes(ClassBytes::new(ranges))));
    Some(Hir::alternation(all))
}

fn escaped_octet(octet: u8) -> Hir {
    let mut text = String::new();
    push_octet(&mut text, octet);
    Hir::literal(text.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::parse::compiled_path_regex;

    #[test]
    fn regexes_match_the_spelling_of_requests() {
        for (pattern, path, expected) in [
            ("/münchen/.*", "/m%C3%BCnchen/x", true),
            ("/münchen", "/munchen", false),
            ("/caf%c3%a9", "/caf%C3%A9", true),
            ("(?i)/MÜNCHEN", "/m%C3%BCnchen", true),
            ("(?i)/MÜNCHEN", "/m%C3%9Cnchen", true),
            ("/[äöü]+", "/%C3%A4%C3%BC", true),
            ("/[äöü]", "/%C3%9F", false),
            ("/[äöü]", "/%", false),
            (r"/\w+/x", "/m%C3%BCnchen/x", true),
            (r"/\w+/x", "/a%2Fb/x", false),
            ("/[^/]+/x", "/m%C3%BCnchen/x", true),
            ("/a b", "/a%20b", true),
            (r"/a\sb", "/a%20b", true),
            ("/%7Euser", "/~user", true),
            ("/a|/b", "/b", true),
            (r"/\[x\]", "/%5Bx%5D", true),
            (r"/(?<name>ü+)", "/%C3%BC%C3%BC", true),
            ("/100%25", "/100%25", true),
        ] {
            let regex = compiled_path_regex(pattern).expect("is a regex");
            assert_eq!(regex.is_match(path), expected, "{pattern} as {} on {path}", regex.as_str());
        }
    }

    #[test]
    fn names_of_groups_stay() {
        let regex = compiled_path_regex("/(?<city>münchen)/(x+)").expect("is a regex");
        let groups = regex.captures("/m%C3%BCnchen/xx").expect("matches");
        assert_eq!((&groups["city"], &groups[2]), ("m%C3%BCnchen", "xx"));
    }

    #[test]
    fn what_is_plain_stays_as_it_is_written() {
        for pattern in ["/users/[0-9]+", "/a.*b", "(?i)/ask", "/[^/]+/x", "/a(", r"/v\d+", "/a;b"] {
            assert!(matches!(in_request_spelling(pattern), Cow::Borrowed(_)), "{pattern}");
        }
    }
}
