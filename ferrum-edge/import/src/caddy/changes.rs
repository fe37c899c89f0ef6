//! What Caddy's directives and handlers change about a request, for the matchers behind them.

use super::headers::{header_lines, header_rule};
use super::sites::Scope;
use super::tokens::CaddyLine;
use super::{Caddy, matchers};
use crate::changed::What;
use crate::draft::{Replaced, Rewrite, draft};
use crate::tree::Node;

impl Caddy<'_> {
    /// Reports placeholders of what directives before changed: here they stand for what the client sent.
    pub(super) fn report_changed_placeholders(&mut self, line: &CaddyLine, scope: &Scope) {
        let texts = spelled(line);
        let is_changed = |text: &String| {
            let made = matchers::template(text);
            made.is_some_and(|made| scope.changes.are_in(&made))
        };
        // A new path before the path as it is by then is known.
        let is_known = line.name() == "uri"
            || line.name() == "rewrite" && line.words.last().is_some_and(|to| prepended(to).is_some());
        if !is_known && let Some(text) = texts.iter().find(|text| is_changed(text)) {
            let why =
                format!("directives before it change what `{text}` names; here it is what the client sent");
            self.out.partial(line.at, line.text(), why, "");
        }
    }
}

/// All words of a line and of its block.
fn spelled(line: &CaddyLine) -> Vec<String> {
    let inner = line.inner().iter().filter(|_| !matches!(line.name(), "handle" | "handle_path" | "route"));
    line.words.iter().cloned().chain(inner.flat_map(spelled)).collect()
}

/// What `request_header` changes; nothing where it is another directive.
pub(super) fn changed_headers(line: &CaddyLine, words: &[&str]) -> Vec<What> {
    if line.name() != "request_header" {
        return Vec::new();
    }
    let changed = |words: Vec<&str>| {
        let rule = header_rule(&words, true).flatten();
        let unknown = || {
            let name = words.first().copied().unwrap_or_default();
            let is_wide = name.starts_with("-*");
            let name = name.trim_start_matches(['+', '-', '>', '?']).to_ascii_lowercase();
            What::AnyHeader(if is_wide { "*".to_owned() } else { name })
        };
        rule.and_then(|rule| What::of_rule(&rule.into())).unwrap_or_else(unknown)
    };
    header_lines(line, words).into_iter().map(changed).collect()
}

/// What a new path puts before the path as it is by then.
fn put_before(path: &str) -> Option<&str> {
    let own = ["{path}", "{uri}", "{http.request.uri.path}", "{http.request.uri}"];
    let before = own.iter().find_map(|own| path.strip_suffix(own))?;
    Some(before).filter(|it| it.starts_with('/') && !it.contains('{'))
}

/// The same as settings of `rewrite`: a template would have the path that the client sent.
pub(super) fn prepended(path: &str) -> Option<Rewrite> {
    let to = format!("{}${{1}}", put_before(path)?.replace('$', "$$"));
    Some(draft!(Rewrite { regex: [draft!(Replaced { from: "^(.*)$", to })] }))
}

/// What `rewrite` and `uri` change.
pub(super) fn changed_target(name: &str, words: &[&str]) -> Vec<What> {
    match (name, words) {
        ("rewrite", [to]) => {
            let path = to.split('?').next().unwrap_or_default();
            if let Some(before) = put_before(path) {
                let query = to.contains('?').then_some(What::AnyQuery);
                return std::iter::once(What::Prepend(before.to_owned())).chain(query).collect();
            }
            let path = match path.contains('{') || !path.starts_with('/') {
                // `?a=b` alone leaves the path.
                _ if path.is_empty() => None,
                true => Some(What::AnyPath),
                false => Some(What::Path(path.to_owned())),
            };
            path.into_iter().chain(to.contains('?').then_some(What::AnyQuery)).collect()
        }
        ("uri", ["strip_prefix", prefix]) => {
            let prefix = format!("/{}", prefix.trim_matches('/'));
            vec![What::Strip { prefix, sure: false }]
        }
        _ => vec![What::AnyPath, What::AnyQuery],
    }
}

/// What `try_files` changes: the path becomes the first of these that is a file.
pub(super) fn changed_by_tries(words: &[&str]) -> What {
    let is_other = |it: &&&str| !matches!(**it, "{path}" | "{path}/") && !it.starts_with('=');
    What::Fallback(words.iter().filter(is_other).map(|it| (*it).to_owned()).collect())
}

/// What a handler `rewrite` of the JSON changes.
pub(super) fn changed_by_rewrite(handler: &Node) -> Vec<What> {
    let mut made = Vec::new();
    for (key, value) in handler.entries() {
        match (key.as_str(), value.str()) {
            ("handler", _) => {}
            ("uri", Some(uri)) => made.extend(changed_target("rewrite", &[uri])),
            ("strip_path_prefix", Some(prefix)) if !prefix.contains('{') => {
                made.extend(changed_target("uri", &["strip_prefix", prefix]));
            }
            ("method", Some(method)) => made.push(What::Method(method.to_ascii_uppercase())),
            _ => made.extend([What::AnyPath, What::AnyQuery]),
        }
    }
    made
}

/// What a handler `headers` of the JSON changes about requests.
pub(super) fn changed_by_headers(request: &Node) -> Vec<What> {
    let mut made = Vec::new();
    for name in request.texts("delete") {
        let name = name.to_ascii_lowercase();
        made.push(match (name.contains('*'), name.starts_with('*')) {
            (false, _) => What::NoHeader(name),
            (_, true) => What::AnyHeader("*".to_owned()),
            (_, false) => What::AnyHeader(name),
        });
    }
    for key in ["set", "add", "replace"] {
        for (name, values) in request.get(key).map_or(&[][..], Node::entries) {
            let name = name.to_ascii_lowercase();
            let value = values.items().first().and_then(Node::str).filter(|it| !it.contains('{'));
            made.push(match value {
                Some(value) if key == "set" && values.items().len() == 1 => {
                    What::Header(name, value.to_owned())
                }
                _ => What::AnyHeader(name),
            });
        }
    }
    made
}
