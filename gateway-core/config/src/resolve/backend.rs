//! Where a proxy's traffic goes.

pub(super) mod sockets;

use std::path::Path;
use std::sync::Arc;

use super::known::{Group, NamedObjects};
use super::shared_values::SharedValues;
use super::{Notes, ObjectPlace, fastcgi, words};
use crate::file;
use crate::model::{
    Backend, BackendHttp, BackendTls, DnsRules, HashOn, Http2Rules, Id, PoolRules, RareBackend, Scheme,
    TargetRules, Upstream, service_name, socket_path,
};
use crate::units::Seconds;

/// In place of a name that is sent to targets: the one that the client has asked for.
const CLIENT_NAME: &str = "${tls.server_name}";

/// Whether targets get the name that the client has asked for.
pub(super) fn sends_client_name(written: &file::Proxy) -> bool {
    written.backend_tls_server_name.as_deref() == Some(CLIENT_NAME)
}

/// As [`sends_client_name`] for a stream proxy, whose other settings have to give one.
pub(super) fn client_name(notes: &mut Notes<'_>, written: &file::Proxy, scheme: Scheme) -> bool {
    const KEY: &str = "backend_tls_server_name";
    if !sends_client_name(written) {
        return false;
    }
    if !scheme.is_encrypted() {
        notes.add(KEY, format!("nothing is encrypted to a target of scheme `{}`", scheme.as_str())).remedy =
            Some(format!("write `backend_scheme: {}`, or remove it", encrypted(scheme).as_str()));
    } else if written.frontend_tls != Some(true) && written.accept_proxy_protocol != Some(true) {
        notes.add(KEY, "plain traffic has no server name").remedy =
            Some("write `frontend_tls` or `accept_proxy_protocol`, or a name".to_owned());
    }
    true
}

/// How targets' certificates are judged, as a proxy or an upstream says it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tls<'a> {
    client_cert: Option<&'a str>,
    client_key: Option<&'a str>,
    verify: Option<bool>,
    ca: Option<&'a str>,
    server_name: Option<&'a str>,
}

impl<'a> Tls<'a> {
    fn of_proxy(written: &'a file::Proxy) -> Self {
        Self {
            client_cert: written.backend_tls_client_cert_path.as_deref(),
            client_key: written.backend_tls_client_key_path.as_deref(),
            verify: written.backend_tls_verify_server_cert,
            ca: written.backend_tls_ca_path.as_deref(),
            server_name: written.backend_tls_server_name.as_deref().filter(|name| *name != CLIENT_NAME),
        }
    }

    pub(super) fn of_upstream(written: &'a file::Upstream) -> Self {
        Self {
            client_cert: written.backend_tls_client_cert_path.as_deref(),
            client_key: written.backend_tls_client_key_path.as_deref(),
            verify: written.backend_tls_verify_server_cert,
            ca: written.backend_tls_ca_path.as_deref(),
            server_name: written.backend_tls_server_name.as_deref(),
        }
    }

    pub(super) fn is_given(self) -> bool {
        self.first_key().is_some()
    }

    /// The first key that says anything of TLS. `verify: true` says nothing: it is the default.
    fn first_key(self) -> Option<&'static str> {
        [
            ("backend_tls_client_cert_path", self.client_cert.is_some()),
            ("backend_tls_client_key_path", self.client_key.is_some()),
            ("backend_tls_verify_server_cert", self.verify == Some(false)),
            ("backend_tls_ca_path", self.ca.is_some()),
            ("backend_tls_server_name", self.server_name.is_some()),
        ]
        .into_iter()
        .find_map(|(key, given)| given.then_some(key))
    }
}

