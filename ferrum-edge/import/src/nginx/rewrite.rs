//! `return`, `rewrite`, `if` and `set`: what nginx does before it looks who may come in.

use super::Nginx;
use super::asked::{Test, flagged};
use super::blocks::Directive;
use super::guards::other_methods;
use super::item::{Item, Rewritten, place};
use super::location::{Location, LocationKind};
use super::media_types::media_type;
use super::path_groups::begins_with_slash;
use super::replaced_path::{Led, replaced};
use super::site::ScriptPlace;
use super::values::is_of_answer;
use super::variable_names::WITH_QUERY;
use crate::cond::Cond;
use crate::draft::{Redirect, To, draft};
use crate::text;

/// Rewrites that lead from location to location.
const MAX_JUMPS: usize = 8;

/// What is closed because of a directive.
pub(super) const TODO: &str =
    "write it with `matches`, `rewrite` or `redirect`, then remove `request_termination`";

/// A rewritten path, and the directive that wrote it.
struct Rewriting<'d, 'a> {
    /// The regex that the path fits, and whether case does not matter.
    from: (&'a str, bool),
    path: String,
    flag: &'a str,
    directive: &'d Directive,
    /// The directive as reports call it.
    what: &'a str,
}

impl<'d> Nginx<'_> {
    /// Runs the rewrite directives of a location, for the methods that its `limit_except` leaves: others get its block, which
    /// has none of them.
    pub(super) fn scripted(&mut self, way: ScriptPlace<'d, '_>, items: &mut Vec<Item>) -> bool {
        let ScriptPlace { site, base, levels, .. } = way;
        let own = levels.last().filter(|level| level.name == "location");
        let limit = own.and_then(|level| level.block.iter().find(|it| it.name == "limit_except"));
        let has_script = own.is_some_and(|level| {
            level.block.iter().any(|it| matches!(it.name.as_str(), "return" | "rewrite" | "if"))
        });
        let Some(limit) = limit.filter(|_| has_script) else {
            return self.script(way, items);
        };
        let what = format!("{}: {limit}", place(site, levels));
        let others = other_methods(limit);
        let why = "beside `return`, `rewrite` and `if`, only `deny all` in it can be converted";
        if self.denied_by(&limit.block, false) == Some(Cond::Always) {
            self.out.converted(limit.at, what);
            let answer = To::Answer(403, "text/plain".to_owned(), String::new());
            items.push(Item::new(&base.and(others.clone()), answer, "denied"));
        } else if self.out.guard_not_converted(limit.at, what, why, TODO) {
            items.push(Item::new(&base.and(others.clone()), To::Closed, "denied"));
        }
        self.script(way.of(&base.and(others.negate())), items)
    }

    /// Runs the rewrite directives of a level. What ends a request becomes an item; says whether any request goes on.
    pub(super) fn script(&mut self, way: ScriptPlace<'d, '_>, items: &mut Vec<Item>) -> bool {
        let ScriptPlace { site, levels, .. } = way;
        let Some(level) = levels.last().copied() else { return true };
        let place = place(site, levels);
        for directive in &level.block {
            if matches!(directive.name.as_str(), "if" | "return" | "rewrite")
                && let Some(goes_on) = self.map_redirect(way, directive, items)
            {
                if goes_on {
                    continue;
                }
                return false;
            }
            match directive.name.as_str() {
                "return" => {
                    self.answers(way, directive, items);
                    return false;
                }
                "set" => match directive.arguments.as_slice() {
                    [name, value] => self.vars_here.set(name.trim_start_matches('$'), value, Cond::Always),
                    _ => self.directive_not_converted(&place, directive),
                },
                "rewrite" => {
                    self.rewrite(way, directive, items);
                    if directive.arguments.first().is_some_and(|regex| text::has_groups(regex)) {
                        self.vars_here.empty_groups();
                    }
                }
                "if" if self.switched(way, directive) || self.grouped(way, directive, items) => {}
                "if" => self.branch(way, directive, items),
                "valid_referers" => self.referers(directive, &site.names),
                "break" => return true,
                _ => {}
            }
        }
        true
    }

