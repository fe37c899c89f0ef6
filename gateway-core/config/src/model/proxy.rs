//! Proxies: what traffic one takes, how it is forwarded, how long it may take, what is tried again.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use http::Method;

use super::{
    Congestion, DnsRules, FastCgi, ForwardedRules, Id, PathRules, PluginConfig, ProxyHeaders, SocketRules,
    StarttlsRules, Transport, Upstream, WebSocketRules,
};
use crate::condition::Condition;
use crate::pattern::{HostPattern, PathPattern};

/// One way in and where it leads.
#[derive(Debug, Clone)]
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
    pub timeouts: Arc<Timeouts>,
    /// What is tried again, if anything.
    pub retry: Arc<Retry>,
    /// What few proxies have, so that the others do not carry its room along.
    pub rare: Option<Box<RareProxy>>,
    /// When to stop trying a target for a while; `None` never stops.
    pub circuit_breaker: Option<Box<CircuitBreaker>>,
    /// How several authentication plugins combine.
    pub auth_mode: AuthMode,
    /// Whether it is refused early or late when the gateway is overloaded.
    pub load_priority: LoadPriority,
    /// The plugins that run for this proxy (global ones included), not yet in execution order.
    pub plugins: Box<[Arc<PluginConfig>]>,
}

/// What few proxies have.
#[derive(Debug, Clone, Default)]
pub struct RareProxy {
    /// Whom it belongs to.
    pub owner: Option<Id>,
    /// When requests go to another target as well; `None` is never.
    pub hedging: Option<super::Hedging>,
}

impl Proxy {
    /// Whom it belongs to.
    pub fn owner(&self) -> Option<&Id> {
        self.rare.as_ref()?.owner.as_ref()
    }

    /// When requests go to another target as well; `None` is never.
    pub fn hedging(&self) -> Option<&super::Hedging> {
        self.rare.as_ref()?.hedging.as_ref()
    }
}

/// Which proxies are refused first when the gateway is overloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoadPriority {
    /// Before all others.
    Low,
    /// After those.
    #[default]
    Normal,
    /// Never for that reason.
    High,
}

/// The two shapes of traffic.
#[derive(Debug, Clone)]
pub enum Traffic {
    /// Requests and responses: HTTP/1.1, HTTP/2, HTTP/3, gRPC, WebSocket.
    Http(HttpRules),
    /// Byte streams and datagrams on a port of their own.
    /// Boxed, as most proxies are of the other kind.
    Stream(Box<StreamRules>),
}

/// Which requests an HTTP proxy takes and how it forwards them.
#[derive(Debug, Clone)]
pub struct HttpRules {
    /// Any of these; never empty.
    pub matches: Box<[Match]>,
    /// Goes before the proxies of the same host that have a lower one. Default 0.
    pub priority: i32,
    /// `None` allows every method; others get 405 with `Allow`.
    pub allowed_methods: Option<Box<[Method]>>,
    /// Removes the matched part of the path before forwarding. Default true.
    pub strip_listen_path: bool,
    /// Put before the forwarded path; begins with `/`, never ends with one.
    pub backend_path: Option<Arc<str>>,
    /// Sends the client's Host upstream instead of the target's. Default false.
    pub preserve_host_header: bool,
    /// Carries safe requests out before their client's TLS handshake is over. Default true.
    pub early_data: bool,
    /// What becomes of paths that targets may read otherwise than the gateway.
    pub path_rules: PathRules,
    /// What targets are told in `X-Forwarded-*`, where that is not the gateway's own.
    pub forwarded: Option<Box<ForwardedRules>>,
    /// How WebSockets are treated.
    pub websocket: Arc<WebSocketRules>,
    /// Bytes a request body may have; `None` takes the gateway's limit, `Some(0)` is no limit.
    pub max_request_body: Option<u64>,
}

/// Requests that a proxy takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Match {
    /// Empty means any host.
    pub hosts: Vec<HostPattern>,
    /// Which paths.
    pub path: PathPattern,
    /// What else has to hold.
    pub condition: Option<Arc<Condition>>,
}

impl HttpRules {
    /// Whether it takes only requests that came over plain HTTP.
    pub fn requires_plain_http(&self) -> bool {
        let is_plain = |it: &Match| it.condition.as_ref().is_some_and(|it| it.requires_plain_http());
        self.matches.iter().all(is_plain)
    }

    /// Whether a page of this origin may switch to another protocol. Who says none is nobody, where some are named.
    pub fn may_upgrade_from(&self, origin: Option<&str>) -> bool {
        let allowed = &self.websocket.allowed_origins;
        let is_allowed = |origin: &str| allowed.iter().any(|known| known.eq_ignore_ascii_case(origin));
        allowed.is_empty() || origin.is_some_and(is_allowed)
    }
}

