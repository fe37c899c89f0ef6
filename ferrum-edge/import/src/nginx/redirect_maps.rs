//! Redirects whose URL a `map` of paths names: `if ($new) { return 301 $new; }`.

use serde_json::{Map, Value};

use super::Nginx;
use super::asked::{flagged, words};
use super::blocks::Directive;
use super::guard_names::UNREAD;
use super::item::{Item, place};
use super::location::{Base, LocationKind};
use super::site::ScriptPlace;
use crate::cond::Cond;
use crate::draft::{Matcher, Redirect, To, draft};
use crate::text;

/// Paths of a map that get proxies of their own, which compare them whatever their case; more are one table.
const MAX_SINGLE: usize = 16;
/// Paths of one proxy; the others of the table are the next proxy's.
const MAX_PATHS: usize = 500;
/// Entries that one map may have.
const MAX_ENTRIES: usize = 50_000;

/// A redirect that a map decides.
struct MapRedirect<'d> {
    status: u16,
    /// The URL, in which the map's variable is.
    url: &'d str,
    /// The variable.
    name: &'d str,
    keeps_query: bool,
    /// Whether paths that the map has no URL for go on.
    is_conditional: bool,
}

/// A map by its paths.
#[derive(Debug, Clone, Default)]
pub(super) struct PathMap {
    with_query: bool,
    exact: Vec<(String, String)>,
    regexes: Vec<(String, String)>,
    default: String,
}

impl PathMap {
    /// A map of `$uri` or `$request_uri`; `None` for others, and for those that can't be said here.
    pub(super) fn of(map: &Directive) -> Option<Self> {
        let [source, _] = map.arguments.as_slice() else { return None };
        let with_query = match source.as_str() {
            "$uri" | "$document_uri" => false,
            "$request_uri" => true,
            _ => return None,
        };
        let mut made = Self { with_query, ..Self::default() };
        if map.block.len() > MAX_ENTRIES {
            return None;
        }
        for entry in &map.block {
            let value = entry.arguments.first().cloned().unwrap_or_default();
            match entry.name.as_str() {
                "default" => made.default = value,
                "hostnames" | "volatile" if entry.arguments.is_empty() => {}
                "include" | UNREAD => return None,
                key => match key.strip_prefix('~') {
                    Some(regex) => {
                        let whole = match regex.strip_prefix('*') {
                            Some(regex) => flagged(regex, true)?,
                            None => flagged(regex, false)?,
                        };
                        made.regexes.push((whole, value));
                    }
                    None => made.exact.push((key.to_owned(), value)),
                },
            }
        }
        let has_urls = made.exact.iter().chain(&made.regexes).all(|(_, url)| !url.is_empty());
        // Regexes over the path with its query would have to be over one of them.
        let is_path_only = !with_query || made.regexes.is_empty();
        (has_urls && is_path_only).then_some(made)
    }
}

impl<'d> Nginx<'_> {
    /// Converts an `if` or a `return` that redirects by a map of paths. Says whether it is one, and whether requests go on.
    pub(super) fn map_redirect(
        &mut self,
        way: ScriptPlace<'d, '_>,
        directive: &'d Directive,
        items: &mut Vec<Item>,
    ) -> Option<bool> {
        let redirect = conditional(directive).or_else(|| plain(directive))?;
        let map = self.path_maps.get(redirect.name)?.clone();
        let source = if map.with_query { "request_uri" } else { "uri" };
        if !self.vars_here.is_of_request(source) {
            return None;
        }
        let ScriptPlace { site, base, levels, .. } = way;
        let place = place(site, levels);
        let mut made = Vec::new();
        let mut table = Map::new();
        let is_small = map.exact.len() <= MAX_SINGLE;
        for (key, value) in &map.exact {
            let config = self.map_location(&redirect, value)?;
            let (path, query) =
                key.split_once('?').map_or((key.as_str(), None), |(path, query)| (path, Some(query)));
            let query = match (map.with_query, query) {
                (false, None) => Cond::Always,
                (false, Some(_)) => continue,
                (true, None) => Cond::query_string(Matcher::present(false)),
                (true, Some(query)) => Cond::query_string(Matcher::exact(query).ignore_case(true)),
            };
            // A path that does not begin with a slash is none.
            let LocationKind::Exact(path) = LocationKind::Exact(path.to_owned()).spelled() else { continue };
            if !path.starts_with('/') {
                continue;
            }
            match (is_small, query) {
                (false, Cond::Always) => {
                    table.insert(path, config["location"].clone());
                }
                (_, query) => {
                    let regex = format!("(?i){}", text::literal(&path));
                    made.push((base.captured(&regex).and(query), config));
                }
            }
        }
        let has_table = !table.is_empty();
        made.extend(tables(base, table, &redirect));
        for (regex, value) in &map.regexes {
            made.push((base.captured(regex), self.map_location(&redirect, &groups_of_path(value, regex))?));
        }
        let ends = !redirect.is_conditional || !map.default.is_empty();
        if ends {
            let config = self.map_location(&redirect, &map.default)?;
            made.push((base.clone(), config));
        }
        let what = format!("{place}: {directive}");
        match has_table {
            true => {
                self.out.partial(directive.at, what, "the paths of its map are compared with their case", "")
            }
            false => self.out.converted(directive.at, what),
        }
        for (base, config) in made {
            let mut item = Item::new(&base, To::Redirect(config), "map");
            self.response_headers(&place, levels, Some(302), &mut item.plugins);
            items.push(item);
        }
        Some(!ends)
    }

