//! Labels of a Compose file as the tree that a dynamic file would be.

use std::collections::HashMap;

use crate::draft::Import;
use crate::report::At;
use crate::tree::{Node, NodeValue};

/// Labels of one configuration.
const MAX_LABELS: usize = 50_000;

/// Which containers Traefik serves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Exposed {
    /// Those that are not labelled otherwise.
    All,
    /// Those that are labelled so.
    Labelled,
    /// It is not known which.
    Unknown,
}

/// The dynamic configuration that the labels of a Compose file's services make.
pub(super) fn dynamic(out: &mut Import, document: &Node, exposed: Exposed) -> Node {
    let node = Node::new(document.at, NodeValue::Map(Vec::new()));
    let mut made = Dynamic { node, places: HashMap::new() };
    let mut count = 0;
    for (name, service) in document.get("services").map_or(&[][..], Node::entries) {
        let labels = labels(service);
        let container = Container { name, service, labels: &labels };
        let enabled = container.says("traefik.enable").map(|it| it == "true");
        let is_served = match exposed {
            Exposed::All => enabled != Some(false),
            Exposed::Labelled => enabled == Some(true),
            Exposed::Unknown => false,
        };
        if !is_served || !labels.iter().any(|(key, ..)| key.starts_with("traefik.")) {
            continue;
        }
        let mut has_service = false;
        let mut routers = Vec::new();
        for (key, value, at) in &labels {
            let Some(path) = key.strip_prefix("traefik.") else { continue };
            count += 1;
            if count > MAX_LABELS {
                out.not_converted(*at, key, format_args!("more than {MAX_LABELS} labels"), "");
                return made.node;
            }
            let parts: Vec<&str> = path.split('.').collect();
            if parts.len() < 3 || !matches!(parts[0], "http" | "tcp" | "udp") {
                if parts != ["enable"] {
                    out.not_needed(*at, key, "it is about Traefik's providers");
                }
                continue;
            }
            if parts[0] == "http" && parts[1] == "routers" && !routers.contains(&parts[2]) {
                routers.push(parts[2]);
            }
            if container.server(&mut made, &parts, value, *at) {
                has_service = true;
                continue;
            }
            // The third part is a name of somebody's own.
            let spelled: Vec<&str> = parts
                .iter()
                .enumerate()
                .map(|(at, part)| match part.strip_prefix("domains[") {
                    Some(_) => "domains",
                    None if at == 2 => *part,
                    None => spelled(part),
                })
                .collect();
            made.put(&spelled, written(&spelled, value, *at));
        }
        if !has_service && !routers.is_empty() {
            container.usual_server(out, &mut made);
        }
        for router in routers {
            container.lead(&mut made, router);
        }
    }
    made.node
}

/// What a label says, as a dynamic file would have it.
fn written(spelled: &[&str], value: &str, at: At) -> Node {
    const LISTS: [&str; 9] = [
        "entryPoints",
        "middlewares",
        "users",
        "sourceRange",
        "prefixes",
        "authResponseHeaders",
        "authRequestHeaders",
        "addAuthCookiesToResponse",
        "encodings",
    ];
    if spelled.last().is_some_and(|last| LISTS.contains(last)) {
        return Node::list(at, value.split(',').map(|it| Node::text(at, it.trim())).collect());
    }
    Node::text(at, value.to_owned())
}

/// A service of the Compose file.
struct Container<'c> {
    name: &'c str,
    service: &'c Node,
    labels: &'c [(String, String, At)],
}

