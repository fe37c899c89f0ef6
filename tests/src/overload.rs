//! Load is shed by priority while memory is short, idle connections are closed, and the gateway recovers by itself.

use std::sync::{Arc, Mutex, mpsc};

use ferrum_edge::core::config::problem::Problems;
use ferrum_edge::core::http::exchange::Exchange;
use ferrum_edge::core::plugin::{Hooks, OnRequest, Plugin, Seat, Step, World, entry};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::support::edge::Edge;
use crate::support::soon;
use crate::support::stream::{LOOPBACK, free_port};
use crate::support::wire::Wire;

/// Three proxies that answer by themselves, and a TCP proxy.
fn spec(port: u16) -> String {
    let proxy = |id: &str, priority: &str| {
        format!(
            "  - {{id: {id}, listen_path: /{id}, backend_host: 127.0.0.1, backend_port: 9{priority}, \
             plugins: [{{plugin_config_id: answer}}]}}\n"
        )
    };
    format!(
        "proxies:\n{}{}{}  - {{id: stream, backend_scheme: tcp, listen_port: {port}, backend_host: 127.0.0.1, backend_port: 9}}\n\
         plugin_configs:\n  - {{id: answer, plugin_name: request_termination, scope: proxy_group, config: {{status_code: 200}}}}\n",
        proxy("low", ", load_priority: low"),
        proxy("normal", ""),
        proxy("high", ", load_priority: high"),
    )
}

async fn status(edge: &Edge, path: &str) -> u16 {
    edge.get(path).await.0.status()
}

/// Until the gateway has looked and this path is answered so.
async fn until(edge: &Edge, path: &str, wanted: u16) {
    soon(async {
        while status(edge, path).await != wanted {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn the_least_important_is_refused_while_memory_is_short() {
    let port = free_port();
    let settings = format!("{LOOPBACK}\n  overload: {{max_memory: 1000000000000}}");
    let mut edge = Edge::start_with(&settings, &spec(port));
    let mut idle = edge.wire().await;
    for path in ["/low", "/normal", "/high"] {
        assert_eq!(status(&edge, path).await, 200, "{path}");
    }
    edge.reload_with("1000000000000", "1000", &spec(port));
    until(&edge, "/normal", 503).await;
    assert_eq!(status(&edge, "/low").await, 503);
    assert_eq!(status(&edge, "/high").await, 200);
    let (head, body) = edge.get("/normal").await;
    assert_eq!(head.field("retry-after"), "1");
    assert!(body.contains("overloaded"), "{body}");
    // Who has nothing to ask goes; nothing is lost, because nothing was asked.
    idle.closed().await;
    let mut stream = soon(TcpStream::connect(("127.0.0.1", port))).await.unwrap();
    assert_eq!(soon(stream.read(&mut [0])).await.unwrap_or(0), 0);
    let admin = edge.gateway.serve_admin(([127, 0, 0, 1], 0).into()).unwrap();
    let shown = |path: &'static str| async move {
        let mut wire = Wire::open(admin).await;
        wire.send(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")).await;
        String::from_utf8(wire.rest().await.to_vec()).unwrap()
    };
    assert!(shown("/v1/status").await.contains(r#""level":"refuse_most""#));
    let metrics = shown("/metrics").await;
    assert!(metrics.contains("\nferrum_overload_level 3\n"), "{metrics}");
    assert!(metrics.contains("\nferrum_overload_memory_limit_bytes 1000\n"), "{metrics}");
    // And back by itself.
    edge.reload_with("max_memory: 1000", "max_memory: 0", &spec(port));
    until(&edge, "/low", 200).await;
    assert!(shown("/v1/status").await.contains(r#""level":"normal""#));
    assert!(!shown("/metrics").await.contains("\nferrum_overload_memory_limit_bytes"));
}

/// Holds its worker up until the test lets it go on.
struct Hog;

static HELD: Mutex<Option<mpsc::Receiver<()>>> = Mutex::new(None);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoSettings {}

impl Plugin for Hog {
    const NAME: &'static str = "hog";
    const SUMMARY: &'static str = "Holds its worker up.";
    type Config = NoSettings;

    fn build(NoSettings {}: NoSettings, _world: &World) -> Result<Self, Problems> {
        Ok(Self)
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_request(self);
    }
}

impl OnRequest for Hog {
    fn on_request<'a>(&'a self, _exchange: &'a mut Exchange, _seat: Seat<'a>) -> Step<'a> {
        if let Some(held) = HELD.lock().unwrap().take() {
            held.recv().unwrap();
        }
        Step::Next
    }
}

#[tokio::test]
async fn a_worker_that_is_late_sheds_load() {
    let mut registry = ferrum_edge::plugins();
    registry.add(entry::<Hog>());
    let spec = "proxies:\n  - {id: a, listen_path: /, backend_host: 127.0.0.1, backend_port: 9, \
        plugins: [{plugin_config_id: hog}]}\n\
        plugin_configs:\n  - {id: hog, plugin_name: hog, scope: proxy_group, config: {}}\n";
    let edge = Edge::start_plugged(registry, "  overload: {max_memory: 0, max_delay: 500ms}", spec);
    let admin = edge.gateway.serve_admin(([127, 0, 0, 1], 0).into()).unwrap();
    let level = |wanted: &'static str| async move {
        let wanted = format!("\"level\":\"{wanted}\"");
        soon(async {
            loop {
                let mut wire = Wire::open(admin).await;
                wire.send("GET /v1/status HTTP/1.0\r\nhost: localhost\r\n\r\n").await;
                if String::from_utf8_lossy(&wire.rest().await).contains(&wanted) {
                    return;
                }
            }
        })
        .await;
    };
    level("normal").await;
    let (release, held) = mpsc::channel();
    *HELD.lock().unwrap() = Some(held);
    let mut client = edge.wire().await;
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    level("refuse_most").await;
    release.send(()).unwrap();
    level("normal").await;
    client.expect("HTTP/1.1 502").await;
}
