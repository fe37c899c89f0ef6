//! Kong's declarative format (`_format_version` 1.1 to 3.0), as decK dumps it.
//!
//! A Kong route with several paths becomes as many proxies: a proxy has one path. What a service says, each of its
//! routes' proxies says.

mod anonymous;
mod callers;
mod consumers;
mod counterparts;
mod defaults;
mod expression;
mod folded;
mod groups;
mod identity;
mod lifted;
mod logs;
mod order;
mod plugins;
mod replace_uri;
mod routes;
mod secrets;
mod services;
mod streams;
mod targets;
mod upstreams;
mod within;

use std::collections::HashMap;

use serde_json::Value;

use crate::draft::{Import, Proxy};
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
    "_info.select_tags",
];

/// Keys of the document that are looked at.
const SECTIONS: &[&str] =
    &["services", "routes", "upstreams", "consumers", "consumer_groups", "plugins", "filter_chains"];
/// Keys that say nothing about traffic.
const SILENT: &[&str] = &["_format_version", "_transform", "_comment", "_info", "_workspace"];

/// Imports a declarative configuration.
///
/// # Errors
/// When it is something else.
pub(crate) fn import(out: &mut Import, file: &str, text: &str) -> Result<(), Failure> {
    let at = out.report.file(file);
    let document = tree::one(file, at, text)?;
    if document.get("_format_version").is_none() {
        let what = "this has no `_format_version`, so it is not a declarative configuration of Kong";
        return Err(Failure::new(file, 0, what));
    }
    let mut kong = Kong { out: std::mem::take(out), ..Kong::default() };
    let document = &folded::whole(&mut kong.out, document);
    for (key, value) in document.entries() {
        let is_known = SECTIONS.contains(&key.as_str()) || SILENT.contains(&key.as_str());
        if !is_known && !value.is_empty() {
            kong.out.here = value.at;
            kong.out.not_converted_here(key, "the gateway does not support this");
        }
    }
    kong.rank_expressions(document);
    for upstream in list(document, "upstreams") {
        kong.upstream(upstream);
    }
    for service in list(document, "services") {
        if kong.out.is_too_large() {
            return kong.too_large(out);
        }
        kong.service(service);
    }
    for route in list(document, "routes") {
        if kong.out.is_too_large() {
            return kong.too_large(out);
        }
        kong.lone_route(route);
    }
    if kong.out.is_too_large() {
        return kong.too_large(out);
    }
    for consumer in list(document, "consumers") {
        kong.consumer(consumer);
    }
    for group in list(document, "consumer_groups") {
        kong.consumer_group(group);
    }
    for plugin in list(document, "plugins") {
        kong.lone_plugin(plugin);
    }
    for chain in list(document, "filter_chains") {
        kong.lone_chain(chain);
    }
    kong.place_plugins();
    kong.place_caller_plugins(file)?;
    kong.left_out.apply(&mut kong.out.consumers);
    kong.anonymous();
    let named = |proxy: &Value| proxy.get("hosts").is_some();
    if kong.out.proxies.iter().any(named) && !kong.out.proxies.iter().all(named) {
        // Kong looks at every route, whatever its hosts.
        kong.out.gateway.host_fallthrough(true);
    }
    plugins::all_authenticate(&mut kong.out);
    anonymous::tell(&mut kong.out);
    within::add(&mut kong.out);
    lifted::add(&mut kong.out);
    routes::level(&mut kong.out);
    unread::name(&mut kong.out, "", document, SILENT_KEYS);
    *out = kong.out;
    Ok(())
}

