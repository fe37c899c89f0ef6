//! Locations in the order in which nginx looks at them: which requests each takes, and by which directives it goes.

use super::Nginx;
use super::asked::flagged;
use super::blocks::Directive;
use super::lookahead::{only_refuses, refused_paths};
use crate::cond::Cond;
use crate::draft::Matcher;
use crate::text;

/// Locations one server may have, those within others included.
const MAX_LOCATIONS: usize = 5000;

/// How a location names paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LocationKind {
    Exact(String),
    Prefix(String),
    /// As it is written, and whether case does not matter.
    Regex(String, bool),
    Named(String),
}

/// What a location's proxies are called.
pub(super) fn label(way: &LocationKind) -> String {
    match way {
        LocationKind::Exact(path) | LocationKind::Prefix(path) if path == "/" => "root".to_owned(),
        LocationKind::Exact(path) | LocationKind::Prefix(path) => path.trim_matches('/').to_owned(),
        LocationKind::Regex(regex, _) => format!("regex-{regex}"),
        LocationKind::Named(name) => name.clone(),
    }
}

/// A location with those within it.
#[derive(Debug, Clone)]
pub(super) struct Location<'d> {
    pub(super) way: LocationKind,
    /// `^~`.
    pub(super) before_regexes: bool,
    pub(super) directive: &'d Directive,
    pub(super) inner: Vec<Self>,
}

/// Requests: paths, and what holds besides.
#[derive(Debug, Clone)]
pub(super) struct Base {
    pub(super) paths: Vec<Matcher>,
    pub(super) cond: Cond,
}

impl Base {
    /// Everything.
    pub(super) fn all() -> Self {
        Self { paths: vec![Matcher::prefix("/")], cond: Cond::Always }
    }

    /// All that it asks, its paths included.
    pub(super) fn cond_of_all(&self) -> Cond {
        let is_all = *self.paths == [Matcher::prefix("/")];
        let paths = Cond::any(self.paths.iter().cloned().map(Cond::path_is));
        if is_all { self.cond.clone() } else { paths.and(self.cond.clone()) }
    }

    pub(super) fn and(&self, cond: Cond) -> Self {
        Self { paths: self.paths.clone(), cond: self.cond.clone().and(cond) }
    }

    /// The same requests, those of them whose path fits a regex, so that its groups are known.
    pub(super) fn captured(&self, regex: &str) -> Self {
        let any = Cond::any(self.paths.iter().cloned().map(Cond::path_is));
        let whole = *self.paths == [Matcher::prefix("/")];
        let cond = if whole { self.cond.clone() } else { self.cond.clone().and(any) };
        Self { paths: vec![Matcher::regex(regex)], cond }
    }
}

/// A location and the requests it takes, where those before it have not taken them.
#[derive(Debug, Clone)]
pub(super) struct Turn<'d> {
    pub(super) base: Base,
    /// From the outermost location to this one.
    pub(super) levels: Vec<&'d Directive>,
    pub(super) way: LocationKind,
}

