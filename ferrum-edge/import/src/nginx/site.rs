//! A server and its locations, for what stands in them.

use serde_json::Value;

use super::asked::Test;
use super::blocks::Directive;
use super::location::{Base, Location, LocationKind, Turn};

/// A server of `http`.
pub(super) struct Site<'d> {
    pub(super) directive: &'d Directive,
    pub(super) place: String,
    pub(super) called: String,
    pub(super) names: Vec<String>,
    pub(super) locations: Vec<Location<'d>>,
    /// Those in the order in which they are looked at.
    pub(super) order: Vec<Turn<'d>>,
    /// Hosts and scheme of each kind of request that comes here, as keys of a match.
    pub(super) facets: Vec<Value>,
    pub(super) http: &'d Directive,
    /// By how much its proxies go before those of others.
    pub(super) lift: i64,
}

/// How far requests have come in a server's directives.
#[derive(Clone, Copy)]
pub(super) struct ScriptPlace<'d, 'w> {
    pub(super) site: &'w Site<'d>,
    /// The requests.
    pub(super) base: &'w Base,
    /// The blocks that they are in, from the outermost.
    pub(super) levels: &'w [&'d Directive],
    /// How often their path was rewritten.
    pub(super) jumps: usize,
}

impl<'d, 'w> ScriptPlace<'d, 'w> {
    /// The way of some of its requests.
    pub(super) fn of(self, base: &'w Base) -> Self {
        Self { base, ..self }
    }
}

impl<'d> Site<'d> {
    /// Where a path that begins so goes, for a rewrite that looks for another location. `None` when more than one may take it.
    pub(super) fn led_to(&self, path: &str, is_whole: bool) -> Option<&Location<'d>> {
        let fits = |location: &&&Location<'d>| match &location.way {
            LocationKind::Exact(own) => is_whole && own == path,
            LocationKind::Prefix(own) => path.starts_with(own.as_str()),
            _ => false,
        };
        let all: Vec<&Location<'d>> = self.locations.iter().collect();
        let exact = all.iter().filter(fits).find(|it| matches!(it.way, LocationKind::Exact(_)));
        if let Some(exact) = exact {
            return Some(exact);
        }
        let length = |location: &Location<'d>| match &location.way {
            LocationKind::Prefix(own) => own.len(),
            _ => 0,
        };
        let best = *all.iter().filter(fits).max_by_key(|location| length(location))?;
        // A path that goes on may be a longer location's, or a regex's.
        let may_be_other = all.iter().any(|other| match &other.way {
            LocationKind::Exact(own) | LocationKind::Prefix(own) => {
                !is_whole && own.len() > path.len() && own.starts_with(path)
            }
            LocationKind::Regex(regex, ignores) if is_whole => Test::Regex(regex, *ignores).fits_text(path),
            LocationKind::Regex(regex, ignores) => may_begin(regex, *ignores, path),
            LocationKind::Named(_) => false,
        });
        let has_regexes = all.iter().any(|it| matches!(it.way, LocationKind::Regex(..)));
        let is_sure = !may_be_other
            || best.before_regexes && has_regexes && {
                !all.iter().any(|other| {
                    matches!(&other.way, LocationKind::Exact(own) | LocationKind::Prefix(own)
                if !is_whole && own.len() > path.len() && own.starts_with(path))
                })
            };
        (is_sure && best.inner.is_empty()).then_some(best)
    }
}

/// Whether a regex may fit paths that begin so: one whose beginning is known to be another one does not.
fn may_begin(regex: &str, ignores_case: bool, path: &str) -> bool {
    let Some(inner) = regex.strip_prefix('^').filter(|_| !ignores_case && !regex.contains('|')) else {
        return true;
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '%' | '~');
    let mut known: String = inner.chars().take_while(|c| is_plain(*c)).collect();
    // The last letter may be optional.
    if inner.strip_prefix(&*known).is_some_and(|rest| rest.starts_with(['?', '*', '{'])) {
        known.pop();
    }
    known.starts_with(path) || path.starts_with(&known)
}
