//! Middlewares that change the path, or send clients elsewhere.

use regex::Regex;

use super::{Made, is_true, number};
use crate::cond::Cond;
use crate::draft::{
    HeaderRule, Match, Matcher, Plug, Redirect, Replaced, RequestTransformer, Rewrite, draft,
};
use crate::text;
use crate::traefik::Traefik;
use crate::tree::Node;

/// The rest of a redirect's settings is not looked at by its own regex: one that can't be read may keep requests away from targets.
const TODO: &str = "use the plugin `redirect`";

impl Traefik<'_> {
    pub(super) fn strip_prefix(&mut self, what: &str, settings: &Node, made: &mut Made) {
        let prefixes = super::list(settings, "prefixes");
        // A slash at its end has to be there.
        let rule = |prefix: &String| {
            let slash = if prefix.ends_with('/') { "" } else { "/?" };
            draft!(Replaced { from: format!("^{}{slash}(.*)$", text::literal(prefix)), to: "/${1}" })
        };
        let rules: Vec<Replaced> = prefixes.iter().map(rule).collect();
        if rules.is_empty() {
            return self.out.not_converted(settings.at, what, "it names no prefixes", "");
        }
        if settings.has("forceSlash") {
            self.out.not_needed(settings.at, what, "a path has a slash at its beginning in any case");
        }
        self.forward_prefix(what, settings, &prefixes, made);
        made.plugins.push(Plug::of(draft!(Rewrite { regex: rules })));
        self.out.converted(settings.at, what);
    }

    /// Sends the removed prefix, the first that fits, to targets in `X-Forwarded-Prefix`.
    fn forward_prefix(&mut self, what: &str, settings: &Node, prefixes: &[String], made: &mut Made) {
        if made.plugins.iter().any(|plug| plug.name == "rewrite") {
            let why = "the path is changed before, and X-Forwarded-Prefix does not tell what was taken away";
            return self.out.partial(settings.at, what, why, "");
        }
        let mut others = Cond::Always;
        for prefix in prefixes {
            let fits = Cond::path_is(Matcher::regex(format!("{}.*", text::literal(prefix))));
            let when = others.clone().and(fits.clone()).when();
            others = others.and(fits.negate());
            let value = prefix.replace('$', "$$");
            let rule = draft!(HeaderRule {
                operation: "append",
                target: "header",
                key: "X-Forwarded-Prefix",
                value
            });
            made.plugins.push(Plug::of(draft!(RequestTransformer { rules: [rule] })).when(when));
        }
    }

    pub(super) fn strip_prefix_regex(&mut self, what: &str, settings: &Node, made: &mut Made) {
        let mut rules = Vec::new();
        for regex in super::list(settings, "regex") {
            let whole = format!("^(?:{})/?(.*)$", regex.trim_start_matches('^'));
            // The last group is what follows the prefix.
            let Some(last) = Regex::new(&whole).ok().map(|regex| regex.captures_len() - 1) else {
                return self.no_regex(what, settings, made);
            };
            rules.push(draft!(Replaced { from: whole, to: format!("/${{{last}}}") }));
        }
        if rules.is_empty() {
            return self.no_regex(what, settings, made);
        }
        made.plugins.push(Plug::of(draft!(Rewrite { regex: rules })));
        self.out.converted(settings.at, what);
    }

    pub(super) fn replace_path_regex(&mut self, what: &str, settings: &Node, made: &mut Made) {
        let pair = settings.text_of("regex").zip(settings.text_of("replacement"));
        let Some((from, to)) = pair.filter(|(regex, _)| text::is_regex(regex)) else {
            return self.no_regex(what, settings, made);
        };
        let rule = draft!(Replaced { from, to: groups(to), all: true });
        made.plugins.push(Plug::of(draft!(Rewrite { regex: [rule] })));
        self.out.converted(settings.at, what);
    }

    fn no_regex(&mut self, what: &str, settings: &Node, made: &mut Made) {
        let why = "its regex can't be converted";
        made.is_closed |= self.out.guard_not_converted(settings.at, what, why, "use the plugin `rewrite`");
    }

    pub(super) fn add_prefix(&mut self, what: &str, settings: &Node, made: &mut Made) {
        let Some(prefix) = settings.text_of("prefix") else {
            return self.out.not_converted(settings.at, what, "it names no prefix", "");
        };
        let to = format!("{}${{1}}", prefix.trim_end_matches('/').replace('$', "$$"));
        made.plugins.push(Plug::of(draft!(Rewrite { regex: [draft!(Replaced { from: "^(.*)$", to })] })));
        self.out.converted(settings.at, what);
    }

    pub(super) fn replace_path(&mut self, what: &str, settings: &Node, made: &mut Made) {
        let Some(path) = settings.text_of("path") else {
            return self.out.not_converted(settings.at, what, "it names no path", "");
        };
        made.plugins.push(Plug::of(draft!(Rewrite { path: path.replace("${", "$${") })));
        self.out.converted(settings.at, what);
    }

    pub(super) fn redirect_scheme(&mut self, what: &str, settings: &Node, made: &mut Made) {
        let scheme = settings.text_of("scheme").unwrap_or("https");
        let mut config = draft!(Redirect { scheme });
        if let Some(port) = number(settings, "port").filter(|it| *it != 443 && (1..=65_535).contains(it)) {
            config.port(port);
        }
        made.plugins.extend(by_method(config, Cond::Always, is_true(settings, "permanent")));
        self.out.converted(settings.at, what);
    }

    /// Of the whole URL: one host to another, with all that follows, is known.
    pub(super) fn redirect_regex(&mut self, what: &str, settings: &Node, made: &mut Made) {
        let pair = settings.text_of("regex").zip(settings.text_of("replacement"));
        let found = pair.and_then(|(regex, replacement)| moved(regex, replacement));
        match found {
            Some((redirect, when)) => {
                made.plugins.extend(by_method(redirect, when, is_true(settings, "permanent")));
                self.out.converted(settings.at, what);
            }
            None => {
                let why = "of regexes over the whole URL, only those that move one host to another are known";
                made.is_closed |= self.out.guard_not_converted(settings.at, what, why, TODO);
            }
        }
    }
}