/// Which streams a TCP, TLS, UDP or DTLS proxy takes.
#[derive(Debug, Clone)]
pub struct StreamRules {
    /// First and last port, both included.
    pub listen_ports: (u16, u16),
    /// A port leads to that of the target at the same distance. Default false: to the target's own.
    pub maps_ports: bool,
    /// Terminates TLS (TCP) or DTLS (UDP) at the port. Default false.
    pub frontend_tls: bool,
    /// Carries datagrams: UDP or DTLS; else TCP or TLS.
    pub is_datagram: bool,
    /// Forwards encrypted bytes unopened, choosing by SNI. Default false.
    pub passthrough: bool,
    /// Plain text around TLS.
    pub starttls: StarttlsRules,
    /// Server names this proxy takes on a shared port; empty takes what is left.
    pub server_names: Vec<HostPattern>,
    /// ALPN protocols this proxy takes on a shared port, any of these; empty takes what is left.
    pub alpn: Box<[Box<[u8]>]>,
    /// Ends a session with no traffic in either direction. Default 300 s for TCP, 60 s for UDP.
    pub idle_timeout: Option<Duration>,
    /// Drops replies beyond the session's requests so far × factor (UDP only). `None` does not limit.
    pub max_response_amplification: Option<f64>,
    /// UDP sessions at a time; a datagram that would open another is dropped and counted. Default 100,000.
    pub max_sessions: usize,
    /// Reads a PROXY protocol header first, from trusted proxies only. Default false.
    pub accept_proxy_protocol: bool,
    /// Sends a PROXY protocol header of this version (1 or 2) to the target.
    pub send_proxy_protocol: Option<u8>,
    /// Targets get the server name that the client has asked for, and show a certificate for it.
    pub sends_client_name: bool,
    /// Which datagrams have such headers, and what those that are sent say beside the ends.
    pub proxy_headers: ProxyHeaders,
}

/// Where a proxy's traffic goes.
#[derive(Debug, Clone)]
pub struct Backend {
    /// How the target is spoken to.
    pub scheme: Scheme,
    /// Which HTTP version the target is spoken to in.
    pub http_version: BackendHttp,
    /// Uses HTTP/3 where targets offer it (`Alt-Svc`), no version is set and their certificate is checked. Default true.
    pub alt_svc: bool,
    /// The group of targets; a proxy with `backend_host` owns a group of one, named after itself.
    pub upstream: Arc<Upstream>,
    /// Whether the group is a named upstream, which other proxies may share.
    pub is_named: bool,
    /// Only targets that have all of these tags; empty takes every target.
    pub tags: Box<[(String, String)]>,
    /// How the target's certificate is judged; present exactly when the scheme is encrypted.
    pub tls: Option<Arc<BackendTls>>,
    /// How connections to the target are kept.
    pub pool: Arc<PoolRules>,
    /// What few proxies have, so that the others do not carry its room along.
    pub rare: Option<Box<RareBackend>>,
}

/// What few proxies say of their targets.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RareBackend {
    /// How the target's name is looked up.
    pub dns: DnsRules,
    /// Scripts and parameters; present exactly when targets speak FastCGI.
    pub fastcgi: Option<FastCgi>,
    /// How sockets to targets are made; `None` is the system's way.
    pub sockets: Option<Arc<SocketRules>>,
}

impl Backend {
    /// Used instead of looking the target's name up.
    pub fn dns_override(&self) -> Option<IpAddr> {
        self.rare.as_ref()?.dns.address
    }

    /// How sockets to targets are made; `None` is the system's way.
    pub fn sockets(&self) -> Option<&Arc<SocketRules>> {
        self.rare.as_ref()?.sockets.as_ref()
    }

    /// How long a looked-up address is used; `None` is what the name server says.
    pub fn dns_ttl(&self) -> Option<Duration> {
        self.rare.as_ref()?.dns.ttl
    }

    /// Scripts and parameters, where targets speak FastCGI.
    pub fn fastcgi(&self) -> Option<&FastCgi> {
        self.rare.as_ref()?.fastcgi.as_ref()
    }
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

    /// What carries it; HTTP/3 aside.
    pub fn transport(self) -> Transport {
        match self {
            Self::Udp | Self::Dtls => Transport::Udp,
            Self::Http | Self::Https | Self::Tcp | Self::Tcps => Transport::Tcp,
        }
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
    /// The version the client speaks.
    Same,
    /// No HTTP: FastCGI, over plain text.
    FastCgi,
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
    /// HTTP/3 connections to one target and worker; one more is made when the target allows no more streams on those
    /// there are. Default 4.
    pub http3_connections: usize,
    /// Between two TCP keep-alive probes; zero is off. Default 60 s.
    pub tcp_keepalive: Duration,
    /// How the kernel sends to the target; `None` is the system's own way.
    pub congestion: Option<Congestion>,
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
    /// The windows grow, up to 16 MiB, while what the target sends is read as fast as it comes. Default false.
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
    /// gRPC methods retried like `methods`, as paths. Default none.
    pub grpc_methods: Vec<Arc<str>>,
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
    /// Every plugin has to recognise the caller; the last one counts.
    All {
        /// Refuses credentials that name different callers.
        same_caller: bool,
    },
}

/// The value every proxy has that says nothing of its own: held once, however many proxies there are.
macro_rules! shared_default {
    ($type:ty) => {
        impl $type {
            /// Shared, with all equal to the default in one place.
            pub fn shared(self) -> Arc<Self> {
                static DEFAULT: LazyLock<Arc<$type>> = LazyLock::new(Arc::default);
                if self == **DEFAULT { DEFAULT.clone() } else { Arc::new(self) }
            }
        }
    };
}

shared_default!(PoolRules);
shared_default!(WebSocketRules);
shared_default!(Retry);
shared_default!(Timeouts);

impl Default for PoolRules {
    fn default() -> Self {
        Self {
            keep_alive: true,
            idle_timeout: Duration::from_secs(90),
            // As many as a busy worker has requests in flight: beyond it each request would pay for a connection of its own.
            max_idle: 4096,
            http2_connections: 2,
            http3_connections: 4,
            tcp_keepalive: Duration::from_secs(60),
            congestion: None,
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
            grpc_methods: Vec::new(),
            on_connect_failure: true,
            backoff: Backoff::None,
            budget_percent: 20,
        }
    }
}