/// A conversion under way.
#[derive(Default)]
struct Kong {
    out: Import,
    /// Names of upstreams, which services name as hosts, and their ids here.
    upstreams: HashMap<String, String>,
    /// Services by name, for routes that stand apart.
    services: HashMap<String, Proxy>,
    /// Positions of proxies by the route and by the service they come from.
    of_route: HashMap<String, Vec<usize>>,
    of_service: HashMap<String, Vec<usize>>,
    /// Usernames of consumers by the ids that they have in Kong.
    usernames: HashMap<String, String>,
    /// Places of consumers that are made, by their usernames.
    consumers: HashMap<String, usize>,
    left_out: callers::LeftOut,
    /// Plugins that are still to be put where they run.
    plugins: Vec<order::Scoped>,
    /// Plugins of consumers and of their groups, likewise.
    caller_plugins: Vec<callers::CallerPlugin>,
    /// The priorities of routes by expression, from the lowest.
    priorities: Vec<i64>,
    /// The priorities of regexes, from the lowest.
    regex_priorities: Vec<i64>,
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

/// A list that has something in it.
fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    Some(list).filter(|list| !list.is_empty())
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
    /// Gives back what is made so far, which is too large already.
    fn too_large(self, out: &mut Import) -> Result<(), Failure> {
        *out = self.out;
        Ok(())
    }

    /// Reports an object as converted, and those of its keys that are not.
    fn report_object(&mut self, place: &str, value: &Node, known: &[&str]) {
        const SILENT: &[&str] = &["id", "name", "tags", "created_at", "updated_at", "enabled", "ws_id"];
        self.out.converted(value.at, place);
        for (key, value) in value.entries() {
            // What is off says nothing.
            let says_nothing = value.is_empty()
                || value.bool() == Some(false)
                || key == "hash_fallback" && value.str() == Some("none");
            self.out.here = value.at;
            if !says_nothing && !known.contains(&key.as_str()) && !SILENT.contains(&key.as_str()) {
                self.out
                    .not_converted_here(format_args!("{place}.{key}"), "the gateway does not support this");
            }
        }
    }

    fn service(&mut self, service: &Node) {
        let called = name(service);
        self.out.here = service.at;
        let place = format!("service {called}");
        if is_off(service) {
            self.out.not_needed(service.at, &place, "it is switched off");
            service.see_all();
            return;
        }
        let Some(backend) = self.backend(&place, service) else { return };
        self.services.insert(called.clone(), backend);
        for route in list(service, "routes") {
            if self.out.is_too_large() {
                return;
            }
            self.route(route, &called);
        }
        let proxies = self.of_service.get(&called).cloned().unwrap_or_default();
        for plugin in list(service, "plugins") {
            self.later(order::Rank::Service, &place, plugin, Some(&proxies));
        }
        if let Some(chains) = service.get("filter_chains") {
            self.chains(&place, chains, &proxies);
        }
    }

    /// What every proxy of a service says.
    fn backend(&mut self, place: &str, service: &Node) -> Option<Proxy> {
        let mut made = Proxy::default();
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
            self.out.not_converted_here(place, "it has no host");
            return None;
        };
        let Some((scheme, default_port)) = scheme(&protocol) else {
            self.out.not_converted_here(
                format_args!("{place}.protocol"),
                format_args!("`{protocol}` is not known"),
            );
            return None;
        };
        made.backend_scheme(scheme);
        if protocol.starts_with("grpc") {
            made.backend_http_version("2");
        }
        match self.upstreams.get(&host) {
            Some(id) => made.upstream_id(id),
            None if is_srv(&host, port) => made.upstream_id(self.service_upstream(&host)),
            None => {
                made.backend_host(host);
                made.backend_port(port.unwrap_or(default_port));
            }
        }
        made.backend_path(path.filter(|path| path != "/" && !path.is_empty()));
        services::timeouts(scheme, service, &mut made);
        if let Some(verify) = service.get("tls_verify").and_then(Node::bool) {
            made.backend_tls_verify_server_cert(verify);
        } else if matches!(scheme, "https" | "tcps") {
            self.out.not_converted_here(
                format_args!("{place}.tls_verify"),
                "Kong checks no certificates by default; here they are checked",
            );
        }
        self.report_object(
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
                "filter_chains",
            ],
        );
        Some(made)
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
