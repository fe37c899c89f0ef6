//! A proxy as written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{CircuitBreaker, FastCgi, Forwarded, Retry};
use crate::condition::written::Condition;
use crate::units::{Bytes, Millis, Seconds};

/// A proxy matches traffic and forwards it to targets.
///
/// An HTTP proxy matches requests by host and path; a stream proxy has its own port (`listen_port`).
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Proxy {
    /// Unique among proxies: 1–254 letters, digits, `.`, `_` and `-`, beginning with a letter or digit. Required.
    #[schemars(length(max = 254))]
    pub id: Option<String>,
    /// Display name; unique if given.
    #[schemars(length(max = 255))]
    pub name: Option<String>,
    /// Host names or `*.suffix` patterns. Default none: any host. On a `passthrough` stream proxy: server names (SNI).
    #[schemars(length(max = 100))]
    pub hosts: Vec<String>,
    /// `/prefix` on whole segments, or `~regex` over the whole path. Default none: every path of `hosts` that no other
    /// proxy matches. An HTTP proxy needs this or `hosts`; a stream proxy has none.
    #[schemars(length(max = 500))]
    pub listen_path: Option<String>,
    /// Conditions, any of which a request must match. `hosts` and `listen_path` apply to those without `hosts` or
    /// `path` of their own. Default none: all requests for `hosts` and `listen_path`.
    #[schemars(length(max = 100))]
    pub matches: Vec<Condition>,
    /// Precedence over proxies of the same host with a lower value, whatever their paths. Default 0: an exact path
    /// precedes one with names, that a prefix, that a regex, and longer ones precede shorter ones.
    pub priority: Option<i32>,
    /// Consumer that owns the proxy, such as a customer whose ports are forwarded: its `id`, `username` or `custom_id`.
    /// Plugin configs with `scope: owner` run for all proxies of an owner, and `limit_by: owner` counts by it. Default
    /// none.
    #[schemars(length(max = 254))]
    pub owner: Option<String>,
    /// Order in which an overloaded gateway rejects proxies with 503 (`gateway.overload`): `low` before `normal`,
    /// `high` never. Default `normal`.
    pub load_priority: Option<LoadPriority>,
    /// Protocol of the target. Default `http`; required for a stream proxy. Not together with `backend_protocol`.
    pub backend_scheme: Option<Scheme>,
    /// `fastcgi` for PHP-FPM and other FastCGI servers; otherwise the older spelling of `backend_scheme`, which also
    /// selects the HTTP version. Not together with `backend_scheme`.
    pub backend_protocol: Option<Protocol>,
    /// HTTP version for the target. Default `auto`: ALPN over TLS, else HTTP/1.1, and HTTP/2 for gRPC.
    pub backend_http_version: Option<BackendHttpVersion>,
    /// Switches to HTTP/3 if a target offers it (`Alt-Svc: h3=":443"`) under its own name, with `backend_scheme:
    /// https`, `backend_http_version: auto` and verification of its certificate. Requests use TCP until a QUIC
    /// connection is established, and after it is lost. Default true.
    pub backend_alt_svc: Option<bool>,
    /// Name or address of the target, or a Unix socket: `unix:/run/app.sock`. Required unless `upstream_id` is given,
    /// or a plugin of the proxy answers instead of a target, as `static_files` and `redirect` do.
    #[schemars(length(min = 1, max = 255))]
    pub backend_host: Option<String>,
    /// Port of the target. Required with `backend_host`, except for a Unix socket.
    #[schemars(range(min = 1, max = 65535))]
    pub backend_port: Option<u32>,
    /// Upstream, instead of `backend_host` and `backend_port`.
    pub upstream_id: Option<String>,
    /// Uses only the upstream's targets with all of these `tags`, such as `version: v2`. Only with `upstream_id`.
    /// Default every target.
    #[schemars(length(max = 50))]
    pub backend_tags: BTreeMap<String, String>,
    /// Prefix of the forwarded path. Default none. A target's own `path` replaces it.
    #[schemars(length(max = 2048))]
    pub backend_path: Option<String>,
    /// Removes the matched part of the path before forwarding: all of it for a regex, nothing for a proxy without
    /// `listen_path`. Default true.
    pub strip_listen_path: Option<bool>,
    /// What happens to paths that targets may interpret differently, such as those with `%2F`. Default: they are
    /// rejected with 400.
    pub path_rules: Option<PathRules>,
    /// Script and parameters of FastCGI targets (`backend_protocol: fastcgi`).
    pub fastcgi: Option<FastCgi>,
    /// `X-Forwarded-*` for targets. Default the gateway's own values.
    pub forwarded: Option<Forwarded>,
    /// Forwards the client's `Host` instead of the target's own name. Default false.
    pub preserve_host_header: Option<bool>,
    /// Processes safe requests before the client's TLS handshake is complete, if `gateway.tls.early_data` accepts them,
    /// and forwards requests that another gateway marked `Early-Data: 1`. Default true; if false, the former wait for
    /// the handshake, and the latter get 425.
    pub early_data: Option<bool>,
    /// Time for DNS lookup, TCP connection and TLS handshake, and for a DTLS handshake. Default 5s.
    #[schemars(range(min = 0.001, max = 86_400))]
    pub backend_connect_timeout: Option<Millis>,
    /// Time from the end of the request to the first byte of the response; a slower one gets 504. Default 30s; 0
    /// disables it.
    #[schemars(range(max = 86_400))]
    pub backend_first_byte_timeout: Option<Millis>,
    /// Time between two reads or writes of a body; the exchange is closed after that. Default 1m; 0 disables it.
    #[schemars(range(max = 86_400))]
    pub backend_idle_timeout: Option<Millis>,
    /// Time for the whole exchange. Default 0: disabled.
    #[schemars(range(max = 86_400))]
    pub total_timeout: Option<Millis>,
    /// How long a WebSocket may be idle in both directions. Default 1h; 0 disables it.
    #[schemars(range(max = 604_800))]
    pub websocket_idle_timeout: Option<Millis>,
    /// Longest duration of a WebSocket. Default 0: unlimited.
    #[schemars(range(max = 604_800))]
    pub websocket_lifetime: Option<Millis>,
    /// Size of a WebSocket message if plugins read messages; a larger one ends the WebSocket with 1009. Default 1 MiB.
    #[schemars(range(min = 1, max = 1_073_741_824))]
    pub websocket_max_message: Option<Bytes>,
    /// PEM file of the client certificate chain for the target. Requires `backend_tls_client_key_path`.
    #[schemars(length(min = 1, max = 4096))]
    pub backend_tls_client_cert_path: Option<String>,
    /// PEM file of that certificate's key.
    #[schemars(length(min = 1, max = 4096))]
    pub backend_tls_client_key_path: Option<String>,
    /// Verifies the target's certificate. Default true; if false, anyone on the way to the target can read and change
    /// the traffic.
    pub backend_tls_verify_server_cert: Option<bool>,
    /// PEM file of the only trusted roots for the target. Default the public roots.
    #[schemars(length(min = 1, max = 4096))]
    pub backend_tls_ca_path: Option<String>,
    /// The name sent to the target and looked for in its certificate. A stream proxy with `frontend_tls` or `accept_proxy_protocol` may
    /// send `${tls.server_name}`: the name that the client asked for, or the target's host where it asked for none. Default the target's host.
    #[schemars(length(min = 1, max = 253))]
    pub backend_tls_server_name: Option<String>,
    /// Address to use instead of a DNS lookup of the target's name.
    pub dns_override: Option<String>,
    /// How long a resolved address is used, also by kept connections. Default the TTL from DNS.
    #[schemars(range(min = 1, max = 86_400))]
    pub dns_cache_ttl: Option<Seconds>,
    /// How multiple authentication plugins combine. Default `single`.
    pub auth_mode: Option<AuthMode>,
    /// With `auth_mode: all`: whether all credentials must name the same caller. `false` admits two, such as a machine
    /// by its certificate and a user by a token; the last one counts. Default true.
    pub same_caller: Option<bool>,
    /// Plugin configs of this proxy, in addition to those that name it: its own and those of scope `proxy_group`.
    pub plugins: Vec<Plugin>,
    /// How long an idle connection to the target is kept. Default 90s.
    #[schemars(range(min = 1, max = 3600))]
    pub pool_idle_timeout: Option<Seconds>,
    /// Idle connections for each target and worker. Default 4096.
    #[schemars(range(max = 65_536))]
    pub pool_max_idle_per_host: Option<u32>,
    /// HTTP/2 connections to one target and worker. Default 2.
    #[schemars(range(min = 1, max = 256))]
    pub pool_http2_connections_per_host: Option<u32>,
    /// Interval of TCP keep-alive probes. Default 1m; 0 disables them.
    #[schemars(range(max = 86_400))]
    pub pool_tcp_keepalive: Option<Seconds>,
    /// Congestion control of connections to the target, such as `bbr`; rejected if the kernel does not have it. Not for
    /// HTTP/3. Default the system's.
    #[schemars(length(min = 1, max = 15))]
    pub backend_congestion_control: Option<String>,
    /// Source address of connections and datagrams to the target. Targets of the other address family are then
    /// unreachable. Rejected if this machine does not have the address. Not for HTTP/3. Default the system's choice.
    #[schemars(length(min = 2, max = 45))]
    pub backend_source_address: Option<String>,
    /// Network interface for traffic to the target, such as `eth1` or a VRF device. Rejected if this machine does not
    /// have the interface. Not for HTTP/3. Default the system's choice.
    #[schemars(length(min = 1, max = 15))]
    pub backend_interface: Option<String>,
    /// Connects to the target from the client's address (`IP_TRANSPARENT`), so that the target sees it without a PROXY header. For
    /// stream proxies. The gateway needs `CAP_NET_ADMIN`, and the target's replies must be routed to the gateway. Default false.
    pub backend_transparent: Option<bool>,
    /// How long the target may leave data unacknowledged before the connection is closed (`TCP_USER_TIMEOUT`). Default
    /// the system's, about 15 minutes.
    #[schemars(range(min = 0.1, max = 86_400))]
    pub backend_tcp_user_timeout: Option<Millis>,
    /// Connects to the target by Multipath TCP, and by plain TCP if the target does not support it. Rejected if the
    /// kernel does not support it. Streams are then copied instead of spliced. Not for HTTP/3. Default false.
    pub backend_mptcp: Option<bool>,
    /// Moves bulk data of plain TCP streams inside the kernel (`splice`); false copies it through the gateway. For stream proxies with
    /// `backend_scheme: tcp`. Default true.
    pub backend_splice: Option<bool>,
    /// Interval of HTTP/2 pings. Default 30s; 0 disables them.
    #[schemars(range(max = 86_400))]
    pub pool_http2_keep_alive_interval: Option<Seconds>,
    /// How long to wait for the response to a ping before the connection is closed. Default 45s.
    #[schemars(range(min = 1, max = 86_400))]
    pub pool_http2_keep_alive_timeout: Option<Seconds>,
    /// Flow control window of an HTTP/2 stream from the target, in bytes. Default 1 MiB.
    #[schemars(range(min = 65_535, max = 134_217_728))]
    pub pool_http2_initial_stream_window_size: Option<Bytes>,
    /// Flow control window of an HTTP/2 connection from the target, in bytes. Default 4 MiB.
    #[schemars(range(min = 65_535, max = 134_217_728))]
    pub pool_http2_initial_connection_window_size: Option<Bytes>,
    /// Lets the windows grow, up to 16 MiB, while responses are read as fast as they arrive. Default false.
    pub pool_http2_adaptive_window: Option<bool>,
    /// Size of the largest HTTP/2 frame from the target. Default 16KiB.
    #[schemars(range(min = 16_384, max = 1_048_576))]
    pub pool_http2_max_frame_size: Option<Bytes>,
    /// Concurrent streams on one HTTP/2 connection. Default what the target allows.
    #[schemars(range(min = 1, max = 65_536))]
    pub pool_http2_max_concurrent_streams: Option<u32>,
    /// HTTP/3 connections to one target and worker; another is opened if the target allows no more streams on the
    /// existing ones. Default 4.
    #[schemars(range(min = 1, max = 256))]
    pub pool_http3_connections_per_backend: Option<u32>,
    /// Stops traffic to a failing target for a while. Not for UDP and DTLS, where nothing confirms a datagram; there,
    /// an upstream's passive health checks count rejections and failed handshakes. Default never.
    pub circuit_breaker: Option<CircuitBreaker>,
    /// Retries of failed requests. Default none, except that a kept connection that turns out to be dead is replaced.
    pub retry: Option<Retry>,
    /// Also sends a slow request to another target of the upstream. Default off.
    pub hedging: Option<super::Hedging>,
    /// Port of a stream proxy. Not together with `listen_port_range`.
    #[schemars(range(min = 1, max = 65535))]
    pub listen_port: Option<u32>,
    /// Ports of a stream proxy, first and last included, as `5000-5010`; at most 1,024. They open together: if one is
    /// in use, all of them stay closed until it is free.
    pub listen_port_range: Option<String>,
    /// Port of the target for a port of `listen_port_range`: `single` is always the target's own port, `offset` adds
    /// the client port's distance from the first port of the range. Default `single`.
    pub backend_port_mapping: Option<PortMapping>,
    /// Terminates TLS (TCP) or DTLS (UDP) at the port. Default false.
    pub frontend_tls: Option<bool>,
    /// Protocol whose clients request TLS in plain text before the handshake. The gateway answers for the target until
    /// TLS begins. With `passthrough`, it then requests TLS from the target in the same way. For TCP, with
    /// `frontend_tls` or `passthrough`. Default none: TLS begins with the first byte.
    pub frontend_starttls: Option<Starttls>,
    /// Protocol in which the gateway requests TLS from the target before the handshake. With `backend_scheme: tcps`.
    /// Default none.
    pub backend_starttls: Option<Starttls>,
    /// Forwards encrypted bytes (TLS; QUIC or DTLS over UDP) without decrypting them, and selects the proxy on a port
    /// by SNI. Default false.
    pub passthrough: Option<bool>,
    /// ALPN protocols, such as `h2`: the proxy matches clients that offer any of these, in addition to `hosts`. Among
    /// proxies with the same names, those with `alpn` have precedence. With `passthrough`. If a client offers several
    /// that proxies match, its first decides. Default all.
    #[schemars(length(max = 16), inner(length(min = 1, max = 255)))]
    pub alpn: Vec<String>,
    /// How long a UDP session may be idle. Default 1m.
    #[schemars(range(min = 1, max = 3600))]
    pub udp_idle_timeout: Option<Seconds>,
    /// Limits the size of all replies of a session to the size of its requests, multiplied by this factor; further
    /// replies are dropped. Default no limit.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub udp_max_response_amplification_factor: Option<f64>,
    /// Open UDP sessions, over all workers; datagrams that would open more are dropped and counted. Default 100000.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub udp_max_sessions: Option<u64>,
    /// How long a TCP session may be idle. Default 5m; 0 disables it.
    #[schemars(range(max = 86_400))]
    pub tcp_idle_timeout: Option<Seconds>,
    /// Requires a PROXY protocol header on a stream proxy, from trusted proxies only. On a UDP proxy, it is of version 2, and neither
    /// `frontend_tls` nor `passthrough` is possible. Default false.
    pub accept_proxy_protocol: Option<bool>,
    /// Which datagrams of a UDP proxy begin with that header. Default `every`: each says which client it is from, and one without a
    /// header is refused. With `first`, the first datagram from an address of a trusted proxy says it for all that follow.
    pub accept_proxy_protocol_datagrams: Option<HeaderDatagrams>,
    /// Sends a PROXY protocol header of version 1 or 2 to the target of a stream proxy; of a UDP proxy of version 2 only. Default none.
    #[schemars(range(min = 1, max = 2))]
    pub send_proxy_protocol: Option<u32>,
    /// Which datagrams of a UDP session that header is sent with. Default `every`.
    pub send_proxy_protocol_datagrams: Option<HeaderDatagrams>,
    /// Extensions (TLVs) of that header, with `send_proxy_protocol: 2` only. Default none.
    #[schemars(length(max = 5))]
    pub send_proxy_protocol_tlvs: Vec<ProxyTlv>,
    /// Allowed methods, HEAD with GET; others get 405 with `Allow`. Default all.
    pub allowed_methods: Option<Vec<String>>,
    /// Protocols that clients may switch to. The gateway forwards a request for another protocol without its `Upgrade`; over HTTP/2 and
    /// HTTP/3 it answers 501. Default `websocket`; an empty list allows none.
    pub allowed_upgrades: Option<Vec<UpgradeProtocol>>,
    /// Origins that may open a WebSocket; others get 403. Default all.
    #[schemars(length(max = 100))]
    pub allowed_ws_origins: Vec<String>,
    /// Size of a request body; a larger one gets 413. Default the gateway's limit; 0 disables the limit.
    pub max_request_body: Option<Bytes>,
}

