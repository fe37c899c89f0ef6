//! The gateway's own settings as written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::acme::Acme;
use super::admin_approval::AdminApproval;
use super::admin_oidc::AdminOidc;
use super::admin_role::AdminRole;
use super::log::{LogSink, Metrics};
use super::redis::Redis;
use crate::units::{Bytes, Millis, Seconds};

/// Settings of the gateway as a whole.
///
/// Each setting also has an environment variable, which overrides the file; some have a flag, which overrides both.
/// Listeners and workers are read at start; a reload applies the rest.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Gateway {
    /// Listener for plain HTTP. Default `0.0.0.0:8000`.
    pub http: Option<Listener>,
    /// Listener for HTTP over TLS, if there is a certificate. Default `0.0.0.0:8443`.
    pub https: Option<Listener>,
    /// Serves HTTP/3 on the https port. Default false.
    pub http3: Option<bool>,
    /// Listener of the admin API. Default `127.0.0.1:9000`: this machine only.
    pub admin: Option<Listener>,
    /// Serves the admin API over TLS. Default plain HTTP.
    pub admin_tls: Option<AdminTls>,
    /// Unix socket that also serves the admin API; only the gateway's user may connect to it. Default none.
    #[schemars(length(min = 1, max = 100))]
    pub admin_socket: Option<String>,
    /// Requires a token with the role read for `/metrics`, `/v1/status` and `/v1/openapi.json`, but not for health.
    /// Default false.
    pub admin_require_token: Option<bool>,
    /// Serves the console below `/console/` of the admin API. Default true, in builds with the console.
    pub admin_console: Option<bool>,
    /// Roles of database users that need a second factor for the console: these users must enrol an authenticator app
    /// first. Default none: each user decides.
    #[schemars(length(max = 3))]
    pub admin_totp_roles: Option<Vec<AdminRole>>,
    /// Users of an OpenID provider may log in to the console, with a role by their groups. Default none.
    pub admin_oidc: Option<AdminOidc>,
    /// Changes of the database's objects that wait until another user approves them. Default none: changes take effect
    /// at once.
    pub admin_approval: Option<AdminApproval>,
    /// Further listeners for plain HTTP, such as `[::1]:8000`. Default none.
    #[schemars(length(max = 16))]
    pub additional_http: Option<Vec<String>>,
    /// The congestion control for what clients are sent, such as `bbr`. TCP uses the kernel's, and a name that the kernel lacks is
    /// refused. HTTP/3 has `bbr`, `cubic` and `reno` of its own, and uses `cubic` for other names. Needs a restart. Default the
    /// system's.
    #[schemars(length(min = 1, max = 15))]
    pub congestion_control: Option<String>,
    /// Name servers to use instead of the system's, such as `127.0.0.1:8600` for Consul; the default port is 53.
    /// `/etc/hosts` still precedes them. Needs a restart. Default the system's.
    #[schemars(length(max = 8))]
    pub dns_servers: Option<Vec<String>>,
    /// Unix socket that also serves plain HTTP: HTTP/1.1, and HTTP/2 with prior knowledge. Its clients have the address
    /// 127.0.0.1. Needs a restart. Default none.
    #[schemars(length(min = 1, max = 100))]
    pub http_socket: Option<String>,
    /// Mode of that socket's file in octal digits, such as `"0666"`. Default `"0660"`.
    pub http_socket_mode: Option<String>,
    /// Further listeners for HTTP over TLS, and for HTTP/3 on those with the port of `https`. Default none.
    #[schemars(length(max = 16))]
    pub additional_https: Option<Vec<String>>,
    /// Shares the listening ports with another gateway of the same user, so that one can replace the other without a
    /// gap: start the next, and stop the previous one when the next is ready. Needs a restart. Default false: a port in
    /// use is an error.
    pub share_ports: Option<bool>,
    /// Address of stream listeners. Default `0.0.0.0`.
    pub stream_address: Option<String>,
    /// Worker threads. Default 0: one for each core that the process may use.
    #[schemars(range(max = 1024))]
    pub workers: Option<usize>,
    /// If no proxy of a host matches a request, tries the proxies of wider host patterns, and then those for any host.
    /// Default false: a host with proxies of its own uses only those.
    pub host_fallthrough: Option<bool>,
    /// Server certificates, and verification of client certificates.
    pub tls: Option<Tls>,
    /// Obtains and renews certificates from a CA (ACME, RFC 8555). Default none: certificates are files.
    pub acme: Option<Acme>,
    /// Sizes and counts; traffic beyond them is rejected.
    pub limits: Option<Limits>,
    /// Overload protection.
    pub overload: Option<Overload>,
    /// Timeouts of client connections.
    pub client_timeouts: Option<ClientTimeouts>,
    /// Addresses and CIDR blocks of trusted proxies. Their forwarding headers (`Forwarded`, `X-Forwarded-*`,
    /// `X-Real-IP`, `Client-Cert`), PROXY protocol headers and client address (`real_ip_header`) are used and
    /// forwarded; those of other clients are removed. Default none.
    #[schemars(length(max = 1000))]
    pub trusted_proxies: Option<Vec<String>>,
    /// Header field in which trusted proxies report the client: `X-Forwarded-For`, `Forwarded` (RFC 7239), or another
    /// with an address or a list of them, such as `X-Real-IP` or `CF-Connecting-IP`. The rightmost address that is not
    /// a trusted proxy's counts. The gateway reads only this field, and removes it from clients that are not trusted.
    /// Default `X-Forwarded-For`.
    #[schemars(length(min = 1, max = 100))]
    pub real_ip_header: Option<String>,
    /// Adds `Forwarded` (RFC 7239) to `X-Forwarded-*`. Default false.
    pub forwarded_header: Option<bool>,
    /// Adds `Via` with this pseudonym and a mark of the proxy. A request that returns to the same proxy gets 508.
    /// Default `ferrum-edge`; an empty text adds none and disables the detection of loops.
    #[schemars(length(max = 255))]
    pub via: Option<String>,
    /// Codes of warnings to suppress, such as `target_unverified`. Default none.
    #[schemars(length(max = 100))]
    pub silence_warnings: Option<Vec<String>>,
    /// Host names by which the admin API may be reached on a loopback address, in addition to addresses and
    /// `localhost`. They protect it from DNS rebinding by web pages. Default none.
    #[schemars(length(max = 100))]
    pub admin_hosts: Option<Vec<String>>,
    /// Treats consecutive slashes in a path as one. Default true; false routes and forwards them unchanged.
    pub merge_slashes: Option<bool>,
    /// Redis and Valkey servers by name; plugins refer to them with `redis: {name: NAME}`. Default none.
    #[schemars(length(max = 64))]
    pub redis: Option<BTreeMap<String, Redis>>,
    /// Pushes metrics, in addition to `/metrics`. Default off.
    pub metrics: Option<Metrics>,
    /// Writes an access record for each exchange and session. Default off.
    pub access_log: Option<AccessLog>,
    /// File for an entry about each change and each rejected attempt, or `-` for standard output. Hashes chain the
    /// entries. Default none; in database mode, the database contains them.
    #[schemars(length(min = 1))]
    pub audit_log: Option<String>,
    /// How long a drain waits for exchanges to end before it closes them. Default 30s.
    #[schemars(range(max = 86_400))]
    pub drain_timeout: Option<Seconds>,
    /// Whether a drain closes TCP streams and WebSockets, or waits for them. Default `close`.
    pub drain_streams: Option<DrainStreams>,
    /// Interval at which the gateway ends long exchanges whose authorization was revoked: WebSockets, event streams,
    /// TCP streams, and responses of unknown length to authenticated callers, such as gRPC calls. Authorization is
    /// revoked if the proxy or the consumer is deleted, the consumer loses a credential or changes groups, the token's
    /// `jti` is revoked, or the login of `oidc` ends. Default 30s; 0 disables it.
    #[schemars(range(max = 86_400))]
    pub session_check: Option<Seconds>,
    /// Requires a PROXY protocol header (version 1 or 2) on every http and https connection, from trusted proxies only;
    /// other connections are closed. Not together with `http3`. Default false.
    pub accept_proxy_protocol: Option<bool>,
    /// What happens to clients' header fields with underscores in their names, which many servers treat like hyphens.
    /// Default `drop`.
    pub underscores_in_headers: Option<UnderscoresInHeaders>,
    /// Cases in which `/readyz` answers 503, in addition to start and drain. `[]` disables them. Default
    /// `[all_proxies_closed, overloaded]`.
    #[schemars(length(max = 5))]
    pub not_ready_when: Option<Vec<NotReady>>,
}

