//! Servers: for which hosts and ports, with which certificates, and which of them is asked for everything else.

mod server_index;

use std::cmp::Reverse;
use std::collections::HashSet;

use super::blocks::Directive;
use super::item::Item;
use super::location::{LocationKind, Turn};
use super::missing_slash::ExactPaths;
use super::site::{LocationIndex, ScriptPlace, Site, TurnIndex};
use super::{Nginx, first, said};
use crate::cond::Cond;
use crate::draft::{CertificateFile, Match, Matcher, Route, To, draft};
use crate::ports::{Port, Ports};
use crate::report::At;
use crate::text;
use server_index::ServerIndex;

/// A port that a server listens on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Listen {
    host: String,
    port: u16,
    is_tls: bool,
    is_default: bool,
    has_proxy_protocol: bool,
    is_quic: bool,
}

impl Listen {
    fn port(&self) -> Port {
        Port::new(self.is_tls, self.port, &self.host)
    }
}

/// A server with what it listens on.
struct Server<'d> {
    directive: &'d Directive,
    names: Vec<String>,
    /// Names that begin or end with a text, or fit a regex, as regexes over the authority.
    patterns: Vec<HostPattern>,
    /// Names that can't be said here.
    unknown: Vec<(At, String)>,
    listens: Vec<Listen>,
}

/// What nginx looks at first: the longest text before `.*`, then regexes, server by server and one by one.
type Rank = (Reverse<usize>, usize, usize);

/// Hosts that a regex means.
struct HostPattern {
    regex: String,
    rank: Rank,
}

fn listen(directive: &Directive) -> Option<Listen> {
    let address = directive.arguments.first()?;
    let has = |flag: &str| directive.arguments.iter().skip(1).any(|it| it == flag);
    let (host, port) = match address.parse::<u16>() {
        Ok(port) => ("0.0.0.0".to_owned(), Some(port)),
        Err(_) => text::host_port(address)?,
    };
    let host = if host == "*" { "0.0.0.0".to_owned() } else { host };
    let is_tls = has("ssl") || has("quic");
    Some(Listen {
        host,
        port: port.unwrap_or(80),
        is_tls,
        is_default: has("default_server") || has("default"),
        has_proxy_protocol: has("proxy_protocol"),
        is_quic: has("quic"),
    })
}

impl<'d> Nginx<'_> {
    /// Converts the servers of `http`.
    pub(super) fn servers(&mut self, http: &'d Directive) {
        let mut servers = Vec::new();
        for (n, directive) in http.block.iter().filter(|it| it.name == "server").enumerate() {
            let listens = self.listens(directive);
            let mut server =
                Server { directive, names: Vec::new(), patterns: Vec::new(), unknown: Vec::new(), listens };
            server.read_names();
            for (m, pattern) in server.patterns.iter_mut().enumerate() {
                (pattern.rank.1, pattern.rank.2) = (n, m);
            }
            servers.push(server);
        }
        share_tls(&mut servers);
        let ports = self.listeners(&servers);
        self.client_certificates(&servers, http);
        let index = ServerIndex::new(&servers, &ports);
        if index.has_foreign_names {
            // On a port where nobody has a name, patterns and the default server are asked for it.
            self.out.gateway.host_fallthrough(true);
        }
        let mut ranks: Vec<Rank> = servers.iter().flat_map(|it| &it.patterns).map(|it| it.rank).collect();
        let unknown = servers.iter().enumerate().filter(|(_, server)| !server.unknown.is_empty());
        ranks.extend(unknown.map(|(n, _)| (Reverse(0), n, usize::MAX)));
        ranks.sort_unstable();
        // A server named by patterns comes before the default server, in nginx's order.
        let lift = |rank: Rank| {
            let behind = ranks.len() - ranks.partition_point(|other| *other < rank);
            i64::try_from(behind).unwrap_or(i64::MAX) * LIFT
        };
        for (n, server) in servers.iter().enumerate() {
            if self.out.is_too_large() {
                return;
            }
            self.server(server, index.facets(server, n), http, 0);
            for pattern in &server.patterns {
                let host = draft!(Match { authority: Matcher::regex(&pattern.regex) });
                let facets = index.on_ports(n, host);
                self.server(server, facets, http, lift(pattern.rank));
            }
            self.unknown_names(server, &index, n, lift((Reverse(0), n, usize::MAX)));
        }
    }

    fn listens(&mut self, server: &Directive) -> Vec<Listen> {
        let directives: Vec<&Directive> = server.block.iter().filter(|it| it.name == "listen").collect();
        if directives.is_empty() {
            return vec![Listen {
                host: "0.0.0.0".to_owned(),
                port: 80,
                is_tls: false,
                is_default: false,
                has_proxy_protocol: false,
                is_quic: false,
            }];
        }
        let old_tls = first(&[server], "ssl") == Some("on");
        let mut listens = Vec::new();
        for directive in directives {
            match listen(directive) {
                Some(mut one) => {
                    one.is_tls |= old_tls;
                    listens.push(one);
                }
                None => self.out.not_converted(directive.at, directive, "sockets are not listened on", ""),
            }
        }
        listens
    }

