//! Variables: those of nginx, and those that `map`, `geo` and `set` make.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::asked::{Test, flagged};
use super::blocks::Directive;
use super::fields;
use crate::cond::Cond;
use crate::text;

/// Cases one variable, or one text with variables, may have.
const MAX_CASES: usize = 64;
/// Variables within variables.
const MAX_DEPTH: usize = 8;

/// What a variable is, case by case: the first whose condition holds. The last one holds always.
#[derive(Debug, Clone)]
pub(super) struct Cases(pub(super) Vec<(Cond, String)>);

/// Variables that the configuration makes. `None` is one whose cases can't be said here.
#[derive(Debug, Clone, Default)]
pub(super) struct Variables(HashMap<String, Option<Cases>>);

impl Variables {
    /// `set $name value`, for the requests that a condition means.
    pub(super) fn set(&mut self, name: &str, value: &str, cond: Cond) {
        let before =
            self.0.get(name).cloned().unwrap_or_else(|| Some(Cases(vec![(Cond::Always, String::new())])));
        let is_whole = cond == Cond::Always;
        let refers = value.contains(&format!("${name}"));
        let made = match before {
            _ if refers => None,
            _ if is_whole => Some(Cases(vec![(Cond::Always, value.to_owned())])),
            Some(Cases(mut cases)) if cases.len() < MAX_CASES => {
                cases.insert(0, (cond, value.to_owned()));
                Some(Cases(cases))
            }
            _ => None,
        };
        self.0.insert(name.to_owned(), made);
    }

    pub(super) fn unknown(&mut self, name: &str) {
        self.0.insert(name.to_owned(), None);
    }

    /// `map SOURCE $name { … }`; false when it can't be said here.
    pub(super) fn map(&mut self, map: &Directive) -> bool {
        let [source, name] = map.arguments.as_slice() else { return false };
        let name = name.trim_start_matches('$').to_owned();
        let cases = self.mapped(source, &map.block);
        let is_known = cases.is_some();
        self.0.insert(name, cases);
        is_known
    }

    fn mapped(&self, source: &str, block: &[Directive]) -> Option<Cases> {
        let mut default = String::new();
        let (mut exact, mut hosts, mut regexes) = (Vec::new(), Vec::new(), Vec::new());
        let has_hosts = block.iter().any(|entry| entry.name == "hostnames");
        if block.len() > MAX_CASES {
            return None;
        }
        for entry in block {
            let value = entry.arguments.first().cloned().unwrap_or_default();
            match entry.name.as_str() {
                "default" => default = value,
                "hostnames" | "volatile" if entry.arguments.is_empty() => {}
                "include" | super::guards::UNREAD => return None,
                key => {
                    let key = key.strip_prefix('\\').unwrap_or(key);
                    let is_wild =
                        has_hosts && (key.starts_with("*.") || key.starts_with('.') || key.ends_with(".*"));
                    if let Some(regex) = key.strip_prefix('~') {
                        let test = match regex.strip_prefix('*') {
                            Some(regex) => Test::Regex(regex, true),
                            None => Test::Regex(regex, false),
                        };
                        regexes.push((self.holds(source, &test, 0)?, value));
                    } else if is_wild {
                        let names = match key.strip_prefix('.') {
                            Some(rest) => vec![rest.to_owned(), format!("*.{rest}")],
                            None if key.ends_with('*') => return None,
                            None => vec![key.to_owned()],
                        };
                        if !matches!(source, "$host" | "$http_host") {
                            return None;
                        }
                        hosts.push((Cond::is(json!({ "hosts": names })), value));
                    } else {
                        exact.push((self.holds(source, &Test::Same(key, true), 0)?, value));
                    }
                }
            }
        }
        // The longest name first, as nginx looks for it.
        hosts.sort_by_key(|(cond, _)| std::cmp::Reverse(format!("{cond:?}").len()));
        let mut cases = exact;
        cases.extend(hosts);
        cases.extend(regexes);
        cases.push((Cond::Always, default));
        Some(Cases(cases))
    }

