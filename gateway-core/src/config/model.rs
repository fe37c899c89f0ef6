//! Configuration as meant: types that cannot be invalid, made only by [`super::resolve`].
//!
//! What the user typed is [`super::file`]; nothing here can be deserialised, so no shortcut past the checks exists.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use ipnet::IpNet;
use regex::Regex;

/// The name of a resource, unique among its kind: 1–254 characters, `[a-zA-Z0-9][a-zA-Z0-9._-]*`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(pub(crate) Arc<str>);

impl Id {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The shared text itself, for records that outlive the configuration.
    pub fn shared(&self) -> Arc<str> {
        self.0.clone()
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A whole, valid configuration.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// What holds for the gateway as a whole.
    pub settings: Arc<Settings>,
    /// Everything that takes traffic.
    pub proxies: Vec<Arc<Proxy>>,
    /// Everybody who may be recognised.
    pub consumers: Vec<Arc<Consumer>>,
    /// Named groups of targets.
    pub upstreams: Vec<Arc<Upstream>>,
    /// Switched-on plugins, in the order of the file.
    pub plugin_configs: Vec<Arc<PluginConfig>>,
}

/// One way in and where it leads.
#[derive(Debug)]
pub struct Proxy {
    /// Unique among proxies.
    pub id: Id,
    /// For people; unique when given.
    pub name: Option<Arc<str>>,
    /// What traffic it takes.
    pub traffic: Traffic,
    /// Where the traffic goes.
    pub backend: Backend,
    /// How long each step may take.
    pub timeouts: Timeouts,
    /// What is tried again, if anything.
    pub retry: Retry,
    /// When to stop trying a target for a while; `None` never stops.
    pub circuit_breaker: Option<CircuitBreaker>,
    /// How several authentication plugins combine.
    pub auth_mode: AuthMode,
    /// The plugins that run for this proxy (global ones included), not yet in execution order.
    pub plugins: Vec<Arc<PluginConfig>>,
}

/// The two shapes of traffic.
#[derive(Debug)]
pub enum Traffic {
    /// Requests and responses: HTTP/1.1, HTTP/2, HTTP/3, gRPC, WebSocket.
    Http(HttpRules),
    /// Byte streams and datagrams on a port of their own.
    Stream(StreamRules),
}

/// Which requests an HTTP proxy takes and how it forwards them.
#[derive(Debug)]
pub struct HttpRules {
    /// Empty means any host.
    pub hosts: Vec<HostPattern>,
    /// Which paths.
    pub path: PathPattern,
    /// `None` allows every method; others get 405 with `Allow`.
    pub allowed_methods: Option<Vec<Method>>,
    /// Removes the matched part of the path before forwarding. Default true.
    pub strip_listen_path: bool,
    /// Put before the forwarded path; begins with `/`, never ends with one.
    pub backend_path: Option<Arc<str>>,
    /// Sends the client's Host upstream instead of the target's. Default false.
    pub preserve_host_header: bool,
    /// Origins that may open a WebSocket; empty allows all.
    pub allowed_ws_origins: Vec<Arc<str>>,
    /// Ends a WebSocket with no byte in either direction; zero never does. Default 1 h.
    pub websocket_idle: Duration,
    /// Ends a WebSocket after so long in all; zero never does. Default zero.
    pub websocket_lifetime: Duration,
    /// Bytes a request body may have; `None` takes the gateway's limit, `Some(0)` is no limit.
    pub max_request_body_bytes: Option<u64>,
}

/// Which hosts a proxy answers for, in lower case and without a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// `api.example.com`
    Exact(Arc<str>),
    /// `*.example.com`, kept as `.example.com`; covers one or more labels, never the bare domain.
    Suffix(Arc<str>),
}

/// Which paths a proxy answers for.
#[derive(Debug, Clone)]
pub enum PathPattern {
    /// No `listen_path`: every path of its hosts, after every path-carrying proxy had its chance.
    HostOnly,
    /// A prefix on whole segments: begins with `/`, has no trailing `/` unless it is `/` itself.
    Prefix(Arc<str>),
    /// `~regex`, anchored at both ends.
    Regex(Regex),
}

