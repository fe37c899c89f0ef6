//! The order in which Caddy runs the directives of a site.

use super::tokens::Line;

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
pub(super) fn sort(lines: &mut [(Rank, &Line)]) {
    for n in 1..lines.len() {
        let mut at = n;
        while at > 0 && lines[at].0.is_before(lines[at - 1].0) {
            lines.swap(at, at - 1);
            at -= 1;
        }
    }
}

/// Whether Caddy makes one block of two neighbours: they have the same matcher.
pub(super) fn is_joined(previous: &Line, line: &Line) -> bool {
    matches!(line.name(), "handle" | "handle_path") && previous.words == line.words
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
