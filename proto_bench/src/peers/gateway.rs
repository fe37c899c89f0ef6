//! ferrum-edge, configured by a spec file that holds what the test needs and nothing else.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::firewall::REFUSED;
use super::tests::{FIXED_BODY, KEY, ROUTES, Test};
use super::{Setup, Site, given_or_beside, upstream};
use crate::plan::Protocol;

const PROGRAM: &str = "ferrum-edge";

/// The gateway's program: as given, else beside ours, else in the search path.
#[must_use]
pub fn find_program(given: Option<&Path>) -> Option<PathBuf> {
    given_or_beside(given, PROGRAM)
}

pub(super) fn setup(test: Test, program: &Path, site: &Site<'_>) -> Option<Setup> {
    let spec = site.directory.join("ferrum-edge.json");
    let text = serde_json::to_string_pretty(&document(test, site)?).ok()?;
    let command = vec![
        program.to_string_lossy().into_owned(),
        "run".to_owned(),
        "--spec".to_owned(),
        spec.to_string_lossy().into_owned(),
    ];
    Some(Setup { command, files: vec![(spec, text)] })
}

fn document(test: Test, site: &Site<'_>) -> Option<Value> {
    let (front, tls) = test.front();
    let is_stream = matches!(front, Protocol::Tcp | Protocol::Udp | Protocol::Dtls);
    let file = |name: &str| site.directory.join(name).to_string_lossy().into_owned();
    let certificates =
        json!({ "certificates": [{ "cert_path": file("cert.pem"), "key_path": file("key.pem") }] });
    let mut gateway = json!({ "admin": { "address": site.admin.to_string() }, "workers": site.workers,
        "limits": { "max_concurrent_streams": 1000 }
    });
    if tls {
        gateway["tls"] = certificates;
    }
    // Stream proxies open ports of their own; the HTTP listener then goes to a port nobody asks for.
    let http = if is_stream || tls { "127.0.0.1:0".to_owned() } else { site.listen.to_string() };
    gateway["http"] = json!({ "address": http });
    if tls {
        let https = if is_stream { "off".to_owned() } else { site.listen.to_string() };
        gateway["https"] = json!({ "address": https });
        gateway["http3"] = json!(front == Protocol::Http3);
    }
    let mut spec = json!({ "gateway": gateway });
    spec["proxies"] = match test {
        Test::Routes => (0..ROUTES)
            .map(|number| {
                let mut proxy = http_proxy(test, site)?;
                proxy["id"] = format!("proxy-{number}").into();
                proxy["listen_path"] = format!("/svc/{number}").into();
                Some(proxy)
            })
            .collect::<Option<Value>>()?,
        _ if is_stream => json!([stream_proxy(test, site)?]),
        _ => json!([http_proxy(test, site)?]),
    };
    if test == Test::KeyAuth {
        spec["consumers"] = json!([{
            "id": "bench", "username": "bench", "credentials": { "keyauth": { "key": KEY } }
        }]);
    }
    if let Some(name) = plugin_of(test) {
        spec["plugin_configs"] = json!([plugin(name, plugin_config(test, site)?)]);
    }
    Some(spec)
}

/// The plugin that a test is about.
fn plugin_of(test: Test) -> Option<&'static str> {
    match test {
        Test::KeyAuth => Some("key_auth"),
        _ if test.is_fixed() => Some("request_termination"),
        _ if test.inspects() => Some("waf"),
        _ => None,
    }
}

fn plugin_config(test: Test, site: &Site<'_>) -> Option<Value> {
    Some(match test {
        Test::KeyAuth => json!({ "key_location": "header:X-API-Key" }),
        Test::WafOwn => json!({ "deny_status": REFUSED }),
        _ if test.needs_rules() => {
            json!({ "rules": { "crs": site.rules?.directory.to_string_lossy() }, "deny_status": REFUSED })
        }
        _ => json!({ "status_code": 200, "body": FIXED_BODY, "content_type": "text/plain" }),
    })
}

fn plugin(name: &str, config: Value) -> Value {
    json!({ "id": name, "plugin_name": name, "scope": "proxy", "proxy_id": "bench", "config": config })
}