    /// Items for `return`.
    fn answers(&mut self, way: ScriptPlace<'d, '_>, directive: &'d Directive, items: &mut Vec<Item>) {
        let ScriptPlace { site, base, levels, .. } = way;
        let place = place(site, levels);
        for (cond, to) in self.returned(&place, directive, levels) {
            let mut item = Item::new(&base.and(cond), to, "return");
            let status = match &item.to {
                To::Answer(status, ..) | To::Page(status, ..) => Some(*status),
                To::Redirect(_) => Some(302),
                _ => None,
            };
            if status.is_some() {
                self.response_headers(&place, levels, status, &mut item.plugins);
            }
            // nginx sends no error page in place of a `return` that has a text.
            let is_error = status.is_some_and(|status| status >= 400 && status != 444);
            if is_error && directive.arguments.len() == 1 {
                item.plugins.extend(self.error_pages(site, &place, levels));
            }
            items.push(item);
        }
    }

    /// `return CODE [TEXT]` and `return URL`.
    pub(super) fn returned(
        &mut self,
        place: &str,
        answer: &Directive,
        levels: &[&Directive],
    ) -> Vec<(Cond, To)> {
        let own =
            levels.last().and_then(|level| level.block.iter().find(|it| it.name == "client_max_body_size"));
        if let Some(most) = own {
            let why = "what is answered by `return` takes bodies of any size, and drops them";
            self.out.partial(most.at, format_args!("{place}: {most}"), why, "");
        }
        let status = answer.arguments.first().and_then(|status| status.parse::<u16>().ok());
        let text = answer.arguments.get(1);
        let what = format!("{place}: {answer}");
        let url = match (status, answer.arguments.first(), text) {
            (Some(status), _, Some(to)) => Some((status, to)),
            (None, Some(to), None) => Some((302, to)),
            _ => None,
        };
        if let Some((status, to)) = url
            && matches!(status, 301 | 302 | 303 | 307 | 308)
        {
            return self.redirect_cases(answer, what, status, to, false);
        }
        let Some(status) =
            status.filter(|status| !(300..400).contains(status) && (200..600).contains(status))
        else {
            self.out.route_closed(answer.at, what, "this answer can't be converted", TODO);
            return vec![(Cond::Always, To::Closed)];
        };
        let body = text.cloned().unwrap_or_default();
        let path = levels.iter().rev().find(|level| level.name == "location");
        let path = path.and_then(|location| location.arguments.last()).map_or("", String::as_str);
        let kind = media_type(levels, path).to_owned();
        if body.contains('$')
            && let Some(cases) = self.pages(&body)
        {
            self.out.converted(answer.at, what);
            return cases
                .into_iter()
                .map(|(cond, body)| (cond, To::Page(status, kind.clone(), body)))
                .collect();
        }
        if body.contains('$') {
            self.out.partial(answer.at, what, "variables in a body are sent as they are written", "");
        } else if status == 444 {
            self.out.partial(answer.at, what, "the connection stays open; the answer has the status 444", "");
        } else {
            self.out.converted(answer.at, what);
        }
        vec![(Cond::Always, To::Answer(status, kind, body))]
    }

    /// A body with variables by cases, as templates; `None` where one of them can't be said here.
    fn pages(&self, body: &str) -> Option<Vec<(Cond, String)>> {
        let cases = self.vars_here.texts(body)?;
        let is_known = |text: &str| !is_of_answer(text) && !text.contains(WITH_QUERY);
        cases.iter().all(|(_, text)| is_known(text)).then_some(cases)
    }

