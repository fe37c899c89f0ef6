//! Plugins that decide who may pass and how much, on real traffic in every protocol they apply to: one table.
//!
//! For each plugin and protocol a good request reaches the target, and a bad one is refused with the plugin's status, which a gRPC
//! client reads as a gRPC status.

mod callers;
mod ways;

use crate::support::edge::Edge;
use crate::support::h3;
use crate::support::standing::Standing;
use ways::{Fields, NOTHING, Row, WAYS, WITH_BODIES, Way, ask, decides, spec};

const WHO: (&str, Fields<'_>, &str) = ("/", &[("x-who", "{way}")], "");
const TOKEN: &str = "Bearer eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhbm4iLCJleHAiOjQxMDI0NDQ4MDB9.\
    ZiTzf4bwhV8v87KSgeT_wcgadKtPJaZsex4sigr_-Pk";
const FORGED: &str = "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbm4iLCJleHAiOjQxMDI0NDQ4MDB9.";

const ROWS: &[Row<'_>] = &[
    Row {
        plugin: "key_auth",
        config: "{key_location: ['header:x-api-key', 'query:key', 'cookie:key']}",
        good: ("/", &[("cookie", "key=sesame")], ""),
        bad: ("/?key=wrong", &[], ""),
        refused: (401, "16"),
        field: "www-authenticate",
        ways: &WAYS,
    },
    Row {
        plugin: "key_auth",
        config: "{}",
        good: ("/", &[("x-api-key", "sesame")], ""),
        bad: NOTHING,
        refused: (401, "16"),
        field: "www-authenticate",
        ways: &WAYS,
    },
    Row {
        plugin: "basic_auth",
        config: "{}",
        good: ("/", &[("authorization", "Basic YW5uOm9wZW4=")], ""),
        bad: ("/", &[("authorization", "Basic YW5uOndyb25n")], ""),
        refused: (401, "16"),
        field: "www-authenticate",
        ways: &WAYS,
    },
    Row {
        plugin: "jwt_auth",
        config: "{}",
        good: ("/", &[("authorization", TOKEN)], ""),
        bad: ("/", &[("authorization", FORGED)], ""),
        refused: (401, "16"),
        field: "www-authenticate",
        ways: &WAYS,
    },
    Row {
        plugin: "ip_restriction",
        config: "{deny: [127.0.0.0/8]}",
        good: NOTHING,
        bad: ("/", &[("x-bad", "1")], ""),
        refused: (403, "7"),
        field: "",
        ways: &WAYS,
    },
    Row {
        plugin: "bot_detection",
        config: "{on_missing: deny}",
        good: ("/", &[("user-agent", "Mozilla/5.0"), ("x-bad", "1")], ""),
        bad: ("/", &[("user-agent", "sqlmap/1.7"), ("x-bad", "1")], ""),
        refused: (403, "7"),
        field: "",
        ways: &WAYS,
    },
    Row {
        plugin: "rate_limiting",
        config: "{limits: [{rate: 1, per: 1d}], limit_by: 'header:x-who'}",
        good: WHO,
        bad: WHO,
        refused: (429, "8"),
        field: "retry-after",
        ways: &WAYS,
    },
    Row {
        plugin: "quota",
        config: "{limits: [{limit: 1, per: 3650d}], limit_by: 'header:x-who', path: FOLDER}",
        good: WHO,
        bad: WHO,
        refused: (429, "8"),
        field: "retry-after",
        ways: &WAYS,
    },
    Row {
        plugin: "request_validation",
        config: "{headers_schema: {required: [x-tenant]}}",
        good: ("/", &[("x-tenant", "a")], ""),
        bad: NOTHING,
        refused: (400, "3"),
        field: "",
        ways: &WAYS,
    },
    Row {
        plugin: "request_validation",
        config: "{body_schema: {required: [name]}}",
        good: ("/", &[("content-type", "application/json")], "{\"name\": 1}"),
        bad: ("/", &[("content-type", "application/json")], "{}"),
        refused: (400, ""),
        field: "",
        ways: &WITH_BODIES,
    },
    Row {
        plugin: "graphql_limits",
        config: "{max_depth: 2}",
        good: ("/", &[("content-type", "application/json")], "{\"query\": \"{a{b}}\"}"),
        bad: ("/", &[("content-type", "application/json")], "{\"query\": \"{a{b{c}}}\"}"),
        refused: (400, ""),
        field: "",
        ways: &WITH_BODIES,
    },
    Row {
        plugin: "csrf",
        config: "{token: false}",
        good: ("/", &[("sec-fetch-site", "same-origin")], "x"),
        bad: ("/", &[("sec-fetch-site", "cross-site")], "x"),
        refused: (403, ""),
        field: "",
        ways: &WITH_BODIES,
    },
    Row {
        plugin: "request_size_limiting",
        config: "{max_size: 4}",
        good: ("/", &[], "four"),
        bad: ("/", &[], "fives"),
        refused: (413, ""),
        field: "",
        ways: &WITH_BODIES,
    },
    Row {
        plugin: "concurrency_limiting",
        config: "{max_concurrent: 1, limit_by: 'header:x-who', on_missing: deny}",
        good: WHO,
        bad: NOTHING,
        refused: (403, "7"),
        field: "",
        ways: &WAYS,
    },
];

#[tokio::test]
async fn every_plugin_decides_in_every_protocol() {
    let origin = Standing::start("o").await;
    let folder = crate::support::tls::authority().folder().join("admission");
    std::fs::create_dir_all(&folder).expect("a folder");
    for row in ROWS {
        let config = row.config.replace("FOLDER", &format!("{folder:?}"));
        // A plugin runs only where its `when` holds.
        let when = match row.plugin {
            "ip_restriction" | "bot_detection" => ", when: {headers: {x-bad: '1'}}",
            _ => "",
        };
        let plugin =
            format!("  - {{id: p, plugin_name: {}, scope: global, config: {config}{when}}}\n", row.plugin);
        let edge = h3::edge_with("", &spec(&origin, &plugin));
        decides(&edge, &origin, row).await;
    }
}

/// A server that answers these paths with these bodies.
fn server(pages: &[(&str, &str)]) -> Edge {
    let rules: Vec<String> =
        pages.iter().map(|(path, body)| format!("{{path: {path}, body: '{body}'}}")).collect();
    Edge::start(&format!(
        "proxies:\n  - {{id: s, listen_path: /, strip_listen_path: false, backend_host: 127.0.0.1, backend_port: 1}}\n\
         plugin_configs:\n  - {{id: m, plugin_name: response_mock, scope: proxy, proxy_id: s, config: {{rules: [{}]}}}}\n",
        rules.join(", ")
    ))
}

const KEYS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"k","alg":"ES256","use":"sig","x":"Azs8GJ-MtHWQzHCYKQ8RE-hpmzHazgXSWPld9lrdFZs","y":"TrXDadP6lk5gyK4z5WvegSHJmsBY9Rugwyt0cdtG2vg"}]}"#;
const SIGNED: &str = "Bearer eyJhbGciOiJFUzI1NiIsImtpZCI6ImsifQ.\
    eyJpc3MiOiJodHRwczovL2lzc3Vlci50ZXN0Iiwic3ViIjoiYW5uIiwiZXhwIjo0MTAyNDQ0ODAwfQ.\
    6UBMI7SJAABcATMCBQooSGihVnfS_Onup8I-IMOXM6DEgAMAYpbJOoXf68o_03Bi_kiSX17nyzUn44muATaFgg";
