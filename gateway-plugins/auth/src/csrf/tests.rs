//! What passes, what is refused, and that each option does something.

use gateway_core::plugin::entry;
use gateway_core::testing::Trial;
use gateway_plugin_common::testing::metric;
use serde_json::{Value, json};

use super::*;

const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn trial(config: Value) -> Trial {
    Trial::new(&[entry::<Csrf>()], "csrf", config)
}

fn with(mut more: Value) -> Value {
    more["secret"] = SECRET.into();
    more
}

/// The token that a GET sets.
async fn token(trial: &Trial, name: &str) -> String {
    let got = trial.get("/", &[]).await;
    let cookie = got.field("set-cookie");
    let value = cookie.strip_prefix(&format!("{name}=")).unwrap_or_else(|| panic!("{cookie}"));
    value.split(';').next().unwrap().to_owned()
}

async fn post(trial: &Trial, fields: &[(&str, &str)]) -> (u16, Option<&'static str>) {
    let status = trial.request("POST", "/", fields, "").await.status;
    (status, trial.records().pop().unwrap().reason)
}

#[tokio::test]
async fn a_page_sends_its_token_back() {
    let trial = trial(with(json!({})));
    let token = token(&trial, "csrf_token").await;
    let cookie = format!("a=1; csrf_token={token}");
    assert_eq!(post(&trial, &[("cookie", &cookie), ("x-csrf-token", &token)]).await, (200, None));
    assert_eq!(post(&trial, &[("cookie", &cookie)]).await, (403, Some("csrf_token_missing")));
    assert_eq!(post(&trial, &[("x-csrf-token", &token)]).await, (403, Some("csrf_token_missing")));
    let wrong = post(&trial, &[("cookie", &cookie), ("x-csrf-token", &format!("{token}x"))]).await;
    assert_eq!(wrong, (403, Some("csrf_token_invalid")));
    let forged = [("cookie", "csrf_token=abc"), ("x-csrf-token", "abc")];
    assert_eq!(post(&trial, &forged).await, (403, Some("csrf_token_invalid")), "a token of one's own making");
    let got = trial.get("/", &[("cookie", &cookie)]).await;
    assert_eq!(got.field("set-cookie"), "", "a good token is kept");
    let got = trial.get("/", &[("cookie", "csrf_token=abc")]).await;
    assert!(got.field("set-cookie").starts_with("csrf_token="), "a bad one is replaced");
}

#[tokio::test]
async fn cookies_are_as_configured() {
    let got = trial(with(json!({}))).get("/", &[]).await;
    assert!(got.field("set-cookie").ends_with("; Path=/; Max-Age=43200; SameSite=Lax; Secure"));
    let config = with(json!({
        "cookie_name": "t", "cookie_domain": "example.com", "cookie_path": "/app", "cookie_secure": false,
        "cookie_same_site": "strict", "ttl": "5m", "header_name": "x-t",
    }));
    let trial = trial(config);
    let got = trial.get("/", &[]).await;
    assert!(
        got.field("set-cookie").ends_with("; Path=/app; Domain=example.com; Max-Age=300; SameSite=Strict")
    );
    let token = token(&trial, "t").await;
    assert_eq!(post(&trial, &[("cookie", &format!("t={token}")), ("x-t", &token)]).await.0, 200);
}

#[tokio::test]
async fn requests_of_other_sites_are_refused() {
    let config =
        json!({ "token": false, "trusted_origins": ["https://app.example", "https://*.example.org"] });
    let trial = trial(config);
    for (fields, status) in [
        (vec![("sec-fetch-site", "same-origin")], 200),
        (vec![("sec-fetch-site", "none")], 200),
        (vec![("sec-fetch-site", "same-site")], 403),
        (vec![("sec-fetch-site", "cross-site")], 403),
        (vec![("sec-fetch-site", "nonsense")], 403),
        (vec![("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")], 403),
        (vec![("sec-fetch-site", "cross-site"), ("origin", "https://app.example")], 200),
        (vec![("sec-fetch-site", "cross-site"), ("origin", "https://evil.test")], 403),
        (vec![("origin", "https://client.test")], 200),
        (vec![("origin", "https://a.example.org")], 200),
        (vec![("origin", "https://evil.test")], 403),
        (vec![("origin", "null")], 403),
        (vec![("origin", "https://client.test"), ("origin", "https://evil.test")], 403),
        (vec![("referer", "https://client.test/page?x")], 200),
        (vec![("referer", "https://app.example/")], 200),
        (vec![("referer", "https://evil.test/https://client.test/")], 403),
        (vec![], 403),
    ] {
        assert_eq!(post(&trial, &fields).await.0, status, "{fields:?}");
    }
    assert_eq!(trial.records().pop().unwrap().reason, Some("csrf_cross_origin"));
    assert_eq!(trial.get("/", &[("sec-fetch-site", "cross-site")]).await.status, 200, "reading is safe");
}

