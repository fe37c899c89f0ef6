//! Locations: which paths, where to, and what else is said about them.

use serde_json::{Map, Value, json};

use super::guards::Guard;
use super::{Directive, Nginx};
use crate::import::{CLOSED, set};

/// Directives that hold for every location below, unless it says otherwise.
pub(super) const INHERITED: &[&str] = &[
    "proxy_set_header",
    "proxy_connect_timeout",
    "proxy_read_timeout",
    "proxy_send_timeout",
    "client_max_body_size",
    "proxy_next_upstream_tries",
    "proxy_ssl_verify",
    "proxy_ssl_server_name",
    "proxy_ssl_name",
    "proxy_ssl_trusted_certificate",
];

/// Headers the gateway sets by itself.
const OWN_HEADERS: &[&str] = &[
    "x-real-ip",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "upgrade",
    "connection",
    "via",
];

/// Whether the gateway says this to targets by itself.
pub(super) fn is_own_header(name: &str) -> bool {
    name.eq_ignore_ascii_case("host") || OWN_HEADERS.iter().any(|own| name.eq_ignore_ascii_case(own))
}

/// What stands around a location.
#[derive(Clone)]
pub(super) struct Context<'a> {
    pub(super) hosts: &'a [String],
    pub(super) called: &'a str,
    pub(super) place: &'a str,
    /// From the outermost.
    pub(super) outer: Vec<&'a Directive>,
    /// The only scheme its server answers, where another server has its names.
    pub(super) scheme: Option<&'static str>,
    pub(super) order: Order,
    /// The path of the location around it.
    pub(super) parent: Option<String>,
}

/// The order in which nginx looks at the locations of a server: an exact path, the longest prefix when it is `^~`, the
/// first regex in the file, the longest prefix.
#[derive(Debug, Clone, Default)]
pub(super) struct Order {
    /// The regexes, in the order of the file.
    regexes: Vec<String>,
    /// Prefixes without `^~`.
    prefixes: Vec<String>,
    /// Whether the gateway's own order would be another.
    matters: bool,
}

impl Order {
    pub(super) fn of(server: &Directive) -> Self {
        let mut order = Self::default();
        order.gather(server);
        order
    }

    fn gather(&mut self, block: &Directive) {
        for location in block.block.iter().filter(|directive| directive.name == "location") {
            let arguments: Vec<&str> = location.arguments.iter().map(String::as_str).collect();
            match arguments.as_slice() {
                ["~" | "~*", _] => self.regexes.push(location.arguments.join(" ")),
                [path] => self.prefixes.push((*path).to_owned()),
                _ => {}
            }
            let is_guarded =
                || location.block.iter().any(|inner| super::guards::NAMES.contains(&inner.name.as_str()));
            self.matters |= !self.regexes.is_empty() || is_guarded();
            self.gather(location);
        }
    }

    /// The priority of a location, where one is needed.
    fn priority(&self, arguments: &[&str]) -> Option<i64> {
        let length = |path: &str| i64::try_from(path.len()).unwrap_or(0).min(9_000);
        self.matters.then(|| match arguments {
            ["=", _] => 300_000,
            ["^~", path] => 200_000 + length(path),
            ["~" | "~*", _] => {
                let at = self.regexes.iter().position(|regex| *regex == arguments.join(" "));
                100_000 - at.and_then(|at| i64::try_from(at).ok()).unwrap_or(0).min(80_000)
            }
            [path] => length(path),
            _ => 0,
        })
    }
}