/// `None` when something is wrong, which is then noted.
pub(super) fn tls(notes: &mut Notes<'_>, written: &Tls<'_>, folder: &Path) -> Option<Arc<BackendTls>> {
    let client_cert = match (written.client_cert, written.client_key) {
        (Some(cert), Some(key)) => Some((words::file_path(folder, cert), words::file_path(folder, key))),
        (None, None) => None,
        (Some(_), None) => {
            notes.add("backend_tls_client_cert_path", "the certificate has no key").remedy =
                Some("write `backend_tls_client_key_path` too".to_owned());
            return None;
        }
        (None, Some(_)) => {
            notes.add("backend_tls_client_key_path", "the key has no certificate").remedy =
                Some("write `backend_tls_client_cert_path` too".to_owned());
            return None;
        }
    };
    let server_name = match written.server_name {
        Some(name) => Some(notes.value("backend_tls_server_name", words::target_host(name))?),
        None => None,
    };
    Some(Arc::new(BackendTls {
        verify: written.verify.unwrap_or(true),
        ca_path: written.ca.map(|path| words::file_path(folder, path)),
        client_cert,
        server_name,
    }))
}

/// What is spoken to targets.
#[derive(Debug, Clone, Copy)]
pub(super) struct TargetProtocol {
    pub(super) scheme: Scheme,
    pub(super) version: BackendHttp,
}

/// What a proxy says of its scheme, in either spelling; `None` when it says none or two.
pub(super) fn protocol(notes: &mut Notes<'_>, written: &file::Proxy) -> Option<TargetProtocol> {
    let (scheme, implied) = match (written.backend_scheme, written.backend_protocol) {
        (Some(_), Some(_)) => {
            notes
                .add("backend_protocol", "`backend_scheme` says this already, in the newer spelling")
                .remedy = Some("keep one of the two".to_owned());
            return None;
        }
        (None, None) => (Scheme::Http, BackendHttp::Auto),
        (Some(scheme), None) => (newer(scheme), BackendHttp::Auto),
        (None, Some(protocol)) => older(protocol),
    };
    let version = match written.backend_http_version {
        _ if implied == BackendHttp::FastCgi => implied,
        None => implied,
        Some(file::BackendHttpVersion::Auto) => BackendHttp::Auto,
        Some(file::BackendHttpVersion::Http1) => BackendHttp::Http1,
        Some(file::BackendHttpVersion::Http2) => BackendHttp::Http2,
        Some(file::BackendHttpVersion::Http3) => BackendHttp::Http3,
        Some(file::BackendHttpVersion::Same) => BackendHttp::Same,
    };
    if version == BackendHttp::Http3 && scheme == Scheme::Http {
        notes.add("backend_http_version", "HTTP/3 is always encrypted").remedy =
            Some("write `backend_scheme: https`".to_owned());
    }
    Some(TargetProtocol { scheme, version })
}

fn newer(scheme: file::Scheme) -> Scheme {
    match scheme {
        file::Scheme::Http => Scheme::Http,
        file::Scheme::Https => Scheme::Https,
        file::Scheme::Tcp => Scheme::Tcp,
        file::Scheme::Tcps => Scheme::Tcps,
        file::Scheme::Udp => Scheme::Udp,
        file::Scheme::Dtls => Scheme::Dtls,
    }
}

fn older(protocol: file::Protocol) -> (Scheme, BackendHttp) {
    match protocol {
        file::Protocol::Http | file::Protocol::Ws => (Scheme::Http, BackendHttp::Auto),
        file::Protocol::Https | file::Protocol::Wss => (Scheme::Https, BackendHttp::Auto),
        file::Protocol::Grpc => (Scheme::Http, BackendHttp::Http2),
        file::Protocol::Grpcs => (Scheme::Https, BackendHttp::Http2),
        file::Protocol::H3 => (Scheme::Https, BackendHttp::Http3),
        file::Protocol::FastCgi => (Scheme::Http, BackendHttp::FastCgi),
        file::Protocol::Tcp => (Scheme::Tcp, BackendHttp::Auto),
        file::Protocol::TcpTls => (Scheme::Tcps, BackendHttp::Auto),
        file::Protocol::Udp => (Scheme::Udp, BackendHttp::Auto),
        file::Protocol::Dtls => (Scheme::Dtls, BackendHttp::Auto),
    }
}

