//! No spelling of a path gets past what guards it.

use http::Method;

use crate::support::edge::Edge;
use crate::support::standing::Standing;
use crate::support::talk::{Ask, Client, Will, WireProtocol};

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
    ("/open/%2fadmin", 400),
    ("/open/%5c..%5cadmin", 400),
    ("/open\\..\\admin", 400),
    ("/open/%252fadmin", 400),
    ("/open/%252e%252e/admin", 400),
    ("/open/..;/admin", 400),
    ("/open/%2e%2e;x/admin", 400),
    ("/open;x/y", 200),
    ("/open/100%25", 200),
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
            WireProtocol::H2,
            Ask { method: Method::GET, path, headers: &[], body: Will::Nothing },
        )
        .await;
        assert_eq!(client.head().await.unwrap().status, *status, "{path}");
    }
}

/// An origin that says which path it got, behind a proxy with these rules.
async fn asked(rules: &str, path: &str) -> (u16, String) {
    let origin = Standing::start("o").await;
    let spec = format!(
        "proxies:\n  - {{id: a, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, backend_port: {}{rules}}}\n  \
         - {{id: b, listen_path: /admin, backend_scheme: http, backend_host: 127.0.0.1, backend_port: 1}}\n",
        origin.address.port()
    );
    let edge = Edge::start(&spec);
    let (head, body) = edge.get(path).await;
    (head.status(), if head.status() == 200 { path_of(&body).to_owned() } else { String::new() })
}

/// The path in what the origin says it was asked.
fn path_of(body: &str) -> &str {
    body.lines().nth(1).and_then(|line| line.split(' ').nth(1)).unwrap_or_default()
}

#[tokio::test]
async fn a_proxy_may_keep_or_decode_what_is_refused_by_default() {
    let keep = ", path_rules: {encoded_slash: keep, backslash: keep, double_encoding: keep}";
    let decode = ", path_rules: {encoded_slash: decode, backslash: decode, double_encoding: decode}";
    for (rules, path, expected) in [
        ("", "/a;b/c%20d", (200, "/a;b/c%20d")),
        (keep, "/a%2fb", (200, "/a%2Fb")),
        (keep, "/a%5cb", (200, "/a%5Cb")),
        (keep, "/a%252fb", (200, "/a%252fb")),
        (decode, "/a%2fb?c=%2f", (200, "/a/b?c=%2f")),
        (decode, "/a%5cb", (200, "/a/b")),
        (decode, "/a%252eb", (200, "/a.b")),
        (decode, "/x%2f..%2fa", (200, "/a")),
        (decode, "/x%2f..%2fadmin", (400, "")),
        (decode, "/x/%252e%252e/admin", (400, "")),
        (decode, "/x%252f..%252fadmin", (400, "")),
        (decode, "/x%255c..%255Cadmin", (400, "")),
        (decode, "/x%252f..%252Fa", (200, "/a")),
        (decode, "/x%25252f..%25252fadmin", (400, "")),
        (", path_rules: {parameters: refuse}", "/a;b", (400, "")),
        (", path_rules: {parameters: remove}", "/a;b/c;d", (200, "/a/c")),
        (", path_rules: {parameters: remove}", "/admin;b/c", (400, "")),
    ] {
        let (status, got) = asked(rules, path).await;
        assert_eq!((status, got.as_str()), expected, "{rules} {path}");
    }
}

/// Many targets read `%3A` as `:`. Where that would be another proxy's path, the request goes to neither.
#[tokio::test]
async fn an_escaped_character_does_not_lead_past_a_proxy() {
    let origin = Standing::start("o").await;
    let port = origin.address.port();
    let proxy = |id: &str, path: &str, rest: &str| {
        format!(
            "  - {{id: {id}, listen_path: {path:?}, backend_scheme: http, backend_host: 127.0.0.1, backend_port: {port}{rest}}}\n"
        )
    };
    let spec = format!(
        "proxies:\n{}{}{}plugin_configs:\n  - {{id: no, plugin_name: request_termination, scope: global, config: {{status_code: 403}}, \
         when: {{path: '/w@x'}}}}\n  - {{id: shut, plugin_name: request_termination, proxy_id: items, config: {{status_code: 403}}}}\n",
        proxy("all", "/", ""),
        proxy("items", "/v1/items:delete", ""),
        proxy("regex", "~^/r/[^:]+$", ", priority: 1"),
    );
    let edge = Edge::start(&spec);
    for (path, expected) in [
        ("/v1/items:delete", (403, "")),
        ("/v1/items%3Adelete", (400, "")),
        ("/v1/items%3adelete/x", (400, "")),
        ("/v1/items%3Aput", (200, "/v1/items%3Aput")),
        ("/r/a%3Ab", (400, "")),
        ("/w@x", (403, "")),
        ("/w%40x", (403, "")),
        ("/w%2Bx", (200, "/w%2Bx")),
    ] {
        let (head, body) = edge.get(path).await;
        let got = if head.status() == 200 { path_of(&body) } else { "" };
        assert_eq!((head.status(), got), expected, "{path}");
    }
}

#[tokio::test]
async fn doubled_slashes_stay_where_they_are_not_to_be_merged() {
    let origin = Standing::start("o").await;
    let proxies = format!(
        "proxies:\n  - {{id: a, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, backend_port: {}}}\n",
        origin.address.port()
    );
    for (setting, expected) in [("", "/a/b"), ("  merge_slashes: false", "/a//b")] {
        let edge = Edge::start_with(setting, &proxies);
        assert_eq!(path_of(&edge.get("/a//b").await.1), expected);
    }
}

#[tokio::test]
async fn a_request_that_comes_back_is_refused() {
    let origin = Standing::start("o").await;
    let mut edge = Edge::start(&format!(
        "proxies:\n  - {{id: a, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, backend_port: {}}}\n",
        origin.address.port()
    ));
    let (_, body) = edge.get("/").await;
    let via = body.lines().find_map(|line| line.strip_prefix("via: ")).unwrap().to_owned();
    edge.records.next().await;
    for (via, status) in
        [(format!("1.0 other, {via}"), 508), ("1.1 ferrum-edge (0000000000)".to_owned(), 200)]
    {
        let (head, _) = edge.ask(&format!("GET / HTTP/1.1\r\nhost: a\r\nvia: {via}\r\n\r\n")).await;
        assert_eq!(head.status(), status, "{via}");
    }
    assert_eq!(edge.records.next().await.reason(), "loop");
}
