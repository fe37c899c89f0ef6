//! Caddy's JSON: servers with routes, each with matchers and handlers.

use std::collections::HashMap;

use super::changes::{changed_by_headers, changed_by_rewrite, prepended};
use super::headers::header_changes;
use super::proxy::DynamicUpstream;
use super::proxy::Proxying;
use super::responses::fixed;
use super::strips::StripScope;
use super::{Caddy, matchers, sets};
use crate::changed::{RequestChange, before_changes};
use crate::cond::Cond;
use crate::draft::{
    Compression, Match, Password, Plug, Redirect, RequestSizeLimiting, Rewrite, Route, StaticFiles, To,
    basic_auth, draft, only_group,
};
use crate::error::Failure;
use crate::ports::{Port, Ports};
use crate::steps::{Item, RouteEnd, RouteStep, ends, place, walk};
use crate::tree::Node;

impl Caddy<'_> {
    pub(super) fn document(&mut self, name: &str, document: &Node) -> Result<(), Failure> {
        let Some(servers) = document.path(&["apps", "http", "servers"]) else {
            return Err(Failure::new(name, 1, "it has no apps.http.servers, so it is not Caddy's JSON"));
        };
        for (key, app) in document.get("apps").map_or(&[][..], Node::entries) {
            if key != "http" && key != "tls" {
                self.out.not_converted(
                    app.at,
                    format_args!("apps.{key}"),
                    "the gateway does not support this",
                    "",
                );
            }
        }
        self.policies(document);
        let mut ports = Ports::default();
        for (is_tls, number) in servers.entries().iter().flat_map(|(_, server)| listens(server)) {
            ports.add(is_tls, number, "");
        }
        let redirected = self.redirected(document, servers, &mut ports);
        ports.listen(&mut self.out.gateway);
        for (called, server) in servers.entries() {
            self.server(called, server, &ports);
        }
        for (called, names) in redirected {
            self.out.route(Route::to_https(&called, names));
        }
        Ok(())
    }

    fn server(&mut self, called: &str, server: &Node, ports: &Ports) {
        let what = format!("server {called}");
        let mine: Vec<Match> = listens(server)
            .into_iter()
            .map(|(is_tls, number)| ports.facet(&Port::new(is_tls, number, "")))
            .collect();
        let facets =
            if mine.len() == ports.count() && !mine.is_empty() { vec![Match::default()] } else { mine };
        for policy in server.each("tls_connection_policies") {
            if let Some(asked) = policy.get("client_authentication") {
                self.asks_certificates = true;
                let todo = "set gateway.tls.client_ca_path, then remove `request_termination`";
                self.out.guard_not_converted(
                    asked.at,
                    format_args!("{what}: client_authentication"),
                    "what it guards is closed",
                    todo,
                );
            }
        }
        for (key, value) in server.entries() {
            let known =
                ["listen", "routes", "automatic_https", "tls_connection_policies", "logs", "protocols"];
            if !known.contains(&key.as_str()) {
                self.out.not_converted(
                    value.at,
                    format_args!("{what}: {key}"),
                    "the gateway does not support this",
                    "",
                );
            }
        }
        if facets.is_empty() {
            return;
        }
        let steps = self.routes(server.each("routes"), 0, &mut Vec::new());
        let mut items = Vec::new();
        if let Some(plugins) = walk(&steps, &Cond::Always, Vec::new(), &mut items) {
            items.push(Item { cond: Cond::Always, ending: RouteEnd::answer(server.at, 200, ""), plugins });
        }
        self.out.converted(server.at, &what);
        place(self.out, called, &facets, items, 0);
    }

    /// Routes as steps; `changes` is what was changed about their requests before, and behind them.
    fn routes(&mut self, routes: &[Node], depth: usize, changes: &mut Vec<RequestChange>) -> Vec<RouteStep> {
        let mut steps = Vec::new();
        // Of the routes of one group, a request passes one.
        let mut taken: HashMap<&str, (Cond, Vec<RequestChange>)> = HashMap::new();
        for route in routes {
            let of_group = route.text_of("group").and_then(|group| taken.get(group)).map(|(_, made)| made);
            let others = changes.iter().filter(|it| of_group.is_none_or(|made| !made.contains(it)));
            let cond = self.matched_sets(route).and_then(|cond| before_changes(cond, others));
            let Some(cond) = cond.filter(|_| depth < 16) else {
                let why = "its matcher can't be converted; all that gets here is closed";
                if self.out.guard_not_converted(route.at, "route", why, "write it with `matches`") {
                    steps.push(RouteStep::End(Cond::Always, RouteEnd::new(route.at, To::Closed)));
                    return steps;
                }
                continue;
            };
            let mut inner = Vec::new();
            let mut inner_changes = changes.clone();
            let ways = self.ways.len();
            if let [one] = route.each("match") {
                let paths = one.texts("path");
                // Any of several patterns may be the one that fits.
                self.ways.extend(paths.into_iter().filter(|_| one.texts("path").len() == 1));
            }
            for handler in route.each("handle") {
                self.json_handler(handler, &mut inner, depth, &mut inner_changes);
            }
            self.ways.truncate(ways);
            let mut own = cond.clone();
            let mut group =
                route.text_of("group").map(|it| taken.entry(it).or_insert((Cond::Never, Vec::new())));
            if let Some((before, _)) = &mut group {
                own = own.and(before.clone().negate());
                *before = before.clone().or(cond.clone());
            }
            let is_end = route.get("terminal").and_then(Node::bool) == Some(true);
            // Those who go on behind it are changed.
            if !is_end && !ends(&inner) {
                let more = inner_changes.split_off(changes.len()).into_iter();
                let more: Vec<RequestChange> =
                    more.map(|it| RequestChange::new(own.clone().and(it.when), it.what)).collect();
                if let Some((_, made)) = &mut group {
                    made.extend(more.iter().cloned());
                }
                changes.extend(more);
            }
            let group = route.text_of("group").map(str::to_owned);
            steps.push(RouteStep::Inner { cond, steps: inner, group, ends: is_end });
        }
        steps
    }

    /// Any of the matcher sets, of which all parts have to hold.
    fn matched_sets(&self, route: &Node) -> Option<Cond> {
        let all = route.each("match");
        if all.is_empty() {
            return Some(Cond::Always);
        }
        all.iter().map(sets::matcher_set).collect::<Option<Vec<_>>>().map(Cond::any)
    }

    fn json_handler(
        &mut self,
        handler: &Node,
        steps: &mut Vec<RouteStep>,
        depth: usize,
        changes: &mut Vec<RequestChange>,
    ) {
        let name = handler.text_of("handler").unwrap_or_default().to_owned();
        let what = format!("handler {name}");
        match name.as_str() {
            "subroute" => {
                let inner = self.routes(handler.each("routes"), depth + 1, changes);
                steps.push(RouteStep::Inner { cond: Cond::Always, steps: inner, group: None, ends: false });
                // A way within that does not end goes on behind it.
                if let Some(RouteStep::Inner { steps: inner, .. }) = steps.pop() {
                    steps.extend(inner);
                }
                self.out.converted(handler.at, what);
            }
            "static_response" => {
                let ending = self.static_response(handler, &what);
                steps.push(RouteStep::End(Cond::Always, ending));
            }
            "reverse_proxy" => {
                let ending = self.json_proxy(handler, &what);
                steps.push(RouteStep::End(Cond::Always, ending));
            }
            "encode" | "headers" => {
                let changed = handler.get("request").map_or_else(Vec::new, changed_by_headers);
                changes.extend(changed.into_iter().map(|it| RequestChange::new(Cond::Always, it)));
                self.json_plugin(handler, &name, &what, steps);
            }
            "rewrite" => self.json_rewrite(handler, &what, steps, changes),
            "authentication" => self.authentication(handler, &what, steps),
            "request_body" => match handler.get("max_size").and_then(Node::uint).filter(|it| *it > 0) {
                Some(bytes) => {
                    let limit = Plug::of(draft!(RequestSizeLimiting { max_size: bytes }));
                    steps.push(RouteStep::Pass(Cond::Always, limit));
                    self.out.converted(handler.at, what);
                }
                None => self.out.not_converted(handler.at, what, "no size that is understood", ""),
            },
            "vars" | "tracing" | "log_append" | "push" => {
                self.out.not_converted(handler.at, what, "the gateway does not support this", "")
            }
            "file_server" => {
                let to = self.json_files(handler, &what);
                steps.push(RouteStep::End(Cond::Always, RouteEnd::new(handler.at, to)));
            }
            "error" => {
                let status = handler
                    .get("status_code")
                    .and_then(Node::plain)
                    .and_then(|it| it.parse().ok())
                    .unwrap_or(500);
                self.out.converted(handler.at, what);
                steps.push(RouteStep::End(Cond::Always, RouteEnd::answer(handler.at, status, "")));
            }
            _ => self.close_route(handler, &what, "this handler is not known, and may guard", steps),
        }
    }

    fn json_rewrite(
        &mut self,
        handler: &Node,
        what: &str,
        steps: &mut Vec<RouteStep>,
        changes: &mut Vec<RequestChange>,
    ) {
        let before = changes.clone();
        changes
            .extend(changed_by_rewrite(handler).into_iter().map(|it| RequestChange::new(Cond::Always, it)));
        let is_alone = handler.entries().len() == 2;
        let prefix = handler.text_of("strip_path_prefix").filter(|it| is_alone && !it.contains('{'));
        match (prefix, rewritten(handler)) {
            (Some(prefix), _) => {
                self.strip(
                    handler.at,
                    what,
                    prefix,
                    StripScope { cond: Cond::Always, changes: &before },
                    steps,
                );
                self.out.converted(handler.at, what);
            }
            (None, Some(config)) => {
                self.out.converted(handler.at, what);
                steps.push(RouteStep::Pass(Cond::Always, Plug::of(config)));
            }
            (None, None) => self.close_route(handler, what, "this rewrite can't be converted", steps),
        }
    }

    /// `encode` and `headers`.
    fn json_plugin(&mut self, handler: &Node, name: &str, what: &str, steps: &mut Vec<RouteStep>) {
        let mut pass = |plug: Plug| steps.push(RouteStep::Pass(Cond::Always, plug));
        if name == "encode" {
            let encodings = handler.get("encodings").map_or(&[][..], Node::entries);
            let names: Vec<&str> = encodings.iter().map(|(name, _)| name.as_str()).collect();
            if !names.is_empty() {
                pass(Plug::of(draft!(Compression { algorithms: names, min_content_length: 512 })));
            }
            return self.out.converted(handler.at, what);
        }
        for (side, plugin) in [("request", "request_transformer"), ("response", "response_transformer")] {
            let (rules, bad) = handler.get(side).map_or((Vec::new(), 0), header_changes);
            if bad > 0 {
                let why = "placeholders and replacements have no counterpart";
                self.out.not_converted(handler.at, format_args!("{what}: {side}"), why, "");
            }
            if !rules.is_empty() {
                pass(Plug::of_rules(plugin, rules));
            }
        }
        self.out.converted(handler.at, what);
    }

    fn json_files(&mut self, handler: &Node, what: &str) -> To {
        let root = handler.text_of("root").filter(|root| root.starts_with('/') && !root.contains('{'));
        match root.filter(|_| handler.get("hide").is_none() && handler.get("pass_thru").is_none()) {
            Some(root) => {
                self.out.converted(handler.at, what);
                let index = ["index.html", "index.txt"];
                To::Files(draft!(StaticFiles { root, dotfiles: true, index }))
            }
            None => {
                let why = "its root is not known here, or it hides files; it answers 503";
                self.out.not_converted(handler.at, what, why, "use `static_files`");
                To::Closed
            }
        }
    }

    fn close_route(&mut self, handler: &Node, what: &str, why: &str, steps: &mut Vec<RouteStep>) {
        if self.out.guard_not_converted(handler.at, what, why, "") {
            steps.push(RouteStep::End(Cond::Always, RouteEnd::new(handler.at, To::Closed)));
        }
    }

    fn static_response(&mut self, handler: &Node, what: &str) -> RouteEnd {
        let status: u16 =
            handler.get("status_code").and_then(Node::plain).and_then(|it| it.parse().ok()).unwrap_or(200);
        let location =
            handler.path(&["headers", "Location"]).map_or(&[][..], Node::items).first().and_then(Node::str);
        if let Some(location) = location {
            let to = matchers::template(location).filter(|to| {
                ["/", "http://", "https://", "${request.scheme}://"].iter().any(|start| to.starts_with(start))
            });
            return match to.filter(|_| matches!(status, 301 | 302 | 303 | 307 | 308)) {
                Some(to) => {
                    self.out.converted(handler.at, what);
                    let redirect = draft!(Redirect { status_code: status, location: to, query: "drop" });
                    RouteEnd::new(handler.at, To::Redirect(redirect))
                }
                None => {
                    self.out.route_closed(
                        handler.at,
                        what,
                        "this redirect can't be converted",
                        "use the plugin `redirect`",
                    );
                    RouteEnd::new(handler.at, To::Closed)
                }
            };
        }
        let status = if handler.get("abort").and_then(Node::bool) == Some(true) { 403 } else { status };
        let body = handler.text_of("body").unwrap_or_default();
        let is_page = matchers::has_placeholders(body);
        let page = matchers::template(&body.replace('$', "$$")).filter(|_| is_page);
        if is_page && page.is_none() {
            self.out.partial(handler.at, what, "placeholders in a body are sent as they are written", "");
        } else {
            self.out.converted(handler.at, what);
        }
        if (200..600).contains(&status) {
            fixed(handler.at, status, body, page)
        } else {
            RouteEnd::new(handler.at, To::Closed)
        }
    }

    fn authentication(&mut self, handler: &Node, what: &str, steps: &mut Vec<RouteStep>) {
        self.accounts += 1;
        let group = format!("caddy-{}", self.accounts);
        let basic = handler.path(&["providers", "http_basic"]);
        let others = handler.get("providers").map_or(0, |it| it.entries().len());
        let accounts = basic.map_or(&[][..], |it| it.each("accounts"));
        let mut good = others == 1 && !accounts.is_empty();
        for account in accounts {
            let pair = account.text_of("username").zip(account.text_of("password"));
            good &= pair.is_some_and(|(name, hash)| {
                hash.starts_with("$2")
                    && self.out.account(name, Password::Hash(hash), std::slice::from_ref(&group))
            });
        }
        if !good {
            self.close_route(
                handler,
                what,
                "only accounts with bcrypt hashes, not encoded, can be converted",
                steps,
            );
            return;
        }
        self.out.converted(handler.at, what);
        steps.push(RouteStep::Pass(Cond::Always, basic_auth("restricted", false)));
        steps.push(RouteStep::Pass(Cond::Always, only_group(&group)));
    }

    fn json_proxy(&mut self, handler: &Node, what: &str) -> RouteEnd {
        let mut proxy = Proxying::default();
        for upstream in handler.each("upstreams") {
            proxy.to.extend(upstream.text_of("dial").map(str::to_owned));
        }
        if let Some(policy) = handler.path(&["load_balancing", "selection_policy"]) {
            proxy.policy.extend(policy.text_of("policy").map(str::to_owned));
            proxy
                .policy
                .extend(policy.text_of("field").or_else(|| policy.text_of("name")).map(str::to_owned));
        }
        if let Some(transport) = handler.get("transport") {
            proxy.is_closed |= transport.text_of("protocol").is_some_and(|protocol| protocol != "http");
            if let Some(tls) = transport
                .get("tls")
                .or_else(|| transport.all_entries().iter().find(|(key, _)| key == "tls").map(|(_, it)| it))
            {
                proxy.is_tls = true;
                if tls.get("insecure_skip_verify").and_then(Node::bool) == Some(true) {
                    proxy.settings.backend_tls_verify_server_cert(false);
                }
                if let Some(name) = tls.text_of("server_name") {
                    proxy.settings.backend_tls_server_name(name);
                }
            }
            proxy.is_h2 = transport.texts("versions").iter().any(|it| it == "h2c");
        }
        if let Some(active) = handler.path(&["health_checks", "active"]) {
            proxy.active.http_path(active.text_of("uri").or_else(|| active.text_of("path")).unwrap_or("/"));
        }
        if let Some(headers) = handler.path(&["headers", "request"]) {
            if let Some(host) =
                headers.path(&["set", "Host"]).and_then(|it| it.items().first()).and_then(Node::str)
            {
                proxy.host = match host {
                    "{http.reverse_proxy.upstream.hostport}" => Some(String::new()),
                    "{http.request.host}" | "{http.request.hostport}" => None,
                    host => matchers::template(host),
                };
            }
            let (rules, _) = header_changes(headers);
            proxy.request = rules.into_iter().filter(|rule| rule["key"] != "Host").collect();
        }
        if let Some(headers) = handler.path(&["headers", "response"]) {
            proxy.response = header_changes(headers).0;
        }
        if let Some(dynamic) = handler.get("dynamic_upstreams") {
            let one = |key: &str| dynamic.get(key).and_then(Node::plain).unwrap_or_default();
            let found = DynamicUpstream {
                service: one("service"),
                proto: one("proto"),
                name: one("name"),
                port: one("port"),
                resolvers: dynamic.get("resolver").map_or_else(Vec::new, |it| it.texts("addresses")),
            };
            let what = format!("{what}: dynamic_upstreams");
            self.found(dynamic.at, &what, &one("source"), &found, &mut proxy);
        }
        for key in ["handle_response", "rewrite"] {
            if let Some(node) = handler.get(key) {
                proxy.is_closed |= self.out.guard_not_converted(
                    node.at,
                    format_args!("{what}: {key}"),
                    "it can't be converted",
                    "",
                );
            }
        }
        self.proxied(handler.at, what, proxy)
    }
}

fn rewritten(handler: &Node) -> Option<Rewrite> {
    let mut made = Rewrite::default();
    for (key, value) in handler.entries() {
        match key.as_str() {
            "handler" => {}
            "uri" => {
                let path = value.str()?.trim_end_matches("?{http.request.uri.query}");
                if let Some(config) = prepended(path) {
                    made.extend(config);
                    continue;
                }
                let path = matchers::template(path)?;
                made.path(path.starts_with('/').then_some(path)?);
            }
            _ => return None,
        }
    }
    (made.len() == 1).then_some(made)
}

/// The ports that a server listens on, and whether by TLS.
pub(super) fn listens(server: &Node) -> Vec<(bool, u16)> {
    let off = server.path(&["automatic_https", "disable"]).and_then(Node::bool) == Some(true);
    let has_policies = !server.each("tls_connection_policies").is_empty();
    let port = |address: &String| address.rsplit(':').next()?.parse::<u16>().ok();
    let addresses = server.texts("listen");
    let ports = addresses.iter().filter_map(port);
    ports.map(|port| (port == 443 || has_policies && port != 80 && !off, port)).collect()
}
