//! The sites of a Caddyfile: their addresses, and their directives in the order in which Caddy runs them.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::order::{Rank, is_harmless, is_joined, sort};
use super::tokens::Line;
use super::{Caddy, matchers};
use crate::changed::{Change, What, seen};
use crate::cond::Cond;
use crate::draft::{Plug, To};
use crate::ports::{Port, Ports};
use crate::steps::{Ending, Step, ends, place, walk};
use crate::text;

/// Directives in the order in which they run, wherever they are written.
pub(super) const ORDER: &[&str] = &[
    "import (not read)",
    "bind",
    "handle_errors",
    "tls",
    "log",
    "tracing",
    "map",
    "vars",
    "root",
    "skip_log",
    "log_skip",
    "header",
    "copy_response_headers",
    "request_body",
    "redir",
    "method",
    "rewrite",
    "uri",
    "try_files",
    "basicauth",
    "basic_auth",
    "forward_auth",
    "request_header",
    "encode",
    "push",
    "templates",
    "handle",
    "handle_path",
    "route",
    "abort",
    "error",
    "respond",
    "metrics",
    "reverse_proxy",
    "php_fastcgi",
    "file_server",
    "acme_server",
];

/// A site's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) is_tls: bool,
    pub(super) path: String,
    /// Neither scheme nor port is written, so that plain requests are redirected.
    redirects: bool,
}

/// A site with its addresses.
pub(super) struct Site {
    pub(super) line: Line,
    pub(super) addresses: Vec<Address>,
}

/// What holds where directives are read.
#[derive(Debug, Clone, Default)]
pub(super) struct Scope {
    /// Matchers by name, as they are written: what they ask is asked of the request as it is where they are used.
    pub(super) named: HashMap<String, Line>,
    /// The prefix that `handle_path` took away.
    pub(super) stripped: String,
    /// What directives before changed about the request.
    pub(super) changes: Vec<Change>,
    pub(super) root: Option<String>,
    pub(super) tries: Option<Vec<String>>,
}

/// A `handle`, `handle_path` or `route`.
struct Block<'a> {
    line: &'a Line,
    /// Whether it runs for the same requests as the one before it.
    joins: bool,
    cond: Cond,
    /// Of the blocks of a group, a request takes one.
    group: &'a str,
}

impl Address {
    fn port(&self) -> Port {
        Port::new(self.is_tls, self.port, "")
    }
}