    /// The gateway's listeners.
    fn listeners(&mut self, servers: &[Server<'_>]) -> Ports {
        let mut ports = Ports::default();
        for listen in servers.iter().flat_map(|server| &server.listens) {
            ports.add(listen.is_tls, listen.port, &listen.host);
        }
        ports.listen(&mut self.out.gateway);
        let all: Vec<&Listen> = servers.iter().flat_map(|server| server.listens.iter()).collect();
        if all.iter().any(|it| it.is_quic) {
            self.out.gateway.http3(true);
        }
        if all.iter().any(|it| it.has_proxy_protocol) {
            if all.iter().all(|it| it.has_proxy_protocol) {
                self.out.gateway.accept_proxy_protocol(true);
            } else {
                let at = servers.first().map(|server| server.directive.at).unwrap_or_default();
                self.has_unknown_clients = true;
                let why =
                    "here it is for all ports or for none; it is off, and clients' addresses are not known";
                self.out.not_converted(
                    at,
                    "listen … proxy_protocol",
                    why,
                    "set gateway.accept_proxy_protocol",
                );
            }
        }
        ports
    }

    /// Closes what may be a server's by a name that can't be said here, where others would take it without what guards it there:
    /// all that no name, and no pattern before this one, takes on its ports.
    fn unknown_names(&mut self, server: &Server<'_>, index: &ServerIndex<'_>, n: usize, lift: i64) {
        let others = if server.unknown.is_empty() { Vec::new() } else { index.shared_ports(n) };
        let mut is_closed = false;
        for (at, name) in &server.unknown {
            let what = format!("server_name {name}");
            if others.is_empty() {
                let why =
                    "it can't be said here; the server is the default one, and takes what is left anyway";
                self.out.not_needed(*at, what, why);
                continue;
            }
            let why = "which hosts are meant can't be said here, and it may guard them; all that no other name takes on its \
                       ports is concerned";
            is_closed |= self.out.guard_not_converted(*at, what, why, "write the names out");
        }
        if is_closed {
            let mut route = Route::new("unknown-names", To::Closed);
            route.matches = index.on_some_ports(&others, draft!(Match { path: "/" }));
            route.priority = Some(lift);
            self.out.route(route);
        }
    }

    /// One file of authorities, and one of revocation lists, holds for all clients here.
    fn client_certificates(&mut self, servers: &[Server<'_>], http: &Directive) {
        let mode =
            |server: &Server<'_>| first(&[http, server.directive], "ssl_verify_client").map(str::to_owned);
        let asking: Vec<&Server<'_>> =
            servers.iter().filter(|it| matches!(mode(it).as_deref(), Some("on" | "optional"))).collect();
        let mut files: Vec<&str> = asking
            .iter()
            .filter_map(|server| first(&[http, server.directive], "ssl_client_certificate"))
            .collect();
        files.sort_unstable();
        files.dedup();
        let mut lists: Vec<Option<&str>> =
            asking.iter().map(|server| first(&[http, server.directive], "ssl_crl")).collect();
        lists.sort_unstable();
        lists.dedup();
        let ([file], [list]) = (files.as_slice(), lists.as_slice()) else { return };
        let path = self.folder.join(file).display().to_string();
        let all_tls: Vec<&Server<'_>> =
            servers.iter().filter(|it| it.listens.iter().any(|it| it.is_tls)).collect();
        let required = all_tls.iter().all(|server| mode(server).as_deref() == Some("on"));
        self.tls.client_ca_path(&path);
        self.tls.client_cert_required(required);
        if let Some(list) = list {
            self.tls.client_crl_path(self.folder.join(list).display().to_string());
        }
        self.client_ca = Some(path);
    }

    fn server(&mut self, server: &Server<'d>, facets: Vec<Match>, http: &'d Directive, lift: i64) {
        if facets.is_empty() && !(server.patterns.is_empty() && server.unknown.is_empty()) {
            return;
        }
        let directive = server.directive;
        let called = server.names.first().cloned().unwrap_or_else(|| "server".to_owned());
        let place = format!("server {called}");
        if facets.is_empty() {
            self.out.not_needed(directive.at, &place, "no request reaches it: another server has its names");
            return;
        }
        self.out.converted(directive.at, &place);
        self.certificate(directive);
        for inner in &directive.block {
            self.report_directive(&place, inner);
        }
        let mut count = 0;
        let locations = self.locations(directive, &mut count);
        let names = server.names.clone();
        let order = self.order(&locations);
        let (index, turns) = (LocationIndex::new(&locations), TurnIndex::new(&order));
        let site =
            Site { directive, place, called, names, locations, order, facets, http, lift, index, turns };
        self.vars_here = self.vars.clone();
        self.vars_here.name_groups(directive);
        if let Some(name) = first(&[directive], "server_name").filter(|name| !name.contains(['$', '~'])) {
            self.vars_here.set("server_name", name.trim_start_matches('.'), Cond::Always);
        }
        self.invalid_referer = None;
        self.switches.clear();
        self.exact_paths = ExactPaths::default();
        let mut items = Vec::new();
        // What the server says for itself comes before any location is looked for.
        let all = super::location::Base::all();
        let way = ScriptPlace { site: &site, base: &all, levels: &[http, directive], jumps: 0 };
        let goes_on = self.script(way, &mut items);
        if goes_on {
            let start = items.len();
            for turn in &site.order {
                self.turn(&site, turn, &mut items);
            }
            items.splice(start..start, self.slashes.drain(..));
            let takes_all = site
                .order
                .iter()
                .any(|turn| turn.base.paths == [Matcher::prefix("/")] && turn.base.cond == Cond::Always);
            if !takes_all {
                self.bare(&site, &mut items);
            }
        }
        self.place_items(&site, items);
    }

    /// What no location of a server takes: files of its root, or nothing.
    fn bare(&mut self, site: &Site<'d>, items: &mut Vec<Item>) {
        let rest = Turn {
            base: super::location::Base::all(),
            levels: Vec::new(),
            way: LocationKind::Prefix("/".to_owned()),
        };
        let levels = [site.http, site.directive];
        if !said(&levels, "root").is_empty() || !said(&levels, "try_files").is_empty() {
            self.turn(site, &rest, items);
        } else {
            let why = "what no location takes is answered 404; nginx looks for files of its own there";
            self.out.not_needed(site.directive.at, &site.place, why);
            let answer = To::Answer(404, "text/plain".to_owned(), String::new());
            items.push(Item::new(&rest.base, answer, "rest"));
        }
    }

    fn certificate(&mut self, server: &Directive) {
        let all = |name: &str| -> Vec<String> {
            let own = server.block.iter().filter(|it| it.name == name);
            own.filter_map(|it| it.arguments.first().cloned()).collect()
        };
        let (certificates, keys) = (all("ssl_certificate"), all("ssl_certificate_key"));
        for (certificate, key) in certificates.iter().zip(&keys) {
            if certificate.contains('$')
                || certificate.starts_with("data:")
                || certificate.starts_with("engine:")
            {
                self.out.not_converted(
                    server.at,
                    format_args!("ssl_certificate {certificate}"),
                    "only files are known",
                    "",
                );
                continue;
            }
            let path = |name: &str| self.folder.join(name).display().to_string();
            let (certificate, key) = (path(certificate), path(key));
            if self.known_certificates.insert((certificate.clone(), key.clone())) {
                let made = draft!(CertificateFile { cert_path: certificate, key_path: key });
                self.certificates.push(made.into());
            }
        }
    }
}

impl Server<'_> {
    fn has_wildcard(&self) -> bool {
        self.names.iter().any(|name| name.starts_with('*'))
    }

    fn read_names(&mut self) {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '*');
        for names in self.directive.block.iter().filter(|it| it.name == "server_name") {
            for name in &names.arguments {
                match name.as_str() {
                    "_" | "" | "*" => {}
                    name if name.starts_with('~') || name.ends_with(".*") || !name.chars().all(good) => {
                        match HostPattern::of(name) {
                            Some(pattern) => self.patterns.push(pattern),
                            None => self.unknown.push((names.at, name.to_owned())),
                        }
                    }
                    name => {
                        let name = name.trim_end_matches('.').to_ascii_lowercase();
                        match name.strip_prefix('.') {
                            Some(rest) => self.names.extend([rest.to_owned(), format!("*.{rest}")]),
                            None => self.names.push(name),
                        }
                    }
                }
            }
        }
    }
}