impl Nginx {
    /// Translates a location, and those within it.
    pub(super) fn location(&mut self, location: &Directive, context: &Context<'_>) {
        let place = format!("{}, location {}", context.place, location.arguments.join(" "));
        let arguments: Vec<&str> = location.arguments.iter().map(String::as_str).collect();
        let is_server = location.name == "server";
        for inner in location.block.iter().filter(|d| d.name == "location" && !is_server) {
            let mut within = context.clone();
            within.outer.push(location);
            within.parent =
                arguments.last().map(|path| (*path).to_owned()).filter(|path| path.starts_with('/'));
            self.location(inner, &within);
        }
        let find = |name: &str| location.block.iter().find(|directive| directive.name == name);
        let (pass, answer) = (find("proxy_pass").or_else(|| find("grpc_pass")), find("return"));
        let mut levels = context.outer.clone();
        if !is_server {
            levels.push(location);
        }
        let guard = self.guards(&place, &levels);
        let is_guarded = guard != Guard::None;
        let Some(matches) = self.path(&place, location, (context, is_guarded)) else { return };
        let mut proxy = Map::new();
        let id = self.out.id("proxy", &format!("{}{}", context.called, location.arguments.join("-")));
        set(&mut proxy, "id", id.clone());
        if !context.hosts.is_empty() {
            set(&mut proxy, "hosts", context.hosts.to_vec());
        }
        proxy.extend(matches);
        if let Some(priority) = context.order.priority(&arguments) {
            set(&mut proxy, "priority", priority);
        }
        let status = match &guard {
            Guard::Denied(status) => Some(*status),
            Guard::Closed => Some(503),
            Guard::None | Guard::Only(_) => None,
        };
        let is_served = match (status, answer, pass) {
            (Some(_), ..) => false,
            (None, Some(answer), _) => self.fixed(&place, answer, (&mut proxy, &id)),
            (None, None, Some(pass)) => self.pass(&place, pass, &mut proxy),
            (None, None, None) => {
                let place = format!("line {}, {place}", location.line);
                self.out.miss(place, "it neither passes on nor answers: files are not served here");
                false
            }
        };
        if !is_served {
            // Left out, its requests would go to a location that was never meant for them.
            let body = if status.is_none_or(|status| status == 503) { CLOSED } else { "" };
            self.out.answering(&format!("{id}-closed"), Some(&id), (status.unwrap_or(503), body));
            nowhere(&mut proxy);
            self.out.proxies.push(Value::Object(proxy));
            return;
        }
        if let Guard::Only(clients) = guard {
            let mut others = proxy.clone();
            let rest = self.out.id("proxy", &format!("{id}-others"));
            set(&mut others, "id", rest.clone());
            others.shift_remove("plugins");
            nowhere(&mut others);
            self.out.answering(&format!("{rest}-denied"), Some(&rest), (403, ""));
            self.out.proxies.push(Value::Object(others));
            also(&mut proxy, "clients", &json!(clients));
        }
        self.said(&place, location, (context, &mut proxy));
        self.plugins(&place, &levels, &id);
        self.out.proxies.push(Value::Object(proxy));
    }

