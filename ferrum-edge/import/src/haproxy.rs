//! haproxy.cfg: frontends with their rules, backends with their servers, user lists, and ports of TCP.

mod acl;
mod backend;
mod certificates;
mod changes;
mod checks;
mod error_pages;
mod fetch;
mod fields;
mod limits;
mod map_redirects;
mod maps;
mod path_and_query;
mod rates;
mod redirects;
mod request_condition;
mod rules;
mod sections;
mod stream;
mod templates;
mod why;
mod words;

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use serde_json::Value;

use crate::cond::Cond;
use crate::draft::{CertificateFile, GatewayTls, Import, Match, Matcher, Password, To, draft};
use crate::error::Failure;
use crate::files::{Files, IncludeReader};
use crate::ports::{Port, Ports};
use crate::steps::{RouteEnd, RouteStep, place, walk};
use crate::text;
use acl::Acls;
use backend::LineOutcome;
use certificates::ClientCertificates;
use request_condition::convert;
use sections::{HaproxyLine, Section, Sections};

/// An import under way.
struct Haproxy<'o, 'f> {
    out: &'o mut Import,
    reader: IncludeReader<'f>,
    sections: Sections,
    backends: HashMap<String, Option<backend::Backend>>,
    /// Stick-tables by the section that has them.
    tables: HashMap<String, HaproxyLine>,
    certificates: Vec<Value>,
    client_certificates: ClientCertificates,
}

/// A port.
struct Bind {
    host: String,
    port: u16,
    is_tls: bool,
}

/// Imports a configuration.
///
/// # Errors
/// When the text is not made of HAProxy's sections.
pub(crate) fn import(out: &mut Import, name: &str, text: &str, files: &dyn Files) -> Result<(), Failure> {
    let file = out.report.file(name);
    let mut sections = sections::parse(name, file, text)?;
    remove_lines_with_unset_variables(out, &mut sections);
    let tables = sections.iter().filter_map(|section| {
        let is_table = |line: &&HaproxyLine| line.name() == "stick-table";
        let table = section.lines.iter().find(is_table)?;
        Some((section.name.clone(), table.clone()))
    });
    let haproxy = Haproxy {
        out,
        reader: IncludeReader::new(files),
        tables: tables.collect(),
        sections: Sections::new(sections),
        backends: HashMap::new(),
        certificates: Vec::new(),
        client_certificates: ClientCertificates::default(),
    };
    haproxy.all(name)
}

/// Lines whose part of the import says what becomes of them where a variable of the environment is not known.
const KEPT: &[&str] = &[
    "acl",
    "bind",
    "default-server",
    "default_backend",
    "group",
    "http-after-response",
    "http-request",
    "http-response",
    "redirect",
    "server",
    "server-template",
    "tcp-request",
    "use_backend",
    "user",
];

/// Removes lines that need a variable of the environment, and reports them as not converted.
fn remove_lines_with_unset_variables(out: &mut Import, sections: &mut [Section]) {
    let is_removed = |line: &HaproxyLine| line.lacks().is_some() && !KEPT.contains(&line.name());
    for section in sections {
        for line in section.lines.iter().filter(|line| is_removed(line)) {
            if let Some(why) = line.lacks() {
                let what = format!("{} {}: {}", section.kind, section.name, line.text());
                out.not_converted(line.at, what, why, "write the value into the file");
            }
        }
        section.lines.retain(|line| !is_removed(line));
        section.defaults.retain(|line| !is_removed(line));
    }
}

