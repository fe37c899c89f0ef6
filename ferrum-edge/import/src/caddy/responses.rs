//! What Caddy's directives do with headers and responses on their way.

use serde_json::Value;

use super::headers::{header_lines, header_rule};
use super::tokens::CaddyLine;
use crate::draft::{Compression, HeaderRule, Plug, To, draft};
use crate::report::At;
use crate::steps::RouteEnd;

/// Settings of `compression`.
pub(super) fn encode(words: &[&str]) -> Plug {
    let known: Vec<&str> = words
        .iter()
        .filter_map(|word| match *word {
            "gzip" => Some("gzip"),
            "zstd" => Some("zstd"),
            "br" => Some("br"),
            _ => None,
        })
        .collect();
    let known = if known.is_empty() { vec!["zstd", "gzip"] } else { known };
    Plug::of(draft!(Compression { algorithms: known, min_content_length: 512 }))
}

/// `header [+-?]NAME [VALUE]`, in one line or a block, as rules; says how many have no counterpart.
pub(super) fn header_rules(line: &CaddyLine, words: &[&str], is_request: bool) -> (Vec<HeaderRule>, usize) {
    let all = header_lines(line, words);
    let (mut rules, mut bad) = (Vec::new(), 0);
    for words in all {
        match header_rule(&words, is_request) {
            Some(Some(rule)) => rules.push(rule),
            Some(None) => {}
            None => bad += 1,
        }
    }
    (rules, bad)
}

/// An answer with a body, whose media type Caddy takes from what it looks like; `page` is the same as a template.
pub(super) fn fixed(at: At, status: u16, body: &str, page: Option<String>) -> RouteEnd {
    let text = body.trim();
    let wrapped =
        text.starts_with('{') && text.ends_with('}') || text.starts_with('[') && text.ends_with(']');
    if wrapped && serde_json::from_str::<Value>(text).is_ok() {
        return RouteEnd::new(at, To::Answer(status, "application/json".to_owned(), body.to_owned()));
    }
    match page {
        Some(page) => RouteEnd::new(at, To::Page(status, "text/plain; charset=utf-8".to_owned(), page)),
        None => RouteEnd::answer(at, status, body),
    }
}
