//! Envoy, configured statically, with its circuit breakers out of the way.

use std::path::Path;

use serde_json::{Value, json};

use super::tests::{FIXED_BODY, KEY, ROUTES, Test};
use super::{Setup, Site, upstream};
use crate::plan::Protocol;

const PREFIX: &str = "type.googleapis.com/envoy.extensions";

pub(super) fn setup(test: Test, program: &Path, site: &Site<'_>) -> Option<Setup> {
    let front = test.front().0;
    let listener = match front {
        Protocol::Dtls => return None,
        Protocol::Udp => udp_listener(site),
        _ => stream_listener(test, site)?,
    };
    let document = json!({
        "static_resources": { "listeners": [listener], "clusters": [cluster(test, site)?] },
        "layered_runtime": { "layers": [{ "name": "static", "static_layer": {
            "envoy.reloadable_features.no_extension_lookup_by_name": true
        } }] }
    });
    let file = site.directory.join("envoy.json");
    let command = [
        program.to_string_lossy().into_owned(),
        "-c".to_owned(),
        file.to_string_lossy().into_owned(),
        "--concurrency".to_owned(),
        site.workers.to_string(),
        "--log-level".to_owned(),
        "error".to_owned(),
        "--disable-hot-restart".to_owned(),
    ];
    Some(Setup {
        command: command.to_vec(),
        files: vec![(file, serde_json::to_string_pretty(&document).ok()?)],
    })
}

fn address(address: std::net::SocketAddr, udp: bool) -> Value {
    let mut socket = json!({ "address": address.ip().to_string(), "port_value": address.port() });
    if udp {
        socket["protocol"] = "UDP".into();
    }
    json!({ "socket_address": socket })
}

fn cluster(test: Test, site: &Site<'_>) -> Option<Value> {
    let back = test.back();
    let backend = upstream(site.backend, back, false)?;
    let http = if matches!(back, Protocol::Http2 | Protocol::Grpc) {
        json!({ "http2_protocol_options": {} })
    } else {
        json!({ "http_protocol_options": {} })
    };
    let most = json!({
        "max_connections": 100_000, "max_pending_requests": 100_000, "max_requests": 100_000, "max_retries": 3
    });
    let mut cluster = json!({
        "name": "back", "type": "STATIC", "connect_timeout": "5s",
        "circuit_breakers": { "thresholds": [most] },
        "load_assignment": { "cluster_name": "back", "endpoints": [{ "lb_endpoints": [
            { "endpoint": { "address": address(backend, false) } }
        ] }] }
    });
    if !matches!(back, Protocol::Tcp | Protocol::Udp) {
        cluster["typed_extension_protocol_options"] = json!({
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": format!("{PREFIX}.upstreams.http.v3.HttpProtocolOptions"),
                "explicit_http_config": http
            }
        });
    }
    Some(cluster)
}

fn udp_listener(site: &Site<'_>) -> Value {
    json!({
        "name": "front", "address": address(site.listen, true),
        "listener_filters": [{
            "name": "envoy.filters.udp_listener.udp_proxy",
            "typed_config": {
                "@type": format!("{PREFIX}.filters.udp.udp_proxy.v3.UdpProxyConfig"),
                "stat_prefix": "front",
                "matcher": { "on_no_match": { "action": {
                    "name": "route",
                    "typed_config": { "@type": format!("{PREFIX}.filters.udp.udp_proxy.v3.Route"), "cluster": "back" }
                } } }
            }
        }]
    })
}

fn stream_listener(test: Test, site: &Site<'_>) -> Option<Value> {
    let (front, tls) = test.front();
    let filter = if front == Protocol::Tcp {
        json!({
            "name": "envoy.filters.network.tcp_proxy",
            "typed_config": {
                "@type": format!("{PREFIX}.filters.network.tcp_proxy.v3.TcpProxy"),
                "stat_prefix": "front", "cluster": "back"
            }
        })
    } else {
        http_filter(test)
    };
    let mut chain = json!({ "filters": [filter] });
    if tls {
        chain["transport_socket"] = transport_socket(front, site);
    }
    let mut listener = json!({
        "name": "front", "address": address(site.listen, front == Protocol::Http3),
        "tcp_backlog_size": 8192, "filter_chains": [chain]
    });
    if front == Protocol::Http3 {
        listener["udp_listener_config"] = json!({ "quic_options": {} });
        listener.as_object_mut()?.remove("tcp_backlog_size");
    }
    Some(listener)
}

fn transport_socket(front: Protocol, site: &Site<'_>) -> Value {
    let file = |name: &str| json!({ "filename": site.directory.join(name).to_string_lossy() });
    let names: Vec<String> =
        front.alpn().iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    let common = json!({
        "tls_certificates": [{ "certificate_chain": file("cert.pem"), "private_key": file("key.pem") }],
        "alpn_protocols": names,
        "tls_params": { "ecdh_curves": ["X25519"] }
    });
    let downstream = json!({
        "@type": format!("{PREFIX}.transport_sockets.tls.v3.DownstreamTlsContext"),
        "common_tls_context": common,
        "disable_stateless_session_resumption": true
    });
    if front == Protocol::Http3 {
        return json!({
            "name": "envoy.transport_sockets.quic",
            "typed_config": {
                "@type": format!("{PREFIX}.transport_sockets.quic.v3.QuicDownstreamTransport"),
                "downstream_tls_context": downstream
            }
        });
    }
    json!({ "name": "envoy.transport_sockets.tls", "typed_config": downstream })
}

fn http_filter(test: Test) -> Value {
    let codec = match test.front().0 {
        Protocol::Http2 | Protocol::Grpc => "HTTP2",
        Protocol::Http3 => "HTTP3",
        _ => "HTTP1",
    };
    let mut manager = json!({
        "@type": format!("{PREFIX}.filters.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": "front", "codec_type": codec, "generate_request_id": false,
        "http2_protocol_options": { "max_concurrent_streams": 1000 },
        "route_config": { "virtual_hosts": [{ "name": "all", "domains": ["*"], "routes": routes(test) }] },
        "http_filters": [{
            "name": "envoy.filters.http.router",
            "typed_config": { "@type": format!("{PREFIX}.filters.http.router.v3.Router") }
        }]
    });
    if test == Test::Ws {
        manager["upgrade_configs"] = json!([{ "upgrade_type": "websocket" }]);
    }
    json!({ "name": "envoy.filters.network.http_connection_manager", "typed_config": manager })
}

fn routes(test: Test) -> Value {
    let to_backend = json!({ "cluster": "back", "timeout": "0s" });
    match test {
        Test::Fixed | Test::FixedH2 => json!([{
            "match": { "prefix": "/" },
            "direct_response": { "status": 200, "body": { "inline_string": FIXED_BODY } }
        }]),
        Test::KeyAuth => {
            let key = json!({ "name": "x-api-key", "string_match": { "exact": KEY } });
            json!([
                { "match": { "prefix": "/", "headers": [key] }, "route": to_backend },
                { "match": { "prefix": "/" }, "direct_response": { "status": 401 } }
            ])
        }
        Test::Routes => (0..ROUTES)
            .map(|number| {
                json!({
                    "match": { "prefix": format!("/svc/{number}/") },
                    "route": { "cluster": "back", "timeout": "0s", "prefix_rewrite": "/" }
                })
            })
            .collect(),
        _ => json!([{ "match": { "prefix": "/" }, "route": to_backend }]),
    }
}