    /// `geo [$address] $name { … }`; false when it can't be said here.
    pub(super) fn geo(&mut self, geo: &Directive) -> bool {
        let (source, name) = match geo.arguments.as_slice() {
            [name] => ("$remote_addr", name),
            [source, name] => (source.as_str(), name),
            _ => return false,
        };
        let name = name.trim_start_matches('$').to_owned();
        let cases = networks(source, &geo.block);
        let is_known = cases.is_some();
        self.0.insert(name, cases);
        is_known
    }

    /// When a test of a text holds; `None` when it can't be said here.
    pub(super) fn holds(&self, source: &str, test: &Test<'_>, depth: usize) -> Option<Cond> {
        if depth > MAX_DEPTH {
            return None;
        }
        let Some(name) = lone(source) else {
            // A plain text is what it is.
            return (!source.contains('$'))
                .then(|| if test.fits(source) { Cond::Always } else { Cond::Never });
        };
        match self.0.get(name) {
            Some(None) => None,
            Some(Some(Cases(cases))) => {
                let mut said = Vec::with_capacity(cases.len());
                for (cond, value) in cases {
                    said.push((cond.clone(), self.holds(value, test, depth + 1)?));
                }
                let start = Cond::Never;
                Some(
                    said.into_iter()
                        .rev()
                        .fold(start, |rest, (cond, then)| cond.clone().and(then).or(cond.negate().and(rest))),
                )
            }
            None => test.of(name),
        }
    }

    /// A text by cases, each with the template of ours that stands for it; `None` when it can't be said here.
    pub(super) fn texts(&self, text: &str) -> Option<Vec<(Cond, String)>> {
        self.unfolded(text, 0)
    }

    fn unfolded(&self, text: &str, depth: usize) -> Option<Vec<(Cond, String)>> {
        if depth > MAX_DEPTH {
            return None;
        }
        let mut made = vec![(Cond::Always, String::new())];
        for piece in pieces(text) {
            let options = match piece {
                ValuePiece::Text(text) => vec![(Cond::Always, text.to_owned())],
                ValuePiece::Variable(name) => match self.0.get(name) {
                    Some(None) => return None,
                    Some(Some(Cases(cases))) => {
                        let mut all = Vec::new();
                        let mut rest = Cond::Always;
                        for (cond, value) in cases {
                            let here = rest.clone().and(cond.clone());
                            rest = rest.and(cond.clone().negate());
                            for (inner, text) in self.unfolded(value, depth + 1)? {
                                all.push((here.clone().and(inner), text));
                            }
                        }
                        all.retain(|(cond, _)| *cond != Cond::Never);
                        all
                    }
                    None => vec![(Cond::Always, format!("${{{}}}", ours(name)?))],
                },
            };
            if made.len() * options.len() > MAX_CASES {
                return None;
            }
            made = made
                .iter()
                .flat_map(|(cond, before)| {
                    options.iter().map(move |(other, text)| {
                        (cond.clone().and(other.clone()), format!("{before}{text}"))
                    })
                })
                .collect();
        }
        Some(made)
    }

    /// A text that is the same for every request, as a template; `None` when it differs or can't be said here.
    pub(super) fn template(&self, text: &str) -> Option<String> {
        match self.texts(text)?.as_slice() {
            [(Cond::Always, text)] => Some(text.clone()),
            _ => None,
        }
    }
}

/// `geo`: the longest network first.
fn networks(source: &str, block: &[Directive]) -> Option<Cases> {
    if !matches!(source, "$remote_addr" | "$binary_remote_addr") || block.len() > 10_000 {
        return None;
    }
    let mut default = String::new();
    // One case for each value and length, with all its networks.
    let mut by_length: Vec<(u8, String, Vec<String>)> = Vec::new();
    for entry in block {
        let value = entry.arguments.first().cloned().unwrap_or_default();
        match entry.name.as_str() {
            "default" => default = value,
            "ranges" | "include" | "delete" | "proxy" | "proxy_recursive" | super::guards::UNREAD => {
                return None;
            }
            network if text::is_network(network) => {
                let whole = if network.contains(':') { 128 } else { 32 };
                let bits = network.split_once('/').map_or(Some(whole), |(_, bits)| bits.parse().ok())?;
                match by_length.iter_mut().find(|(length, said, _)| *length == bits && *said == value) {
                    Some((.., list)) => list.push(network.to_owned()),
                    None => by_length.push((bits, value, vec![network.to_owned()])),
                }
            }
            _ => return None,
        }
    }
    if by_length.len() > MAX_CASES {
        return None;
    }
    by_length.sort_by_key(|(bits, ..)| std::cmp::Reverse(*bits));
    let mut cases: Vec<(Cond, String)> =
        by_length.into_iter().map(|(_, value, list)| (Cond::is(json!({ "clients": list })), value)).collect();
    cases.push((Cond::Always, default));
    Some(Cases(cases))
}

