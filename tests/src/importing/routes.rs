//! Where requests go in an imported configuration, as its proxies say it, without a socket.

use std::net::SocketAddr;
use std::sync::Arc;

use ferrum_edge::core::condition::Holds;
use ferrum_edge::core::http::body::Body;
use ferrum_edge::core::http::exchange::{Client, Exchange};
use ferrum_edge::core::snapshot::Snapshot;
use ferrum_edge::core::snapshot::compile::Compiler;
use ferrum_edge::import::{self, Failure, Format, Import, NoFiles, Options};
use serde_json::Value;

use super::compare::spec;

pub(super) fn try_import(format: Format, text: &str, open: bool) -> Result<Import, Failure> {
    import::import(format, &[("/etc/original".to_owned(), text.to_owned())], &NoFiles, Options { open })
}

pub(super) fn import(format: Format, text: &str, open: bool) -> Import {
    try_import(format, text, open).unwrap_or_else(|error| panic!("{error}"))
}

/// The import is a good configuration; its document.
pub(super) fn good(imported: &Import) -> Value {
    let (settings, spec) = spec(imported);
    let text = if settings.is_empty() { spec } else { format!("gateway:\n{settings}{spec}") };
    if let Err(problems) = ferrum_edge::source::file::parse(&text, "t", &ferrum_edge::plugins()) {
        panic!("{problems}\n{text}");
    }
    imported.document()
}

/// Whether a loss or a closed guard names something.
pub(super) fn lost(imported: &Import, what: &str) -> bool {
    imported.report.losses().any(|finding| finding.to_string().contains(what))
}

pub(super) fn by_id<'v>(document: &'v Value, section: &str, id: &str) -> &'v Value {
    let list = document[section].as_array().expect("a section");
    list.iter().find(|item| item["id"] == id).unwrap_or_else(|| panic!("no {section}/{id} in {document:#}"))
}

/// What answers for a request: a status of the gateway's own, `files`, or the target's port, with the names of the plugins
/// that ask who it is.
pub(super) fn asked(imported: &Import, host: &str, method: &str, path: &str, client: [u8; 4]) -> String {
    asked_with(imported, host, method, path, client, &[])
}

pub(super) fn asked_with(
    imported: &Import,
    host: &str,
    method: &str,
    path: &str,
    client: [u8; 4],
    fields: &[(&str, &str)],
) -> String {
    let (settings, spec) = spec(imported);
    let text = if settings.is_empty() { spec } else { format!("gateway:\n{settings}{spec}") };
    let registry = ferrum_edge::plugins();
    let model = ferrum_edge::source::file::parse(&text, "t", &registry)
        .unwrap_or_else(|error| panic!("{error}\n{text}"));
    let empty = Snapshot::empty(model.settings.clone());
    let mut compiler = Compiler::new(registry);
    let snapshot = compiler.compile(&model, &empty, tokio::time::Instant::now()).snapshot;
    let mut request = http::Request::builder().method(method).uri(path).header("host", host);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    // A host that names a port came to it.
    let port = host.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(80);
    let (peer, local) = (SocketAddr::from((client, 1)), SocketAddr::from(([127, 0, 0, 1], port)));
    let body = request.body(Body::empty()).expect("a request");
    let exchange = Exchange::new(body, Arc::new(Client::new(peer, local, false, None)));
    let found =
        snapshot.routes.find(Some(host), exchange.uri().path(), |condition| condition.holds(&exchange));
    let Some(found) = found else { return "404".to_owned() };
    let plugins = &found.route.proxy.plugins;
    let named = |names: &[&str]| plugins.iter().find(|plugin| names.contains(&&*plugin.plugin_name));
    if let Some(plugin) = named(&["request_termination", "redirect"]) {
        let status = plugin.config.value()["status_code"].as_u64();
        return status.map_or_else(|| "302".to_owned(), |status| status.to_string());
    }
    let guards = ["basic_auth", "forward_auth", "ip_restriction", "jwks_auth", "key_auth"];
    let asks: Vec<&str> =
        plugins.iter().map(|plugin| &*plugin.plugin_name).filter(|name| guards.contains(name)).collect();
    let target = match named(&["static_files"]) {
        Some(_) => "files".to_owned(),
        None => found.route.targets.list()[0].rules.port.to_string(),
    };
    if asks.is_empty() { target } else { format!("{target} {}", asks.join(" ")) }
}