impl Caddy<'_> {
    pub(super) fn address(&self, text: &str) -> Option<Address> {
        let text = text.trim_end_matches(',');
        let (scheme, rest) =
            text.split_once("://").map_or((None, text), |(scheme, rest)| (Some(scheme), rest));
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let (host, port) = match authority.strip_prefix(':') {
            Some(port) => (String::new(), Some(port.parse().ok()?)),
            None => text::host_port(authority)?,
        };
        let is_tls = match (scheme, port) {
            (Some("http"), _) => false,
            (Some("https"), _) => true,
            (Some(_), _) => return None,
            (None, Some(port)) => {
                port == self.https_port || !host.is_empty() && port != self.http_port && !self.no_https
            }
            (None, None) => !host.is_empty() && !self.no_https,
        };
        let redirects = scheme.is_none() && port.is_none() && is_tls && !self.no_redirects;
        let port = port.unwrap_or(if is_tls { self.https_port } else { self.http_port });
        Some(Address { host, port, is_tls, path: path.to_owned(), redirects })
    }

    /// Translates sites, those with longer hosts and paths first, as Caddy looks at them.
    pub(super) fn sites(&mut self, sites: Vec<Site>) {
        let ports = self.listeners(&sites);
        for site in &sites {
            for address in &site.addresses {
                if !address.path.is_empty() && address.path != "/" {
                    self.out.lost(
                        site.line.at,
                        site.line.text(),
                        "paths in a site's address are not translated",
                        "use `handle`",
                    );
                }
            }
            let mut facets = Vec::new();
            for port in ports.all() {
                let of: Vec<&Address> = site.addresses.iter().filter(|it| it.port() == *port).collect();
                if of.is_empty() {
                    continue;
                }
                let hosts: Vec<&str> =
                    of.iter().map(|it| it.host.as_str()).filter(|host| !host.is_empty()).collect();
                let good = hosts.iter().all(|host| !host.trim_start_matches("*.").contains(['*', '{']));
                if !good {
                    self.out.lost(
                        site.line.at,
                        site.line.text(),
                        "only names and `*.` in front of one are known",
                        "",
                    );
                    continue;
                }
                let mut facet = ports.facet(port);
                if of.len() == hosts.len() {
                    facet["hosts"] = json!(hosts);
                }
                if port.is_tls {
                    facet["scheme"] = json!("https");
                }
                facets.push(facet);
            }
            if facets.is_empty() {
                continue;
            }
            let name = site
                .addresses
                .iter()
                .map(|it| it.host.as_str())
                .find(|host| !host.is_empty())
                .unwrap_or("site");
            let mut scope = Scope::default();
            let steps = self.directives(site.line.inner(), &mut scope);
            let mut items = Vec::new();
            if let Some(plugins) = walk(&steps, &Cond::Always, Vec::new(), &mut items) {
                let ending = Ending::answer(site.line.at, 200, "");
                items.push(crate::steps::Item { cond: Cond::Always, ending, plugins });
            }
            self.out.done(site.line.at, site.line.text());
            place(self.out, name, &facets, items);
            self.redirects(site, name);
        }
    }

    /// Sends plain requests to https, as Caddy does for sites that don't say `http://`.
    fn redirects(&mut self, site: &Site, name: &str) {
        let hosts: Vec<&str> =
            site.addresses.iter().filter(|it| it.redirects).map(|it| it.host.as_str()).collect();
        if hosts.is_empty() {
            return;
        }
        let why = "Caddy gets certificates by itself; here they are files";
        self.out.lost(site.line.at, site.line.text(), why, "set gateway.tls.certificates");
        let config = json!({ "status_code": 308, "location": "https://${request.host}${request.target}", "query": "drop" });
        let mut route = crate::draft::Route::new(format!("{name}-to-https"), To::Redirect(config));
        route.matches.push(json!({ "hosts": hosts, "scheme": "http", "path": "/" }));
        self.out.route(route);
    }

    fn listeners(&mut self, sites: &[Site]) -> Ports {
        let mut ports = Ports::default();
        for address in sites.iter().flat_map(|site| &site.addresses) {
            ports.add(address.is_tls, address.port, "");
        }
        if sites.iter().flat_map(|site| &site.addresses).any(|it| it.redirects) {
            ports.add(false, self.http_port, "");
        }
        ports.listen(&mut self.out.gateway);
        ports
    }

    /// Directives as steps, in the order in which Caddy runs them.
    pub(super) fn directives(&mut self, lines: &[Line], scope: &mut Scope) -> Vec<Step> {
        for line in lines.iter().filter(|line| line.name().starts_with('@')) {
            scope.named.insert(line.name().to_owned(), line.clone());
        }
        let named_path = |name: &str| {
            let set = lines.iter().find(|line| line.name() == name)?;
            let own = (set.word(1) == "path").then(|| set.word(2).to_owned());
            let inner = set.inner().iter().find(|line| line.name() == "path");
            own.or_else(|| inner.map(|line| line.word(1).to_owned()))
        };
        let rank = |line: &Line| {
            // `handle_path` is a `handle`.
            let name = if line.name() == "handle_path" { "handle" } else { line.name() };
            let position = self.order.iter().position(|known| known == name).unwrap_or(self.order.len());
            let matcher = line.arguments().first().filter(|it| it.starts_with(['/', '@']));
            let path =
                matcher.and_then(|it| if it.starts_with('/') { Some(it.clone()) } else { named_path(it) });
            let length =
                |path: String| path.trim_end_matches('*').len() * 2 + usize::from(!path.ends_with('*'));
            Rank { position, has_matcher: matcher.is_some(), length: path.map_or(0, length) }
        };
        let mut ranked: Vec<(Rank, &Line)> = lines
            .iter()
            .filter(|line| !line.name().starts_with('@'))
            .map(|line| (rank(line), line))
            .collect();
        sort(&mut ranked);
        let lines: Vec<&Line> = ranked.into_iter().map(|(_, line)| line).collect();
        self.in_order(&lines, scope, true)
    }

    /// Directives as steps, as they are written. Where Caddy sorts them, only the first `rewrite` that fits is used.
    pub(super) fn in_order(&mut self, lines: &[&Line], scope: &mut Scope, is_sorted: bool) -> Vec<Step> {
        let mut steps = Vec::new();
        self.groups += 1;
        let group = self.groups.to_string();
        // Of the blocks of one group, a request passes one.
        let mut taken = Cond::Never;
        let (mut rewritten, mut before) = (Cond::Never, None);
        let mut previous: Option<&Line> = None;
        for line in lines {
            let joins = previous.replace(line).is_some_and(|previous| is_joined(previous, line));
            let (cond, arguments) = self.matched(line, scope);
            let is_rewrite = is_sorted && line.name() == "rewrite";
            // It is asked of the path before any of them.
            let changes = match is_rewrite {
                true => before.get_or_insert_with(|| scope.changes.clone()),
                false => &mut scope.changes,
            };
            let cond = cond.and_then(|cond| seen(cond, changes));
            let cond = cond.map(|cond| match is_rewrite {
                true => {
                    let first = cond.clone().and(rewritten.clone().negate());
                    rewritten = rewritten.clone().or(cond);
                    first
                }
                false => cond,
            });
            let name = line.name();
            let Some(cond) = cond else {
                // Which requests are meant is not known: what follows can't be either.
                if is_harmless(name) {
                    self.out.lost(line.at, line.text(), "its matcher can't be translated", "use `when`");
                    continue;
                }
                let todo = "write its matcher with `matches`, then remove `request_termination`";
                let why = "its matcher can't be translated; all that gets here is closed";
                if self.out.guard(line.at, line.text(), why, todo) {
                    steps.push(Step::End(Cond::Always, Ending::new(line.at, To::Closed)));
                    return steps;
                }
                continue;
            };
            if matches!(name, "handle" | "route" | "handle_path") {
                let block = Block { line, joins, cond, group: &group };
                self.block(block, scope, &mut taken, &mut steps);
            } else {
                self.directive(line, cond, &arguments, scope, &mut steps);
            }
        }
        steps
    }

    /// A directive's matcher and its other arguments; `None` when the matcher can't be translated.
    fn matched(&self, line: &Line, scope: &Scope) -> (Option<Cond>, Vec<String>) {
        let arguments = line.arguments();
        let Some(first) = arguments.first() else { return (Some(Cond::Always), Vec::new()) };
        let rest = || arguments.get(1..).unwrap_or_default().to_vec();
        let lone = arguments.len() == 1 && matches!(line.name(), "redir" | "rewrite" | "root" | "try_files");
        if matches!(line.name(), "try_files" | "tls" | "log" | "bind") {
            return (Some(Cond::Always), arguments.to_vec());
        }
        match first.as_str() {
            "*" => (Some(Cond::Always), rest()),
            name if name.starts_with('@') => {
                (scope.named.get(name).and_then(|line| self.matcher_set(line)), rest())
            }
            path if path.starts_with('/') && !lone => (matchers::path(path), rest()),
            _ => (Some(Cond::Always), arguments.to_vec()),
        }
    }

    /// `@name …` or `@name { … }`: all lines have to hold, of several lines of one kind any.
    fn matcher_set(&self, line: &Line) -> Option<Cond> {
        if line.block.is_none() {
            let inner = Line { words: line.arguments().to_vec(), at: line.at, block: None };
            return self.matcher(&inner);
        }
        self.each_matcher(line.inner())
    }

    /// All of these, of those that ask for the same header any.
    fn each_matcher(&self, lines: &[Line]) -> Option<Cond> {
        let mut all: Vec<(String, Cond)> = Vec::new();
        for line in lines {
            let made = self.matcher(line)?;
            let kind = match line.name() {
                "header" => format!("header {}", line.word(1).to_ascii_lowercase()),
                name @ ("path" | "host" | "method" | "query" | "remote_ip" | "client_ip") => name.to_owned(),
                _ => String::new(),
            };
            match all.iter_mut().find(|(known, _)| !kind.is_empty() && *known == kind) {
                Some((_, known)) => *known = known.clone().or(made),
                None => all.push((kind, made)),
            }
        }
        Some(Cond::all(all.into_iter().map(|(_, cond)| cond)))
    }

    fn matcher(&self, line: &Line) -> Option<Cond> {
        let arguments = line.arguments();
        let (first, rest) = (arguments.first().map(String::as_str), arguments.get(1..).unwrap_or_default());
        match line.name() {
            "path" => {
                arguments.iter().map(|one| matchers::path(one)).collect::<Option<Vec<_>>>().map(Cond::any)
            }
            "path_regexp" => arguments.last().and_then(|regex| matchers::path_regex(regex)),
            "host" => matchers::hosts(arguments),
            "method" => {
                let names: Vec<String> = arguments.iter().map(|it| it.to_ascii_uppercase()).collect();
                Some(Cond::methods(&names.iter().map(String::as_str).collect::<Vec<_>>()))
            }
            "header" => matchers::header(first?, rest),
            "header_regexp" => match arguments {
                [name, regex] | [_, name, regex] => matchers::header_regex(name, regex),
                _ => None,
            },
            "query" => {
                let pairs = arguments.iter().map(|it| {
                    let (name, value) = it.split_once('=').unwrap_or((it, ""));
                    (name.to_owned(), value.to_owned())
                });
                Some(matchers::query(&pairs.collect::<Vec<_>>()))
            }
            "remote_ip" | "client_ip" => {
                // With `forwarded`, it is the address that the request names.
                if first? == "forwarded" { None } else { matchers::clients(arguments) }
            }
            "protocol" => match first? {
                scheme @ ("http" | "https") => Some(Cond::is(json!({ "scheme": scheme }))),
                "grpc" => Some(Cond::is(json!({ "grpc": {} }))),
                _ => None,
            },
            "not" if line.block.is_some() => Some(self.each_matcher(line.inner())?.negate()),
            "not" => {
                let inner = Line { words: arguments.to_vec(), at: line.at, block: None };
                Some(self.matcher(&inner)?.negate())
            }
            _ => None,
        }
    }

    fn directive(
        &mut self,
        line: &Line,
        cond: Cond,
        arguments: &[String],
        scope: &mut Scope,
        steps: &mut Vec<Step>,
    ) {
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        match line.name() {
            "root" => {
                scope.root = words.last().map(|root| (*root).to_owned()).filter(|_| cond == Cond::Always);
                self.out.done(line.at, line.text());
            }
            "tls" => self.tls(line),
            _ => self.handler(line, cond, &words, scope, steps),
        }
    }

    /// `handle`, `handle_path` and `route`. One that joins the one before it runs for the same requests, after it.
    fn block(&mut self, block: Block<'_>, scope: &mut Scope, taken: &mut Cond, steps: &mut Vec<Step>) {
        let Block { line, joins, cond, group } = block;
        let mut inner_scope = scope.clone();
        let mut inner = Vec::new();
        if line.name() == "handle_path" {
            let prefix = line.arguments().first().map_or("", |it| it.trim_end_matches('*'));
            let prefix = prefix.trim_end_matches('/').to_owned();
            inner.push(Step::Pass(Cond::Always, strip(&prefix)));
            inner_scope.stripped = format!("{}{prefix}", scope.stripped);
            let what = What::Strip { prefix, sure: true };
            inner_scope.changes.push(Change::new(Cond::Always, what));
        }
        if line.name() == "route" {
            for named in line.inner().iter().filter(|line| line.name().starts_with('@')) {
                inner_scope.named.insert(named.name().to_owned(), named.clone());
            }
            let lines: Vec<&Line> =
                line.inner().iter().filter(|line| !line.name().starts_with('@')).collect();
            inner.extend(self.in_order(&lines, &mut inner_scope, false));
        } else {
            inner.extend(self.directives(line.inner(), &mut inner_scope));
        }
        let is_route = line.name() == "route";
        let own = if is_route || joins { cond.clone() } else { cond.clone().and(taken.clone().negate()) };
        if !is_route {
            *taken = taken.clone().or(cond.clone());
        }
        // Those who go on behind it are changed.
        if !ends(&inner) {
            for change in inner_scope.changes.drain(scope.changes.len()..).collect::<Vec<_>>() {
                scope.changes.push(Change::new(own.clone().and(change.when), change.what));
            }
        }
        self.out.done(line.at, line.text());
        if let (true, Some(Step::Inner { steps: before, .. })) = (joins, steps.last_mut()) {
            before.push(Step::Inner { cond: Cond::Always, steps: inner, group: None, ends: false });
            return;
        }
        let group = (!is_route).then(|| group.to_owned());
        steps.push(Step::Inner { cond, steps: inner, group, ends: false });
    }

    /// `tls CERT KEY`; everything else is Caddy's own way to certificates.
    fn tls(&mut self, line: &Line) {
        match line.arguments() {
            [certificate, key] => {
                self.certificates.push(json!({ "cert_path": certificate, "key_path": key }));
                self.out.done(line.at, line.text());
            }
            _ => self.out.lost(
                line.at,
                line.text(),
                "certificates are files here",
                "set gateway.tls.certificates",
            ),
        }
        for inner in line.inner() {
            if inner.name() == "client_auth" {
                self.asks_certificates = true;
                let todo = "set gateway.tls.client_ca_path, then remove `request_termination`";
                self.out.guard(inner.at, "tls client_auth", "what it guards is closed", todo);
            } else {
                self.out.lost(
                    inner.at,
                    format_args!("tls {}", inner.text()),
                    "TLS 1.2 and 1.3 with rustls's ciphers are spoken",
                    "",
                );
            }
        }
    }
}

/// Takes a prefix away, whatever its case.
pub(super) fn strip(prefix: &str) -> Plug {
    let from = format!("(?i)^{}/?(.*)$", text::literal(prefix));
    let value: Value = json!({ "regex": [{ "from": from, "to": "/${1}" }] });
    Plug::new("rewrite", value)
}
