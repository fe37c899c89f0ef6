//! `proxy_redirect`, `proxy_cookie_…` and `sub_filter`: what nginx changes in responses on their way back.

use super::blocks::Directive;
use super::location::LocationKind;
use super::{Nginx, first, said};
use crate::draft::{
    CookieRule, HeaderRule, Plug, Replacement, ResponseTransformer, TextPair, TextReplacement, draft,
};
use crate::text;

/// The directives.
pub(super) const NAMES: &[&str] = &[
    "proxy_redirect",
    "proxy_cookie_domain",
    "proxy_cookie_path",
    "proxy_cookie_flags",
    "sub_filter",
    "sub_filter_once",
    "sub_filter_types",
    "sub_filter_last_modified",
];

const TODO: &str = "use the plugin `response_transformer`";

/// The location and the address of a `proxy_pass`, from which `proxy_redirect default` is made.
pub(super) struct PassedTo<'a> {
    pub(super) way: &'a LocationKind,
    /// The URL as it is written; `None` where it has variables.
    pub(super) url: Option<&'a str>,
}

impl Nginx<'_> {
    /// The plugin that rewrites responses of a target, where anything is to be rewritten.
    pub(super) fn response_rewrites(
        &mut self,
        place: &str,
        levels: &[&Directive],
        to: &PassedTo<'_>,
    ) -> Option<Plug> {
        let redirects = self.redirects(place, levels, to);
        let cookies = self.cookies(place, levels);
        if redirects.is_empty() && cookies.is_empty() {
            return None;
        }
        let rule = |field: &str, replacements: Vec<Replacement>| {
            draft!(HeaderRule { operation: "replace", target: "header", key: field, replacements })
        };
        let has_redirects = !redirects.is_empty();
        let rules =
            has_redirects.then(|| vec![rule("location", redirects.clone()), rule("refresh", redirects)]);
        Some(Plug::of(draft!(ResponseTransformer {
            rules,
            cookies: (!cookies.is_empty()).then_some(cookies),
            of: "target",
        })))
    }

    /// `proxy_redirect`; where nothing is said, nginx rewrites what names the target.
    fn redirects(&mut self, place: &str, levels: &[&Directive], to: &PassedTo<'_>) -> Vec<Replacement> {
        let said = said(levels, "proxy_redirect");
        if said.is_empty() {
            return default_redirect(to).into_iter().collect();
        }
        let mut made = Vec::new();
        for directive in said {
            let what = format!("{place}: {directive}");
            let found = match directive.arguments.as_slice() {
                [off] if off == "off" => return Vec::new(),
                [default] if default == "default" => {
                    self.out.converted(directive.at, what);
                    made.extend(default_redirect(to));
                    continue;
                }
                [from, to] => self.replacement(from, to, true),
                _ => None,
            };
            made.extend(self.reported(directive, what, found));
        }
        made
    }

    /// Reports whether a pair has been converted, and returns it.
    fn reported(
        &mut self,
        directive: &Directive,
        what: String,
        pair: Option<Replacement>,
    ) -> Option<Replacement> {
        match pair {
            Some(_) => self.out.converted(directive.at, what),
            None => self.out.not_converted(
                directive.at,
                what,
                "a variable or regex in it has no counterpart",
                TODO,
            ),
        }
        pair
    }

    /// A pair of `proxy_redirect` and its like: a prefix or, with `~`, a regex, and what takes its place.
    fn replacement(&self, from: &str, to: &str, is_prefix: bool) -> Option<Replacement> {
        if let Some(regex) = from.strip_prefix('~') {
            let (flag, regex) = regex.strip_prefix('*').map_or(("", regex), |rest| ("(?i)", rest));
            // nginx replaces the whole value by the new text.
            let pattern = format!("(?s){flag}^.*?(?:{regex}).*$");
            let with = self.vars_here.replacement(to, &text::named_groups(regex))?;
            return text::is_regex(&pattern).then(|| draft!(Replacement { pattern, with }));
        }
        let (from, with) = self.texts_of(from, to)?;
        (!from.is_empty()).then(|| match is_prefix {
            true => draft!(Replacement { prefix: from, with }),
            false => draft!(Replacement { equals: from, with }),
        })
    }

    /// A text and what takes its place, neither of which names groups.
    fn texts_of(&self, from: &str, to: &str) -> Option<(String, String)> {
        let read = |text| self.vars_here.replacement(text, &[]).filter(|it| !it.contains("${match."));
        Some((read(from)?, read(to)?))
    }

    /// `proxy_cookie_…` as rules for cookies: the first for a cookie's name is applied.
    fn cookies(&mut self, place: &str, levels: &[&Directive]) -> Vec<CookieRule> {
        let domains = self.cookie_values(place, levels, "proxy_cookie_domain");
        let paths = self.cookie_values(place, levels, "proxy_cookie_path");
        let common = draft!(CookieRule {
            domains: (!domains.is_empty()).then_some(domains),
            paths: (!paths.is_empty()).then_some(paths),
        });
        let mut made = Vec::new();
        for directive in said(levels, "proxy_cookie_flags") {
            let what = format!("{place}: {directive}");
            let Some((cookie, flags)) = directive.arguments.split_first() else { continue };
            if cookie == "off" && flags.is_empty() {
                break;
            }
            match cookie_flags(cookie, flags) {
                Some(mut rule) => {
                    rule.append(&mut common.clone());
                    made.push(rule);
                    self.out.converted(directive.at, what);
                }
                None => {
                    self.out.not_converted(directive.at, what, "this cookie or flag can't be converted", TODO)
                }
            }
        }
        if !common.is_empty() {
            made.push(common);
        }
        made
    }

    /// `proxy_cookie_domain` or `proxy_cookie_path`.
    fn cookie_values(&mut self, place: &str, levels: &[&Directive], name: &str) -> Vec<Replacement> {
        let is_path = name == "proxy_cookie_path";
        let mut made = Vec::new();
        for directive in said(levels, name) {
            let what = format!("{place}: {directive}");
            let found = match directive.arguments.as_slice() {
                [off] if off == "off" => return Vec::new(),
                [from, to] => {
                    // Domains have no case, and a dot before them does not count.
                    let from = match (is_path, from.strip_prefix('~')) {
                        (false, Some(regex)) => format!("~*{}", regex.trim_start_matches('*')),
                        (false, None) => from.trim_start_matches('.').to_owned(),
                        (true, _) => from.clone(),
                    };
                    let is_plain = !is_path && !from.starts_with('~');
                    let to = if is_plain { to.trim_start_matches('.') } else { to.as_str() };
                    self.replacement(&from, to, is_path)
                }
                _ => None,
            };
            made.extend(self.reported(directive, what, found));
        }
        made
    }
}

