//! Patterns of hosts and paths, as routes and conditions write them.

use std::sync::Arc;

use regex::{Regex, RegexBuilder};

use super::regexes::{anchored, not_a_regex};
use super::written::PathMatch;
use super::{HostPattern, MAX_SEGMENTS, PathPattern, PathTemplate, path_regex};
use crate::problem::{ValueProblem, without_user};
use crate::spelling::in_request_spelling;

/// Bytes a compiled regex may take, so that one pattern cannot eat the machine.
const MAX_REGEX_BYTES: usize = 1 << 20;

pub(crate) fn host_pattern(text: &str) -> Result<HostPattern, ValueProblem> {
    let lower = text.trim_end_matches('.').to_ascii_lowercase();
    let bad =
        |remedy: String| ValueProblem::new(format!("`{}` is not a host", without_user(text))).remedy(remedy);
    if lower == "*" {
        return Err(bad("leave `hosts` out to take any host".to_owned()));
    }
    if let Some((_, rest)) = lower.split_once("://") {
        return Err(bad(format!("write only the name: `{}`", bare(rest))));
    }
    if lower.starts_with('[') {
        let address = lower.strip_prefix('[').and_then(|a| a.strip_suffix(']'));
        return match address.and_then(|a| a.parse::<std::net::Ipv6Addr>().ok()) {
            Some(_) => Ok(HostPattern::Exact(lower.into())),
            None => Err(bad("write an IPv6 address as `[::1]`, without a port".to_owned())),
        };
    }
    if lower.contains([':', '/']) {
        return Err(bad(format!("write only the name: `{}`", bare(&lower))));
    }
    let name = lower.strip_prefix("*.").unwrap_or(&lower);
    if name.contains('*') {
        return Err(bad("`*.` may only stand at the beginning, before whole labels".to_owned()));
    }
    if lower.len() > 253 || !name.split('.').all(is_label) {
        return Err(bad("labels of letters, digits, `-` and `_`, with dots between".to_owned()));
    }
    Ok(match lower.strip_prefix('*') {
        Some(suffix) => HostPattern::Suffix(suffix.into()),
        None => HostPattern::Exact(lower.into()),
    })
}

pub(crate) fn is_label(label: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    (1..=63).contains(&label.len()) && label.bytes().all(inner)
}

/// The host in something like `user:password@host:80/path`.
pub(crate) fn bare(text: &str) -> &str {
    let text = behind_user(text);
    text.split([':', '/']).next().unwrap_or(text)
}

/// What follows the user and password, which may be written with any character.
pub(crate) fn behind_user(text: &str) -> &str {
    text.rsplit_once('@').map_or(text, |(_, rest)| rest)
}

/// A prefix, a path with names, or a regex.
pub(crate) fn listen_path(text: &str) -> Result<PathPattern, ValueProblem> {
    if text.starts_with('/') && text.contains(['{', '}']) {
        return template(text);
    }
    if let Some(pattern) = text.strip_prefix('~') {
        return compiled_path_regex(pattern).map(PathPattern::Regex);
    }
    prefix(text)
}

fn prefix(text: &str) -> Result<PathPattern, ValueProblem> {
    if text.is_empty() {
        return Err(ValueProblem::new("this is empty")
            .remedy("write `/` for every path, or leave it out and give `hosts`"));
    }
    if let Some(exact) = text.strip_prefix("= ") {
        return Err(ValueProblem::new(format!("`{text}` doesn't begin with `/`"))
            .remedy(format!("write `matches: [{{path: {{exact: {exact}}}}}]` for one path")));
    }
    if !text.starts_with('/') {
        return Err(ValueProblem::new(format!("`{text}` doesn't begin with `/`"))
            .remedy(format!("write `/{text}`, or `~{text}` if it is a regex")));
    }
    if let Some(prefix) = text.strip_suffix("/*").or_else(|| text.strip_suffix("/**")) {
        let prefix = if prefix.is_empty() { "/" } else { prefix };
        return Err(ValueProblem::new("`*` means nothing in a path")
            .remedy(format!("write `{prefix}`, which takes all below")));
    }
    if text.split('/').any(|segment| matches!(segment, "*" | "**")) {
        return Err(ValueProblem::new("`*` means nothing in a path")
            .remedy("write `{name}` for any one segment, such as `/users/{id}/posts`"));
    }
    if text.contains(['?', '#']) || text.contains(char::is_whitespace) || text.contains(char::is_control) {
        return Err(ValueProblem::new(format!("`{text}` can't be a path"))
            .remedy("a path has no query, fragment or spaces"));
    }
    let prefix = if text == "/" { text } else { text.strip_suffix('/').unwrap_or(text) };
    if prefix != "/" && prefix.split('/').skip(1).any(|segment| matches!(segment, "" | "." | "..")) {
        return Err(ValueProblem::new(format!("`{text}` has an empty, `.` or `..` segment"))
            .remedy("requests' paths have none when they are matched"));
    }
    if prefix.matches('/').count() > MAX_SEGMENTS {
        return Err(ValueProblem::new(format!("this has more than {MAX_SEGMENTS} segments")));
    }
    Ok(PathPattern::Prefix(request_spelling(prefix)?.into()))
}

