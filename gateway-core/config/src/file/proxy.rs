//! A proxy as written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{CircuitBreaker, FastCgi, Forwarded, Retry};
use crate::condition::written::Condition;
use crate::units::{Bytes, Millis, Seconds};

/// One way in and where it leads.
///
/// An HTTP proxy takes requests by host and path; a stream proxy takes a port (`listen_port`) of its own.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Proxy {
    /// Unique among proxies: 1–254 letters, digits, `.`, `_` and `-`, beginning with a letter or digit. Required.
    #[schemars(length(max = 254))]
    pub id: Option<String>,
    /// For people; unique when given.
    #[schemars(length(max = 255))]
    pub name: Option<String>,
    /// Host names or `*.suffix` patterns. Default none: any host. On a `passthrough` stream proxy: server names (SNI).
    #[schemars(length(max = 100))]
    pub hosts: Vec<String>,
    /// `/prefix` on whole segments, or `~regex` over the whole path. Default none: every path of `hosts` that no other
    /// proxy takes. An HTTP proxy needs this or `hosts`; a stream proxy has none.
    #[schemars(length(max = 500))]
    pub listen_path: Option<String>,
    /// Requests this proxy takes, any of these. `hosts` and `listen_path` above hold for those that have no `hosts` or
    /// `path` of their own. Default none: all requests for `hosts` and `listen_path`.
    #[schemars(length(max = 100))]
    pub matches: Vec<Condition>,
    /// Goes before the proxies of the same host that have a lower one, whatever their paths. Default 0: an exact path goes
    /// before one with names, that before a prefix, that before a regex, and the longer before the shorter.
    pub priority: Option<i32>,
    /// The consumer that the proxy belongs to, such as a customer whose ports are forwarded: its `id`, `username` or `custom_id`. Plugin
    /// configs with `scope: owner` run for all proxies of an owner, and `limit_by: owner` counts by it. Default nobody.
    #[schemars(length(max = 254))]
    pub owner: Option<String>,
    /// Which proxies are refused with 503 first when the gateway is overloaded (`gateway.overload`): `low` before
    /// `normal`, `high` never. Default `normal`.
    pub load_priority: Option<LoadPriority>,
    /// How the target is spoken to. Default `http`; a stream proxy must say it. Not together with `backend_protocol`.
    pub backend_scheme: Option<Scheme>,
    /// `fastcgi` for PHP-FPM and other FastCGI servers; else the older spelling of `backend_scheme`, which also chose the HTTP
    /// version. Not together with `backend_scheme`.
    pub backend_protocol: Option<Protocol>,
    /// The HTTP version the target is spoken to in. Default `auto`: ALPN over TLS, else HTTP/1.1, and HTTP/2 for gRPC.
    pub backend_http_version: Option<BackendHttpVersion>,
    /// Speaks HTTP/3 from then on to a target whose answers offer it (`Alt-Svc: h3=":443"`), under its own name only,
    /// with `backend_scheme: https`, `backend_http_version: auto` and its certificate checked. Requests go over TCP until
    /// a QUIC connection stands, and again when it is gone. Default true.
    pub backend_alt_svc: Option<bool>,
    /// The target's name or address, or a Unix socket: `unix:/run/app.sock`. Required unless `upstream_id` is given, or a
    /// plugin of the proxy answers in the place of a target, as `static_files` and `redirect` do.
    #[schemars(length(min = 1, max = 255))]
    pub backend_host: Option<String>,
    /// The target's port. Required with `backend_host`, but for a Unix socket, which has none.
    #[schemars(range(min = 1, max = 65535))]
    pub backend_port: Option<u32>,
    /// The group of targets, instead of `backend_host` and `backend_port`.
    pub upstream_id: Option<String>,
    /// Only the upstream's targets that have all of these `tags`, such as `version: v2`. Only with `upstream_id`. Default
    /// every target.
    #[schemars(length(max = 50))]
    pub backend_tags: BTreeMap<String, String>,
    /// Put before the forwarded path. Default none. A target's own `path` replaces it.
    #[schemars(length(max = 2048))]
    pub backend_path: Option<String>,
    /// Removes the matched part of the path before forwarding: all of it for a regex, nothing for a proxy without
    /// `listen_path`. Default true.
    pub strip_listen_path: Option<bool>,
    /// What becomes of paths that targets may read otherwise than the gateway, such as those with `%2F`. Default they are
    /// refused with 400.
    pub path_rules: Option<PathRules>,
    /// Scripts and parameters of targets that speak FastCGI (`backend_protocol: fastcgi`).
    pub fastcgi: Option<FastCgi>,
    /// What targets are told in `X-Forwarded-*`. Default the gateway's own values.
    pub forwarded: Option<Forwarded>,
    /// Sends the client's Host to the target instead of the target's own. Default false.
    pub preserve_host_header: Option<bool>,
    /// Carries safe requests out before their client's TLS handshake is over, where `gateway.tls.early_data` takes such,
    /// and passes on what another gateway marked `Early-Data: 1`. Default true; false has the former wait for the
    /// handshake and answers the latter with 425.
    pub early_data: Option<bool>,
    /// Time for name lookup, TCP and TLS handshake, and for that of DTLS. Default 5s.
    #[schemars(range(min = 0.001, max = 86_400))]
    pub backend_connect_timeout: Option<Millis>,
    /// Time from the end of the request to the first byte of the response; then 504. Default 30s; 0 is off.
    #[schemars(range(max = 86_400))]
    pub backend_first_byte_timeout: Option<Millis>,
    /// Time between two reads or writes of a body; then the exchange is cut off. Default 1m; 0 is off.
    #[schemars(range(max = 86_400))]
    pub backend_idle_timeout: Option<Millis>,
    /// Time for the whole exchange. Default 0, which is off.
    #[schemars(range(max = 86_400))]
    pub total_timeout: Option<Millis>,
    /// Time without a byte in either direction after which a WebSocket is closed. Default 1h; 0 is off.
    #[schemars(range(max = 604_800))]
    pub websocket_idle_timeout: Option<Millis>,
    /// Time after which a WebSocket is closed, busy or not. Default 0, which is off.
    #[schemars(range(max = 604_800))]
    pub websocket_lifetime: Option<Millis>,
    /// Bytes a WebSocket message may have where plugins read messages; a larger one ends the WebSocket with 1009.
    /// Default 1 MiB.
    #[schemars(range(min = 1, max = 1_073_741_824))]
    pub websocket_max_message: Option<Bytes>,
    /// PEM file of the certificate chain shown to the target. Needs `backend_tls_client_key_path`.
    #[schemars(length(min = 1, max = 4096))]
    pub backend_tls_client_cert_path: Option<String>,
    /// PEM file of that certificate's key.
    #[schemars(length(min = 1, max = 4096))]
    pub backend_tls_client_key_path: Option<String>,
    /// Checks the target's certificate. Default true; false lets anybody between here and the target read along.
    pub backend_tls_verify_server_cert: Option<bool>,
    /// PEM file of the only roots trusted for the target. Default the public roots.
    #[schemars(length(min = 1, max = 4096))]
    pub backend_tls_ca_path: Option<String>,
    /// The name sent to the target and looked for in its certificate. A stream proxy with `frontend_tls` or `accept_proxy_protocol` may
    /// send `${tls.server_name}`: the name that the client asked for, or the target's host where it asked for none. Default the target's host.
    #[schemars(length(min = 1, max = 253))]
    pub backend_tls_server_name: Option<String>,
    /// An address used instead of looking the target's name up.
    pub dns_override: Option<String>,
    /// How long a looked-up address is used, also by kept connections. Default what the name server says.
    #[schemars(range(min = 1, max = 86_400))]
    pub dns_cache_ttl: Option<Seconds>,
    /// How several authentication plugins combine. Default `single`.
    pub auth_mode: Option<AuthMode>,
    /// With `auth_mode: all`: whether all credentials must name the same caller. `false` admits two, such as a machine by its
    /// certificate and a user by a token; the last one counts. Default true.
    pub same_caller: Option<bool>,
    /// Plugin configs of this proxy beside those that name it: its own and those of scope `proxy_group`.
    pub plugins: Vec<Plugin>,
    /// Time after which an unused connection to the target is closed. Default 90s.
    #[schemars(range(min = 1, max = 3600))]
    pub pool_idle_timeout: Option<Seconds>,
    /// Idle connections kept for each target and worker. Default 4096.
    #[schemars(range(max = 65_536))]
    pub pool_max_idle_per_host: Option<u32>,
    /// HTTP/2 connections to one target and worker. Default 2.
    #[schemars(range(min = 1, max = 256))]
    pub pool_http2_connections_per_host: Option<u32>,
    /// Time between TCP keep-alive probes. Default 1m; 0 is off.
    #[schemars(range(max = 86_400))]
    pub pool_tcp_keepalive: Option<Seconds>,
    /// The kernel's congestion control for what is sent to the target, such as `bbr`; refused where the kernel has not got
    /// it. Not for HTTP/3. Default the system's.
    #[schemars(length(min = 1, max = 15))]
    pub backend_congestion_control: Option<String>,
    /// The address of this machine from which the gateway connects to the target, or sends datagrams to it. Targets of the other
    /// address family are then unreachable. Refused where this machine has no such address. Not for HTTP/3. Default
    /// the system's choice.
    #[schemars(length(min = 2, max = 45))]
    pub backend_source_address: Option<String>,
    /// The network interface through which the gateway reaches the target, such as `eth1` or a VRF device. Refused where this
    /// machine has no such interface. Not for HTTP/3. Default the system's choice.
    #[schemars(length(min = 1, max = 15))]
    pub backend_interface: Option<String>,
    /// Connects to the target from the client's address (`IP_TRANSPARENT`), so that the target sees it without a PROXY header. For
    /// stream proxies. The gateway needs `CAP_NET_ADMIN`, and the target's replies must be routed to the gateway. Default false.
    pub backend_transparent: Option<bool>,
    /// How long sent data may stay unacknowledged by the target before the connection is given up (`TCP_USER_TIMEOUT`). Default
    /// the system's, about 15 minutes.
    #[schemars(range(min = 0.1, max = 86_400))]
    pub backend_tcp_user_timeout: Option<Millis>,
    /// Connects to the target by Multipath TCP, and by plain TCP where the target does not support it. Refused where the
    /// kernel does not support it. Streams are then copied instead of spliced. Not for HTTP/3. Default false.
    pub backend_mptcp: Option<bool>,
    /// Moves bulk data of plain TCP streams inside the kernel (`splice`); false copies it through the gateway. For stream proxies with
    /// `backend_scheme: tcp`. Default true.
    pub backend_splice: Option<bool>,
    /// Time between HTTP/2 pings. Default 30s; 0 is off.
    #[schemars(range(max = 86_400))]
    pub pool_http2_keep_alive_interval: Option<Seconds>,
    /// Time to wait for a ping's answer before the connection is given up. Default 45s.
    #[schemars(range(min = 1, max = 86_400))]
    pub pool_http2_keep_alive_timeout: Option<Seconds>,
    /// Bytes the target may send on one HTTP/2 stream before it has to wait. Default 1 MiB.
    #[schemars(range(min = 65_535, max = 134_217_728))]
    pub pool_http2_initial_stream_window_size: Option<Bytes>,
    /// Bytes the target may send on one HTTP/2 connection before it has to wait. Default 4 MiB.
    #[schemars(range(min = 65_535, max = 134_217_728))]
    pub pool_http2_initial_connection_window_size: Option<Bytes>,
    /// Lets the windows grow, up to 16 MiB, while what the target sends is read as fast as it comes. Default false.
    pub pool_http2_adaptive_window: Option<bool>,
    /// Bytes of an HTTP/2 frame the target may send. Default 16KiB.
    #[schemars(range(min = 16_384, max = 1_048_576))]
    pub pool_http2_max_frame_size: Option<Bytes>,
    /// Streams opened at a time on one HTTP/2 connection. Default what the target allows.
    #[schemars(range(min = 1, max = 65_536))]
    pub pool_http2_max_concurrent_streams: Option<u32>,
    /// HTTP/3 connections to one target and worker; one more is made when the target allows no more streams on those
    /// there are. Default 4.
    #[schemars(range(min = 1, max = 256))]
    pub pool_http3_connections_per_backend: Option<u32>,
    /// When to leave a target alone for a while. Not for UDP and DTLS: nothing says that a datagram has arrived; there, an
    /// upstream's passive health checks go by targets that refuse and by handshakes that fail. Default never.
    pub circuit_breaker: Option<CircuitBreaker>,
    /// What is tried again. Default nothing, except that a kept connection found dead is replaced.
    pub retry: Option<Retry>,
    /// Sends a request that takes long to another target of the upstream as well. Default off.
    pub hedging: Option<super::Hedging>,
    /// The port of a stream proxy. Not together with `listen_port_range`.
    #[schemars(range(min = 1, max = 65535))]
    pub listen_port: Option<u32>,
    /// The ports of a stream proxy, first and last included, as `5000-5010`; at most 1,024. They are opened together: if one is in use,
    /// all of them stay closed until it is free.
    pub listen_port_range: Option<String>,
    /// Which port of the target a port of `listen_port_range` leads to: `single` is always the target's own, `offset` is as far behind it as
    /// the client's port is behind the first of the range. Default `single`.
    pub backend_port_mapping: Option<PortMapping>,
    /// Terminates TLS (TCP) or DTLS (UDP) at the port. Default false.
    pub frontend_tls: Option<bool>,
    /// The protocol whose clients ask for TLS in plain text before they begin it. The gateway answers for the target until TLS begins.
    /// With `passthrough`, it then asks the target in the same way. For TCP, with `frontend_tls` or `passthrough`. Default none:
    /// TLS begins with the first byte.
    pub frontend_starttls: Option<Starttls>,
    /// The protocol in which the gateway asks the target for TLS before its handshake. With `backend_scheme: tcps`. Default none.
    pub backend_starttls: Option<Starttls>,
    /// Forwards encrypted bytes (TLS; QUIC or DTLS over UDP) unopened, choosing among proxies on one port by SNI.
    /// Default false.
    pub passthrough: Option<bool>,
    /// ALPN protocols, such as `h2`: the proxy takes clients that offer any of these, beside those selected by `hosts`. Among proxies
    /// with the same names, those with `alpn` go first. With `passthrough`. If a client offers several that proxies take, its first decides. Default all.
    #[schemars(length(max = 16), inner(length(min = 1, max = 255)))]
    pub alpn: Vec<String>,
    /// Time after which a silent UDP session ends. Default 1m.
    #[schemars(range(min = 1, max = 3600))]
    pub udp_idle_timeout: Option<Seconds>,
    /// Drops replies that would make a session's replies together larger than its requests times this factor. Default
    /// no limit.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub udp_max_response_amplification_factor: Option<f64>,
    /// UDP sessions at a time, over all workers; datagrams that would open more are dropped and counted. Default
    /// 100000.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub udp_max_sessions: Option<u64>,
    /// Time after which a silent TCP session ends. Default 5m; 0 is off.
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
    /// Methods that are let through, HEAD wherever GET is; others get 405 with `Allow`. Default all.
    pub allowed_methods: Option<Vec<String>>,
    /// Protocols that clients may switch to. The gateway forwards a request for another protocol without its `Upgrade`; over HTTP/2 and
    /// HTTP/3 it answers 501. Default `websocket`; an empty list allows none.
    pub allowed_upgrades: Option<Vec<UpgradeProtocol>>,
    /// Origins that may open a WebSocket; others get 403. Default all.
    #[schemars(length(max = 100))]
    pub allowed_ws_origins: Vec<String>,
    /// Bytes a request body may have; beyond it 413. Default the gateway's limit; 0 is no limit.
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

