//! Backends: servers, how one is picked, and how they are asked.

use super::Haproxy;
use super::acl::Acls;
use super::checks;
use super::error_pages;
use super::sections::{HaproxyLine, Section};
use crate::cond::Cond;
use crate::draft::{
    Compression, Cookie, HealthChecks, Plug, Proxy, Retry, Sticky, Target, To, Upstream, draft, is_service,
};
use crate::steps::{RouteEnd, RouteStep};
use crate::text;

/// A section's servers as an upstream.
#[derive(Debug, Clone)]
pub(super) struct Backend {
    pub(super) to: To,
    pub(super) settings: Proxy,
}

impl Haproxy<'_, '_> {
    /// The way of a backend's requests, which a frontend changed before: its rules, and its servers.
    pub(super) fn backend_steps(&mut self, section: &Section, front: &Acls) -> Vec<RouteStep> {
        let mut acls = self.acls(section);
        acls.changes.clone_from(&front.changes);
        acls.tracked.clone_from(&front.tracked);
        let mut steps = self.rules(section, &mut acls);
        if crate::steps::ends(&steps) {
            // Its rules answer every request.
            self.report_other_lines(section);
            return steps;
        }
        let mut ending = match self.servers(section) {
            Some(backend) => {
                let mut ending = RouteEnd::new(section.at, backend.to);
                ending.settings = backend.settings;
                ending
            }
            None => RouteEnd::answer(section.at, 503, ""),
        };
        if section.first(&["compression", "algo"]).is_some() {
            ending.plugins.push(Plug::of(draft!(Compression { algorithms: ["gzip"] })));
        }
        ending.settings.preserve_host_header(true);
        ending.settings.strip_listen_path(false);
        steps.push(RouteStep::End(Cond::Always, ending));
        self.report_other_lines(section);
        steps
    }

    /// A section's servers; `None` where there is none that can be reached.
    pub(super) fn servers(&mut self, section: &Section) -> Option<Backend> {
        if let Some(known) = self.backends.get(&section.name) {
            return known.clone();
        }
        let made = self.make_servers(section);
        self.backends.insert(section.name.clone(), made.clone());
        made
    }

    fn make_servers(&mut self, section: &Section) -> Option<Backend> {
        let place = format!("{} {}", section.kind, section.name);
        let defaults: Vec<String> =
            section.said(&["default-server"]).iter().flat_map(|line| line.arguments().to_vec()).collect();
        let (mut settings, mut targets) = (Proxy::default(), Vec::new());
        let lacking = section.said(&["default-server"]).into_iter().find_map(HaproxyLine::lacks);
        let (mut is_checked, mut is_tls, mut inter, mut rise, mut fall) = (false, false, None, None, None);
        for line in section.lines.iter().filter(|line| matches!(line.name(), "server" | "server-template")) {
            if let Some(why) = line.lacks().or_else(|| lacking.clone()) {
                let why = format!("{why}; it is left out");
                self.out.not_converted(line.at, line.text(), why, "write the value into the file");
                continue;
            }
            let mut words: Vec<String> = defaults.clone();
            let first = if line.name() == "server-template" { 4 } else { 3 };
            words.extend(line.words.get(first..).unwrap_or_default().iter().cloned());
            let server = Server { words: &words };
            let Some(target) = self.server(section, line, &server, &mut settings) else { continue };
            // Each of several lines for a service stands for one of its servers.
            let is_known = |known: &Target| known["host"] == target["host"];
            if target["host"].as_str().is_some_and(is_service) && targets.iter().any(is_known) {
                continue;
            }
            is_checked |= server.has("check");
            inter = inter.or_else(|| server.value("inter").and_then(|it| text::millis(it, 1)));
            rise = rise.or_else(|| server.value("rise").and_then(|it| it.parse::<u32>().ok()));
            fall = fall.or_else(|| server.value("fall").and_then(|it| it.parse::<u32>().ok()));
            is_tls |= server.has("ssl");
            targets.push(target);
        }
        if targets.is_empty() {
            let why = "it has no servers that could be converted; it answers 503";
            self.out.not_converted(section.at, &place, why, "");
            return None;
        }
        let id = self.out.id("upstream", &section.name);
        let mut made = draft!(Upstream { id: &id, targets });
        self.balance(section, &mut made);
        if is_checked {
            let active = checks::checks(section, inter, rise, fall);
            made.health_checks(draft!(HealthChecks { active }));
        }
        times(section, &mut settings);
        self.out.upstreams.push(made.into());
        self.out.converted(section.at, place);
        Some(Backend { to: To::Upstream { id, is_tls }, settings })
    }