impl Nginx<'_> {
    /// `sub_filter`.
    pub(super) fn sub_filter(&mut self, place: &str, levels: &[&Directive], made: &mut Vec<Plug>) {
        let all = said(levels, "sub_filter");
        let mut pairs = Vec::new();
        for directive in &all {
            let what = format!("{place}: {directive}");
            let pair = match directive.arguments.as_slice() {
                [find, with] => self.texts_of(find, with).filter(|(find, _)| !find.is_empty()),
                _ => None,
            };
            match pair {
                Some((find, with)) => {
                    pairs.push(draft!(TextPair { find, with }));
                    self.out.converted(directive.at, what);
                }
                None => {
                    let todo = "use the plugin `text_replacement`";
                    self.out.not_converted(directive.at, what, "a variable in it has no counterpart", todo);
                }
            }
        }
        if pairs.is_empty() {
            return;
        }
        let mut types = vec!["text/html".to_owned()];
        types.extend(said(levels, "sub_filter_types").iter().flat_map(|it| it.arguments.clone()));
        types.sort();
        types.dedup();
        if types.iter().any(|it| it == "*") {
            types = vec!["*".to_owned()];
        }
        made.push(Plug::of(draft!(TextReplacement {
            replacements: pairs,
            ignore_case: true,
            content_types: types,
            once: first(levels, "sub_filter_once") != Some("off"),
            keep_last_modified: first(levels, "sub_filter_last_modified") == Some("on"),
        })));
    }
}

/// What `proxy_redirect default` says.
fn default_redirect(to: &PassedTo<'_>) -> Option<Replacement> {
    let url = to.url.filter(|url| !url.contains("://unix:"))?;
    let (_, rest) = url.split_once("://")?;
    if !rest.contains('/') {
        return Some(draft!(Replacement { prefix: format!("{url}/").replace('$', "$$"), with: "/" }));
    }
    let (LocationKind::Exact(own) | LocationKind::Prefix(own)) = to.way else { return None };
    Some(draft!(Replacement { prefix: url.replace('$', "$$"), with: own.replace('$', "$$") }))
}

/// A rule for `proxy_cookie_flags COOKIE [FLAG ...]`.
fn cookie_flags(cookie: &str, flags: &[String]) -> Option<CookieRule> {
    // Without regard to case, as nginx compares names.
    let pattern = match cookie.strip_prefix('~') {
        Some(regex) => format!("(?i){regex}"),
        None => format!("(?i)^{}$", text::literal(cookie)),
    };
    if cookie.contains('$') && !cookie.starts_with('~') || !text::is_regex(&pattern) {
        return None;
    }
    let mut rule = draft!(CookieRule { pattern });
    for flag in flags {
        match flag.to_ascii_lowercase().as_str() {
            "secure" => rule.secure(true),
            "nosecure" => rule.secure(false),
            "httponly" => rule.http_only(true),
            "nohttponly" => rule.http_only(false),
            "nosamesite" => rule.same_site("remove"),
            other => match other.strip_prefix("samesite=") {
                Some(value @ ("strict" | "lax" | "none")) => rule.same_site(value),
                _ => return None,
            },
        }
    }
    Some(rule)
}