/// A plugin config a proxy names.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plugin {
    /// The plugin config's `id`.
    pub plugin_config_id: String,
}

/// How a target is spoken to.
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

/// The older spelling of [`Scheme`].
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

/// The HTTP version a target is spoken to in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum BackendHttpVersion {
    /// ALPN over TLS, and HTTP/3 where the target offers it; else HTTP/1.1, and HTTP/2 for gRPC.
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
    /// The client's version. HTTP/3 needs an encrypted scheme, else HTTP/2 is spoken; gRPC is never spoken over HTTP/1.1,
    /// and WebSockets are opened over HTTP/1.1.
    #[serde(rename = "same")]
    Same,
}

/// A protocol that a connection is switched to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UpgradeProtocol {
    /// WebSocket (RFC 6455), also over HTTP/2 and HTTP/3.
    WebSocket,
}

/// What becomes of paths that a target may read otherwise than the gateway did when it chose the proxy and its plugins.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PathRules {
    /// `%2F`. Default `refuse`.
    pub encoded_slash: Option<PathPolicy>,
    /// `\` and `%5C`; a kept one is forwarded as `%5C`, a decoded one as `/`. Default `refuse`.
    pub backslash: Option<PathPolicy>,
    /// `%252F`, `%252E`, `%255C`, `%2500` and `%2525`. Decoded, `%252F` is `%2F`, for `encoded_slash` to decide on; a path that is
    /// still encoded twice is refused. Default `refuse`.
    pub double_encoding: Option<PathPolicy>,
    /// `;` and what follows it in a segment. Default `keep`; a dot segment with parameters (`..;`) is always refused.
    pub parameters: Option<Parameters>,
}

