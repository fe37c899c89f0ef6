//! A condition as written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::pattern::written::{NamedPath, PathMatch};

/// Which requests are meant. Everything that is given has to hold; what is not given is not looked at.
///
/// All regexes match the whole value, so `.*` is needed around what may stand anywhere in it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Condition {
    /// One of these methods, such as `[GET, POST]`. `GET` stands for `HEAD` as well.
    #[schemars(length(max = 32))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// The path, without the query: `/prefix` on whole segments, `/users/{id}` with names for single segments and
    /// `{rest...}` for all that is left, `~regex`, or a map such as `{exact: /health}`. Paths are compared in one spelling: `/café` and
    /// `/caf%C3%A9` are the same. The path `/admin;x` is also `/admin`, and `%3A` is also `:`, as targets may read them so; below `not`,
    /// every reading has to match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathMatch>,
    /// One of these host names or `*.suffix` patterns.
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Whether the client's connection is encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheme: Option<Scheme>,
    /// The request came to one of these ports of the gateway: those of `http`, `https` and the additional ones.
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// The request came to one of these addresses of the gateway, or to one in these CIDR blocks.
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Request headers by name. Several fields of one name count as one, joined by `, `. Those for one hop, such as `Upgrade`, are seen
    /// as well, but for a `Connection` that says `keep-alive` or `close` only.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, TextMatch>,
    /// Query parameters by name, percent-decoded. The first of several of one name counts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub query: BTreeMap<String, TextMatch>,
    /// The query as it was sent, not decoded, without its question mark. A request without a query has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_string: Option<TextMatch>,
    /// The host as it was sent, in `Host` or `:authority`: with its port, its case and a dot at its end. `hosts` goes by the
    /// name alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authority: Option<TextMatch>,
    /// Cookies by name. The first of several of one name counts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub cookies: BTreeMap<String, TextMatch>,
    /// Only gRPC calls, and which.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grpc: Option<GrpcMatch>,
    /// One of these media types, parameters ignored: `application/json`, `text/*`.
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub content_types: Vec<String>,
    /// The client's address is in one of these CIDR blocks. Behind trusted proxies it is the one they name.
    #[schemars(length(max = 10_000))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<String>,
    /// What the client's TLS handshake said. Never holds for plain connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsMatch>,
    /// The caller is one of these consumers, by username. Not for routing, which comes before authentication.
    #[schemars(length(max = 10_000))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub consumers: Vec<String>,
    /// The caller is in one of these groups. Not for routing, which comes before authentication.
    #[schemars(length(max = 10_000))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// The response's status is one of these: `404`, `5xx`, `500-504`. Only where a response is there.
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub statuses: Vec<StatusMatch>,
    /// All of these hold.
    #[schemars(length(max = 256))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub all: Vec<Self>,
    /// At least one of these holds.
    #[schemars(length(max = 256))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub any: Vec<Self>,
    /// This does not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not: Option<Box<Self>>,
}

/// Which values of a header, query parameter or cookie.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum TextMatch {
    /// This value.
    Exact(#[schemars(length(max = 4000))] String),
    /// Another way, named.
    Named(NamedText),
}

/// Which values, the way of matching named. Exactly one, and `ignore_case` where it makes sense.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NamedText {
    /// This value.
    #[schemars(length(max = 4000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact: Option<String>,
    /// One of these values.
    #[schemars(length(min = 1, max = 1000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub one_of: Option<Vec<String>>,
    /// Begins with this.
    #[schemars(length(min = 1, max = 4000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Ends with this.
    #[schemars(length(min = 1, max = 4000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suffix: Option<String>,
    /// Has this in it.
    #[schemars(length(min = 1, max = 4000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contains: Option<String>,
    /// A regex over the whole value. `.` is any character, also a line feed and a byte that is no UTF-8.
    #[schemars(length(min = 1, max = 4000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
    /// True: it is there, whatever it says. False: it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
    /// Letters count the same in both cases (ASCII). Default false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignore_case: Option<bool>,
}

/// Which gRPC calls, by their content type. `{}` is all of them.
///
/// In `when` of plugins, unless below `not`, it holds for whatever may become such a call as well: gRPC-Web, and every POST to
/// a service that is named, for there are servers that take calls of any content type.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GrpcMatch {
    /// The service with its package, such as `shop.v1.Orders`. Default all.
    #[schemars(length(min = 1, max = 1000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// The method, such as `List`. Default all.
    #[schemars(length(min = 1, max = 1000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
}

/// What the client's TLS handshake said. `{}` is any TLS connection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TlsMatch {
    /// The client asked for one of these names or `*.suffix` patterns (SNI).
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub server_names: Vec<String>,
    /// The client's certificate. It has been verified against `gateway.tls.client_ca_path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<CertificateMatch>,
}

/// Which client certificates. `{}` is any.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CertificateMatch {
    /// True: there is one. False: there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
    /// The subject, most specific part first, as `CN=orders,O=Example,C=DE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<TextMatch>,
    /// The subject's common name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub common_name: Option<TextMatch>,
    /// One of the alternative names: DNS names, addresses of mail and machines, URIs such as `spiffe://…`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub san: Option<TextMatch>,
}

/// Whether a connection is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// Plain.
    Http,
    /// TLS or QUIC.
    Https,
}

/// Which statuses.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum StatusMatch {
    /// One.
    One(#[schemars(range(min = 100, max = 599))] u16),
    /// `404`, a class such as `5xx`, or a range such as `500-504`.
    Text(#[schemars(length(max = 16))] String),
}
