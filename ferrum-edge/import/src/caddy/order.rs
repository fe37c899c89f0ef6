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

/// Sorts as Caddy does: neighbours change places until none is before the other. The order does not hold among three, so
/// that the way of sorting counts.
pub(super) fn sort<T>(lines: &mut [(Rank, T)]) {
    lines.sort_by_key(|(rank, _)| rank.position);
    for alike in lines.chunk_by_mut(|(one, _), (other, _)| one.position == other.position) {
        sort_alike(alike);
    }
}

/// The same for directives of one name. Those without a matcher go last. The longer path goes first, but passes no directive
/// whose matcher asks for no path: that one and a path are never before one another.
fn sort_alike<T>(lines: &mut [(Rank, T)]) {
    lines.sort_by_key(|(rank, _)| !rank.has_matcher);
    for paths in lines.split_mut(|(rank, _)| rank.length == 0) {
        paths.sort_by_key(|(rank, _)| Reverse(rank.length));
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

#[cfg(test)]
mod tests {
    use super::{Rank, sort};

    fn is_before(one: Rank, other: Rank) -> bool {
        if one.position != other.position {
            return one.position < other.position;
        }
        if one.length == 0 || other.length == 0 {
            return one.has_matcher && !other.has_matcher;
        }
        one.length > other.length
    }

    /// The order that comes of changing places one by one.
    #[test]
    fn directives_are_in_the_order_of_neighbours_that_change_places() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..2000 {
            let mut rank = || {
                let length = random.usize(..4);
                Rank { position: random.usize(..2), has_matcher: length > 0 || random.bool(), length }
            };
            let mut lines: Vec<(Rank, usize)> = (0..9).map(|n| (rank(), n)).collect();
            let mut expected = lines.clone();
            for n in 1..expected.len() {
                for at in (1..=n).rev() {
                    if !is_before(expected[at].0, expected[at - 1].0) {
                        break;
                    }
                    expected.swap(at, at - 1);
                }
            }
            sort(&mut lines);
            let numbers = |lines: &[(Rank, usize)]| lines.iter().map(|(_, n)| *n).collect::<Vec<_>>();
            assert_eq!(numbers(&lines), numbers(&expected));
        }
    }
}
