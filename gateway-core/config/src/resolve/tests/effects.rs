//! What would have no effect is refused.

use super::*;

#[test]
fn listeners_of_different_kinds_have_addresses_of_their_own() {
    let tls = "tls: {certificates: [{cert_path: a, key_path: b}]}";
    let spec = |gateway: &str| format!("gateway: {{{gateway}}}\nproxies: []");
    for (gateway, message) in [
        (
            "http: '127.0.0.1:9000'".to_owned(),
            "admin: 127.0.0.1:9000 is where `http` listens already, on 127.0.0.1:9000",
        ),
        (
            format!("http: '0.0.0.0:80', https: '127.0.0.1:80', {tls}"),
            "https: 127.0.0.1:80 is where `http` listens already, on 0.0.0.0:80",
        ),
        (
            format!("additional_https: ['127.0.0.1:9000'], {tls}"),
            "admin: 127.0.0.1:9000 is where `https` listens already, on 127.0.0.1:9000",
        ),
    ] {
        refused(&spec(&gateway), &format!("f:1: gateway.{message} (give one of them another port)"));
    }
    good(&spec("https: '0.0.0.0:8000'"));
    good(&spec("http: '127.0.0.1:0', admin: '127.0.0.1:0'"));
    good(&spec("http: '127.0.0.1:80', admin: '127.0.0.2:80'"));
}

#[test]
fn a_proxy_has_targets_of_its_own_or_those_of_an_upstream() {
    refused(
        "proxies: [{id: a, listen_path: /, upstream_id: u, backend_host: h}]\n\
         upstreams: [{id: u, targets: [{host: a, port: 1}]}]",
        "f:1: proxies[0].backend_host: the targets are those of the upstream `u` (remove it, or `upstream_id`)",
    );
}

/// What a stream does nothing with, it is not given.
#[test]
fn settings_of_requests_are_refused_on_streams() {
    let spec = |scheme: &str, setting: &str| {
        format!(
            "proxies: [{{id: a, listen_port: 5, backend_scheme: {scheme}, backend_host: h, backend_port: 1, {setting}}}]"
        )
    };
    let key = |setting: &str| match setting.split(':').next().unwrap() {
        "circuit_breaker" => "circuit_breaker.failure_status_codes".to_owned(),
        key => key.to_owned(),
    };
    for setting in [
        "strip_listen_path: false",
        "auth_mode: multi",
        "retry: {max_retries: 1}",
        "backend_first_byte_timeout: 1ms",
        "backend_idle_timeout: 1ms",
        "pool_idle_timeout: 1",
        "pool_max_idle_per_host: 1",
        "pool_http2_connections_per_host: 1",
        "pool_http2_keep_alive_interval: 1",
        "pool_http2_keep_alive_timeout: 1",
        "pool_http2_initial_stream_window_size: 65535",
        "pool_http2_initial_connection_window_size: 65535",
        "pool_http2_adaptive_window: true",
        "pool_http2_max_frame_size: 16384",
        "pool_http2_max_concurrent_streams: 1",
        "pool_http3_connections_per_backend: 1",
        "circuit_breaker: {failure_status_codes: [500]}",
    ] {
        let message = "only an HTTP proxy has this (remove it, or write `backend_scheme: http` or `https`)";
        for scheme in ["tcp", "udp"] {
            refused(&spec(scheme, setting), &format!("f:1: proxies[0].{}: {message}", key(setting)));
        }
    }
    for setting in ["total_timeout: 5ms", "pool_tcp_keepalive: 5", "backend_congestion_control: cubic"] {
        good(&spec("tcp", setting));
        let message = "a UDP proxy does not have this (remove it)";
        refused(&spec("udp", setting), &format!("f:1: proxies[0].{}: {message}", key(setting)));
    }
    let setting = "circuit_breaker: {failure_threshold: 3}";
    good(&spec("tcp", setting));
    refused(
        &spec("udp", setting),
        "f:1: proxies[0].circuit_breaker: a UDP proxy does not have this (remove it)",
    );
}