/// What becomes of an odd path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PathPolicy {
    /// Answered with 400.
    Refuse,
    /// Forwarded as it is.
    Keep,
    /// Decoded before it is routed and forwarded.
    Decode,
}

/// What becomes of parameters in segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Parameters {
    /// Forwarded as they are.
    Keep,
    /// Answered with 400.
    Refuse,
    /// Removed before the path is routed and forwarded.
    Remove,
}

/// How several authentication plugins combine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AuthMode {
    /// The first plugin that finds a credential decides; a wrong one is refused at once.
    Single,
    /// Every plugin may try; the first success wins.
    Multi,
    /// Every plugin has to recognise the caller, and the same one unless `same_caller: false`; the last one counts.
    All,
}

/// Which port of the target a port of a range leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PortMapping {
    /// The target's own.
    Single,
    /// As far behind it as the client's port is behind the first of the range.
    Offset,
}

/// Which proxies are refused first when the gateway is overloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoadPriority {
    /// Before all others.
    Low,
    /// After those.
    Normal,
    /// Never.
    High,
}

/// An extension of a PROXY header of version 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProxyTlv {
    /// The server name that the client asked for, or that the PROXY header of a trusted proxy contained.
    Authority,
    /// Version and cipher of the client's TLS, and whether the client showed a certificate. Only with `frontend_tls`.
    Tls,
    /// A CRC32c of the header.
    Crc32c,
    /// The application protocol: that of the PROXY header of a trusted proxy, or with `passthrough` and `alpn` the protocol by which
    /// the proxy was selected.
    Alpn,
    /// What names the connection to all proxies on its way: that of the PROXY header of a trusted proxy, or a new UUID. The access
    /// record contains it.
    UniqueId,
}

/// A protocol whose plain text precedes TLS.
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
