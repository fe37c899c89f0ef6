//! An upstream as written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::condition::written::TextMatch;
use crate::units::{Millis, Seconds};

/// A named group of targets, and how the gateway balances them.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Upstream {
    /// Unique among upstreams: 1–254 letters, digits, `.`, `_` and `-`, beginning with a letter or digit. Required.
    #[schemars(length(max = 254))]
    pub id: Option<String>,
    /// Display name; unique if given.
    #[schemars(length(max = 255))]
    pub name: Option<String>,
    /// The targets; at least one.
    #[schemars(length(max = 1000))]
    pub targets: Vec<Target>,
    /// Balancing algorithm. Default `round_robin`; `weighted_round_robin` if a target is a service.
    pub algorithm: Option<Algorithm>,
    /// What `consistent_hashing` and `maglev` hash: `ip`, `header:<name>` or `cookie:<name>`. Default `ip`.
    #[schemars(length(max = 255))]
    pub hash_on: Option<String>,
    /// Cookie for clients without one, with `hash_on: cookie:<name>`. Default: none is set.
    pub hash_on_cookie_config: Option<CookieConfig>,
    /// Keeps each client at its first target, by a cookie that names the target. Not together with `algorithm:
    /// consistent_hashing` or `maglev`. Default no cookie.
    pub sticky: Option<Sticky>,
    /// Time until a recovered or new target gets its full share of traffic, beginning with a tenth. Not together with
    /// `algorithm: consistent_hashing` or `maglev`. Default 0: at once.
    #[schemars(range(max = 3600))]
    pub slow_start: Option<Seconds>,
    /// Panic threshold: if fewer than this percentage of targets are healthy, all targets get traffic, so that the
    /// healthy ones are not overloaded. Default 0: unhealthy targets get traffic only if none is healthy.
    #[schemars(range(max = 100))]
    pub panic_threshold_percent: Option<u8>,
    /// Queue for requests while every target is at its `max_requests` or `max_connections`. Default: they are rejected
    /// with 503.
    pub queue: Option<Queue>,
    /// Health checks. Default: three failed connections or broken exchanges within 10 seconds eject a target for 10
    /// seconds, if there are several targets.
    pub health_checks: Option<HealthChecks>,
    /// PEM file of the client certificate chain for the targets. This and the next four settings apply to every proxy
    /// with this upstream; the proxies must not set their own.
    #[schemars(length(min = 1, max = 4096))]
    pub backend_tls_client_cert_path: Option<String>,
    /// PEM file of that certificate's key.
    #[schemars(length(min = 1, max = 4096))]
    pub backend_tls_client_key_path: Option<String>,
    /// Verifies the targets' certificates. Default true; if false, anyone on the way to the target can read and change
    /// the traffic.
    pub backend_tls_verify_server_cert: Option<bool>,
    /// PEM file of the only trusted roots for the targets. Default the public roots.
    #[schemars(length(min = 1, max = 4096))]
    pub backend_tls_ca_path: Option<String>,
    /// Server name (SNI) for the targets, which their certificates must contain. Default each target's host.
    #[schemars(length(min = 1, max = 253))]
    pub backend_tls_server_name: Option<String>,
    /// Source address of connections and datagrams to the targets. This and the next four settings apply to every proxy
    /// with this upstream that does not set its own. Default the system's choice.
    #[schemars(length(min = 2, max = 45))]
    pub backend_source_address: Option<String>,
    /// Network interface for traffic to the targets. Default the system's choice.
    #[schemars(length(min = 1, max = 15))]
    pub backend_interface: Option<String>,
    /// Connects to the targets from the client's address (`IP_TRANSPARENT`); for stream proxies. Default false.
    pub backend_transparent: Option<bool>,
    /// How long a target may leave data unacknowledged (`TCP_USER_TIMEOUT`). Default the system's, about 15 minutes.
    #[schemars(range(min = 0.1, max = 86_400))]
    pub backend_tcp_user_timeout: Option<Millis>,
    /// Connects to the targets by Multipath TCP. Default false.
    pub backend_mptcp: Option<bool>,
}

