//! Envoy's virtual hosts and routes: in each host the first route that fits has a request.

use serde_json::{Value, json};

use super::forwarding::Forwarding;
use super::{Envoy, Listener};
use crate::cond::Cond;
use crate::draft::{Plug, Route, To, with_facet};
use crate::text;
use crate::tree::Node;

const TODO: &str = "write it with `matches`, then remove `request_termination`";

impl Envoy<'_> {
    /// A connection manager.
    pub(super) fn manager(&mut self, what: &str, manager: &Node, names: &[String], mut listener: Listener) {
        self.http_filters(what, manager, &mut listener);
        let Some(config) = manager.get("route_config") else {
            self.out.lost(
                manager.at,
                format_args!("{what}: rds"),
                "what an xDS server says is not known here",
                "dump the configuration, and import that",
            );
            return;
        };
        // What it says of headers holds for all its hosts.
        self.headers(what, config, &mut listener.last);
        for host in config.each("virtual_hosts") {
            self.host(what, host, names, &listener);
        }
    }

    fn host(&mut self, what: &str, host: &Node, names: &[String], listener: &Listener) {
        let called = host.text_of("name").unwrap_or("host");
        let what = format!("{what}, virtual host {called}");
        let (hosts, is_any) = self.domains(&what, host, names, listener);
        let mut is_closed = listener.is_closed;
        for key in ["typed_per_filter_config", "per_filter_config"] {
            if let Some(node) = host.get(key) {
                is_closed |= self.out.guard(
                    node.at,
                    format_args!("{what}: {key}"),
                    "settings of filters for one host are not translated",
                    TODO,
                );
            }
        }
        if hosts.is_empty() && !is_any {
            return;
        }
        // Names go before all others here: what holds for both is said of both.
        let facets: Vec<Vec<String>> = match (is_any, hosts.is_empty()) {
            (true, true) => vec![Vec::new()],
            (true, false) => vec![hosts, Vec::new()],
            _ => vec![hosts],
        };
        if host.text_of("require_tls").is_some_and(|it| it != "NONE") {
            for hosts in &facets {
                let mut redirect = redirect_to_https(called, hosts);
                redirect.matches.iter_mut().for_each(|one| *one = here(one.take(), names, listener));
                self.out.route(redirect);
            }
        }
        let routes = host.each("routes");
        let count = i64::try_from(routes.len()).unwrap_or(0);
        for (n, route) in routes.iter().enumerate() {
            let priority = (count - i64::try_from(n).unwrap_or(0)) * 10;
            let (goes_on, made) = self.route(&what, called, route, host, listener, is_closed);
            for hosts in &facets {
                let Some(mut made) = made.clone() else { continue };
                made.hosts.clone_from(hosts);
                made.priority = Some(priority);
                made.matches.iter_mut().for_each(|one| *one = here(one.take(), names, listener));
                self.out.route(made);
            }
            if !goes_on {
                break;
            }
        }
    }

    /// The names of a virtual host, and whether it takes all others.
    fn domains(
        &mut self,
        what: &str,
        host: &Node,
        names: &[String],
        listener: &Listener,
    ) -> (Vec<String>, bool) {
        let mut hosts = Vec::new();
        let is_any = host.texts("domains").iter().any(|domain| without_port(domain) == "*");
        for domain in host.texts("domains") {
            let domain = without_port(&domain).to_ascii_lowercase();
            let rest = domain.strip_prefix("*.").unwrap_or(&domain);
            if domain == "*" {
                continue;
            }
            if rest.contains('*') {
                if let Some(mut closed) = self.closed_domain(what, host, &domain, is_any) {
                    closed.matches.iter_mut().for_each(|one| *one = here(one.take(), names, listener));
                    self.out.route(closed);
                }
            } else if !hosts.contains(&domain) {
                hosts.push(domain.clone());
            }
        }
        (hosts, is_any)
    }

    /// Closes hosts that no name of ours means: they would go to a virtual host for all others, without what guards them.
    fn closed_domain(&mut self, what: &str, host: &Node, domain: &str, is_any: bool) -> Option<Route> {
        let place = format!("{what}: {domain}");
        if is_any {
            self.out.needless(host.at, place, "the virtual host takes all others, and these with them");
            return None;
        }
        let why = "only names and `*.` in front of one are known; its requests are closed";
        if !self.out.guard(host.at, place, why, "write the names out") {
            return None;
        }
        let pieces: Vec<String> = domain.split('*').map(text::literal).collect();
        let regex = format!("(?i){}(?::[0-9]+)?", pieces.join("[^:]+"));
        let mut route = Route::new(format!("closed-{domain}"), To::Closed);
        route.matches.push(json!({ "path": "/", "authority": { "regex": regex } }));
        route.priority = Some(2_000_000);
        Some(route)
    }

    /// A route. Whether those behind it are looked at: not when it is not known which requests this one takes.
    fn route(
        &mut self,
        what: &str,
        called: &str,
        route: &Node,
        host: &Node,
        listener: &Listener,
        mut is_closed: bool,
    ) -> (bool, Option<Route>) {
        let what = format!("{what}, route {}", route.text_of("name").unwrap_or("without a name"));
        let matched = route.get("match").and_then(matched);
        let Some((path, cond)) = matched else {
            let closes = self.out.guard(
                route.at,
                &what,
                "what it matches can't be translated; all that comes after it is closed",
                TODO,
            );
            let mut made = Route::new(format!("{called}-closed"), To::Closed);
            made.matches.push(json!({ "path": "/" }));
            return (!closes, closes.then_some(made));
        };
        for key in ["typed_per_filter_config", "per_filter_config"] {
            if let Some(node) = route.get(key) {
                is_closed |= self.out.guard(
                    node.at,
                    format_args!("{what}: {key}"),
                    "settings of filters for one route are not translated",
                    TODO,
                );
            }
        }
        let mut forwarding = Forwarding { plugins: listener.plugins.clone(), ..Forwarding::default() };
        let to = if is_closed {
            To::Closed
        } else if let Some(answer) = route.get("direct_response") {
            let status = answer
                .get("status")
                .and_then(Node::uint)
                .and_then(|it| u16::try_from(it).ok())
                .filter(|it| (200..600).contains(it))
                .unwrap_or(503);
            let body = answer.path(&["body", "inline_string"]).and_then(Node::str).unwrap_or_default();
            To::Answer(status, "text/plain".to_owned(), body.to_owned())
        } else if let Some(redirect) = route.get("redirect") {
            match redirected(redirect) {
                Some(config) => To::Redirect(config),
                None => {
                    self.out.closed(
                        redirect.at,
                        &what,
                        "this redirect can't be translated",
                        "use the plugin `redirect`",
                    );
                    To::Closed
                }
            }
        } else {
            match self.forwarded(&what, route, &path, &mut forwarding) {
                Some(to) => to,
                None => To::Closed,
            }
        };
        // The most special first, as Envoy has it.
        for level in [route, host] {
            self.headers(&what, level, &mut forwarding.plugins);
        }
        forwarding.plugins.extend(listener.last.iter().cloned());
        let mut made = Route::new(called, to);
        made.matches.push(cond.with_path(&path));
        made.settings = forwarding.settings;
        made.plugins = forwarding.plugins;
        self.out.done(route.at, what);
        (true, Some(made))
    }

    /// Headers that a host, a route or all of them add or remove.
    fn headers(&mut self, what: &str, level: &Node, plugins: &mut Vec<Plug>) {
        for (side, plugin) in [("request", "request_transformer"), ("response", "response_transformer")] {
            let removed = level.texts(&format!("{side}_headers_to_remove"));
            let removed =
                removed.iter().map(|name| json!({ "operation": "remove", "target": "header", "key": name }));
            let mut rules: Vec<Value> = removed.collect();
            for header in level.each(&format!("{side}_headers_to_add")) {
                let pair = header
                    .path(&["header", "key"])
                    .and_then(Node::str)
                    .zip(header.path(&["header", "value"]).and_then(Node::plain));
                let action = header.text_of("append_action").unwrap_or("APPEND_IF_EXISTS_OR_ADD");
                let overwrites = action.starts_with("OVERWRITE")
                    || header.get("append").map(|it| it.get("value").unwrap_or(it)).and_then(Node::bool)
                        == Some(false);
                // What a client sends under this name does not pass for what Envoy would have said.
                if let (true, "request", Some((name, _))) = (overwrites, side, &pair) {
                    rules.push(json!({ "operation": "remove", "target": "header", "key": name }));
                }
                let Some((name, value)) = pair.filter(|(_, value)| !value.contains('%')) else {
                    self.out.lost(
                        header.at,
                        format_args!("{what}: {side}_headers_to_add"),
                        "values with `%…%` have no counterpart",
                        "use templates of `request_transformer`",
                    );
                    continue;
                };
                let operation = if overwrites { "set" } else { "append" };
                rules.push(json!({ "operation": operation, "target": "header", "key": name, "value": value.replace("${", "$${") }));
            }
            if !rules.is_empty() {
                plugins.push(Plug::new(plugin, json!({ "rules": rules })));
            }
        }
    }
}

