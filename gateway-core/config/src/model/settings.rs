//! What holds for the gateway as a whole: listeners, certificates, limits, timeouts, logs.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use ipnet::IpNet;

use super::{AcmeNames, AcmeRules, AdminApproval, AdminOidc, Congestion, LogSink, MetricsPush, RedisServers};
use crate::file::OldSpelling;

/// Bytes of collected bodies where nothing is configured: 256 MiB.
pub const MAX_COLLECTED: u64 = 256 << 20;

/// The field in which trusted proxies name the client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RealIpHeader {
    /// `X-Forwarded-For`.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// Another one, with an address or a list of them.
    Other(HeaderName),
}

/// What holds for the gateway as a whole. Listeners and workers are read at start; the rest follows a reload.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Whether this process serves the proxies. Default true; not for control planes and tools.
    pub carries_traffic: bool,
    /// Plain HTTP; `None` is off. Default `0.0.0.0:8000`.
    pub http: Option<SocketAddr>,
    /// HTTP over TLS; on when a certificate is configured. Default `0.0.0.0:8443`.
    pub https: Option<SocketAddr>,
    /// Serves HTTP/3 on the https port. Default false.
    pub http3: bool,
    /// Lets a request that no proxy of its host takes go on to wider host patterns and to any host. Default false.
    pub host_fallthrough: bool,
    /// Admin API; `None` is off. Default `127.0.0.1:9000`.
    pub admin: Option<SocketAddr>,
    /// TLS of the admin API, with one certificate; `None` is plain HTTP.
    pub admin_tls: Option<FrontendTls>,
    /// Unix socket the admin API listens on, too; `None` is none.
    pub admin_socket: Option<PathBuf>,
    /// Status, metrics and the API's description need a token, too. Default false.
    pub admin_require_token: bool,
    /// The admin API serves the console. Default true.
    pub admin_console: bool,
    /// The names of the roles whose users need a second factor.
    pub admin_totp_roles: Box<[&'static str]>,
    /// The OpenID provider whose users may log in to the console; `None` is none.
    pub admin_oidc: Option<Arc<AdminOidc>>,
    /// Which changes another user has to approve; `None` is none.
    pub admin_approval: Option<Arc<AdminApproval>>,
    /// Further addresses of plain HTTP.
    pub additional_http: Box<[SocketAddr]>,
    /// How the kernel sends to TCP clients; `None` is the system's own way.
    pub congestion: Option<Congestion>,
    /// Name servers; none are the system's.
    pub dns_servers: Box<[SocketAddr]>,
    /// Unix socket on which plain HTTP is served, too, and the mode of its file.
    pub http_socket: Option<(PathBuf, u32)>,
    /// Further addresses of HTTP over TLS; HTTP/3 too on those with the port of `https`.
    pub additional_https: Box<[SocketAddr]>,
    /// Listens on ports on which another gateway of the same user listens, too. Default false.
    pub share_ports: bool,
    /// Address stream proxies listen on. Default `0.0.0.0`.
    pub stream_address: IpAddr,
    /// Worker threads; 0 means one for each core the process may use.
    pub workers: usize,
    /// Certificates and their rules for the https listener and `frontend_tls` proxies.
    pub tls: FrontendTls,
    /// Where certificates come from that the gateway gets by itself; `None` is nowhere.
    pub acme: Option<Arc<AcmeRules>>,
    /// Sizes and counts.
    pub limits: Limits,
    /// When load is shed.
    pub overload: OverloadRules,
    /// Timeouts on the client's side.
    pub client_timeouts: ClientTimeouts,
    /// Whose forwarding headers and PROXY protocol headers are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Where they name the client.
    pub real_ip_header: RealIpHeader,
    /// Adds RFC 7239 `Forwarded` beside `X-Forwarded-*`. Default false.
    pub forwarded_header: bool,
    /// Adds `Via` with this pseudonym; `None` adds none. Default `ferrum-edge`.
    pub via: Option<Arc<str>>,
    /// Codes of warnings that are not given.
    pub silence_warnings: Vec<Box<str>>,
    /// Settings that the file writes under old names, at most a hundred; always empty in database mode.
    pub old_spellings: Box<[OldSpelling]>,
    /// Names by which the admin API may be asked, beside addresses and `localhost`.
    pub admin_hosts: Vec<Box<str>>,
    /// Takes several slashes in a row for one. Default true.
    pub merge_slashes: bool,
    /// Access log; `None` is off.
    pub access_log: Option<AccessLog>,
    /// The file of the audit log, or `-`; `None` is off.
    pub audit_log: Option<PathBuf>,
    /// Redis and Valkey servers that plugins refer to; `None` where nobody knows them, as in tools that only read a database.
    pub redis: Option<RedisServers>,
    /// Where metrics are pushed to.
    pub metrics_push: MetricsPush,
    /// Further places that access records go to.
    pub log_sinks: Box<[Arc<LogSink>]>,
    /// Response headers that logs ask for; read off `log_sinks`.
    pub logged_headers: Box<[HeaderName]>,
    /// How long a drain waits for exchanges to end. Default 30 s.
    pub drain_timeout: Duration,
    /// Whether TCP streams and WebSockets outlive a drain. Default they don't.
    pub drain_streams: DrainStreams,
    /// How often long sessions are checked for still being allowed; zero is never. Default 30 s.
    pub session_check: Duration,
    /// Requires a PROXY protocol header on http and https, from trusted proxies. Default false.
    pub accept_proxy_protocol: bool,
    /// What becomes of clients' header fields with underscores in their names. Default they are dropped.
    pub underscores_in_headers: Underscores,
    /// When `/readyz` answers 503, besides while the gateway starts or drains.
    pub not_ready_when: Readiness,
}

