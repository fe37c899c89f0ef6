//! Changes of headers, as Caddy writes them.

use super::matchers;
use super::tokens::CaddyLine;
use crate::draft::{HeaderRule, Replacement, draft};
use crate::text;
use crate::tree::Node;

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
pub(super) fn header_rule(words: &[&str], is_request: bool) -> Option<Option<HeaderRule>> {
    let (name, rest) = words.split_first()?;
    if *name == "defer" {
        return Some(None);
    }
    if let Some(name) = name.strip_prefix('-') {
        return (!name.contains('*'))
            .then(|| Some(draft!(HeaderRule { operation: "remove", target: "header", key: name })));
    }
    if let [find, with] = rest {
        // Caddy reads no sign before the name of a field in which it replaces.
        let is_plain =
            !(name.starts_with(['+', '?', '>']) || is_request && name.eq_ignore_ascii_case("host"));
        let one = replacement(find, with).filter(|_| is_plain)?;
        return Some(Some(replace_rule(name, one)));
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
    Some(Some(draft!(HeaderRule { operation, target: "header", key: name, value })))
}

/// Changes of headers as rules; says how many have no counterpart.
pub(super) fn header_changes(node: &Node) -> (Vec<HeaderRule>, usize) {
    let (mut rules, mut bad) = (Vec::new(), 0);
    for name in node.texts("delete") {
        rules.push(draft!(HeaderRule { operation: "remove", target: "header", key: name }));
    }
    for (theirs, operation) in [("set", "set"), ("add", "append")] {
        for (name, values) in node.get(theirs).map_or(&[][..], Node::entries) {
            for value in values.items().iter().filter_map(Node::str) {
                match matchers::template(value) {
                    Some(value) => {
                        rules.push(draft!(HeaderRule { operation, target: "header", key: name, value }))
                    }
                    None => bad += 1,
                }
            }
        }
    }
    for (name, list) in node.get("replace").map_or(&[][..], Node::entries) {
        for one in list.items() {
            let text = |key: &str| one.get(key).and_then(Node::str);
            let with = text("replace").unwrap_or_default();
            let made = match (text("search_regexp"), text("search")) {
                (Some(find), _) => replacement(find, with),
                // A plain text has no groups.
                (None, Some(find)) => replacement(&text::literal(find), &with.replace('$', "$$")),
                (None, None) => None,
            };
            match made.filter(|_| name != "*") {
                Some(made) => rules.push(replace_rule(name, made)),
                None => bad += 1,
            }
        }
    }
    (rules, bad)
}

/// A rule that replaces a part of a field.
fn replace_rule(name: &str, one: Replacement) -> HeaderRule {
    draft!(HeaderRule { operation: "replace", target: "header", key: name, replacements: [one] })
}

/// A regex and what takes the place of its matches, in the notation of Go: `$1`, `${name}`, and `$$` for the sign itself.
fn replacement(find: &str, with: &str) -> Option<Replacement> {
    if matchers::has_placeholders(find) || find.is_empty() {
        return None;
    }
    let regex = regex::RegexBuilder::new(find).size_limit(1 << 20).build().ok()?;
    let mut made = String::new();
    let mut rest = with;
    while let Some((before, after)) = rest.split_once('$') {
        made.push_str(&matchers::template(before)?);
        if let Some(after) = after.strip_prefix('$') {
            made.push_str("$$");
            rest = after;
            continue;
        }
        let (name, tail) = match after.strip_prefix('{') {
            Some(inner) => inner.split_once('}')?,
            None => {
                let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
                after.split_at(end)
            }
        };
        let is_group = match name.parse::<usize>() {
            Ok(index) => index < regex.captures_len(),
            Err(_) => regex.capture_names().flatten().any(|known| known == name),
        };
        // A group that the regex lacks is empty.
        match (is_group, name.is_empty()) {
            (true, _) => made.push_str(&format!("${{match.{name}}}")),
            (false, true) => made.push_str("$$"),
            (false, false) => {}
        }
        rest = tail;
    }
    made.push_str(&matchers::template(rest)?);
    Some(draft!(Replacement { pattern: find, with: made }))
}