/// A match for a listener, and for the names that its filter chain is for.
fn here(one: Value, names: &[String], listener: &Listener) -> Value {
    let mut one = with_facet(one, &listener.facet);
    if !names.is_empty() {
        one["tls"] = json!({ "server_names": names });
    }
    one
}

/// A domain without its port, which is not looked at.
fn without_port(domain: &str) -> &str {
    let parts = domain.rsplit_once(':').filter(|(_, port)| *port == "*" || port.parse::<u16>().is_ok());
    parts.map_or(domain, |(host, _)| host)
}

/// Sends what comes without TLS to where there is.
fn redirect_to_https(called: &str, hosts: &[String]) -> Route {
    let mut route = Route::new(
        format!("{called}-to-https"),
        To::Redirect(json!({
            "status_code": 301, "location": "https://${request.host}${request.target}", "query": "drop",
        })),
    );
    route.matches.push(json!({ "path": "/", "scheme": "http" }));
    route.hosts = hosts.to_vec();
    route.priority = Some(1_000_000);
    route
}

/// Which requests a route takes: the path, and what has to hold besides. `None` when it can't be said here.
fn matched(node: &Node) -> Option<(Value, Cond)> {
    let ignores = node
        .get("case_sensitive")
        .is_some_and(|it| it.bool() == Some(false) || it.get("value").and_then(Node::bool) == Some(false));
    let flag = if ignores { "(?i)" } else { "" };
    let (mut path, mut cond) = (json!({ "prefix": "/" }), Cond::Always);
    for (key, value) in node.entries() {
        match key.as_str() {
            "prefix" => {
                let prefix = value.str()?;
                if prefix != "/" {
                    path = json!({ "regex": format!("{flag}{}.*", text::literal(prefix)) });
                }
            }
            "path" if ignores => path = json!({ "regex": format!("{flag}{}", text::literal(value.str()?)) }),
            "path" => path = json!({ "exact": value.str()? }),
            "path_separated_prefix" if !ignores => path = json!({ "prefix": value.str()? }),
            "safe_regex" => {
                let regex = value.text_of("regex")?;
                text::is_regex(regex).then_some(())?;
                path = json!({ "regex": regex });
            }
            "case_sensitive" => {}
            "headers" => {
                for header in value.items() {
                    cond = cond.and(header_matched(header)?);
                }
            }
            "query_parameters" => {
                for parameter in value.items() {
                    let name = parameter.text_of("name")?;
                    let how = match (
                        parameter.get("string_match"),
                        parameter.get("present_match").and_then(Node::bool),
                    ) {
                        (Some(text), _) => string_matched(text)?,
                        (None, Some(present)) => json!({ "present": present }),
                        (None, None) => json!({ "present": true }),
                    };
                    cond = cond.and(Cond::is(json!({ "query": { name: how } })));
                }
            }
            "grpc" => cond = cond.and(Cond::is(json!({ "grpc": {} }))),
            _ => return None,
        }
    }
    Some((path, cond))
}

