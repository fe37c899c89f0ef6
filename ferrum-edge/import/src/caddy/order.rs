//! The order in which Caddy runs the directives of a site.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::rc::Rc;

use super::tokens::CaddyLine;

/// What Caddy sorts directives by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rank {
    pub(super) position: usize,
    pub(super) has_matcher: bool,
    /// Of the first path that its matcher asks for; 0 where it asks for none.
    pub(super) length: usize,
}

impl Rank {
    fn is_before(self, other: Self) -> bool {
        if self.position != other.position {
            return self.position < other.position;
        }
        if self.length == 0 || other.length == 0 {
            return self.has_matcher && !other.has_matcher;
        }
        self.length > other.length
    }
}

/// Sorts as Caddy does: neighbours change places until none is before the other. The order does not hold among three, so
/// that the way of sorting counts.
pub(super) fn sort(lines: &mut [(Rank, &CaddyLine)]) {
    lines.sort_by_key(|(rank, _)| rank.position);
    for alike in lines.chunk_by_mut(|(one, _), (other, _)| one.position == other.position) {
        // Where all of them ask for a path, or none does, the order holds among three.
        if alike.iter().all(|(rank, _)| rank.length > 0) {
            alike.sort_by_key(|(rank, _)| Reverse(rank.length));
        } else if alike.iter().all(|(rank, _)| rank.length == 0) {
            alike.sort_by_key(|(rank, _)| !rank.has_matcher);
        } else {
            sort_alike(alike);
        }
    }
}

/// The same for directives of one name.
fn sort_alike(lines: &mut [(Rank, &CaddyLine)]) {
    for n in 1..lines.len() {
        let mut at = n;
        while at > 0 && lines[at].0.is_before(lines[at - 1].0) {
            lines.swap(at, at - 1);
            at -= 1;
        }
    }
}

/// What Caddy compares to make one route of two neighbours: their group, and their matcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Neighbour {
    group: &'static str,
    matcher: Vec<String>,
}

/// Which directives have a group of their own: of its routes, a request takes one.
pub(super) struct Neighbours {
    has_handles: bool,
    has_roots: bool,
}

impl Neighbours {
    pub(super) fn new(lines: &[&CaddyLine]) -> Self {
        let several = |is: &dyn Fn(&CaddyLine) -> bool| lines.iter().filter(|line| is(line)).count() > 1;
        Self { has_handles: several(&is_block), has_roots: several(&|line| line.name() == "root") }
    }

    /// What a line is compared by; nothing where Caddy makes other routes of it.
    pub(super) fn neighbour(
        &self,
        line: &CaddyLine,
        named: &HashMap<String, Rc<CaddyLine>>,
    ) -> Option<Neighbour> {
        let group = match line.name() {
            "try_files" | "php_fastcgi" | "acme_server" => return None,
            "rewrite" => "rewrite",
            "root" if self.has_roots => "root",
            _ if is_block(line) && self.has_handles => "handle",
            _ => "",
        };
        let is_lone = line.arguments().len() == 1 && matches!(line.name(), "redir" | "rewrite" | "root");
        let matcher = match line.word(1) {
            path if path.starts_with('/') && !is_lone => vec![format!("path {path}")],
            name if name.starts_with('@') => asked(named.get(name)?),
            _ => Vec::new(),
        };
        Some(Neighbour { group, matcher })
    }
}

/// What a named matcher asks, however it is written.
fn asked(set: &CaddyLine) -> Vec<String> {
    if set.words.len() > 1 {
        return vec![spelled(set.arguments(), set.inner())];
    }
    let mut lines: Vec<String> = set.inner().iter().map(|line| spelled(&line.words, line.inner())).collect();
    lines.sort();
    lines
}

fn spelled(words: &[String], inner: &[CaddyLine]) -> String {
    let mut made = words.join(" ");
    for line in inner {
        made.push('\n');
        made.push_str(&spelled(&line.words, line.inner()));
    }
    made
}

/// Whether it is a `handle`, or a `handle_path`, which Caddy treats alike.
pub(super) fn is_block(line: &CaddyLine) -> bool {
    matches!(line.name(), "handle" | "handle_path")
}

/// Whether a directive without its matcher can be left out without harm.
pub(super) fn is_harmless(name: &str) -> bool {
    matches!(
        name,
        "header"
            | "encode"
            | "log"
            | "push"
            | "skip_log"
            | "log_skip"
            | "templates"
            | "tracing"
            | "map"
            | "vars"
    )
}
