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

/// What holds for the gateway as a whole.
///
/// Each setting also has an environment variable, which goes before the file, and some have a flag, which goes before
/// both. Listeners and workers are read at start; the rest follows a reload.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Gateway {
    /// Where plain HTTP is taken. Default `0.0.0.0:8000`.
    pub http: Option<Listener>,
    /// Where HTTP over TLS is taken, once a certificate is given. Default `0.0.0.0:8443`.
    pub https: Option<Listener>,
    /// Serves HTTP/3 on the https port. Default false.
    pub http3: Option<bool>,
    /// Where the admin API listens. Default `127.0.0.1:9000`: this machine only.
    pub admin: Option<Listener>,
    /// Serves the admin API over TLS. Default plain HTTP.
    pub admin_tls: Option<AdminTls>,
    /// A Unix socket on which the admin API is served, too; only the gateway's user may connect to it. Default none.
    #[schemars(length(min = 1, max = 100))]
    pub admin_socket: Option<String>,
    /// `/metrics`, `/v1/status` and `/v1/openapi.json` need a token with the role read; health does not. Default false.
    pub admin_require_token: Option<bool>,
    /// Serves the console below `/console/` of the admin API. Default true, in programs that were built with it.
    pub admin_console: Option<bool>,
    /// Users of the database with these roles need a second factor to log in to the console: they have to enrol an authenticator
    /// app before anything else. Default none: it is for each user to choose.
    #[schemars(length(max = 3))]
    pub admin_totp_roles: Option<Vec<AdminRole>>,
    /// Lets the users of an OpenID provider log in to the console, with a role by their groups. Default none.
    pub admin_oidc: Option<AdminOidc>,
    /// Changes of the database's objects wait until another user approves them. Default none: changes take effect at once.
    pub admin_approval: Option<AdminApproval>,
    /// Further addresses on which plain HTTP is served, such as `[::1]:8000`. Default none.
    #[schemars(length(max = 16))]
    pub additional_http: Option<Vec<String>>,
    /// The congestion control for what clients are sent, such as `bbr`. TCP uses the kernel's, and a name that the kernel lacks is
    /// refused. HTTP/3 has `bbr`, `cubic` and `reno` of its own, and uses `cubic` for other names. Needs a restart. Default the
    /// system's for TCP, and `cubic` for HTTP/3.
    #[schemars(length(min = 1, max = 15))]
    pub congestion_control: Option<String>,
    /// Name servers that are asked instead of the system's, such as `127.0.0.1:8600` for Consul; port 53 where none is
    /// written. Names in `/etc/hosts` are looked up there first. Needs a restart. Default the system's.
    #[schemars(length(max = 8))]
    pub dns_servers: Option<Vec<String>>,
    /// A Unix socket on which plain HTTP is served, too: HTTP/1.1, and HTTP/2 with prior knowledge. Its clients have the
    /// address 127.0.0.1. Needs a restart. Default none.
    #[schemars(length(min = 1, max = 100))]
    pub http_socket: Option<String>,
    /// Who may connect to that socket: the mode of its file in octal digits, such as `"0666"`. Default `"0660"`.
    pub http_socket_mode: Option<String>,
    /// Further addresses on which HTTP over TLS is served; HTTP/3 too on those with the port of `https`. Default none.
    #[schemars(length(max = 16))]
    pub additional_https: Option<Vec<String>>,
    /// Listens on ports on which another gateway of the same user listens, too, so that one can take the place of another
    /// without a gap: start the next, and stop the one before when the next is ready. Needs a restart. Default false: a port
    /// that is in use is refused.
    pub share_ports: Option<bool>,
    /// The address stream proxies listen on. Default `0.0.0.0`.
    pub stream_address: Option<String>,
    /// Threads that carry traffic. Default 0: one for each core the process may use.
    #[schemars(range(max = 1024))]
    pub workers: Option<usize>,
    /// Lets a request that no proxy of its host takes go on to those of the next wider host pattern, and at last to those
    /// for any host. Default false: a host that has proxies of its own is answered by them alone.
    pub host_fallthrough: Option<bool>,
    /// Certificates shown to clients, and what is asked of theirs.
    pub tls: Option<Tls>,
    /// Gets and renews certificates from a CA by itself (ACME, RFC 8555). Default none: certificates come from files.
    pub acme: Option<Acme>,
    /// Sizes and counts; traffic beyond them is refused.
    pub limits: Option<Limits>,
    /// When load is shed.
    pub overload: Option<Overload>,
    /// Timeouts on the client's side.
    pub client_timeouts: Option<ClientTimeouts>,
    /// Addresses and CIDR blocks whose forwarding headers (`Forwarded`, `X-Forwarded-*`, `X-Real-IP`, `Client-Cert`) are
    /// passed on, and whose PROXY protocol headers and word about the client (`real_ip_header`) are believed; those of others
    /// are removed. Default none.
    #[schemars(length(max = 1000))]
    pub trusted_proxies: Option<Vec<String>>,
    /// The header field in which trusted proxies name the client: `X-Forwarded-For`, `Forwarded` (RFC 7239), or another with
    /// an address or a list of them, such as `X-Real-IP` or `CF-Connecting-IP`. The rightmost address that is not a trusted
    /// proxy's counts. Only this one is looked at, and of clients that are not trusted it is removed. Default
    /// `X-Forwarded-For`.
    #[schemars(length(min = 1, max = 100))]
    pub real_ip_header: Option<String>,
    /// Adds RFC 7239 `Forwarded` beside `X-Forwarded-*`. Default false.
    pub forwarded_header: Option<bool>,
    /// Adds `Via` with this pseudonym and a mark of the proxy, by which a request that comes back to the same proxy is
    /// refused with 508. Default `ferrum-edge`; empty adds none, and loops are not seen.
    #[schemars(length(max = 255))]
    pub via: Option<String>,
    /// Codes of warnings that are not given, such as `target_unverified`. Default none.
    #[schemars(length(max = 100))]
    pub silence_warnings: Option<Vec<String>>,
    /// Names by which the admin API may be asked while it listens on a loopback address, beside addresses and `localhost`:
    /// a page that a browser shows could use any other. Default none.
    #[schemars(length(max = 100))]
    pub admin_hosts: Option<Vec<String>>,
    /// Takes several slashes in a row in a path for one. Default true; false routes and forwards them as they are.
    pub merge_slashes: Option<bool>,
    /// Redis and Valkey servers by the name that plugins refer to, as in `redis: {name: NAME}`. Default none.
    #[schemars(length(max = 64))]
    pub redis: Option<BTreeMap<String, Redis>>,
    /// Pushes metrics, besides what `/metrics` answers. Default off.
    pub metrics: Option<Metrics>,
    /// Writes a line for each exchange and session. Default off.
    pub access_log: Option<AccessLog>,
    /// Writes an entry for each change and each refused attempt at one to this file, or `-` for standard output. Entries
    /// are chained by hashes. Default none; in database mode the database has them.
    #[schemars(length(min = 1))]
    pub audit_log: Option<String>,
    /// How long a drain waits for exchanges to end before it cuts them off. Default 30s.
    #[schemars(range(max = 86_400))]
    pub drain_timeout: Option<Seconds>,
    /// Whether a drain closes TCP streams and WebSockets or waits for them. Default `close`.
    pub drain_streams: Option<DrainStreams>,
    /// Time after which WebSockets, event streams and TCP streams, and other answers without a length to
    /// recognised callers (gRPC calls among them), are ended at the latest when they were admitted by what no
    /// longer holds: their proxy was deleted; the consumer was deleted, lost a credential or changed groups;
    /// the `jti` of the token was revoked; the login of `oidc` came to its end. Default 30s; 0 lets them go on.
    #[schemars(range(max = 86_400))]
    pub session_check: Option<Seconds>,
    /// Requires a PROXY protocol header (version 1 or 2) on every http and https connection, from trusted proxies only;
    /// others are closed. Not together with `http3`. Default false.
    pub accept_proxy_protocol: Option<bool>,
    /// What becomes of clients' header fields with underscores in their names, which many servers take for the same
    /// names with hyphens. Default `drop`.
    pub underscores_in_headers: Option<UnderscoresInHeaders>,
    /// When `/readyz` answers 503, besides while the gateway starts or drains. `[]` is never. Default
    /// `[all_proxies_closed, overloaded]`.
    #[schemars(length(max = 5))]
    pub not_ready_when: Option<Vec<NotReady>>,
}