pub(super) fn header_matched(header: &Node) -> Option<Cond> {
    let name = header.text_of("name")?.to_ascii_lowercase();
    let inverts = header.get("invert_match").and_then(Node::bool) == Some(true);
    let how = match (header.get("string_match"), header.get("present_match").and_then(Node::bool)) {
        (Some(text), _) => string_matched(text)?,
        (None, Some(present)) => json!({ "present": present }),
        (None, None) => {
            // The older way to say it.
            let old =
                header.entries().iter().find(|(key, _)| key.ends_with("_match") && key != "invert_match");
            match old {
                None => json!({ "present": true }),
                Some((key, value)) => {
                    let text = value.str();
                    match (key.as_str(), text) {
                        ("exact_match", Some(text)) => json!({ "exact": text }),
                        ("prefix_match", Some(text)) => json!({ "prefix": text }),
                        ("suffix_match", Some(text)) => json!({ "suffix": text }),
                        ("contains_match", Some(text)) => json!({ "contains": text }),
                        ("safe_regex_match", None) => {
                            let regex = value.text_of("regex").filter(|it| text::is_regex(it))?;
                            json!({ "regex": regex })
                        }
                        _ => return None,
                    }
                }
            }
        }
    };
    let exact = how.get("exact").and_then(Value::as_str).map(str::to_owned);
    let cond = match (name.as_str(), exact) {
        (":method", Some(method)) => Cond::methods(&[&method]),
        (":authority" | "host", Some(host)) => {
            Cond::is(json!({ "hosts": [host.split(':').next().unwrap_or_default().to_ascii_lowercase()] }))
        }
        (":path", _) | (":method", None) | (":authority", None) => return None,
        (":scheme", _) => return None,
        (name, _) => Cond::is(json!({ "headers": { name: how } })),
    };
    Some(if inverts { cond.negate() } else { cond })
}