/// Where a proxy named `id` sends traffic of this scheme.
pub(super) fn backend(
    notes: &mut Notes<'_>,
    written: &file::Proxy,
    protocol: TargetProtocol,
    place: ObjectPlace<'_>,
    owner: Owner<'_>,
    known: &NamedObjects,
) -> Option<Backend> {
    let TargetProtocol { scheme, version: http_version } = protocol;
    let group = match written.upstream_id.as_deref() {
        Some(upstream) => {
            let own = [
                ("backend_host", written.backend_host.is_some()),
                ("backend_port", written.backend_port.is_some()),
            ];
            for (key, _) in own.into_iter().filter(|(_, is_given)| *is_given) {
                notes.add(key, format!("the targets are those of the upstream `{upstream}`")).remedy =
                    Some("remove it, or `upstream_id`".to_owned());
            }
            named_group(notes, upstream, known)
        }
        None => own_group(notes, written, owner, known.shared_values()),
    };
    let written_tls = Tls::of_proxy(written);
    if let Some(key) = written_tls.first_key().filter(|_| !scheme.is_encrypted()) {
        notes.add(key, format!("nothing is encrypted to a target of scheme `{}`", scheme.as_str())).remedy =
            Some(format!("write `backend_scheme: {}`, or remove it", encrypted(scheme).as_str()));
    }
    let own = if scheme.is_encrypted() { Some(tls(notes, &written_tls, place.folder)?) } else { None };
    let address =
        written.dns_override.as_deref().and_then(|text| notes.value("dns_override", words::address(text)));
    let Group { upstream, tls, sockets: shared } = group?;
    if tls.as_ref().is_some_and(|tls| tls.server_name.is_some()) && sends_client_name(written) {
        let message = format!("the upstream `{}` says which name its targets get", upstream.id);
        notes.add("backend_tls_server_name", message).remedy = Some("keep one of the two".to_owned());
    }
    if tls.is_some() {
        of_tls(notes, scheme, written_tls, &upstream);
    }
    if !matches!(scheme, Scheme::Http | Scheme::Https) && upstream.affinity.is_some() {
        notes
            .add(
                "upstream_id",
                format!("the upstream `{}` gives clients a cookie; streams have none", upstream.id),
            )
            .remedy =
            Some("remove its `sticky` or `hash_on_cookie_config`, or name another upstream".to_owned());
    } else if !matches!(scheme, Scheme::Http | Scheme::Https) {
        of_requests(notes, &upstream);
    }
    let tags = tags(notes, written, &upstream);
    let tls = own.map(|own| tls.unwrap_or(own));
    unix_sockets(notes, written, tls.as_deref(), protocol, &upstream);
    let dns = DnsRules { address, ttl: written.dns_cache_ttl.map(Seconds::duration) };
    let fastcgi = fastcgi::fastcgi(notes, written, http_version, place.folder);
    let sockets = sockets::sockets(notes, written, protocol, &upstream, shared.as_deref()).map(Arc::new);
    let has_sockets = sockets.is_some();
    let rare = RareBackend { dns, fastcgi, sockets };
    // RFC 7838 §2.1: who speaks for a target elsewhere has to prove that it may.
    let is_proven = tls.as_ref().is_some_and(|tls| tls.verify);
    Some(Backend {
        scheme,
        http_version,
        alt_svc: written.backend_alt_svc.unwrap_or(true)
            && is_proven
            // QUIC has sockets of its own.
            && !has_sockets
            && scheme == Scheme::Https
            && http_version == BackendHttp::Auto,
        upstream,
        is_named: written.upstream_id.is_some(),
        tags,
        tls,
        pool: pool(notes, written).shared(),
        rare: (rare != RareBackend::default()).then(|| Box::new(rare)),
    })
}

