//! The sites of a Caddyfile: their addresses, and their directives in the order in which Caddy runs them.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::order::{Neighbour, Neighbours, Rank, is_block, is_harmless, sort};
use super::strips::StripScope;
use super::tokens::CaddyLine;
use super::{Caddy, matchers};
use crate::changed::{Changes, RequestChange, What};
use crate::cond::Cond;
use crate::draft::{Match, Route, To};
use crate::ports::{Port, Ports};
use crate::steps::{RouteEnd, RouteStep, ends, place, walk};
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
    pub(super) line: CaddyLine,
    pub(super) addresses: Vec<Address>,
}

impl Site {
    /// By how much it goes before other sites: those with longer paths are looked at first.
    fn lift(&self) -> i64 {
        let longest = self.addresses.iter().map(|it| it.path.len()).max().unwrap_or(0);
        i64::try_from(longest).unwrap_or(0).min(1000) * 100_000
    }
}

/// What holds where directives are read.
#[derive(Debug, Clone, Default)]
pub(super) struct Scope {
    /// Matchers by name, as they are written: what they ask is asked of the request as it is where they are used.
    pub(super) named: Rc<HashMap<String, Rc<CaddyLine>>>,
    /// The prefix that `handle_path` took away.
    pub(super) stripped: String,
    /// What directives before changed about the request.
    pub(super) changes: Changes,
    pub(super) root: Option<String>,
    pub(super) tries: Option<Vec<String>>,
    /// A file server stands behind what is here.
    pub(super) has_files: bool,
    /// Where records go, by number.
    pub(super) logs: Vec<usize>,
}

