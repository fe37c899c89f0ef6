//! `hide` of a file server: files and folders that are answered 404.

use regex::Regex;

use super::sites::Scope;
use super::tokens::CaddyLine;
use crate::cond::Cond;
use crate::draft::Matcher;
use crate::text;

/// The paths that `hide` is about; `None` where a file that it hides has another path, or its patterns can't be said here.
pub(super) fn hidden(line: &CaddyLine, scope: &Scope) -> Option<Cond> {
    let named = |name: &str| -> Vec<&String> {
        line.inner().iter().filter(|it| it.name() == name).flat_map(CaddyLine::arguments).collect()
    };
    let patterns = named("hide").into_iter().map(|pattern| component(pattern)).collect::<Option<Vec<_>>>()?;
    // Requests for folders and for paths that are tried get files of other names.
    let mut others: Vec<&str> = named("index").into_iter().map(String::as_str).collect();
    if others.is_empty() {
        others.extend(["index.html", "index.txt"]);
    }
    let is_own = |tried: &String| matches!(tried.as_str(), "{path}" | "{path}/" | "=404");
    let is_plain = scope.tries.as_ref().is_none_or(|tries| tries.iter().all(is_own));
    let hides = |pattern: &String| {
        let whole = Regex::new(&format!("^(?:{pattern})$"));
        whole.is_ok_and(|whole| others.iter().any(|name| whole.is_match(name)))
    };
    (is_plain && !patterns.iter().any(hides)).then_some(())?;
    let each = patterns.iter().map(|pattern| Matcher::regex(format!("(?:.*/)?{pattern}(?:/.*)?")));
    Some(Cond::any(each.map(Cond::path_is)))
}

/// A pattern of one name as a regex.
fn component(pattern: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-*".contains(c);
    let is_name = !pattern.is_empty() && pattern.chars().all(is_plain) && !matches!(pattern, "." | "..");
    is_name.then(|| pattern.split('*').map(text::literal).collect::<Vec<_>>().join("[^/]*"))
}