impl Haproxy<'_, '_> {
    fn all(mut self, name: &str) -> Result<(), Failure> {
        let sections = Rc::clone(&self.sections.all);
        let is_front = |section: &&Section| matches!(section.kind.as_str(), "frontend" | "listen");
        let fronts: Vec<&Section> = sections.iter().filter(is_front).collect();
        if fronts.is_empty() {
            return Err(Failure::new(name, 1, "there is no frontend in it"));
        }
        for section in sections.iter() {
            match section.kind.as_str() {
                "global" => self.global(section),
                "userlist" => {}
                "frontend" | "listen" | "backend" | "defaults" => self.report_other_lines(section),
                "resolvers" => {
                    let what = format!("resolvers {}", section.name);
                    self.out.not_needed(section.at, what, "it is read where servers are looked up there");
                }
                kind => {
                    let what = format!("{kind} {}", section.name);
                    self.out.not_converted(section.at, what, "the gateway does not support this", "");
                }
            }
        }
        let of_http = fronts.iter().copied().filter(|section| !section.is_tcp());
        self.client_certificates = ClientCertificates::read(of_http);
        let mut http: Vec<(&Section, Vec<Bind>)> = Vec::new();
        for section in fronts {
            if self.out.is_too_large() {
                return Ok(());
            }
            if section.is_tcp() {
                self.stream(section);
            } else {
                let binds = self.binds(section);
                http.push((section, binds));
            }
        }
        let mut ports = Ports::default();
        for bind in http.iter().flat_map(|(_, binds)| binds) {
            ports.add(bind.is_tls, bind.port, &bind.host);
        }
        ports.listen(&mut self.out.gateway);
        let mut taken = HashSet::new();
        for (section, binds) in http {
            if self.out.is_too_large() {
                return Ok(());
            }
            let facets = self.facets(section, &binds, &ports, &mut taken);
            if !facets.is_empty() {
                self.frontend(section, &facets);
            }
        }
        self.tls();
        Ok(())
    }

    /// What the requests of a frontend have besides its rules: their ports, where there are several.
    fn facets(
        &mut self,
        section: &Section,
        binds: &[Bind],
        ports: &Ports,
        taken: &mut HashSet<Port>,
    ) -> Vec<Match> {
        let mut facets = Vec::new();
        let mut mine = Vec::new();
        for bind in binds {
            let port = Port::new(bind.is_tls, bind.port, &bind.host);
            if mine.contains(&port) {
                continue;
            }
            if taken.contains(&port) {
                let what = format!("{} {}: bind", section.kind, section.name);
                let why = "another frontend has this port and address, so HAProxy gives each connection to one of them at random";
                self.out.not_converted(section.at, what, why, "give it a port of its own");
                continue;
            }
            facets.push(ports.facet(&port));
            mine.push(port);
        }
        let is_everywhere = mine.len() == ports.count();
        taken.extend(mine);
        if is_everywhere && !facets.is_empty() { vec![Match::default()] } else { facets }
    }

    fn global(&mut self, section: &Section) {
        for line in &section.lines {
            if words::is_about_environment(line.name()) {
                self.out.converted(line.at, line.text());
                continue;
            }
            let about_tls = line.name().starts_with("ssl-default");
            if about_tls {
                self.out.not_converted(
                    line.at,
                    line.text(),
                    "TLS 1.2 and 1.3 with rustls's ciphers are spoken",
                    "",
                );
            } else {
                self.out.not_needed(line.at, line.text(), "it is about HAProxy's process");
            }
        }
    }

    /// Whether a `bind` is not converted, so that its port is not opened; reports it then.
    fn is_bind_not_converted(&mut self, line: &HaproxyLine) -> bool {
        if let Some(why) = line.lacks() {
            let why = format!("{why}; the port is not opened");
            self.out.not_converted(line.at, line.text(), why, "write the value into the file");
            return true;
        }
        let why = "HAProxy takes the PROXY protocol from everybody, the gateway from trusted proxies only; the port is not opened";
        let todo =
            "set gateway.trusted_proxies and gateway.accept_proxy_protocol, and leave out `accept-proxy`";
        line.words.iter().any(|it| it == "accept-proxy")
            && self.out.guard_not_converted(line.at, line.text(), why, todo)
    }

    fn binds(&mut self, section: &Section) -> Vec<Bind> {
        let mut made = Vec::new();
        for line in section.lines.iter().filter(|line| line.name() == "bind") {
            if self.is_bind_not_converted(line) {
                continue;
            }
            let words = line.arguments();
            let has = |word: &str| words.iter().any(|it| it == word);
            let value = |word: &str| words.iter().position(|it| it == word).and_then(|n| words.get(n + 1));
            let is_tls = has("ssl");
            for address in words.first().map_or("", String::as_str).split(',') {
                let address = address.trim_start_matches("ipv4@").trim_start_matches("ipv6@");
                let parsed = match address.rsplit_once(':') {
                    Some((host, port)) => {
                        port.parse::<u16>().ok().map(|port| (host.trim_matches(['[', ']']), port))
                    }
                    None => None,
                };
                let Some((host, port)) = parsed else {
                    self.out.not_converted(
                        line.at,
                        line.text(),
                        "only addresses with one port are known",
                        "",
                    );
                    continue;
                };
                made.push(Bind { host: host.to_owned(), port, is_tls });
            }
            if let Some(file) = value("crt") {
                if file.ends_with(".pem") || file.ends_with(".crt") {
                    self.certificates
                        .push(draft!(CertificateFile { cert_path: file, key_path: file }).into());
                } else {
                    self.out.not_converted(
                        line.at,
                        line.text(),
                        "only files are known for certificates",
                        "list them in gateway.tls.certificates",
                    );
                }
            }
            self.out.converted(line.at, line.text());
        }
        made
    }

