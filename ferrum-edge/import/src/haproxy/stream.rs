//! Frontends of TCP: a port, and servers, chosen by the name that clients ask for.

use serde_json::Value;

use super::Haproxy;
use super::acl::Acls;
use super::request_condition::request_cond;
use super::sections::Section;
use crate::cond::Cond;
use crate::draft::{IpRestriction, Proxy, To, draft};
use crate::text;

impl Haproxy<'_, '_> {
    pub(super) fn stream(&mut self, section: &Section) {
        let what = format!("{} {}", section.kind, section.name);
        let acls = self.acls(section);
        for line in section.lines.iter().filter(|line| {
            matches!(line.name(), "http-request" | "http-response" | "http-after-response" | "redirect")
        }) {
            let why = "HAProxy ignores it without `mode http`, and nothing does it here";
            self.out.not_converted(line.at, line.text(), why, "write `mode http` if it is meant");
        }
        let Some(clients) = self.stream_clients(section, &acls) else { return };
        let Some(ways) = self.stream_ways(section, &acls) else { return };
        let by_name = ways.iter().any(|(names, _)| !names.is_empty());
        for line in section.lines.iter().filter(|line| line.name() == "bind") {
            if self.is_bind_not_converted(line) {
                continue;
            }
            let port = line.word(1).rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
            let Some(port) = port else {
                self.out.not_converted(line.at, line.text(), "only addresses with one port are known", "");
                continue;
            };
            let has = |word: &str| line.words.iter().any(|it| it == word);
            if has("verify") {
                let why = "clients' certificates are not asked for on ports of TCP; the port is not opened";
                if self.out.guard_not_converted(line.at, line.text(), why, "") {
                    continue;
                }
            }
            for (names, backend) in &ways {
                let mut settings = Proxy::default();
                if has("ssl") {
                    settings.frontend_tls(true);
                }
                if by_name {
                    settings.passthrough(true);
                }
                if !names.is_empty() {
                    settings.hosts(names);
                }
                self.port(&what, section, port, backend, &clients, settings);
            }
        }
    }

    /// Settings of `ip_restriction`; `None` when the port may not be opened.
    fn stream_clients(&mut self, section: &Section, acls: &Acls) -> Option<Option<IpRestriction>> {
        let mut clients: Option<IpRestriction> = None;
        for line in section.rules(&["tcp-request"]) {
            let words = line.arguments();
            if let Some(why) = line.lacks() {
                let why = format!("{why}; the port is not opened");
                match self.out.guard_not_converted(line.at, line.text(), why, "write the value into the file")
                {
                    true => return None,
                    false => continue,
                }
            }
            let at = words.iter().position(|word| word == "if" || word == "unless").unwrap_or(words.len());
            let action = words.get(1).map_or("", String::as_str);
            let is_about_waiting = words.first().is_some_and(|word| word == "inspect-delay");
            let (why, todo) = match action {
                "reject" | "silent-drop" => {
                    let ways = acls.condition(words.get(at..).unwrap_or_default(), &mut self.reader);
                    let made =
                        request_cond(&ways).and_then(|cond| restriction(&cond)).filter(|_| clients.is_none());
                    if made.is_some() {
                        clients = made;
                        self.out.converted(line.at, line.text());
                        continue;
                    }
                    (
                        "only addresses can be converted; the port is not opened",
                        "use the plugin `ip_restriction`",
                    )
                }
                _ if is_about_waiting
                    || matches!(action, "accept" | "capture" | "set-var")
                    || action.starts_with("track-sc") =>
                {
                    self.out.not_needed(line.at, line.text(), "");
                    continue;
                }
                _ => ("it is not known, and may guard; the port is not opened", ""),
            };
            if self.out.guard_not_converted(line.at, line.text(), why, todo) {
                return None;
            }
        }
        Some(clients)
    }