/// When the gateway is not ready for traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Readiness {
    /// Every proxy is closed. Default true.
    pub all_proxies_closed: bool,
    /// A proxy is closed. Default false.
    pub any_proxy_closed: bool,
    /// Only proxies with a high priority are served. Default true.
    pub overloaded: bool,
    /// No upstream with health checks has a healthy target. Default false.
    pub no_healthy_target: bool,
    /// The database or the control plane does not answer. Default false.
    pub source_unreachable: bool,
}

impl Default for Readiness {
    fn default() -> Self {
        Self {
            all_proxies_closed: true,
            any_proxy_closed: false,
            overloaded: true,
            no_healthy_target: false,
            source_unreachable: false,
        }
    }
}

/// When load is shed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OverloadRules {
    /// Bytes of resident memory; `None` is the cgroup's limit, where there is one, and 0 no limit.
    pub max_memory: Option<u64>,
    /// How long a worker may take until it gets to new work; zero does not look.
    pub max_delay: Duration,
}

/// Whether a drain closes TCP streams and WebSockets or waits for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DrainStreams {
    /// WebSockets are closed at once, streams are cut off at its end.
    #[default]
    Close,
    /// They go on until one of their ends closes them.
    Wait,
}

/// What becomes of clients' header fields with underscores in their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Underscores {
    /// They don't reach plugins and targets.
    #[default]
    Drop,
    /// They pass, except those that could be taken for a field that says who the client is.
    Allow,
    /// The request is refused with 400.
    Reject,
}

/// Certificates shown to clients, and what is asked of theirs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FrontendTls {
    /// PEM files; chosen by SNI, the first is the default.
    pub certificates: Vec<CertificateFiles>,
    /// PEM file of roots for client certificates.
    pub client_ca_path: Option<PathBuf>,
    /// PEM file, or folder of such files, of revocation lists for client certificates.
    pub client_crl_path: Option<PathBuf>,
    /// Refuses clients without a certificate. Default true when a client CA is set.
    pub client_cert_required: bool,
    /// Lowest version, 12 or 13. Default 12.
    pub min_version: TlsVersion,
    /// Takes requests before the handshake is over (RFC 8470). Default false.
    pub early_data: bool,
    /// Answers a CA that checks names by TLS handshakes (RFC 8737). Default false.
    pub tls_alpn_challenges: bool,
}

