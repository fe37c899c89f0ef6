//! From a written condition to one that can be evaluated.

use std::collections::BTreeMap;
use std::fmt;

use http::{HeaderName, Method};
use ipnet::IpNet;

use super::text::Text;
use super::written::{self, PathMatch, StatusMatch, TextMatch};
use super::{Certificate, Condition, ConditionPart, MAX_DEPTH, MAX_PARTS, MediaType};
use crate::network::canonical_network;
use crate::pattern::{HostPattern, PathPattern, parse};
use crate::problem::{Problem, Problems};

/// What a condition is for: not everything is known everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Choosing a proxy, before the caller is known.
    Route,
    /// Whether a plugin runs; the caller is known to plugins after authentication.
    Plugin,
    /// Whether an ended exchange or a response is meant: caller and status are known.
    Response,
}

/// Compiles a condition that stands at `at` in its document.
///
/// # Errors
/// Every problem in it.
pub fn compile(condition: &written::Condition, at: &str, purpose: Use) -> Result<Condition, Problems> {
    let mut compiler = Compiler { problems: Problems::default(), purpose, parts: 0, is_negated: false };
    let compiled = compiler.condition(condition, at, 0);
    if compiler.parts > MAX_PARTS {
        compiler
            .problems
            .add(at, format!("this has {} parts, at most {MAX_PARTS} are allowed", compiler.parts));
    }
    compiler.problems.into_result(compiled)
}

struct Compiler {
    problems: Problems,
    purpose: Use,
    parts: usize,
    /// What is compiled now stands below an odd number of `not`.
    is_negated: bool,
}

fn below(at: &str, key: &str) -> String {
    match (at, key) {
        ("", key) => key.to_owned(),
        (at, "") => at.to_owned(),
        (at, key) if key.starts_with('[') => format!("{at}{key}"),
        (at, key) => format!("{at}.{key}"),
    }
}

impl Compiler {
    fn add(&mut self, at: &str, key: &str, message: impl fmt::Display) -> &mut Problem {
        self.problems.add(below(at, key), message)
    }

    fn condition(&mut self, written: &written::Condition, at: &str, depth: usize) -> Condition {
        let mut parts = Vec::new();
        if depth > MAX_DEPTH {
            self.add(at, "", format!("conditions lie more than {MAX_DEPTH} deep in each other"));
            return Condition { parts: parts.into() };
        }
        self.head(written, at, &mut parts);
        self.connection(written, at, &mut parts);
        self.caller(written, at, &mut parts);
        self.combined(written, at, depth, &mut parts);
        if parts.is_empty() && !self.problems.0.iter().any(|problem| problem.path.starts_with(at)) {
            self.add(at, "", "this says nothing, so that it holds for every request").remedy =
                Some("say what is meant, or leave it out".to_owned());
        }
        self.parts += parts.len();
        Condition { parts: parts.into() }
    }

    fn head(&mut self, written: &written::Condition, at: &str, parts: &mut Vec<ConditionPart>) {
        let mut methods = self.each(&written.methods, at, "methods", |text| {
            Method::from_bytes(text.to_ascii_uppercase().as_bytes())
                .map_err(|_| (format!("`{text}` is not a method"), Some("such as GET".to_owned())))
        });
        // Who may have the page may have its head alone, as in `allowed_methods`.
        if methods.contains(&Method::GET) && !methods.contains(&Method::HEAD) {
            methods.push(Method::HEAD);
        }
        if !methods.is_empty() {
            parts.push(ConditionPart::Methods(methods.into()));
        }
        if let Some(path) = &written.path {
            // A way in which a target may read the path must not have a request spared either.
            let is_strict = self.purpose != Use::Route && self.is_negated;
            let pattern = self.path(path, &below(at, "path"));
            parts.extend(pattern.map(|pattern| ConditionPart::Path { pattern, is_strict }));
        }
        let hosts = self.hosts(&written.hosts, at, "hosts");
        if !hosts.is_empty() {
            parts.push(ConditionPart::Hosts(hosts.into()));
        }
        for (name, text) in &written.headers {
            let at = below(&below(at, "headers"), name);
            match HeaderName::from_bytes(name.as_bytes()) {
                Ok(name) if name == http::header::HOST => {
                    self.add(&at, "", "the host may also come as `:authority`").remedy =
                        Some("write `hosts`, or `authority` for it as it was sent".to_owned());
                }
                Ok(name) => parts.extend(self.text(text, &at).map(|text| ConditionPart::Header(name, text))),
                Err(_) => {
                    self.add(&at, "", format!("`{name}` is not a header's name"));
                }
            }
        }
        self.named(&written.query, at, "query", ConditionPart::Query, parts);
        if let Some(text) = &written.query_string {
            parts.extend(self.text(text, &below(at, "query_string")).map(ConditionPart::QueryString));
        }
        if let Some(text) = &written.authority {
            parts.extend(self.text(text, &below(at, "authority")).map(ConditionPart::Authority));
        }
        self.named(&written.cookies, at, "cookies", ConditionPart::Cookie, parts);
        if let Some(grpc) = &written.grpc {
            let part = |text: &Option<String>| text.as_deref().map(Box::from);
            // What a plugin guards must not be passed by in disguise; a disguise must not have it spared, or routed, either.
            let is_wide = self.purpose == Use::Plugin && !self.is_negated;
            parts.push(ConditionPart::Grpc {
                service: part(&grpc.service),
                method: part(&grpc.method),
                is_wide,
            });
        }
        let types = self.each(&written.content_types, at, "content_types", media_type);
        if !types.is_empty() {
            parts.push(ConditionPart::ContentTypes(types.into()));
        }
    }