/// Which datagrams begin with a PROXY protocol header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HeaderDatagrams {
    /// Each one, as DNS servers expect it.
    Every,
    /// The first one of a session.
    First,
}

/// A plugin config of a proxy.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plugin {
    /// The plugin config's `id`.
    pub plugin_config_id: String,
}

/// Protocol of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS.
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

/// Older spelling of [`Scheme`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// `http`.
    Http,
    /// `https`.
    Https,
    /// `http`; WebSockets are recognised by their handshake.
    Ws,
    /// `https`; WebSockets are recognised by their handshake.
    Wss,
    /// `http` over HTTP/2.
    Grpc,
    /// `https` over HTTP/2.
    Grpcs,
    /// `https`, HTTP/3 first.
    H3,
    /// FastCGI, over plain TCP or a Unix socket.
    #[serde(rename = "fastcgi")]
    FastCgi,
    /// `tcp`.
    Tcp,
    /// `tcps`.
    TcpTls,
    /// `udp`.
    Udp,
    /// `dtls`.
    Dtls,
}

/// HTTP version for a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum BackendHttpVersion {
    /// ALPN over TLS, and HTTP/3 if the target offers it; else HTTP/1.1, and HTTP/2 for gRPC.
    #[serde(rename = "auto")]
    Auto,
    /// HTTP/1.1 only.
    #[serde(rename = "1.1")]
    Http1,
    /// HTTP/2 only; over plain TCP with prior knowledge.
    #[serde(rename = "2")]
    Http2,
    /// HTTP/3 first, then what TLS offers. Needs an encrypted scheme.
    #[serde(rename = "3")]
    Http3,
    /// The client's version. If HTTP/3 lacks an encrypted scheme, HTTP/2 is used; gRPC never uses HTTP/1.1, and
    /// WebSockets are opened over HTTP/1.1.
    #[serde(rename = "same")]
    Same,
}

