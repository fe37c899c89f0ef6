//! Quotas on real traffic: over both HTTP versions, for WebSockets, kept in a file over a restart, and shared through Redis.

use std::path::PathBuf;

use http::Method;

use crate::support::edge::Edge;
use crate::support::redis::Redis;
use crate::support::standing::Standing;
use crate::support::talk::{Ask, Client, Will, WireProtocol};
use crate::support::tls;

fn spec(origin: &Standing, config: &str) -> String {
    format!(
        "proxies:\n  - {{id: a, listen_path: /, {}, plugins: [{{plugin_config_id: p}}]}}\n\
         plugin_configs:\n  - {{id: p, plugin_name: quota, scope: proxy_group, config: {{limit_by: 'header:x-who', {config}}}}}\n",
        origin.backend()
    )
}

/// A folder of this test's own.
fn folder(name: &str) -> PathBuf {
    let folder = tls::authority().folder().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

async fn ask(edge: &Edge, kind: WireProtocol, who: &str) -> (u16, String) {
    let headers = [("x-who", who)];
    let ask = Ask { method: Method::GET, path: "/", headers: &headers, body: Will::Nothing };
    let mut client = Client::ask(edge, kind, ask).await;
    let got = client.head().await.unwrap();
    (got.status, got.field("retry-after").to_owned())
}

#[tokio::test]
async fn a_quota_counts_all_kinds_of_requests_and_survives_a_restart() {
    let origin = Standing::start("o").await;
    let folder = folder("quota");
    let config = format!("limits: [{{limit: 3, per: 3650d}}], save_interval: 100ms, path: {folder:?}");
    let edge = Edge::start(&spec(&origin, &config));
    for kind in [WireProtocol::H1, WireProtocol::H2, WireProtocol::H2Tls] {
        assert_eq!(ask(&edge, kind, "ann").await.0, 200, "{kind:?}");
    }
    let (status, retry) = ask(&edge, WireProtocol::H2, "ann").await;
    assert!(status == 429 && retry.parse::<u64>().unwrap() > 3600, "{status} {retry}");
    let request = "GET /chat HTTP/1.1\r\nhost: a.test\r\nx-who: ann\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
        sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    assert_eq!(edge.ask(request).await.0.status(), 429, "a WebSocket is a request");
    assert_eq!(ask(&edge, WireProtocol::H1, "bob").await.0, 200);
    // Written once both callers are in it.
    let file = folder.join("p.quota");
    while std::fs::metadata(&file).map_or(0, |about| about.len()) < 16 + 2 * 24 + 32 {
        tokio::task::yield_now().await;
    }
    drop(edge);
    let edge = Edge::start(&spec(&origin, &config));
    assert_eq!(ask(&edge, WireProtocol::H1, "ann").await.0, 429);
    for expected in [200, 200, 429] {
        assert_eq!(ask(&edge, WireProtocol::H1, "bob").await.0, expected);
    }
    assert_eq!(origin.served(), 6);
}

#[tokio::test]
async fn gateways_share_a_quota() {
    let redis = Redis::start();
    let origin = Standing::start("o").await;
    let config = "limits: [{limit: 4, per: 3650d}], redis: {name: main, on_error: deny}";
    let spec = spec(&origin, config);
    let edges = [(); 2].map(|()| Edge::start_with(&redis.settings("10s"), &spec));
    for edge in &edges {
        // Refused until it is connected.
        while ask(edge, WireProtocol::H1, "first").await.0 != 200 {}
    }
    let mut got = Vec::new();
    for edge in [&edges[0], &edges[1], &edges[0], &edges[1], &edges[0], &edges[1]] {
        got.push(ask(edge, WireProtocol::H1, "ann").await.0);
    }
    assert_eq!(got, [200, 200, 200, 200, 429, 429]);
    drop(redis);
    assert_eq!(ask(&edges[0], WireProtocol::H1, "bob").await.0, 503, "nobody can count");
}