/// One target of an upstream.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// A name or an address, a Unix socket (`unix:/run/app.sock`), or a service whose servers are found by DNS SRV
    /// records (`srv:_http._tcp.shop.example.com`). A service represents all its servers, at most 1000: their ports
    /// come from the records, their weights are multiplied by this target's, and their priorities are added to this
    /// target's. The gateway resolves it again when the TTL of the records ends, after 5 seconds to 5 minutes; if DNS
    /// fails, it keeps the previous servers.
    #[schemars(length(min = 1, max = 255))]
    pub host: String,
    /// 1–65535. Required, except for a Unix socket or a service, which have none.
    #[serde(default)]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u32>,
    /// Share of traffic, 0–65535. 0 drains the target: open sessions and clients with a `sticky` cookie stay, new
    /// clients use other targets. At least one target of an upstream needs a weight above 0. Default 1.
    #[serde(default)]
    #[schemars(range(max = 65535))]
    pub weight: Option<u32>,
    /// Gets traffic only if no healthy target has a lower value: 1 is a backup of 0. Default 0.
    #[serde(default)]
    #[schemars(range(max = 15))]
    pub priority: Option<u8>,
    /// Concurrent requests and sessions, over all workers. Default no limit.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_requests: Option<u32>,
    /// Connections, over all workers: those in use, idle ones, and those being opened. An idle one is closed if another
    /// worker needs its place. Further HTTP/1.1 requests use other targets, wait in the `queue`, or are rejected with
    /// 503; those of HTTP/2 and HTTP/3 share connections, and wait for a stream. Each worker has its own shared
    /// connections, so allow at least as many as there are `workers`. A TCP stream, a WebSocket, and a UDP or DTLS
    /// session use one connection each. Health checks do not count. Default no limit.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_connections: Option<u32>,
    /// Replaces the proxy's `backend_path`.
    #[serde(default)]
    #[schemars(length(max = 2048))]
    pub path: Option<String>,
    /// Tags for a proxy's `backend_tags`; at most 50.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
}

/// Balancing algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// Each target in turn.
    RoundRobin,
    /// In turn by weight, smoothly interleaved.
    WeightedRoundRobin,
    /// The target with the fewest exchanges in flight, by weight.
    LeastConnections,
    /// The target with the lowest recent latency.
    LeastLatency,
    /// By a hash ring; few keys move when targets change.
    ConsistentHashing,
    /// By a table of 65,537 slots. Shares follow the weights more closely than with `consistent_hashing`, and a pick
    /// takes one lookup; a few more keys move when targets change.
    Maglev,
    /// A random target.
    Random,
    /// The less busy of two random targets.
    PowerOfTwo,
}

/// Cookie that keeps a client at its target.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CookieConfig {
    /// Default `/`.
    #[schemars(length(max = 255))]
    pub path: Option<String>,
    /// `Max-Age`. Default 1h; 0 ends with the browser's session.
    pub ttl: Option<Seconds>,
    /// `Domain`. Default none: the requested host.
    #[schemars(length(max = 253))]
    pub domain: Option<String>,
    /// `HttpOnly`. Default true.
    pub http_only: Option<bool>,
    /// `Secure`. Default: true for clients that use TLS, also if a trusted proxy terminates it.
    pub secure: Option<bool>,
    /// `SameSite`. Default: not set.
    pub same_site: Option<SameSite>,
}

/// Value of `SameSite`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum SameSite {
    /// None.
    Strict,
    /// Navigations.
    Lax,
    /// All; browsers take it over TLS only.
    None,
}

/// Cookie that names a client's target.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sticky {
    /// Name of the cookie.
    #[schemars(length(min = 1, max = 255))]
    pub cookie: String,
    /// Attributes of the cookie.
    #[serde(default)]
    pub cookie_config: CookieConfig,
}

/// Queue for requests that wait for a target.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// Requests and sessions in the queue; more are rejected with 503.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_waiting: u32,
    /// How long a request waits before it is rejected with 503. Default 1s.
    #[serde(default)]
    #[schemars(range(min = 0.001, max = 600))]
    pub timeout: Option<Millis>,
}

/// Health checks.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HealthChecks {
    /// Active health checks. Default none.
    pub active: Option<ActiveHealth>,
    /// Passive health checks. Default: three failed connections or broken exchanges within 10 seconds eject a target
    /// for 10 seconds, if there are several targets.
    pub passive: Option<PassiveHealth>,
}