/// Protocol of an upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UpgradeProtocol {
    /// WebSocket (RFC 6455), also over HTTP/2 and HTTP/3.
    WebSocket,
}

/// What happens to paths that a target may interpret differently than the gateway did when it selected the proxy and
/// its plugins.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PathRules {
    /// `%2F`. Default `refuse`.
    pub encoded_slash: Option<PathPolicy>,
    /// `\` and `%5C`; a kept one is forwarded as `%5C`, a decoded one as `/`. Default `refuse`.
    pub backslash: Option<PathPolicy>,
    /// `%252F`, `%252E`, `%255C`, `%2500` and `%2525`. Decoded, `%252F` is `%2F`, to which `encoded_slash` applies; a
    /// path that is still encoded twice is rejected. Default `refuse`.
    pub double_encoding: Option<PathPolicy>,
    /// `;` and what follows it in a segment. Default `keep`; a dot segment with parameters (`..;`) is always rejected.
    pub parameters: Option<Parameters>,
}

/// What happens to an ambiguous path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PathPolicy {
    /// Rejected with 400.
    Refuse,
    /// Forwarded unchanged.
    Keep,
    /// Decoded before it is routed and forwarded.
    Decode,
}

/// What happens to parameters in segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Parameters {
    /// Forwarded unchanged.
    Keep,
    /// Rejected with 400.
    Refuse,
    /// Removed before the path is routed and forwarded.
    Remove,
}