/// Which streams a TCP, TLS, UDP or DTLS proxy takes.
#[derive(Debug)]
pub struct StreamRules {
    /// First and last port, both included.
    pub listen_ports: (u16, u16),
    /// Terminates TLS (TCP) or DTLS (UDP) at the port. Default false.
    pub frontend_tls: bool,
    /// Forwards encrypted bytes unopened, choosing by SNI. Default false.
    pub passthrough: bool,
    /// Server names this proxy takes on a shared port; empty takes what is left.
    pub server_names: Vec<HostPattern>,
    /// Ends a session with no traffic in either direction. Default 300 s for TCP, 60 s for UDP.
    pub idle_timeout: Option<Duration>,
    /// Drops replies beyond last request × factor (UDP only). `None` does not limit.
    pub max_response_amplification: Option<f64>,
    /// UDP sessions at a time; a datagram that would open another is dropped and counted. Default 100,000.
    pub max_sessions: usize,
    /// Reads a PROXY protocol header first, from trusted proxies only. Default false.
    pub accept_proxy_protocol: bool,
    /// Sends a PROXY protocol header of this version (1 or 2) to the target.
    pub send_proxy_protocol: Option<u8>,
}

/// Where a proxy's traffic goes.
#[derive(Debug)]
pub struct Backend {
    /// How the target is spoken to.
    pub scheme: Scheme,
    /// Which HTTP version the target is spoken to in.
    pub http_version: BackendHttp,
    /// The group of targets; a proxy with `backend_host` owns a group of one, named after itself.
    pub upstream: Arc<Upstream>,
    /// How the target's certificate is judged; present exactly when the scheme is encrypted.
    pub tls: Option<Arc<BackendTls>>,
    /// How connections to the target are kept.
    pub pool: PoolRules,
    /// Used instead of looking the target's name up.
    pub dns_override: Option<IpAddr>,
    /// How long a looked-up address is used; `None` is what the name server says.
    pub dns_ttl: Option<Duration>,
}

/// How a target is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS (or QUIC).
    Https,
    /// Plain TCP.
    Tcp,
    /// TLS over TCP.
    Tcps,
    /// Plain UDP.
    Udp,
    /// DTLS over UDP.
    Dtls,
}

impl Scheme {
    /// Whether bytes to the target are encrypted.
    pub fn is_encrypted(self) -> bool {
        matches!(self, Self::Https | Self::Tcps | Self::Dtls)
    }

    /// As written in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Tcp => "tcp",
            Self::Tcps => "tcps",
            Self::Udp => "udp",
            Self::Dtls => "dtls",
        }
    }
}

/// Which HTTP version a target is spoken to in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum BackendHttp {
    /// ALPN decides over TLS; over plain text HTTP/1.1, and HTTP/2 for gRPC.
    #[default]
    Auto,
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2 only; over plain text with prior knowledge.
    Http2,
    /// HTTP/3 first, what TLS offers when that fails.
    Http3,
}

/// How a target's certificate is judged, and what is shown to it.
#[derive(Debug, PartialEq, Eq, Hash, Clone)]
pub struct BackendTls {
    /// Checks chain and name. Default true.
    pub verify: bool,
    /// PEM file of the only trusted roots; `None` trusts the built-in public roots.
    pub ca_path: Option<PathBuf>,
    /// PEM files of certificate chain and key to show.
    pub client_cert: Option<(PathBuf, PathBuf)>,
    /// Name to send and check instead of the target's host.
    pub server_name: Option<Arc<str>>,
}

/// How connections to a target are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolRules {
    /// Keeps connections for the next request. Default true.
    pub keep_alive: bool,
    /// Closes a connection unused for so long. Default 90 s.
    pub idle_timeout: Duration,
    /// Idle connections kept for each target and worker. Default 256.
    pub max_idle: usize,
    /// HTTP/2 connections to one target and worker; streams spread over them. Default 2.
    pub http2_connections: usize,
    /// HTTP/3 connections to one target and worker. Default 1.
    pub http3_connections: usize,
    /// Between two TCP keep-alive probes; zero is off. Default 60 s.
    pub tcp_keepalive: Duration,
    /// What HTTP/2 connections to a target are told and allowed.
    pub http2: Http2Rules,
}

/// How HTTP/2 is spoken to a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Http2Rules {
    /// Between two pings; zero is off. Default 30 s.
    pub keep_alive_interval: Duration,
    /// For a ping's answer, before the connection is given up. Default 45 s.
    pub keep_alive_timeout: Duration,
    /// Bytes the target may send on one stream before it has to wait. Default 1 MiB.
    pub stream_window: u32,
    /// Bytes the target may send on one connection before it has to wait. Default 4 MiB.
    pub connection_window: u32,
    /// Sizes the windows by measuring instead. Default false.
    pub adaptive_window: bool,
    /// Bytes of a frame the target may send. Default 16 KiB.
    pub max_frame_size: u32,
    /// Streams opened at a time on one connection; `None` is what the target allows.
    pub max_concurrent_streams: Option<u32>,
}

