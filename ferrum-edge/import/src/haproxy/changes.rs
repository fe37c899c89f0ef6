//! What HAProxy's rules change about a request, for the conditions behind them.

use crate::changed::What;

/// What a rule changes about the request's line.
pub(super) fn changed_target(action: &str, words: &[&str]) -> Vec<What> {
    let fixed = words.first().filter(|to| to.starts_with('/') && !to.contains('%'));
    match (action, fixed) {
        ("set-method", _) => words.first().map(|to| What::Method((*to).to_owned())).into_iter().collect(),
        ("set-query", _) => vec![What::AnyQuery],
        ("set-path", Some(path)) => vec![What::Path((*path).to_owned())],
        ("set-pathq" | "set-uri", Some(to)) => {
            vec![What::Path(to.split('?').next().unwrap_or_default().to_owned()), What::AnyQuery]
        }
        ("set-path", None) => {
            let before = words.first().and_then(|to| put_before(to));
            vec![before.map_or(What::AnyPath, |before| What::Prepend(before.to_owned()))]
        }
        ("replace-path", _) => vec![What::AnyPath],
        _ => vec![What::AnyPath, What::AnyQuery, What::AnyHeader("host".to_owned())],
    }
}

/// What a rule changes about the request's headers.
pub(super) fn changed_header(action: &str, words: &[&str]) -> Option<What> {
    let name = words.first()?.to_ascii_lowercase();
    Some(match (action, words) {
        ("del-header", [_]) => What::NoHeader(name),
        ("del-header", [_, "-m", "beg"]) => What::AnyHeader(format!("{name}*")),
        ("del-header", [_, "-m", "str"]) => What::NoHeader(name),
        ("del-header", _) => What::AnyHeader("*".to_owned()),
        ("set-header", [_, value]) if !value.contains('%') => What::Header(name, (*value).to_owned()),
        _ => What::AnyHeader(name),
    })
}

/// What a new path puts before the path as it is by then.
pub(super) fn put_before(to: &str) -> Option<&str> {
    to.strip_suffix("%[path]").filter(|before| before.starts_with('/') && !before.contains('%'))
}
