//! A gateway in this process.

use std::net::SocketAddr;

use ferrum_edge::Gateway;
use ferrum_edge::core::config::model::Model;
use ferrum_edge::core::plugin::Registry;

use super::h1::{Head, Talker};
use super::records::{Record, Records};
use super::tls;
use super::wire::Wire;

/// A running gateway with its records.
pub(crate) struct Edge {
    pub(crate) gateway: Gateway,
    pub(crate) records: Records,
    registry: Registry,
    settings: String,
}

impl Edge {
    /// A gateway with one worker and these proxies, upstreams and plugin configs.
    pub(crate) fn start(spec: &str) -> Self {
        Self::start_with("", spec)
    }

    /// As [`Edge::start`], with more settings under `gateway` (indented by two).
    pub(crate) fn start_with(settings: &str, spec: &str) -> Self {
        Self::start_plugged(ferrum_edge::plugins(), settings, spec)
    }

    /// As [`Edge::start_with`], with plugins of the test's own.
    pub(crate) fn start_plugged(registry: Registry, settings: &str, spec: &str) -> Self {
        let records = Records::new();
        let identity = tls::localhost();
        let mut gateway = format!(
            "gateway:\n  http: 127.0.0.1:0\n  https: 127.0.0.1:0\n  admin: off\n  access_log:\n    path: {}\n{settings}\n",
            records.path(),
        );
        for (setting, value) in [
            ("workers", "1".to_owned()),
            ("drain_timeout", "10".to_owned()),
            (
                "tls",
                format!(
                    "{{certificates: [{{cert_path: {:?}, key_path: {:?}}}]}}",
                    identity.cert, identity.key
                ),
            ),
        ] {
            if !settings.contains(&format!("{setting}:")) {
                gateway.push_str(&format!("  {setting}: {value}\n"));
            }
        }
        let model = parse(&registry, &gateway, spec);
        let started = Gateway::start(model, registry.clone()).unwrap_or_else(|error| panic!("{error}"));
        Self { gateway: started, records, registry, settings: gateway }
    }