/// Anybody on the network can make a page that came without TLS.
#[tokio::test]
async fn pages_without_tls_are_another_site_than_those_with() {
    let trial = trial(json!({ "token": false })).from_trusted_proxy();
    for (scheme, origin, status) in [
        ("https", "https://client.test", 200),
        ("https", "http://client.test", 403),
        ("https", "http://client.test:443", 403),
        ("http", "http://client.test", 200),
        ("http", "https://client.test", 200),
    ] {
        for field in [("origin", origin.to_owned()), ("referer", format!("{origin}/page"))] {
            let fields = [("x-forwarded-proto", scheme), (field.0, field.1.as_str())];
            assert_eq!(post(&trial, &fields).await.0, status, "{scheme} {field:?}");
        }
    }
}

#[tokio::test]
async fn what_may_be_relaxed() {
    let lax = trial(json!({ "token": false, "allow_same_site": true, "allow_without_origin": true }));
    assert_eq!(post(&lax, &[("sec-fetch-site", "same-site")]).await.0, 200);
    assert_eq!(post(&lax, &[]).await.0, 200);
    let strict = trial(with(json!({ "allow_without_origin": false })));
    assert_eq!(post(&strict, &[]).await.1, Some("csrf_cross_origin"));
    let no_origin = trial(with(json!({ "origin": false })));
    let token = token(&no_origin, "csrf_token").await;
    let fields = [
        ("cookie", &*format!("csrf_token={token}")),
        ("x-csrf-token", &token),
        ("origin", "https://evil.test"),
    ];
    assert_eq!(post(&no_origin, &fields).await.0, 200);
    let methods = trial(json!({ "token": false, "safe_methods": ["GET", "REPORT"] }));
    assert_eq!(methods.request("REPORT", "/", &[], "").await.status, 200);
    assert_eq!(methods.request("OPTIONS", "/", &[], "").await.status, 403);
}

#[tokio::test]
async fn websockets_are_checked_by_origin() {
    let upgrade = |origin| {
        http::Request::get("/")
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("origin", origin)
            .body(Body::empty())
            .unwrap()
    };
    let exchange = |origin| {
        let client = gateway_core::http::exchange::Client::new(
            ([192, 0, 2, 1], 1).into(),
            ([127, 0, 0, 1], 80).into(),
            false,
            None,
        );
        let mut exchange = Exchange::new(upgrade(origin), Arc::new(client));
        exchange.request.headers.insert("host", HeaderValue::from_static("client.test"));
        exchange.dialect = Dialect::Upgrade;
        exchange
    };
    let config = serde_json::from_value(with(json!({}))).unwrap();
    let plugin = Csrf::build(config, &World::default()).unwrap_or_else(|problems| panic!("{problems}"));
    let origins = plugin.origins.as_ref().unwrap();
    assert!(
        origins.admit(&exchange("https://client.test")) && !origins.admit(&exchange("https://evil.test"))
    );
}

#[tokio::test]
async fn forms_may_carry_the_token() {
    let trial = trial(with(json!({ "form_field": "_csrf", "max_form": 200 })));
    let token = token(&trial, "csrf_token").await;
    let cookie = format!("csrf_token={token}");
    let form = [("cookie", &*cookie), ("content-type", "application/x-www-form-urlencoded; charset=utf-8")];
    let good = format!("a=1&_csrf={token}&b=2");
    assert_eq!(trial.request("POST", "/", &form, good.clone()).await.status, 200);
    assert_eq!(trial.asked().pop().unwrap().body, good, "the target gets the form as it was");
    assert_eq!(trial.request("POST", "/", &form, "a=1").await.status, 403);
    let large = format!("{good}&c={}", "x".repeat(200));
    assert_eq!(trial.request("POST", "/", &form, large).await.status, 403);
    assert_eq!(trial.records().pop().unwrap().reason, Some("csrf_form_too_large"));
    let other = [("cookie", &*cookie), ("content-type", "text/plain")];
    assert_eq!(trial.request("POST", "/", &other, good.clone()).await.status, 403, "only forms are read");
    let plain = self::trial(with(json!({})));
    assert_eq!(plain.request("POST", "/", &form, good).await.status, 403, "not without `form_field`");
}