    /// A redirect by cases of its URL. One that can't be said here is closed.
    fn redirect_cases(
        &mut self,
        directive: &Directive,
        what: String,
        status: u16,
        to: &str,
        keeps_query: bool,
    ) -> Vec<(Cond, To)> {
        let (to, keeps_query) = match self.vars_here.without_query(to).filter(|_| !keeps_query) {
            Some(start) => (start, true),
            None => (to, keeps_query),
        };
        let cases = self.vars_here.texts(to).unwrap_or_else(|| vec![(Cond::Always, String::new())]);
        let is_one = cases.len() == 1;
        let mut made = Vec::with_capacity(cases.len());
        for (cond, location) in cases {
            match redirect_to(status, location, keeps_query) {
                Some(config) => {
                    self.report_template(
                        directive.at,
                        what.clone(),
                        config["location"].as_str().unwrap_or_default(),
                    );
                    made.push((cond, To::Redirect(config)));
                }
                None => {
                    let why = if is_one {
                        "this redirect can't be converted"
                    } else {
                        "one of its URLs can't be converted"
                    };
                    self.out.route_closed(directive.at, &what, why, TODO);
                    made.push((cond, To::Closed));
                }
            }
        }
        made
    }

    /// A redirect's settings; `None` when its URL can't be said here.
    pub(super) fn redirect(&self, status: u16, to: &str, keeps_query: bool) -> Option<Redirect> {
        match self.vars_here.texts(to)?.as_slice() {
            [(Cond::Always, location)] => redirect_to(status, location.clone(), keeps_query),
            _ => None,
        }
    }

    /// `rewrite REGEX TO [FLAG]`.
    fn rewrite(&mut self, way: ScriptPlace<'d, '_>, directive: &'d Directive, items: &mut Vec<Item>) {
        let ScriptPlace { site, base, levels, .. } = way;
        let place = place(site, levels);
        let what = format!("{place}: {directive}");
        let (from, to, flag) = match directive.arguments.as_slice() {
            [from, to] => (from.as_str(), to.as_str(), ""),
            [from, to, flag] => (from.as_str(), to.as_str(), flag.as_str()),
            _ => return self.directive_not_converted(&place, directive),
        };
        let (from, ignores) = from.strip_prefix("(?i)").map_or((from, false), |rest| (rest, true));
        let Some(whole) = flagged(from, ignores) else {
            self.out.route_closed(
                directive.at,
                &what,
                "this regex is none here; all that it may take is closed",
                TODO,
            );
            items.push(Item::new(base, To::Closed, "rewrite"));
            return;
        };
        let taken = base.captured(&whole);
        let is_redirect = matches!(flag, "redirect" | "permanent")
            || to.starts_with("http://")
            || to.starts_with("https://")
            || to.starts_with("$scheme");
        if is_redirect {
            let before = self.vars_here.clone();
            self.vars_here.fitted(from);
            let status = if flag == "permanent" { 301 } else { 302 };
            let (to, keeps) = to.strip_suffix('?').map_or((to, true), |to| (to, false));
            let cases = self.redirect_cases(directive, what, status, to, keeps);
            self.vars_here = before;
            for (cond, to) in cases {
                let mut item = Item::new(&taken.and(cond), to, "rewrite");
                if matches!(item.to, To::Redirect(_)) {
                    self.response_headers(&place, levels, Some(302), &mut item.plugins);
                }
                items.push(item);
            }
            return;
        }
        let before = self.vars_here.clone();
        self.vars_here.fitted(from);
        // Two slashes are one.
        let slash = if !to.starts_with('/') && begins_with_slash(to, from) { "/" } else { "" };
        let path = self.vars_here.template(to.trim_end_matches('?')).map(|path| format!("{slash}{path}"));
        let Some(path) = path.filter(|path| path.starts_with('/')) else {
            self.vars_here = before;
            self.out.route_closed(directive.at, what, "its new path can't be said here", TODO);
            items.push(Item::new(&taken, To::Closed, "rewrite"));
            return;
        };
        self.vars_here.rewritten(to);
        if flag.is_empty() {
            self.set_behind(levels, directive);
        }
        let rewriting = Rewriting { from: (from, ignores), path, flag, directive, what: &what };
        let start = items.len();
        self.rewritten(way.of(&taken), rewriting, items);
        if to.ends_with('?') {
            items.iter_mut().skip(start).for_each(Item::without_query);
        }
        self.vars_here = before;
    }

