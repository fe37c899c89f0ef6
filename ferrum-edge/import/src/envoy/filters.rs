//! Envoy's HTTP filters as plugins. What may guard and can't be converted closes what is behind it.

use super::{Envoy, Listener};
use crate::draft::{
    Compression, ForwardAuth, GrpcWeb, Limit, Plug, RateLimiting, RequestSizeLimiting, draft,
};
use crate::text;
use crate::tree::Node;

pub(super) const TODO: &str = "guard it with a plugin, then remove `request_termination`";

/// A filter's kind: the last part of its type, or of its name where it says no type.
pub(super) fn kind(filter: &Node) -> String {
    let of_type = filter
        .path(&["typed_config", "@type"])
        .and_then(Node::str)
        .and_then(|it| it.rsplit(['.', '/']).next());
    let of_name = filter.text_of("name").and_then(|it| it.rsplit('.').next());
    of_type.or(of_name).unwrap_or("filter").to_owned()
}

/// A filter's settings.
pub(super) fn config(filter: &Node) -> &Node {
    filter.get("typed_config").or_else(|| filter.get("config")).unwrap_or(filter)
}

/// Host and port of a cluster's first endpoint.
fn first_endpoint(cluster: &Node) -> Option<(String, u64)> {
    let all = cluster.path(&["load_assignment", "endpoints"])?;
    let endpoint = all.items().first()?.each("lb_endpoints").first()?;
    let address = endpoint.path(&["endpoint", "address", "socket_address"])?;
    Some((address.text_of("address")?.to_owned(), address.get("port_value")?.uint()?))
}

/// Whether the other server gets the body, and how much of it.
fn authz_body(settings: &Node, config: &mut ForwardAuth) {
    let Some(body) = settings.get("with_request_body") else { return };
    config.send_body(true);
    if let Some(bytes) = body.get("max_request_bytes").and_then(Node::uint).filter(|it| *it > 0) {
        config.max_body(bytes);
    }
    let partial = body.get("allow_partial_message").and_then(Node::bool) == Some(true);
    if partial && config["convention"] == "envoy_grpc" {
        config.allow_partial_body(true);
    }
}