impl Container<'_> {
    fn says(&self, key: &str) -> Option<&str> {
        let found = self.labels.iter().find(|(known, ..)| known.eq_ignore_ascii_case(key));
        found.map(|(_, value, _)| value.as_str())
    }

    /// A service's server is the container, by its name and the port of the label. Whether the label is about that.
    fn server(&self, made: &mut Dynamic, parts: &[&str], value: &str, at: At) -> bool {
        let [kind, "services", called, lower, server, port] = *parts else { return false };
        if !lower.eq_ignore_ascii_case("loadbalancer") || !server.eq_ignore_ascii_case("server") {
            return false;
        }
        if port == "port" {
            let (key, place) = if kind == "http" {
                let scheme = self.says(&format!("traefik.http.services.{called}.loadbalancer.server.scheme"));
                ("url", format!("{}://{}:{value}", scheme.unwrap_or("http"), self.name))
            } else {
                ("address", format!("{}:{value}", self.name))
            };
            let servers = Node::list(at, vec![Node::map(at, vec![(key, Node::text(at, place))])]);
            made.put(&[kind, "services", called, "loadBalancer", "servers"], servers);
        }
        true
    }

    /// Without a label for the port, the container's own is asked, which the labels don't say.
    fn usual_server(&self, out: &mut Import, made: &mut Dynamic) {
        let at = self.service.at;
        let port = self.service.texts("expose").first().cloned().or_else(|| {
            let ports = self.service.texts("ports");
            let inner = ports.first()?.rsplit(':').next()?.to_owned();
            Some(inner.split('/').next().unwrap_or(&inner).to_owned())
        });
        match port {
            Some(port) => {
                let url = Node::text(at, format!("http://{}:{port}", self.name));
                let servers = Node::list(at, vec![Node::map(at, vec![("url", url)])]);
                made.put(&["http", "services", self.name, "loadBalancer", "servers"], servers);
            }
            None => out.not_converted(
                at,
                format_args!("service {}", self.name),
                "its port is not known; it answers 503",
                "label it with loadbalancer.server.port",
            ),
        }
    }

    /// A router without a service leads to the container's own.
    fn lead(&self, made: &mut Dynamic, router: &str) {
        if made
            .router_or_service("routers", router)
            .is_some_and(|(_, router)| router.get("service").is_some())
        {
            return;
        }
        let own = self.labels.iter().filter_map(|(key, ..)| {
            let (called, _) = key.strip_prefix("traefik.http.services.")?.split_once('.')?;
            Some((made.router_or_service("services", called)?.0, called))
        });
        // The one that was named first of all.
        let called = own.min().map_or(self.name, |(_, called)| called).to_owned();
        made.put(&["http", "routers", router, "service"], Node::text(self.service.at, called));
    }
}

/// A service's labels: key, value, line. Compose has them as a list or a map.
fn labels(service: &Node) -> Vec<(String, String, At)> {
    let mut made = Vec::new();
    // Those of a Swarm stand below `deploy`.
    let all = [service.get("labels"), service.path(&["deploy", "labels"])];
    for labels in all.into_iter().flatten() {
        for item in labels.items() {
            if let Some((key, value)) = item.str().and_then(|it| it.split_once('=')) {
                made.push((key.trim().to_owned(), unescaped(value), item.at));
            }
        }
        for (key, value) in labels.entries() {
            made.push((key.clone(), unescaped(&value.plain().unwrap_or_default()), value.at));
        }
    }
    made
}

/// A text of a Compose file as Traefik gets it: a dollar sign is written twice there.
fn unescaped(text: &str) -> String {
    text.replace("$$", "$")
}

/// Keys above a name: `http` and `routers`, and the name itself.
const NAMED: usize = 3;

/// A dynamic configuration in the making.
struct Dynamic {
    node: Node,
    /// Where keys are in their maps, by the ways to them, as far as these end with the name of a router, a service or a middleware.
    places: HashMap<String, usize>,
}

impl Dynamic {
    fn put(&mut self, keys: &[&str], value: Node) {
        put_by(&mut self.node, keys, value, "", Some(&mut self.places));
    }

    /// A router or service of this name, and where it is among all of them.
    fn router_or_service(&self, kind: &str, name: &str) -> Option<(usize, &Node)> {
        let place = *self.places.get(&format!(".http.{kind}.{name}"))?;
        Some((place, &self.node.path(&["http", kind])?.all_entries().get(place)?.1))
    }
}

/// Puts a value at the end of a way of keys. A switch such as `tls=true` says no more than what is said below it.
pub(super) fn put(root: &mut Node, keys: &[&str], value: Node) {
    put_by(root, keys, value, "", None);
}

