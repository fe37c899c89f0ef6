//! Envoy's virtual hosts and routes: in each host the first route that fits has a request.

use super::forwarding::Forwarding;
use super::matching::matched;
use super::per_route::OfRoute;
use super::{Envoy, Listener};
use crate::cond::Cond;
use crate::draft::{HeaderRule, Match, Matcher, Plug, Redirect, Route, Tls, To, draft};
use crate::tree::Node;

const TODO: &str = "write it with `matches`, then remove `request_termination`";

impl Envoy<'_> {
    /// A connection manager.
    pub(super) fn manager(&mut self, what: &str, manager: &Node, names: &[String], mut listener: Listener) {
        self.http_filters(what, manager, &mut listener);
        let Some(config) = manager.get("route_config") else {
            self.out.not_converted(
                manager.at,
                format_args!("{what}: rds"),
                "what an xDS server says is not known here",
                "dump the configuration, and import that",
            );
            return;
        };
        for key in ["typed_per_filter_config", "per_filter_config"] {
            if let Some(node) = config.get(key).filter(|it| !it.is_empty()) {
                let what = format!("{what}: {key}");
                let why = "settings of filters for one set of routes are not converted";
                listener.is_closed |= self.out.guard_not_converted(node.at, what, why, TODO);
            }
        }
        // What it says of headers holds for all its hosts.
        self.headers(what, config, &mut listener.last);
        let domains = config.each("virtual_hosts").iter().flat_map(|host| host.texts("domains"));
        listener.domains = domains.map(|domain| domain.to_ascii_lowercase()).collect();
        for host in config.each("virtual_hosts") {
            self.host(what, host, names, &listener);
        }
    }

    fn host(&mut self, what: &str, host: &Node, names: &[String], listener: &Listener) {
        let called = host.text_of("name").unwrap_or("host");
        let what = format!("{what}, virtual host {called}");
        let facets = self.domains(&what, host, names, listener);
        let of_host = self.of_route(&what, host, &OfRoute::default(), listener);
        if facets.is_empty() {
            return;
        }
        if host.text_of("require_tls").is_some_and(|it| it != "NONE") {
            for facet in &facets {
                let mut redirect = redirect_to_https(called);
                facet.put(&mut redirect, names, listener);
                self.out.route(redirect);
            }
        }
        let routes = host.each("routes");
        let count = i64::try_from(routes.len()).unwrap_or(0);
        for (n, route) in routes.iter().enumerate() {
            let priority = (count - i64::try_from(n).unwrap_or(0)) * 10;
            let (goes_on, made) = self.route(&what, called, route, host, listener, &of_host);
            for facet in &facets {
                let Some(mut made) = made.clone() else { continue };
                made.priority = Some(priority);
                facet.put(&mut made, names, listener);
                self.out.route(made);
            }
            if !goes_on {
                return;
            }
        }
        let takes_all = |route: &Node| {
            let entries = route.get("match").map_or(&[][..], Node::all_entries);
            matches!(entries, [(key, value)] if key == "prefix" && value.str() == Some("/"))
        };
        if self.has_several && !routes.last().is_some_and(takes_all) {
            // What no route of a host takes is no other host's.
            for facet in &facets {
                let answer = To::Answer(404, "text/plain".to_owned(), String::new());
                let mut rest = Route::new(format!("{called}-rest"), answer);
                rest.matches.push(draft!(Match { path: Matcher::prefix("/") }));
                rest.priority = Some(0);
                facet.put(&mut rest, names, listener);
                self.out.route(rest);
            }
        }
    }

    /// A route. Whether those behind it are looked at: not when it is not known which requests this one takes.
    fn route(
        &mut self,
        what: &str,
        called: &str,
        route: &Node,
        host: &Node,
        listener: &Listener,
        of_host: &OfRoute,
    ) -> (bool, Option<Route>) {
        let what = format!("{what}, route {}", route.text_of("name").unwrap_or("without a name"));
        let matched = route.get("match").and_then(matched);
        let Some((path, cond)) = matched else {
            let closes = self.out.guard_not_converted(
                route.at,
                &what,
                "what it matches can't be converted; all that comes after it is closed",
                TODO,
            );
            let mut made = Route::new(format!("{called}-closed"), To::Closed);
            made.matches.push(draft!(Match { path: "/" }));
            return (!closes, closes.then_some(made));
        };
        if cond == Cond::Never {
            route.see_all();
            self.out.not_needed(route.at, what, "it takes no requests");
            return (true, None);
        }
        let of_route = self.of_route(&what, route, of_host, listener);
        let is_closed = listener.is_closed || of_route.is_closed();
        let mut forwarding =
            Forwarding { plugins: of_route.plugins(&listener.plugins), ..Forwarding::default() };
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
                    self.out.route_closed(
                        redirect.at,
                        &what,
                        "this redirect can't be converted",
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
        made.matches.push(cond.with_path(path));
        made.settings = forwarding.settings;
        made.plugins = forwarding.plugins;
        self.out.converted(route.at, what);
        (true, Some(made))
    }

    /// Headers that a host, a route or all of them add or remove.
    fn headers(&mut self, what: &str, level: &Node, plugins: &mut Vec<Plug>) {
        for (side, plugin) in [("request", "request_transformer"), ("response", "response_transformer")] {
            let removed = level.texts(&format!("{side}_headers_to_remove"));
            let removed = removed
                .iter()
                .map(|name| draft!(HeaderRule { operation: "remove", target: "header", key: name }));
            let mut rules: Vec<HeaderRule> = removed.collect();
            for header in level.each(&format!("{side}_headers_to_add")) {
                let pair = header
                    .path(&["header", "key"])
                    .and_then(Node::str)
                    .zip(header.path(&["header", "value"]).and_then(Node::plain));
                let action = header.text_of("append_action").unwrap_or("APPEND_IF_EXISTS_OR_ADD");
                let overwrites = action == "OVERWRITE_IF_EXISTS_OR_ADD"
                    || header.get("append").map(|it| it.get("value").unwrap_or(it)).and_then(Node::bool)
                        == Some(false);
                // What a client sends under this name does not pass for what Envoy would have said.
                if let (true, "request", Some((name, _))) = (overwrites, side, &pair) {
                    rules.push(draft!(HeaderRule { operation: "remove", target: "header", key: name }));
                }
                let Some((name, value)) = pair.filter(|(_, value)| !value.contains('%')) else {
                    self.out.not_converted(
                        header.at,
                        format_args!("{what}: {side}_headers_to_add"),
                        "values with `%…%` have no counterpart",
                        "use templates of `request_transformer`",
                    );
                    continue;
                };
                let operation = match action {
                    "ADD_IF_ABSENT" => "add",
                    "OVERWRITE_IF_EXISTS" => "update",
                    _ if overwrites => "set",
                    _ => "append",
                };
                rules.push(draft!(HeaderRule {
                    operation,
                    target: "header",
                    key: name,
                    value: value.replace("${", "$${")
                }));
            }
            if !rules.is_empty() {
                plugins.push(Plug::of_rules(plugin, rules));
            }
        }
    }
}

/// A match for a listener, and for the names that its filter chain is for.
pub(super) fn here(one: Match, names: &[String], listener: &Listener) -> Match {
    let mut one = one.with_facet(&listener.facet);
    if !names.is_empty() {
        one.tls(draft!(Tls { server_names: names }));
    }
    if !listener.others.is_empty() {
        let not =
            draft!(Match { not: draft!(Match { tls: draft!(Tls { server_names: &listener.others }) }) });
        one = one.with_facet(&not);
    }
    one
}

/// Sends what comes without TLS to where there is.
fn redirect_to_https(called: &str) -> Route {
    let location = "https://${request.host}${request.target}";
    let redirect = draft!(Redirect { status_code: 301, location, query: "drop" });
    let mut route = Route::new(format!("{called}-to-https"), To::Redirect(redirect));
    route.matches.push(draft!(Match { path: "/", scheme: "http" }));
    route.priority = Some(1_000_000);
    route
}

/// `redirect:` of a route as settings of the plugin.
fn redirected(node: &Node) -> Option<Redirect> {
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
    Some(draft!(Redirect {
        status_code: status,
        location: format!("{scheme}://{host}{port}{target}"),
        query
    }))
}
