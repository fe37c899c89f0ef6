//! Converts `replace.uri` of Kong's `request-transformer`, which gives a request a new path, into a template.

use std::collections::BTreeSet;

use super::text;
use crate::draft::{Import, Plug, Rewrite, draft};
use crate::tree::Node;

/// The new path that a plugin's settings give requests.
pub(super) fn new_path(config: &Node) -> Option<&str> {
    config.get("replace").and_then(|replace| text(replace, "uri")).filter(|path| !path.is_empty())
}

/// The plugin that gives requests this path; `None` for one with expressions that are more than one value.
pub(super) fn rewrite(path: &str) -> Option<Plug> {
    let path = template(path).filter(|path| path.starts_with('/'))?;
    Some(Plug::of(draft!(Rewrite { path })))
}

/// Whether a path depends on fields that the same plugin may change first.
pub(super) fn reads_fields(plug: &Plug) -> bool {
    let path = plug.config["path"].as_str().unwrap_or_default();
    path.contains("${request.")
}

/// Whether some of these proxies has no group of a name that a path needs: then the path can't be made for it.
pub(super) fn lacks_groups(out: &Import, plug: &Plug, proxies: Option<&[usize]>) -> bool {
    let path = plug.config["path"].as_str().unwrap_or_default();
    let names: BTreeSet<&str> = path
        .split("${capture.")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once('}')?.0.split(":-").next().unwrap_or_default()))
        .collect();
    if names.is_empty() {
        return false;
    }
    let has_all = |at: usize| {
        let path = out.proxies.get(at).and_then(|proxy| proxy.get("listen_path")?.as_str());
        path.is_some_and(|path| {
            let has =
                |name: &&str| path.contains(&format!("(?<{name}>")) || path.contains(&format!("(?P<{name}>"));
            names.iter().all(has)
        })
    };
    match proxies {
        Some(proxies) => !proxies.iter().all(|at| has_all(*at)),
        None => !(0..out.proxies.len()).all(has_all),
    }
}

/// A text with `$(headers.x)` and the like as a template.
fn template(path: &str) -> Option<String> {
    let mut made = String::new();
    let mut rest = path;
    while let Some((before, expression)) = rest.split_once("$(") {
        let (expression, after) = expression.split_once(')')?;
        made.push_str(&before.replace('$', "$$"));
        made.push_str(&value(expression)?);
        rest = after;
    }
    made.push_str(&rest.replace('$', "$$"));
    Some(made)
}

/// One value of the request, with the text that stands for one that is missing.
fn value(expression: &str) -> Option<String> {
    let (value, default) = match expression.split_once(" or ") {
        Some((value, default)) => (value.trim(), Some(quoted(default)?)),
        None => (expression.trim(), None),
    };
    let end = value.find(['.', '[']).filter(|end| *end > 0)?;
    let (table, key) = value.split_at(end);
    let name = match key.strip_prefix('.') {
        Some(name) => name,
        None => quoted(key.strip_prefix('[')?.strip_suffix(']')?)?,
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.is_empty() || !name.chars().all(is_plain) {
        return None;
    }
    let value = match table {
        "headers" => format!("request.header.{}", name.replace('_', "-").to_ascii_lowercase()),
        "query_params" => format!("request.query.{name}"),
        "uri_captures" if name.starts_with(|c: char| c.is_ascii_alphabetic()) => format!("capture.{name}"),
        _ => return None,
    };
    Some(match default {
        Some(default) if default.contains(['$', '{', '}']) => return None,
        Some(default) => format!("${{{value}:-{default}}}"),
        None => format!("${{{value}}}"),
    })
}

/// A text in quotes, without them.
fn quoted(text: &str) -> Option<&str> {
    let text = text.trim();
    let inside = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote).filter(|it| !it.contains(quote));
    inside('\'').or_else(|| inside('"'))
}