/// How long each step of an exchange or session may take; zero switches one off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Name lookup, TCP and TLS handshake. Default 5 s.
    pub connect: Duration,
    /// From the request's last byte to the response's first. Default 30 s.
    pub first_byte: Duration,
    /// Between two reads or writes of a body or stream. Default 60 s.
    pub idle: Duration,
    /// The whole exchange. Default off.
    pub total: Duration,
}

/// What is tried again after a failure.
#[derive(Debug, Clone, PartialEq)]
pub struct Retry {
    /// Tries after the first. Default 0: only a kept connection found dead is replaced.
    pub max_retries: u32,
    /// Statuses that count as failure. Default none.
    pub status_codes: Vec<u16>,
    /// Methods retried on a status or after bytes reached the wire. Default GET HEAD OPTIONS PUT DELETE.
    pub methods: Vec<Method>,
    /// Retries any method when no connection could be made. Default true.
    pub on_connect_failure: bool,
    /// Pause before each retry.
    pub backoff: Backoff,
    /// Retries allowed as a share of requests, in percent, so that retries never double a load. Default 20.
    pub budget_percent: u32,
}

/// The pause before a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backoff {
    /// None at all.
    None,
    /// The same each time.
    Fixed(Duration),
    /// Doubles from base to max, with jitter between half and one and a half.
    Exponential {
        /// The first pause.
        base: Duration,
        /// The longest pause.
        max: Duration,
    },
}

/// When a target is left alone for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CircuitBreaker {
    /// Failures in a row that open it. Default 5.
    pub failure_threshold: u32,
    /// Successes of probes that close it. Default 3.
    pub success_threshold: u32,
    /// How long it stays open. Default 30 s.
    pub open_for: Duration,
    /// Statuses that count as failure. Default 500 502 503 504.
    pub status_codes: Vec<u16>,
    /// Probes at a time while half open. Default 1.
    pub half_open_max_requests: u32,
    /// Counts failures to connect. Default true.
    pub trip_on_connection_errors: bool,
}

/// How several authentication plugins combine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AuthMode {
    /// The first plugin that finds a credential decides; a wrong one is refused at once.
    #[default]
    Single,
    /// Every plugin may try; the first success wins.
    Multi,
}

/// A named group of targets and how one is picked.
#[derive(Debug, PartialEq)]
pub struct Upstream {
    /// Unique among upstreams.
    pub id: Id,
    /// For people.
    pub name: Option<Arc<str>>,
    /// Where to; never empty.
    pub targets: Vec<TargetRules>,
    /// How one is picked.
    pub algorithm: Algorithm,
    /// What consistent hashing hashes.
    pub hash_on: HashOn,
    /// The cookie given to clients without one, when a cookie is what is hashed.
    pub hash_cookie: Option<HashCookie>,
    /// Asks targets how they are.
    pub active_health: Option<ActiveHealth>,
    /// Learns from traffic how targets are.
    pub passive_health: Option<PassiveHealth>,
}

/// One member of an upstream.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetRules {
    /// A name or an address, in lower case, without brackets.
    pub host: Arc<str>,
    /// 1–65535.
    pub port: u16,
    /// Share of traffic. Default 1.
    pub weight: u16,
    /// Replaces the proxy's `backend_path`.
    pub path: Option<Arc<str>>,
    /// For people and plugins.
    pub tags: BTreeMap<String, String>,
}

/// How a target is picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Algorithm {
    /// Each in turn.
    #[default]
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

/// What consistent hashing hashes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum HashOn {
    /// The client's address.
    #[default]
    Ip,
    /// A request header; the client's address when absent.
    Header(http::HeaderName),
    /// A cookie; the client's address when absent.
    Cookie(Arc<str>),
}

/// The cookie that keeps a client at its target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HashCookie {
    /// Default `/`.
    pub path: Arc<str>,
    /// How long the client keeps it; zero ends with the browser's session. Default an hour.
    pub ttl: Duration,
    /// Default none: the host that was asked.
    pub domain: Option<Arc<str>>,
    /// Hidden from scripts. Default true.
    pub http_only: bool,
    /// Only over TLS. Default false.
    pub secure: bool,
    /// With which requests from other sites it is sent; `None` doesn't say.
    pub same_site: Option<SameSite>,
}

/// With which requests from other sites a cookie is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SameSite {
    /// None.
    Strict,
    /// Navigations.
    Lax,
    /// All.
    None,
}