impl Test<'_> {
    /// When a variable of nginx's own passes.
    fn of(&self, name: &str) -> Option<Cond> {
        let family = |prefix: &str| name.strip_prefix(prefix).filter(|rest| !rest.is_empty());
        match name {
            "host" => return self.host(),
            "request_method" => return self.method(),
            "uri" | "document_uri" => return self.path(),
            // The query is not looked at.
            "request_uri" => {
                return match self {
                    Self::Regex(regex, _) if !regex.contains('?') && !regex.ends_with('$') => self.path(),
                    _ => None,
                };
            }
            "scheme" => {
                return Some(Cond::any(
                    ["http", "https"]
                        .into_iter()
                        .filter(|it| self.fits(it))
                        .map(|it| Cond::is(json!({ "scheme": it }))),
                ));
            }
            "https" => return self.either("on", &json!({ "scheme": "https" })),
            "ssl_client_verify" => {
                let there = json!({ "tls": { "client_certificate": { "present": true } } });
                let yes = Cond::is(there);
                return Some(match (self.fits("SUCCESS"), self.fits("NONE")) {
                    (true, true) => Cond::Always,
                    (true, false) => yes,
                    (false, true) => yes.negate(),
                    (false, false) => Cond::Never,
                });
            }
            "ssl_server_name" => {
                return match self {
                    Self::Same(name, _) if !name.is_empty() => {
                        Some(Cond::is(json!({ "tls": { "server_names": [name] } })))
                    }
                    _ => None,
                };
            }
            "remote_addr" => {
                return match self {
                    Self::Same(address, _) if address.parse::<std::net::IpAddr>().is_ok() => {
                        Some(Cond::is(json!({ "clients": [address] })))
                    }
                    _ => None,
                };
            }
            _ => {}
        }
        match (family("http_"), family("arg_"), family("cookie_")) {
            (Some(name), ..) => fields::header(self, &name.replace('_', "-")),
            (_, Some(name), _) => fields::parameter(self, name),
            (.., Some(name)) => fields::cookie(self, name),
            _ => None,
        }
    }

    fn either(&self, text: &str, when: &Value) -> Option<Cond> {
        let cond = Cond::is(when.clone());
        Some(match (self.fits(text), self.fits("")) {
            (true, true) => Cond::Always,
            (true, false) => cond,
            (false, true) => cond.negate(),
            (false, false) => Cond::Never,
        })
    }

    fn host(&self) -> Option<Cond> {
        match self {
            Self::Same(name, _) if is_host(name) => {
                Some(Cond::is(json!({ "hosts": [name.to_ascii_lowercase()] })))
            }
            Self::Regex(regex, _) => {
                // `^(a|b)\.example\.com$` as the names it stands for.
                let names = spelled(regex)?;
                let good = !names.is_empty() && names.iter().all(|name| is_host(name));
                good.then(|| Cond::is(json!({ "hosts": names })))
            }
            _ => None,
        }
    }

    fn method(&self) -> Option<Cond> {
        const METHODS: [&str; 9] =
            ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];
        match self {
            Self::Same(method, _) if !method.is_empty() => Some(Cond::methods(&[method])),
            Self::Regex(regex, _) => {
                let names = spelled(regex);
                let fits: Vec<&str> = METHODS.into_iter().filter(|method| self.fits(method)).collect();
                // Only where no other method fits either: the regex spells them out.
                let names = names?;
                let same =
                    names.len() == fits.len() && fits.iter().all(|fit| names.iter().any(|name| name == fit));
                (same && !fits.is_empty()).then(|| Cond::methods(&fits))
            }
            _ => None,
        }
    }

    fn path(&self) -> Option<Cond> {
        match self {
            Self::Same(path, false) if path.starts_with('/') => Some(Cond::path("exact", path)),
            Self::Same(path, true) if path.starts_with('/') => {
                Some(Cond::path("regex", &format!("(?i){}", text::literal(path))))
            }
            Self::Regex(regex, ignores) => Some(Cond::path("regex", &flagged(regex, *ignores)?)),
            _ => None,
        }
    }
}

