//! Preflights, marks, and what is refused.

use gateway_core::plugin::entry;
use gateway_core::testing::{Got, Trial};
use serde_json::{Value, json};

use super::*;

fn trial(config: Value) -> Trial {
    Trial::new(&[entry::<Cors>()], "cors", config)
}

const SITE: &str = "https://a.example";

async fn preflight(trial: &Trial, origin: &str, method: &str, headers: &str) -> Got {
    let mut fields = vec![("origin", origin), ("access-control-request-method", method)];
    if !headers.is_empty() {
        fields.push(("access-control-request-headers", headers));
    }
    trial.request("OPTIONS", "/", &fields, "").await
}

#[tokio::test]
async fn preflights_are_answered_here() {
    let trial = trial(json!({
        "allowed_origins": [SITE], "allowed_methods": ["PUT"], "allowed_headers": ["X-A", "X-B"], "max_age": "1m",
    }));
    let got = preflight(&trial, SITE, "PUT", "x-a,X-B").await;
    assert_eq!((got.status, trial.asked().len()), (204, 0));
    assert_eq!(got.field("access-control-allow-origin"), SITE);
    assert_eq!(got.field("access-control-allow-methods"), "PUT");
    assert_eq!(got.field("access-control-allow-headers"), "x-a, x-b");
    assert_eq!(got.field("access-control-max-age"), "60");
    assert!(!got.headers.contains_key("access-control-allow-credentials"));
    let vary: Vec<_> = got.headers.get_all("vary").iter().collect();
    assert_eq!(vary.len(), 2, "{vary:?}");
    for (origin, method, headers, reason) in [
        ("https://b.example", "PUT", "", "cors_origin"),
        (SITE, "POST", "", "cors_method"),
        (SITE, "put", "", "cors_method"),
        (SITE, "PUT", "x-c", "cors_header"),
        (SITE, "PUT", "a b", "cors_header"),
    ] {
        assert_eq!(preflight(&trial, origin, method, headers).await.status, 403, "{reason}");
        assert_eq!(trial.records().last().unwrap().reason, Some(reason));
    }
    let plain = trial.request("OPTIONS", "/", &[("origin", SITE)], "").await;
    assert_eq!((plain.status, trial.asked().len()), (200, 1), "an OPTIONS that is no preflight goes on");
}

#[tokio::test]
async fn responses_are_marked_for_allowed_origins_only() {
    let trial =
        trial(json!({ "allowed_origins": [SITE, "https://*.b.example"], "exposed_headers": ["X-A"] }))
            .answering(|_| {
                Response::builder()
                    .header("access-control-allow-origin", "*")
                    .header("access-control-allow-credentials", "true")
                    .header("vary", "Accept")
                    .body("ok".into())
                    .unwrap()
            });
    for (origin, allowed) in
        [(SITE, true), ("https://x.b.example", true), ("https://c.example", false), ("null", false)]
    {
        let got = trial.get("/", &[("origin", origin)]).await;
        assert_eq!(got.status, 200);
        assert_eq!(got.field("access-control-allow-origin"), if allowed { origin } else { "" });
        assert_eq!(got.field("access-control-expose-headers"), if allowed { "X-A" } else { "" });
        assert!(!got.headers.contains_key("access-control-allow-credentials"));
        assert_eq!(got.headers.get_all("vary").iter().count(), 2);
    }
    let none = trial.get("/", &[]).await;
    assert!(
        none.headers.get_all("vary").iter().any(|vary| vary == "Origin"),
        "caches must know, also without"
    );
    let two = trial.get("/", &[("origin", SITE), ("origin", "https://c.example")]).await;
    assert!(!two.headers.contains_key("access-control-allow-origin"));
}

#[tokio::test]
async fn everybody_and_credentials() {
    let any = trial(json!({}));
    let got = any.get("/", &[("origin", SITE)]).await;
    assert_eq!((got.field("access-control-allow-origin"), got.field("vary")), ("*", ""));
    let with = trial(json!({ "allowed_origins": [SITE], "allow_credentials": true }));
    let got = with.get("/", &[("origin", SITE)]).await;
    assert_eq!(got.field("access-control-allow-credentials"), "true");
    let any_header = trial(json!({ "allowed_headers": ["*"] }));
    assert_eq!(
        preflight(&any_header, SITE, "GET", "x-1, x-2").await.field("access-control-allow-headers"),
        "x-1, x-2"
    );
    assert_eq!(preflight(&any_header, SITE, "GET", "a b").await.status, 403);
}

#[tokio::test]
async fn private_networks_and_preflights_of_the_target() {
    let ask = async |config: Value| {
        let fields = [
            ("origin", SITE),
            ("access-control-request-method", "GET"),
            ("access-control-request-private-network", "true"),
        ];
        let trial = trial(config);
        (trial.request("OPTIONS", "/", &fields, "").await, trial.asked().len())
    };
    assert!(!ask(json!({})).await.0.headers.contains_key("access-control-allow-private-network"));
    let (got, _) = ask(json!({ "allow_private_network": true })).await;
    assert_eq!(got.field("access-control-allow-private-network"), "true");
    let (got, asked) = ask(json!({ "preflight_continue": true })).await;
    assert_eq!((got.status, asked, got.field("access-control-allow-origin")), (200, 1, "*"));
}

#[test]
fn what_opens_too_much_or_can_never_match_is_refused() {
    for (config, path) in [
        (json!({ "allow_credentials": true }), "config.allowed_origins[0]"),
        (
            json!({ "allow_credentials": true, "allowed_origins": [SITE], "allowed_headers": ["*"] }),
            "config.allowed_headers[0]",
        ),
        (
            json!({ "allow_credentials": true, "allowed_origins": [SITE], "exposed_headers": ["*"] }),
            "config.exposed_headers[0]",
        ),
        (json!({ "allowed_origins": [SITE, "*"] }), "config.allowed_origins[1]"),
        (json!({ "allowed_origins": ["a.example"] }), "config.allowed_origins[0]"),
        (json!({ "allowed_origins": [] }), "config.allowed_origins"),
        (json!({ "allowed_methods": ["*"] }), "config.allowed_methods[0]"),
        (json!({ "allowed_methods": ["G T"] }), "config.allowed_methods[0]"),
        (json!({ "allowed_headers": ["a b"] }), "config.allowed_headers[0]"),
        (json!({ "exposed_headers": ["a\nb"] }), "config.exposed_headers[0]"),
    ] {
        let problems = Trial::refused(&[entry::<Cors>()], "cors", &config);
        assert_eq!(problems.0[0].path, path, "{config}: {problems}");
    }
}
