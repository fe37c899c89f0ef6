//! Prefixes that are taken away from paths: `handle_path`, `uri strip_prefix`, and `strip_path_prefix` of the JSON.

use super::Caddy;
use crate::changed::{RequestChange, before_changes};
use crate::cond::Cond;
use crate::draft::{Matcher, Plug, Replaced, Rewrite, draft};
use crate::report::At;
use crate::steps::{RouteEnd, RouteStep};
use crate::text;

/// The requests of a directive, and what directives before it changed about them.
pub(super) struct StripScope<'c> {
    pub(super) cond: Cond,
    pub(super) changes: &'c [RequestChange],
}

impl Caddy<'_> {
    /// Takes a prefix away, whatever its case. What goes on behind it within a segment is answered 400: Caddy sends targets a
    /// path without a slash then, which few of them take.
    pub(super) fn strip(
        &mut self,
        at: At,
        what: &str,
        prefix: &str,
        way: StripScope<'_>,
        steps: &mut Vec<RouteStep>,
    ) {
        let StripScope { cond, changes } = way;
        let prefix = with_slash(prefix);
        if !self.is_whole(&prefix, changes) {
            let half = Cond::path_is(Matcher::regex(format!("(?i){}[^/].*", text::literal(&prefix))));
            match before_changes(half, changes) {
                Some(half) => {
                    steps.push(RouteStep::End(cond.clone().and(half), RouteEnd::answer(at, 400, "")))
                }
                None => {
                    let why = "what is left of a path begins with a slash, also where the prefix ends within a segment";
                    self.out.partial(at, what, why, "");
                }
            }
        }
        let from = format!("(?i)^{}/?(.*)$", text::literal(&prefix));
        let config = draft!(Rewrite { regex: [draft!(Replaced { from, to: "/${1}" })] });
        steps.push(RouteStep::Pass(cond, Plug::of(config)));
    }

    /// Whether all paths that get here with this prefix have a slash behind it, or nothing.
    fn is_whole(&self, prefix: &str, changes: &[RequestChange]) -> bool {
        let is_below = |way: &String| {
            let start = way.split('*').next().unwrap_or_default();
            let start = start.get(..prefix.len() + 1);
            start.is_some_and(|start| start.eq_ignore_ascii_case(&format!("{prefix}/")))
        };
        !changes.iter().any(|change| change.what.is_of_path()) && self.ways.iter().any(is_below)
    }
}

/// A prefix as Caddy takes it: with a slash before it, and none behind it.
pub(super) fn with_slash(prefix: &str) -> String {
    format!("/{}", prefix.trim_matches('/'))
}