#[test]
fn upstreams_of_streams_take_nothing_from_requests() {
    let spec = |scheme: &str, upstream: &str| {
        let place = if scheme == "http" { "listen_path: /" } else { "listen_port: 5" };
        format!(
            "proxies: [{{id: a, {place}, backend_scheme: {scheme}, upstream_id: u}}]\n\
             upstreams: [{{id: u, {upstream}}}]"
        )
    };
    let targets = "targets: [{host: a, port: 1}]";
    for (upstream, what) in [
        ("algorithm: consistent_hashing, hash_on: 'header:x'", "the upstream `u` hashes a header"),
        ("algorithm: consistent_hashing, hash_on: 'cookie:x'", "the upstream `u` hashes a cookie"),
    ] {
        let upstream = format!("{upstream}, {targets}");
        good(&spec("http", &upstream));
        refused(
            &spec("tcp", &upstream),
            &format!(
                "f:1: proxies[0].upstream_id: {what}; streams have none (change that, or name another upstream)"
            ),
        );
    }
    good(&spec("udp", &format!("algorithm: consistent_hashing, hash_on: ip, {targets}")));
    refused(
        &spec("udp", "targets: [{host: a, port: 1, path: /x}]"),
        "f:1: proxies[0].upstream_id: a target of the upstream `u` has a `path`; streams have none (change that, or name \
         another upstream)",
    );
}

#[test]
fn probes_have_the_settings_of_their_type() {
    let spec = |active: &str| {
        format!(
            "proxies: []\nupstreams: [{{id: u, targets: [{{host: a, port: 1}}], health_checks: {{active: {{{active}}}}}}}]"
        )
    };
    for (setting, of) in [
        ("http_path: /x", "http"),
        ("healthy_status_codes: [200]", "http"),
        ("use_tls: true", "http"),
        ("udp_probe_payload: '00'", "udp"),
        ("grpc_service_name: x", "grpc"),
        ("send: x", "tcp"),
        ("expect: x", "tcp"),
    ] {
        let key = setting.split(':').next().unwrap();
        let beside = if key == "send" { ", expect: y" } else { "" };
        good(&spec(&format!("probe_type: {of}, {setting}{beside}")));
        refused(
            &spec(&format!("probe_type: mysql, {setting}")),
            &format!(
                "f:2: upstreams[0].health_checks.active.{key}: a probe of this type does not have it (write `probe_type: \
                 {of}`, or remove it)"
            ),
        );
    }
    let at = "f:2: upstreams[0].health_checks.active";
    for (settings, what) in [
        (
            "probe_type: udp, send: x, udp_probe_payload: '00'",
            "udp_probe_payload: `send` says already what to send (remove one of them)",
        ),
        (
            "probe_type: tcp, send: x",
            "send: has no effect without `expect`: the probe is good as soon as the connection is made (say what the target answers with `expect`, or remove it)",
        ),
        (
            "probe_type: tcp, expect: {present: false}",
            "expect: no answer at all would be good (one of: exact, one_of, prefix, suffix, contains, regex, present)",
        ),
        (
            "probe_type: udp, expect: {prefix: a, suffix: b}",
            "expect: this names more than one way to match (one of: exact, one_of, prefix, suffix, contains, regex, present)",
        ),
    ] {
        refused(&spec(settings), &format!("{at}.{what}"));
    }
    for good_one in [
        "probe_type: redis, use_tls: true",
        "probe_type: postgres",
        "probe_type: udp, send: a, expect: b",
        "probe_type: tcp, send: \"PING\\r\\n\", expect: {prefix: \"+PONG\"}",
    ] {
        good(&spec(good_one));
    }
}

#[test]
fn tls_settings_need_something_that_speaks_tls() {
    for (gateway, expected) in [
        (
            "tls: {client_ca_path: a}",
            "tls.client_ca_path: no listener speaks TLS: there is no certificate (give `tls.certificates`, or remove it)",
        ),
        (
            "tls: {early_data: true}",
            "tls.early_data: no listener speaks TLS: there is no certificate (give `tls.certificates`, or remove it)",
        ),
        (
            "admin: off, admin_tls: {cert_path: a, key_path: b}",
            "admin_tls: `admin` is off, and the socket has no TLS (give `admin` an address, or remove it)",
        ),
    ] {
        refused(&format!("gateway: {{{gateway}}}\nproxies: []"), &format!("f:1: gateway.{expected}"));
    }
}