    /// Puts other proxies, upstreams and plugin configs in use.
    pub(crate) fn reload(&self, spec: &str) {
        let model = parse(&self.registry, &self.settings, spec);
        self.gateway.reload(&model).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Puts other proxies and one other setting in use.
    pub(crate) fn reload_with(&mut self, from: &str, to: &str, spec: &str) {
        assert!(self.settings.contains(from), "{from} in {}", self.settings);
        self.settings = self.settings.replace(from, to);
        self.reload(spec);
    }

    /// The gateway's metrics, as Prometheus reads them.
    pub(crate) async fn metrics(&self) -> String {
        let admin = self.gateway.serve_admin(([127, 0, 0, 1], 0).into()).expect("an admin API");
        let mut wire = Wire::open(admin).await;
        wire.send("GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await;
        String::from_utf8(wire.rest().await.to_vec()).expect("a text")
    }

    /// The answer to a question by `/v1/explain`.
    pub(crate) async fn explain(&mut self, question: &str) -> serde_json::Value {
        const TOKEN: &str = "a-token-of-enough-bytes";
        let mut access = ferrum_edge::admin::Access::default();
        access.add_token(TOKEN, ferrum_edge::admin::Role::Read).expect("a token");
        self.gateway.set_admin_access(access);
        let admin = self.gateway.serve_admin(([127, 0, 0, 1], 0).into()).expect("an admin API");
        let mut wire = Wire::open(admin).await;
        let length = question.len();
        let head = format!(
            "POST /v1/explain HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
        );
        wire.send(head + question).await;
        let answer = String::from_utf8(wire.rest().await.to_vec()).expect("a text");
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }

    /// The plugins' metrics, as Prometheus reads them.
    pub(crate) fn meters(&self) -> String {
        self.registry.world().meters().text()
    }

    /// Ends the gateway, whose tasks send what waits; the plugins' metrics after that.
    pub(crate) async fn meters_at_the_end(self) -> String {
        let Self { gateway, registry, records, .. } = self;
        let (said, ended) = tokio::sync::oneshot::channel();
        // It waits for its threads, which may wait for servers of the test.
        std::thread::spawn(move || {
            drop((gateway, records));
            _ = said.send(());
        });
        super::soon(ended).await.expect("the gateway's end");
        registry.world().meters().text()
    }

    pub(crate) fn http(&self) -> SocketAddr {
        self.gateway.addresses().http.expect("http")
    }

    pub(crate) fn https(&self) -> SocketAddr {
        self.gateway.addresses().https.expect("https")
    }

    /// A client's plain connection.
    pub(crate) async fn wire(&self) -> Wire {
        Wire::open(self.http()).await
    }

    pub(crate) async fn talker(&self) -> Talker {
        Talker::new(self.wire().await)
    }

    /// One request on a connection of its own; its answer's head and body.
    pub(crate) async fn get(&self, path: &str) -> (Head, String) {
        self.ask(&format!("GET {path} HTTP/1.1\r\nhost: a.test\r\n\r\n")).await
    }

    /// A request as bytes, on a connection of its own; its answer's head and body.
    pub(crate) async fn ask(&self, request: &str) -> (Head, String) {
        let mut talker = self.talker().await;
        talker.wire.send(request).await;
        let method =
            request.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(http::Method::GET);
        let head = talker.response(&method).await.expect("an answer");
        let body = talker.body().await.expect("a body");
        (head, String::from_utf8_lossy(&body).into_owned())
    }

    /// The one record there is to be: it is taken, and nothing stands between it and that of a request made now, which
    /// also proves that the gateway still answers.
    #[track_caller]
    pub(crate) fn only_record(&mut self) -> impl Future<Output = Record> + '_ {
        let caller = std::panic::Location::caller();
        async move {
            let record = self.records.next().await;
            self.nothing_recorded_at(caller).await;
            record
        }
    }

    /// Nothing was recorded before the record of a request made now, which also proves that the gateway still answers.
    #[track_caller]
    pub(crate) fn nothing_recorded(&mut self) -> impl Future<Output = ()> + '_ {
        let caller = std::panic::Location::caller();
        self.nothing_recorded_at(caller)
    }

    async fn nothing_recorded_at(&mut self, caller: &std::panic::Location<'_>) {
        let (head, _) = self.ask("GET /marker HTTP/1.1\r\nhost: marker.test\r\n\r\n").await;
        assert!(head.status() > 0, "no answer at {caller}");
        let next = self.records.next().await;
        assert_eq!(next.0["server.address"], "marker.test", "one record too many at {caller}: {next:?}");
    }
}

#[track_caller]
/// What is wrong with a configuration.
pub(crate) fn problems(spec: &str) -> String {
    let read = ferrum_edge::source::file::parse(spec, "test", &ferrum_edge::plugins());
    read.map_or_else(|error| error.to_string(), |_| String::new())
}

fn parse(registry: &Registry, settings: &str, spec: &str) -> Model {
    let text = format!("{settings}{}", with_marker(spec));
    ferrum_edge::source::file::parse(&text, "test", registry)
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Adds a proxy that answers by itself, for [`Edge::only_record`].
fn with_marker(spec: &str) -> String {
    const PROXY: &str = "proxies:\n  - {id: marker, hosts: [marker.test], backend_scheme: http, \
        backend_host: 127.0.0.1, backend_port: 1, plugins: [{plugin_config_id: marker}]}\n";
    const PLUGIN: &str = "plugin_configs:\n  - {id: marker, plugin_name: request_termination, scope: proxy_group, \
        config: {status_code: 200}}\n";
    let spec = spec.replacen("proxies:\n", PROXY, 1);
    if spec.contains("plugin_configs:\n") {
        spec.replacen("plugin_configs:\n", PLUGIN, 1)
    } else {
        spec + PLUGIN
    }
}
