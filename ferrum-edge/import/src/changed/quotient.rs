//! What is left of a regex behind a text that it begins with.

use crate::text;

/// Regexes of the rest that one regex may have.
const MAX_RESTS: usize = 64;

/// Regexes of the rest, of which any is meant, that a text may have before it; `None` where that can't be said.
pub(super) fn rests(regex: &str, before: &str) -> Option<Vec<String>> {
    let (flag, rest) = regex.strip_prefix("(?i)").map_or(("", regex), |rest| ("(?i)", rest));
    if text::has_top_choice(rest) {
        return None;
    }
    let mut made = Vec::new();
    follow(rest, before, !flag.is_empty(), &mut made)?;
    made.sort_unstable();
    made.dedup();
    Some(made.into_iter().map(|rest| format!("{flag}{rest}")).collect())
}

/// Goes along the regex and the text, as far as both are the same plain characters.
fn follow(regex: &str, before: &str, ignores_case: bool, made: &mut Vec<String>) -> Option<()> {
    let (mut regex, mut before) = (regex, before);
    while let Some(wanted) = before.chars().next() {
        if let Some(rest) = regex.strip_prefix(".*") {
            if rest.starts_with(['?', '+', '*', '{']) {
                return None;
            }
            // It takes all of the text, or ends anywhere within.
            made.push(regex.to_owned());
            for (at, _) in before.char_indices().filter(|_| !rest.is_empty()) {
                follow(rest, before.get(at..)?, ignores_case, made)?;
            }
            return Some(());
        }
        if let Some(inside) = regex.strip_prefix("(?:") {
            let (inner, after) = inside.split_at_checked(group_end(inside)?)?;
            let after = after.strip_prefix(')').filter(|it| !it.starts_with(['?', '+', '*', '{']))?;
            for part in alternatives(inner) {
                follow(&format!("{part}{after}"), before, ignores_case, made)?;
            }
            return (made.len() <= MAX_RESTS).then_some(());
        }
        let mut chars = regex.chars();
        let Some(found) = chars.next() else { return Some(()) };
        let found = match found {
            '\\' => chars.next().filter(char::is_ascii_punctuation)?,
            '.' | '+' | '*' | '?' | '(' | ')' | '|' | '[' | ']' | '{' | '}' | '^' | '$' => return None,
            plain => plain,
        };
        if chars.as_str().starts_with(['?', '+', '*', '{']) {
            return None;
        }
        let is_same = found == wanted || ignores_case && found.eq_ignore_ascii_case(&wanted);
        if !is_same {
            return Some(());
        }
        regex = chars.as_str();
        before = before.get(wanted.len_utf8()..)?;
    }
    made.push(regex.to_owned());
    Some(())
}

/// Where a group ends whose beginning is left out.
fn group_end(text: &str) -> Option<usize> {
    let (mut depth, mut is_escaped, mut in_class) = (0_usize, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '[' => in_class = true,
            ']' => in_class = false,
            '(' if !in_class => depth += 1,
            ')' if !in_class && depth == 0 => return Some(at),
            ')' if !in_class => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The alternatives of a group.
fn alternatives(text: &str) -> Vec<String> {
    let (mut made, mut depth, mut is_escaped, mut in_class) = (vec![String::new()], 0_usize, false, false);
    for c in text.chars() {
        let is_plain = is_escaped;
        is_escaped = !is_plain && c == '\\';
        match c {
            _ if is_plain => {}
            '[' => in_class = true,
            ']' => in_class = false,
            '(' if !in_class => depth += 1,
            ')' if !in_class => depth = depth.saturating_sub(1),
            '|' if !in_class && depth == 0 => {
                made.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = made.last_mut() {
            last.push(c);
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use super::rests;

    #[test]
    fn texts_before_a_regex() {
        for (regex, before, expected) in [
            ("/v2/admin/.*", "/v2", Some(vec!["/admin/.*"])),
            ("(?i)/V2/a", "/v2", Some(vec!["(?i)/a"])),
            ("/admin/.*", "/v2", Some(vec![])),
            ("/v.*", "/v2", Some(vec![".*"])),
            (r".*\.php", "/v2", Some(vec![r".*\.php"])),
            ("/v2", "/v2/x", Some(vec![])),
            (".*2/x", "/v2", Some(vec![".*2/x", "/x"])),
            (".*(?:\\.php)", "/v2", Some(vec![".*(?:\\.php)"])),
            ("(?i)(?:/v2/admin).*", "/v2", Some(vec!["(?i)/admin.*"])),
            ("/(?:v1|v2)/x", "/v2", Some(vec!["/x"])),
            ("/v2(?:/.*)?", "/v2/", None),
            ("/v2?/x", "/v2", None),
            ("/(v2)/x", "/v2", None),
            ("/v2|/x", "/v2", None),
        ] {
            let expected = expected.map(|list| list.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
            assert_eq!(rests(regex, before), expected, "{regex} {before}");
        }
    }
}