#[test]
fn tls_to_the_targets_of_an_upstream() {
    let of = |keys: &str| {
        format!(
            "upstreams: [{{id: u, targets: [{{host: h, port: 1}}], backend_tls_server_name: n}}]\n\
             proxies: [{{id: p, listen_path: /, upstream_id: u{keys}}}]"
        )
    };
    let model = good(&of(", backend_scheme: https"));
    let tls = model.proxies[0].backend.tls.clone().expect("https has rules");
    assert_eq!(tls.server_name.as_deref(), Some("n"));
    refused(
        &of(""),
        "f:2: proxies[0].upstream_id: the upstream `u` has TLS settings, and nothing is encrypted to a target of \
         scheme `http` (write `backend_scheme: https`, or remove them there)",
    );
    refused(
        &of(", backend_scheme: https, backend_tls_verify_server_cert: false"),
        "f:2: proxies[0].backend_tls_verify_server_cert: the TLS settings of the upstream `u` go before it (remove it, \
         or write all of them here or there)",
    );
    // Its name is what the certificate behind a Unix socket is for.
    good(&of(", backend_scheme: https").replace("host: h, port: 1", "host: 'unix:/a'"));
}

#[test]
fn settings_for_targets_that_could_have_no_effect_are_refused() {
    let spec = |more: &str| {
        format!("proxies: [{{id: a, listen_path: /, backend_host: b, backend_port: 9000, {more}}}]")
    };
    let fastcgi = "backend_protocol: fastcgi, fastcgi: {root: /srv}";
    for (settings, what) in [
        (
            format!("{fastcgi}, allowed_upgrades: [websocket]"),
            "allowed_upgrades: a FastCGI target can't switch protocols (remove it, or leave the list empty)",
        ),
        (
            "forwarded: {port: abc}".to_owned(),
            "forwarded.port: `abc` is not a port (1 to 65535, or a template)",
        ),
        (
            "forwarded: {port: '0'}".to_owned(),
            "forwarded.port: `0` is not a port (1 to 65535, or a template)",
        ),
    ] {
        refused(&spec(&settings), &format!("f:1: proxies[0].{what}"));
    }
    good(&spec(&format!("{fastcgi}, allowed_upgrades: []")));
    good(&spec("forwarded: {port: '443'}"));
    good(&spec("forwarded: {port: '${server.port}'}"));
}

#[test]
fn an_upstream_of_draining_targets_only_is_rejected() {
    let spec = |first: u16, second: u16| {
        format!(
            "proxies: [{{id: p, listen_path: /, upstream_id: u}}]\n\
             upstreams: [{{id: u, algorithm: maglev, targets: [\
             {{host: a.test, port: 80, weight: {first}}}, {{host: b.test, port: 80, weight: {second}}}]}}]"
        )
    };
    good(&spec(0, 1));
    refused(
        &spec(0, 0),
        "f:2: upstreams[0].targets: every target has weight 0, so none gets new clients (give at least one of them a \
         `weight` of 1 or more)",
    );
}

#[test]
fn proxies_take_the_socket_settings_of_their_upstream() {
    let named = |of_upstream: &str, of_proxy: &str| {
        format!(
            "upstreams: [{{id: u, targets: [{{host: 192.0.2.1, port: 9}}], {of_upstream}}}]\n\
             proxies: [{{id: p, upstream_id: u, {of_proxy}}}]"
        )
    };
    let shared = "backend_source_address: 192.0.2.7, backend_tcp_user_timeout: 20s";
    let inherited = good(&named(shared, "listen_path: /, backend_tcp_user_timeout: 5s"));
    let sockets = inherited.proxies[0].backend.sockets().unwrap();
    assert_eq!(sockets.source, Some([192, 0, 2, 7].into()));
    assert_eq!(sockets.user_timeout, Some(Duration::from_secs(5)), "the proxy's own goes first");
    let transparent = good(&named(shared, "listen_port: 99, backend_scheme: tcp, backend_transparent: true"));
    let sockets = transparent.proxies[0].backend.sockets().unwrap();
    assert!(sockets.transparent && sockets.source.is_none());
    refused(
        &named("backend_transparent: true", "listen_path: /"),
        "f:2: proxies[0].upstream_id: `backend_transparent` of the upstream `u`: clients share the connections to HTTP \
         targets (remove it; targets get the client's address in `X-Forwarded-For`)",
    );
    refused(
        &named("backend_source_address: nowhere", "listen_path: /"),
        "f:1: upstreams[0].backend_source_address: `nowhere` is not an address (such as 127.0.0.1, 0.0.0.0 or ::)",
    );
}