/// How multiple authentication plugins combine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AuthMode {
    /// The first plugin that finds a credential decides; a wrong credential is rejected at once.
    Single,
    /// Plugins try one after the other; the first success decides.
    Multi,
    /// Every plugin must authenticate the caller, and the same one unless `same_caller: false`; the last one counts.
    All,
}

/// Port of the target for a port of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PortMapping {
    /// The target's own port.
    Single,
    /// The target's port plus the client port's distance from the first port of the range.
    Offset,
}

/// Order in which an overloaded gateway rejects proxies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoadPriority {
    /// First.
    Low,
    /// After those with `low`.
    Normal,
    /// Never.
    High,
}

/// An extension of a PROXY header of version 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProxyTlv {
    /// Server name that the client requested, or that the PROXY header of a trusted proxy contained.
    Authority,
    /// Version and cipher of the client's TLS, and whether the client sent a certificate. Only with `frontend_tls`.
    Tls,
    /// CRC32c of the header.
    Crc32c,
    /// Application protocol: from the PROXY header of a trusted proxy, or with `passthrough` and `alpn` the protocol by
    /// which the proxy was selected.
    Alpn,
    /// Unique ID of the connection on its way through several proxies: from the PROXY header of a trusted proxy, or a
    /// new UUID. The access record contains it.
    UniqueId,
}

/// Protocol with plain text before TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Starttls {
    /// PostgreSQL's `SSLRequest`. Clients may also begin TLS at once (`sslnegotiation=direct`).
    Postgres,
    /// SMTP and submission (RFC 3207).
    Smtp,
    /// IMAP (RFC 9051).
    Imap,
    /// POP3 (RFC 2595).
    Pop3,
}