/// Active health checks.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ActiveHealth {
    /// Kind of probe. Default `http`.
    pub probe_type: Option<ProbeType>,
    /// Path for `http`, default `/health`, and for `fastcgi`, default `/ping`.
    #[schemars(length(max = 2048))]
    pub http_path: Option<String>,
    /// Interval of probes. Default 10s.
    #[schemars(range(min = 1, max = 86_400))]
    pub interval: Option<Seconds>,
    /// Time limit for a probe. Default 5s.
    #[schemars(range(min = 0.001, max = 300))]
    pub timeout: Option<Millis>,
    /// Successful probes until the target is healthy again. Default 3.
    #[schemars(range(min = 1, max = 10_000))]
    pub healthy_threshold: Option<u32>,
    /// Failed probes until the target is unhealthy. Default 3.
    #[schemars(range(min = 1, max = 10_000))]
    pub unhealthy_threshold: Option<u32>,
    /// Statuses of successful probes: for `http`, default 200 and 302; for `fastcgi`, default 200.
    #[schemars(length(max = 50), inner(range(min = 100, max = 599)))]
    pub healthy_status_codes: Option<Vec<u16>>,
    /// Probes over TLS: `http`, `grpc`, `tcp` and `redis`. Default false.
    pub use_tls: Option<bool>,
    /// Text that `tcp` and `udp` send after connecting. Default nothing, or an empty datagram.
    #[schemars(length(min = 1, max = 4096), extend("contentMediaType" = "text/plain"))]
    pub send: Option<String>,
    /// Expected response for `tcp` and `udp`, of which 4 KiB are read: a text, or a map such as `{prefix: "+PONG"}`.
    /// Default: `tcp` expects no response, `udp` any.
    pub expect: Option<TextMatch>,
    /// Binary payload for `udp`, in hexadecimal. Not together with `send`.
    #[schemars(length(max = 2048))]
    pub udp_probe_payload: Option<String>,
    /// Service for `grpc`. Default empty: the whole server.
    #[schemars(length(max = 255))]
    pub grpc_service_name: Option<String>,
}

/// Kind of probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProbeType {
    /// GET a path and check the status.
    Http,
    /// Open a connection; with `send` and `expect`, also exchange texts.
    Tcp,
    /// Send a datagram and wait for a response.
    Udp,
    /// `grpc.health.v1.Health/Check`.
    Grpc,
    /// Begin a PostgreSQL session as the user `ferrum-edge`, who need not exist: successful unless the server is
    /// starting, stopping, recovering or out of connections.
    Postgres,
    /// Read the greeting of a MySQL or MariaDB server. Servers count such connections: set `max_connect_errors` there high.
    Mysql,
    /// `PING` a Redis or Valkey server: successful unless it is loading or has lost its master.
    Redis,
    /// GET the status page of a FastCGI server, such as `ping.path` of PHP-FPM, and check the status.
    FastCgi,
}

/// Passive health checks.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PassiveHealth {
    /// Statuses that count as failures. Default 500 502 503 504. For gRPC calls, see `retryable_status_codes` of a
    /// proxy.
    #[schemars(length(max = 50), inner(range(min = 100, max = 599)))]
    pub unhealthy_status_codes: Option<Vec<u16>>,
    /// Failures within the window until the target is ejected. Default 3; 0 never ejects one.
    #[schemars(range(max = 10_000))]
    pub unhealthy_threshold: Option<u32>,
    /// Window in which failures count. Default 30s.
    #[schemars(range(min = 1, max = 86_400))]
    pub unhealthy_window: Option<Seconds>,
    /// Time until an ejected target is tried again: twice as long after the second ejection in a row, three times after
    /// the third, and so on. Default 30s; 0 waits for an active probe.
    #[schemars(range(max = 86_400))]
    pub healthy_after: Option<Seconds>,
    /// Longest time until it is tried again. Default 5m.
    #[schemars(range(min = 1, max = 86_400))]
    pub healthy_after_max: Option<Seconds>,
    /// Share of targets that may be ejected at the same time, in percent, rounded up. Default 100.
    #[schemars(range(min = 1, max = 100))]
    pub max_ejected_percent: Option<u8>,
}