/// A case in which the gateway is not ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotReady {
    /// Every proxy is closed, by a configuration error or because its port is in use.
    AllProxiesClosed,
    /// At least one proxy is closed.
    AnyProxyClosed,
    /// The gateway is overloaded and rejects all proxies except those of high priority.
    Overloaded,
    /// Every upstream with health checks has only unhealthy targets.
    NoHealthyTarget,
    /// The database or the control plane is unreachable.
    SourceUnreachable,
}

/// Whether a drain closes TCP streams and WebSockets, or waits for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DrainStreams {
    /// WebSockets are closed with 1001 at once; streams are closed after `drain_timeout`.
    Close,
    /// They stay open until the client or the target closes them, and the process ends with the last one.
    /// `drain_timeout` applies to exchanges only.
    Wait,
}

/// What happens to header fields with underscores in their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnderscoresInHeaders {
    /// They are removed before the request is processed.
    Drop,
    /// They pass, except names that resemble identity or forwarding fields.
    Allow,
    /// The request is rejected with 400.
    Reject,
}

/// A listener: `off`, a port, an address with a port, or both separately.
///
/// Port 0 disables it; an address that ends in `:0` uses any free port.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Listener {
    /// A port on every address; 0 disables it.
    Port(#[schemars(range(max = 65535))] u32),
    /// `off`, or an address with a port such as `127.0.0.1:8000`.
    Address(String),
    /// Address and port separately.
    Parts(ListenerParts),
}