    /// One server as a target; `None` where it is left out.
    fn server(
        &mut self,
        section: &Section,
        line: &HaproxyLine,
        server: &Server<'_>,
        settings: &mut Proxy,
    ) -> Option<Target> {
        let left_out = match server.value("weight").and_then(|it| it.parse::<u16>().ok()) {
            _ if server.has("disabled") => Some("it is disabled, and left out"),
            Some(0) => Some("its weight is 0, and it is left out"),
            _ => None,
        };
        // `server-template` has a number of servers before the address.
        let is_template = line.name() == "server-template";
        let Some((host, port)) = place(line.word(if is_template { 3 } else { 2 })) else {
            self.out.not_converted(line.at, line.text(), "it is neither a host with a port nor a socket", "");
            return None;
        };
        if let Some(why) = left_out {
            self.out.partial(line.at, line.text(), why, "");
            return None;
        }
        if is_template && !is_service(&host) {
            let why = "all addresses of the name are one target here";
            self.out.partial(line.at, line.text(), why, "write `srv:` and a name that has SRV records");
        }
        if is_service(&host) {
            self.name_servers(line, server);
        }
        let mut target = Target::new(&host, port);
        if let Some(weight) = server.value("weight").and_then(|it| it.parse::<u16>().ok()) {
            target.weight(weight);
        }
        if server.has("backup") {
            target.priority(1);
        }
        let most = server.value("maxconn").and_then(|it| it.parse::<u32>().ok()).filter(|it| *it > 0);
        if let Some(most) = most {
            target.max_requests(most.min(1_000_000));
        }
        server.tls(settings);
        let sends = server.has("send-proxy") || server.has("send-proxy-v2");
        if section.is_tcp() && sends {
            settings.send_proxy_protocol(if server.has("send-proxy-v2") { 2 } else { 1 });
        } else if sends {
            let why = "HTTP targets get no PROXY protocol";
            self.out.not_converted(line.at, line.text(), why, "they get X-Forwarded-For");
        }
        if server.value("proto") == Some("h2") {
            settings.backend_http_version("2");
        }
        self.out.converted(line.at, line.text());
        Some(target)
    }

    /// Where a service's servers are looked up: here for the gateway as a whole.
    fn name_servers(&mut self, line: &HaproxyLine, server: &Server<'_>) {
        let Some(called) = server.value("resolvers") else { return };
        let found = self.sections.find(&["resolvers"], called);
        let lines = found.map_or(&[][..], |section| section.lines.as_slice());
        let servers = lines.iter().filter(|it| it.name() == "nameserver").map(|it| it.word(2));
        let servers: Vec<String> =
            servers.map(|it| it.trim_start_matches("udp@").trim_start_matches("tcp@").to_owned()).collect();
        if servers.is_empty() {
            let why = format!("no name servers of `resolvers {called}` are known; the system's are asked");
            self.out.partial(line.at, line.text(), why, "set gateway.dns_servers");
            return;
        }
        self.out.name_servers(servers.iter().map(String::as_str));
        self.out.partial(
            line.at,
            line.text(),
            "the gateway looks up all names there",
            "see gateway.dns_servers",
        );
    }

    /// What keeps clients at their servers: `cookie`.
    fn sticky(&mut self, section: &Section, algorithm: &str, made: &mut Upstream) {
        let cookie = section.lines.iter().find(|line| line.name() == "cookie");
        match cookie {
            Some(cookie) if section.is_tcp() => {
                self.out.not_needed(cookie.at, cookie.text(), "HAProxy ignores it without `mode http`");
            }
            Some(cookie)
                if cookie.arguments().iter().any(|it| it == "insert")
                    && algorithm != "consistent_hashing" =>
            {
                let mut config = draft!(Cookie {
                    ttl: 0,
                    http_only: cookie.arguments().iter().any(|it| it == "httponly")
                });
                if cookie.arguments().iter().any(|it| it == "secure") {
                    config.secure(true);
                }
                made.sticky(draft!(Sticky { cookie: cookie.word(1), cookie_config: config }));
                self.out.partial(
                    cookie.at,
                    cookie.text(),
                    "the cookie's values are others: clients are balanced anew once",
                    "",
                );
            }
            Some(cookie) if cookie.arguments().iter().any(|it| it == "insert") => {
                let why = "clients keep their server by `balance`; there is no cookie";
                self.out.partial(cookie.at, cookie.text(), why, "");
            }
            Some(cookie) => self.out.not_converted(
                cookie.at,
                cookie.text(),
                "only inserted cookies are known",
                "see `sticky`",
            ),
            None => {}
        }
    }

