//! An upstream as written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::units::{Millis, Seconds};

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
    /// How one is picked. Default `round_robin`.
    pub algorithm: Option<Algorithm>,
    /// What consistent hashing hashes: `ip`, `header:<name>` or `cookie:<name>`. Default `ip`.
    #[schemars(length(max = 255))]
    pub hash_on: Option<String>,
    /// The cookie given to clients that have none, with `hash_on: cookie:<name>`. Default none is given.
    pub hash_on_cookie_config: Option<CookieConfig>,
    /// How to learn which targets work. Default not at all.
    pub health_checks: Option<HealthChecks>,
    /// PEM file of the certificate chain shown to the targets. This and the four below replace the proxy's.
    #[schemars(length(min = 1, max = 4096))]
    pub backend_tls_client_cert_path: Option<String>,
    /// PEM file of that certificate's key.
    #[schemars(length(min = 1, max = 4096))]
    pub backend_tls_client_key_path: Option<String>,
    /// Checks the targets' certificates. Default true; false lets anybody between here and the target read along.
    pub backend_tls_verify_server_cert: Option<bool>,
    /// PEM file of the only roots trusted for the targets. Default the public roots.
    #[schemars(length(min = 1, max = 4096))]
    pub backend_tls_server_ca_cert_path: Option<String>,
    /// The name sent to the targets and looked for in their certificates. Default each target's host.
    #[schemars(length(min = 1, max = 253))]
    pub backend_tls_server_name: Option<String>,
    /// Only `ferrum`, which is the default.
    pub namespace: Option<String>,
    /// Set by the admin API, ignored here.
    pub created_at: Option<String>,
    /// Set by the admin API, ignored here.
    pub updated_at: Option<String>,
}

/// One member of an upstream.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// A name or an address.
    #[schemars(length(min = 1, max = 255))]
    pub host: String,
    /// 1–65535.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u32,
    /// Share of traffic, 1–65535. Default 1.
    #[serde(default)]
    #[schemars(range(min = 1, max = 65535))]
    pub weight: Option<u32>,
    /// Replaces the proxy's `backend_path`.
    #[serde(default)]
    #[schemars(length(max = 2048))]
    pub path: Option<String>,
    /// For people and plugins; at most 50.
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
    /// Seconds the client keeps it. Default 3600; 0 ends with the browser's session.
    pub ttl_seconds: Option<Seconds>,
    /// Default none: the host that was asked.
    #[schemars(length(max = 253))]
    pub domain: Option<String>,
    /// Hidden from scripts. Default true.
    pub http_only: Option<bool>,
    /// Only over TLS. Default false.
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
    /// All; needs `secure`.
    None,
}

/// How to learn which targets work.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HealthChecks {
    /// Asks targets how they are. Default not.
    pub active: Option<ActiveHealth>,
    /// Learns from traffic. Default not.
    pub passive: Option<PassiveHealth>,
}

/// Asking targets how they are.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ActiveHealth {
    /// How to ask. Default `http`.
    pub probe_type: Option<ProbeType>,
    /// The path asked for by `http`. Default `/health`.
    #[schemars(length(max = 2048))]
    pub http_path: Option<String>,
    /// Seconds from one probe to the next. Default 10.
    #[schemars(range(min = 1, max = 86_400))]
    pub interval_seconds: Option<Seconds>,
    /// Milliseconds for one probe. Default 5000.
    #[schemars(range(min = 1, max = 300_000))]
    pub timeout_ms: Option<Millis>,
    /// Good answers until healthy again. Default 3.
    #[schemars(range(min = 1, max = 10_000))]
    pub healthy_threshold: Option<u32>,
    /// Bad answers until unhealthy. Default 3.
    #[schemars(range(min = 1, max = 10_000))]
    pub unhealthy_threshold: Option<u32>,
    /// Statuses that `http` takes for good. Default 200 and 302.
    #[schemars(length(max = 50), inner(range(min = 100, max = 599)))]
    pub healthy_status_codes: Option<Vec<u16>>,
    /// Asks over TLS. Default false.
    pub use_tls: Option<bool>,
    /// What `udp` sends, in hexadecimal. Default an empty datagram.
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
    /// Open a connection.
    Tcp,
    /// Send a datagram and wait for any answer.
    Udp,
    /// `grpc.health.v1.Health/Check`.
    Grpc,
}

/// Learning from traffic how targets are.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PassiveHealth {
    /// Statuses that count as failure. Default 500 502 503 504.
    #[schemars(length(max = 50), inner(range(min = 100, max = 599)))]
    pub unhealthy_status_codes: Option<Vec<u16>>,
    /// Failures within the window until unhealthy. Default 3.
    #[schemars(range(min = 1, max = 10_000))]
    pub unhealthy_threshold: Option<u32>,
    /// Seconds. Default 30.
    #[schemars(range(min = 1, max = 86_400))]
    pub unhealthy_window_seconds: Option<Seconds>,
    /// Seconds after which an unhealthy target is tried again. Default 30; 0 waits for an active probe.
    #[schemars(range(max = 86_400))]
    pub healthy_after_seconds: Option<Seconds>,
}
