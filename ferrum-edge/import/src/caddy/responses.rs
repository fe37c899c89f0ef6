//! What Caddy's directives do with headers and responses on their way.

use serde_json::{Value, json};

use super::headers::{header_lines, header_rule};
use super::tokens::CaddyLine;
use super::{Caddy, matchers};
use crate::draft::{Plug, To};
use crate::report::At;
use crate::steps::RouteEnd;

impl Caddy<'_> {
    /// `handle_errors [STATUS…] { respond BODY }`: a page for errors. Anything else in it guards nothing, and is left out.
    pub(super) fn errors(&mut self, line: &CaddyLine, words: &[&str]) -> Option<Plug> {
        let body = match line.inner() {
            [one] if one.name() == "respond" && one.block.is_none() => match one.arguments() {
                [body] if !body.starts_with(['/', '@', '*']) && body.parse::<u16>().is_err() => page(body),
                _ => None,
            },
            _ => None,
        };
        let is_status = |word: &&str| {
            let word = word.replace("xx", "00");
            word.parse::<u16>().is_ok_and(|status| (400..600).contains(&status))
        };
        let Some(body) = body.filter(|_| words.iter().all(is_status)) else {
            let why = "errors keep the gateway's own pages";
            self.out.lost(line.at, line.text(), why, "use the plugin `error_pages`");
            return None;
        };
        let why = "answers of `respond` without a body get this page, too";
        self.out.partial(line.at, line.text(), why, "see the plugin `error_pages`");
        let status = if words.is_empty() { "400-599".to_owned() } else { words.join(",") };
        let page = json!({ "status": status, "content_type": "text/plain; charset=utf-8", "body": body });
        Some(Plug::new("error_pages", json!({ "of": "gateway", "pages": [page] })))
    }
}

/// A body with the placeholders for an error; `None` when one of them has no counterpart.
fn page(body: &str) -> Option<String> {
    let marked = ["{err.status_code}", "{http.error.status_code}"]
        .iter()
        .fold(body.to_owned(), |body, name| body.replace(name, "\u{1}"));
    let made = matchers::template(&marked.replace("${", "$${"))?;
    Some(made.replace('\u{1}', "${response.status}"))
}

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
    Plug::new("compression", json!({ "algorithms": known, "min_content_length": 512 }))
}

/// `header [+-?]NAME [VALUE]`, in one line or a block, as rules; says how many have no counterpart.
pub(super) fn header_rules(line: &CaddyLine, words: &[&str], is_request: bool) -> (Vec<Value>, usize) {
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

/// An answer with a body, whose media type Caddy takes from what it looks like.
pub(super) fn fixed(at: At, status: u16, body: &str) -> RouteEnd {
    let text = body.trim();
    let wrapped =
        text.starts_with('{') && text.ends_with('}') || text.starts_with('[') && text.ends_with(']');
    if wrapped && serde_json::from_str::<Value>(text).is_ok() {
        return RouteEnd::new(at, To::Answer(status, "application/json".to_owned(), body.to_owned()));
    }
    RouteEnd::answer(at, status, body)
}