/// A reason to send traffic elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotReady {
    /// Every proxy is closed by an error in its configuration, or by a port that is in use.
    AllProxiesClosed,
    /// At least one proxy is closed.
    AnyProxyClosed,
    /// The gateway is overloaded and refuses all proxies but those of high priority.
    Overloaded,
    /// Every upstream with health checks has only unhealthy targets.
    NoHealthyTarget,
    /// The database or the control plane does not answer.
    SourceUnreachable,
}

/// Whether a drain closes TCP streams and WebSockets or waits for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DrainStreams {
    /// WebSockets are closed with 1001 at once; streams are cut off at the end of `drain_timeout`.
    Close,
    /// They go on until one of their ends closes them, and the process ends with the last one. `drain_timeout` ends exchanges only.
    Wait,
}

/// What becomes of header fields with underscores in their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnderscoresInHeaders {
    /// They are removed before anything looks at the request.
    Drop,
    /// They pass, except those that could be taken for a field that says who or where the client is.
    Allow,
    /// The request is refused with 400.
    Reject,
}

/// Where to listen: `off`, a port, an address with a port, or the two apart.
///
/// A port of 0 is off; an address that ends in `:0` takes any free port.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Listener {
    /// A port on every address; 0 is off.
    Port(#[schemars(range(max = 65535))] u32),
    /// `off`, or an address with a port such as `127.0.0.1:8000`.
    Address(String),
    /// Address and port apart.
    Parts(ListenerParts),
}