/// A PEM certificate chain and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The chain, leaf first.
    pub cert_path: PathBuf,
    /// The key; with `acme` in the same file.
    pub key_path: PathBuf,
    /// The names that the gateway gets this certificate for by itself; `None` where it is given. Such a file may be missing.
    pub acme: Option<AcmeNames>,
}

impl CertificateFiles {
    /// A certificate that is given.
    pub fn given(cert_path: PathBuf, key_path: PathBuf) -> Self {
        Self { cert_path, key_path, acme: None }
    }
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
    pub max_header_size: usize,
    /// Header fields in one message. Default 100.
    pub max_headers: usize,
    /// Bytes of a request target. Default 8 KiB.
    pub max_uri: usize,
    /// Bytes of a request body; 0 is no limit. Default 100 MiB.
    pub max_request_body: u64,
    /// Bytes of bodies that plugins may hold in memory at one time. Default 256 MiB.
    pub max_collected_body: u64,
    /// Streams open at a time on one HTTP/2 or HTTP/3 connection. Default 128.
    pub max_concurrent_streams: u32,
    /// Exchanges in flight over all workers; 0 is no limit. Default 0.
    pub max_requests: usize,
    /// Bytes the kernel takes for a client's TCP connection before it has sent them; 0 is no limit. Default 256 KiB.
    pub max_unsent: u32,
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

impl Settings {
    /// Every address of plain HTTP.
    pub fn http_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.http.into_iter().chain(self.additional_http.iter().copied())
    }

    /// Every address of HTTP over TLS; none without a certificate, which a client could not be shown.
    pub fn https_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let all = self.https.into_iter().chain(self.additional_https.iter().copied());
        all.filter(|_| !self.tls.certificates.is_empty())
    }

    /// Every address of HTTP/3. Clients are told one port, that of `https`.
    pub fn http3_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let port = self.https.map(|address| address.port()).filter(|_| self.http3);
        self.https_addresses().filter(move |address| Some(address.port()) == port)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            carries_traffic: true,
            http: Some(SocketAddr::from(([0, 0, 0, 0], 8000))),
            https: Some(SocketAddr::from(([0, 0, 0, 0], 8443))),
            http3: false,
            host_fallthrough: false,
            admin: Some(SocketAddr::from(([127, 0, 0, 1], 9000))),
            overload: OverloadRules::default(),
            admin_tls: None,
            admin_socket: None,
            admin_require_token: false,
            admin_console: true,
            admin_totp_roles: Box::default(),
            admin_oidc: None,
            admin_approval: None,
            additional_http: Box::default(),
            congestion: None,
            dns_servers: Box::default(),
            http_socket: None,
            additional_https: Box::default(),
            share_ports: false,
            stream_address: IpAddr::from([0, 0, 0, 0]),
            workers: 0,
            tls: FrontendTls::default(),
            acme: None,
            limits: Limits::default(),
            client_timeouts: ClientTimeouts::default(),
            trusted_proxies: Vec::new(),
            real_ip_header: RealIpHeader::default(),
            forwarded_header: false,
            via: Some(Arc::from("ferrum-edge")),
            silence_warnings: Vec::new(),
            old_spellings: Box::default(),
            admin_hosts: Vec::new(),
            merge_slashes: true,
            access_log: None,
            audit_log: None,
            redis: Some(RedisServers::default()),
            metrics_push: MetricsPush::default(),
            log_sinks: Box::default(),
            logged_headers: Box::default(),
            drain_timeout: Duration::from_secs(30),
            drain_streams: DrainStreams::default(),
            session_check: Duration::from_secs(30),
            accept_proxy_protocol: false,
            underscores_in_headers: Underscores::Drop,
            not_ready_when: Readiness::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 100_000,
            max_header_size: 32 << 10,
            max_headers: 100,
            max_uri: 8 << 10,
            max_request_body: 100 << 20,
            max_collected_body: MAX_COLLECTED,
            max_concurrent_streams: 128,
            max_requests: 0,
            max_unsent: 256 << 10,
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