    fn named(
        &mut self,
        all: &BTreeMap<String, TextMatch>,
        at: &str,
        key: &str,
        part: fn(Box<str>, Text) -> ConditionPart,
        parts: &mut Vec<ConditionPart>,
    ) {
        for (name, text) in all {
            let at = below(&below(at, key), name);
            if name.is_empty() {
                self.add(&at, "", "the name is empty");
            }
            parts.extend(self.text(text, &at).map(|text| part(name.as_str().into(), text)));
        }
    }

    fn text(&mut self, written: &TextMatch, at: &str) -> Option<Text> {
        match Text::compile(written) {
            Ok(text) => Some(text),
            Err(error) => {
                self.add(at, error.key(), &error).remedy = Some(error.remedy().to_owned());
                None
            }
        }
    }

    fn path(&mut self, written: &PathMatch, at: &str) -> Option<PathPattern> {
        match parse::path_match(written) {
            Ok(path) => Some(path),
            Err((key, fault)) => {
                self.add(at, key, fault.message).remedy = fault.remedy;
                None
            }
        }
    }

    fn hosts(&mut self, written: &[String], at: &str, key: &str) -> Vec<HostPattern> {
        self.each(written, at, key, |text| {
            parse::host_pattern(text).map_err(|fault| (fault.message, fault.remedy))
        })
    }

    fn connection(&mut self, written: &written::Condition, at: &str, parts: &mut Vec<ConditionPart>) {
        if let Some(scheme) = written.scheme {
            parts.push(ConditionPart::Encrypted(scheme == written::Scheme::Https));
        }
        let ports = self.each(&written.ports, at, "ports", |port| match port {
            0 => {
                Err(("there is no port 0".to_owned(), Some("a port of `gateway.http` or `https`".to_owned())))
            }
            port => Ok(*port),
        });
        if !ports.is_empty() {
            parts.push(ConditionPart::Ports(ports.into()));
        }
        let addresses = self.each(&written.addresses, at, "addresses", block);
        if !addresses.is_empty() {
            parts.push(ConditionPart::Addresses(addresses.into()));
        }
        let clients = self.each(&written.clients, at, "clients", block);
        if !clients.is_empty() {
            parts.push(ConditionPart::Clients(clients.into()));
        }
        let Some(tls) = &written.tls else { return };
        let at = below(at, "tls");
        let names = self.hosts(&tls.server_names, &at, "server_names");
        if !names.is_empty() {
            parts.push(ConditionPart::ServerNames(names.into()));
        }
        if let Some(certificate) = &tls.client_certificate {
            parts.extend(self.certificate(certificate, &below(&at, "client_certificate")));
        }
        if tls.server_names.is_empty() && tls.client_certificate.is_none() {
            parts.push(ConditionPart::Encrypted(true));
        }
    }

    fn certificate(&mut self, written: &written::CertificateMatch, at: &str) -> Option<ConditionPart> {
        let mut name = |text: &Option<TextMatch>, key: &str| {
            text.as_ref().and_then(|text| self.text(text, &below(at, key)))
        };
        let certificate = Certificate {
            present: written.present.unwrap_or(true),
            subject: name(&written.subject, "subject"),
            common_name: name(&written.common_name, "common_name"),
            san: name(&written.san, "san"),
        };
        let asks =
            certificate.subject.is_some() || certificate.common_name.is_some() || certificate.san.is_some();
        if !certificate.present && asks {
            self.add(at, "present", "a certificate that is not there has no names").remedy =
                Some("remove it, or the names".to_owned());
        }
        Some(ConditionPart::Certificate(Box::new(certificate)))
    }

