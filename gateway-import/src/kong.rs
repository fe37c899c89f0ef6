//! Kong's declarative format (`_format_version` 1.1 to 3.0), as decK dumps it.
//!
//! A Kong route with several paths becomes as many proxies: a proxy has one path. What a service says, each of its
//! routes' proxies says.

mod counterparts;
mod identity;
mod plugins;
mod routes;
mod targets;
mod within;

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::draft::{Import, set};
use crate::error::Failure;
use crate::tree::{self, Node};
use crate::unread;
use targets::is_srv;

/// Keys at any depth that say nothing about traffic, or say what is so anyway.
const SILENT_KEYS: &[&str] = &[
    "id",
    "tags",
    "created_at",
    "updated_at",
    "ws_id",
    "instance_name",
    "_format_version",
    "_transform",
    "_comment",
    "_info",
    "_workspace",
    "slots",
    "fault_tolerant",
    "sync_rate",
    "redis",
    "redis_host",
    "redis_port",
    "redis_database",
    "redis_timeout",
    "redis_ssl",
    "redis_ssl_verify",
    "redis_password",
    "redis_username",
    "redis_server_name",
    "request_buffering",
    "response_buffering",
    "path_handling",
    "https_redirect_status_code",
    "name",
];

/// Keys of the document that are looked at.
const SECTIONS: &[&str] = &["services", "routes", "upstreams", "consumers", "plugins"];
/// Keys that say nothing about traffic.
const SILENT: &[&str] = &["_format_version", "_transform", "_comment", "_info", "_workspace"];

/// Imports a declarative configuration.
///
/// # Errors
/// When it is something else.
pub(crate) fn import(out: &mut Import, file: &str, text: &str) -> Result<(), Failure> {
    let at = out.report.file(file);
    let document = &tree::one(file, at, text)?;
    if document.get("_format_version").is_none() {
        let what = "this has no `_format_version`, so it is not a declarative configuration of Kong";
        return Err(Failure::new(file, 0, what));
    }
    let mut kong = Kong { out: std::mem::take(out), ..Kong::default() };
    for (key, value) in document.entries() {
        let is_known = SECTIONS.contains(&key.as_str()) || SILENT.contains(&key.as_str());
        if !is_known && !value.is_empty() {
            kong.out.here = value.at;
            kong.out.miss(key, "the gateway does not support this");
        }
    }
    for upstream in list(document, "upstreams") {
        kong.upstream(upstream);
    }
    for service in list(document, "services") {
        kong.service(service);
    }
    for route in list(document, "routes") {
        kong.lone_route(route);
    }
    for consumer in list(document, "consumers") {
        kong.consumer(consumer);
    }
    for plugin in list(document, "plugins") {
        kong.lone_plugin(plugin);
    }
    let named = |proxy: &Value| proxy.get("hosts").is_some();
    if kong.out.proxies.iter().any(named) && !kong.out.proxies.iter().all(named) {
        // Kong looks at every route, whatever its hosts.
        set(&mut kong.out.gateway, "host_fallthrough", true);
    }
    plugins::all_authenticate(&mut kong.out);
    within::name_order(&mut kong.out);
    within::add(&mut kong.out);
    unread::name(&mut kong.out, "", document, SILENT_KEYS);
    *out = kong.out;
    Ok(())
}

/// A translation under way.
#[derive(Default)]
struct Kong {
    out: Import,
    /// Names of upstreams, which services name as hosts, and their ids here.
    upstreams: HashMap<String, String>,
    /// Services by name, for routes that stand apart.
    services: HashMap<String, Map<String, Value>>,
    /// Positions of proxies by the route and by the service they come from.
    of_route: HashMap<String, Vec<usize>>,
    of_service: HashMap<String, Vec<usize>>,
}

fn list<'v>(value: &'v Node, key: &str) -> impl Iterator<Item = &'v Node> {
    value.each(key).iter()
}

fn text<'v>(value: &'v Node, key: &str) -> Option<&'v str> {
    value.text_of(key)
}

/// A text of an object of ours.
fn ours<'v>(value: &'v Value, key: &str) -> Option<&'v str> {
    value.get(key).and_then(Value::as_str)
}

fn texts(value: &Node, key: &str) -> Vec<String> {
    value.texts(key)
}

/// Whether an object is switched off.
fn is_off(value: &Node) -> bool {
    value.get("enabled").and_then(Node::bool) == Some(false)
}