    fn tls(&mut self) {
        if self.certificates.is_empty() {
            return;
        }
        let mut tls = draft!(GatewayTls { certificates: std::mem::take(&mut self.certificates) });
        self.client_certificates.write(&mut tls);
        self.out.gateway.tls(tls);
    }

    fn acls(&mut self, section: &Section) -> Acls {
        let mut acls = Acls::default();
        for line in section.defaults.iter().chain(&section.lines).filter(|line| line.name() == "acl") {
            acls.add(line, &mut self.reader);
        }
        acls
    }

    fn frontend(&mut self, section: &Section, facets: &[Match]) {
        let mut acls = self.acls(section);
        let mut steps: Vec<RouteStep> = self.certified(section).into_iter().collect();
        if let Some(line) = section.first(&["monitor-uri"]) {
            let cond = Cond::path_is(Matcher::exact(line.word(1)));
            steps.push(RouteStep::End(cond, RouteEnd::answer(line.at, 200, "")));
        }
        if let Some(line) = section.first(&["stats", "uri"]).or_else(|| section.first(&["stats", "enable"])) {
            let uri = if line.word(1) == "uri" { line.word(2) } else { "/haproxy?stats" };
            let path = uri.split('?').next().unwrap_or("/");
            self.out.not_converted(
                line.at,
                line.text(),
                "its page answers 503",
                "see /metrics and /v1/status of the admin port",
            );
            steps.push(RouteStep::End(
                Cond::path_is(Matcher::regex(format!("{}.*", text::literal(path)))),
                RouteEnd::new(line.at, To::Closed),
            ));
        }
        steps.extend(self.rules(section, &mut acls));
        for line in section.lines.iter().filter(|line| line.name() == "use_backend") {
            self.use_backend(section, line, &acls, &mut steps);
        }
        let last = match section.first(&["default_backend"]) {
            Some(line) => match line.lacks() {
                Some(why) => {
                    self.close_route(line, why, &mut steps);
                    None
                }
                None => self.backend(line.word(1), &acls),
            },
            None if section.kind == "listen" => {
                let mut own = section.clone();
                let is_rule = |line: &HaproxyLine| {
                    matches!(line.name(), "http-request" | "http-response" | "tcp-request" | "redirect")
                };
                own.lines.retain(|line| !is_rule(line));
                own.defaults.retain(|line| !is_rule(line));
                Some(self.backend_steps(&own, &acls))
            }
            None => None,
        };
        steps.extend(
            last.unwrap_or_else(|| vec![RouteStep::End(Cond::Always, RouteEnd::answer(section.at, 503, ""))]),
        );
        let mut items = Vec::new();
        walk(&steps, &Cond::Always, Vec::new(), &mut items);
        let after = self.after_all(section, &acls);
        items.iter_mut().for_each(|item| drop(item.plugins.splice(0..0, after.iter().cloned())));
        self.out.converted(section.at, format_args!("{} {}", section.kind, section.name));
        place(self.out, &section.name, facets, items, 0);
    }