#[tokio::test]
async fn tokens_are_bound() {
    let trial = trial(with(json!({ "bind_to": "${request.cookie.session}" })));
    let got = trial.get("/", &[("cookie", "session=alice")]).await;
    let token = got.field("set-cookie").split(['=', ';']).nth(1).unwrap().to_owned();
    for (session, status) in [("alice", 200), ("mallory", 403)] {
        let cookie = format!("session={session}; csrf_token={token}");
        assert_eq!(
            post(&trial, &[("cookie", &cookie), ("x-csrf-token", &token)]).await.0,
            status,
            "{session}"
        );
    }
}

#[tokio::test]
async fn secrets_rotate_without_refusals() {
    let token = token(&trial(with(json!({}))), "csrf_token").await;
    let cookie = format!("csrf_token={token}");
    let fields = [("cookie", &*cookie), ("x-csrf-token", &*token)];
    let new = json!({ "secret": "another secret of thirty-two bytes", "previous_secret": SECRET });
    let after = trial(new);
    assert_eq!(post(&after, &fields).await.0, 200);
    assert_ne!(after.get("/", &fields).await.field("set-cookie"), "");
    let without = trial(json!({ "secret": "another secret of thirty-two bytes" }));
    assert_eq!(post(&without, &fields).await.0, 403);
}

#[tokio::test]
async fn a_dry_run_refuses_nothing() {
    let world = World::default();
    let spec = json!({
        "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "t.test", "backend_port": 80 }],
        "plugin_configs": [{ "id": "b", "plugin_name": "csrf", "proxy_id": "a",
                             "config": with(json!({ "dry_run": true })) }],
    });
    let trial = Trial::of_spec(&[entry::<Csrf>()], &spec.to_string(), &world);
    assert_eq!(post(&trial, &[]).await, (200, None));
    assert_eq!(trial.records()[0].fields, [("csrf.would_refuse", "csrf_token_missing".into())]);
    assert_eq!(metric(&world, REQUESTS.name, &["would_refuse"]), 1);
}

#[test]
fn bad_settings_are_refused() {
    for (config, path) in [
        (json!({}), "config.secret"),
        (json!({ "secret": "short" }), "config.secret"),
        (with(json!({ "previous_secret": "short" })), "config.previous_secret"),
        (json!({ "token": false, "origin": false }), "config"),
        (json!({ "token": false, "bind_to": "${request.cookie.s}" }), "config.bind_to"),
        (
            with(json!({ "origin": false, "trusted_origins": ["https://a.example"] })),
            "config.trusted_origins",
        ),
        (with(json!({ "trusted_origins": ["a.example"] })), "config.trusted_origins[0]"),
        (with(json!({ "trusted_origins": ["null"] })), "config.trusted_origins[0]"),
        (with(json!({ "safe_methods": ["GET", "POST"] })), "config.safe_methods[1]"),
        (with(json!({ "cookie_name": "a b" })), "config.cookie_name"),
        (with(json!({ "cookie_name": "__Host-t", "cookie_domain": "a.example" })), "config.cookie_name"),
        (with(json!({ "cookie_same_site": "none", "cookie_secure": false })), "config.cookie_same_site"),
        (with(json!({ "cookie_path": "/; Domain=evil" })), "config.cookie_path"),
        (with(json!({ "header_name": "a b" })), "config.header_name"),
        (with(json!({ "bind_to": "${nothing}" })), "config.bind_to"),
        (with(json!({ "ttl": 1 })), "config.ttl"),
        (with(json!({ "max_form": 0 })), "config.max_form"),
    ] {
        let problems = Trial::refused(&[entry::<Csrf>()], "csrf", &config);
        assert_eq!(problems.0[0].path, path, "{problems}");
        assert!(!problems.to_string().contains(SECRET));
    }
}
