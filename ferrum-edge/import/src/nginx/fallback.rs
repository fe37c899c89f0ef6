//! The last word of `try_files`: a status, a file, or another location.

use super::Nginx;
use super::asked::flagged;
use super::blocks::{Directive, HANDLERS};
use super::file_fields::FileFields;
use super::files::{closed_route, is_served_otherwise};
use super::guard_names;
use super::guards::is_guarded;
use super::item::{self, Passed, Rewritten, same_path};
use super::location::{Location, LocationKind};
use super::path_groups::begins_with_slash;
use super::site::Site;
use crate::cond::Cond;
use crate::draft::{Proxy, QueryChanges, Replaced, To, draft};
use crate::text;

/// Directives that nginx runs in their order.
const SCRIPT: [&str; 5] = ["rewrite", "if", "return", "set", "try_files"];

impl<'d> Nginx<'_> {
    /// Converts the last word of `try_files`. `None` where files are all there is.
    pub(super) fn fallback(
        &mut self,
        site: &Site<'d>,
        place: &str,
        tried: &Directive,
        known: Option<&mut Vec<String>>,
    ) -> Option<Passed> {
        let what = format!("{place}: {tried}");
        let last = tried.arguments.last()?;
        if last.starts_with('@') {
            let is_it = |it: &&Location<'_>| it.way == LocationKind::Named(last.clone());
            let Some(location) = site.locations.iter().find(is_it).cloned() else {
                self.out.route_closed(tried.at, what, "there is no such location", "");
                return Some(closed_route());
            };
            return Some(self.named_location(site, tried, &what, &location));
        }
        if let Some(status) = last.strip_prefix('=') {
            if status != "404" {
                self.out.partial(tried.at, what, "what is not found is answered with 404", "");
            } else {
                self.out.converted(tried.at, what);
            }
            return None;
        }
        let file = last.split('?').next().unwrap_or(last);
        // nginx looks for the location of the last file, whose guards hold.
        let guarded = site.guarded(file).map(|location| location.directive.to_string());
        if let (false, Some(guarded)) = (file.contains('$'), guarded) {
            let why = format!("its last file is guarded by `{guarded}`");
            if self.out.guard_not_converted(tried.at, &what, why, "") {
                return Some(closed_route());
            }
        }
        let picked = match file.split_once('$') {
            // Paths that begin so.
            Some((start, _)) if !start.is_empty() => site.led_to(start, false).cloned(),
            Some(_) => None,
            None => site.picked(file).cloned(),
        };
        let is_handled = picked.as_ref().is_some_and(|it| is_served_otherwise(it) || has_script(it));
        match known {
            Some(known) if !file.contains('$') && !is_handled => {
                let levels = site.levels_of_tried(tried).unwrap_or_default();
                if picked.is_some_and(|it| FileFields::of(&levels, &it) == FileFields::Others) {
                    let why = "the last file is sent without the fields of the location that it is in";
                    self.out.partial(tried.at, what, why, "");
                } else {
                    self.out.converted(tried.at, what);
                }
                known.push(file.trim_start_matches('/').to_owned());
                None
            }
            _ => Some(self.elsewhere(site, tried, &what, picked)),
        }
    }

    /// A named location: its target, with the paths that it rewrites, or its answer.
    fn named_location(
        &mut self,
        site: &Site<'d>,
        tried: &Directive,
        what: &str,
        location: &Location<'d>,
    ) -> Passed {
        let levels = [site.http, site.directive, location.directive];
        let inner = item::place(site, &levels);
        let block = &location.directive.block;
        let script: Vec<&'d Directive> =
            block.iter().filter(|it| SCRIPT.contains(&it.name.as_str())).collect();
        let is_guarded = block.iter().any(|it| guard_names::is_guard(&it.name));
        let is_handled = block.iter().any(|it| HANDLERS.contains(&it.name.as_str()));
        let answer = match script.as_slice() {
            [only] if only.name == "return" => Some(self.returned(&inner, only, &levels)),
            [only, ..] if only.name == "rewrite" && !is_handled => self.named_redirect(only),
            _ => None,
        };
        if let (Some(mut answers), false) = (answer, is_guarded) {
            self.out.converted(tried.at, what);
            let answer = answers.pop().filter(|(cond, _)| answers.is_empty() && *cond == Cond::Always);
            let to = answer.map_or(To::Closed, |(_, to)| to);
            let has_page = matches!(&to, To::Answer(400.., _, body) if body.is_empty());
            let mut passed = Passed::new(to, Proxy::default());
            let mut plugins = Vec::new();
            self.response_headers(&inner, &levels, Some(302), &mut plugins);
            if has_page {
                plugins.extend(self.error_pages(site, &inner, &levels));
            }
            passed.plugins = Some(plugins);
            return passed;
        }
        let rules = match rewrites(&script) {
            Some(rules) if !is_guarded && (rules.is_empty() || is_handled) => rules,
            _ => {
                self.out.route_closed(tried.at, what, "this named location can't be converted", "");
                return closed_route();
            }
        };
        for directive in block {
            self.report_directive(&inner, directive);
        }
        let mut passed = self.located(site, location, &Rewritten::No);
        self.out.converted(tried.at, what);
        if let (false, Some(one)) = (rules.is_empty(), passed.first_mut()) {
            one.rewrite.get_or_insert_default().regex(rules);
        }
        if passed.len() == 1 { passed.pop().unwrap_or_else(closed_route) } else { closed_route() }
    }