    fn balance(&mut self, section: &Section, made: &mut Upstream) {
        let line = section.first(&["balance"]);
        let algorithm = match line.map_or("roundrobin", |line| line.word(1)) {
            "roundrobin" | "static-rr" => "weighted_round_robin",
            "leastconn" => "least_connections",
            "source" => "consistent_hashing",
            "random" => "power_of_two",
            other => {
                let header = other.strip_prefix("hdr(").map(|name| name.trim_end_matches(')'));
                match header {
                    Some(name) => {
                        made.hash_on(format!("header:{}", name.to_ascii_lowercase()));
                        "consistent_hashing"
                    }
                    None => {
                        let why = format!("`{other}` is not known: servers are taken in turn");
                        self.out.partial(
                            line.map(|it| it.at).unwrap_or_default(),
                            format_args!("balance {other}"),
                            why,
                            "",
                        );
                        "weighted_round_robin"
                    }
                }
            }
        };
        self.sticky(section, algorithm, made);
        made.algorithm(algorithm);
        for line in section.lines.iter().filter(|line| line.name() == "stick" || line.name() == "stick-table")
        {
            if line.word(1) == "on" || line.name() == "stick" {
                self.out.not_converted(
                    line.at,
                    line.text(),
                    "clients are not kept at their servers by tables",
                    "see `sticky` or `hash_on`",
                );
            }
        }
    }
}

/// What a server's line says behind its address.
struct Server<'w> {
    words: &'w [String],
}

impl<'w> Server<'w> {
    fn has(&self, word: &str) -> bool {
        self.words.iter().any(|it| it == word)
    }

    fn value(&self, word: &str) -> Option<&'w str> {
        let at = self.words.iter().rposition(|it| it == word)?;
        self.words.get(at + 1).map(String::as_str)
    }

    fn tls(&self, settings: &mut Proxy) {
        if !self.has("ssl") {
            return;
        }
        if self.value("verify") == Some("none") {
            settings.backend_tls_verify_server_cert(false);
        }
        if let Some(file) = self.value("ca-file").filter(|file| file.starts_with('/')) {
            settings.backend_tls_ca_path(file);
        }
        if let Some(file) = self.value("crt") {
            settings.backend_tls_client_cert_path(file);
            settings.backend_tls_client_key_path(file);
        }
        if let Some(name) = self.value("verifyhost").or_else(|| {
            self.value("sni").and_then(|it| it.strip_prefix("str(")).map(|it| it.trim_end_matches(')'))
        }) {
            settings.backend_tls_server_name(name);
        }
    }
}

/// Timeouts and retries of a section.
pub(super) fn times(section: &Section, settings: &mut Proxy) {
    let time = |name: &str| section.first(&["timeout", name]).and_then(|line| text::millis(line.word(2), 1));
    if let Some(millis) = time("connect") {
        settings.backend_connect_timeout(text::duration(millis.clamp(1, 86_400_000)));
    }
    if let Some(millis) = time("server") {
        let millis = millis.min(86_400_000);
        if section.is_tcp() {
            settings.tcp_idle_timeout(text::seconds(millis));
        } else {
            settings.read_timeout(millis);
        }
    }
    if let Some(millis) = time("tunnel").filter(|_| !section.is_tcp()) {
        settings.websocket_idle_timeout(text::duration(millis.min(604_800_000)));
    }
    if let Some(retries) = section
        .first(&["retries"])
        .and_then(|line| line.word(1).parse::<u32>().ok())
        .filter(|_| !section.is_tcp())
    {
        settings.retry(draft!(Retry { max_retries: retries.min(100) }));
    }
}

/// Options that say what the gateway does anyway, or are about logs and the process.
const OPTIONS: &[&str] = &[
    "forwardfor",
    "httplog",
    "tcplog",
    "dontlognull",
    "http-server-close",
    "httpclose",
    "http-keep-alive",
    "redispatch",
    "httpchk",
    "tcp-check",
    "log-health-checks",
    "http-use-htx",
    "dontlog-normal",
    "tcpka",
    "clitcpka",
    "srvtcpka",
    "splice-auto",
    "splice-request",
    "splice-response",
    "abortonclose",
    "contstats",
    "prefer-last-server",
    "http-pretend-keepalive",
    "log-separate-errors",
    "logasap",
    "http-buffer-request",
    "socket-stats",
    "allbackups",
];