    /// What becomes of requests with a new path.
    fn rewritten(&mut self, way: ScriptPlace<'d, '_>, rewriting: Rewriting<'d, '_>, items: &mut Vec<Item>) {
        let ScriptPlace { site, base: taken, levels, .. } = way;
        let Rewriting { ref path, flag, directive, what, from: (from, ignores), .. } = rewriting;
        let in_location = levels.iter().any(|level| level.name == "location");
        if flag == "break" && in_location {
            self.out.converted(directive.at, what);
            let kind = LocationKind::Regex(from.to_owned(), ignores);
            self.serve(site, taken, levels, &kind, &Rewritten::Break(path.clone()), items);
            return;
        }
        // Without a flag, the directives behind it look at the new path.
        if flag.is_empty() && is_looked_at(levels, directive, path) {
            let why = "directives behind it look at the new path, which is not known beforehand; what it takes is closed";
            self.out.route_closed(directive.at, what, why, TODO);
            items.push(Item::new(taken, To::Closed, "rewrite"));
            return;
        }
        self.search_again(way, rewriting, items);
    }

    /// What `set` says behind a `rewrite` without a flag, in its block and in those that its `if` stands in.
    fn set_behind(&mut self, levels: &[&Directive], rewrite: &Directive) {
        let mut last: &Directive = rewrite;
        for level in levels.iter().rev() {
            let behind = level.behind(last).iter();
            for directive in behind.take_while(|it| it.name != "break") {
                if let ("set", [name, value]) = (directive.name.as_str(), directive.arguments.as_slice()) {
                    self.vars_here.set(name.trim_start_matches('$'), value, Cond::Always);
                }
            }
            if level.name != "if" {
                return;
            }
            last = level;
        }
    }

    /// A rewritten path looks for a location again, and that has to be known beforehand.
    fn search_again(
        &mut self,
        way: ScriptPlace<'d, '_>,
        rewriting: Rewriting<'d, '_>,
        items: &mut Vec<Item>,
    ) {
        let ScriptPlace { site, base: taken, jumps, .. } = way;
        let Rewriting { ref path, flag, directive, what, .. } = rewriting;
        let before_query = path.split('?').next().unwrap_or_default();
        let literal = before_query.split('$').next().unwrap_or_default().to_owned();
        let is_whole = !before_query.contains('$');
        let literal = if literal.is_empty() { "/".to_owned() } else { literal };
        let slashed = format!("{literal}/");
        let is_slash = |it: &Location<'_>| it.directive.block.iter().any(|it| it.name.ends_with("_pass"));
        // As for requests without the slash of a location.
        if *path == literal
            && site.index.of_outer_path(&slashed).iter().any(is_slash)
            && site.index.of_outer_path(&literal).is_empty()
        {
            self.out.converted(directive.at, what);
            let to = To::Redirect(draft!(Redirect { status_code: 301, location: slashed }));
            items.push(Item::new(taken, to, "rewrite-slash"));
            return;
        }
        let led: Option<Location<'d>> = match jumps < MAX_JUMPS {
            true => site.led_to(&literal, is_whole).cloned(),
            false => None,
        };
        let ends = |block: &Directive| block.block.iter().any(|it| it.name == "rewrite" || it.name == "if");
        match led.filter(|location| !ends(location.directive)) {
            Some(location) => {
                self.out.converted(directive.at, what);
                let inner = [site.http, site.directive, location.directive];
                let before = items.len();
                let way = ScriptPlace { levels: &inner, jumps: jumps + 1, ..way };
                if self.scripted(way, items) {
                    // Behind `break`, `proxy_pass` sends the new path as it is, whatever it has behind its host.
                    let rewritten = match flag {
                        "break" => Rewritten::Break(path.clone()),
                        _ => Rewritten::Last(path.clone()),
                    };
                    self.serve(site, taken, &inner, &location.way, &rewritten, items);
                }
                for item in items.iter_mut().skip(before) {
                    item.label = format!("rewrite-{}", item.label);
                }
            }
            None => self.search_replaced(way, &rewriting, items),
        }
    }

