//! The media type of an answer that `return` gives: nginx goes by the ending of the path, as for files.

use super::blocks::Directive;
use super::first;

/// What `mime.types` says of endings whose files are text.
const BUILT_IN: &[(&str, &[&str])] = &[
    ("text/html", &["html", "htm", "shtml"]),
    ("text/css", &["css"]),
    ("text/xml", &["xml"]),
    ("text/plain", &["txt"]),
    ("application/javascript", &["js"]),
    ("application/json", &["json"]),
    ("application/atom+xml", &["atom"]),
    ("application/rss+xml", &["rss"]),
    ("image/svg+xml", &["svg", "svgz"]),
    ("image/x-icon", &["ico"]),
];

/// The media type for a path, or for the paths that the regex of a location fits; that of `default_type` where the ending is not known.
pub(super) fn media_type<'d>(levels: &[&'d Directive], path: &str) -> &'d str {
    let known = ending(path).and_then(|ending| of_ending(levels, &ending));
    known.or_else(|| first(levels, "default_type")).unwrap_or("text/plain")
}

fn of_ending<'d>(levels: &[&'d Directive], ending: &str) -> Option<&'d str> {
    let own = levels.iter().rev().find_map(|level| level.block.iter().find(|it| it.name == "types"));
    match own {
        Some(types) => {
            let has = |it: &&Directive| it.arguments.iter().any(|it| it.eq_ignore_ascii_case(ending));
            types.block.iter().find(has).map(|it| it.name.as_str())
        }
        None => BUILT_IN.iter().find(|(_, endings)| endings.contains(&ending)).map(|(name, _)| *name),
    }
}

/// What a path, or a regex, has behind its last dot.
fn ending(path: &str) -> Option<String> {
    let last = path.strip_suffix('$').unwrap_or(path).rsplit('/').next()?;
    let (_, ending) = last.rsplit_once('.')?;
    let is_plain = !ending.is_empty() && ending.bytes().all(|b| b.is_ascii_alphanumeric());
    is_plain.then(|| ending.to_ascii_lowercase())
}