/// Lines that are read elsewhere, each of them named there.
const READ: &[&str] = &[
    "mode",
    "balance",
    "timeout",
    "retries",
    "server",
    "server-template",
    "default-server",
    "acl",
    "http-request",
    "http-response",
    "http-after-response",
    "tcp-request",
    "redirect",
    "use_backend",
    "default_backend",
    "bind",
    "cookie",
    "http-check",
    "compression",
    "stick-table",
    "stick",
    "monitor-uri",
    "stats",
];

/// Lines about logs and the process.
const OF_PROCESS: &[&str] = &[
    "no",
    "log",
    "log-format",
    "log-format-sd",
    "log-tag",
    "http-reuse",
    "description",
    "id",
    "enabled",
    "backlog",
    "load-server-state-from-file",
    "email-alert",
    "hash-type",
];

/// How the importer treats a line of a section.
pub(super) enum LineOutcome {
    /// Another part of the importer reads and reports it.
    ConvertedElsewhere,
    /// It needs no counterpart.
    NotNeeded,
    /// It has none: why, and what to do.
    NotConverted(&'static str, &'static str),
}

pub(super) fn line_outcome(line: &HaproxyLine, section: &Section) -> LineOutcome {
    let name = line.name();
    if READ.contains(&name) {
        return LineOutcome::ConvertedElsewhere;
    }
    match name {
        name if OF_PROCESS.contains(&name) => LineOutcome::NotNeeded,
        "option" if line.word(1) == "forwardfor" && line.words.len() > 2 => LineOutcome::NotConverted(
            "clients' addresses are told in X-Forwarded-For, whatever the request has",
            "",
        ),
        "option" if checks::is_of_database(line.word(1)) => LineOutcome::ConvertedElsewhere,
        "tcp-check" if checks::dialogue(section).is_some() => LineOutcome::ConvertedElsewhere,
        "tcp-check" => LineOutcome::NotConverted(
            "targets are checked by connecting to them",
            "set `send` and `expect` in `health_checks` of the upstream",
        ),
        "option" if line.word(1).ends_with("-check") && line.word(1) != "tcp-check" => {
            LineOutcome::NotConverted(
                "targets are checked by connecting to them",
                "set `health_checks` of the upstream",
            )
        }
        "option" if OPTIONS.contains(&line.word(1)) || line.word(1).starts_with("no") => {
            LineOutcome::NotNeeded
        }
        "maxconn" | "fullconn" => LineOutcome::NotConverted(
            "connections are limited for the whole gateway",
            "see gateway.limits.max_connections",
        ),
        "rate-limit" => {
            LineOutcome::NotConverted("new connections are not limited", "use the plugin `rate_limiting`")
        }
        "retry-on" => LineOutcome::NotConverted(
            "failed connections are tried again, and nothing else",
            "set `retry.retryable_status_codes`",
        ),
        "unique-id-format" | "unique-id-header" => {
            LineOutcome::NotConverted("requests get no id", "use the plugin `correlation_id`")
        }
        "capture" => {
            LineOutcome::NotConverted("it is not written into records", "see `gateway.access_log.sinks`")
        }
        name if error_pages::NAMES.contains(&name) => LineOutcome::ConvertedElsewhere,
        "errorfiles" => LineOutcome::NotConverted(
            "pages of `http-errors` are not converted",
            "use the plugin `error_pages`",
        ),
        "filter" => LineOutcome::NotConverted("filters are not converted", ""),
        _ => LineOutcome::NotConverted("the gateway does not support this", ""),
    }
}

/// Where a server is: `HOST:PORT`, or the path of a socket as `unix:PATH`.
fn place(address: &str) -> Option<(String, u16)> {
    let path = address.strip_prefix("unix@").unwrap_or(address);
    if path.starts_with('/') {
        return Some((format!("unix:{path}"), 0));
    }
    // A service's name, as `_http._tcp.shop.test`.
    if address.starts_with('_') && address.contains("._") && !address.contains([':', '$', '@', '/']) {
        return Some((format!("srv:{address}"), 0));
    }
    let address = address.trim_start_matches("ipv4@").trim_start_matches("ipv6@");
    let parsed = text::host_port(address);
    let (host, port) = parsed.filter(|_| !address.contains(['$', '@', '/']) && !address.is_empty())?;
    Some((host, port?))
}
