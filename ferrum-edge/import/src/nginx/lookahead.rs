//! Negative look-aheads in the regexes of locations that refuse requests. The gateway's regexes have none: such a location refuses more,
//! or, where that can be told, exactly what it should.

use super::asked::flagged;
use super::blocks::Directive;

/// What is refused instead.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RefusedPaths {
    /// A regex over the whole path, which fits at least what the original does.
    pub(super) regex: String,
    /// A regex over the whole path for what the original does not refuse.
    pub(super) spared: Option<String>,
}

/// The paths that a regex with negative look-aheads fits, and perhaps more; `None` where something else in it is not supported.
pub(super) fn refused_paths(regex: &str, ignores_case: bool) -> Option<RefusedPaths> {
    let (before, inner, after) = split(regex)?;
    let mut rest = format!("{before}{after}");
    let is_only = split(&rest).is_none();
    while let Some((before, _, after)) = split(&rest) {
        rest = format!("{before}{after}");
    }
    let regex = flagged(&rest, ignores_case)?;
    // `/\.(?!well-known)`: one segment is spared, and what is below it as far as no other one begins with a dot.
    let is_hidden = matches!(before, r"/\." | r"^/\.") && matches!(after, "" | ".*") && is_only;
    let spared = flagged(&format!(r"^/\.(?:{inner})(?:[^/]|/[^./])*/?$"), ignores_case).filter(|_| is_hidden);
    Some(RefusedPaths { regex, spared })
}

/// A regex without its negative look-aheads, which fits at least what the original does; `None` where it has none, or something
/// else in it is not supported.
pub(super) fn without_lookaheads(regex: &str) -> Option<String> {
    let mut rest = regex.to_owned();
    while let Some((before, _, after)) = split(&rest) {
        rest = format!("{before}{after}");
    }
    (rest != regex && flagged(&rest, false).is_some()).then_some(rest)
}

/// Whether a location or an `if` refuses all its requests, and does nothing else.
pub(super) fn only_refuses(location: &Directive) -> bool {
    let refuses = |it: &Directive| match it.name.as_str() {
        "deny" => it.arguments == ["all"],
        "return" => it.arguments.first().is_some_and(|status| status.len() == 3 && status.starts_with('4')),
        _ => false,
    };
    let is_silent = |it: &Directive| matches!(it.name.as_str(), "access_log" | "log_not_found" | "error_log");
    location.block.iter().any(refuses) && location.block.iter().all(|it| refuses(it) || is_silent(it))
}

/// What is before the first negative look-ahead, in it, and behind it.
fn split(regex: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = regex.split_once("(?!")?;
    let (mut depth, mut is_class, mut escaped) = (1_u32, false, false);
    for (at, c) in rest.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' => is_class = true,
            ']' => is_class = false,
            '(' if !is_class => depth += 1,
            ')' if !is_class => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some((before, rest.get(..at)?, rest.get(at + 1..)?));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refused(regex: &str, path: &str) -> bool {
        let paths = refused_paths(regex, false).expect("can be said");
        let fits =
            |regex: &str| regex::Regex::new(&format!("^(?:{regex})$")).expect("a regex").is_match(path);
        fits(&paths.regex) && !paths.spared.as_deref().is_some_and(fits)
    }

    #[test]
    fn at_least_what_the_original_refuses_is_refused() {
        let hidden = r"/\.(?!well-known)";
        for (regex, path, expected) in [
            (hidden, "/.git/config", true),
            (hidden, "/a/.env", true),
            (hidden, "/.well-known/acme-challenge/x", false),
            (hidden, "/.well-known", false),
            (hidden, "/.well-known/.git", true),
            (hidden, "/.well-known/a/.env", true),
            // Spared by the original: what is below another folder is not told apart.
            (hidden, "/a/.well-known/x", true),
            (hidden, "/plain", false),
            (r"/\.(?!well-known\/)", "/.well-known/x", false),
            (r"/\.(?!well-known\/)", "/.well-knownx", true),
            (r"^/(?!api)secret", "/secret", true),
            (r"\.php(?!x)(?!y)$", "/a.php", true),
        ] {
            assert_eq!(is_refused(regex, path), expected, "{regex} {path}");
        }
        for other in ["/a", r"(?=a)b", r"(a)\1(?!b)"] {
            assert_eq!(refused_paths(other, false), None, "{other}");
        }
    }
}