/// The texts that a regex of plain text and one group of alternatives stands for, where it matches whole texts.
fn spelled(regex: &str) -> Option<Vec<String>> {
    let inner = regex.strip_prefix('^')?.strip_suffix('$')?;
    let (before, rest) = inner.split_once('(').unwrap_or((inner, ""));
    let (middle, after) =
        if rest.is_empty() && !inner.contains('(') { ("", "") } else { rest.split_once(')')? };
    let middle = middle.strip_prefix("?:").unwrap_or(middle);
    let all = middle.split('|').map(|one| format!("{before}{one}{after}"));
    all.map(|text| {
        let plain = text.replace("\\.", ".").replace("\\-", "-");
        let is_plain = plain.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
        // A bare dot is any character.
        (is_plain && text.matches('.').count() == text.matches("\\.").count()).then_some(plain)
    })
    .collect()
}

fn is_host(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'))
}

/// The name of the one variable a text is.
fn lone(text: &str) -> Option<&str> {
    let name = text.strip_prefix('$')?;
    let name = name.strip_prefix('{').and_then(|name| name.strip_suffix('}')).unwrap_or(name);
    (!name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')).then_some(name)
}

enum ValuePiece<'t> {
    Text(&'t str),
    Variable(&'t str),
}

/// A text cut at its variables.
fn pieces(text: &str) -> Vec<ValuePiece<'_>> {
    let mut made = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, after) = rest.split_at(at);
        if !before.is_empty() {
            made.push(ValuePiece::Text(before));
        }
        let after = after.get(1..).unwrap_or_default();
        let braced = after.strip_prefix('{').and_then(|inner| inner.split_once('}'));
        let (name, tail) = match braced {
            Some(pair) => pair,
            None => {
                // A group of a regex has one digit.
                let group = after.bytes().next().is_some_and(|b| b.is_ascii_digit());
                let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
                after.split_at(if group { 1 } else { end })
            }
        };
        made.push(ValuePiece::Variable(name));
        rest = tail;
    }
    if !rest.is_empty() || made.is_empty() {
        made.push(ValuePiece::Text(rest));
    }
    made
}

/// The gateway's name for a variable of nginx.
fn ours(name: &str) -> Option<String> {
    let known = match name {
        "host" => "request.host",
        "http_host" => "request.authority",
        "request_uri" => "request.target",
        "uri" | "document_uri" => "request.path",
        "args" | "query_string" => "request.query",
        "scheme" => "request.scheme",
        "request_method" => "request.method",
        "request_id" => "request.id",
        "remote_addr" => "client.address",
        "remote_port" => "client.port",
        "remote_user" => "identity.name",
        "server_port" => "server.port",
        "server_addr" => "server.address",
        "server_protocol" => "request.version",
        "ssl_protocol" => "tls.version",
        "ssl_cipher" => "tls.cipher",
        "ssl_server_name" => "tls.server_name",
        "ssl_client_s_dn" => "tls.client.subject",
        "upstream_addr" => "target.authority",
        "status" => "response.status",
        _ => {
            let family = |prefix: &str| name.strip_prefix(prefix).filter(|rest| !rest.is_empty());
            if !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit()) {
                return Some(format!("capture.{name}"));
            }
            let header = family("http_").map(|name| format!("request.header.{}", name.replace('_', "-")));
            let query = || family("arg_").map(|name| format!("request.query.{name}"));
            let cookie = || family("cookie_").map(|name| format!("request.cookie.{name}"));
            let sent =
                || family("upstream_http_").map(|name| format!("response.header.{}", name.replace('_', "-")));
            return header.or_else(query).or_else(cookie).or_else(sent);
        }
    };
    Some(known.to_owned())
}
