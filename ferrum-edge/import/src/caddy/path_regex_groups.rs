//! Groups of the regex of a matcher, `{re.NAME.1}`, in where a directive leads to.

use super::sites::Scope;
use super::tokens::CaddyLine;
use super::{Caddy, matchers};
use crate::draft::{Replaced, Rewrite, draft};
use crate::text;

/// The regex of a matcher.
pub(super) struct PathRegex {
    /// Over whole paths.
    pub(super) whole: String,
    name: String,
}

impl PathRegex {
    /// The group that a placeholder names.
    fn group<'p>(&self, placeholder: &'p str) -> Option<&'p str> {
        let rest = placeholder.strip_prefix("re.").or_else(|| placeholder.strip_prefix("http.regexp."))?;
        let named = rest.strip_prefix(&*self.name).and_then(|rest| rest.strip_prefix('.'));
        let group = named.unwrap_or(rest);
        let is_name = !group.is_empty() && group.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        (is_name && group != "0").then_some(group)
    }
}

impl Caddy<'_> {
    /// The only regex over the path that the matcher of a directive asks for, where the path is what the client sent.
    pub(super) fn path_regex(&self, line: &CaddyLine, scope: &Scope) -> Option<PathRegex> {
        let named = line.arguments().first().filter(|first| first.starts_with('@'))?;
        let set = scope.named.get(named)?;
        let is_sent = scope.stripped.is_empty() && !scope.changes.are_in("${request.path}");
        let inner = if set.block.is_none() { std::slice::from_ref(&**set) } else { set.inner() };
        let words = |one: &CaddyLine| match set.block.is_none() {
            true => one.arguments().to_vec(),
            false => one.words.clone(),
        };
        let mut found =
            inner.iter().map(words).filter(|words| words.first().is_some_and(|it| it == "path_regexp"));
        let (name, regex) = match (found.next()?.get(1..)?, found.next()) {
            // Without a name of its own, it has that of the matcher.
            ([regex], None) => (named.trim_start_matches('@').to_owned(), regex.clone()),
            ([name, regex], None) => (name.clone(), regex.clone()),
            _ => return None,
        };
        let whole = text::anywhere(&regex);
        (is_sent && text::is_regex(&whole)).then_some(PathRegex { whole, name })
    }
}

/// A text with groups of a regex as a template with captures.
pub(super) fn template(text: &str, regex: &PathRegex) -> Option<String> {
    matchers::template_with(text, &|name| Some(format!("${{capture.{}}}", regex.group(name)?)))
}

/// A new path that has groups of a regex, and nothing else of the request.
pub(super) fn replaced(path: &str, regex: &PathRegex) -> Option<Rewrite> {
    let to = matchers::template_with(path, &|name| Some(format!("${{{}}}", regex.group(name)?)))?;
    let is_own =
        path.contains('{') && path.starts_with('/') && !to.contains("${request.") && !path.contains('$');
    is_own.then(|| draft!(Rewrite { regex: [draft!(Replaced { from: format!("^{}$", regex.whole), to })] }))
}