/// A path as requests have it when they are matched.
fn request_spelling(text: &str) -> Result<String, ValueProblem> {
    let fault = |error| {
        ValueProblem::new(format!("`{text}` can't be a path: {error}"))
            .remedy("write `%25` for a percent sign")
    };
    in_request_spelling(text).map_err(fault)
}

/// The path of a condition; a problem comes with the key it stands under.
pub(crate) fn path_match(written: &PathMatch) -> Result<PathPattern, (&'static str, ValueProblem)> {
    let named = match written {
        PathMatch::Text(text) => return listen_path(text).map_err(|fault| ("", fault)),
        PathMatch::Named(named) => named,
    };
    let several = || ValueProblem::new("this names more than one way to match").remedy("keep one of them");
    match (&named.exact, &named.prefix, &named.template, &named.regex) {
        (Some(text), None, None, None) => exact(text).map_err(|fault| ("exact", fault)),
        (None, Some(text), None, None) if text.starts_with('~') => Err((
            "prefix",
            ValueProblem::new(format!("`{text}` doesn't begin with `/`")).remedy("write `regex` instead"),
        )),
        (None, Some(text), None, None) => prefix(text).map_err(|fault| ("prefix", fault)),
        (None, None, Some(text), None) => template(text).map_err(|fault| ("template", fault)),
        (None, None, None, Some(text)) => {
            let text = text.strip_prefix('~').unwrap_or(text);
            compiled_path_regex(text).map(PathPattern::Regex).map_err(|fault| ("regex", fault))
        }
        (None, None, None, None) => Err((
            "",
            ValueProblem::new("this says nothing about the path")
                .remedy("one of: exact, prefix, template, regex"),
        )),
        _ => Err(("", several())),
    }
}

/// One path, as requests have it when they are matched.
fn exact(text: &str) -> Result<PathPattern, ValueProblem> {
    if text == "*" {
        return Ok(PathPattern::Exact(text.into()));
    }
    let without_slash = text.strip_suffix('/').filter(|cut| !cut.is_empty()).unwrap_or(text);
    if text.starts_with('~') {
        return Err(
            ValueProblem::new(format!("`{text}` doesn't begin with `/`")).remedy("write `regex` instead")
        );
    }
    prefix(without_slash)?;
    Ok(PathPattern::Exact(request_spelling(text)?.into()))
}

fn template(text: &str) -> Result<PathPattern, ValueProblem> {
    if text.contains(['?', '#']) || text.contains(char::is_whitespace) || text.contains(char::is_control) {
        return Err(ValueProblem::new(format!("`{text}` can't be a path"))
            .remedy("a path has no query, fragment or spaces"));
    }
    match PathTemplate::parse(text) {
        Ok(template) => Ok(PathPattern::Template(Arc::new(template))),
        Err(error) => {
            Err(ValueProblem::new(format!("`{text}`: {error}")).remedy("such as `/users/{id}/{rest...}`"))
        }
    }
}

/// A regex over the whole path, which also matches what it says in the spelling of requests.
pub(super) fn compiled_path_regex(pattern: &str) -> Result<Regex, ValueProblem> {
    let spelled = path_regex::in_request_spelling(pattern);
    RegexBuilder::new(&anchored(&spelled)).size_limit(MAX_REGEX_BYTES).build().map_err(|error| {
        // nginx writes `~* regex`.
        let remedy = match pattern
            .strip_prefix('*')
            .map_or_else(|| pattern.strip_prefix(' '), |it| it.strip_prefix(' '))
        {
            Some(regex) => format!("write `~(?i).*{regex}`: it is the whole path that has to match"),
            None => "see docs.rs/regex for the syntax; a plain prefix has no `~`".to_owned(),
        };
        ValueProblem::new(not_a_regex(pattern, &error)).remedy(remedy)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_host_shows_no_password() {
        for text in
            ["http://u:SECRET@h/", "u:SECRET@h", "http://SECRET@h:80", "https://u:SEC/SECRET@h/SECRET@x"]
        {
            let refused = host_pattern(text).expect_err("it is no host");
            let said = format!("{refused:?}").to_ascii_lowercase();
            assert!(said.contains("redacted@") && !said.contains("secret"), "{text}: {said}");
        }
    }
}