/// Asking targets how they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveHealth {
    /// How to ask.
    pub probe: Probe,
    /// From one probe to the next. Default 10 s.
    pub interval: Duration,
    /// For one probe. Default 5 s.
    pub timeout: Duration,
    /// Good answers until healthy again. Default 3.
    pub healthy_threshold: u32,
    /// Bad answers until unhealthy. Default 3.
    pub unhealthy_threshold: u32,
}

/// How a target is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// GET a path and look at the status.
    Http {
        /// Default `/health`.
        path: Arc<str>,
        /// Default 200 and 302.
        healthy_status_codes: Vec<u16>,
        /// Over TLS.
        tls: bool,
    },
    /// Open a connection.
    Tcp,
    /// Send a datagram and wait for any answer.
    Udp {
        /// What to send.
        payload: Vec<u8>,
    },
    /// `grpc.health.v1.Health/Check`.
    Grpc {
        /// Empty asks for the server as a whole.
        service: Arc<str>,
        /// Over TLS.
        tls: bool,
    },
}

/// Learning from traffic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassiveHealth {
    /// Statuses that count as failure. Default 500 502 503 504.
    pub unhealthy_status_codes: Vec<u16>,
    /// Failures within the window until unhealthy. Default 3.
    pub unhealthy_threshold: u32,
    /// Default 30 s.
    pub window: Duration,
    /// Tried again after so long; zero waits for an active probe. Default 30 s.
    pub healthy_after: Duration,
}

/// Somebody who may be recognised.
#[derive(Debug, PartialEq)]
pub struct Consumer {
    /// Unique among consumers.
    pub id: Id,
    /// Unique; what `access_control` names.
    pub username: Arc<str>,
    /// The owner's own name for it; unique when given.
    pub custom_id: Option<Arc<str>>,
    /// Groups for `access_control`.
    pub acl_groups: Vec<Arc<str>>,
    /// Per credential type (the name of the plugin's credential), each a list for rotation.
    pub credentials: BTreeMap<String, Vec<Secret>>,
}

/// A credential as written (a JSON object). Its text never reaches a log.
#[derive(Clone, PartialEq)]
pub struct Secret(pub(crate) serde_json::Value);

impl Secret {
    /// The credential's document, for the plugin that checks it.
    pub fn expose(&self) -> &serde_json::Value {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// One configured plugin.
#[derive(Debug, PartialEq)]
pub struct PluginConfig {
    /// Unique among plugin configs.
    pub id: Id,
    /// A name from the plugin table.
    pub plugin_name: Arc<str>,
    /// The plugin's own settings; checked by building the plugin.
    pub config: serde_json::Value,
    /// Where it runs.
    pub scope: Scope,
    /// Runs before or after a named plugin instead of at its place in the table.
    pub order: Option<Order>,
}

/// Where a plugin runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Every proxy that has none of that name of its own.
    Global,
    /// One proxy.
    Proxy(Id),
    /// The proxies that name it, sharing its state.
    ProxyGroup,
}

/// A plugin's place relative to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Directly before the named plugin.
    Before(Arc<str>),
    /// Directly after the named plugin.
    After(Arc<str>),
}

/// What holds for the gateway as a whole. Listeners and workers are read at start; the rest follows a reload.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Plain HTTP; `None` is off. Default `0.0.0.0:8000`.
    pub http: Option<SocketAddr>,
    /// HTTP over TLS; on when a certificate is configured. Default `0.0.0.0:8443`.
    pub https: Option<SocketAddr>,
    /// Serves HTTP/3 on the https port. Default false.
    pub http3: bool,
    /// Admin API; `None` is off. Default `127.0.0.1:9000`.
    pub admin: Option<SocketAddr>,
    /// Address stream proxies listen on. Default `0.0.0.0`.
    pub stream_address: IpAddr,
    /// Threads that carry traffic; 0 is one for each core the process may use.
    pub workers: usize,
    /// Certificates and their rules for the https listener and `frontend_tls` proxies.
    pub tls: FrontendTls,
    /// Sizes and counts.
    pub limits: Limits,
    /// Timeouts on the client's side.
    pub client_timeouts: ClientTimeouts,
    /// Whose forwarding headers and PROXY protocol headers are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Adds RFC 7239 `Forwarded` beside `X-Forwarded-*`. Default false.
    pub forwarded_header: bool,
    /// Adds `Via` with this pseudonym; `None` adds none. Default `ferrum-edge`.
    pub via: Option<Arc<str>>,
    /// Access log; `None` is off.
    pub access_log: Option<AccessLog>,
    /// How long a drain waits for exchanges to end. Default 30 s.
    pub drain_timeout: Duration,
    /// Accepts a PROXY protocol header on http and https from trusted proxies. Default false.
    pub accept_proxy_protocol: bool,
}

