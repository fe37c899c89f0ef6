//! The directives of a Caddyfile that do something with a request.

use super::changes::{changed_by_tries, changed_headers, changed_target, prepended};
use super::hidden_files::hidden;
use super::path_regex_groups;
use super::responses::{encode, fixed, header_rules};
use super::sites::Scope;
use super::strips::StripScope;
use super::tokens::CaddyLine;
use super::{Caddy, matchers};
use crate::changed::{RequestChange, What};
use crate::cond::Cond;
use crate::draft::{
    Password, Plug, QueryChanges, Redirect, Replaced, RequestSizeLimiting, Rewrite, StaticFiles, To,
    basic_auth, draft, only_group,
};
use crate::steps::{RouteEnd, RouteStep};
use crate::text;

const TODO: &str = "use a plugin (see `ferrum-edge plugins`), then remove `request_termination`";

impl Caddy<'_> {
    pub(super) fn handler(
        &mut self,
        line: &CaddyLine,
        cond: Cond,
        words: &[&str],
        scope: &mut Scope,
        steps: &mut Vec<RouteStep>,
    ) {
        let (at, what) = (line.at, line.text());
        self.report_changed_placeholders(line, scope);
        match line.name() {
            "log" | "skip_log" | "log_skip" => self.log(line, scope),
            "bind" => {
                let todo = "set gateway.http and gateway.https";
                self.out.not_converted(at, what, "the gateway listens on one address", todo);
            }
            "encode" | "header" | "request_header" | "request_body" => {
                let changed = changed_headers(line, words).into_iter();
                scope.changes.extend(changed.map(|what| RequestChange::new(cond.clone(), what)));
                steps.extend(self.passing(line, words).map(|plug| RouteStep::Pass(cond, plug)));
            }
            "redir" => {
                let ending = self.redir(line, words, scope);
                steps.push(RouteStep::End(cond, ending));
            }
            "respond" | "error" => {
                let ending = self.respond(line, words);
                steps.push(RouteStep::End(cond, ending));
            }
            "abort" => {
                self.out.partial(at, what, "the connection is not cut off: it answers 403", "");
                steps.push(RouteStep::End(cond, RouteEnd::answer(at, 403, "")));
            }
            "rewrite" | "uri" => self.rewrites(line, cond, words, scope, steps),
            "try_files" => {
                scope.changes.push(RequestChange::new(cond, changed_by_tries(words)));
                scope.tries = Some(words.iter().map(|it| (*it).to_owned()).collect());
            }
            "basicauth" | "basic_auth" => self.passwords(line, cond, steps),
            "forward_auth" => self.forward_auth(line, cond, words, scope, steps),
            "reverse_proxy" if self.close_tried_paths(line, &cond, scope, steps) => {}
            "reverse_proxy" => {
                let ending = self.reverse_proxy(line, words);
                steps.push(RouteStep::End(cond, ending));
            }
            "file_server" => {
                let paths = hidden(line, scope).filter(|paths| *paths != Cond::Never);
                let is_hidden =
                    |paths| RouteStep::End(cond.clone().and(paths), RouteEnd::answer(at, 404, ""));
                steps.extend(paths.map(is_hidden));
                let ending = self.file_server(line, words, scope);
                steps.push(RouteStep::End(cond, ending));
            }
            "handle_errors" => {
                steps.extend(self.errors(line, words, scope).map(|it| RouteStep::Pass(cond, it)))
            }
            "php_fastcgi" => {
                let ending = self.php_fastcgi(line, words, scope);
                steps.push(RouteStep::End(cond, ending));
            }
            "metrics" | "tracing" | "push" | "acme_server" | "templates" | "map" | "vars" | "method"
            | "invoke" | "fs" | "intercept" => {
                self.out.not_converted(at, what, "the gateway does not support this", "");
                if let ("method", Some(to)) = (line.name(), words.first()) {
                    let method = What::Method(to.to_ascii_uppercase());
                    scope.changes.push(RequestChange::new(cond.clone(), method));
                }
                if matches!(line.name(), "metrics" | "acme_server" | "invoke") {
                    steps.push(RouteStep::End(cond, RouteEnd::new(at, To::Closed)));
                }
            }
            _ => {
                if self.out.guard_not_converted(at, what, "this directive is not known, and may guard", TODO)
                {
                    steps.push(RouteStep::End(cond, RouteEnd::new(at, To::Closed)));
                }
            }
        }
    }

    /// What changes a request or a response that passes: the plugin for it.
    fn passing(&mut self, line: &CaddyLine, words: &[&str]) -> Option<Plug> {
        let (at, what) = (line.at, line.text());
        match line.name() {
            "encode" => {
                self.out.converted(at, what);
                Some(encode(words))
            }
            "request_body" => {
                let size = line.inner().iter().find(|it| it.name() == "max_size");
                let size = size.and_then(|it| it.arguments().first()).and_then(|it| text::bytes(it, 1000));
                let Some(bytes) = size.filter(|it| *it > 0) else {
                    self.out.not_converted(at, what, "no size that is understood", "");
                    return None;
                };
                self.out.converted(at, what);
                Some(Plug::of(draft!(RequestSizeLimiting { max_size: bytes })))
            }
            name => {
                let is_request = name == "request_header";
                let (rules, bad) = header_rules(line, words, is_request);
                if bad > 0 {
                    self.out.not_converted(
                        at,
                        what,
                        "placeholders and replacements in it have no counterpart",
                        "",
                    );
                } else {
                    self.out.converted(at, what);
                }
                let plugin = if is_request { "request_transformer" } else { "response_transformer" };
                (!rules.is_empty()).then(|| Plug::of_rules(plugin, rules))
            }
        }
    }

    /// `redir TO [CODE]`.
    fn redir(&mut self, line: &CaddyLine, words: &[&str], scope: &Scope) -> RouteEnd {
        let status = match words.get(1).copied() {
            None | Some("temporary") => Some(302),
            Some("permanent") => Some(301),
            Some("html") => None,
            Some(code) => code.parse::<u16>().ok(),
        };
        let plain = words.first().and_then(|to| matchers::template(to));
        let regex = self.path_regex(line, scope).filter(|_| plain.is_none());
        let to = match &regex {
            Some(regex) => words.first().and_then(|to| path_regex_groups::template(to, regex)),
            None => plain,
        };
        let good = |to: &String| {
            ["/", "http://", "https://", "${request.scheme}://"].iter().any(|start| to.starts_with(start))
        };
        match (status.filter(|status| matches!(status, 301 | 302 | 303 | 307 | 308)), to.filter(good)) {
            (Some(status), Some(to)) => {
                self.out.converted(line.at, line.text());
                let redirect = draft!(Redirect { status_code: status, location: to, query: "drop" });
                let captured = regex.map(|regex| regex.whole);
                RouteEnd { captured, ..RouteEnd::new(line.at, To::Redirect(redirect)) }
            }
            _ => {
                self.out.route_closed(
                    line.at,
                    line.text(),
                    "this redirect can't be converted",
                    "use the plugin `redirect`",
                );
                RouteEnd::new(line.at, To::Closed)
            }
        }
    }

    /// `respond [BODY] [STATUS]` and `error [MESSAGE] [STATUS]`.
    fn respond(&mut self, line: &CaddyLine, words: &[&str]) -> RouteEnd {
        let inner = |name: &str| {
            line.inner()
                .iter()
                .find(|it| it.name() == name)
                .and_then(|it| it.arguments().first())
                .map(String::as_str)
        };
        let default = if line.name() == "error" { 500 } else { 200 };
        let is_status = |word: &str| word.len() == 3 && word.bytes().all(|b| b.is_ascii_digit());
        let (body, status) = match words {
            [] => ("", None),
            [one] if is_status(one) => ("", Some(*one)),
            [one] => (*one, None),
            [body, status, ..] => (*body, Some(*status)),
        };
        let body = inner("body").or_else(|| inner("message")).unwrap_or(body);
        let status = status.and_then(|status| status.parse().ok()).unwrap_or(default);
        let is_page = line.name() == "respond" && matchers::has_placeholders(body);
        let page = matchers::template(&body.replace('$', "$$")).filter(|_| is_page);
        if is_page && page.is_none() {
            self.out.partial(line.at, line.text(), "placeholders in a body are sent as they are written", "");
        } else {
            self.out.converted(line.at, line.text());
        }
        let body = if line.name() == "error" { "" } else { body };
        if (200..600).contains(&status) {
            fixed(line.at, status, body, page)
        } else {
            RouteEnd::new(line.at, To::Closed)
        }
    }

    /// `rewrite TO`; `None` where that can't be converted.
    fn rewritten_to(&self, line: &CaddyLine, to: &str, scope: &Scope) -> Option<Plug> {
        let (path, query) = to.split_once('?').map_or((to, None), |(path, query)| (path, Some(query)));
        let own = query.map(|query| query.strip_suffix("{query}").unwrap_or(query));
        let keeps = query.is_none() || own != query;
        let own = own.map(|own| own.trim_end_matches('&')).filter(|own| !own.is_empty());
        let whole = own.map_or_else(|| path.to_owned(), |own| format!("{path}?{own}"));
        let regex = self.path_regex(line, scope);
        let of_groups = regex.and_then(|regex| path_regex_groups::replaced(&whole, &regex));
        let mut rewrite = of_groups.or_else(|| prepended(&whole)).or_else(|| {
            let path = matchers::template(&whole)?;
            let is_path = path.starts_with('/') || path.starts_with("${request.path}");
            is_path.then(|| draft!(Rewrite { path }))
        })?;
        if !keeps {
            rewrite.query(draft!(QueryChanges { remove_all: true }));
        }
        Some(Plug::of(rewrite))
    }

    /// `rewrite TO` and `uri OPERATION …`.
    fn rewrites(
        &mut self,
        line: &CaddyLine,
        cond: Cond,
        words: &[&str],
        scope: &mut Scope,
        steps: &mut Vec<RouteStep>,
    ) {
        let made = match (line.name(), words) {
            ("rewrite", [to]) => self.rewritten_to(line, to, scope),
            ("uri", ["strip_prefix", prefix]) if !prefix.contains('{') => {
                if prefix.ends_with('/') {
                    let why =
                        "what is left of a path begins with a slash; Caddy takes that of the prefix, too";
                    self.out.partial(line.at, line.text(), why, "");
                }
                let own = line.arguments().first().filter(|it| it.starts_with('/'));
                self.ways.extend(own.cloned());
                let way = StripScope { cond: cond.clone(), changes: &scope.changes };
                self.strip(line.at, &line.text(), prefix, way, steps);
                self.ways.truncate(self.ways.len() - usize::from(own.is_some()));
                self.out.converted(line.at, line.text());
                let changes = changed_target(line.name(), words).into_iter();
                scope.changes.extend(changes.map(|what| RequestChange::new(cond.clone(), what)));
                return;
            }
            ("uri", ["strip_suffix", suffix]) if !suffix.contains('{') => {
                let from = format!("(?i)^(.*?){}$", text::literal(suffix));
                Some(Plug::of(draft!(Rewrite { regex: [draft!(Replaced { from, to: "${1}" })] })))
            }
            ("uri", ["replace", find, replace]) if !find.contains('{') && !replace.contains('{') => {
                self.out.partial(line.at, line.text(), "nothing is replaced in the query", "");
                let to = replace.replace('$', "$$");
                let rule = draft!(Replaced { from: text::literal(find), to, all: true });
                Some(Plug::of(draft!(Rewrite { regex: [rule] })))
            }
            ("uri", ["path_regexp", regex, replace]) if text::is_regex(regex) => {
                Some(Plug::of(draft!(Rewrite {
                    regex: [draft!(Replaced { from: regex, to: replace, all: true })]
                })))
            }
            _ => None,
        };
        match made {
            Some(plug) => {
                self.out.converted(line.at, line.text());
                let changes = changed_target(line.name(), words).into_iter();
                scope.changes.extend(changes.map(|what| RequestChange::new(cond.clone(), what)));
                steps.push(RouteStep::Pass(cond, plug));
            }
            None => {
                scope.changes.push(RequestChange::new(cond.clone(), What::AnyPath));
                if self.out.guard_not_converted(
                    line.at,
                    line.text(),
                    "this rewrite can't be converted",
                    "use the plugin `rewrite`",
                ) {
                    steps.push(RouteStep::End(cond, RouteEnd::new(line.at, To::Closed)));
                }
            }
        }
    }

    /// `basic_auth [HASH [REALM]] { NAME HASH }`: consumers, and a group that may come in here.
    fn passwords(&mut self, line: &CaddyLine, cond: Cond, steps: &mut Vec<RouteStep>) {
        self.accounts += 1;
        let group = format!("caddy-{}", self.accounts);
        let mut is_good = !line.inner().is_empty();
        for account in line.inner() {
            let [name, hash, rest @ ..] = account.words.as_slice() else {
                is_good = false;
                continue;
            };
            let known = hash.starts_with("$2") || hash.starts_with("$argon2id$");
            let is_plain = !name.contains('{') && rest.is_empty();
            is_good &= known
                && is_plain
                && self.out.account(name, Password::Hash(hash), std::slice::from_ref(&group));
        }
        if !is_good {
            let why = "its accounts can't be converted: hashes have to be bcrypt or argon2id, and one name has one password";
            if self.out.guard_not_converted(line.at, line.text(), why, TODO) {
                steps.push(RouteStep::End(cond, RouteEnd::new(line.at, To::Closed)));
            }
            return;
        }
        self.out.converted(line.at, line.text());
        let realm =
            line.arguments().iter().rev().find(|it| !it.starts_with(['/', '@', '*']) && *it != "bcrypt");
        let realm = realm.map_or("restricted", String::as_str);
        steps.push(RouteStep::Pass(cond.clone(), basic_auth(realm, false)));
        steps.push(RouteStep::Pass(cond, only_group(&group)));
    }

    /// Closes what a `try_files` before a `reverse_proxy` rewrites; says whether that is all that gets there.
    fn close_tried_paths(
        &mut self,
        line: &CaddyLine,
        cond: &Cond,
        scope: &Scope,
        steps: &mut Vec<RouteStep>,
    ) -> bool {
        let tries = scope.changes.iter().filter(|change| matches!(change.what, What::Fallback(_)));
        let tried = Cond::any(tries.map(|change| change.when.clone()));
        let why = "which path it passes on depends on files, by the `try_files` before it";
        let todo = "use `static_files` with `passthrough`";
        if tried == Cond::Never || !self.out.guard_not_converted(line.at, line.text(), why, todo) {
            return false;
        }
        let closed = cond.clone().and(tried.clone());
        steps.push(RouteStep::End(closed, RouteEnd::new(line.at, To::Closed)));
        tried == Cond::Always
    }

    fn reverse_proxy(&mut self, line: &CaddyLine, words: &[&str]) -> RouteEnd {
        let mut proxy = super::proxy::Proxying::default();
        for word in words {
            proxy.to.push((*word).to_owned());
        }
        for inner in line.inner() {
            self.proxy_line(line, inner, &mut proxy);
        }
        self.proxied(line.at, &line.text(), proxy)
    }

    fn file_server(&mut self, line: &CaddyLine, words: &[&str], scope: &Scope) -> RouteEnd {
        let inner = |name: &str| line.inner().iter().find(|it| it.name() == name);
        let root =
            inner("root").and_then(|it| it.arguments().first().cloned()).or_else(|| scope.root.clone());
        let Some(root) = root.filter(|root| root.starts_with('/') && !root.contains('{')) else {
            self.out.not_converted(
                line.at,
                line.text(),
                "its root is not known; it answers 503",
                "use the plugin `static_files`",
            );
            return RouteEnd::new(line.at, To::Closed);
        };
        if inner("hide").is_some() && hidden(line, scope).is_none()
            || inner("pass_thru").is_some()
            || scope.changes.iter().any(|it| it.what.is_of_path() && !it.what.is_known_to_files())
            || !scope.stripped.is_empty() && scope.tries.is_some()
            // A `try_files` of another block may have taken them.
            || scope.tries.is_none() && scope.changes.iter().any(|it| matches!(it.what, What::Fallback(_)))
        {
            let why = "such patterns of `hide`, `pass_thru` and files by a rewritten path can't be converted; it answers 503";
            self.out.route_closed(line.at, line.text(), why, "use the plugin `static_files`");
            return RouteEnd::new(line.at, To::Closed);
        }
        let mut config = draft!(StaticFiles { root, dotfiles: true });
        if words.contains(&"browse") || inner("browse").is_some() {
            config.listing(true);
        }
        match inner("index") {
            // A candidate that does not end in a slash is a file.
            _ if scope.tries.as_deref().is_some_and(finds_files_only) => config.index([""; 0]),
            Some(index) => config.index(index.arguments()),
            None => config.index(["index.html", "index.txt"]),
        }
        if let Some(tries) = &scope.tries {
            let Some(files) = tried_files(tries) else {
                let why = "its `try_files` can't be converted; it answers 503";
                self.out.not_converted(line.at, line.text(), why, "");
                return RouteEnd::new(line.at, To::Closed);
            };
            config.try_files(files);
        }
        self.out.converted(line.at, line.text());
        let mut ending = RouteEnd::new(line.at, To::Files(config));
        if !scope.stripped.is_empty() {
            // Files are looked for by what a prefix leaves.
            self.out.partial(line.at, line.text(), "the prefix has to be written in this case", "");
            ending.stripped_prefix = Some(scope.stripped.clone());
        }
        ending
    }
}

