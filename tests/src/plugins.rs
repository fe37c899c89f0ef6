//! The plugins as clients and targets see them.

use crate::support::edge::Edge;
use crate::support::standing::Standing;

/// One proxy to `origin` with one plugin.
fn spec(origin: &Standing, plugin: &str, config: &str) -> String {
    format!(
        "proxies:\n  - {{id: a, listen_path: /, {}, plugins: [{{plugin_config_id: p}}]}}\n\
         plugin_configs:\n  - {{id: p, plugin_name: {plugin}, scope: proxy_group, config: {config}}}\n",
        origin.backend()
    )
}

#[tokio::test]
async fn a_correlation_id_is_the_same_for_client_target_and_log() {
    let origin = Standing::start("o").await;
    let mut edge = Edge::start(&spec(&origin, "correlation_id", "{}"));
    let mut seen = std::collections::HashSet::new();
    for _ in 0..10 {
        let (head, body) = edge.get("/").await;
        let id = head.field("x-request-id").to_owned();
        assert_eq!(id.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{id}");
        assert!(body.contains(&format!("x-request-id: {id}\n")), "{body}");
        assert_eq!(edge.records.next().await.0["http.request.id"], id.as_str());
        assert!(seen.insert(id), "an id came twice");
    }
}

#[tokio::test]
async fn a_clients_id_is_kept_unless_it_would_fill_logs() {
    let origin = Standing::start("o").await;
    let edge = Edge::start(&spec(&origin, "correlation_id", "{header_name: x-id}"));
    for (sent, kept) in [("abc-123", true), ("a b", false), ("", false), (&"x".repeat(257), false)] {
        let (head, body) = edge.ask(&format!("GET / HTTP/1.1\r\nhost: a\r\nx-id: {sent}\r\n\r\n")).await;
        assert_eq!(head.field("x-id") == sent, kept, "{sent}");
        assert_eq!(body.matches("x-id: ").count(), 1, "the target sees one id: {body}");
    }
}

#[tokio::test]
async fn a_correlation_id_is_on_refusals_too() {
    let edge = {
        let origin = Standing::start("gone").await;
        Edge::start(
            &spec(&origin, "correlation_id", "{}")
                .replace(&origin.backend(), "backend_scheme: http, backend_host: 127.0.0.1, backend_port: 1"),
        )
    };
    let (head, _) = edge.get("/").await;
    assert_eq!(head.status(), 502);
    assert!(!head.field("x-request-id").is_empty());
}

/// What only a trusted proxy may say of the way here, a plugin may write: the gateway does not.
#[tokio::test]
async fn a_field_that_clients_may_not_send_is_a_plugins_to_write() {
    let origin = Standing::start("o").await;
    let request = "GET / HTTP/1.1\r\nhost: a\r\nx-real-ip: 6.6.6.6\r\nx-forwarded-port: 6\r\n\
                   x-forwarded-tls-client-cert: forged\r\nx-forwarded-tls-client-cert-info: forged\r\n\
                   x-forwarded-server: forged\r\nx-forwarded-proto: forged\r\n\r\n";
    let rule = "{operation: set, target: header, key: X-Real-IP, value: '${client.address}'}";
    for (rules, expected) in
        [("{operation: set, target: header, key: x-a, value: b}", ""), (rule, "127.0.0.1")]
    {
        let edge = Edge::start(&spec(&origin, "request_transformer", &format!("{{rules: [{rules}]}}")));
        let (_, body) = edge.ask(request).await;
        let told: Vec<&str> = body.lines().filter_map(|line| line.strip_prefix("x-real-ip: ")).collect();
        assert_eq!(told.concat(), expected, "{body}");
        assert!(!body.contains("x-forwarded-port") && !body.contains("forged"), "{body}");
    }
}

#[tokio::test]
async fn termination_answers_what_its_trigger_matches() {
    let origin = Standing::start("o").await;
    let config = "{status_code: 410, body: gone, content_type: text/plain, trigger: {path_prefix: /old, header: x-t, header_value: \"1\"}}";
    let mut edge = Edge::start(&spec(&origin, "request_termination", config));
    for (request, status) in [
        ("GET /old/x HTTP/1.1\r\nhost: a\r\nx-t: 1\r\n\r\n", 410),
        ("GET /old/x HTTP/1.1\r\nhost: a\r\nx-t: 0\r\nx-t: 1\r\n\r\n", 410),
        ("GET /old/x HTTP/1.1\r\nhost: a\r\nx-t: 2\r\n\r\n", 200),
        ("GET /old/x HTTP/1.1\r\nhost: a\r\n\r\n", 200),
        ("GET /new HTTP/1.1\r\nhost: a\r\nx-t: 1\r\n\r\n", 200),
    ] {
        let (head, body) = edge.ask(request).await;
        assert_eq!(head.status(), status, "{request}");
        let record = edge.records.next().await;
        if status == 410 {
            assert_eq!(
                (body.as_str(), head.field("content-type"), record.reason()),
                ("gone", "text/plain", "plugin")
            );
        }
    }
    assert_eq!(origin.served(), 3);
}

#[tokio::test]
async fn a_key_in_the_query_is_never_logged_whatever_it_is_called() {
    let origin = Standing::start("o").await;
    let spec = spec(
        &origin,
        "key_auth",
        "{key_location: ['query:Member', 'header:x-api-key'], hide_credentials: false}",
    );
    let mut edge = Edge::start(&format!(
        "{spec}consumers:\n  - {{id: ann, username: ann, credentials: {{key_auth: {{key: sesame}}}}}}\n"
    ));
    for (query, logged, status) in [
        ("Member=sesame&b=1", "Member=REDACTED&b=1", 200),
        ("Member=wrong", "Member=REDACTED", 401),
        ("members=1", "members=1", 401),
    ] {
        let (head, _) = edge.get(&format!("/?{query}")).await;
        assert_eq!(head.status(), status, "{query}");
        assert_eq!(edge.records.next().await.0["url.query"], logged);
    }
}