impl Envoy<'_> {
    /// The HTTP filters of a connection manager, for all its routes.
    pub(super) fn http_filters(&mut self, what: &str, manager: &Node, made: &mut Listener) {
        let is_set = manager
            .get("use_remote_address")
            .is_some_and(|it| it.bool() == Some(true) || it.get("value").and_then(Node::bool) == Some(true));
        let hops = manager.get("xff_num_trusted_hops").and_then(Node::uint).unwrap_or(0);
        self.knows_clients = is_set && hops == 0 && manager.get("original_ip_detection_extensions").is_none();
        for filter in manager.each("http_filters") {
            let kind = kind(filter);
            let what = format!("{what}: {kind}");
            let settings = config(filter);
            match kind.as_str() {
                "Router" | "router" => self.out.converted(filter.at, what),
                "GrpcWeb" | "grpc_web" => {
                    made.plugins.push(Plug::of(GrpcWeb::default()));
                    self.out.converted(filter.at, what);
                }
                "Compressor" | "compressor" => {
                    made.plugins.push(Plug::of(draft!(Compression { algorithms: ["gzip"] })));
                    self.out.converted(filter.at, what);
                }
                "LocalRateLimit" | "local_ratelimit" => self.rate(&what, filter, settings, made),
                "ExtAuthz" | "ext_authz" => self.ext_authz(&what, filter, settings, made),
                "JwtAuthentication" | "jwt_authn" => self.jwt(&what, filter, settings, made),
                "RBAC" | "rbac" => self.rbac(&what, filter, settings, made),
                "Cors" | "CorsPolicy" | "cors" => {
                    self.out.not_needed(filter.at, what, "the policies are at the routes")
                }
                "Buffer" | "buffer" => {
                    match settings.get("max_request_bytes").and_then(Node::uint).filter(|it| *it > 0) {
                        Some(bytes) => {
                            made.plugins.push(Plug::of(draft!(RequestSizeLimiting { max_size: bytes })));
                            self.out.converted(filter.at, what);
                        }
                        None => self.out.not_converted(filter.at, what, "it has no size", ""),
                    }
                }
                "HealthCheck"
                | "health_check"
                | "FaultInjection"
                | "HTTPFault"
                | "fault"
                | "AdmissionControl"
                | "Decompressor"
                | "AdaptiveConcurrency"
                | "GrpcStats"
                | "GrpcHttp1Bridge"
                | "HeaderToMetadata"
                | "OnDemand"
                | "BandwidthLimit"
                | "RateLimit"
                | "ratelimit" => {
                    self.out.not_converted(
                        filter.at,
                        what,
                        "it is not converted",
                        "see `ferrum-edge plugins`",
                    );
                }
                _ => {
                    made.is_closed |= self.out.guard_not_converted(
                        filter.at,
                        what,
                        "this filter may guard, and is not converted",
                        TODO,
                    )
                }
            }
        }
    }

    fn rate(&mut self, what: &str, filter: &Node, settings: &Node, made: &mut Listener) {
        let bucket = settings.get("token_bucket");
        let number = |key: &str| {
            bucket
                .and_then(|it| it.get(key))
                .and_then(|it| it.uint().or_else(|| it.get("value").and_then(Node::uint)))
        };
        let period = bucket.and_then(|it| it.text_of("fill_interval")).and_then(|it| text::millis(it, 1000));
        match (number("max_tokens"), period) {
            (Some(most), Some(period)) if most > 0 => {
                let rate = number("tokens_per_fill").unwrap_or(1).max(1);
                let limit = draft!(Limit { rate, per: format!("{}ms", period.max(1)), burst: most });
                made.plugins.push(Plug::of(draft!(RateLimiting {
                    limits: [limit],
                    limit_by: "route",
                    headers: "none"
                })));
                self.out.partial(filter.at, what, "the limit is for each proxy", "");
            }
            _ => self.out.not_converted(
                filter.at,
                what,
                "its bucket is not known",
                "use the plugin `rate_limiting`",
            ),
        }
    }

    fn ext_authz(&mut self, what: &str, filter: &Node, settings: &Node, made: &mut Listener) {
        if let Some(service) = settings.get("grpc_service") {
            return self.grpc_authz(what, filter, settings, service, made);
        }
        let service = settings.get("http_service");
        let uri = service
            .and_then(|it| it.path(&["server_uri", "uri"]))
            .and_then(Node::str)
            .filter(|it| text::url(it).is_some())
            .map(str::to_owned);
        let lets_in = settings.get("failure_mode_allow").and_then(Node::bool) == Some(true);
        let Some(uri) = uri else {
            let why = "only an HTTP service with a URL, or a gRPC service of a cluster, can be converted";
            made.is_closed |=
                self.out.guard_not_converted(filter.at, what, why, "use the plugin `forward_auth`");
            return;
        };
        let prefix = service.and_then(|it| it.text_of("path_prefix")).unwrap_or_default();
        let exact = |keys: &[&str]| -> Vec<String> {
            let list = service.and_then(|it| it.path(keys)).map_or(&[][..], |it| it.each("patterns"));
            list.iter().filter_map(|it| it.text_of("exact")).map(str::to_owned).collect()
        };
        let url = format!("{}{prefix}", self.asked_server(service, &uri).trim_end_matches('/'));
        let mut config = draft!(ForwardAuth { url, convention: "envoy", status_on_error: 403 });
        let sent = exact(&["authorization_request", "allowed_headers"]);
        if !sent.is_empty() {
            config.request_headers(sent);
        }
        let taken = exact(&["authorization_response", "allowed_upstream_headers"]);
        if !taken.is_empty() {
            config.response_headers(taken);
        }
        if lets_in {
            config.failure_mode_allow(true);
        }
        if let Some(timeout) = service.and_then(|it| it.path(&["server_uri", "timeout"])) {
            let millis = timeout.str().and_then(|it| text::millis(it, 1000));
            config.timeout(text::duration(millis.unwrap_or(5000).clamp(1, 60_000)));
        }
        authz_body(settings, &mut config);
        made.plugins.push(Plug::of(config));
        self.out.converted(filter.at, what);
    }

    /// The URL of a server that is asked: Envoy goes to its cluster, and takes only the name from the URL.
    fn asked_server(&mut self, service: Option<&Node>, uri: &str) -> String {
        let name = service.and_then(|it| it.path(&["server_uri", "cluster"])).and_then(Node::str);
        let cluster = name.and_then(|name| self.clusters.get(name)).cloned();
        let endpoint = cluster.as_ref().and_then(first_endpoint);
        let (Some(name), Some(cluster), Some((host, port)), Some(url)) =
            (name, &cluster, endpoint, text::url(uri))
        else {
            return uri.to_owned();
        };
        cluster.see_all();
        self.named.insert(name.to_owned());
        let scheme = if cluster.get("transport_socket").is_some() { "https" } else { "http" };
        // Its certificate is for the name in the URL.
        if scheme == "https" {
            return uri.to_owned();
        }
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        format!("{scheme}://{host}:{port}{}", url.path)
    }

    /// The protocol `envoy.service.auth.v3`, spoken with the first endpoint of a cluster.
    fn grpc_authz(
        &mut self,
        what: &str,
        filter: &Node,
        settings: &Node,
        service: &Node,
        made: &mut Listener,
    ) {
        let version = settings.text_of("transport_api_version");
        let name = service.path(&["envoy_grpc", "cluster_name"]).and_then(Node::str);
        let cluster = name.and_then(|name| self.clusters.get(name)).cloned();
        let endpoint = cluster.as_ref().and_then(first_endpoint);
        let (Some(cluster), Some((host, port)), true) =
            (&cluster, endpoint, matches!(version, None | Some("V3")))
        else {
            let why = "its cluster has no static endpoint, or it speaks an older version than V3";
            made.is_closed |=
                self.out.guard_not_converted(filter.at, what, why, "use the plugin `forward_auth`");
            return;
        };
        let scheme = if cluster.get("transport_socket").is_some() { "https" } else { "http" };
        let mut config = draft!(ForwardAuth {
            url: format!("{scheme}://{host}:{port}"),
            convention: "envoy_grpc",
            status_on_error: 403
        });
        let timeout = service.text_of("timeout").and_then(|it| text::millis(it, 1000)).unwrap_or(200);
        config.timeout(text::duration(timeout.clamp(1, 60_000)));
        if settings.get("failure_mode_allow").and_then(Node::bool) == Some(true) {
            config.failure_mode_allow(true);
        }
        authz_body(settings, &mut config);
        cluster.see_all();
        self.named.insert(name.unwrap_or_default().to_owned());
        made.plugins.push(Plug::of(config));
        if cluster.path(&["load_assignment", "endpoints"]).map_or(0, |it| it.items().len()) > 1 {
            self.out.partial(filter.at, what, "the first endpoint of its cluster is asked", "");
        } else {
            self.out.converted(filter.at, what);
        }
    }
}
