//! Which collector gets the credentials of the environment.

use gateway_plugin_common::testing::net::page;
use gateway_telemetry::batch::Chunk;
use gateway_telemetry::deliver::Deliver;
use gateway_telemetry::otlp::{ExporterSettings, Signal, build_exporter};
use serde_json::json;

use super::with_variables;

#[tokio::test]
async fn the_environments_credentials_go_to_its_endpoint_only() {
    const OURS: &str = "https://collector.test:4318";
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", OURS),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-team=hush"),
        ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/a.pem"),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/a.key"),
    ];
    for (endpoint, is_ours) in [
        (None, true),
        (Some("https://collector.test:4318/base"), true),
        (Some("https://evil.test:4318"), false),
        (Some("https://collector.test:4319"), false),
        (Some("http://collector.test:4318"), false),
    ] {
        let machine = with_variables(&variables);
        machine.net.serve(|_| page(200, &json!({})));
        let settings =
            ExporterSettings { endpoint: endpoint.map(str::to_owned), ..ExporterSettings::default() };
        let exporter = build_exporter(&settings, Signal::Traces, "config.exporter", &machine.world())
            .unwrap_or_else(|problems| panic!("{problems}"));
        assert!(exporter.deliver(&Chunk::default()).await.is_ok());
        let sent = machine.net.sent();
        assert_eq!(sent[0].field("x-team"), if is_ours { "hush" } else { "" }, "{endpoint:?}");
        assert_eq!(machine.net.endpoints()[0].tls.client_cert.is_some(), is_ours, "{endpoint:?}");
    }
}
