//! An upstream as written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::condition::written::TextMatch;
use crate::units::{Millis, Seconds};

/// A named group of targets and how one is picked.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Upstream {
    /// Unique among upstreams: 1–254 letters, digits, `.`, `_` and `-`, beginning with a letter or digit. Required.
    #[schemars(length(max = 254))]
    pub id: Option<String>,
    /// For people; unique when given.
    #[schemars(length(max = 255))]
    pub name: Option<String>,
    /// Where to. At least one.
    #[schemars(length(max = 1000))]
    pub targets: Vec<Target>,
    /// How one is picked. Default `round_robin`; `weighted_round_robin` where a service is among the targets.
    pub algorithm: Option<Algorithm>,
    /// What `consistent_hashing` and `maglev` hash: `ip`, `header:<name>` or `cookie:<name>`. Default `ip`.
    #[schemars(length(max = 255))]
    pub hash_on: Option<String>,
    /// The cookie given to clients that have none, with `hash_on: cookie:<name>`. Default none is given.
    pub hash_on_cookie_config: Option<CookieConfig>,
    /// Keeps each client at the target that answered it first, by a cookie that names the target. Not together with
    /// `algorithm: consistent_hashing` or `maglev`. Default no cookie.
    pub sticky: Option<Sticky>,
    /// Time until a target that recovered or was added gets its full share of traffic; it begins with a tenth.
    /// Not together with `algorithm: consistent_hashing` or `maglev`. Default 0: at once.
    #[schemars(range(max = 3600))]
    pub slow_start: Option<Seconds>,
    /// With fewer healthy targets than this percentage, all targets get traffic: better some errors than too much load on
    /// the few. Default 0: unhealthy targets get traffic only when none is healthy.
    #[schemars(range(max = 100))]
    pub panic_threshold_percent: Option<u8>,
    /// Where requests wait while every target is at its `max_requests` or `max_connections`. Default: they are refused with 503.
    pub queue: Option<Queue>,
    /// How to learn which targets work. Default: three failed connections or broken exchanges within 10 seconds take a
    /// target out for 10 seconds, where there are several.
    pub health_checks: Option<HealthChecks>,
    /// PEM file of the certificate chain shown to the targets. This and the four below are for each
    /// proxy with this upstream, which then has none of its own.
    #[schemars(length(min = 1, max = 4096))]
    pub backend_tls_client_cert_path: Option<String>,
    /// PEM file of that certificate's key.
    #[schemars(length(min = 1, max = 4096))]
    pub backend_tls_client_key_path: Option<String>,
    /// Checks the targets' certificates. Default true; false lets anybody between here and the target read along.
    pub backend_tls_verify_server_cert: Option<bool>,
    /// PEM file of the only roots trusted for the targets. Default the public roots.
    #[schemars(length(min = 1, max = 4096))]
    pub backend_tls_ca_path: Option<String>,
    /// The name sent to the targets and looked for in their certificates. Default each target's host.
    #[schemars(length(min = 1, max = 253))]
    pub backend_tls_server_name: Option<String>,
    /// The address of this machine from which the gateway connects to the targets. This and the four below are for each proxy with this
    /// upstream that does not write its own. Default the system's choice.
    #[schemars(length(min = 2, max = 45))]
    pub backend_source_address: Option<String>,
    /// The network interface through which the gateway reaches the targets. Default the system's choice.
    #[schemars(length(min = 1, max = 15))]
    pub backend_interface: Option<String>,
    /// Connects to the targets from the client's address (`IP_TRANSPARENT`); for stream proxies. Default false.
    pub backend_transparent: Option<bool>,
    /// How long sent data may stay unacknowledged by a target (`TCP_USER_TIMEOUT`). Default the system's, about 15 minutes.
    #[schemars(range(min = 0.1, max = 86_400))]
    pub backend_tcp_user_timeout: Option<Millis>,
    /// Connects to the targets by Multipath TCP. Default false.
    pub backend_mptcp: Option<bool>,
}

