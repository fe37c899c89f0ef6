//! `redirect` rules.

use super::Haproxy;
use super::acl::Acls;
use super::map_redirects::{MapRedirect, MappedUrl};
use super::request_condition::convert;
use super::rules::TODO;
use super::sections::{HaproxyLine, Section};
use super::templates::template;
use crate::cond::Cond;
use crate::draft::{HeaderRule, Matcher, Plug, Redirect, ResponseTransformer, To, draft};
use crate::steps::{RouteEnd, RouteStep};

/// The settings of `redirect` for a rule; `None` where they can't be made.
fn settings(words: &[&str], status: u16, query: &str) -> Option<Redirect> {
    match words {
        ["scheme", scheme @ ("http" | "https"), ..] => {
            let to = format!("{scheme}://${{request.host}}${{request.target}}");
            Some(draft!(Redirect { status_code: status, location: to, query: "drop" }))
        }
        ["location", to, ..] => {
            let to = template(to)?;
            // Both begin with a slash, and several are one.
            let is_path = to.starts_with("${request.path}") || to.starts_with("${request.target}");
            let to = if is_path { format!("/{to}") } else { to };
            Some(draft!(Redirect { status_code: status, location: to, query: "drop" }))
        }
        ["prefix", to, ..] => {
            let to = format!("{}${{request.path}}", template(to)?.trim_end_matches('/'));
            Some(draft!(Redirect { status_code: status, location: to, query }))
        }
        _ => None,
    }
}

impl Haproxy<'_, '_> {
    /// `redirect scheme|location|prefix TO [code N] [drop-query] [append-slash]`.
    pub(super) fn redirect(
        &mut self,
        section: &Section,
        line: &HaproxyLine,
        words: &[String],
        acls: &Acls,
        steps: &mut Vec<RouteStep>,
    ) {
        let (words, ways) = self.split(line, words, acls);
        let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
        // The status may stand before the URL.
        if words.first() == Some(&"code") && words.len() > 2 {
            words.rotate_left(2);
        }
        let after =
            |word: &str| words.iter().position(|it| *it == word).and_then(|n| words.get(n + 1)).copied();
        let status: u16 = after("code").and_then(|code| code.parse().ok()).unwrap_or(302);
        let query = if words.contains(&"drop-query") { "drop" } else { "keep" };
        if let [kind @ ("location" | "prefix"), to, ..] = words.as_slice()
            && let Some(url) = MappedUrl::read(to)
            && matches!(status, 301 | 302 | 303 | 307 | 308)
        {
            let (is_prefix, keeps_query) = (*kind == "prefix", query == "keep");
            let redirect = MapRedirect { url, status, is_prefix, keeps_query };
            return self.map_redirect(section, line, &redirect, acls, steps);
        }
        let made = settings(&words, status, query);
        let good = |config: &Redirect| {
            let location = config["location"].as_str();
            location.is_none_or(|to| {
                ["/", "http://", "https://", "${request.scheme}://"].iter().any(|start| to.starts_with(start))
            })
        };
        match (made.filter(good), convert(&ways)) {
            (_, Err(why)) => self.close_route(line, why, steps),
            (Some(config), Ok(cond)) if matches!(status, 301 | 302 | 303 | 307 | 308) => {
                if words.contains(&"append-slash") && query == "keep" {
                    let why = "`append-slash` without `drop-query` is left out";
                    self.out.partial(line.at, line.text(), why, "");
                }
                self.report_template(line, config["location"].as_str().unwrap_or("${request.target}"), acls);
                // What has the scheme already goes on.
                let cond = match words.as_slice() {
                    ["scheme", scheme, ..] => cond.and(Cond::scheme(scheme).negate()),
                    _ => cond,
                };
                let mut ending = RouteEnd::new(line.at, To::Redirect(config.clone()));
                ending.plugins = cookies(&words)
                    .map(|rules| Plug::of(draft!(ResponseTransformer { rules })))
                    .into_iter()
                    .collect();
                if let Some(slashed) = with_slash(&config, &words) {
                    let open = cond.clone().and(Cond::path_is(Matcher::regex(".*[^/]")));
                    steps
                        .push(RouteStep::End(open, RouteEnd { to: To::Redirect(slashed), ..ending.clone() }));
                }
                steps.push(RouteStep::End(cond, ending));
            }
            (_, Ok(cond)) => {
                let why = "this redirect can't be converted";
                let why = line.lacks().map_or_else(|| why.to_owned(), |lacks| lacks.to_string());
                if self.out.guard_not_converted(line.at, line.text(), why, TODO) {
                    steps.push(RouteStep::End(cond, RouteEnd::new(line.at, To::Closed)));
                }
            }
        }
    }

    /// Reports a rule as converted, or as partial if rules before it change what its text names: the gateway fills it from what the
    /// client sent.
    pub(super) fn report_template(&mut self, line: &HaproxyLine, text: &str, acls: &Acls) {
        if acls.changes.are_in(text) {
            let why = "rules before it change what its text names; here it is what the client sent";
            self.out.partial(line.at, line.text(), why, "");
        } else {
            self.out.converted(line.at, line.text());
        }
    }
}

/// What `set-cookie NAME[=VALUE]` and `clear-cookie NAME[=]` add to a redirect.
fn cookies(words: &[&str]) -> Option<Vec<HeaderRule>> {
    let after = |word: &str| words.iter().position(|it| *it == word).and_then(|n| words.get(n + 1));
    let set = after("set-cookie").map(|pair| format!("{pair}; path=/;"));
    let cleared = after("clear-cookie").map(|name| format!("{name}; path=/; Max-Age=0;"));
    let rule = |value: String| {
        let value = value.replace('$', "$$");
        draft!(HeaderRule { operation: "append", target: "header", key: "set-cookie", value })
    };
    let rules: Vec<HeaderRule> = set.into_iter().chain(cleared).map(rule).collect();
    (!rules.is_empty()).then_some(rules)
}

/// The redirect of `append-slash` for paths that do not end with one: it needs a query that is dropped.
fn with_slash(config: &Redirect, words: &[&str]) -> Option<Redirect> {
    let has = |word: &str| words.contains(&word);
    let location = config["location"].as_str().filter(|_| words.first() == Some(&"prefix"))?;
    let mut made = config.clone();
    made.location(format!("{location}/"));
    (has("append-slash") && has("drop-query")).then_some(made)
}