/// What an object is called, for people.
fn name(value: &Node) -> String {
    text(value, "name").or_else(|| text(value, "id")).unwrap_or("unnamed").to_owned()
}

/// A reference to another object: its name, or an object with it.
fn reference(value: &Node, key: &str) -> Option<String> {
    let other = value.get(key)?;
    match other.str() {
        Some(name) => Some(name.to_owned()),
        None => text(other, "name").or_else(|| text(other, "id")).map(str::to_owned),
    }
}

impl Kong {
    /// Notes the keys of an object nobody looked at.
    fn leftovers(&mut self, place: &str, value: &Node, known: &[&str]) {
        const SILENT: &[&str] = &["id", "name", "tags", "created_at", "updated_at", "enabled", "ws_id"];
        self.out.done(value.at, place);
        for (key, value) in value.entries() {
            let says_nothing = value.is_empty();
            self.out.here = value.at;
            if !says_nothing && !known.contains(&key.as_str()) && !SILENT.contains(&key.as_str()) {
                self.out.miss(format_args!("{place}.{key}"), "the gateway does not support this");
            }
        }
    }

    fn upstream(&mut self, upstream: &Node) {
        let called = name(upstream);
        self.out.here = upstream.at;
        let place = format!("upstream {called}");
        let id = self.out.id("upstream", &called);
        let mut made = Map::from_iter([("id".to_owned(), json!(id))]);
        let mut targets = Vec::new();
        for target in list(upstream, "targets") {
            let Some(address) = text(target, "target") else { continue };
            let (host, port) = match address.rsplit_once(':') {
                Some((host, port)) if port.parse::<u16>().is_ok() => (host, port.parse().ok()),
                _ => (address, None),
            };
            let Value::Object(mut made) = self.target(&format!("{place}, target {address}"), host, port)
            else {
                continue;
            };
            match target.get("weight").and_then(Node::uint) {
                Some(0) => {
                    self.out.miss(format_args!("{place}, target {address}"), "a weight of 0; it is left out");
                    continue;
                }
                Some(weight) => set(&mut made, "weight", weight),
                None => {}
            }
            targets.push(Value::Object(made));
        }
        if targets.is_empty() {
            self.out.miss(&place, "it has no targets; what names it is not translated either");
            return;
        }
        set(&mut made, "targets", targets);
        self.balancing(&place, upstream, &mut made);
        if upstream.get("healthchecks").is_some() {
            self.out
                .miss(format_args!("{place}.healthchecks"), "write `health_checks` anew: defaults differ");
        }
        self.leftovers(
            &place,
            upstream,
            &[
                "targets",
                "algorithm",
                "hash_on",
                "hash_on_header",
                "hash_on_cookie",
                "hash_on_cookie_path",
                "healthchecks",
                "slots",
            ],
        );
        self.upstreams.insert(called, id);
        self.out.upstreams.push(Value::Object(made));
    }

    fn balancing(&mut self, place: &str, upstream: &Node, made: &mut Map<String, Value>) {
        let hash_on = text(upstream, "hash_on").filter(|on| *on != "none");
        let algorithm = match text(upstream, "algorithm") {
            _ if hash_on.is_some() => "consistent_hashing",
            Some("least-connections") => "least_connections",
            Some("latency") => "least_latency",
            Some("consistent-hashing") => "consistent_hashing",
            Some("round-robin") | None => "weighted_round_robin",
            Some(other) => {
                self.out.miss(format_args!("{place}.algorithm"), format_args!("`{other}` is not known"));
                return;
            }
        };
        set(made, "algorithm", algorithm);
        if let Some(path) = text(upstream, "hash_on_cookie_path").filter(|_| hash_on == Some("cookie")) {
            // Kong gives clients without the cookie one.
            set(made, "hash_on_cookie_config", json!({ "path": path, "ttl_seconds": 0 }));
        }
        let hashed = match hash_on {
            None | Some("ip") => return,
            Some("header") => text(upstream, "hash_on_header").map(|name| format!("header:{name}")),
            Some("cookie") => text(upstream, "hash_on_cookie").map(|name| format!("cookie:{name}")),
            Some(_) => None,
        };
        match hashed {
            Some(hashed) => set(made, "hash_on", hashed),
            None => self.out.miss(format_args!("{place}.hash_on"), "hashed by the client's address instead"),
        }
    }