const EXPIRED: &str = "Bearer eyJhbGciOiJFUzI1NiIsImtpZCI6ImsifQ.\
    eyJpc3MiOiJodHRwczovL2lzc3Vlci50ZXN0Iiwic3ViIjoiYW5uIiwiZXhwIjoxMDAwMDAwMDAwfQ.\
    HhidyIkoXMsNcHKhtzFMwYHTTq7p1zgK-1GwKgf7xaOAh7cJrVFkXo-ZzfVIZH1Cnk2RB_-505EAK7NVyCzySQ";

#[tokio::test]
async fn plugins_that_ask_other_servers_decide_in_every_protocol() {
    let issuer = server(&[("/keys", KEYS), ("/introspect", r#"{"active": true, "sub": "ann"}"#)]);
    let at = issuer.http();
    let origin = Standing::start("o").await;
    let rows = [
        (
            "jwks_auth",
            format!("{{providers: [{{issuer: 'https://issuer.test', jwks_uri: 'http://{at}/keys'}}]}}"),
            ("/", &[("authorization", SIGNED)][..], ""),
            ("/", &[("authorization", EXPIRED)][..], ""),
        ),
        (
            "oauth2_introspection",
            format!(
                "{{introspection_url: 'http://{at}/introspect', client_id: edge, client_secret: s3cret}}"
            ),
            ("/", &[("authorization", "Bearer opaque")][..], ""),
            NOTHING,
        ),
    ];
    for (plugin, config, good, bad) in rows {
        let text = format!("  - {{id: p, plugin_name: {plugin}, scope: global, config: {config}}}\n");
        let edge = h3::edge_with("", &spec(&origin, &text));
        let row = Row {
            plugin: "asks another server",
            config: "",
            good,
            bad,
            refused: (401, "16"),
            field: "www-authenticate",
            ways: &WAYS,
        };
        decides(&edge, &origin, &row).await;
        // With the other server dead, what does not need it is unharmed, and what does is refused in time.
        let since = std::time::Instant::now();
        let dead = config.replace(&at.to_string(), "127.0.0.1:1");
        let text = format!(
            "  - {{id: p, plugin_name: {plugin}, scope: global, config: {dead}, when: {{path: {{prefix: /guarded}}}}}}\n"
        );
        let edge = h3::edge_with("", &spec(&origin, &text));
        for _ in 0..20 {
            assert_eq!(ask(&edge, Way::H2, "/", &[], "").await.0, 200, "{plugin}");
            let (status, _) = ask(&edge, Way::H1, "/guarded", good.1, "").await;
            assert_eq!(status, 503, "{plugin}");
        }
        assert!(since.elapsed() < std::time::Duration::from_secs(20), "{plugin}: {:?}", since.elapsed());
    }
}

#[tokio::test]
async fn what_clients_are_told_is_the_same_in_every_protocol() {
    let origin = Standing::start("o").await;
    let plugins = "  - {id: c, plugin_name: cors, scope: global, config: {allowed_origins: ['https://shop.example'], allow_credentials: true}}\n  \
        - {id: s, plugin_name: security_headers, scope: global, config: {frame_options: DENY, hsts: {}}}\n";
    let edge = h3::edge_with("", &spec(&origin, plugins));
    for way in [Way::H1, Way::H2, Way::H2Tls, Way::H3, Way::Grpc] {
        let (_, fields) = ask(&edge, way, "/", &[("origin", "https://shop.example")], "").await;
        let field = |name: &str| fields.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
        assert_eq!(field("access-control-allow-origin"), "https://shop.example", "{way:?}");
        assert_eq!(field("access-control-allow-credentials"), "true", "{way:?}");
        assert_eq!(
            (field("x-frame-options"), field("x-content-type-options")),
            ("DENY", "nosniff"),
            "{way:?}"
        );
        let is_tls = matches!(way, Way::H2Tls | Way::H3);
        assert_eq!(!field("strict-transport-security").is_empty(), is_tls, "{way:?}");
        let (_, fields) = ask(&edge, way, "/", &[("origin", "https://evil.example")], "").await;
        assert!(!fields.contains_key("access-control-allow-origin"), "{way:?}");
    }
}

#[tokio::test]
async fn responses_larger_than_they_may_be_do_not_look_whole() {
    let origin = Standing::start("o").await;
    let plugin = "  - {id: p, plugin_name: response_size_limiting, scope: global, config: {max_size: 8}}\n";
    let edge = h3::edge_with("", &spec(&origin, plugin));
    for way in WITH_BODIES {
        assert_eq!(ask(&edge, way, "/", &[], "").await.0, 502, "{way:?}");
    }
}

#[tokio::test]
async fn every_attack_by_token_is_refused() {
    let origin = Standing::start("o").await;
    let key = |pem: &str| pem.replace('\n', "\\n");
    let (rsa, ec) = (key(include_str!("admission/rsa.pem")), key(include_str!("admission/ec.pem")));
    let spec = format!(
        "proxies:\n  - {{id: a, listen_path: /, {}}}\nconsumers:\n  \
         - {{id: ann, username: ann, credentials: {{jwt_auth: 'a secret of thirty-two bytes, ok'}}}}\n  \
         - {{id: bob, username: bob, credentials: {{jwt_auth: {{public_key: \"{rsa}\"}}}}}}\n  \
         - {{id: eva, username: eva, credentials: {{jwt_auth: {{public_key: \"{ec}\"}}}}}}\nplugin_configs:\n  \
         - {{id: p, plugin_name: jwt_auth, scope: global, config: {{issuer: 'https://issuer.test', audience: shop}}}}\n",
        origin.backend()
    );
    let edge = Edge::start(&spec);
    let tokens = include_str!("admission/tokens.txt").lines().filter(|line| !line.starts_with('#'));
    let mut refused = 0;
    for (name, token) in tokens.filter_map(|line| line.split_once(' ')) {
        // The second time it might be remembered.
        for way in [Way::H1, Way::H2] {
            let authorization = format!("Bearer {token}");
            let (status, fields) = ask(&edge, way, "/", &[("authorization", &authorization)], "").await;
            let expected = if name.starts_with("good") { 200 } else { 401 };
            assert_eq!(status, expected, "{name}: {fields:?}");
            refused += usize::from(status == 401);
        }
    }
    assert_eq!((origin.served(), refused), (6, 68));
    let huge = format!("Bearer {}", "a".repeat(20_000));
    assert_eq!(ask(&edge, Way::H1, "/", &[("authorization", &huge)], "").await.0, 401);
}

#[tokio::test]
async fn wrong_logins_do_not_hold_up_other_traffic() {
    let origin = Standing::start("o").await;
    let hash = "$2b$10$abcdefghijklmnopqrstuu23JPZtHcGhwXSF41f93o/7vBdDut3Xu";
    let spec = format!(
        "proxies:\n  - {{id: a, listen_path: /, {0}}}\n  - {{id: b, listen_path: /open, {0}}}\nconsumers:\n  \
         - {{id: ann, username: ann, credentials: {{basic_auth: {{password_hash: '{hash}'}}}}}}\nplugin_configs:\n  \
         - {{id: p, plugin_name: basic_auth, scope: proxy, proxy_id: a, config: {{max_waiting_checks: 10}}}}\n",
        origin.backend()
    );
    // One worker: a check on it would hold up everything.
    let edge = Edge::start(&spec);
    let under_way = std::cell::Cell::new(300);
    let logins = (0..300).map(|n| {
        let user = if n % 2 == 0 { "Basic YW5uOndyb25n" } else { "Basic Ym9iOndyb25n" };
        let (edge, under_way) = (&edge, &under_way);
        async move {
            let status = ask(edge, Way::H1, "/", &[("authorization", user)], "").await.0;
            under_way.set(under_way.get() - 1);
            status
        }
    });
    let others = async {
        let mut beside = 0;
        // As long as passwords are checked, and never so long that a test could not end.
        while under_way.get() > 0 {
            assert_eq!(ask(&edge, Way::H1, "/open", &[], "").await.0, 200);
            beside += usize::from(under_way.get() > 0);
        }
        beside
    };
    let (statuses, beside) = tokio::join!(futures_util::future::join_all(logins), others);
    let count = |status| statuses.iter().filter(|it| **it == status).count();
    let (wrong, busy) = (count(401), count(503));
    assert_eq!(wrong + busy, 300);
    // A login can only find others waiting where the worker goes on while a password is checked: one that checked by itself would
    // have ended each check before it looked at the next.
    assert!(wrong > 0 && busy > 0, "{wrong} wrong, {busy} busy");
    assert!(beside > 0, "no other request was answered beside the checks");
}

#[tokio::test]
async fn a_slow_authorization_server_costs_its_time_and_nothing_else() {
    let server = Edge::start(
        "proxies:\n  - {id: s, listen_path: /, strip_listen_path: false, backend_host: 127.0.0.1, backend_port: 1}\nplugin_configs:\n  \
         - {id: m, plugin_name: response_mock, scope: proxy, proxy_id: s, config: {rules: [{path: /introspect, delay: 60s}]}}\n",
    );
    let origin = Standing::start("o").await;
    let plugin = format!(
        "  - {{id: p, plugin_name: oauth2_introspection, scope: global, when: {{path: {{prefix: /guarded}}}}, config: \
         {{introspection_url: 'http://{}/introspect', client_id: edge, timeout: 100ms}}}}\n",
        server.http()
    );
    let edge = h3::edge_with("", &spec(&origin, &plugin));
    let since = std::time::Instant::now();
    for n in 0..5 {
        let token = format!("Bearer t{n}");
        let fields = [("authorization", token.as_str())];
        let guarded = ask(&edge, Way::H1, "/guarded", &fields, "");
        let (guarded, open) = tokio::join!(guarded, ask(&edge, Way::H2, "/", &[], ""));
        assert_eq!((guarded.0, open.0), (503, 200));
    }
    assert!(since.elapsed() < std::time::Duration::from_secs(20), "{:?}", since.elapsed());
}