/// An address and a port, each with the default's when not given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListenerParts {
    /// An address such as `0.0.0.0` or `::1`, or one with a port.
    pub address: Option<String>,
    /// 1–65535; 0 is off.
    #[schemars(range(max = 65535))]
    pub port: Option<u32>,
}

/// Certificates shown to clients, and what is asked of theirs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    /// Chosen by the name a client asks for (SNI); the first is for everybody else. Default none: no https.
    #[schemars(length(max = 10_000))]
    pub certificates: Option<Vec<Certificate>>,
    /// PEM file of the roots that client certificates are checked against. Default none are asked for.
    #[schemars(length(min = 1, max = 4096))]
    pub client_ca_path: Option<String>,
    /// PEM file, or folder of such files, with the revocation lists (CRLs) for client certificates: one for each CA that issues
    /// them or is between those and the roots. Refused are certificates that are on a list, those whose issuer has none, and, once a
    /// list has ended (`nextUpdate`), all of its issuer's. Lists that can't be read or have ended refuse the
    /// configuration; changed files are read again. Default no certificate is taken for revoked.
    #[schemars(length(min = 1, max = 4096))]
    pub client_crl_path: Option<String>,
    /// Refuses clients without a certificate. Default true when `client_ca_path` is given.
    pub client_cert_required: Option<bool>,
    /// The lowest version spoken. Default `"1.2"`.
    pub min_version: Option<TlsVersion>,
    /// Takes requests of clients that come back before their handshake is over (TLS 1.3 early data, 0-RTT), over TCP and
    /// HTTP/3: GET, HEAD and OPTIONS without a body are carried out at once and marked `Early-Data: 1`, others wait for
    /// the handshake (RFC 8470). Not together with `client_ca_path`. Default false.
    pub early_data: Option<bool>,
}

/// The certificate of the admin API, and what is asked of its clients'.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdminTls {
    /// PEM file of the chain, leaf first. Required.
    #[schemars(length(min = 1, max = 4096))]
    pub cert_path: Option<String>,
    /// PEM file of the private key. Required.
    #[schemars(length(min = 1, max = 4096))]
    pub key_path: Option<String>,
    /// PEM file of the roots that clients' certificates are checked against; clients without one are refused. Default
    /// none are asked for.
    #[schemars(length(min = 1, max = 4096))]
    pub client_ca_path: Option<String>,
    /// PEM file, or folder of such files, with the revocation lists (CRLs) that they are checked against, as those of
    /// `gateway.tls.client_crl_path`. Default none.
    #[schemars(length(min = 1, max = 4096))]
    pub client_crl_path: Option<String>,
}