/// The candidates of a `try_files` before a `file_server`; `None` where one of them can't be converted.
fn tried_files(tries: &[String]) -> Option<Vec<String>> {
    let mut files: Vec<String> = tries
        .iter()
        .filter(|it| !matches!(it.as_str(), "{path}/" | "=404"))
        .map(|it| StaticFiles::below_root(it, "{path}"))
        .collect();
    let is_plain = |it: &String| !it.replace("{path}", "").contains(['{', '=']);
    if files.is_empty() || !files.iter().all(is_plain) {
        return None;
    }
    files.retain(|it| it.matches("{path}").count() <= 1 && (it.contains("{path}") || !it.ends_with('/')));
    if files.is_empty() {
        files.push("{path}".to_owned());
    }
    Some(files)
}

/// Whether a request for a folder gets none of its index files: no candidate is a folder, and the path that is left when none
/// exists is another one, or none.
fn finds_files_only(tries: &[String]) -> bool {
    let is_folder = |it: &String| it.contains("{path}") && it.ends_with('/');
    let leads_elsewhere = |it: &String| {
        it == "=404" || it.contains("{path}") && !it.trim_start_matches('/').starts_with("{path}")
    };
    !tries.iter().any(is_folder) && tries.iter().any(leads_elsewhere)
}