    /// `use_backend NAME [if …]`, where the name may come from a map.
    fn use_backend(
        &mut self,
        section: &Section,
        line: &HaproxyLine,
        acls: &Acls,
        steps: &mut Vec<RouteStep>,
    ) {
        let (_, ways) = self.split(line, line.words.get(2..).unwrap_or_default(), acls);
        let cond = convert(&ways);
        let is_dynamic = line.word(1).contains('%');
        let mapped = match is_dynamic {
            true => maps::mapped(line.word(1), &mut self.reader, acl::compared).and_then(|mut mapped| {
                for cond in mapped.entries.iter_mut().map(|(cond, _)| cond).chain([&mut mapped.there]) {
                    let known = acls.changes.before(cond.clone());
                    *cond = known.ok_or_else(|| "what it asks for was changed before".to_owned())?;
                }
                Ok(mapped)
            }),
            false => Ok(maps::Mapped {
                entries: Vec::new(),
                default: Some(line.word(1).to_owned()),
                there: Cond::Always,
                paths: None,
            }),
        };
        let why = match (cond.clone(), mapped) {
            (Ok(cond), Ok(mapped)) => {
                // What a map has no backend for goes to the default one, past the rules that follow.
                let fallback = section.first(&["default_backend"]).map(|line| line.word(1).to_owned());
                let other = fallback.clone().unwrap_or_default();
                let own = mapped.default.map(|name| (mapped.there, name));
                let takes_all = matches!(own, Some((Cond::Always, _))) || !is_dynamic;
                let last = own.into_iter().chain((!takes_all).then_some((Cond::Always, other)));
                for (part, name) in mapped.entries.into_iter().chain(last) {
                    let other = fallback.as_deref().filter(|_| is_dynamic);
                    let found = self.backend(&name, acls).or_else(|| self.backend(other?, acls));
                    let unknown = || vec![RouteStep::End(Cond::Always, RouteEnd::answer(line.at, 503, ""))];
                    let inner = found.unwrap_or_else(unknown);
                    let cond = cond.clone().and(part);
                    steps.push(RouteStep::Inner { cond, steps: inner, group: None, ends: true });
                }
                self.out.converted(line.at, line.text());
                return;
            }
            (Err(why), _) => why.to_string(),
            (_, Err(why)) => why,
        };
        if self.out.guard_not_converted(line.at, line.text(), why, "write it with `matches`") {
            steps.push(RouteStep::End(cond.unwrap_or(Cond::Always), RouteEnd::new(line.at, To::Closed)));
        }
    }

    fn backend(&mut self, name: &str, front: &Acls) -> Option<Vec<RouteStep>> {
        let section = self.sections.backend(name)?;
        Some(self.backend_steps(&section, front))
    }

    /// Reports the lines of a section that no other part of the importer reads.
    fn report_other_lines(&mut self, section: &Section) {
        for line in &section.lines {
            let what = format!("{} {}: {}", section.kind, section.name, line.text());
            match backend::line_outcome(line, section) {
                LineOutcome::ConvertedElsewhere => {}
                LineOutcome::NotNeeded => self.out.not_needed(
                    line.at,
                    what,
                    "the gateway does so anyway, or it is about the process",
                ),
                LineOutcome::NotConverted(why, todo) => self.out.not_converted(line.at, what, why, todo),
            }
        }
    }

    /// The consumers of a user list, and the group that its users, or those of one of its groups, are in.
    fn users(&mut self, list: &str, group: Option<&str>) -> Option<String> {
        let section = self.sections.find(&["userlist"], list)?.clone();
        if section.lines.iter().any(|line| line.lacks().is_some()) {
            return None;
        }
        let mut groups: HashMap<&str, Vec<&str>> = HashMap::new();
        for group in section.lines.iter().filter(|line| line.name() == "group") {
            let users = group.words.iter().position(|it| it == "users").and_then(|n| group.words.get(n + 1));
            for user in users.into_iter().flat_map(|users| users.split(',')) {
                let known = groups.entry(user).or_default();
                if known.last() != Some(&group.word(1)) {
                    known.push(group.word(1));
                }
            }
        }
        let groups_of = |user: &HaproxyLine| -> Vec<String> {
            let own = user.words.iter().position(|it| it == "groups").and_then(|n| user.words.get(n + 1));
            let mut names: Vec<String> =
                own.map(|it| it.split(',').map(str::to_owned).collect()).unwrap_or_default();
            names.extend(groups.get(user.word(1)).into_iter().flatten().map(|group| (*group).to_owned()));
            names
        };
        for user in section.lines.iter().filter(|line| line.name() == "user") {
            let value =
                |word: &str| user.words.iter().position(|it| it == word).and_then(|n| user.words.get(n + 1));
            let password = match (value("insecure-password"), value("password")) {
                (Some(password), _) => Password::Plain(password),
                (None, Some(hash)) if hash.starts_with("$2") => Password::Hash(hash),
                _ => return None,
            };
            let mut groups = vec![format!("haproxy-{list}")];
            groups.extend(groups_of(user).iter().map(|group| format!("haproxy-{list}-{group}")));
            if !self.out.account(user.word(1), password, &groups) {
                return None;
            }
        }
        Some(match group {
            None => format!("haproxy-{list}"),
            Some(group) => format!("haproxy-{list}-{group}"),
        })
    }
}

#[cfg(test)]
mod tests;