    /// Settings of the redirect to a map's value; `None` where it can't be said here.
    fn map_location(&self, redirect: &MapRedirect<'_>, value: &str) -> Option<Redirect> {
        let url = redirect.url.replace(&format!("${{{}}}", redirect.name), value);
        let url = url.replace(&format!("${}", redirect.name), value);
        self.redirect(redirect.status, &url, redirect.keeps_query)
    }
}

/// Items of exact paths.
fn tables(base: &Base, table: Map<String, Value>, redirect: &MapRedirect<'_>) -> Vec<(Base, Redirect)> {
    let mut all = table.into_iter().peekable();
    let mut made = Vec::new();
    while all.peek().is_some() {
        let part: Map<String, Value> = all.by_ref().take(MAX_PATHS).collect();
        let own = base.captured("/.*");
        let paths = part.keys().map(Matcher::exact).collect();
        let query = if redirect.keeps_query { "keep" } else { "drop" };
        let config = draft!(Redirect { status_code: redirect.status, location: "/", table: part, query });
        made.push((Base { paths, cond: own.cond }, config));
    }
    made
}

/// `$1` and `$name` of a map's own regex as captures of the path.
fn groups_of_path(value: &str, regex: &str) -> String {
    let mut made = value.to_owned();
    for name in text::named_groups(regex) {
        made = made.replace(&format!("${{{name}}}"), &format!("${{path_group_{name}}}"));
        made = made.replace(&format!("${name}"), &format!("${{path_group_{name}}}"));
    }
    for n in 1..10 {
        made = made.replace(&format!("${n}"), &format!("${{path_group_{n}}}"));
    }
    made
}

/// `if ($new) { return 301 $new; }`, or with `rewrite ^ $new permanent`.
fn conditional(branch: &Directive) -> Option<MapRedirect<'_>> {
    let words = if branch.name == "if" { words(&branch.arguments)? } else { return None };
    let variable = match words.as_slice() {
        [variable] | [variable, "!=", ""] => variable.strip_prefix('$')?,
        _ => return None,
    };
    let [inner] = branch.block.as_slice() else { return None };
    let made = plain(inner)?;
    (made.name == variable).then_some(MapRedirect { is_conditional: true, ..made })
}

/// `return 301 $new`, `rewrite ^ $new permanent`.
fn plain(directive: &Directive) -> Option<MapRedirect<'_>> {
    let (status, url, keeps_query) = match (directive.name.as_str(), directive.arguments.as_slice()) {
        ("return", [status, url]) => (status.parse().ok()?, url.as_str(), false),
        ("rewrite", [from, url, flag])
            if matches!(from.as_str(), "^" | "^.*$" | "^(.*)$" | ".*" | "^.+$" | "^(.+)$" | "^/") =>
        {
            let status = match flag.as_str() {
                "permanent" => 301,
                "redirect" => 302,
                _ => return None,
            };
            match url.strip_suffix('?') {
                Some(url) => (status, url, false),
                None => (status, url.as_str(), true),
            }
        }
        _ => return None,
    };
    let start = url.find('$')?;
    let name = url.get(start..).filter(|it| it.starts_with("$scheme") || it.starts_with("$host"));
    let rest = match name {
        // The variable of the map is the last one.
        Some(_) => url.rsplit_once('$').map(|(_, rest)| rest)?,
        None => url.get(start + 1..)?,
    };
    let rest = rest.strip_prefix('{').unwrap_or(rest);
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
    let is_redirect = matches!(status, 301 | 302 | 303 | 307 | 308);
    is_redirect.then_some(MapRedirect {
        status,
        url,
        name: rest.get(..end)?,
        keeps_query,
        is_conditional: false,
    })
}