/// A certificate and its key: two files, or names for which the gateway gets one by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Certificate {
    /// PEM file of the chain, leaf first. Required without `acme`.
    #[schemars(length(min = 1, max = 4096))]
    pub cert_path: Option<String>,
    /// PEM file of the key. Required without `acme`.
    #[schemars(length(min = 1, max = 4096))]
    pub key_path: Option<String>,
    /// The names of a certificate that the gateway gets from `gateway.acme`, in the place of files: up to 100 DNS names, no
    /// wildcards. Until it is there, TLS handshakes for these names are refused.
    #[schemars(length(min = 1, max = 100))]
    pub acme: Option<Vec<String>>,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum TlsVersion {
    /// RFC 5246.
    #[serde(rename = "1.2")]
    Tls12,
    /// RFC 8446.
    #[serde(rename = "1.3")]
    Tls13,
}

/// Sizes and counts; traffic beyond them is refused, never queued without bound.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Open client connections. Default 100000.
    #[schemars(range(min = 1))]
    pub max_connections: Option<usize>,
    /// Bytes of a request line and headers together; beyond it 431. Default 32KiB.
    #[schemars(range(min = 1024, max = 16_777_216))]
    pub max_header_size: Option<Bytes>,
    /// Header fields in one message; beyond it 431. Default 100.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_headers: Option<usize>,
    /// Bytes of a request target; beyond it 414. Default 8KiB.
    #[schemars(range(min = 64, max = 1_048_576))]
    pub max_uri: Option<Bytes>,
    /// Bytes of a request body; beyond it 413. Default 100MiB; 0 is no limit.
    pub max_request_body: Option<Bytes>,
    /// Bytes of bodies that plugins may hold in memory at one time, over all requests; beyond it a request that needs more
    /// is answered with 503. Default 256 MiB.
    pub max_collected_body: Option<Bytes>,
    /// Streams a client may have open on one HTTP/2 or HTTP/3 connection. Default 128.
    #[schemars(range(min = 1, max = 65_536))]
    pub max_concurrent_streams: Option<u32>,
    /// Exchanges in flight; beyond it 503. Default 0: no limit.
    pub max_requests: Option<usize>,
    /// Bytes the kernel takes for a client's TCP connection before it has sent them: what a client that reads slowly costs
    /// beside the gateway's own buffers. Needs a restart. Default 256 KiB; 0 is as much as the system allows.
    #[schemars(range(max = 1_073_741_824))]
    pub max_unsent: Option<Bytes>,
}

/// When load is shed. At 85 % of a limit idle connections are closed, at 92 % proxies with `load_priority: low` are refused
/// with 503, at 97 % all but those with `high`; below that the gateway recovers by itself. File descriptors are watched, too.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Overload {
    /// Bytes of memory that the gateway may use (resident, without the pages of files). Default the memory limit of its cgroup, where there is one; 0
    /// is no limit.
    pub max_memory: Option<Bytes>,
    /// How long a worker may take until it gets to new work; beyond it `low` is refused, beyond twice as much
    /// `normal`. Default 0: not looked at.
    #[schemars(range(max = 60))]
    pub max_delay: Option<Millis>,
}

/// Timeouts on the client's side.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientTimeouts {
    /// Time from a request's first byte to the end of its headers; then 408. Default 10s; 0 is off.
    #[schemars(range(max = 86_400))]
    pub header: Option<Millis>,
    /// How long a connection may be silent between two exchanges. Default 75s; 0 is off.
    #[schemars(range(max = 86_400))]
    pub keep_alive: Option<Millis>,
    /// Time between two reads of a request body or two writes of a response. Default 1m; 0 is off.
    #[schemars(range(max = 86_400))]
    pub body: Option<Millis>,
    /// Time for a TLS handshake, or one of DTLS, which has four minutes at most. Default 10s; 0 is off.
    #[schemars(range(max = 86_400))]
    pub handshake: Option<Millis>,
}

/// Where access records go, as JSON lines.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AccessLog {
    /// A file, or `-` for standard output, that gets every record as a JSON line. Required where there are no `sinks`.
    #[schemars(length(min = 1, max = 4096))]
    pub path: Option<String>,
    /// Records waiting to be written; beyond it they are dropped and counted. Default 8192.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub queue: Option<usize>,
    /// Further places that records go to, each with its own format, filter and queue. Default none.
    #[schemars(length(max = 32))]
    pub sinks: Option<Vec<LogSink>>,
}
