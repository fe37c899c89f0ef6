//! What targets are told of the way of a request, as written.

use schemars::JsonSchema;
use serde::Deserialize;

/// `X-Forwarded-*` of a proxy's targets, where the gateway's own values do not do. Each is a template; an empty value sends no field.
/// What clients send in these fields is not seen, unless `gateway.trusted_proxies` has them.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Forwarded {
    /// `X-Forwarded-Proto`, such as `https` behind a balancer that ends TLS. Default the client's scheme.
    #[schemars(length(max = 1024))]
    pub proto: Option<String>,
    /// `X-Forwarded-Host`. Default the host that the client asked for.
    #[schemars(length(max = 1024))]
    pub host: Option<String>,
    /// `X-Forwarded-For`, such as `${request.header.cf-connecting-ip}`. Default the client's address, behind those that trusted
    /// proxies name.
    #[schemars(length(max = 1024))]
    pub r#for: Option<String>,
    /// `X-Forwarded-Port`, such as `${server.port}`. Default none, or what a trusted proxy says.
    #[schemars(length(max = 1024))]
    pub port: Option<String>,
}