/// A socket speaks TLS for all servers that listen on it where one of them says so.
fn share_tls(servers: &mut [Server<'_>]) {
    let all = servers.iter().flat_map(|server| &server.listens).filter(|listen| listen.is_tls);
    let sockets: HashSet<(String, u16)> = all.map(|listen| (listen.host.clone(), listen.port)).collect();
    for server in servers {
        for listen in &mut server.listens {
            listen.is_tls |= sockets.contains(&(listen.host.clone(), listen.port));
        }
        server.listens.dedup();
    }
}

/// By how much the proxies of one server by pattern go before those of the next.
const LIFT: i64 = 1_000_000;

impl HostPattern {
    fn is_regex(&self) -> bool {
        self.rank.0 == Reverse(0)
    }

    /// `www.*`, a regex behind `~`, or a name with letters that names don't have; `None` where it is none here.
    fn of(name: &str) -> Option<Self> {
        if let Some(regex) = name.strip_prefix('~') {
            let regex = text::host_regex(regex)?;
            return Some(Self { regex, rank: (Reverse(0), 0, 0) });
        }
        if name.starts_with('.') || name.contains('$') {
            return None;
        }
        let (start, end, length) = match name.strip_suffix(".*") {
            Some(start) => (start, r"\.[^:]+(?::[0-9]+)?", start.len()),
            // A whole name is looked for before all parts of names.
            None => (name, text::HOST_END, usize::MAX),
        };
        let regex = format!("(?i){}{end}", text::literal(start));
        (!start.contains('*')).then_some(Self { regex, rank: (Reverse(length), 0, 0) })
    }
}
