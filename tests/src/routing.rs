//! From a request to its target, as clients and targets see it.

mod balancing;
mod claims;
mod connections;
mod forwarded;
mod headers;

use crate::support::edge::Edge;
use crate::support::standing::Standing;

/// Who answered, and the target it was asked for.
async fn asked(edge: &Edge, host: &str, path: &str) -> (u16, String) {
    let (head, body) = edge.ask(&format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n")).await;
    let mut lines = body.lines();
    let (name, line) = (lines.next().unwrap_or(""), lines.next().unwrap_or(""));
    let target = line.split(' ').nth(1).unwrap_or("");
    (head.status(), format!("{name} {target}"))
}

#[tokio::test]
async fn hosts_exact_then_wildcard_then_any() {
    let (exact, wild, any) =
        (Standing::start("exact").await, Standing::start("wild").await, Standing::start("any").await);
    let edge = Edge::start(&format!(
        "proxies:\n  - {{id: exact, hosts: [api.example.com], listen_path: /x, strip_listen_path: false, {}}}\n  \
         - {{id: wild, hosts: [\"*.example.com\"], {}}}\n  - {{id: any, listen_path: /, {}}}\n",
        exact.backend(),
        wild.backend(),
        any.backend()
    ));
    for (host, name) in [
        ("api.example.com", "exact"),
        ("API.Example.COM", "exact"),
        ("api.example.com:8000", "exact"),
        ("x.example.com", "wild"),
        ("example.com", "any"),
        ("api.example.com.evil", "any"),
        ("127.0.0.1", "any"),
        ("[::1]:80", "any"),
    ] {
        assert_eq!(asked(&edge, host, "/x").await, (200, format!("{name} /x")), "{host}");
    }
    // The target's own authority wins over Host.
    assert_eq!(asked(&edge, "127.0.0.1", "http://api.example.com/x").await, (200, "exact /x".into()));
}

#[tokio::test]
async fn paths_longest_prefix_on_whole_segments_then_regexes() {
    let origin = Standing::start("o").await;
    let backend = origin.backend();
    let edge = Edge::start(&format!(
        "proxies:\n  \
         - {{id: api, listen_path: /api, backend_path: /api-root, {backend}}}\n  \
         - {{id: v2, listen_path: /api/v2, backend_path: /v2-root, {backend}}}\n  \
         - {{id: keep, listen_path: /keep, strip_listen_path: false, {backend}}}\n  \
         - {{id: regex, listen_path: \"~^/users/[0-9]+/photo$\", strip_listen_path: false, {backend}}}\n"
    ));
    for (path, target) in [
        ("/api", "o /api-root"),
        ("/api/", "o /api-root/"),
        ("/api/x?a=b", "o /api-root/x?a=b"),
        ("/api?a=b", "o /api-root?a=b"),
        ("/api/v2", "o /v2-root"),
        ("/api/v2/x", "o /v2-root/x"),
        ("/api/v20", "o /api-root/v20"),
        ("/api/v1/../v2/x", "o /v2-root/x"),
        ("/keep/x", "o /keep/x"),
        ("/users/42/photo?s=1", "o /users/42/photo?s=1"),
    ] {
        assert_eq!(asked(&edge, "a", path).await, (200, target.into()), "{path}");
    }
    for path in ["/apix", "/", "/users/x/photo", "/users/42/photo/x", "/keepx"] {
        let (head, body) = edge.get(path).await;
        assert_eq!(head.status(), 404, "{path}");
        assert_eq!(head.field("content-type"), "application/problem+json");
        assert!(body.contains("no_route") && !body.contains("127.0.0.1"), "{body}");
    }
}

#[tokio::test]
async fn a_method_that_is_not_allowed_is_told_which_are() {
    let origin = Standing::start("o").await;
    let edge = Edge::start(&format!(
        "proxies:\n  - {{id: a, listen_path: /, allowed_methods: [GET, HEAD], {}}}\n",
        origin.backend()
    ));
    assert_eq!(edge.get("/").await.0.status(), 200);
    let (head, body) = edge.ask("DELETE / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(head.status(), 405);
    let mut allowed: Vec<&str> = head.field("allow").split(", ").collect();
    allowed.sort_unstable();
    assert_eq!(allowed, ["GET", "HEAD"]);
    assert!(body.contains("method_not_allowed"), "{body}");
    assert!(head.field("proxy-status").contains("http_request_denied"));
    assert_eq!(origin.served(), 1);
}