    /// `rewrite ^ URL redirect` as the whole of a named location.
    fn named_redirect(&self, rewrite: &Directive) -> Option<Vec<(Cond, To)>> {
        let [from, url, flag] = rewrite.arguments.as_slice() else { return None };
        let status = match flag.as_str() {
            "permanent" => 301,
            "redirect" => 302,
            _ => return None,
        };
        let url = match from.as_str() {
            "^" | "^.*$" | ".*" => url.clone(),
            "^(.*)$" | "^(.+)$" | "(.*)" => url.replace("$1", "$uri"),
            "^/(.*)$" if !url.replace("/$1", "").contains('$') => url.replace("/$1", "$uri"),
            _ => return None,
        };
        let (url, keeps) = url.strip_suffix('?').map_or((url.as_str(), true), |url| (url, false));
        let config = self.redirect(status, url, keeps)?;
        Some(vec![(Cond::Always, To::Redirect(config))])
    }

    /// Where the requests of another location go, with its settings and plugins.
    fn located(&mut self, site: &Site<'d>, location: &Location<'d>, rewritten: &Rewritten) -> Vec<Passed> {
        let levels = [site.http, site.directive, location.directive];
        let inner = item::place(site, &levels);
        let mut passed = self.handled(site, &inner, &levels, &location.way, rewritten);
        let mut plugins = self.plugins(&inner, &levels);
        plugins.extend(self.error_pages(site, &inner, &levels));
        let settings = self.settings(&inner, &levels);
        for one in &mut passed {
            let mut own = std::mem::replace(&mut one.settings, settings.clone());
            one.settings.append(&mut own);
            one.plugins = Some(plugins.clone());
        }
        passed
    }

    /// A path of another location that passes requests on.
    fn elsewhere(
        &mut self,
        site: &Site<'d>,
        tried: &Directive,
        what: &str,
        picked: Option<Location<'d>>,
    ) -> Passed {
        let why = "its last word leads to another location; it answers 503";
        let last = tried.arguments.last().map_or("", String::as_str);
        let passes = |it: &Location<'_>| {
            it.directive.block.iter().any(|it| matches!(it.name.as_str(), "proxy_pass" | "grpc_pass"))
                && !has_script(it)
                && !is_guarded(it)
                // Its groups are those of the path that leads there.
                && !matches!(&it.way, LocationKind::Regex(regex, _) if text::has_groups(regex))
        };
        let last = last.replace("$is_args$query_string", "?$args").replace("$is_args$args", "?$args");
        let (path, query) = last.split_once('?').map_or((last.as_str(), ""), |(path, query)| (path, query));
        let keeps_query = matches!(query, "$args" | "$query_string") || query.ends_with("&$args");
        let own = query.trim_end_matches("$args").trim_end_matches("$query_string").trim_end_matches('&');
        let text = if own.is_empty() { path.to_owned() } else { format!("{path}?{own}") };
        let template = self.vars_here.template(&text);
        let (Some(location), Some(template)) = (picked.filter(passes), template) else {
            self.out.not_converted(tried.at, what, why, "");
            return closed_route();
        };
        let mut passed = self.located(site, &location, &Rewritten::Last(template));
        let Some(one) = passed.pop().filter(|_| passed.is_empty()) else {
            self.out.not_converted(tried.at, what, why, "");
            return closed_route();
        };
        self.out.converted(tried.at, what);
        let mut one = one;
        if !keeps_query {
            one.rewrite.get_or_insert_with(same_path).query(draft!(QueryChanges { remove_all: true }));
        }
        one
    }
}

/// Whether a location has directives that nginx runs in their order.
fn has_script(location: &Location<'_>) -> bool {
    location.directive.block.iter().any(|it| matches!(it.name.as_str(), "rewrite" | "if" | "return"))
}

/// `rewrite FROM TO break`, each as a rule over the path; `None` where something else stands among them.
fn rewrites(script: &[&Directive]) -> Option<Vec<Replaced>> {
    let each = script.iter().map(|directive| match directive.arguments.as_slice() {
        [from, to, flag] if directive.name == "rewrite" && flag == "break" && !to.contains('?') => {
            let regex = from;
            let from = flagged(from, false)?;
            let is_group = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
            if !begins_with_slash(to, regex) || !to.split('$').skip(1).all(is_group) {
                return None;
            }
            let mut new = to.clone();
            for n in 0..10 {
                new = new.replace(&format!("${n}"), &format!("${{{n}}}"));
            }
            Some(draft!(Replaced { from: format!("^{from}$"), to: new }))
        }
        _ => None,
    });
    each.collect()
}