/// What the TLS settings of an upstream can't be used with.
fn of_tls(notes: &mut Notes<'_>, scheme: Scheme, own: Tls<'_>, upstream: &Upstream) {
    let id = &upstream.id;
    if !scheme.is_encrypted() {
        let message = format!(
            "the upstream `{id}` has TLS settings, and nothing is encrypted to a target of scheme `{}`",
            scheme.as_str()
        );
        notes.add("upstream_id", message).remedy =
            Some(format!("write `backend_scheme: {}`, or remove them there", encrypted(scheme).as_str()));
    } else if let Some(key) = own.first_key() {
        notes.add(key, format!("the TLS settings of the upstream `{id}` go before it")).remedy =
            Some("remove it, or write all of them here or there".to_owned());
    }
}

/// What an upstream takes from requests, which streams have not got.
fn of_requests(notes: &mut Notes<'_>, upstream: &Upstream) {
    let what = match upstream.hash_on {
        HashOn::Ip if upstream.targets.iter().all(|target| target.path.is_none()) => return,
        HashOn::Ip => "a target of the upstream `{}` has a `path`",
        HashOn::Header(_) => "the upstream `{}` hashes a header",
        HashOn::Cookie(_) => "the upstream `{}` hashes a cookie",
    };
    let message = format!("{}; streams have none", what.replace("{}", upstream.id.as_str()));
    notes.add("upstream_id", message).remedy = Some("change that, or name another upstream".to_owned());
}

/// What can't be had from targets that are Unix sockets.
fn unix_sockets(
    notes: &mut Notes<'_>,
    written: &file::Proxy,
    tls: Option<&BackendTls>,
    protocol: TargetProtocol,
    upstream: &Upstream,
) {
    let Some(target) = upstream.targets.iter().find(|target| target.socket().is_some()) else { return };
    let key = if written.upstream_id.is_some() { "upstream_id" } else { "backend_host" };
    if matches!(protocol.scheme, Scheme::Udp | Scheme::Dtls) {
        notes.add(key, format!("datagrams can't be sent to `{}`", target.host)).remedy =
            Some("Unix sockets are for schemes `http`, `https`, `tcp` and `tcps`".to_owned());
    }
    if protocol.version == BackendHttp::Http3 {
        notes.add("backend_http_version", format!("HTTP/3 can't be spoken to `{}`", target.host)).remedy =
            Some("use another version".to_owned());
    }
    if tls.is_some_and(|tls| tls.server_name.is_none()) {
        notes.add(key, format!("`{}` has no name that its certificate could be for", target.host)).remedy =
            Some("write `backend_tls_server_name`".to_owned());
    }
    if written.dns_override.is_some() {
        notes.add("dns_override", format!("`{}` has no address", target.host)).remedy =
            Some("remove it".to_owned());
    }
}

/// What targets must have in common with the proxy. At least one has to have it.
fn tags(notes: &mut Notes<'_>, written: &file::Proxy, upstream: &Upstream) -> Box<[(String, String)]> {
    const KEY: &str = "backend_tags";
    let tags: Box<[_]> = written.backend_tags.clone().into_iter().collect();
    if tags.is_empty() {
        return tags;
    }
    if written.upstream_id.is_none() {
        notes.add(KEY, "there is nothing to choose from without an upstream").remedy =
            Some("write `upstream_id`, or remove it".to_owned());
    } else if !upstream.targets.iter().any(|target| target.has_tags(&tags)) {
        notes.add(KEY, format!("no target of the upstream `{}` has these tags", upstream.id)).remedy =
            Some("write them under `tags` of a target".to_owned());
    }
    tags
}

fn encrypted(scheme: Scheme) -> Scheme {
    match scheme {
        Scheme::Http | Scheme::Https => Scheme::Https,
        Scheme::Tcp | Scheme::Tcps => Scheme::Tcps,
        Scheme::Udp | Scheme::Dtls => Scheme::Dtls,
    }
}

fn named_group(notes: &mut Notes<'_>, upstream: &str, known: &NamedObjects) -> Option<Group> {
    let group = known.upstream(upstream);
    if group.is_none() && !known.is_broken_upstream(upstream) {
        let near = words::did_you_mean(upstream, known.upstream_ids());
        notes.add("upstream_id", format!("there is no upstream `{upstream}`")).remedy =
            near.or_else(|| Some("write it under `upstreams`".to_owned()));
    }
    group.cloned()
}

