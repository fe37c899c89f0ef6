//! What targets are told of the way of a request, as written.

use schemars::JsonSchema;
use serde::Deserialize;

/// `X-Forwarded-*` for the targets of a proxy, if the gateway's own values are wrong. Each is a template; an empty
/// value omits the field. Values from clients are used only if they come from `gateway.trusted_proxies`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Forwarded {
    /// `X-Forwarded-Proto`, such as `https` behind a load balancer that terminates TLS. Default the client's scheme.
    #[schemars(length(max = 1024))]
    pub proto: Option<String>,
    /// `X-Forwarded-Host`. Default the host that the client requested.
    #[schemars(length(max = 1024))]
    pub host: Option<String>,
    /// `X-Forwarded-For`, such as `${request.header.cf-connecting-ip}`. Default the client's address, after the
    /// addresses that trusted proxies report.
    #[schemars(length(max = 1024))]
    pub r#for: Option<String>,
    /// `X-Forwarded-Port`, such as `${server.port}`. Default none, or the value from a trusted proxy.
    #[schemars(length(max = 1024))]
    pub port: Option<String>,
}