    fn service(&mut self, service: &Node) {
        let called = name(service);
        self.out.here = service.at;
        let place = format!("service {called}");
        if is_off(service) {
            self.out.miss(&place, "it is switched off, and left out");
            return;
        }
        let Some(backend) = self.backend(&place, service) else { return };
        self.services.insert(called.clone(), backend);
        for route in list(service, "routes") {
            self.route(route, &called);
        }
        for plugin in list(service, "plugins") {
            let proxies = self.of_service.get(&called).cloned().unwrap_or_default();
            self.plugin(&place, plugin, plugins::Where::Proxies(&proxies));
        }
    }

    /// What every proxy of a service says.
    fn backend(&mut self, place: &str, service: &Node) -> Option<Map<String, Value>> {
        let mut made = Map::new();
        let url = text(service, "url").and_then(split_url);
        let (protocol, host, port, path) = match &url {
            Some(url) => (url.0.clone(), Some(url.1.clone()), url.2, url.3.clone()),
            None => (
                text(service, "protocol").unwrap_or("http").to_owned(),
                text(service, "host").map(str::to_owned),
                service.get("port").and_then(Node::uint),
                text(service, "path").map(str::to_owned),
            ),
        };
        let Some(host) = host else {
            self.out.miss(place, "it has no host");
            return None;
        };
        let Some((scheme, default_port)) = scheme(&protocol) else {
            self.out.miss(format_args!("{place}.protocol"), format_args!("`{protocol}` is not known"));
            return None;
        };
        set(&mut made, "backend_scheme", scheme);
        if protocol.starts_with("grpc") {
            set(&mut made, "backend_http_version", "2");
        }
        match self.upstreams.get(&host) {
            Some(id) => set(&mut made, "upstream_id", id.clone()),
            None if is_srv(&host, port) => set(&mut made, "upstream_id", self.service_upstream(&host)),
            None => {
                set(&mut made, "backend_host", host);
                set(&mut made, "backend_port", port.unwrap_or(default_port));
            }
        }
        if let Some(path) = path.filter(|path| path != "/" && !path.is_empty()) {
            set(&mut made, "backend_path", path);
        }
        timeouts(scheme, service, &mut made);
        if let Some(verify) = service.get("tls_verify").and_then(Node::bool) {
            set(&mut made, "backend_tls_verify_server_cert", verify);
        } else if matches!(scheme, "https" | "tcps") {
            self.out.miss(
                format_args!("{place}.tls_verify"),
                "Kong checks no certificates by default; here they are checked",
            );
        }
        self.leftovers(
            place,
            service,
            &[
                "url",
                "protocol",
                "host",
                "port",
                "path",
                "connect_timeout",
                "read_timeout",
                "write_timeout",
                "retries",
                "tls_verify",
                "routes",
                "plugins",
            ],
        );
        Some(made)
    }

    fn consumer(&mut self, consumer: &Node) {
        self.out.here = consumer.at;
        let username = text(consumer, "username").or_else(|| text(consumer, "custom_id"));
        let Some(username) = username else {
            self.out.miss("consumer", "it has neither username nor custom_id");
            return;
        };
        let place = format!("consumer {username}");
        let id = self.out.id("consumer", username);
        let mut made =
            Map::from_iter([("id".to_owned(), json!(id)), ("username".to_owned(), json!(username))]);
        if let Some(custom) = text(consumer, "custom_id").filter(|custom| *custom != username) {
            set(&mut made, "custom_id", custom);
        }
        let (credentials, known_as) = plugins::credentials(&mut self.out, &place, username, consumer);
        if let Some(known_as) = known_as {
            set(&mut made, "custom_id", known_as);
        }
        if !credentials.is_empty() {
            set(&mut made, "credentials", credentials);
        }
        let groups: Vec<&str> = list(consumer, "acls").filter_map(|acl| text(acl, "group")).collect();
        if !groups.is_empty() {
            set(&mut made, "acl_groups", groups);
        }
        self.leftovers(
            &place,
            consumer,
            &[
                "username",
                "custom_id",
                "acls",
                "keyauth_credentials",
                "basicauth_credentials",
                "jwt_secrets",
                "hmacauth_credentials",
                "plugins",
            ],
        );
        self.out.consumers.push(Value::Object(made));
        for plugin in list(consumer, "plugins") {
            self.of_consumer(&format!("{place}, plugin {}", name(plugin)), plugin, Some(username.to_owned()));
        }
    }

