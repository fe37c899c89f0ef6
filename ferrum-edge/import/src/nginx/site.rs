//! A server and its locations, for what stands in them.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use super::asked::Test;
use super::blocks::Directive;
use super::location::{Base, Location, LocationKind, Turn};
use crate::draft::Match;

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
    pub(super) facets: Vec<Match>,
    pub(super) http: &'d Directive,
    /// By how much its proxies go before those of others.
    pub(super) lift: i64,
    pub(super) index: LocationIndex<'d>,
    pub(super) turns: TurnIndex,
}

/// The places of turns in their order, by the paths that they take.
#[derive(Default)]
pub(super) struct TurnIndex {
    /// By a path, without slashes at its end.
    by_path: BTreeMap<String, Vec<usize>>,
    by_regex: Vec<usize>,
}

impl TurnIndex {
    pub(super) fn new(order: &[Turn<'_>]) -> Self {
        let mut made = Self::default();
        for (place, turn) in order.iter().enumerate() {
            match &turn.way {
                LocationKind::Exact(path) | LocationKind::Prefix(path) if !turn.levels.is_empty() => {
                    made.by_path.entry(path.trim_end_matches('/').to_owned()).or_default().push(place);
                }
                _ => made.by_regex.push(place),
            }
        }
        made
    }

    /// Those that may take paths which begin so, in their order.
    pub(super) fn of_start(&self, start: &str) -> Vec<usize> {
        let ends = (0..start.len()).filter_map(|end| self.by_path.get(start.get(..end)?));
        let longer = self.by_path.range::<str, _>((Bound::Included(start), Bound::Unbounded));
        let longer = longer.take_while(|(path, _)| path.starts_with(start)).map(|(_, places)| places);
        let mut made: Vec<usize> = ends.chain(longer).chain([&self.by_regex]).flatten().copied().collect();
        made.sort_unstable();
        made
    }
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

/// The locations of a server by their paths.
#[derive(Default)]
pub(super) struct LocationIndex<'d> {
    /// Those on the outermost level, by the order of their paths.
    outer: BTreeMap<String, Vec<Location<'d>>>,
    /// All by their paths, those within others as well.
    all: HashMap<String, Vec<Location<'d>>>,
    regexes: Vec<Location<'d>>,
}

impl<'d> LocationIndex<'d> {
    pub(super) fn new(locations: &[Location<'d>]) -> Self {
        let mut made = Self::default();
        for location in locations {
            match &location.way {
                LocationKind::Exact(path) | LocationKind::Prefix(path) => {
                    made.outer.entry(path.clone()).or_default().push(location.clone());
                }
                LocationKind::Regex(..) => made.regexes.push(location.clone()),
                LocationKind::Named(_) => {}
            }
        }
        for location in with_inner(locations) {
            if let LocationKind::Exact(path) | LocationKind::Prefix(path) = &location.way {
                made.all.entry(path.clone()).or_default().push(location.clone());
            }
        }
        made
    }

    /// Those with exactly this path, those within others as well.
    pub(super) fn of_path(&self, path: &str) -> &[Location<'d>] {
        self.all.get(path).map_or(&[], Vec::as_slice)
    }

    /// Those on the outermost level with exactly this path.
    pub(super) fn of_outer_path(&self, path: &str) -> &[Location<'d>] {
        self.outer.get(path).map_or(&[], Vec::as_slice)
    }

    /// Whether one's path begins with this one, and goes on.
    fn has_longer(&self, path: &str) -> bool {
        let behind = (Bound::Excluded(path), Bound::Unbounded);
        self.outer.range::<str, _>(behind).next().is_some_and(|(own, _)| own.starts_with(path))
    }
}

/// Locations, and then those within them.
pub(super) fn with_inner<'l, 'd>(locations: &'l [Location<'d>]) -> Vec<&'l Location<'d>> {
    let mut made: Vec<&Location<'d>> = locations.iter().collect();
    let mut at = 0;
    while let Some(location) = made.get(at).copied() {
        made.extend(&location.inner);
        at += 1;
    }
    made
}

impl<'d> Site<'d> {
    /// All locations, those within others as well.
    pub(super) fn all_locations(&self) -> Vec<&Location<'d>> {
        with_inner(&self.locations)
    }

    /// Where a path that begins so goes, for a rewrite that looks for another location. `None` when more than one may take it.
    pub(super) fn led_to(&self, path: &str, is_whole: bool) -> Option<&Location<'d>> {
        let index = &self.index;
        let is_exact = |location: &&Location<'_>| matches!(location.way, LocationKind::Exact(_));
        if is_whole && let Some(exact) = index.of_outer_path(path).iter().find(is_exact) {
            return Some(exact);
        }
        let ends = path.char_indices().map(|(end, _)| end).chain([path.len()]).rev();
        let is_prefix = |location: &&Location<'_>| !is_exact(location);
        let mut prefixes =
            ends.filter_map(|end| index.of_outer_path(path.get(..end)?).iter().rfind(is_prefix));
        let best = prefixes.next()?;
        // A path that goes on may be a longer location's, or a regex's.
        let has_longer = !is_whole && index.has_longer(path);
        let fits = |location: &Location<'_>| match &location.way {
            LocationKind::Regex(regex, ignores) if is_whole => Test::Regex(regex, *ignores).fits_text(path),
            LocationKind::Regex(regex, ignores) => may_begin(regex, *ignores, path),
            _ => false,
        };
        let is_sure = !has_longer && (best.before_regexes || !index.regexes.iter().any(fits));
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
