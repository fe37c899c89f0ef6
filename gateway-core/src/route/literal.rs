//! What every match of a regex begins with, so that a path is only tried against regexes that can match it.

/// The whole path segments that every path matched by `pattern` begins with; `/` when none can be told.
///
/// Reads only what is plain to see (letters, digits, `-`, `_`, `~` and `/` up to the first other character); when in
/// doubt it says `/`, which costs time and never a match.
pub(super) fn literal_start(pattern: &str) -> String {
    let anchored = pattern.strip_prefix('^').unwrap_or("");
    let inner = anchored.strip_prefix("(?:").and_then(|p| p.strip_suffix(")$")).unwrap_or(anchored);
    if has_alternatives(inner) {
        return "/".to_owned();
    }
    let mut end = inner
        .bytes()
        .position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'/' | b'-' | b'_' | b'~')))
        .unwrap_or(inner.len());
    if inner.as_bytes().get(end).is_some_and(|b| matches!(b, b'?' | b'*' | b'+' | b'{')) {
        // The quantifier may make the last character go away.
        end = end.saturating_sub(1);
    }
    let literal = inner.get(..end).unwrap_or("");
    match literal.rfind('/') {
        Some(slash) if slash > 0 && literal.starts_with('/') => {
            literal.get(..slash).unwrap_or("/").to_owned()
        }
        _ => "/".to_owned(),
    }
}

/// True when there is a `|` outside all groups, or when the pattern is too odd to tell.
fn has_alternatives(pattern: &str) -> bool {
    let (mut groups, mut classes) = (0u32, 0u32);
    let mut bytes = pattern.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => {
                bytes.next();
            }
            b'[' => classes += 1,
            b']' => classes = classes.saturating_sub(1),
            _ if classes > 0 => {}
            b'(' => groups += 1,
            b')' if groups == 0 => return true,
            b')' => groups -= 1,
            b'|' if groups == 0 => return true,
            _ => {}
        }
    }
    groups != 0 || classes != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_starts() {
        let cases = [
            ("^(?:/users/(\\d+))$", "/users"),
            ("^(?:/a/b/c.*)$", "/a/b"),
            ("^(?:/a/b/)$", "/a/b"),
            ("^/v1/x$", "/v1"),
            ("^(?:/users/?)$", "/"),
            ("^(?:/a/users/{0,2}x)$", "/a"),
            ("^(?:/a/b|/c/d)$", "/"),
            ("^(?:/a/(b|c))$", "/a"),
            ("^(?:/a/[|)]/b)$", "/a"),
            ("^(?:/a/[]|]b)$", "/"),
            ("^(?:/a)|(?:/b/c)$", "/"),
            ("^(?:(?i)/a/b)$", "/"),
            ("/a/b/c", "/"),
            ("^(?:.*)$", "/"),
            ("^(?://x/y)$", "//x"),
            ("^(?:/)$", "/"),
        ];
        for (pattern, expected) in cases {
            assert_eq!(literal_start(pattern), expected, "{pattern}");
        }
    }
}