    fn lone_plugin(&mut self, plugin: &Node) {
        let place = format!("plugin {}", name(plugin));
        if reference(plugin, "consumer").is_some() || reference(plugin, "consumer_group").is_some() {
            self.of_consumer(&place, plugin, reference(plugin, "consumer"));
            return;
        }
        let of = |places: &HashMap<String, Vec<usize>>, name: String| {
            places.get(&name).cloned().unwrap_or_default()
        };
        match (reference(plugin, "route"), reference(plugin, "service")) {
            (Some(route), _) => {
                let proxies = of(&self.of_route, route);
                self.plugin(&place, plugin, plugins::Where::Proxies(&proxies));
            }
            (None, Some(service)) => {
                let proxies = of(&self.of_service, service);
                self.plugin(&place, plugin, plugins::Where::Proxies(&proxies));
            }
            (None, None) => self.plugin(&place, plugin, plugins::Where::Everywhere),
        }
    }

    /// A plugin of one consumer. Where it guards, the consumer is left out: it would get in without it.
    fn of_consumer(&mut self, place: &str, plugin: &Node, consumer: Option<String>) {
        self.out.here = plugin.at;
        let why = "plugins of consumers are not known here";
        if plugins::is_harmless(&name(plugin)) || is_off(plugin) {
            self.out.miss(place, why);
        } else if self.out.guard(
            plugin.at,
            place,
            format_args!("{why}; the consumer is left out"),
            "add it with plugins whose `when` names it",
        ) {
            // Without one it is for a group of consumers, and any may be in it.
            let is_meant = |made: &Value| {
                let is = |key: &str| consumer.is_none() || ours(made, key) == consumer.as_deref();
                is("username") || is("id") || is("custom_id")
            };
            self.out.consumers.retain(|made| !is_meant(made));
        }
    }

    fn plugin(&mut self, place: &str, plugin: &Node, at: plugins::Where<'_>) {
        plugins::plugin(&mut self.out, place, plugin, at);
    }
}

/// Our scheme for a protocol of Kong's, and its port.
fn scheme(protocol: &str) -> Option<(&'static str, u64)> {
    Some(match protocol {
        "http" | "ws" | "grpc" => ("http", 80),
        "https" | "wss" | "grpcs" => ("https", 443),
        "tcp" => ("tcp", 80),
        "tls" => ("tcps", 443),
        "udp" => ("udp", 80),
        _ => return None,
    })
}

/// How long a service is waited for, and how often it is tried. A stream has one timeout, for silence, and goes to another
/// target anyway.
fn timeouts(scheme: &str, service: &Node, made: &mut Map<String, Value>) {
    let millis = |name: &str| service.get(name).and_then(Node::uint);
    let given = |ours, value: Option<u64>| value.map(|value| (ours, value));
    let silence = || millis("read_timeout").map(|millis| millis.div_ceil(1000).max(1));
    let timeouts = match scheme {
        "tcp" | "tcps" => [given("tcp_idle_timeout_seconds", silence()), None],
        "udp" => [given("udp_idle_timeout_seconds", silence()), None],
        _ => [
            given("backend_read_timeout_ms", millis("read_timeout")),
            given("backend_write_timeout_ms", millis("write_timeout")),
        ],
    };
    let connect = given("backend_connect_timeout_ms", millis("connect_timeout"));
    for (name, value) in timeouts.into_iter().chain([connect]).flatten() {
        set(made, name, value);
    }
    let retries = millis("retries").filter(|retries| *retries > 0 && scheme.starts_with("http"));
    if let Some(retries) = retries {
        set(made, "retry", json!({ "max_retries": retries }));
    }
}

/// Scheme, host, port and path of a URL.
fn split_url(url: &str) -> Option<(String, String, Option<u64>, Option<String>)> {
    let (scheme, rest) = url.split_once("://")?;
    let (authority, path) = match rest.find('/') {
        Some(at) => (rest.get(..at)?, rest.get(at..).map(str::to_owned)),
        None => (rest, None),
    };
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !host.ends_with(']') || authority.ends_with(port) => match port.parse() {
            Ok(port) => (host, Some(port)),
            Err(_) => (authority, None),
        },
        _ => (authority, None),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some((scheme.to_owned(), host.to_owned(), port, path))
}

#[cfg(test)]
mod tests;
