//! Redirects whose URL a map names: `redirect location https://a.test%[path,map(FILE)]`.

use serde_json::Map;

use super::Haproxy;
use super::acl;
use super::acl::Acls;
use super::fetch::split;
use super::maps::{self, Mapped};
use super::request_condition::convert;
use super::rules::TODO;
use super::sections::{HaproxyLine, Section};
use super::templates::template;
use crate::cond::Cond;
use crate::draft::{Matcher, Redirect, To, draft};
use crate::steps::{RouteEnd, RouteStep};

/// Entries that become proxies of their own; more paths are one table.
const MAX_SINGLE: usize = 16;
/// Paths of one proxy; the others of the table are the next proxy's.
const MAX_PATHS: usize = 500;

/// A URL of a redirect with a map in it.
pub(super) struct MappedUrl<'l> {
    before: &'l str,
    /// What is looked for in which map, as it stands between `%[` and `]`.
    expression: &'l str,
    after: &'l str,
}

impl<'l> MappedUrl<'l> {
    /// The parts of a URL; `None` where it asks no map.
    pub(super) fn read(text: &'l str) -> Option<Self> {
        let (before, rest) = text.split_once("%[")?;
        let (expression, after) = rest.split_once(']')?;
        let asks = split(expression).last().is_some_and(|last| last.starts_with("map"));
        asks.then_some(Self { before, expression, after })
    }

    /// The URL for a value of the map, as a template.
    fn with(&self, value: &str) -> Option<String> {
        Some(format!("{}{}{}", template(self.before)?, value.replace('$', "$$"), template(self.after)?))
    }
}

/// How a redirect answers.
pub(super) struct MapRedirect<'l> {
    pub(super) url: MappedUrl<'l>,
    pub(super) status: u16,
    /// `prefix`: the path of the request stands behind the URL.
    pub(super) is_prefix: bool,
    pub(super) keeps_query: bool,
}

impl MapRedirect<'_> {
    /// Settings of `redirect` for a value of the map.
    fn config(&self, value: &str) -> Option<Redirect> {
        let url = self.url.with(value)?;
        let url =
            if self.is_prefix { format!("{}${{request.path}}", url.trim_end_matches('/')) } else { url };
        let query = if self.keeps_query && self.is_prefix { "keep" } else { "drop" };
        let good = ["/", "http://", "https://", "${request.scheme}://"];
        let is_good = good.iter().any(|start| url.starts_with(start)) && !url.starts_with("//");
        is_good.then(|| draft!(Redirect { status_code: self.status, location: url, query }))
    }
}

impl Haproxy<'_, '_> {
    /// Converts a redirect to what a map names. `words` has the condition only.
    pub(super) fn map_redirect(
        &mut self,
        section: &Section,
        line: &HaproxyLine,
        redirect: &MapRedirect<'_>,
        acls: &Acls,
        steps: &mut Vec<RouteStep>,
    ) {
        let at = line.words.iter().position(|word| word == "if" || word == "unless");
        let condition = at.and_then(|at| line.words.get(at..)).unwrap_or_default();
        let rest = without_found(condition, redirect.url.expression, section);
        let only_found = rest.is_some();
        let ways = match line.lacks() {
            Some(why) => return self.close_route(line, why, steps),
            None => acls.condition(&rest.unwrap_or_else(|| condition.to_vec()), &mut self.reader),
        };
        let cond = match convert(&ways) {
            Ok(cond) => cond,
            Err(why) => return self.close_route(line, why, steps),
        };
        let expression = format!("%[{}]", redirect.url.expression);
        let mapped = maps::mapped(&expression, &mut self.reader, acl::compared);
        let mapped = match mapped.and_then(|mapped| before_changes(mapped, acls)) {
            Ok(mapped) => mapped,
            Err(why) => {
                if self.out.guard_not_converted(line.at, line.text(), why, TODO) {
                    steps.push(RouteStep::End(cond, RouteEnd::new(line.at, To::Closed)));
                }
                return;
            }
        };
        let Some(ends) = redirects(redirect, &mapped) else {
            let why = "a URL of its map begins with neither a scheme nor a slash";
            if self.out.guard_not_converted(line.at, line.text(), why, TODO) {
                steps.push(RouteStep::End(cond, RouteEnd::new(line.at, To::Closed)));
            }
            return;
        };
        self.out.converted(line.at, line.text());
        for (part, config) in ends {
            let ending = RouteEnd::new(line.at, To::Redirect(config));
            steps.push(RouteStep::End(cond.clone().and(part), ending));
        }
        if let Some(default) = mapped.default.as_deref().and_then(|default| redirect.config(default)) {
            let ending = RouteEnd::new(line.at, To::Redirect(default));
            steps.push(RouteStep::End(cond.clone().and(mapped.there.clone()), ending));
        }
        let takes_all = mapped.default.is_some() && mapped.there == Cond::Always;
        if only_found || takes_all {
            return;
        }
        // For what it does not name, HAProxy leaves the map's value out.
        let other = redirect.config("").map_or(To::Closed, To::Redirect);
        if other == To::Closed {
            let why = "what its map does not name is redirected to an empty `Location` by HAProxy, and answered 503 here";
            self.out.partial(line.at, line.text(), why, "add `-m found` to its condition");
        }
        steps.push(RouteStep::End(cond, RouteEnd::new(line.at, other)));
    }
}