    /// Says what became of a rewrite that leads to several locations.
    fn led(&mut self, at: crate::report::At, what: &str, led: Led) {
        match led {
            Led::Everywhere => {
                let why = "a new path that lacks the slash of a location is not redirected to it";
                self.out.partial(at, what, why, "");
            }
            Led::Partly => {
                let why =
                    "which location some of its new paths lead to is not known beforehand; they are closed";
                self.out.route_closed(at, what, why, TODO);
            }
            Led::Nowhere => self.out.not_needed(at, what, "no path fits it"),
        }
    }

    /// The same for a path that may lead to several locations.
    fn search_replaced(
        &mut self,
        way: ScriptPlace<'d, '_>,
        rewriting: &Rewriting<'d, '_>,
        items: &mut Vec<Item>,
    ) {
        let Rewriting { path, flag, directive, what, from: (from, ignores) } = rewriting;
        let to = directive.arguments.get(1).map_or("", String::as_str);
        let replaced = replaced(from, to).filter(|_| !ignores && *flag != "break" && way.jumps == 0);
        match replaced {
            Some(replaced) => {
                let led = self.lead_replaced(way, &replaced, &Rewritten::Last(path.clone()), items);
                self.led(directive.at, what, led);
            }
            None => {
                let why = "which location it leads to is not known beforehand";
                self.out.route_closed(directive.at, what, why, TODO);
                items.push(Item::new(way.base, To::Closed, "rewrite"));
            }
        }
    }
}

/// A redirect's settings; `None` when its URL can't be said here.
fn redirect_to(status: u16, location: String, keeps_query: bool) -> Option<Redirect> {
    // Both begin with a slash, and several are one.
    let is_path = location.starts_with("${request.path}") || location.starts_with("${request.target}");
    let location = if is_path { format!("/{location}") } else { location };
    let good = ["/", "http://", "https://", "${request.scheme}://"];
    good.iter().any(|start| location.starts_with(start)).then_some(())?;
    // A group of `$request_uri` at the end has the query.
    let (location, keeps_query) = match location.strip_suffix(WITH_QUERY) {
        Some(start) => (start.to_owned(), true),
        None => (location, keeps_query),
    };
    if location.contains(WITH_QUERY) || is_of_answer(&location) {
        return None;
    }
    let query = if keeps_query { "keep" } else { "drop" };
    Some(draft!(Redirect { status_code: status, location, query }))
}

/// Directives behind a `rewrite` that are looked through; others may look at the new path.
const MAX_BEHIND: usize = 1000;

/// Whether a directive behind a `rewrite`, in its block or in those that its `if` stands in, may look at the new path.
fn is_looked_at(levels: &[&Directive], rewrite: &Directive, path: &str) -> bool {
    let mut last: &Directive = rewrite;
    for level in levels.iter().rev() {
        for (n, directive) in level.behind(last).iter().enumerate() {
            if n > MAX_BEHIND {
                return true;
            }
            match (directive.name.as_str(), directive.arguments.first()) {
                ("break", _) => return false,
                ("return" | "if", _) => return true,
                ("rewrite", Some(regex)) => {
                    let known = path.split(['?', '$']).next().unwrap_or_default();
                    let is_other = known == path && !Test::Regex(regex, false).fits_text(path);
                    if !is_other {
                        return true;
                    }
                }
                _ => {}
            }
        }
        if level.name != "if" {
            return false;
        }
        last = level;
    }
    false
}
