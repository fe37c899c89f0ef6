//! Envoy's HTTP filters as plugins. What may guard and can't be translated closes what is behind it.

use serde_json::{Value, json};

use super::{Envoy, Listener};
use crate::draft::Plug;
use crate::text;
use crate::tree::Node;

const TODO: &str = "guard it with a plugin, then remove `request_termination`";

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

impl Envoy<'_> {
    /// The HTTP filters of a connection manager, for all its routes.
    pub(super) fn http_filters(&mut self, what: &str, manager: &Node, made: &mut Listener) {
        for filter in manager.each("http_filters") {
            let kind = kind(filter);
            let what = format!("{what}: {kind}");
            let settings = config(filter);
            match kind.as_str() {
                "Router" | "router" => self.out.done(filter.at, what),
                "GrpcWeb" | "grpc_web" => {
                    made.plugins.push(Plug::new("grpc_web", json!({})));
                    self.out.done(filter.at, what);
                }
                "Compressor" | "compressor" => {
                    made.plugins.push(Plug::new("compression", json!({ "algorithms": ["gzip"] })));
                    self.out.done(filter.at, what);
                }
                "LocalRateLimit" | "local_ratelimit" => self.rate(&what, filter, settings, made),
                "ExtAuthz" | "ext_authz" => self.ext_authz(&what, filter, settings, made),
                "JwtAuthentication" | "jwt_authn" => self.jwt(&what, filter, settings, made),
                "RBAC" | "rbac" => {
                    made.is_closed |= self.out.guard(filter.at, what, "its policies are not translated", TODO)
                }
                "Cors" | "CorsPolicy" | "cors" => {
                    self.out.needless(filter.at, what, "the policies are at the routes")
                }
                "Buffer" | "buffer" => {
                    match settings.get("max_request_bytes").and_then(Node::uint).filter(|it| *it > 0) {
                        Some(bytes) => {
                            made.plugins
                                .push(Plug::new("request_size_limiting", json!({ "max_bytes": bytes })));
                            self.out.done(filter.at, what);
                        }
                        None => self.out.lost(filter.at, what, "it has no size", ""),
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
                    self.out.lost(filter.at, what, "it is not translated", "see `ferrum-edge plugins`");
                }
                _ => {
                    made.is_closed |=
                        self.out.guard(filter.at, what, "this filter may guard, and is not translated", TODO)
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
                let limit =
                    json!({ "rate": rate, "per": format!("{}s", text::seconds(period)), "burst": most });
                made.plugins.push(Plug::new(
                    "rate_limiting",
                    json!({ "limits": [limit], "limit_by": "route", "headers": "none" }),
                ));
                self.out.partial(filter.at, what, "the limit is for each proxy", "");
            }
            _ => self.out.lost(filter.at, what, "its bucket is not known", "use the plugin `rate_limiting`"),
        }
    }

    fn ext_authz(&mut self, what: &str, filter: &Node, settings: &Node, made: &mut Listener) {
        let service = settings.get("http_service");
        let uri = service
            .and_then(|it| it.path(&["server_uri", "uri"]))
            .and_then(Node::str)
            .filter(|it| text::url(it).is_some());
        let lets_in = settings.get("failure_mode_allow").and_then(Node::bool) == Some(true);
        let Some(uri) = uri else {
            made.is_closed |= self.out.guard(
                filter.at,
                what,
                "only an HTTP service with a URL can be translated",
                "use the plugin `forward_auth`",
            );
            return;
        };
        let prefix = service.and_then(|it| it.text_of("path_prefix")).unwrap_or_default();
        let exact = |keys: &[&str]| -> Vec<String> {
            let list = service.and_then(|it| it.path(keys)).map_or(&[][..], |it| it.each("patterns"));
            list.iter().filter_map(|it| it.text_of("exact")).map(str::to_owned).collect()
        };
        let url = format!("{}{prefix}", uri.trim_end_matches('/'));
        let mut config = json!({ "url": url, "convention": "envoy", "status_on_error": 403 });
        let sent = exact(&["authorization_request", "allowed_headers"]);
        if !sent.is_empty() {
            config["request_headers"] = json!(sent);
        }
        let taken = exact(&["authorization_response", "allowed_upstream_headers"]);
        if !taken.is_empty() {
            config["response_headers"] = json!(taken);
        }
        made.plugins.push(Plug::new("forward_auth", config));
        if lets_in {
            self.out.partial(filter.at, what, "requests are refused while the service fails", "");
        } else {
            self.out.done(filter.at, what);
        }
    }

    /// `jwt_authn`, where one provider is asked for everywhere.
    fn jwt(&mut self, what: &str, filter: &Node, settings: &Node, made: &mut Listener) {
        let providers = settings.get("providers").map_or(&[][..], Node::entries);
        let everywhere = match settings.each("rules") {
            [rule] => {
                let prefix = rule.path(&["match", "prefix"]).and_then(Node::str) == Some("/");
                let named = rule.path(&["requires", "provider_name"]).and_then(Node::str);
                prefix && named.is_some_and(|named| providers.iter().any(|(name, _)| name == named))
            }
            _ => false,
        };
        let provider = match providers {
            [(_, provider)] if everywhere => provider,
            _ => {
                let why = "only one provider that is asked for everywhere can be translated";
                made.is_closed |=
                    self.out.guard(filter.at, what, why, "use the plugin `jwks_auth` with `when`");
                return;
            }
        };
        let issuer = provider.text_of("issuer");
        let uri = provider.path(&["remote_jwks", "http_uri", "uri"]).and_then(Node::str);
        let plain = provider.get("from_headers").is_none()
            && provider.get("from_params").is_none()
            && provider.get("from_cookies").is_none();
        let (Some(issuer), Some(uri), true) = (issuer, uri, plain) else {
            let why = "only an issuer with `remote_jwks` and tokens in `Authorization` can be translated";
            made.is_closed |= self.out.guard(filter.at, what, why, "use the plugin `jwks_auth`");
            return;
        };
        let mut one: Value = json!({ "issuer": issuer, "jwks_uri": uri });
        let audiences = provider.texts("audiences");
        if !audiences.is_empty() {
            one["audience"] = json!(audiences);
        }
        let hides = provider.get("forward").and_then(Node::bool) != Some(true);
        made.plugins.push(Plug::new(
            "jwks_auth",
            json!({ "providers": [one], "require_exp": false, "hide_credentials": hides }),
        ));
        self.out.done(filter.at, what);
    }
}
