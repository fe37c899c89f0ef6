//! `http-request`, `http-response`, `redirect` and `tcp-request` rules as steps.

use std::fmt;

use serde_json::{Map, Value};

use super::Haproxy;
use super::acl::{Acls, Term, Ways};
use super::changes::{SUBSTITUTED, changed_header, put_before, whole_host};
use super::limits::is_limit;
use super::request_condition::{convert, request_cond, why_not_converted};
use super::sections::{HaproxyLine, Section};
use super::templates::{added_query, groups, replacement, substituted, template};
use super::why::{Why, no_counterpart};
use crate::changed::What;
use crate::cond::Cond;
use crate::draft::{
    HeaderRule, Plug, QueryChanges, Replaced, ResponseTransformer, Rewrite, To, basic_auth, draft, only_group,
};
use crate::steps::{RouteEnd, RouteStep};
use crate::text;

pub(super) const TODO: &str = "write it with `matches` and plugins, then remove `request_termination`";

/// Actions that change nothing about who gets where.
const HARMLESS: &[&str] = &[
    "capture",
    "set-log-level",
    "set-var",
    "set-var-fmt",
    "unset-var",
    "set-nice",
    "set-mark",
    "set-tos",
    "add-acl",
    "del-acl",
    "set-map",
    "del-map",
    "cache-use",
    "cache-store",
    "early-hint",
    "disable-l7-retry",
    "set-timeout",
    "strict-mode",
    "wait-for-body",
    "set-bandwidth-limit",
    "do-resolve",
    "set-dst",
    "set-dst-port",
    "sc-inc-gpc0",
    "sc-inc-gpc1",
    "sc-set-gpt0",
    "normalize-uri",
    "wait-for-handshake",
    "set-priority-class",
    "set-priority-offset",
];

impl Haproxy<'_, '_> {
    /// The rules of a section as steps, in the order in which HAProxy takes them.
    pub(super) fn rules(&mut self, section: &Section, acls: &mut Acls) -> Vec<RouteStep> {
        let pages = self.error_pages(section);
        let mut steps: Vec<RouteStep> =
            pages.into_iter().map(|pages| RouteStep::Pass(Cond::Always, pages)).collect();
        for line in section.rules(&["tcp-request"]) {
            self.tcp_request(section, line, acls, &mut steps);
        }
        let mut allowed = Vec::new();
        for line in section.rules(&["http-request"]) {
            match self.allowed(line, acls) {
                Some(cond) => allowed.push((steps.len(), cond)),
                None => self.http_request(section, line, acls, &mut steps),
            }
        }
        for (first, cond) in allowed {
            steps.iter_mut().skip(first).for_each(|step| step.narrow(&cond.clone().negate()));
        }
        for line in section.lines.iter().filter(|line| line.name() == "redirect") {
            let words = line.arguments();
            self.redirect(section, line, words, acls, &mut steps);
        }
        let after = if section.kind == "backend" { "http-after-response" } else { "" };
        let mut of_responses = Vec::new();
        for line in section.rules(&["http-response", after]) {
            self.http_response(line, acls, &mut of_responses);
        }
        // Plugins see responses in the reverse of their order.
        steps.extend(of_responses.into_iter().rev());
        steps
    }

    /// The requests that `http-request allow` lets past the rules behind it in its section; `None` for other rules, and where its
    /// condition can't be said here.
    fn allowed(&mut self, line: &HaproxyLine, acls: &Acls) -> Option<Cond> {
        let words = line.arguments();
        let is_alone = words.get(1).is_none_or(|word| word == "if" || word == "unless");
        if words.first().is_none_or(|word| word != "allow") || !is_alone {
            return None;
        }
        let (_, ways) = self.split(line, words, acls);
        let cond = convert(&ways).ok()?;
        self.out.converted(line.at, line.text());
        Some(cond)
    }