/// The proxy that targets belong to.
#[derive(Clone, Copy)]
pub(super) struct Owner<'a> {
    pub(super) id: &'a Id,
    /// Whether one of its plugins answers in the place of a target.
    pub(super) answers: bool,
}

/// A group of one, named after the proxy; of none where a plugin answers and no target is given.
fn own_group(
    notes: &mut Notes<'_>,
    written: &file::Proxy,
    owner: Owner<'_>,
    shared: &SharedValues,
) -> Option<Group> {
    const TARGET: &str = "write `backend_host` and `backend_port`, or `upstream_id`";
    let id = owner.id;
    if written.backend_host.is_none() {
        if owner.answers && written.backend_port.is_none() && written.listen_port.is_none() {
            return Some(Group {
                upstream: Arc::new(Upstream::new(id.clone(), Vec::new())),
                tls: None,
                sockets: None,
            });
        }
        let plugin = "a plugin that answers every request, such as `redirect` or `static_files`";
        notes.add("", "`backend_host` is missing").remedy = Some(format!("{TARGET}, or give it {plugin}"));
        return None;
    }
    let host = notes.value("backend_host", words::target_place(written.backend_host.as_deref()?))?;
    if service_name(&host).is_some() {
        notes.add("backend_host", "a service can't be a proxy's own target").remedy =
            Some("make it the target of an upstream, and name that as `upstream_id`".to_owned());
        return None;
    }
    if written.backend_port.is_none() && socket_path(&host).is_none() {
        notes.add("", "`backend_port` is missing").remedy = Some(TARGET.to_owned());
        return None;
    }
    let port = notes.value("backend_port", words::target_port(&host, written.backend_port))?;
    let upstream = Upstream {
        name: words::label(written.name.as_ref()),
        ..Upstream::new(id.clone(), vec![shared.target(TargetRules::new(host, port))])
    };
    Some(Group { upstream: Arc::new(upstream), tls: None, sockets: None })
}

fn pool(notes: &mut Notes<'_>, written: &file::Proxy) -> PoolRules {
    let rules = PoolRules::default();
    let seconds = |written: Option<Seconds>, default| written.map_or(default, Seconds::duration);
    let count = |written: Option<u32>, default| written.map_or(default, |n| n as usize);
    PoolRules {
        keep_alive: rules.keep_alive && written.pool_max_idle_per_host != Some(0),
        idle_timeout: seconds(written.pool_idle_timeout, rules.idle_timeout),
        max_idle: count(written.pool_max_idle_per_host, rules.max_idle),
        http2_connections: count(written.pool_http2_connections_per_host, rules.http2_connections),
        http3_connections: count(written.pool_http3_connections_per_backend, rules.http3_connections),
        tcp_keepalive: seconds(written.pool_tcp_keepalive, rules.tcp_keepalive),
        congestion: words::congestion(
            notes,
            "backend_congestion_control",
            written.backend_congestion_control.as_deref(),
        ),
        http2: http2(written),
    }
}

fn http2(written: &file::Proxy) -> Http2Rules {
    let rules = Http2Rules::default();
    let seconds = |written: Option<Seconds>, default| written.map_or(default, Seconds::duration);
    Http2Rules {
        keep_alive_interval: seconds(written.pool_http2_keep_alive_interval, rules.keep_alive_interval),
        keep_alive_timeout: seconds(written.pool_http2_keep_alive_timeout, rules.keep_alive_timeout),
        stream_window: words::small(written.pool_http2_initial_stream_window_size, rules.stream_window),
        connection_window: words::small(
            written.pool_http2_initial_connection_window_size,
            rules.connection_window,
        ),
        adaptive_window: written.pool_http2_adaptive_window.unwrap_or(rules.adaptive_window),
        max_frame_size: words::small(written.pool_http2_max_frame_size, rules.max_frame_size),
        max_concurrent_streams: written.pool_http2_max_concurrent_streams,
    }
}
