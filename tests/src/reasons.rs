//! One vocabulary of reasons: the table contains every code with which the sources reject, answer or end something.

use std::collections::BTreeSet;

use ferrum_edge::core::http::reply::Cause;
use ferrum_edge::core::reason;

use crate::tidy::sources;

/// The text before a code in the sources. After a `(` at the end, white space may follow.
const SITES: &[&str] = &[
    ".reason(\"",
    ".hidden_reason(\"",
    "reason: \"",
    "reason: Some(\"",
    "Gate::refuse(\"",
    "return refuse(\"",
    "Refusal::new(\"",
    "cut.note(\"",
    ".end(key, \"",
    "Dead = \"",
    "KEY_MISSING: &str = \"",
    "concurrent: \"",
    "EXHAUSTED: &str = \"",
    "EXPIRED: &str = \"",
];

fn words(text: &str) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    // Rustfmt may break the line after a parenthesis.
    let text =
        text.replace("(\n", "(").split_whitespace().collect::<Vec<_>>().join(" ").replace("( \"", "(\"");
    for site in SITES {
        for (at, _) in text.match_indices(site) {
            let rest = text.get(at + site.len()..).unwrap_or_default();
            let word = rest.split('"').next().unwrap_or_default();
            if !word.is_empty() && word.bytes().all(|c| c.is_ascii_lowercase() || c == b'_') {
                words.insert(word.to_owned());
            }
        }
    }
    words
}

fn is_known(word: &str) -> bool {
    reason::of(word).is_some() || Cause::ALL.iter().any(|cause| cause.reason() == word)
}

#[test]
fn every_refusal_has_its_word_in_the_table() {
    let is_ours = |path: &str| {
        ["gateway-core/src", "gateway-protocols/src", "gateway-plugins/"]
            .iter()
            .any(|room| path.starts_with(room))
            && !path.contains("/examples/")
            && !path.contains("/testing")
    };
    let mut found = 0;
    let mut unknown = Vec::new();
    for source in sources().iter().filter(|source| is_ours(&source.path) && !source.is_test()) {
        for word in words(source.production()) {
            found += 1;
            if !is_known(&word) {
                unknown.push(format!("{}: {word}", source.path));
            }
        }
    }
    assert!(found > 80, "only {found} sites were found: the search is broken");
    assert!(unknown.is_empty(), "add them to gateway-core/src/reason.rs: {unknown:#?}");
}

#[test]
fn every_word_of_the_table_is_used() {
    let sources = sources();
    let is_used = |word: &str| {
        let literal = format!("\"{word}\"");
        let table = "gateway-core/src/reason.rs";
        sources
            .iter()
            .any(|source| source.path != table && !source.is_test() && source.production().contains(&literal))
    };
    let unused: Vec<_> =
        reason::REASONS.iter().map(|reason| reason.word).filter(|word| !is_used(word)).collect();
    assert!(unused.is_empty(), "{unused:?}");
}

/// Every setting in the table must exist in the reference.
#[test]
fn every_setting_of_the_table_exists() {
    let schema = ferrum_edge::core::config::file::File::schema().as_value().to_string();
    let plugins = ferrum_edge::plugins();
    let is_there = |setting: &str| {
        let mut parts = setting.split('.');
        let first = parts.next().unwrap_or_default();
        let last = parts.next_back();
        let of_plugin = plugins.entries().iter().find(|entry| entry.name == first);
        match (of_plugin, last) {
            (Some(entry), Some(last)) => {
                (entry.schema)().as_value().to_string().contains(&format!("\"{last}\""))
            }
            (Some(_), None) => true,
            (None, last) => schema.contains(&format!("\"{}\"", last.unwrap_or(first))),
        }
    };
    let table = reason::REASONS.iter().map(|reason| (reason.word, reason.setting));
    let causes = Cause::ALL.iter().map(|cause| (cause.reason(), cause.setting()));
    let missing: Vec<_> = table.chain(causes).filter(|(_, s)| !s.is_empty() && !is_there(s)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