    /// The path as keys of a proxy; `None` when no request from outside takes it.
    fn path(
        &mut self,
        place: &str,
        location: &Directive,
        (context, is_guarded): (&Context<'_>, bool),
    ) -> Option<Map<String, Value>> {
        let arguments: Vec<&str> = location.arguments.iter().map(String::as_str).collect();
        let trimmed = |path: &str| match path.trim_end_matches('/') {
            "" => "/".to_owned(),
            path => path.to_owned(),
        };
        let mut made = Map::new();
        match arguments.as_slice() {
            ["=", path] => set(&mut made, "matches", json!([{ "path": { "exact": path } }])),
            ["~", regex] => set(&mut made, "listen_path", anchored(regex, "")),
            ["~*", regex] => set(&mut made, "listen_path", anchored(regex, "(?i)")),
            ["^~", path] | [path] if path.starts_with('/') => {
                // All paths of certain hosts need no path.
                if *path != "/" || context.hosts.is_empty() {
                    set(&mut made, "listen_path", trimmed(path));
                }
                if is_guarded && !path.ends_with('/') {
                    // nginx's prefixes end anywhere, also inside a segment.
                    let beyond = format!("{}[^/].*", regex_literal(path));
                    let both =
                        json!([{ "path": { "prefix": trimmed(path) } }, { "path": { "regex": beyond } }]);
                    set(&mut made, "matches", both);
                } else if !path.ends_with('/') {
                    let place = format!("line {}, {place}", location.line);
                    self.out.miss(
                        place,
                        "a prefix ends with a segment here: what goes on within it is not taken",
                    );
                }
            }
            [name] if name.starts_with('@') => {
                self.out.miss(
                    format_args!("line {}, {place}", location.line),
                    "named locations are not known here",
                );
                return None;
            }
            _ => {
                self.out.miss(
                    format_args!("line {}, {place}", location.line),
                    "no path that could be translated",
                );
                return None;
            }
        }
        if let ["^~", path] = arguments.as_slice() {
            let longer =
                context.order.prefixes.iter().filter(|p| p.len() > path.len() && p.starts_with(path));
            let longer: Vec<Value> = longer.map(|p| json!({ "path": { "prefix": trimmed(p) } })).collect();
            if !longer.is_empty() {
                also(&mut made, "not", &json!({ "any": longer }));
            }
        }
        if let (Some(parent), ["~" | "~*", _]) = (&context.parent, arguments.as_slice()) {
            also(&mut made, "all", &json!([{ "path": { "prefix": trimmed(parent) } }]));
        }
        if let Some(scheme) = context.scheme {
            also(&mut made, "scheme", &json!(scheme));
        }
        Some(made)
    }

    /// `proxy_pass` and `grpc_pass`; false when it can't be translated.
    fn pass(&mut self, place: &str, pass: &Directive, proxy: &mut Map<String, Value>) -> bool {
        let url = pass.arguments.first().map_or("", String::as_str);
        let parts = url.split_once("://").filter(|_| !url.contains('$') && !url.contains("unix:"));
        let Some((scheme, rest)) = parts else {
            self.out.miss(
                format_args!("line {}, {place}: {pass}", pass.line),
                "variables and sockets are not known here",
            );
            return false;
        };
        let (authority, path) = match rest.find('/') {
            Some(at) => (rest.get(..at).unwrap_or(rest), rest.get(at..)),
            None => (rest, None),
        };
        let (scheme, port) = match scheme {
            "https" | "grpcs" => ("https", 443),
            _ => ("http", 80),
        };
        set(proxy, "backend_scheme", scheme);
        if pass.name == "grpc_pass" {
            set(proxy, "backend_http_version", "2");
        }
        self.backend(proxy, authority, port);
        // With a path behind the host, what the location matched is replaced by it.
        set(proxy, "strip_listen_path", path.is_some());
        if let Some(path) = path.map(|path| path.trim_end_matches('/')).filter(|path| !path.is_empty()) {
            set(proxy, "backend_path", path);
        }
        true
    }

    /// `return CODE [TEXT]`; false when it can't be translated.
    fn fixed(
        &mut self,
        place: &str,
        answer: &Directive,
        (proxy, id): (&mut Map<String, Value>, &str),
    ) -> bool {
        let status = answer.arguments.first().and_then(|status| status.parse::<u16>().ok());
        let text = answer.arguments.get(1);
        // `return URL` is a 302.
        let redirected = match (status, answer.arguments.first(), text) {
            (Some(status), _, Some(to)) => super::plugins::redirect(status, to),
            (None, Some(to), None) => super::plugins::redirect(302, to),
            _ => None,
        };
        if let Some(config) = redirected {
            let plugin = self.out.id("plugin", &format!("{id}-return"));
            self.out.plugin_configs.push(json!({
                "id": plugin, "plugin_name": "redirect", "proxy_id": id, "config": config,
            }));
            nowhere(proxy);
            return true;
        }
        let Some(status) =
            status.filter(|status| !(300..400).contains(status) && (200..600).contains(status))
        else {
            self.out.miss(
                format_args!("line {}, {place}: {answer}", answer.line),
                "this redirect can't be translated",
            );
            return false;
        };
        if text.is_some_and(|text| text.contains('$')) {
            self.out.miss(
                format_args!("line {}, {place}: {answer}", answer.line),
                "variables are not known here",
            );
            return false;
        }
        let plugin = self.out.id("plugin", &format!("{id}-return"));
        let body = text.cloned().unwrap_or_default();
        self.out.plugin_configs.push(json!({
            "id": plugin, "plugin_name": "request_termination", "proxy_id": id,
            "config": { "status_code": status, "content_type": "text/plain", "body": body },
        }));
        nowhere(proxy);
        true
    }

    /// What is said about the location besides, there or further out.
    fn said(
        &mut self,
        place: &str,
        location: &Directive,
        (context, proxy): (&Context<'_>, &mut Map<String, Value>),
    ) {
        for directive in &location.block {
            let name = directive.name.as_str();
            let is_done = matches!(name, "proxy_pass" | "grpc_pass" | "return" | "location" | "rewrite");
            let is_server = location.name == "server";
            let is_known = super::is_inherited(name);
            if !is_done && !is_server && !is_known {
                self.unknown(place, directive);
            }
        }
        for name in INHERITED {
            // A level that says one of a name says all of that name.
            let levels = std::iter::once(location).chain(context.outer.iter().rev().copied());
            let said: Vec<Directive> = levels
                .map(|level| level.block.iter().filter(|d| d.name == *name).cloned().collect::<Vec<_>>())
                .find(|said| !said.is_empty())
                .unwrap_or_default();
            for directive in &said {
                self.say(place, directive, proxy);
            }
        }
    }

    fn say(&mut self, place: &str, directive: &Directive, proxy: &mut Map<String, Value>) {
        let first = directive.arguments.first().map_or("", String::as_str);
        let timeout = match directive.name.as_str() {
            "proxy_connect_timeout" => Some("backend_connect_timeout_ms"),
            "proxy_read_timeout" => Some("backend_read_timeout_ms"),
            "proxy_send_timeout" => Some("backend_write_timeout_ms"),
            _ => None,
        };
        match (directive.name.as_str(), timeout) {
            (_, Some(key)) => match millis(first) {
                Some(millis) => set(proxy, key, millis),
                None => self.unknown(place, directive),
            },
            ("client_max_body_size", _) => match bytes(first) {
                Some(bytes) => set(proxy, "max_request_body_bytes", bytes),
                None => self.unknown(place, directive),
            },
            ("proxy_ssl_verify", _) => set(proxy, "backend_tls_verify_server_cert", first == "on"),
            ("proxy_ssl_name", _) => set(proxy, "backend_tls_server_name", first),
            ("proxy_ssl_trusted_certificate", _) => set(proxy, "backend_tls_server_ca_cert_path", first),
            ("proxy_ssl_server_name", _) => {}
            ("proxy_next_upstream_tries", _) => {
                if let Some(tries) = first.parse::<u64>().ok().filter(|tries| *tries > 1) {
                    set(proxy, "retry", json!({ "max_retries": tries - 1 }));
                }
            }
            ("proxy_set_header", _) => {
                let value = directive.arguments.get(1).map_or("", String::as_str);
                match first.to_ascii_lowercase().as_str() {
                    "host" if matches!(value, "$host" | "$http_host") => {
                        set(proxy, "preserve_host_header", true)
                    }
                    "host" if value == "$proxy_host" => {}
                    "host" => self.unknown(place, directive),
                    // A plugin sets it.
                    _ => {}
                }
            }
            _ => self.unknown(place, directive),
        }
    }
}

/// Sends a proxy that answers by itself nowhere.
fn nowhere(proxy: &mut Map<String, Value>) {
    for key in ["upstream_id", "backend_path", "backend_http_version", "strip_listen_path"] {
        proxy.shift_remove(key);
    }
    set(proxy, "backend_scheme", "http");
    set(proxy, "backend_host", "127.0.0.1");
    set(proxy, "backend_port", 9);
}

/// Adds a condition to each match of a proxy.
fn also(proxy: &mut Map<String, Value>, key: &str, value: &Value) {
    let matches = proxy.entry("matches").or_insert_with(|| json!([{}]));
    for one in matches.as_array_mut().into_iter().flatten() {
        one[key] = value.clone();
    }
}

/// A path as a regex that matches nothing else.
fn regex_literal(path: &str) -> String {
    let mut regex = String::new();
    for c in path.chars() {
        if !c.is_ascii_alphanumeric() && !matches!(c, '/' | '_' | '-' | '%') {
            regex.push('\\');
        }
        regex.push(c);
    }
    regex
}

/// nginx looks for a regex anywhere in the path; ours match the whole of it.
fn anchored(regex: &str, flags: &str) -> String {
    let (before, regex) = match regex.strip_prefix('^') {
        Some(rest) => ("", rest),
        None => (".*", regex),
    };
    let (regex, after) = match regex.strip_suffix('$').filter(|rest| !rest.ends_with('\\')) {
        Some(rest) => (rest, ""),
        None => (regex, ".*"),
    };
    format!("~{flags}{before}(?:{regex}){after}")
}

/// `60s`, `500ms`, `2m`, `60`: milliseconds.
pub(super) fn millis(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let unit = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    number.checked_mul(unit)
}

/// `10m`, `512k`, `0`: bytes.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "" => 1,
        "k" | "K" => 1 << 10,
        "m" | "M" => 1 << 20,
        "g" | "G" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}
