//! Changes of headers, as Caddy writes them.

use serde_json::{Value, json};

use super::matchers;
use super::tokens::CaddyLine;

/// The changes of headers of a line or its block.
pub(super) fn header_lines<'l>(line: &'l CaddyLine, words: &[&'l str]) -> Vec<Vec<&'l str>> {
    let mut all: Vec<Vec<&str>> = Vec::new();
    if !words.is_empty() {
        all.push(words.to_vec());
    }
    all.extend(line.inner().iter().map(|inner| inner.words.iter().map(String::as_str).collect()));
    all
}

/// One change of a header. `Some(None)` where nothing is to be done.
pub(super) fn header_rule(words: &[&str], is_request: bool) -> Option<Option<Value>> {
    let (name, rest) = words.split_first()?;
    if *name == "defer" {
        return Some(None);
    }
    if let Some(name) = name.strip_prefix('-') {
        return (!name.contains('*'))
            .then(|| Some(json!({ "operation": "remove", "target": "header", "key": name })));
    }
    let [value] = rest else { return None };
    let value = matchers::template(value)?;
    let (operation, name) = match (name.strip_prefix('+'), name.strip_prefix('?'), name.strip_prefix('>')) {
        (Some(name), ..) => ("append", name),
        (_, Some(name), _) => ("add", name),
        (.., Some(name)) => ("set", name),
        _ => ("set", *name),
    };
    if is_request && name.eq_ignore_ascii_case("host") {
        return None;
    }
    Some(Some(json!({ "operation": operation, "target": "header", "key": name, "value": value })))
}