/// A `handle`, `handle_path` or `route`.
struct Block<'a> {
    line: &'a CaddyLine,
    /// Whether it runs for the same requests as the one before it.
    joins: bool,
    cond: Cond,
    /// Of the blocks of a group, a request takes one.
    group: Option<&'a str>,
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
        let path = if matches!(path, "/" | "/*") { "" } else { path };
        Some(Address { host, port, is_tls, path: path.to_owned(), redirects })
    }

    /// Converts sites, those with longer hosts and paths first, as Caddy looks at them.
    pub(super) fn sites(&mut self, sites: Vec<Site>) {
        let ports = self.listeners(&sites);
        self.fall_through(&sites);
        for site in &sites {
            if self.out.is_too_large() {
                return;
            }
            let mut facets = Vec::new();
            // By the order of all ports, and by their paths.
            let mut by_port: BTreeMap<(usize, &str), Vec<&Address>> = BTreeMap::new();
            for address in &site.addresses {
                if let Some(place) = ports.place(&address.port()) {
                    by_port.entry((place, &address.path)).or_default().push(address);
                }
            }
            for ((place, path), of) in by_port {
                let Some(port) = ports.at(place) else { continue };
                let hosts: Vec<&str> =
                    of.iter().map(|it| it.host.as_str()).filter(|host| !host.is_empty()).collect();
                let good = hosts.iter().all(|host| !host.trim_start_matches("*.").contains(['*', '{']));
                if !good {
                    let why = "only names and `*.` in front of one are known";
                    self.out.not_converted(site.line.at, site.line.text(), why, "");
                    continue;
                }
                let mut facet = ports.facet(port);
                if of.len() == hosts.len() {
                    facet.hosts(hosts);
                }
                if port.is_tls {
                    facet.scheme("https");
                }
                match matchers::path(path) {
                    _ if path.is_empty() => facets.push(facet),
                    Some(Cond::Is(cond)) => facets.push(facet.with_facet(&Match::of_condition(cond))),
                    _ => {
                        let why = "this path is not understood";
                        self.out.route_closed(site.line.at, site.line.text(), why, "use `handle`");
                    }
                }
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
                let ending = RouteEnd::answer(site.line.at, 200, "");
                items.push(crate::steps::Item { cond: Cond::Always, ending, plugins });
            }
            self.out.converted(site.line.at, site.line.text());
            let before = self.out.proxies.len();
            place(self.out, name, &facets, items, site.lift());
            for number in scope.logs {
                for proxy in self.out.proxies.iter().skip(before) {
                    self.logs.add(number, proxy["id"].as_str().unwrap_or_default());
                }
            }
            self.redirects(site, name);
            self.get_certificates(site);
        }
    }

    /// Has requests that the paths of a host's sites don't take go on to sites of other names, as in Caddy.
    fn fall_through(&mut self, sites: &[Site]) {
        let Some(site) = sites.iter().find(|site| site.addresses.iter().any(|it| !it.path.is_empty())) else {
            return;
        };
        self.out.gateway.host_fallthrough(true);
        let why = "what no site takes is answered 404, in Caddy 200 without a body";
        self.out.partial(site.line.at, site.line.text(), why, "");
    }

    /// Sends plain requests to https, as Caddy does for sites that don't say `http://`.
    fn redirects(&mut self, site: &Site, name: &str) {
        let hosts: Vec<&str> =
            site.addresses.iter().filter(|it| it.redirects).map(|it| it.host.as_str()).collect();
        if hosts.is_empty() {
            return;
        }
        self.out.route(Route::to_https(name, hosts));
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
    pub(super) fn directives(&mut self, lines: &[CaddyLine], scope: &mut Scope) -> Vec<RouteStep> {
        let mut sets: HashMap<&str, &CaddyLine> = HashMap::new();
        for line in lines.iter().filter(|line| line.name().starts_with('@')) {
            Rc::make_mut(&mut scope.named).insert(line.name().to_owned(), Rc::new(line.clone()));
            sets.entry(line.name()).or_insert(line);
        }
        let named_path = |name: &str| {
            let set = sets.get(name)?;
            let own = (set.word(1) == "path").then(|| set.word(2).to_owned());
            let is_set = set.words.len() == 1;
            let inner = set.inner().iter().find(|line| is_set && line.name() == "path");
            own.or_else(|| inner.map(|line| line.word(1).to_owned()))
        };
        let rank = |line: &CaddyLine| {
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
        let mut ranked: Vec<(Rank, &CaddyLine)> = lines
            .iter()
            .filter(|line| !line.name().starts_with('@'))
            .map(|line| (rank(line), line))
            .collect();
        sort(&mut ranked);
        let lines: Vec<&CaddyLine> = ranked.into_iter().map(|(_, line)| line).collect();
        self.in_order(&lines, scope, true)
    }

    /// Directives as steps, as they are written. Where Caddy sorts them, only the first `rewrite` that fits is used, and
    /// neighbours with the same matcher are one route: it is asked once, before the first of them.
    pub(super) fn in_order(
        &mut self,
        lines: &[&CaddyLine],
        scope: &mut Scope,
        is_sorted: bool,
    ) -> Vec<RouteStep> {
        let mut steps = Vec::new();
        self.groups += 1;
        let group = is_sorted.then(|| self.groups.to_string());
        // Of the blocks of one group, a request passes one.
        let mut taken = Vec::new();
        let (mut rewritten, mut before) = (Cond::Never, None);
        let neighbours = Neighbours::new(lines);
        let is_files = |line: &&CaddyLine| {
            line.name() == "file_server" && line.words.len() == 1 && line.inner().is_empty()
        };
        scope.has_files = lines.iter().any(is_files);
        let mut previous: Option<(Neighbour, Option<Cond>)> = None;
        for line in lines {
            let (cond, arguments) = self.matched(line, scope);
            let own = neighbours.neighbour(line, &scope.named).filter(|_| is_sorted);
            let joined = previous.take().filter(|(previous, _)| Some(previous) == own.as_ref());
            let joins = joined.is_some() && is_block(line);
            let is_rewrite = is_sorted && line.name() == "rewrite";
            let cond = match joined {
                Some((_, cond)) => cond,
                None if is_rewrite => {
                    // It is asked of the path before any of them.
                    let cond = cond
                        .and_then(|cond| before.get_or_insert_with(|| scope.changes.clone()).before(cond));
                    let first = cond.clone().map(|cond| cond.and(rewritten.clone().negate()));
                    rewritten = rewritten.or(cond.unwrap_or(Cond::Never));
                    first
                }
                None => cond.and_then(|cond| scope.changes.before(cond)),
            };
            previous = own.map(|own| (own, cond.clone()));
            let name = line.name();
            let Some(cond) = cond else {
                // Which requests are meant is not known: what follows can't be either.
                if is_harmless(name) {
                    self.out.not_converted(
                        line.at,
                        line.text(),
                        "its matcher can't be converted",
                        "use `when`",
                    );
                    continue;
                }
                let todo = "write its matcher with `matches`, then remove `request_termination`";
                let why = "its matcher can't be converted; all that gets here is closed";
                if self.out.guard_not_converted(line.at, line.text(), why, todo) {
                    steps.push(RouteStep::End(Cond::Always, RouteEnd::new(line.at, To::Closed)));
                    return steps;
                }
                continue;
            };
            if is_block(line) || name == "route" {
                let block = Block { line, joins, cond, group: group.as_deref() };
                self.block(block, scope, &mut taken, &mut steps);
            } else {
                self.directive(line, cond, &arguments, scope, &mut steps);
            }
        }
        steps
    }

    fn directive(
        &mut self,
        line: &CaddyLine,
        cond: Cond,
        arguments: &[String],
        scope: &mut Scope,
        steps: &mut Vec<RouteStep>,
    ) {
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        match line.name() {
            "root" => {
                scope.root = words.last().map(|root| (*root).to_owned()).filter(|_| cond == Cond::Always);
                self.out.converted(line.at, line.text());
            }
            "tls" => self.tls(line),
            _ => self.handler(line, cond, &words, scope, steps),
        }
    }

    /// `handle`, `handle_path` and `route`. One that joins the one before it runs for the same requests, after it.
    fn block(
        &mut self,
        block: Block<'_>,
        scope: &mut Scope,
        taken: &mut Vec<Cond>,
        steps: &mut Vec<RouteStep>,
    ) {
        let Block { line, joins, cond, group } = block;
        let mut inner_scope = scope.clone();
        let mut inner = Vec::new();
        if line.name() == "handle_path" {
            let prefix = line.arguments().first().map_or("", |it| it.trim_end_matches('*'));
            let prefix = prefix.trim_end_matches('/').to_owned();
            // Its own pattern says what is taken away.
            self.ways.extend(line.arguments().first().cloned());
            let every = StripScope { cond: Cond::Always, changes: &scope.changes };
            self.strip(line.at, &line.text(), &prefix, every, &mut inner);
            self.ways.pop();
            inner_scope.stripped = format!("{}{prefix}", scope.stripped);
            let what = What::Strip { prefix, sure: true };
            inner_scope.changes.push(RequestChange::new(Cond::Always, what));
        }
        let ways = self.ways.len();
        self.ways.extend(line.arguments().first().filter(|it| it.starts_with('/')).cloned());
        if line.name() == "route" {
            for named in line.inner().iter().filter(|line| line.name().starts_with('@')) {
                let named_set = Rc::new(named.clone());
                Rc::make_mut(&mut inner_scope.named).insert(named.name().to_owned(), named_set);
            }
            let lines: Vec<&CaddyLine> =
                line.inner().iter().filter(|line| !line.name().starts_with('@')).collect();
            inner.extend(self.in_order(&lines, &mut inner_scope, false));
        } else {
            inner.extend(self.directives(line.inner(), &mut inner_scope));
        }
        self.ways.truncate(ways);
        let is_route = line.name() == "route";
        let is_alone = is_route || group.is_none();
        // Those who go on behind it are changed.
        if inner_scope.changes.len() > scope.changes.len() && !ends(&inner) {
            let narrowed;
            let own = if is_alone || joins {
                &cond
            } else {
                narrowed = cond.clone().and(Cond::any(taken.iter().cloned()).negate());
                &narrowed
            };
            for change in inner_scope.changes.iter().skip(scope.changes.len()).cloned().collect::<Vec<_>>() {
                scope.changes.push(RequestChange::new(own.clone().and(change.when), change.what));
            }
        }
        if !is_alone {
            taken.push(cond.clone());
        }
        self.out.converted(line.at, line.text());
        if let (true, Some(RouteStep::Inner { steps: before, .. })) = (joins, steps.last_mut()) {
            before.push(RouteStep::Inner { cond: Cond::Always, steps: inner, group: None, ends: false });
            return;
        }
        let group = group.filter(|_| !is_route).map(str::to_owned);
        steps.push(RouteStep::Inner { cond, steps: inner, group, ends: false });
    }
}
