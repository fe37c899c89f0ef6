//! Labels of a Compose file as the tree that a dynamic file would be.

use crate::draft::Import;
use crate::report::At;
use crate::tree::{Kind, Node};

/// Labels of one configuration.
const MAX_LABELS: usize = 50_000;

/// The dynamic configuration that the labels of a Compose file's services make.
#[allow(clippy::too_many_lines, reason = "one arm for each word of the format")]
pub(super) fn dynamic(out: &mut Import, document: &Node) -> Node {
    let mut made = Node::new(document.at, Kind::Map(Vec::new()));
    let mut count = 0;
    for (name, service) in document.get("services").map_or(&[][..], Node::entries) {
        let labels = labels(service);
        let says = |key: &str| {
            labels
                .iter()
                .find(|(known, ..)| known.eq_ignore_ascii_case(key))
                .map(|(_, value, _)| value.as_str())
        };
        if says("traefik.enable") == Some("false")
            || !labels.iter().any(|(key, ..)| key.starts_with("traefik."))
        {
            continue;
        }
        let mut has_service = false;
        let mut routers = Vec::new();
        for (key, value, at) in &labels {
            let Some(path) = key.strip_prefix("traefik.") else { continue };
            count += 1;
            if count > MAX_LABELS {
                out.lost(*at, key, format_args!("more than {MAX_LABELS} labels"), "");
                return made;
            }
            let parts: Vec<&str> = path.split('.').collect();
            if parts.len() < 3 || !matches!(parts[0], "http" | "tcp" | "udp") {
                if parts != ["enable"] {
                    out.needless(*at, key, "it is about Traefik's providers");
                }
                continue;
            }
            if parts[0] == "http" && parts[1] == "routers" && !routers.contains(&parts[2]) {
                routers.push(parts[2]);
            }
            // A service's server is the container, by its name and the port of the label.
            if let [kind, "services", called, lower, server, port] = parts.as_slice()
                && lower.eq_ignore_ascii_case("loadbalancer")
                && server.eq_ignore_ascii_case("server")
            {
                has_service = true;
                let scheme = says(&format!("traefik.http.services.{called}.loadbalancer.server.scheme"))
                    .unwrap_or("http");
                match *port {
                    "port" if *kind == "http" => {
                        let url = Node::text(*at, format!("{scheme}://{name}:{value}"));
                        let servers = Node::list(*at, vec![Node::map(*at, vec![("url", url)])]);
                        put(&mut made, &[kind, "services", called, "loadBalancer", "servers"], servers);
                    }
                    "port" => {
                        let address = Node::text(*at, format!("{name}:{value}"));
                        let servers = Node::list(*at, vec![Node::map(*at, vec![("address", address)])]);
                        put(&mut made, &[kind, "services", called, "loadBalancer", "servers"], servers);
                    }
                    _ => {}
                }
                continue;
            }
            let spelled: Vec<&str> = parts.iter().map(|part| spelled(part)).collect();
            let is_list = matches!(
                spelled.last().copied(),
                Some(
                    "entryPoints"
                        | "middlewares"
                        | "users"
                        | "sourceRange"
                        | "prefixes"
                        | "authResponseHeaders"
                        | "authRequestHeaders"
                        | "addAuthCookiesToResponse"
                        | "encodings"
                )
            );
            let node = if is_list {
                let items = value.split(',').map(|it| Node::text(*at, it.trim())).collect();
                Node::list(*at, items)
            } else {
                Node::text(*at, value.clone())
            };
            put(&mut made, &spelled, node);
        }
        // Without a port, the container's own is asked, which the labels don't say.
        if !has_service && !routers.is_empty() {
            let at = service.at;
            let port = service.texts("expose").first().cloned().or_else(|| {
                let ports = service.texts("ports");
                ports
                    .first()
                    .and_then(|it| it.rsplit(':').next())
                    .map(|it| it.split('/').next().unwrap_or(it).to_owned())
            });
            match port {
                Some(port) => {
                    let url = Node::text(at, format!("http://{name}:{port}"));
                    let servers = Node::list(at, vec![Node::map(at, vec![("url", url)])]);
                    put(&mut made, &["http", "services", name, "loadBalancer", "servers"], servers);
                }
                None => out.lost(
                    at,
                    format_args!("service {name}"),
                    "its port is not known; it answers 503",
                    "label it with loadbalancer.server.port",
                ),
            }
        }
        for router in routers {
            let own = made.path(&["http", "routers", router, "service"]).is_some();
            if !own {
                let called = made
                    .path(&["http", "services"])
                    .map_or(&[][..], Node::entries)
                    .iter()
                    .find(|(called, _)| {
                        labels
                            .iter()
                            .any(|(key, ..)| key.starts_with(&format!("traefik.http.services.{called}.")))
                    })
                    .map_or(name.as_str(), |(called, _)| called.as_str())
                    .to_owned();
                put(&mut made, &["http", "routers", router, "service"], Node::text(service.at, called));
            }
        }
    }
    made
}

/// A service's labels: key, value, line. Compose has them as a list or a map.
fn labels(service: &Node) -> Vec<(String, String, At)> {
    let mut made = Vec::new();
    let Some(labels) = service.get("labels") else { return made };
    for item in labels.items() {
        if let Some((key, value)) = item.str().and_then(|it| it.split_once('=')) {
            made.push((key.trim().to_owned(), value.to_owned(), item.at));
        }
    }
    for (key, value) in labels.entries() {
        made.push((key.clone(), value.plain().unwrap_or_default(), value.at));
    }
    made
}

/// Puts a value at the end of a way of keys.
fn put(root: &mut Node, keys: &[&str], value: Node) {
    let Some((first, rest)) = keys.split_first() else { return };
    let Kind::Map(entries) = &mut root.value else { return };
    let position = entries.iter().position(|(key, _)| key == first);
    let at = position.unwrap_or_else(|| {
        entries.push(((*first).to_owned(), Node::new(value.at, Kind::Map(Vec::new()))));
        entries.len() - 1
    });
    let Some((_, node)) = entries.get_mut(at) else { return };
    if rest.is_empty() {
        *node = value;
    } else {
        put(node, rest, value);
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
];