/// `^https?://www\.a\.example/(.*)` and `https://a.example/${1}` as a redirect for that host.
fn moved(regex: &str, replacement: &str) -> Option<(Redirect, Cond)> {
    let rest = regex.strip_prefix('^').unwrap_or(regex);
    let schemes: [(&str, Option<&str>); 3] =
        [("https?://", None), ("https://", Some("https")), ("http://", Some("http"))];
    let (rest, scheme) =
        schemes.iter().find_map(|(start, scheme)| Some((rest.strip_prefix(start)?, *scheme)))?;
    let (host, path) = rest.split_once('/')?;
    matches!(path, "(.*)" | "(.*)$" | "(.+)" | "(.+)$").then_some(())?;
    let name = host.replace("\\.", ".");
    is_name(&name).then_some(())?;
    let target = replacement.strip_suffix("${1}").or_else(|| replacement.strip_suffix("$1"))?;
    let to = target.strip_prefix("https://").or_else(|| target.strip_prefix("http://"))?.strip_suffix('/')?;
    is_name(to.split(':').next().unwrap_or(to)).then_some(())?;
    let mut when = draft!(Match { hosts: [name.to_ascii_lowercase()] });
    if let Some(scheme) = scheme {
        when.scheme(scheme);
    }
    if path.starts_with("(.+)") {
        when.not(draft!(Match { path: Matcher::exact("/") }));
    }
    let location = format!("{}${{request.target}}", target.trim_end_matches('/'));
    Some((draft!(Redirect { location, query: "drop" }), Cond::is(when)))
}

/// A redirect with the statuses of Traefik: methods but GET stay as they are.
fn by_method(redirect: Redirect, when: Cond, is_permanent: bool) -> [Plug; 2] {
    let with = |status: u16, cond: Cond| {
        let mut redirect = redirect.clone();
        redirect.status_code(status);
        Plug::of(redirect).when(cond.when())
    };
    let (get, others) = statuses(is_permanent);
    let is_get = Cond::methods(&["GET"]);
    [with(get, when.clone().and(is_get.clone())), with(others, when.and(is_get.negate()))]
}

/// The statuses of a redirect, for GET and for other methods.
pub(in crate::traefik) fn statuses(is_permanent: bool) -> (u16, u16) {
    if is_permanent { (301, 308) } else { (302, 307) }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))
}

/// `$1` as `${1}`.
fn groups(text: &str) -> String {
    let mut made = String::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match rest.peek() {
            Some(digit) if c == '$' && digit.is_ascii_digit() => {
                made.push_str(&format!("${{{digit}}}"));
                rest.next();
            }
            _ => made.push(c),
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_host_to_another() {
        let (redirect, when) =
            moved("^https?://www\\.a\\.example/(.*)", "https://a.example/${1}").expect("is known");
        assert_eq!(redirect["location"], "https://a.example${request.target}");
        assert_eq!(when, Cond::hosts(["www.a.example"]));
        let (redirect, when) =
            moved("^http://a.example/(.+)$", "https://b.example:8443/$1").expect("is known");
        assert_eq!(redirect["location"], "https://b.example:8443${request.target}");
        assert_eq!(when.when().expect("a condition")["scheme"], "http");
        for (regex, replacement) in [
            ("^https?://(.*)/(.*)", "https://a.example/${2}"),
            ("^https?://a.example/x/(.*)", "https://b.example/${1}"),
            ("^https?://a.example/(.*)", "https://${1}"),
            ("^https?://a.example/(.*)", "/x"),
        ] {
            assert_eq!(moved(regex, replacement), None, "{regex}");
        }
    }
}