    fn caller(&mut self, written: &written::Condition, at: &str, parts: &mut Vec<ConditionPart>) {
        for (key, names) in [("consumers", &written.consumers), ("groups", &written.groups)] {
            if names.is_empty() {
                continue;
            }
            if self.purpose == Use::Route {
                self.add(at, key, "who calls is not known yet when a proxy is chosen").remedy =
                    Some("write it as the `when` of a plugin that runs after authentication".to_owned());
            }
            let names = names.iter().map(|name| name.as_str().into()).collect();
            parts.push(if key == "groups" {
                ConditionPart::Groups(names)
            } else {
                ConditionPart::Consumers(names)
            });
        }
        if written.statuses.is_empty() {
            return;
        }
        if self.purpose != Use::Response {
            self.add(at, "statuses", "there is no response yet").remedy = Some("remove it".to_owned());
        }
        let statuses = self.each(&written.statuses, at, "statuses", |status| {
            statuses(status).ok_or_else(|| {
                ("this is not a status".to_owned(), Some("such as 404, 5xx or 500-504".to_owned()))
            })
        });
        parts.push(ConditionPart::Statuses(statuses.into()));
    }

    fn combined(
        &mut self,
        written: &written::Condition,
        at: &str,
        depth: usize,
        parts: &mut Vec<ConditionPart>,
    ) {
        for (n, one) in written.all.iter().enumerate() {
            let one = self.condition(one, &below(at, &format!("all[{n}]")), depth + 1);
            parts.extend(one.parts);
        }
        if !written.any.is_empty() {
            let any = written.any.iter().enumerate();
            let any = any.map(|(n, one)| self.condition(one, &below(at, &format!("any[{n}]")), depth + 1));
            parts.push(ConditionPart::Any(any.collect()));
        }
        if let Some(not) = &written.not {
            self.is_negated = !self.is_negated;
            parts.push(ConditionPart::Not(self.condition(not, &below(at, "not"), depth + 1)));
            self.is_negated = !self.is_negated;
        }
    }

    /// The items of a list that can be read; the problems of the others are noted.
    fn each<W, T>(
        &mut self,
        written: &[W],
        at: &str,
        key: &str,
        read: impl Fn(&W) -> Result<T, (String, Option<String>)>,
    ) -> Vec<T> {
        let mut all = Vec::with_capacity(written.len());
        for (n, item) in written.iter().enumerate() {
            match read(item) {
                Ok(item) => all.push(item),
                Err((message, remedy)) => self.add(at, &format!("{key}[{n}]"), message).remedy = remedy,
            }
        }
        all
    }
}

fn block(text: &String) -> Result<IpNet, (String, Option<String>)> {
    let block = text.parse::<IpNet>().or_else(|_| text.parse::<std::net::IpAddr>().map(IpNet::from));
    block.map(|block| canonical_network(block.trunc())).map_err(|_| {
        (format!("`{text}` is not an address or CIDR block"), Some("such as 10.0.0.0/8".to_owned()))
    })
}

fn media_type(text: &String) -> Result<MediaType, (String, Option<String>)> {
    let bad = |message: String, remedy: &str| (message, Some(remedy.to_owned()));
    if text.contains(';') {
        return Err(bad(
            format!("`{text}` has parameters"),
            "write only the type: parameters are not looked at",
        ));
    }
    let is_token = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b))
    };
    match text.trim().split_once('/') {
        Some((main, "*")) if is_token(main) => Ok(MediaType { main: main.into(), sub: "".into() }),
        Some((main, sub)) if is_token(main) && is_token(sub) => {
            Ok(MediaType { main: main.into(), sub: sub.into() })
        }
        _ => Err(bad(format!("`{text}` is not a media type"), "such as application/json or text/*")),
    }
}

/// The first and last of the statuses meant.
fn statuses(written: &StatusMatch) -> Option<(u16, u16)> {
    let valid = |status: u16| (100..=599).contains(&status).then_some(status);
    let text = match written {
        StatusMatch::One(status) => return valid(*status).map(|status| (status, status)),
        StatusMatch::Text(text) => text.trim(),
    };
    if let Some(class) = text.strip_suffix("xx").or_else(|| text.strip_suffix("XX")) {
        let low = valid(class.parse::<u16>().ok()?.checked_mul(100)?)?;
        return Some((low, low + 99));
    }
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let (low, high) = (valid(low.trim().parse().ok()?)?, valid(high.trim().parse().ok()?)?);
    (low <= high).then_some((low, high))
}