/// One member of an upstream.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// A name or an address, a Unix socket (`unix:/run/app.sock`), or a service whose servers are found by DNS SRV records
    /// (`srv:_http._tcp.shop.example.com`). A service stands for all its servers, at most 1000: their ports are the records',
    /// their weights are multiplied with this target's, and the records' priorities become those from this target's on. It is
    /// looked up again when the TTL of the records ends, after 5 seconds at the soonest and 5 minutes at the latest;
    /// while DNS fails, what was found before stays.
    #[schemars(length(min = 1, max = 255))]
    pub host: String,
    /// 1–65535. Required, but for a Unix socket or a service, which have none.
    #[serde(default)]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u32>,
    /// Share of traffic, 0–65535. 0 drains the target: open sessions and clients that a `sticky` cookie keeps there stay, new
    /// clients go to other targets. At least one target of an upstream has a weight above 0. Default 1.
    #[serde(default)]
    #[schemars(range(max = 65535))]
    pub weight: Option<u32>,
    /// Gets traffic only while no healthy target has a lower one: 1 is a backup of 0. Default 0.
    #[serde(default)]
    #[schemars(range(max = 15))]
    pub priority: Option<u8>,
    /// Requests and sessions it gets at a time, over all workers. Default no limit.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_requests: Option<u32>,
    /// Connections it has at a time, over all workers: those in use, those that wait for their next request, and those that are
    /// being made. An idle one makes room where another worker needs it. The requests of HTTP/1.1 beyond it go to other
    /// targets, wait in the `queue`, or are refused with 503; those of HTTP/2 and HTTP/3 share connections, and wait for
    /// room on them. Each worker has its own shared connections, so give at least as many as there are `workers`. A TCP
    /// stream and a WebSocket are one connection each, and so is a session of UDP or DTLS. Health checks are not counted.
    /// Default no limit.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_connections: Option<u32>,
    /// Replaces the proxy's `backend_path`.
    #[serde(default)]
    #[schemars(length(max = 2048))]
    pub path: Option<String>,
    /// What a proxy's `backend_tags` choose by; at most 50.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
}

/// How a target is picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// Each in turn.
    RoundRobin,
    /// In turn by weight, smoothly interleaved.
    WeightedRoundRobin,
    /// The one with fewest exchanges in flight, by weight.
    LeastConnections,
    /// The one that answered fastest of late.
    LeastLatency,
    /// The one the key hashes to; moves few keys when targets change.
    ConsistentHashing,
    /// The one that a table of 65,537 slots names for the key's hash. Shares follow the weights more closely than with
    /// `consistent_hashing`, and a pick costs one look-up; a few more keys move when targets change.
    Maglev,
    /// Any.
    Random,
    /// The less busy of two picked at random.
    PowerOfTwo,
}

/// The cookie that keeps a client at its target.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CookieConfig {
    /// Default `/`.
    #[schemars(length(max = 255))]
    pub path: Option<String>,
    /// How long the client keeps it. Default 1h; 0 ends with the browser's session.
    pub ttl: Option<Seconds>,
    /// Default none: the host that was asked.
    #[schemars(length(max = 253))]
    pub domain: Option<String>,
    /// Hidden from scripts. Default true.
    pub http_only: Option<bool>,
    /// Browsers send it over TLS only. Default: true for clients that use TLS, also where a trusted proxy ends it.
    pub secure: Option<bool>,
    /// Default not said.
    pub same_site: Option<SameSite>,
}

/// With which requests from other sites the cookie is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum SameSite {
    /// None.
    Strict,
    /// Navigations.
    Lax,
    /// All; browsers take it over TLS only.
    None,
}

/// A cookie that names a client's target.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sticky {
    /// The cookie's name.
    #[schemars(length(min = 1, max = 255))]
    pub cookie: String,
    /// How the client is to treat it.
    #[serde(default)]
    pub cookie_config: CookieConfig,
}

/// Where requests wait for a target.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// Requests and sessions that wait at a time; more are refused with 503.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_waiting: u32,
    /// How long one waits before it is refused with 503. Default 1s.
    #[serde(default)]
    #[schemars(range(min = 0.001, max = 600))]
    pub timeout: Option<Millis>,
}

/// How to learn which targets work.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HealthChecks {
    /// Asks targets how they are. Default not.
    pub active: Option<ActiveHealth>,
    /// Learns from traffic. Default: three failed connections or broken exchanges within 10 seconds take a target out for
    /// 10 seconds, where there are several.
    pub passive: Option<PassiveHealth>,
}