fn http_proxy(test: Test, site: &Site<'_>) -> Option<Value> {
    let backend = upstream(site.backend, test.back(), false)?;
    let mut proxy = json!({
        "id": "bench",
        "listen_path": "/",
        "strip_listen_path": test == Test::Routes,
        "backend_scheme": "http",
        "backend_host": backend.ip().to_string(),
        "backend_port": backend.port(),
    });
    if let Some(name) = plugin_of(test) {
        proxy["plugins"] = json!([{ "plugin_config_id": name }]);
    }
    if test == Test::H2c {
        // Without a word for it the gateway would have to learn what the backend speaks.
        proxy["backend_http_version"] = "2".into();
    }
    Some(proxy)
}

fn stream_proxy(test: Test, site: &Site<'_>) -> Option<Value> {
    let (front, tls) = test.front();
    let backend = upstream(site.backend, test.back(), false)?;
    let scheme = if front == Protocol::Tcp { "tcp" } else { "udp" };
    let mut proxy = json!({
        "id": "bench",
        "listen_port": site.listen.port(),
        "backend_scheme": scheme,
        "backend_host": backend.ip().to_string(),
        "backend_port": backend.port(),
    });
    if tls {
        proxy["frontend_tls"] = true.into();
    }
    Some(proxy)
}

/// A gateway in database mode, with nothing in its database yet.
#[must_use]
pub fn database_setup(
    program: &Path,
    directory: &Path,
    proxy: SocketAddr,
    admin: SocketAddr,
    database: &str,
    token: &str,
) -> Setup {
    let spec = directory.join("ferrum-edge.json");
    let document = json!({ "gateway": {
        "http": { "address": proxy.to_string() }, "admin": { "address": admin.to_string() }
    } });
    let command = [
        "env".to_owned(),
        "FERRUM_DB_TYPE=sqlite".to_owned(),
        format!("FERRUM_DB_URL={database}"),
        format!("FERRUM_ADMIN_TOKEN={token}"),
        program.to_string_lossy().into_owned(),
        "run".to_owned(),
        "--mode".to_owned(),
        "database".to_owned(),
        "--spec".to_owned(),
        spec.to_string_lossy().into_owned(),
    ];
    Setup { command: command.to_vec(), files: vec![(spec, document.to_string())] }
}

/// A control plane on a database, with nothing in it yet.
#[must_use]
pub fn control_plane_setup(
    program: &Path,
    directory: &Path,
    edges: SocketAddr,
    admin: SocketAddr,
    database: &str,
    token: &str,
) -> Setup {
    let spec = directory.join("ferrum-edge.json");
    let document = json!({ "gateway": { "admin": { "address": admin.to_string() } } });
    let key = format!("{:032x}{:032x}", fastrand::u128(..), fastrand::u128(..));
    let command = [
        "env".to_owned(),
        format!("FERRUM_ADMIN_TOKEN={token}"),
        format!("FERRUM_DB_ENCRYPTION_KEY={key}"),
        format!("FERRUM_FLEET_LISTEN={edges}"),
        format!("FERRUM_STATE={}", directory.join("state").to_string_lossy()),
        program.to_string_lossy().into_owned(),
        "run".to_owned(),
        "--mode".to_owned(),
        "control-plane".to_owned(),
        "--db-url".to_owned(),
        database.to_owned(),
        "--spec".to_owned(),
        spec.to_string_lossy().into_owned(),
    ];
    Setup { command: command.to_vec(), files: vec![(spec, document.to_string())] }
}

/// A gateway that enrols as an edge by an invitation, on ports that nobody asks for.
#[must_use]
pub fn edge_setup(program: &Path, directory: &Path, invitation: &str) -> Setup {
    let spec = directory.join("ferrum-edge.json");
    let document = json!({ "gateway": {
        "http": { "address": "127.0.0.1:0" }, "https": { "address": "off" }, "admin": { "address": "127.0.0.1:0" },
        "workers": 1,
    } });
    let command = [
        "env".to_owned(),
        format!("FERRUM_EDGE_INVITATION={invitation}"),
        format!("FERRUM_EDGE_STATE={}", directory.join("state").to_string_lossy()),
        format!("FERRUM_STATE={}", directory.join("run").to_string_lossy()),
        program.to_string_lossy().into_owned(),
        "run".to_owned(),
        "--mode".to_owned(),
        "edge".to_owned(),
        "--spec".to_owned(),
        spec.to_string_lossy().into_owned(),
    ];
    Setup { command: command.to_vec(), files: vec![(spec, document.to_string())] }
}