/// The same below a way of keys, which `places` tells apart.
fn put_by(
    root: &mut Node,
    keys: &[&str],
    value: Node,
    before: &str,
    mut places: Option<&mut HashMap<String, usize>>,
) {
    let Some((first, rest)) = keys.split_first() else { return };
    let NodeValue::Map(entries) = &mut root.value else { return };
    let way = format!("{before}.{first}");
    // Names may have dots, but then nothing stands below them.
    places = places.filter(|_| before.matches('.').count() < NAMED);
    let position = match &places {
        Some(places) => places.get(&way).copied(),
        None => entries.iter().position(|(key, _)| key == first),
    };
    let at = position.unwrap_or_else(|| {
        entries.push(((*first).to_owned(), Node::new(value.at, NodeValue::Map(Vec::new()))));
        entries.len() - 1
    });
    if let Some(places) = &mut places {
        places.insert(way.clone(), at);
    }
    let Some((_, node)) = entries.get_mut(at) else { return };
    if !rest.is_empty() {
        if !matches!(node.value, NodeValue::Map(_)) {
            *node = Node::new(value.at, NodeValue::Map(Vec::new()));
        }
        put_by(node, rest, value, &way, places);
    } else if !matches!(node.value, NodeValue::Map(_)) || node.is_empty() || value.plain().is_none() {
        *node = value;
    }
}

/// Labels ignore case; the keys of files are spelled so.
fn spelled(key: &str) -> &str {
    KEYS.iter().copied().find(|known| known.eq_ignore_ascii_case(key)).unwrap_or(key)
}

const KEYS: &[&str] = &[
    "entryPoints",
    "basicAuth",
    "digestAuth",
    "forwardAuth",
    "ipWhiteList",
    "ipAllowList",
    "stripPrefix",
    "stripPrefixRegex",
    "replacePath",
    "replacePathRegex",
    "addPrefix",
    "redirectScheme",
    "redirectRegex",
    "rateLimit",
    "inFlightReq",
    "sourceRange",
    "authResponseHeaders",
    "authRequestHeaders",
    "trustForwardHeader",
    "customRequestHeaders",
    "customResponseHeaders",
    "loadBalancer",
    "healthCheck",
    "passHostHeader",
    "maxRequestBodyBytes",
    "frameDeny",
    "contentTypeNosniff",
    "browserXssFilter",
    "stsSeconds",
    "stsIncludeSubdomains",
    "stsPreload",
    "forceSTSHeader",
    "customFrameOptionsValue",
    "contentSecurityPolicy",
    "referrerPolicy",
    "accessControlAllowOriginList",
    "accessControlAllowMethods",
    "accessControlAllowHeaders",
    "accessControlAllowCredentials",
    "accessControlMaxAge",
    "usersFile",
    "removeHeader",
    "certResolver",
    "ipStrategy",
    "passTLSClientCert",
    "circuitBreaker",
    "allowedHosts",
    "regex",
    "replacement",
    "prefixes",
    "users",
    "middlewares",
    "rule",
    "service",
    "priority",
    "tls",
    "routers",
    "services",
    "sticky",
    "cookie",
    "errors",
    "retry",
    "compress",
    "headers",
    "chain",
    "buffering",
    "sourceCriterion",
    "requestHeaderName",
    "requestHost",
    "rejectStatusCode",
    "attempts",
    "initialInterval",
    "expression",
    "fallbackDuration",
    "average",
    "burst",
    "period",
    "amount",
    "permanent",
    "scheme",
    "maxBodySize",
    "forwardBody",
    "preserveRequestMethod",
    "addAuthCookiesToResponse",
    "maxResponseBodyBytes",
    "memRequestBodyBytes",
    "memResponseBodyBytes",
    "minResponseBodyBytes",
    "accessControlExposeHeaders",
    "permissionsPolicy",
    "grpcWeb",
    "contentType",
    "encodings",
    "accessControlAllowOriginListRegex",
    "addVaryHeader",
    "authResponseHeadersRegex",
    "autoDetect",
    "checkPeriod",
    "contentSecurityPolicyReportOnly",
    "customBrowserXSSValue",
    "defaultEncoding",
    "excludedContentTypes",
    "excludedIPs",
    "featurePolicy",
    "forceSlash",
    "headerField",
    "hostsProxyHeaders",
    "httpOnly",
    "includedContentTypes",
    "insecureSkipVerify",
    "ipv6Subnet",
    "isDevelopment",
    "maxAge",
    "maxResponseBodySize",
    "preserveLocationHeader",
    "preservePath",
    "publicKey",
    "recoveryDuration",
    "responseCode",
    "responseForwarding",
    "retryExpression",
    "sameSite",
    "serversTransport",
    "sslForceHost",
    "sslHost",
    "sslProxyHeaders",
    "sslRedirect",
    "sslTemporaryRedirect",
    "statusRewrites",
    "unhealthyInterval",
    "ruleSyntax",
];
