//! Functions that regexes of paths and regexes of values share.

/// The pattern, anchored at both ends.
pub(crate) fn anchored(pattern: &str) -> String {
    let inner = pattern.strip_prefix('^').unwrap_or(pattern);
    // A `\$` at the end is a dollar sign, not an anchor.
    let inner = match inner.strip_suffix('$') {
        Some(cut) if !cut.ends_with('\\') => cut,
        _ => inner,
    };
    format!("^(?:{inner})$")
}

/// The error message of a regex, in one line.
pub(crate) fn not_a_regex(pattern: &str, error: &regex::Error) -> String {
    let told = error.to_string();
    let reason = told.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
    format!("`{pattern}` is not a regex: {reason}")
}