    /// Backends by the names that clients ask for; `None` when the port may not be opened.
    fn stream_ways(&mut self, section: &Section, acls: &Acls) -> Option<Vec<(Vec<String>, String)>> {
        let mut ways: Vec<(Vec<String>, String)> = Vec::new();
        let mut targets = section.rules(&["use_backend", "default_backend"]);
        if let Some((line, why)) = targets.find_map(|line| Some((line, line.lacks()?))) {
            let why = format!("{why}; the port is not opened");
            self.out.route_closed(line.at, line.text(), why, "write the value into the file");
            return None;
        }
        for line in section.lines.iter().filter(|line| line.name() == "use_backend") {
            let asked = acls.condition(line.words.get(2..).unwrap_or_default(), &mut self.reader);
            let Some(names) = request_cond(&asked).and_then(|cond| server_names(&cond)) else {
                let why = "only names that clients ask for (SNI) are known here; the port is not opened";
                self.out.route_closed(line.at, line.text(), why, "");
                return None;
            };
            ways.push((names, line.word(1).to_owned()));
        }
        if let Some(line) = section.first(&["default_backend"]) {
            ways.push((Vec::new(), line.word(1).to_owned()));
        } else if section.kind == "listen" {
            ways.push((Vec::new(), section.name.clone()));
        }
        Some(ways)
    }

    fn port(
        &mut self,
        what: &str,
        section: &Section,
        port: u16,
        backend: &str,
        clients: &Option<IpRestriction>,
        mut settings: Proxy,
    ) {
        let found = self.sections.backend(backend);
        let Some((servers, own)) = found.and_then(|own| Some((self.servers(&own)?, own))) else {
            self.out.not_converted(
                section.at,
                what,
                format_args!("its backend `{backend}` has no servers"),
                "",
            );
            return;
        };
        let guards = own.kind == "backend" && own.rules(&["tcp-request"]).next().is_some();
        if guards
            && self.out.guard_not_converted(
                own.at,
                format_args!("backend {backend}: tcp-request"),
                "it may guard; the port is not opened",
                "",
            )
        {
            return;
        }
        let To::Upstream { id: upstream, is_tls } = servers.to else { return };
        let id = self.out.id("proxy", &format!("tcp-{port}"));
        let mut made = draft!(Proxy {
            id: &id,
            listen_port: port,
            backend_scheme: if is_tls { "tcps" } else { "tcp" },
            upstream_id: upstream
        });
        made.extend(servers.settings);
        if let Some(millis) =
            section.first(&["timeout", "client"]).and_then(|line| text::millis(line.word(2), 1))
        {
            settings.tcp_idle_timeout(text::seconds(millis).min(86_400));
        }
        made.extend(settings);
        self.out.proxies.push(made.into());
        if let Some(config) = clients {
            self.out.plugin(&id, "ip_restriction", config.clone().into());
        }
        self.out.converted(section.at, what);
    }
}

/// Whom a condition on addresses keeps out, as settings of `ip_restriction`.
fn restriction(cond: &Cond) -> Option<IpRestriction> {
    let Cond::Is(value) = cond else { return None };
    let only = |value: &Value| {
        let networks = value.as_object().filter(|it| it.len() == 1)?.get("clients")?.as_array()?;
        Some(networks.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>())
    };
    match value.get("not") {
        Some(inner) => Some(draft!(IpRestriction { allow: only(inner)? })),
        None => Some(draft!(IpRestriction { deny: only(value)? })),
    }
}

/// The names that a condition on SNI asks for.
fn server_names(cond: &Cond) -> Option<Vec<String>> {
    let Cond::Is(value) = cond else { return None };
    let one = |value: &Value| -> Option<Vec<String>> {
        let list =
            value.as_object().filter(|it| it.len() == 1)?.get("tls")?.get("server_names")?.as_array()?;
        Some(list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
    };
    match value.get("any").and_then(Value::as_array) {
        Some(all) => all.iter().map(one).collect::<Option<Vec<_>>>().map(|all| all.concat()),
        None => one(value),
    }
}
