//! Caddy, configured in its JSON form, admin API and logs off.

use std::path::Path;

use serde_json::{Value, json};

use super::tests::{FIXED_BODY, KEY, ROUTES, Test};
use super::{Setup, Site, upstream};
use crate::plan::Protocol;

pub(super) fn setup(test: Test, program: &Path, site: &Site<'_>) -> Option<Setup> {
    let (front, tls) = test.front();
    // Without a third-party module Caddy forwards no streams and no datagrams.
    if matches!(front, Protocol::Tcp | Protocol::Udp | Protocol::Dtls) {
        return None;
    }
    let protocols = match (front, tls) {
        (Protocol::Http3, _) => json!(["h1", "h2", "h3"]),
        (Protocol::Http2 | Protocol::Grpc, true) => json!(["h1", "h2"]),
        (Protocol::Http2 | Protocol::Grpc, false) => json!(["h1", "h2c"]),
        _ => json!(["h1"]),
    };
    let mut server = json!({
        "listen": [site.listen.to_string()],
        "protocols": protocols,
        "automatic_https": { "disable": true },
        "routes": routes(test, site)?,
        "idle_timeout": "1h",
    });
    let mut apps = json!({ "http": { "grace_period": "1s" } });
    if tls {
        server["tls_connection_policies"] = json!([{ "default_sni": "localhost" }]);
        let file = |name: &str| site.directory.join(name).to_string_lossy().into_owned();
        let pair = json!({ "certificate": file("cert.pem"), "key": file("key.pem") });
        apps["tls"] = json!({
            "certificates": { "load_files": [pair] },
            "session_tickets": { "disabled": true }
        });
    }
    apps["http"]["servers"] = json!({ "bench": server });
    let document = json!({
        "admin": { "disabled": true, "config": { "persist": false } },
        "logging": { "logs": { "default": { "level": "ERROR" } } },
        "apps": apps,
    });
    let file = site.directory.join("caddy.json");
    // Caddy takes its number of threads from the environment alone.
    let command = [
        "env".to_owned(),
        format!("GOMAXPROCS={}", site.workers),
        format!("HOME={}", site.directory.to_string_lossy()),
        program.to_string_lossy().into_owned(),
        "run".to_owned(),
        "--config".to_owned(),
        file.to_string_lossy().into_owned(),
    ];
    Some(Setup {
        command: command.to_vec(),
        files: vec![(file, serde_json::to_string_pretty(&document).ok()?)],
    })
}

fn routes(test: Test, site: &Site<'_>) -> Option<Value> {
    let backend = upstream(site.backend, test.back(), false)?;
    let versions = match test.back() {
        Protocol::Http2 | Protocol::Grpc => json!(["h2c"]),
        _ => json!(["1.1"]),
    };
    let proxy = json!({
        "handler": "reverse_proxy",
        "upstreams": [{ "dial": backend.to_string() }],
        "transport": {
            "protocol": "http",
            "versions": versions,
            "keep_alive": { "max_idle_conns_per_host": 1024, "max_idle_conns": 2048 }
        }
    });
    Some(match test {
        Test::Fixed | Test::FixedH2 => {
            json!([{ "handle": [{ "handler": "static_response", "status_code": 200, "body": FIXED_BODY }] }])
        }
        Test::KeyAuth => json!([
            { "match": [{ "header": { "X-Api-Key": [KEY] } }], "handle": [proxy], "terminal": true },
            { "handle": [{ "handler": "static_response", "status_code": 401 }] }
        ]),
        Test::Routes => (0..ROUTES)
            .map(|number| {
                let strip = json!({ "handler": "rewrite", "strip_path_prefix": format!("/svc/{number}") });
                json!({
                    "match": [{ "path": [format!("/svc/{number}/*")] }],
                    "handle": [strip, proxy],
                    "terminal": true
                })
            })
            .collect(),
        _ => json!([{ "handle": [proxy] }]),
    })
}