/// Asking targets how they are.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ActiveHealth {
    /// How to ask. Default `http`.
    pub probe_type: Option<ProbeType>,
    /// The path asked for by `http`, default `/health`, and by `fastcgi`, default `/ping`.
    #[schemars(length(max = 2048))]
    pub http_path: Option<String>,
    /// Time from one probe to the next. Default 10s.
    #[schemars(range(min = 1, max = 86_400))]
    pub interval: Option<Seconds>,
    /// Time for one probe. Default 5s.
    #[schemars(range(min = 0.001, max = 300))]
    pub timeout: Option<Millis>,
    /// Good answers until healthy again. Default 3.
    #[schemars(range(min = 1, max = 10_000))]
    pub healthy_threshold: Option<u32>,
    /// Bad answers until unhealthy. Default 3.
    #[schemars(range(min = 1, max = 10_000))]
    pub unhealthy_threshold: Option<u32>,
    /// Statuses that `http` takes for good, default 200 and 302, and `fastcgi`, default 200.
    #[schemars(length(max = 50), inner(range(min = 100, max = 599)))]
    pub healthy_status_codes: Option<Vec<u16>>,
    /// Asks over TLS: `http`, `grpc`, `tcp` and `redis`. Default false.
    pub use_tls: Option<bool>,
    /// What `tcp` and `udp` send once connected, as text. Default nothing, or an empty datagram.
    #[schemars(length(min = 1, max = 4096), extend("contentMediaType" = "text/plain"))]
    pub send: Option<String>,
    /// What the answer of `tcp` and `udp` has to be, of which 4 KiB are read: a text, or a map such as `{prefix: "+PONG"}`. Default: `tcp`
    /// waits for no answer, `udp` for any.
    pub expect: Option<TextMatch>,
    /// What `udp` sends, in hexadecimal, for what is no text. Not together with `send`.
    #[schemars(length(max = 2048))]
    pub udp_probe_payload: Option<String>,
    /// The service `grpc` asks for. Default empty: the server as a whole.
    #[schemars(length(max = 255))]
    pub grpc_service_name: Option<String>,
}

/// How a target is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProbeType {
    /// GET a path and look at the status.
    Http,
    /// Open a connection; with `send` and `expect`, talk as well.
    Tcp,
    /// Send a datagram and wait for an answer.
    Udp,
    /// `grpc.health.v1.Health/Check`.
    Grpc,
    /// Begin a PostgreSQL session as the user `ferrum-edge`, who need not exist: good unless the server is starting, stopping, recovering
    /// or out of connections.
    Postgres,
    /// Read the greeting of a MySQL or MariaDB server. Servers count such connections: set `max_connect_errors` there high.
    Mysql,
    /// `PING` a Redis or Valkey server: good unless it is loading or has lost its master.
    Redis,
    /// GET a page of a FastCGI server's own, such as `ping.path` of PHP-FPM, and look at the status.
    FastCgi,
}

/// Learning from traffic how targets are.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PassiveHealth {
    /// Statuses that count as failure. Default 500 502 503 504. gRPC calls count as for `retryable_status_codes` of a proxy.
    #[schemars(length(max = 50), inner(range(min = 100, max = 599)))]
    pub unhealthy_status_codes: Option<Vec<u16>>,
    /// Failures within the window until unhealthy. Default 3; 0 never takes a target out.
    #[schemars(range(max = 10_000))]
    pub unhealthy_threshold: Option<u32>,
    /// The time in which those failures count. Default 30s.
    #[schemars(range(min = 1, max = 86_400))]
    pub unhealthy_window: Option<Seconds>,
    /// Time after which an unhealthy target is tried again: twice as long after the second time in a row, three
    /// times after the third, and so on. Default 30s; 0 waits for an active probe.
    #[schemars(range(max = 86_400))]
    pub healthy_after: Option<Seconds>,
    /// The longest time until it is tried again. Default 5m.
    #[schemars(range(min = 1, max = 86_400))]
    pub healthy_after_max: Option<Seconds>,
    /// How many of the targets may be out at a time, in percent, rounded up. Default 100.
    #[schemars(range(min = 1, max = 100))]
    pub max_ejected_percent: Option<u8>,
}