impl<'d> Nginx<'_> {
    /// The locations of a block.
    pub(super) fn locations(&mut self, block: &'d Directive, count: &mut usize) -> Vec<Location<'d>> {
        let mut found = Vec::new();
        for directive in block.block.iter().filter(|it| it.name == "location") {
            *count += 1;
            if *count > MAX_LOCATIONS {
                self.out.not_converted(
                    directive.at,
                    directive,
                    "a server may have 5000 locations",
                    "split the server",
                );
                break;
            }
            let arguments: Vec<&str> = directive.arguments.iter().map(String::as_str).collect();
            let (way, before_regexes) = match arguments.as_slice() {
                ["=", path] => (LocationKind::Exact((*path).to_owned()), false),
                ["~", regex] => (LocationKind::Regex((*regex).to_owned(), false), false),
                ["~*", regex] => (LocationKind::Regex((*regex).to_owned(), true), false),
                ["^~", path] => (LocationKind::Prefix((*path).to_owned()), true),
                [name] if name.starts_with('@') => (LocationKind::Named((*name).to_owned()), false),
                // Signs may stand together with what follows.
                [one] if one.starts_with("~*") => {
                    (LocationKind::Regex(one.trim_start_matches("~*").to_owned(), true), false)
                }
                [one] if one.starts_with('~') => {
                    (LocationKind::Regex(one.trim_start_matches('~').to_owned(), false), false)
                }
                [one] if one.starts_with("^~") => {
                    (LocationKind::Prefix(one.trim_start_matches("^~").to_owned()), true)
                }
                [one] if one.starts_with('=') => {
                    (LocationKind::Exact(one.trim_start_matches('=').to_owned()), false)
                }
                [path] => (LocationKind::Prefix((*path).to_owned()), false),
                _ => {
                    self.out.not_converted(directive.at, directive, "this path is not understood", "");
                    continue;
                }
            };
            let way = way.spelled();
            if let LocationKind::Exact(path) | LocationKind::Prefix(path) = &way
                && (!path.starts_with('/')
                    || is_never(path)
                    || matches!(way, LocationKind::Exact(_))
                        && (path.ends_with("/.") || path.ends_with("/..")))
            {
                let why = match path.starts_with('/') {
                    true => "no path is like this once slashes in a row and dot segments are resolved",
                    false => "paths begin with a slash",
                };
                self.out.not_needed(directive.at, directive, why);
                continue;
            }
            let inner = self.locations(directive, count);
            found.push(Location { way, before_regexes, directive, inner });
        }
        found
    }

    /// The order in which locations are looked at: the first that takes a request has it.
    pub(super) fn order(&mut self, locations: &[Location<'d>]) -> Vec<Turn<'d>> {
        let (mut decided, tentative) = self.level(locations);
        decided.extend(tentative);
        decided
    }

    /// The turns of one level: those that decide, and those that a regex further out goes before.
    fn level(&mut self, locations: &[Location<'d>]) -> (Vec<Turn<'d>>, Vec<Turn<'d>>) {
        let (mut decided, mut tentative) = (Vec::new(), Vec::new());
        let mut prefixes: Vec<(&str, &Location<'d>)> = Vec::new();
        for location in locations {
            match &location.way {
                LocationKind::Exact(path) => {
                    let base = Base { paths: vec![Matcher::exact(path)], cond: Cond::Always };
                    decided.push(Turn { base, levels: vec![location.directive], way: location.way.clone() });
                }
                LocationKind::Prefix(path) => prefixes.push((path, location)),
                LocationKind::Regex(..) | LocationKind::Named(_) => {}
            }
        }
        prefixes.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        for (path, location) in &prefixes {
            let (inner_decided, mut inner) = self.level(&location.inner);
            inner.push(Turn { base: prefix(path), levels: Vec::new(), way: location.way.clone() });
            // What decides before regexes has to know itself that no longer prefix fits.
            let needs_longer = !inner_decided.is_empty() || location.before_regexes;
            let longer = prefixes.iter().take(if needs_longer { usize::MAX } else { 0 });
            let longer = longer.filter(|(other, _)| other.len() > path.len() && other.starts_with(path));
            let longer = Cond::any(longer.map(|(other, _)| covers(other)));
            let within = covers(path).and(longer.clone().negate());
            let outer = |mut turn: Turn<'d>, cond: &Cond| {
                turn.base = turn.base.and(cond.clone());
                turn.levels.insert(0, location.directive);
                turn
            };
            decided.extend(inner_decided.into_iter().map(|turn| outer(turn, &within)));
            if location.before_regexes {
                let others = match &within {
                    Cond::Is(_) if prefixes.len() == 1 => Cond::Always,
                    _ => longer.negate(),
                };
                decided.extend(inner.into_iter().map(|turn| outer(turn, &others)));
            } else {
                tentative.extend(inner.into_iter().map(|turn| outer(turn, &Cond::Always)));
            }
        }
        for location in locations {
            let LocationKind::Regex(regex, ignores) = &location.way else { continue };
            let Some(whole) = flagged(regex, *ignores) else {
                decided.extend(self.unsupported_regex(location, regex, *ignores));
                continue;
            };
            let path = Cond::path_is(Matcher::regex(&whole));
            let (inner_decided, inner) = self.level(&location.inner);
            for mut turn in inner_decided.into_iter().chain(inner) {
                turn.base = turn.base.and(path.clone());
                turn.levels.insert(0, location.directive);
                decided.push(turn);
            }
            let base = Base { paths: vec![Matcher::regex(whole)], cond: Cond::Always };
            decided.push(Turn { base, levels: vec![location.directive], way: location.way.clone() });
        }
        (decided, tentative)
    }
}

impl<'d> Nginx<'_> {
    /// The turn of a location by a regex that is not supported: what it refuses by a look-ahead, or all requests, any of which may be its.
    fn unsupported_regex(
        &mut self,
        location: &Location<'d>,
        regex: &str,
        ignores_case: bool,
    ) -> Option<Turn<'d>> {
        let at = location.directive.at;
        let what = format!("location {}", location.directive.arguments.join(" "));
        let refuses = only_refuses(location.directive) && location.inner.is_empty();
        if let Some(paths) = refused_paths(regex, ignores_case).filter(|_| refuses) {
            let why = "paths that its look-ahead spares are refused as well, but for those that begin so";
            self.out.partial(at, what, why, "");
            let spared = paths.spared.map(|spared| Cond::path_is(Matcher::regex(spared)).negate());
            let cond = spared.unwrap_or(Cond::Always);
            let base = Base { paths: vec![Matcher::regex(paths.regex)], cond };
            return Some(Turn { base, levels: vec![location.directive], way: location.way.clone() });
        }
        let why = "this regex is none here: it looks around, refers back, or is too large";
        let is_closed = self.out.guard_not_converted(at, what, why, "write it otherwise");
        is_closed.then(|| Turn { base: Base::all(), levels: Vec::new(), way: location.way.clone() })
    }
}

impl LocationKind {
    /// The same over paths as the gateway has them: what can't stand in one is encoded, where nginx decodes it.
    pub(super) fn spelled(self) -> Self {
        match self {
            Self::Exact(path) => Self::Exact(encoded(&path)),
            Self::Prefix(path) => Self::Prefix(encoded(&path)),
            Self::Regex(regex, ignores) if !regex.contains('[') => {
                Self::Regex(regex.replace("\\ ", " ").replace(' ', "(?:%20)"), ignores)
            }
            other => other,
        }
    }
}

fn encoded(path: &str) -> String {
    let is_odd = |b: u8| b <= b' ' || b >= 0x7f || matches!(b, b'%' | b'?' | b'#');
    let each = path.bytes().map(|b| if is_odd(b) { format!("%{b:02X}") } else { char::from(b).to_string() });
    each.collect()
}

/// Whether a path has an empty or dot segment: nginx looks for locations by paths without those.
fn is_never(path: &str) -> bool {
    let segments: Vec<&str> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
    segments[..segments.len() - 1].iter().any(|segment| matches!(*segment, "" | "." | ".."))
}

/// The requests that a prefix of nginx's takes, which may end within a segment.
pub(super) fn prefix(path: &str) -> Base {
    if path == "/" {
        return Base::all();
    }
    match path.strip_suffix('/') {
        // Only what is below.
        Some(trimmed) => Base {
            paths: vec![Matcher::prefix(trimmed)],
            cond: Cond::path_is(Matcher::exact(trimmed)).negate(),
        },
        // Paths have no dot segments; names that begin so are others.
        None if path.ends_with("/.") || path.ends_with("/..") => {
            Base { paths: vec![Matcher::regex(format!("{}[^/].*", text::literal(path)))], cond: Cond::Always }
        }
        None => Base {
            paths: vec![Matcher::prefix(path), Matcher::regex(format!("{}[^/].*", text::literal(path)))],
            cond: Cond::Always,
        },
    }
}

/// That a prefix of nginx's takes a path, as a condition.
fn covers(path: &str) -> Cond {
    if path == "/" {
        return Cond::Always;
    }
    let base = prefix(path);
    Cond::any(base.paths.iter().cloned().map(Cond::path_is)).and(base.cond)
}
