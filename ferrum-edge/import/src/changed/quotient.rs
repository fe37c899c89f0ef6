//! What is left of a regex behind a text that it begins with.

use crate::text;

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
            ("/v2?/x", "/v2", None),
            ("/(v2)/x", "/v2", None),
            ("/v2|/x", "/v2", None),
        ] {
            let expected = expected.map(|list| list.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
            assert_eq!(rests(regex, before), expected, "{regex} {before}");
        }
    }
}