/// An address and a port, each with the default if it is missing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListenerParts {
    /// An address such as `0.0.0.0` or `::1`, or one with a port.
    pub address: Option<String>,
    /// 1–65535; 0 disables it.
    #[schemars(range(max = 65535))]
    pub port: Option<u32>,
}

/// Server certificates, and verification of client certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    /// Certificates, selected by server name (SNI); the first is the default for other names. Default none: no https.
    #[schemars(length(max = 10_000))]
    pub certificates: Option<Vec<Certificate>>,
    /// PEM file of the roots for client certificates. Default: the gateway requests none.
    #[schemars(length(min = 1, max = 4096))]
    pub client_ca_path: Option<String>,
    /// PEM file, or folder of such files, with the revocation lists (CRLs) for client certificates: one for each
    /// issuing and intermediate CA. The gateway rejects a certificate that is on a list, whose issuer has no list, or
    /// whose issuer's list has expired (`nextUpdate`). A list that is unreadable or expired makes the configuration
    /// invalid; changed files are read again. Default: revocation is not checked.
    #[schemars(length(min = 1, max = 4096))]
    pub client_crl_path: Option<String>,
    /// Rejects clients without a certificate. Default true if `client_ca_path` is given.
    pub client_cert_required: Option<bool>,
    /// Lowest TLS version. Default `"1.2"`.
    pub min_version: Option<TlsVersion>,
    /// Accepts TLS 1.3 early data (0-RTT) over TCP and HTTP/3. GET, HEAD and OPTIONS without a body are processed at
    /// once and marked `Early-Data: 1`, others wait for the handshake (RFC 8470). Not together with `client_ca_path`.
    /// Default false.
    pub early_data: Option<bool>,
}

/// Certificate of the admin API, and verification of client certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdminTls {
    /// PEM file of the chain, leaf first. Required.
    #[schemars(length(min = 1, max = 4096))]
    pub cert_path: Option<String>,
    /// PEM file of the private key. Required.
    #[schemars(length(min = 1, max = 4096))]
    pub key_path: Option<String>,
    /// PEM file of the roots for client certificates; clients without one are rejected. Default: the gateway requests
    /// none.
    #[schemars(length(min = 1, max = 4096))]
    pub client_ca_path: Option<String>,
    /// PEM file, or folder of such files, with the revocation lists (CRLs), as in `gateway.tls.client_crl_path`.
    /// Default none.
    #[schemars(length(min = 1, max = 4096))]
    pub client_crl_path: Option<String>,
}

