//! No spelling of a path gets past what guards it.

use http::Method;

use crate::support::edge::Edge;
use crate::support::talk::{Ask, Client, Kind, Will};

const GUARDED: &str = "proxies:\n  \
    - {id: open, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, backend_port: 1, plugins: [{plugin_config_id: open}]}\n  \
    - {id: admin, listen_path: /admin, backend_scheme: http, backend_host: 127.0.0.1, backend_port: 1, plugins: [{plugin_config_id: closed}]}\n\
    plugin_configs:\n  \
    - {id: open, plugin_name: request_termination, scope: proxy_group, config: {status_code: 200}}\n  \
    - {id: closed, plugin_name: request_termination, scope: proxy_group, config: {status_code: 403}}\n";

/// A path as a client writes it, and what it is answered.
const PATHS: &[(&str, u16)] = &[
    ("/admin", 403),
    ("/admin/", 403),
    ("/admin/x?y", 403),
    ("/admin?x", 403),
    ("//admin", 403),
    ("///admin//x", 403),
    ("/./admin", 403),
    ("/a/../admin", 403),
    ("/a/b/../../admin", 403),
    ("/../admin", 403),
    ("/a/%2e%2e/admin", 403),
    ("/a/%2E./admin", 403),
    ("/a/.%2e/admin", 403),
    ("/%2e/admin", 403),
    ("/%61dmin", 403),
    ("/adm%69n/x", 403),
    ("/admin/../admin", 403),
    ("/admin/../open", 200),
    ("/adminx", 200),
    ("/ADMIN", 200),
    ("/open?/admin", 200),
    ("/open/%2fadmin", 200),
    ("/admin%00", 400),
    ("/admin%00/x", 400),
    ("/%5cadmin", 400),
    ("/admin%2", 400),
];

#[tokio::test]
async fn over_http_1() {
    let mut edge = Edge::start(GUARDED);
    for (path, status) in PATHS {
        let (head, _) = edge.get(path).await;
        assert_eq!(head.status(), *status, "{path}");
        assert_eq!(edge.only_record().await.status(), u64::from(*status), "{path}");
    }
    for (target, status) in
        [("http://a.test/admin", 403), ("http://a.test/x/../admin", 403), ("HTTP://A.TEST//admin", 403)]
    {
        let (head, _) = edge.get(target).await;
        assert_eq!(head.status(), status, "{target}");
    }
}

#[tokio::test]
async fn over_http_2() {
    let edge = Edge::start(GUARDED);
    for (path, status) in PATHS {
        let mut client = Client::ask(
            &edge,
            Kind::H2,
            Ask { method: Method::GET, path, headers: &[], body: Will::Nothing },
        )
        .await;
        assert_eq!(client.head().await.unwrap().status, *status, "{path}");
    }
}
