//! Upstreams: their servers, how one is picked, and what becomes of those that fail.

use std::net::IpAddr;

use serde_json::{Map, Value};

use super::Nginx;
use super::blocks::Directive;
use crate::draft::{
    Cookie, HealthChecks, PassiveCheck, Sticky, Target, Targets, Upstream as Settings, draft, is_service,
};
use crate::text;

/// A named group of servers.
#[derive(Debug, Clone)]
pub(super) struct Upstream {
    pub(super) id: String,
    /// Host and port of its only server.
    pub(super) first: Option<String>,
}

impl Nginx<'_> {
    pub(super) fn upstream(&mut self, upstream: &Directive) {
        let Some(called) = upstream.arguments.first() else { return };
        let place = format!("upstream {called}");
        let mut made = draft!(Settings { algorithm: "weighted_round_robin" });
        let mut targets = Targets::default();
        for directive in &upstream.block {
            if directive.name == "resolver" {
                // Said below, where a service is looked up.
            } else if directive.name != "server" {
                self.balancing(&place, directive, &mut made);
            } else if let Some(target) = self.target(&place, directive) {
                targets.join(target);
            }
        }
        let targets = targets.list;
        if targets.is_empty() {
            let why = "it has no servers that could be converted";
            self.out.not_converted(upstream.at, place, why, "what passes to it answers 503");
            return;
        }
        let has_services = targets.iter().any(|target| target["host"].as_str().is_some_and(is_service));
        self.resolvers(&place, upstream, has_services);
        // How many servers a service has is not known here.
        let count = if has_services { usize::MAX } else { targets.len() };
        self.failures(&place, upstream, &mut made, count);
        let first = match targets.as_slice() {
            [Value::Object(one)] if !has_services => Some(address(one)),
            _ => None,
        };
        let id = self.out.id("upstream", called);
        let mut whole = draft!(Settings { id: &id });
        whole.insert("targets".to_owned(), targets.into());
        whole.append(&mut made);
        self.out.converted(upstream.at, &place);
        self.upstreams.insert(called.clone(), Upstream { id, first });
        self.out.upstreams.push(whole.into());
    }

    /// How servers are chosen.
    fn balancing(&mut self, place: &str, directive: &Directive, made: &mut Settings) {
        let what = format!("{place}: {directive}");
        match directive.name.as_str() {
            "least_conn" => made.algorithm("least_connections"),
            "random" => {
                let two = directive.arguments.first().is_some_and(|it| it == "two");
                made.algorithm(if two { "power_of_two" } else { "random" });
            }
            "ip_hash" => {
                made.algorithm("consistent_hashing");
                let why = "clients go to other servers than before, each to one";
                self.out.partial(directive.at, what, why, "");
            }
            "hash" => {
                made.algorithm("consistent_hashing");
                self.hash(place, directive, made);
            }
            "sticky" => match sticky(directive) {
                Some(cookie) => made.sticky(cookie),
                None => self.directive_not_converted(place, directive),
            },
            "keepalive" | "keepalive_timeout" | "keepalive_requests" | "zone" | "ntlm" => {
                self.out.not_needed(directive.at, what, "connections are kept anyway");
            }
            _ => self.directive_not_converted(place, directive),
        }
    }

    fn hash(&mut self, place: &str, directive: &Directive, made: &mut Settings) {
        match directive.arguments.first().map(String::as_str) {
            Some("$remote_addr" | "$binary_remote_addr") => {}
            Some(key) if key.starts_with("$http_") => {
                let header = key.trim_start_matches("$http_").replace('_', "-");
                made.hash_on(format!("header:{header}"));
            }
            Some(key) if key.starts_with("$cookie_") => {
                made.hash_on(format!("cookie:{}", key.trim_start_matches("$cookie_")));
            }
            _ => self.out.partial(
                directive.at,
                format_args!("{place}: {directive}"),
                "hashed by the client's address instead",
                "set `hash_on` to `header:NAME` or `cookie:NAME`",
            ),
        }
    }

    fn target(&mut self, place: &str, server: &Directive) -> Option<Value> {
        let address = server.arguments.first()?;
        let what = format!("{place}: {server}");
        let parsed = match address.starts_with("unix:/") {
            true => Some((address.trim_end_matches(':').to_owned(), None)),
            false => text::host_port(address).filter(|_| !address.starts_with("unix:")),
        };
        let Some((mut host, port)) = parsed else {
            self.out.not_converted(server.at, what, "it is neither a host with a port nor a socket", "");
            return None;
        };
        let argument = |name: &str| server.arguments.iter().find_map(|it| it.strip_prefix(name));
        if let Some(service) = argument("service=") {
            let is_name = host.parse::<IpAddr>().is_err() && port.is_none() && !host.starts_with("unix:");
            if !is_name || service.is_empty() {
                let why = "the servers of a service are found by a name without a port";
                self.out.not_converted(server.at, what, why, "");
                return None;
            }
            // As nginx makes the name: one without a dot is a service over TCP.
            host = if service.contains('.') {
                format!("srv:{service}.{host}")
            } else {
                format!("srv:_{service}._tcp.{host}")
            };
        }
        let mut made = Target::new(&host, port.unwrap_or(80));
        for argument in server.arguments.iter().skip(1) {
            match argument.split_once('=') {
                Some(("weight", weight)) if weight.parse::<u16>().is_ok() => {
                    made.weight(weight.parse::<u16>().unwrap_or(1).max(1));
                }
                Some(("max_conns", most)) if most.parse::<u32>().is_ok() => {
                    let most = most.parse::<u32>().unwrap_or(0);
                    if most > 0 {
                        made.max_requests(u64::from(most));
                    }
                }
                Some(("max_fails" | "fail_timeout" | "slow_start" | "id", _)) => {}
                Some(("service", _)) => {}
                _ if argument == "resolve" => {}
                _ if argument == "backup" => made.priority(1),
                _ if argument == "down" => {
                    self.out.partial(server.at, what, format_args!("{address} is down, and left out"), "");
                    return None;
                }
                _ => self.out.partial(
                    server.at,
                    &what,
                    format_args!("`{argument}`: the gateway does not support this"),
                    "",
                ),
            }
        }
        Some(made.into())
    }

    /// Where a service's servers are looked up: here for the gateway as a whole.
    fn resolvers(&mut self, place: &str, upstream: &Directive, has_services: bool) {
        let own = upstream.block.iter().find(|directive| directive.name == "resolver").cloned();
        let Some(resolver) = own.or_else(|| self.resolver.clone()) else { return };
        let what = format!("{place}: {resolver}");
        if !has_services {
            if upstream.block.iter().any(|directive| directive.name == "resolver") {
                self.out.not_needed(resolver.at, what, "names are looked up again anyway");
            }
            return;
        }
        let is_option = |it: &&str| it.contains('=') || *it == "off";
        let servers: Vec<&str> = resolver.arguments.iter().map(String::as_str).collect();
        if servers.iter().any(|it| it.starts_with("ipv6=") || it.starts_with("valid=")) {
            let why = "records are kept for their time to live, and both kinds of address are taken";
            self.out.partial(resolver.at, &what, why, "");
        }
        self.out.name_servers(servers.iter().filter(|it| !is_option(it)).copied());
        self.out.partial(
            resolver.at,
            what,
            "the gateway looks up all names there",
            "see gateway.dns_servers",
        );
    }

    /// `max_fails`, `fail_timeout` and `slow_start`, which hold for the whole upstream here.
    fn failures(&mut self, place: &str, upstream: &Directive, made: &mut Settings, count: usize) {
        let servers = || upstream.block.iter().filter(|directive| directive.name == "server");
        let mut one = |name: &str| {
            let of = |server: &Directive| {
                let value = server.arguments.iter().find_map(|a| a.strip_prefix(name)?.strip_prefix('='));
                value.map(str::to_owned)
            };
            let values: Vec<_> = servers().map(of).collect();
            // As numbers: `10` is more than `9`.
            let number = |value: &&String| text::millis(value, 1000).unwrap_or(u64::MAX);
            let least = values.iter().flatten().min_by_key(number).cloned();
            if let Some(least) =
                least.as_ref().filter(|_| values.iter().any(|value| Some(value) != values.first()))
            {
                let why = format!(
                    "`{name}` holds for all servers of an upstream here: `{name}={least}`, the least, is taken"
                );
                self.out.partial(
                    upstream.at,
                    place,
                    why,
                    "see `health_checks.passive` and `slow_start` of upstreams",
                );
            }
            least
        };
        let (fails, timeout, slow) = (one("max_fails"), one("fail_timeout"), one("slow_start"));
        let millis = |text: Option<String>| text.and_then(|text| text::millis(&text, 1000));
        if count > 1 {
            let seconds = millis(timeout).map_or(10, text::seconds);
            let fails = fails.and_then(|fails| fails.parse::<u64>().ok()).unwrap_or(1);
            let passive = draft!(PassiveCheck {
                unhealthy_threshold: fails,
                unhealthy_status_codes: Vec::<u16>::new(),
                unhealthy_window: seconds,
                healthy_after: seconds,
            });
            made.health_checks(draft!(HealthChecks { passive }));
        }
        if let Some(millis) = millis(slow).filter(|millis| *millis > 0) {
            made.slow_start(text::seconds(millis));
        }
    }
}