/// The conditions of a map as ones on what the client sent.
fn before_changes(mut mapped: Mapped, acls: &Acls) -> Result<Mapped, String> {
    for cond in mapped.entries.iter_mut().map(|(cond, _)| cond).chain([&mut mapped.there]) {
        let known = acls.changes.before(cond.clone());
        *cond = known.ok_or_else(|| "what it asks for was changed before".to_owned())?;
    }
    Ok(mapped)
}

/// Settings of `redirect` for what a map names; `None` where a URL can't be said here.
fn redirects(redirect: &MapRedirect<'_>, mapped: &Mapped) -> Option<Vec<(Cond, Redirect)>> {
    if mapped.default.as_deref().is_some_and(|default| redirect.config(default).is_none()) {
        return None;
    }
    let paths = mapped.paths.as_ref().filter(|paths| paths.len() > MAX_SINGLE);
    let Some(paths) = paths else {
        let each = mapped.entries.iter();
        return each.map(|(cond, value)| Some((cond.clone(), redirect.config(value)?))).collect();
    };
    let mut made = Vec::new();
    for part in paths.chunks(MAX_PATHS) {
        let mut table = Map::new();
        for (path, value) in part.iter().filter(|(path, _)| path.starts_with('/')) {
            // Of two entries for a path, the first one counts.
            let config = redirect.config(value)?;
            table.entry(path).or_insert_with(|| config["location"].clone());
        }
        let cond = Cond::any(table.keys().map(|path| Cond::path_is(Matcher::exact(path))));
        let query = if redirect.keeps_query && redirect.is_prefix { "keep" } else { "drop" };
        let config = draft!(Redirect { status_code: redirect.status, location: "/", table, query });
        made.push((cond, config));
    }
    Some(made)
}

/// A condition without `{ EXPRESSION -m found }`, or the name of an ACL that says so: a redirect to what the map names holds for
/// those requests only. `None` where it does not ask that of all requests.
fn without_found(words: &[String], expression: &str, section: &Section) -> Option<Vec<String>> {
    if words.first().is_none_or(|word| word != "if") || words.iter().any(|it| it == "or" || it == "||") {
        return None;
    }
    let is_it = |fetch: &str| without_default(fetch) == without_default(expression);
    for (at, word) in words.iter().enumerate().skip(1) {
        let holds = words.get(at - 1).is_some_and(|before| before != "!" && before != "{");
        let length = match words.get(at..at + 5) {
            Some([open, fetch, flag, how, close])
                if (open.as_str(), flag.as_str(), how.as_str(), close.as_str())
                    == ("{", "-m", "found", "}")
                    && is_it(fetch) =>
            {
                5
            }
            _ => {
                let mut acls = section
                    .defaults
                    .iter()
                    .chain(&section.lines)
                    .filter(|line| line.name() == "acl" && line.word(1) == word);
                let is_asked = |line: &HaproxyLine| {
                    line.words.len() == 5
                        && (line.word(3), line.word(4)) == ("-m", "found")
                        && is_it(line.word(2))
                };
                if acls.next().is_none_or(|line| !is_asked(line)) || acls.next().is_some() {
                    continue;
                }
                1
            }
        };
        if holds {
            return Some([words.get(..at)?, words.get(at + length..)?].concat());
        }
    }
    None
}

/// An expression without the default of its map.
fn without_default(expression: &str) -> String {
    let mut parts = split(expression);
    if let Some(last) = parts.last_mut()
        && let Some((file, _)) = last.split_once(',')
    {
        *last = format!("{file})");
    }
    parts.join(",").replace("map_str(", "map(")
}