/// A certificate and its key: two files, or names for which the gateway obtains one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Certificate {
    /// PEM file of the chain, leaf first. Required without `acme`.
    #[schemars(length(min = 1, max = 4096))]
    pub cert_path: Option<String>,
    /// PEM file of the key. Required without `acme`.
    #[schemars(length(min = 1, max = 4096))]
    pub key_path: Option<String>,
    /// Names of a certificate from `gateway.acme`, instead of files: up to 100 DNS names, no wildcards. Until it is
    /// issued, TLS handshakes for these names fail.
    #[schemars(length(min = 1, max = 100))]
    pub acme: Option<Vec<String>>,
}

/// TLS version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum TlsVersion {
    /// RFC 5246.
    #[serde(rename = "1.2")]
    Tls12,
    /// RFC 8446.
    #[serde(rename = "1.3")]
    Tls13,
}

/// Sizes and counts; traffic beyond them is rejected or waits in a bounded queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Open client connections. Default 100000.
    #[schemars(range(min = 1))]
    pub max_connections: Option<usize>,
    /// Size of request line and headers together; larger ones get 431. Default 32KiB.
    #[schemars(range(min = 1024, max = 16_777_216))]
    pub max_header_size: Option<Bytes>,
    /// Header fields of a message; more get 431. Default 100.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_headers: Option<usize>,
    /// Size of a request target; a larger one gets 414. Default 8KiB.
    #[schemars(range(min = 64, max = 1_048_576))]
    pub max_uri: Option<Bytes>,
    /// Size of a request body; a larger one gets 413. Default 100MiB; 0 disables the limit.
    pub max_request_body: Option<Bytes>,
    /// Memory for bodies that plugins buffer, over all requests; a request that needs more gets 503. Default 256 MiB.
    pub max_collected_body: Option<Bytes>,
    /// Concurrent streams on one HTTP/2 or HTTP/3 connection. Default 128.
    #[schemars(range(min = 1, max = 65_536))]
    pub max_concurrent_streams: Option<u32>,
    /// Exchanges in flight; more get 503. Default 0: no limit.
    pub max_requests: Option<usize>,
    /// Kernel send buffer of a client's TCP connection, which a slow client fills in addition to the gateway's own
    /// buffers. Needs a restart. Default 256 KiB; 0 uses the system's limit.
    #[schemars(range(max = 1_073_741_824))]
    pub max_unsent: Option<Bytes>,
}

/// Overload protection. At 85 % of a limit, the gateway closes idle connections; at 92 %, it rejects proxies with
/// `load_priority: low` with 503; at 97 %, all except those with `high`. Below that, it recovers by itself. File
/// descriptors are monitored, too.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Overload {
    /// Memory that the gateway may use (resident, without pages of files). Default the memory limit of its cgroup, if
    /// there is one; 0 disables the limit.
    pub max_memory: Option<Bytes>,
    /// Longest delay until a worker starts new work; beyond it `low` is rejected, beyond twice as much `normal`.
    /// Default 0: disabled.
    #[schemars(range(max = 60))]
    pub max_delay: Option<Millis>,
}

/// Timeouts of client connections.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientTimeouts {
    /// Time from a request's first byte to the end of its headers; a slower request gets 408. Default 10s; 0 disables
    /// it.
    #[schemars(range(max = 86_400))]
    pub header: Option<Millis>,
    /// How long a connection may be idle between two exchanges. Default 75s; 0 disables it.
    #[schemars(range(max = 86_400))]
    pub keep_alive: Option<Millis>,
    /// Time between two reads of a request body, or two writes of a response. Default 1m; 0 disables it.
    #[schemars(range(max = 86_400))]
    pub body: Option<Millis>,
    /// Time for a TLS or DTLS handshake; DTLS has at most four minutes. Default 10s; 0 disables it.
    #[schemars(range(max = 86_400))]
    pub handshake: Option<Millis>,
}

/// Destinations of access records.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AccessLog {
    /// File for every record as a JSON line, or `-` for standard output. Required if there are no `sinks`.
    #[schemars(length(min = 1, max = 4096))]
    pub path: Option<String>,
    /// Queued records; further ones are dropped and counted. Default 8192.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub queue: Option<usize>,
    /// Further destinations, each with its own format, filter and queue. Default none.
    #[schemars(length(max = 32))]
    pub sinks: Option<Vec<LogSink>>,
}