/// `sticky cookie NAME [expires=1h] [domain=D] [httponly] [secure] [path=P]`.
fn sticky(directive: &Directive) -> Option<Sticky> {
    let (method, name) = (directive.arguments.first()?, directive.arguments.get(1)?);
    if method != "cookie" {
        return None;
    }
    let mut config = draft!(Cookie { ttl: 0, http_only: false });
    for argument in directive.arguments.iter().skip(2) {
        match argument.split_once('=') {
            Some(("expires", time)) => config.ttl(text::millis(time, 1000)? / 1000),
            Some(("domain", value)) => config.domain(value),
            Some(("path", value)) => config.path(value),
            None if argument == "httponly" => config.http_only(true),
            None if argument == "secure" => config.secure(true),
            _ => return None,
        }
    }
    Some(draft!(Sticky { cookie: name, cookie_config: config }))
}

/// Host and port of a target, as requests name them.
fn address(target: &Map<String, Value>) -> String {
    let host = target.get("host").and_then(Value::as_str).unwrap_or_default();
    let host = match host {
        socket if socket.starts_with("unix:") => "localhost".to_owned(),
        ip if ip.contains(':') => format!("[{ip}]"),
        name => name.to_owned(),
    };
    format!("{host}:{}", target.get("port").and_then(Value::as_u64).unwrap_or(80))
}
