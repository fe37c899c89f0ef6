//! Forwarding headers that a proxy or a plugin changes.

use crate::support::edge::Edge;
use crate::support::standing::Standing;

/// The `X-Forwarded-*` headers that the target received, as `name: value`.
async fn fields_received(gateway: &str, proxy: &str, plugins: &str, fields: &str) -> Vec<String> {
    let target = Standing::start("a").await;
    let edge = Edge::start_with(
        gateway,
        &format!(
            "proxies:\n  - {{id: a, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, backend_port: {}{proxy}}}\n{plugins}",
            target.address.port()
        ),
    );
    let (head, body) = edge.ask(&format!("GET / HTTP/1.1\r\nhost: a.test:81\r\n{fields}\r\n")).await;
    assert_eq!(head.status(), 200, "{body}");
    let mut lines: Vec<String> = body
        .lines()
        .map(str::to_ascii_lowercase)
        .filter(|line| line.starts_with("x-forwarded-"))
        .map(|line| line.trim_start_matches("x-forwarded-").to_owned())
        .collect();
    lines.sort();
    lines
}

const CLAIMS: &str =
    "x-forwarded-for: 9.9.9.9\r\nx-forwarded-proto: gopher\r\nx-forwarded-port: 1\r\ncf-ip: 1.2.3.4\r\n";
const USUAL: [&str; 3] = ["for: 127.0.0.1", "host: a.test:81", "proto: http"];

#[tokio::test]
async fn the_gateways_own_values_are_sent_unless_others_are_set() {
    assert_eq!(fields_received("", "", "", CLAIMS).await, USUAL);
    let rules = ", forwarded: {proto: https, host: 'www.${request.host}', for: '${request.header.cf-ip}', port: '443'}";
    let expected = ["for: 1.2.3.4", "host: www.a.test", "port: 443", "proto: https"];
    assert_eq!(fields_received("", rules, "", CLAIMS).await, expected);
    // If a value is empty, the header is not sent.
    let rules = ", forwarded: {for: '${request.header.nothing}', host: ''}";
    assert_eq!(fields_received("", rules, "", CLAIMS).await, ["proto: http"]);
}

#[tokio::test]
async fn claims_of_untrusted_clients_are_not_forwarded() {
    let rules = ", forwarded: {for: '${request.header.x-forwarded-for:-none}', port: '${request.header.x-forwarded-port:-none}'}";
    assert_eq!(
        fields_received("", rules, "", CLAIMS).await,
        ["for: none", "host: a.test:81", "port: none", "proto: http"]
    );
    let trusted = "  trusted_proxies: [127.0.0.0/8]";
    let expected = ["for: 9.9.9.9", "host: a.test:81", "port: 1", "proto: gopher"];
    assert_eq!(fields_received(trusted, rules, "", CLAIMS).await, expected);
}

#[tokio::test]
async fn rules_of_request_transformer_go_before() {
    let plugin = |rules: &str| {
        format!(
            "plugin_configs:\n  - {{id: t, plugin_name: request_transformer, scope: proxy, proxy_id: a, config: {{rules: [{rules}]}}}}\n"
        )
    };
    let set = plugin(
        "{operation: set, target: header, key: X-Forwarded-Proto, value: https}, \
         {operation: append, target: header, key: X-Forwarded-For, value: 5.5.5.5}, \
         {operation: remove, target: header, key: X-Forwarded-Host}",
    );
    assert_eq!(
        fields_received("", ", forwarded: {proto: ftp, port: '7'}", &set, CLAIMS).await,
        ["for: 5.5.5.5", "port: 7", "proto: https"]
    );
    let again = plugin(
        "{operation: set, target: header, key: X-Forwarded-Port, value: '${request.header.x-forwarded-for:-none}'}",
    );
    let expected = ["for: 127.0.0.1", "host: a.test:81", "port: none", "proto: http"];
    assert_eq!(fields_received("", "", &again, CLAIMS).await, expected);
}

#[tokio::test]
async fn upgrades_that_are_not_allowed_go_on_as_plain_requests() {
    let target = Standing::start("a").await;
    let edge = Edge::start(&format!(
        "proxies:\n  - {{id: a, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, backend_port: {}, allowed_upgrades: []}}\n",
        target.address.port()
    ));
    let upgrade = "GET /chat HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                   sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let (head, body) = edge.ask(upgrade).await;
    assert_eq!(head.status(), 200, "{body}");
    let has = |name: &str| body.lines().any(|line| line.to_ascii_lowercase().starts_with(name));
    assert!(has("sec-websocket-key:") && !has("upgrade:") && !has("connection: upgrade"), "{body}");
}
