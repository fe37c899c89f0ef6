//! Where records, metrics and spans are sent.

use std::path::PathBuf;
use std::sync::Arc;

use gateway_core::config::exporter::{ExporterSettings, Protocol};
use gateway_core::config::model::{BackendTls, LogDestination, LogServer, LogTransport, Model, Scheme};
use gateway_core::plugin::world::calls::{Endpoint, Server};

use super::network::Tried;

/// Every server of a sink, a push or an exporter, with the setting that names it.
pub(super) fn all(model: &Model) -> Vec<Tried> {
    let mut all = Vec::new();
    let settings = &model.settings;
    for sink in &*settings.log_sinks {
        let of = format!("access log sink `{}`", sink.name);
        match &sink.destination {
            LogDestination::Stdout | LogDestination::File(_) => {}
            LogDestination::Syslog { server, .. } | LogDestination::Lines(server) => {
                all.push(lines(server, of))
            }
            LogDestination::Http(post) | LogDestination::Loki { post, .. } => {
                all.extend(url(&post.url, post.ca_path.clone(), of));
            }
            LogDestination::Kafka(kafka) => {
                for (host, port) in &kafka.brokers {
                    let scheme = if kafka.tls { Scheme::Tcps } else { Scheme::Tcp };
                    all.push(tried(host, *port, scheme, kafka.ca_path.clone(), of.clone()));
                }
            }
            LogDestination::Otlp(exporter) => all.extend(otlp(exporter, "LOGS", of)),
        }
    }
    if let Some(push) = &settings.metrics_push.otlp {
        all.extend(otlp(&push.exporter, "METRICS", "`gateway.metrics.otlp`".to_owned()));
    }
    if let Some(push) = &settings.metrics_push.statsd {
        all.push(tried(&push.host, push.port, Scheme::Udp, None, "`gateway.metrics.statsd`".to_owned()));
    }
    for config in model.plugin_configs.iter().filter(|config| &*config.plugin_name == "otel_tracing") {
        let exporter = config.config.value()["exporter"].take();
        // One that can't be read is a problem of the configuration.
        if let Ok(exporter) = serde_json::from_value::<Option<ExporterSettings>>(exporter) {
            let of = format!("plugin config `{}`", config.id);
            all.extend(otlp(&exporter.unwrap_or_default(), "TRACES", of));
        }
    }
    all
}

fn tried(host: &Arc<str>, port: u16, scheme: Scheme, ca_path: Option<PathBuf>, of: String) -> Tried {
    let rules = BackendTls { verify: true, ca_path, client_cert: None, server_name: None };
    let tls = scheme.is_encrypted().then(|| Arc::new(rules));
    Tried { host: host.clone(), port, scheme, tls, fixed: None, of }
}

fn lines(server: &LogServer, of: String) -> Tried {
    let scheme = match server.transport {
        LogTransport::Udp => Scheme::Udp,
        LogTransport::Tcp => Scheme::Tcp,
        LogTransport::Tls => Scheme::Tcps,
    };
    tried(&server.host, server.port, scheme, server.ca_path.clone(), of)
}

fn url(url: &str, ca_path: Option<PathBuf>, of: String) -> Option<Tried> {
    let (endpoint, _) = Endpoint::of_url(url).ok()?;
    let Server::Address { host, port } = &endpoint.server else { return None };
    let scheme = if endpoint.encrypted { Scheme::Https } else { Scheme::Http };
    Some(tried(host, *port, scheme, ca_path, of))
}

/// What the settings leave open comes from the environment, as in the gateway.
fn otlp(exporter: &ExporterSettings, signal: &str, of: String) -> Option<Tried> {
    let variable = |name: &str| {
        let own = std::env::var(format!("OTEL_EXPORTER_OTLP_{signal}_{name}")).ok();
        let common = std::env::var(format!("OTEL_EXPORTER_OTLP_{name}")).ok();
        [own, common].into_iter().flatten().map(|it| it.trim().to_owned()).find(|it| !it.is_empty())
    };
    let is_grpc = exporter.protocol == Some(Protocol::Grpc)
        || exporter.protocol.is_none() && variable("PROTOCOL").as_deref() == Some("grpc");
    let fallback = if is_grpc { "http://localhost:4317" } else { "http://localhost:4318" };
    let place = exporter.endpoint.clone().or_else(|| variable("ENDPOINT"));
    let ca_path = exporter.ca_path.clone().or_else(|| variable("CERTIFICATE").map(PathBuf::from));
    let mut tried = url(place.as_deref().unwrap_or(fallback), ca_path, of)?;
    if let (Some(rules), Some(cert), Some(key)) = (
        tried.tls.as_mut().map(Arc::make_mut),
        exporter.client_cert_path.clone().or_else(|| variable("CLIENT_CERTIFICATE").map(PathBuf::from)),
        exporter.client_key_path.clone().or_else(|| variable("CLIENT_KEY").map(PathBuf::from)),
    ) {
        rules.client_cert = Some((cert, key));
    }
    Some(tried)
}