pub(super) fn string_matched(node: &Node) -> Option<Value> {
    let mut how = match node.entries().iter().find(|(key, _)| key != "ignore_case")? {
        (key, value) if matches!(key.as_str(), "exact" | "prefix" | "suffix" | "contains") => {
            json!({ key: value.str()? })
        }
        (key, value) if key == "safe_regex" => {
            let regex = value.text_of("regex").filter(|it| text::is_regex(it))?;
            json!({ "regex": regex })
        }
        _ => return None,
    };
    if node.get("ignore_case").and_then(Node::bool) == Some(true) {
        how["ignore_case"] = json!(true);
    }
    Some(how)
}

/// `redirect:` of a route as settings of the plugin.
fn redirected(node: &Node) -> Option<Value> {
    let status = match node.text_of("response_code") {
        None | Some("MOVED_PERMANENTLY") => 301,
        Some("FOUND") => 302,
        Some("SEE_OTHER") => 303,
        Some("TEMPORARY_REDIRECT") => 307,
        Some("PERMANENT_REDIRECT") => 308,
        Some(_) => return None,
    };
    let known = [
        "response_code",
        "https_redirect",
        "scheme_redirect",
        "host_redirect",
        "port_redirect",
        "path_redirect",
        "strip_query",
    ];
    if node.entries().iter().any(|(key, _)| !known.contains(&key.as_str())) {
        return None;
    }
    let https = node.get("https_redirect").and_then(Node::bool) == Some(true)
        || node.text_of("scheme_redirect") == Some("https");
    let scheme = if https { "https" } else { "${request.scheme}" };
    let host = node.text_of("host_redirect").unwrap_or("${request.host}");
    let port =
        node.get("port_redirect").and_then(Node::uint).map_or_else(String::new, |port| format!(":{port}"));
    let drops = node.get("strip_query").and_then(Node::bool) == Some(true);
    let path = node.text_of("path_redirect");
    let target = path.unwrap_or("${request.path}");
    let query = if drops || path.is_some_and(|it| it.contains('?')) { "drop" } else { "keep" };
    Some(
        json!({ "status_code": status, "location": format!("{scheme}://{host}{port}{target}"), "query": query }),
    )
}
