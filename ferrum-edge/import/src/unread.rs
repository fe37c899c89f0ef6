//! What no importer has looked at. Each value of a tree knows whether it was asked for; what was not is named in the report, so
//! that nothing of an original is dropped without a word.

use crate::draft::Import;
use crate::tree::{Node, NodeValue};

/// Names all keys of a document that nobody asked for. `silent` are keys that say nothing about traffic, each alone (`tags`) or
/// with those above it (`metadata.labels`).
pub(crate) fn name(out: &mut Import, place: &str, document: &Node, silent: &[&str]) {
    let mut walk = Walk { out, silent, place, trail: Vec::new() };
    walk.below(document);
}

struct Walk<'w> {
    out: &'w mut Import,
    silent: &'w [&'w str],
    place: &'w str,
    trail: Vec<String>,
}

impl Walk<'_> {
    fn below(&mut self, node: &Node) {
        match &node.value {
            NodeValue::Map(_) => self.map(node),
            NodeValue::List(_) => self.list(node),
            _ => {}
        }
    }

    fn map(&mut self, node: &Node) {
        let entries = node.all_entries();
        // It was left out as a whole, and the report says so.
        if !entries.iter().any(|(_, value)| value.is_seen()) && self.out.report.names(node.at) {
            return;
        }
        for (key, value) in entries {
            self.trail.push(key.clone());
            if value.is_seen() {
                self.below(value);
            } else if !self.is_silent() && !says_nothing(value) {
                self.tell(value);
            }
            self.trail.pop();
        }
    }

    fn list(&mut self, node: &Node) {
        for (number, item) in node.all_items().iter().enumerate() {
            // A list within a map that was looked at, and no further, was noted with its map.
            if item.is_seen() {
                self.trail.push(format!("[{number}]"));
                self.below(item);
                self.trail.pop();
            }
        }
        let is_unread = node.all_items().iter().any(|item| !item.is_seen() && !says_nothing(item));
        if is_unread && !self.is_silent() && !self.out.report.names(node.at) {
            self.tell(node);
        }
    }

    fn tell(&mut self, node: &Node) {
        let mut what = self.place.to_owned();
        for part in &self.trail {
            let dot = if what.is_empty() || part.starts_with('[') { "" } else { "." };
            what.push_str(dot);
            what.push_str(part);
        }
        self.out.not_converted(node.at, what, "the importer does not read this", "");
    }

    /// Whether the key at the end of the trail says nothing about traffic.
    fn is_silent(&self) -> bool {
        self.silent.iter().any(|pattern| {
            let mut keys = self.trail.iter().rev().filter(|part| !part.starts_with('['));
            pattern.rsplit('.').all(|part| keys.next().is_some_and(|key| key == part || part == "*"))
        })
    }
}

/// Whether a value says nothing, as dumps have it for what was not set.
fn says_nothing(node: &Node) -> bool {
    match &node.value {
        NodeValue::Null => true,
        NodeValue::Text(text) => text.is_empty(),
        NodeValue::List(list) => list.iter().all(says_nothing),
        NodeValue::Map(entries) => entries.iter().all(|(_, value)| says_nothing(value)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::tree;

    fn named(text: &str, read: impl FnOnce(&mut Import, &Node)) -> Vec<String> {
        let mut out = Import::new(Options::default());
        let file = out.report.file("f");
        let document = tree::one("f", file, text).expect("a document");
        read(&mut out, &document);
        let said = out.report.losses().count();
        name(&mut out, "x", &document, &["id", "meta.*"]);
        out.report.losses().skip(said).map(|finding| format!("{} {}", finding.line, finding.what)).collect()
    }

    #[test]
    fn what_nobody_asked_for_is_named() {
        let text = "a: 1\nb: {c: 2, id: 7, e: [], f: {g: null}}\nl:\n  - {h: 1, i: 2}\n  - j\nmeta: {k: 1}\n";
        let some = named(text, |_, document| {
            document.get("a");
            document.path(&["b", "c"]);
            document.each("l")[0].get("h");
            document.get("meta");
        });
        assert_eq!(some, ["4 x.l[0].i"]);
        let all = named(text, |_, _| {});
        assert_eq!(all, ["1 x.a", "2 x.b", "3 x.l", "6 x.meta"]);
    }

    #[test]
    fn what_the_report_names_as_a_whole_is_not_named_again() {
        let text = "a: {b: {c: 1}, d: 2}";
        let lost = |read: &'static [&'static str]| {
            named(text, move |out, document| {
                let node = document.get("a").expect("it is there");
                out.not_converted(node.at, "a", "no", "");
                read.iter().for_each(|key| assert!(node.get(key).is_some()));
            })
        };
        assert_eq!(lost(&[]), [""; 0]);
        assert_eq!(lost(&["d"]), ["1 x.a.b"]);
    }

    #[test]
    fn copies_share_what_was_read() {
        let text = "a: {b: 1, c: 2}";
        let left = named(text, |_, document| {
            let copy = document.get("a").cloned().expect("it is there");
            copy.get("b");
        });
        assert_eq!(left, ["1 x.a.c"]);
    }
}
