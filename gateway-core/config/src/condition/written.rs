//! A condition as written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::pattern::written::{NamedPath, PathMatch};

/// Which requests match. All given conditions must hold.
///
/// Regexes match the whole value; use `.*` to match a part of it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Condition {
    /// One of these methods, such as `[GET, POST]`. `GET` includes `HEAD`.
    #[schemars(length(max = 32))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// The path, without the query: `/prefix` on whole segments, `/users/{id}` with names for single segments and
    /// `{rest...}` for the rest of the path, `~regex`, or a map such as `{exact: /health}`. Paths are normalised:
    /// `/café` equals `/caf%C3%A9`. Since targets may do so, `/admin;x` also matches as `/admin`, and `%3A` as `:`;
    /// below `not`, every reading must match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathMatch>,
    /// One of these host names or `*.suffix` patterns.
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Whether the client's connection is encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheme: Option<Scheme>,
    /// One of these ports of the gateway: those of `http`, `https` and the additional listeners.
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// One of these addresses or CIDR blocks of the gateway, to which the client connected.
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Request headers by name. Several fields of one name are joined by `, `. Hop-by-hop fields such as `Upgrade` are
    /// included, except a `Connection` with only `keep-alive` or `close`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, TextMatch>,
    /// Query parameters by name, percent-decoded. If a name occurs several times, the first value counts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub query: BTreeMap<String, TextMatch>,
    /// The raw query, not decoded, without the question mark. A request without a query has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_string: Option<TextMatch>,
    /// The raw `Host` or `:authority`: with port, case and trailing dot. `hosts` matches the normalised name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authority: Option<TextMatch>,
    /// Cookies by name. If a name occurs several times, the first value counts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub cookies: BTreeMap<String, TextMatch>,
    /// Only gRPC calls, or some of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grpc: Option<GrpcMatch>,
    /// One of these media types, parameters ignored: `application/json`, `text/*`.
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub content_types: Vec<String>,
    /// The client's address is in one of these CIDR blocks. Behind trusted proxies, it is the address that they report.
    #[schemars(length(max = 10_000))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<String>,
    /// Facts of the client's TLS handshake. Never matches plain connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsMatch>,
    /// The caller is one of these consumers, by username. Not for routing, which precedes authentication.
    #[schemars(length(max = 10_000))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub consumers: Vec<String>,
    /// The caller is in one of these groups. Not for routing, which precedes authentication.
    #[schemars(length(max = 10_000))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// The response's status: `404`, `5xx`, `500-504`. Only for responses.
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub statuses: Vec<StatusMatch>,
    /// All of these match.
    #[schemars(length(max = 256))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub all: Vec<Self>,
    /// At least one of these matches.
    #[schemars(length(max = 256))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub any: Vec<Self>,
    /// This does not match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not: Option<Box<Self>>,
}

/// Values of a header, query parameter or cookie.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum TextMatch {
    /// Exactly this value.
    Exact(#[schemars(length(max = 4000))] String),
    /// Another kind of match.
    Named(NamedText),
}

/// A kind of match: exactly one, with `ignore_case` where it applies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NamedText {
    /// Exactly this value.
    #[schemars(length(max = 4000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact: Option<String>,
    /// One of these values.
    #[schemars(length(min = 1, max = 1000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub one_of: Option<Vec<String>>,
    /// Prefix of the value.
    #[schemars(length(min = 1, max = 4000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Suffix of the value.
    #[schemars(length(min = 1, max = 4000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suffix: Option<String>,
    /// Part of the value.
    #[schemars(length(min = 1, max = 4000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contains: Option<String>,
    /// Regex over the whole value. `.` matches any character, including line feeds and bytes that are not UTF-8.
    #[schemars(length(min = 1, max = 4000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
    /// True: present, with any value. False: absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
    /// Ignores the case of ASCII letters. Default false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignore_case: Option<bool>,
}

/// gRPC calls, recognised by their content type. `{}` matches all of them.
///
/// In `when` of plugins, except below `not`, it also matches requests that may become such a call: gRPC-Web, and every
/// POST to a named service, since some servers accept calls with any content type.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GrpcMatch {
    /// Service with its package, such as `shop.v1.Orders`. Default all.
    #[schemars(length(min = 1, max = 1000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// Method, such as `List`. Default all.
    #[schemars(length(min = 1, max = 1000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
}

/// Facts of the client's TLS handshake. `{}` matches any TLS connection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TlsMatch {
    /// Server name (SNI): one of these names or `*.suffix` patterns.
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub server_names: Vec<String>,
    /// The client's certificate, verified against `gateway.tls.client_ca_path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<CertificateMatch>,
}

/// Client certificates. `{}` matches any.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CertificateMatch {
    /// True: the client has one. False: it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
    /// Subject, most specific part first, as `CN=orders,O=Example,C=DE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<TextMatch>,
    /// The subject's common name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub common_name: Option<TextMatch>,
    /// One of the alternative names: DNS names, mail addresses, IP addresses, URIs such as `spiffe://…`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub san: Option<TextMatch>,
}

/// Whether a connection is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// Not encrypted.
    Http,
    /// TLS or QUIC.
    Https,
}

/// Statuses.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum StatusMatch {
    /// One status.
    One(#[schemars(range(min = 100, max = 599))] u16),
    /// `404`, a class such as `5xx`, or a range such as `500-504`.
    Text(#[schemars(length(max = 16))] String),
}