    /// What `http-after-response` rules of a frontend change about all of its answers, after everything else.
    pub(super) fn after_all(&mut self, section: &Section, acls: &Acls) -> Vec<Plug> {
        let mut steps = Vec::new();
        for line in section.rules(&["http-after-response"]) {
            self.http_response(line, acls, &mut steps);
        }
        let plug = |step: RouteStep| match step {
            RouteStep::Pass(Cond::Never, _) | RouteStep::End(..) | RouteStep::Inner { .. } => None,
            RouteStep::Pass(cond, plug) => Some(plug.when(cond.when())),
        };
        steps.into_iter().rev().filter_map(plug).collect()
    }

    /// The words of a rule before its condition, and the ways in which that holds.
    pub(super) fn split<'l>(
        &mut self,
        line: &HaproxyLine,
        words: &'l [String],
        acls: &Acls,
    ) -> (&'l [String], Ways) {
        let at = words.iter().position(|word| word == "if" || word == "unless").unwrap_or(words.len());
        let (before, after) = words.split_at_checked(at).unwrap_or((words, &[]));
        let ways = match line.lacks() {
            Some(why) => vec![vec![(true, Term::NotConverted(why))]],
            None => acls.condition(after, &mut self.reader),
        };
        (before, ways)
    }

    pub(super) fn close_route(
        &mut self,
        line: &HaproxyLine,
        why: impl fmt::Display,
        steps: &mut Vec<RouteStep>,
    ) {
        let why = line.lacks().map_or_else(|| why.to_string(), |lacks| lacks.to_string());
        if self.out.guard_not_converted(line.at, line.text(), why, TODO) {
            steps.push(RouteStep::End(Cond::Always, RouteEnd::new(line.at, To::Closed)));
        }
    }

    fn tcp_request(
        &mut self,
        section: &Section,
        line: &HaproxyLine,
        acls: &mut Acls,
        steps: &mut Vec<RouteStep>,
    ) {
        let (words, ways) = self.split(line, line.arguments(), acls);
        match (words.get(1).map_or("", String::as_str), convert(&ways)) {
            ("reject" | "silent-drop", Ok(cond)) => {
                self.out.partial(line.at, line.text(), "the connection stays: requests get 403", "");
                steps.push(RouteStep::End(cond, RouteEnd::answer(line.at, 403, "")));
            }
            ("reject" | "silent-drop", Err(_)) if is_limit(&ways) => self.connections_not_limited(line),
            ("reject" | "silent-drop", Err(why)) => self.close_route(line, why, steps),
            (action, _) if action.starts_with("track-sc") => self.track(section, line, acls),
            ("accept" | "inspect-delay" | "capture" | "set-var", _) => {
                self.out.not_needed(line.at, line.text(), "");
            }
            _ if words.first().is_some_and(|word| word == "inspect-delay") => {
                self.out.not_needed(line.at, line.text(), "");
            }
            _ => self.close_route(line, "it is not known, and may guard", steps),
        }
    }

    fn http_request(
        &mut self,
        section: &Section,
        line: &HaproxyLine,
        acls: &mut Acls,
        steps: &mut Vec<RouteStep>,
    ) {
        let (words, ways) = self.split(line, line.arguments(), acls);
        let Some((action, rest)) = words.split_first() else { return };
        let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
        let after =
            |word: &str| rest.iter().position(|it| *it == word).and_then(|n| rest.get(n + 1)).copied();
        let cond = convert(&ways);
        let known = cond.as_ref().ok();
        match action.as_str() {
            "deny" | "tarpit" | "reject" | "silent-drop" => {
                let default = if action == "tarpit" { 500 } else { 403 };
                let status = after("deny_status")
                    .or_else(|| after("status"))
                    .and_then(|it| it.parse().ok())
                    .unwrap_or(default);
                match cond {
                    Err(_) if is_limit(&ways) => self.limited(section, line, &ways, status, acls, steps),
                    cond => self.deny(line, &ways, cond, status, steps),
                }
            }
            "allow" => {
                self.close_route(line, "which requests skip the rules behind it can't be said here", steps)
            }
            "auth" => self.auth(line, &ways, after("realm"), steps),
            "redirect" => {
                let words: Vec<String> = line.arguments().get(1..).unwrap_or_default().to_vec();
                self.redirect(section, line, &words, acls, steps);
            }
            "return" => self.returned(line, &rest, cond, steps),
            "set-header" | "add-header" | "del-header" | "replace-header" | "replace-value" => {
                self.header(line, words, cond.clone(), "request_transformer", acls, steps);
                if let Some(what) = changed_header(action, &rest) {
                    acls.change(line, known, what);
                }
            }
            "set-path" | "set-pathq" | "set-uri" | "replace-path" | "replace-pathq" | "replace-uri"
            | "set-query" | "set-method" => {
                self.rewrite(line, action, &rest, cond.clone(), acls, steps);
                acls.change_target(line, action, &rest, known);
            }
            "set-src" | "set-src-port" => {
                acls.change(line, None, What::AnyClient);
                self.out.not_converted(
                    line.at,
                    line.text(),
                    "clients' addresses come from X-Forwarded-For",
                    "set gateway.trusted_proxies",
                );
            }
            "use-service" => {
                self.out.not_converted(
                    line.at,
                    line.text(),
                    "it answers 503",
                    "see /metrics of the admin port",
                );
                steps.push(RouteStep::End(cond.unwrap_or(Cond::Always), RouteEnd::new(line.at, To::Closed)));
            }
            name if name.starts_with("track-sc") => self.track(section, line, acls),
            name if HARMLESS.iter().any(|known| name.starts_with(known)) => {
                self.out.not_converted(line.at, line.text(), "the gateway does not support this", "");
            }
            _ => self.close_route(line, "this action is not known, and may guard", steps),
        }
    }

    /// `http-request return`.
    fn returned(
        &mut self,
        line: &HaproxyLine,
        words: &[&str],
        cond: Result<Cond, Why>,
        steps: &mut Vec<RouteStep>,
    ) {
        let cond = match cond {
            Ok(cond) => cond,
            Err(why) => return self.close_route(line, why, steps),
        };
        let after =
            |word: &str| words.iter().position(|it| *it == word).and_then(|n| words.get(n + 1)).copied();
        let status = after("status").and_then(|it| it.parse().ok()).unwrap_or(200);
        let kind = after("content-type").unwrap_or("text/plain").to_owned();
        let body = after("string").or_else(|| after("lf-string")).unwrap_or_default().to_owned();
        let page = after("lf-string").and_then(template);
        let has = |word: &str| words.contains(&word);
        if has("file") || has("lf-file") || has("errorfile") || has("lf-string") && page.is_none() {
            self.out.partial(line.at, line.text(), "its body is not the same", "");
        } else {
            self.out.converted(line.at, line.text());
        }
        let status = if (200..600).contains(&status) { status } else { 503 };
        let to = match page {
            Some(page) => To::Page(status, kind, page),
            None => To::Answer(status, kind, body),
        };
        let mut ending = RouteEnd::new(line.at, to);
        let mut rules = Vec::new();
        for at in words.iter().enumerate().filter(|(_, word)| **word == "hdr").map(|(at, _)| at) {
            let (Some(name), Some(value)) = (words.get(at + 1), words.get(at + 2)) else { continue };
            match template(value) {
                Some(value) => {
                    rules.push(draft!(HeaderRule { operation: "append", target: "header", key: name, value }))
                }
                None => self.out.not_converted(
                    line.at,
                    line.text(),
                    "the value of a field has no counterpart",
                    "",
                ),
            }
        }
        if !rules.is_empty() {
            ending.plugins.push(Plug::of(draft!(ResponseTransformer { rules })));
        }
        steps.push(RouteStep::End(cond, ending));
    }

    fn deny(
        &mut self,
        line: &HaproxyLine,
        ways: &Ways,
        cond: Result<Cond, Why>,
        status: u16,
        steps: &mut Vec<RouteStep>,
    ) {
        let why = match cond {
            Ok(cond) => {
                self.out.converted(line.at, line.text());
                let status = if (200..600).contains(&status) { status } else { 403 };
                return steps.push(RouteStep::End(cond, RouteEnd::answer(line.at, status, "")));
            }
            Err(why) => why,
        };
        let asks = ways.iter().any(|way| way.iter().any(|(_, term)| matches!(term, Term::Auth(..))));
        if asks {
            self.auth(line, ways, None, steps);
        } else {
            self.close_route(line, why, steps);
        }
    }

    /// `auth … unless { http_auth(LIST) }`.
    fn auth(&mut self, line: &HaproxyLine, ways: &Ways, realm: Option<&str>, steps: &mut Vec<RouteStep>) {
        if let Some(why) = why_not_converted(ways) {
            return self.close_route(line, why, steps);
        }
        let mut asked = Vec::new();
        for way in ways {
            let who: Vec<&Term> = way
                .iter()
                .filter(|(holds, term)| !holds && matches!(term, Term::Auth(..)))
                .map(|(_, term)| term)
                .collect();
            let rest: Vec<(bool, Term)> =
                way.iter().filter(|(_, term)| !matches!(term, Term::Auth(..))).cloned().collect();
            let auth = way.iter().filter(|(_, term)| matches!(term, Term::Auth(..))).count();
            let (Some(cond), [Term::Auth(list, group)], 1) =
                (request_cond(&vec![rest]), who.as_slice(), auth)
            else {
                return self.close_route(
                    line,
                    "only `unless http_auth(LIST)`, with conditions on the request, can be converted",
                    steps,
                );
            };
            asked.push((cond, list.clone(), group.clone()));
        }
        for (cond, list, group) in asked {
            let Some(group) = self.users(&list, group.as_deref()) else {
                return self.close_route(line, "its user list has passwords by crypt(3), or is not there; only `insecure-password` and bcrypt are known", steps);
            };
            self.out.converted(line.at, line.text());
            steps.push(RouteStep::Pass(cond.clone(), basic_auth(realm.unwrap_or("haproxy"), false)));
            steps.push(RouteStep::Pass(cond, only_group(&group)));
        }
    }

    fn rewrite(
        &mut self,
        line: &HaproxyLine,
        action: &str,
        words: &[&str],
        cond: Result<Cond, Why>,
        acls: &Acls,
        steps: &mut Vec<RouteStep>,
    ) {
        let made = match (action, words) {
            // A template would have the path that the client sent.
            ("set-path", [to]) if put_before(to).is_some() || to.contains(SUBSTITUTED) => {
                substituted(to).map(|regex| draft!(Rewrite { regex }))
            }
            ("set-path", [to, ..]) | ("set-pathq" | "set-uri", [to]) => {
                template(to).filter(|to| to.starts_with('/')).map(|path| draft!(Rewrite { path }))
            }
            ("set-query", [to]) => added_query(to).map(|query| draft!(Rewrite { query })),
            ("replace-path" | "replace-uri" | "replace-pathq", [regex, to])
                if !regex.contains('?') || action == "replace-path" =>
            {
                let to = groups(to);
                let from = format!("^.*?(?:{regex}).*$");
                (text::is_regex(&from) && !to.contains("%["))
                    .then(|| draft!(Rewrite { regex: [draft!(Replaced { from, to })] }))
            }
            _ => None,
        };
        // What begins with a group may be nothing.
        let is_open = action.starts_with("replace-") && words.get(1).is_some_and(|to| !to.starts_with('/'));
        match (made, cond) {
            (_, Err(why)) => self.close_route(line, why, steps),
            (Some(mut config), Ok(cond)) => {
                if is_open {
                    let why = "a path that it leaves nothing of, or that begins without a slash then, is answered 400";
                    self.out.partial(line.at, line.text(), why, "begin it with a slash");
                }
                if matches!(action, "set-pathq" | "set-uri") {
                    config.query(draft!(QueryChanges { remove_all: true }));
                }
                if !matches!(action, "replace-pathq" | "replace-uri") {
                    self.report_template(line, text_of(&config, "path"), acls);
                } else {
                    let todo = "remove its parameters with `rewrite.query`";
                    self.out.partial(line.at, line.text(), "the query of the request stays", todo);
                }
                steps.push(RouteStep::Pass(cond, Plug::of(config)));
            }
            _ => self.close_route(line, "this rewrite can't be converted", steps),
        }
    }

    fn header(
        &mut self,
        line: &HaproxyLine,
        words: &[String],
        cond: Result<Cond, Why>,
        plugin: &'static str,
        acls: &Acls,
        steps: &mut Vec<RouteStep>,
    ) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let Some((action, words)) = words.split_first() else { return };
        let (action, words) = whole_host(action, words);
        let words = words.as_slice();
        let is_request = plugin == "request_transformer";
        let name = words.first().copied().unwrap_or_default();
        if words.iter().any(|word| word.contains("capture.req.")) {
            let why =
                "HAProxy knows it only where requests are logged or captured, and it is empty otherwise";
            self.out.partial(line.at, line.text(), why, "");
        }
        let rule = match (action, words) {
            ("del-header", [name]) => {
                Some(draft!(HeaderRule { operation: "remove", target: "header", key: name }))
            }
            ("set-header" | "add-header", [name, value]) => template(value).map(|value| {
                let operation = if action == "set-header" { "set" } else { "append" };
                draft!(HeaderRule { operation, target: "header", key: name, value })
            }),
            ("replace-header", [name, regex, with]) if !(is_request && name.eq_ignore_ascii_case("host")) => {
                replacement(regex, with).map(|one| {
                    draft!(HeaderRule {
                        operation: "replace",
                        target: "header",
                        key: name,
                        replacements: [one]
                    })
                })
            }
            _ => None,
        };
        match (rule, cond) {
            (Some(rule), Ok(cond))
                if is_request && name.eq_ignore_ascii_case("host") && action == "set-header" =>
            {
                self.report_template(line, text_of(&rule, "value"), acls);
                let host = words.get(1).and_then(|host| template(host)).unwrap_or_default();
                steps.push(RouteStep::Pass(cond, Plug::of(draft!(Rewrite { host }))));
            }
            (Some(rule), Ok(cond)) => {
                self.report_template(line, text_of(&rule, "value"), acls);
                steps.push(RouteStep::Pass(cond, Plug::of_rules(plugin, [rule])));
            }
            (_, cond)
                if is_request
                    && !name.is_empty()
                    && (action == "set-header" || action == "del-header" && words.len() == 1) =>
            {
                // A name that is not known may be any.
                if line.unknown.as_ref().is_some_and(|unknown| unknown.word <= 2) {
                    return self.close_route(line, no_counterpart(cond.err()), steps);
                }
                // What a client sends under this name does not pass for what HAProxy would have said.
                let rule = draft!(HeaderRule { operation: "remove", target: "header", key: name });
                let why = format!("{}; the field is removed", no_counterpart(cond.err()));
                self.out.not_converted(line.at, line.text(), why, "");
                steps.push(RouteStep::Pass(Cond::Always, Plug::of_rules(plugin, [rule])));
            }
            (_, cond) => {
                let todo =
                    if is_request { "use `request_transformer`" } else { "use `response_transformer`" };
                self.out.not_converted(line.at, line.text(), no_counterpart(cond.err()), todo);
            }
        }
    }

    fn http_response(&mut self, line: &HaproxyLine, acls: &Acls, steps: &mut Vec<RouteStep>) {
        let (words, ways) = self.split(line, line.arguments(), acls);
        let Some(action) = words.first() else { return };
        let cond = convert(&ways);
        match action.as_str() {
            "set-header" | "add-header" | "del-header" | "replace-header" | "replace-value" => {
                self.header(line, words, cond, "response_transformer", acls, steps);
            }
            "deny" => self.close_route(line, "responses are not refused by rules", steps),
            _ => self.out.not_converted(line.at, line.text(), "the gateway does not support this", ""),
        }
    }
}

/// A text of settings; empty where they have none.
fn text_of<'s>(settings: &'s Map<String, Value>, key: &str) -> &'s str {
    settings.get(key).and_then(Value::as_str).unwrap_or_default()
}
