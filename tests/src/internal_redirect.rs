//! What a target names in `X-Accel-Redirect`, served by another server.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::edge::Edge;
use crate::support::standing::Standing;

/// Starts a target that sends `name` in `X-Accel-Redirect` and a body that no client may receive. Returns its port.
async fn naming(name: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut request = vec![0; 4096];
            if client.read(&mut request).await.is_err() {
                continue;
            }
            let response = format!(
                "HTTP/1.1 200 OK\r\nx-accel-redirect: {name}\r\ncontent-type: text/x-own\r\ncontent-length: 6\r\n\
                 connection: close\r\n\r\nsecret"
            );
            drop(client.write_all(response.as_bytes()).await);
        }
    });
    port
}

/// Each row: what the target names, and the path that the other server receives; `None` for 502.
#[tokio::test]
async fn servers_and_upstreams_answer_for_names_with_a_listed_prefix() {
    let store = Standing::start("store").await;
    let port = store.address.port();
    for (name, expected) in [
        ("/by-url/a%20b?v=1", Some("/base/a%20b?v=1")),
        ("/by-upstream/x", Some("/by-upstream/x")),
        ("/by-url/../by-upstream/x", None),
        ("/elsewhere/x", None),
        ("@store", None),
    ] {
        let target = naming(name).await;
        let edge = Edge::start(&format!(
            "proxies:\n  - {{id: a, listen_path: /, backend_host: 127.0.0.1, backend_port: {target}, plugins: [{{plugin_config_id: p}}]}}\n\
             upstreams:\n  - {{id: store, targets: [{{host: 127.0.0.1, port: {port}}}]}}\n\
             plugin_configs:\n  - id: p\n    plugin_name: internal_redirect\n    scope: proxy_group\n    config:\n      locations:\n\
             \x20       - {{prefix: /by-url/, url: 'http://127.0.0.1:{port}/base'}}\n\
             \x20       - {{prefix: /by-upstream/, upstream_id: store, strip_prefix: false}}\n"
        ));
        let request = "POST /page HTTP/1.1\r\nhost: a\r\ncookie: s=1\r\ncontent-length: 2\r\n\r\nhi";
        let (head, body) = edge.ask(request).await;
        assert_eq!(head.field("x-accel-redirect"), "", "{name}");
        assert!(!body.contains("secret"), "{name}: {body}");
        let Some(expected) = expected else {
            assert_eq!(head.status(), 502, "{name}: {body}");
            continue;
        };
        assert_eq!((head.status(), head.field("content-type")), (200, "text/x-own"), "{name}: {body}");
        assert!(body.contains(&format!("GET {expected} ")), "{name}: {body}");
        assert!(body.contains("cookie: s=1\n") && !body.contains("content-length: 2"), "{name}: {body}");
    }
}