/// Certificates shown to clients, and what is asked of theirs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FrontendTls {
    /// PEM files; chosen by SNI, the first is the default.
    pub certificates: Vec<CertificateFiles>,
    /// PEM file of roots for client certificates.
    pub client_ca_path: Option<PathBuf>,
    /// Refuses clients without a certificate. Default true when a client CA is set.
    pub client_cert_required: bool,
    /// Lowest version, 12 or 13. Default 12.
    pub min_version: TlsVersion,
}

/// A PEM certificate chain and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The chain, leaf first.
    pub cert_path: PathBuf,
    /// The key.
    pub key_path: PathBuf,
}

/// TLS versions the gateway speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsVersion {
    /// RFC 5246.
    #[default]
    Tls12,
    /// RFC 8446.
    Tls13,
}

/// Sizes and counts; traffic beyond them is refused, never queued without bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Open client connections over all workers. Default 100,000.
    pub max_connections: usize,
    /// Bytes of a request line and headers together. Default 32 KiB.
    pub max_header_bytes: usize,
    /// Header fields in one message. Default 100.
    pub max_headers: usize,
    /// Bytes of a request target. Default 8 KiB.
    pub max_uri_bytes: usize,
    /// Bytes of a request body; 0 is no limit. Default 100 MiB.
    pub max_request_body_bytes: u64,
    /// Streams open at a time on one HTTP/2 or HTTP/3 connection. Default 128.
    pub max_concurrent_streams: u32,
    /// Exchanges in flight over all workers; 0 is no limit. Default 0.
    pub max_requests: usize,
}

/// Timeouts on the client's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientTimeouts {
    /// From a connection's or request's first byte to the end of its headers. Default 10 s.
    pub header: Duration,
    /// Between two exchanges on one connection. Default 75 s.
    pub keep_alive: Duration,
    /// Between two reads of a request body or two writes of a response. Default 60 s.
    pub body: Duration,
    /// TLS handshake. Default 10 s.
    pub handshake: Duration,
}

/// Where access records go, as JSON lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessLog {
    /// A file, or `-` for standard output.
    pub path: PathBuf,
    /// Records waiting to be written; beyond that they are dropped and counted. Default 8,192.
    pub queue: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            http: Some(SocketAddr::from(([0, 0, 0, 0], 8000))),
            https: Some(SocketAddr::from(([0, 0, 0, 0], 8443))),
            http3: false,
            admin: Some(SocketAddr::from(([127, 0, 0, 1], 9000))),
            stream_address: IpAddr::from([0, 0, 0, 0]),
            workers: 0,
            tls: FrontendTls::default(),
            limits: Limits::default(),
            client_timeouts: ClientTimeouts::default(),
            trusted_proxies: Vec::new(),
            forwarded_header: false,
            via: Some(Arc::from("ferrum-edge")),
            access_log: None,
            drain_timeout: Duration::from_secs(30),
            accept_proxy_protocol: false,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 100_000,
            max_header_bytes: 32 << 10,
            max_headers: 100,
            max_uri_bytes: 8 << 10,
            max_request_body_bytes: 100 << 20,
            max_concurrent_streams: 128,
            max_requests: 0,
        }
    }
}

impl Default for ClientTimeouts {
    fn default() -> Self {
        Self {
            header: Duration::from_secs(10),
            keep_alive: Duration::from_secs(75),
            body: Duration::from_secs(60),
            handshake: Duration::from_secs(10),
        }
    }
}

impl Default for PoolRules {
    fn default() -> Self {
        Self {
            keep_alive: true,
            idle_timeout: Duration::from_secs(90),
            max_idle: 256,
            http2_connections: 2,
            http3_connections: 1,
            tcp_keepalive: Duration::from_secs(60),
            http2: Http2Rules::default(),
        }
    }
}

impl Default for Http2Rules {
    fn default() -> Self {
        Self {
            keep_alive_interval: Duration::from_secs(30),
            keep_alive_timeout: Duration::from_secs(45),
            stream_window: 1 << 20,
            connection_window: 4 << 20,
            adaptive_window: false,
            max_frame_size: 16 << 10,
            max_concurrent_streams: None,
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            first_byte: Duration::from_secs(30),
            idle: Duration::from_secs(60),
            total: Duration::ZERO,
        }
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            max_retries: 0,
            status_codes: Vec::new(),
            methods: vec![Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::DELETE],
            on_connect_failure: true,
            backoff: Backoff::None,
            budget_percent: 20,
        }
    }
}