#[test]
fn socket_settings_that_do_nothing_are_rejected() {
    let http = |fields: &str| {
        format!("proxies: [{{id: p, listen_path: /, backend_host: h, backend_port: 9, {fields}}}]")
    };
    let stream = |scheme: &str, fields: &str| {
        format!(
            "proxies: [{{id: p, listen_port: 99, backend_scheme: {scheme}, backend_host: 192.0.2.1, \
             backend_port: 9, {fields}}}]"
        )
    };
    let model = good(&stream("tcp", "backend_source_address: 192.0.2.7, backend_tcp_user_timeout: 20s"));
    let sockets = model.proxies[0].backend.sockets().unwrap();
    assert_eq!(sockets.user_timeout, Some(Duration::from_secs(20)));
    assert!(good(&http("backend_transparent: false")).proxies[0].backend.sockets().is_none());
    good(&http("backend_interface: eth1, backend_mptcp: true"));
    let copied = good(&stream("tcp", "backend_splice: false"));
    assert!(copied.proxies[0].backend.sockets().is_some_and(|sockets| sockets.copies));
    good(&stream("udp", "backend_transparent: true, backend_interface: eth1"));
    for (text, expected) in [
        (
            http("backend_transparent: true"),
            "backend_transparent: clients share the connections to HTTP targets (remove it; targets get the client's \
             address in `X-Forwarded-For`)",
        ),
        (
            http("backend_scheme: https, backend_http_version: '3', backend_interface: eth1"),
            "backend_interface: HTTP/3 does not have this (remove it, or use another `backend_http_version`)",
        ),
        (
            stream("tcps", "backend_splice: false"),
            "backend_splice: only plain TCP streams are moved inside the kernel (remove it)",
        ),
        (stream("udp", "backend_mptcp: true"), "backend_mptcp: a UDP proxy does not have this (remove it)"),
        (
            stream("udp", "backend_tcp_user_timeout: 1s"),
            "backend_tcp_user_timeout: a UDP proxy does not have this (remove it)",
        ),
        (
            stream("tcp", "backend_source_address: '::1'"),
            "backend_source_address: ::1 can't connect to 192.0.2.1, which is of the other address family (use an \
             address of its family)",
        ),
        (
            stream("tcp", "backend_source_address: 192.0.2.7, backend_transparent: true"),
            "backend_source_address: `backend_transparent` connects from the client's address (keep one of the two)",
        ),
        (
            stream("tcp", "backend_interface: a/b"),
            "backend_interface: `a/b` is not a valid interface name (such as `eth1`; `ip link` lists them)",
        ),
    ] {
        refused(&text, &format!("f:1: proxies[0].{expected}"));
    }
}

#[test]
fn extensions_of_a_proxy_header_need_what_they_tell() {
    let stream = |fields: &str| {
        format!(
            "proxies: [{{id: p, listen_port: 99, backend_scheme: tcp, backend_host: h, backend_port: 9, {fields}}}]"
        )
    };
    good(&stream("passthrough: true, send_proxy_protocol: 2, send_proxy_protocol_tlvs: [authority, crc32c]"));
    for (fields, expected) in [
        (
            "send_proxy_protocol: 1, send_proxy_protocol_tlvs: [crc32c]",
            "only a PROXY header of version 2 has extensions (write `send_proxy_protocol: 2`, or remove it)",
        ),
        (
            "send_proxy_protocol: 2, send_proxy_protocol_tlvs: [tls]",
            "`tls` has nothing to say of connections that the gateway does not decrypt (write `frontend_tls: true`, or \
             remove it)",
        ),
        (
            "send_proxy_protocol: 2, send_proxy_protocol_tlvs: [authority]",
            "`authority` needs a server name, which plain traffic does not have (write `frontend_tls`, `passthrough` or \
             `accept_proxy_protocol`, or remove it)",
        ),
    ] {
        refused(&stream(fields), &format!("f:1: proxies[0].send_proxy_protocol_tlvs: {expected}"));
    }
}
