//! `Location`, `Refresh` and cookies that name the target's own host and path.

use gateway_core::testing::{Got, Trial};
use serde_json::{Value, json};

use super::{PLUGINS, got, trial};

async fn location(replacements: Value, location: &'static str) -> String {
    let config = json!({"rules": [
        {"operation": "replace", "target": "header", "key": "location", "replacements": replacements},
    ]});
    let fields: &'static [(&'static str, &'static str)] = Box::leak(Box::new([("location", location)]));
    got(config, fields, "").await.field("location").to_owned()
}

#[tokio::test]
async fn the_first_replacement_that_matches_is_applied() {
    let list = json!([
        {"prefix": "http://app:8080/a/", "with": "/one/"},
        {"prefix": "http://app:8080/", "with": "https://${request.host}/"},
        {"equals": "/old", "with": "/new"},
        {"pattern": "^/(\\w+)/(?<id>\\d+)", "with": "/${match.id}/$${match.1}/${match.1}"},
    ]);
    for (from, to) in [
        ("http://app:8080/a/b?c=d", "/one/b?c=d"),
        ("http://app:8080/x", "https://client.test/x"),
        ("http://app:80801/x", "http://app:80801/x"),
        ("http://APP:8080/x", "http://APP:8080/x"),
        ("/old", "/new"),
        ("/old/", "/old/"),
        ("/item/12/x", "/12/${match.1}/item/x"),
    ] {
        assert_eq!(location(list.clone(), from).await, to, "{from}");
    }
}

#[tokio::test]
async fn every_match_of_a_pattern_is_replaced() {
    assert_eq!(location(json!([{"pattern": "a", "with": "bb"}]), "/a/aa").await, "/bb/bbbb");
    assert_eq!(location(json!([{"pattern": "(x)|(y)", "with": "<${match.2}>"}]), "/xy").await, "/<><y>");
}

#[tokio::test]
async fn refresh_is_rewritten_behind_its_url() {
    let config = json!({"rules": [{"operation": "replace", "target": "header", "key": "refresh",
        "replacements": [{"prefix": "http://app/", "with": "/"}]}]});
    let changed = got(config.clone(), &[("refresh", "5; URL=http://app/x")], "").await;
    assert_eq!(changed.field("refresh"), "5; URL=/x");
    let same = got(config, &[("refresh", "http://app/")], "").await;
    assert_eq!(same.field("refresh"), "http://app/");
}

#[tokio::test]
async fn only_responses_of_the_target_where_that_is_said() {
    let set = json!({"operation": "set", "target": "header", "key": "x-page", "value": "changed"});
    for (of, target, gateway) in
        [("target", "changed", ""), ("gateway", "", "changed"), ("all", "changed", "changed")]
    {
        let config = json!({"of": of, "rules": [set]});
        let answer = trial(config.clone(), 200, &[], "").get("/", &[]).await;
        assert_eq!(answer.field("x-page"), target, "{of}");
        let fault = json!({"abort": {"status_code": 418, "percentage": 100}});
        let plugins = [("response_transformer", config), ("fault_injection", fault)];
        let own = Trial::of_plugins(crate::PLUGINS, &plugins).get("/", &[]).await;
        assert_eq!((own.status, own.field("x-page")), (418, gateway), "{of}");
    }
}

#[tokio::test]
async fn a_value_that_grows_without_end_is_refused() {
    let config = json!({"rules": [{"operation": "replace", "target": "header", "key": "location",
        "replacements": [{"pattern": "a", "with": "b".repeat(8000)}]}]});
    let refused = got(config, &[("location", "/aaaaaaaaaa")], "").await;
    assert_eq!(refused.status, 502);
}

fn cookies(got: &Got) -> Vec<&str> {
    got.headers.get_all("set-cookie").iter().map(|value| value.to_str().unwrap()).collect()
}

#[tokio::test]
async fn cookies_get_domains_paths_and_flags() {
    let config = json!({"cookies": [
        {"name": "plain"},
        {"name": "sid", "secure": true, "http_only": true, "same_site": "strict"},
        {"pattern": "^open", "secure": false, "http_only": false, "same_site": "remove"},
        {
            "domains": [{"equals": "app.internal", "with": "${request.host}"}, {"pattern": "(?i)\\.lan$", "with": ".net"}],
            "paths": [{"prefix": "/app/", "with": "/"}],
            "same_site": "none",
        },
    ]});
    let fields = &[
        ("set-cookie", "plain=1; Domain=app.internal"),
        ("set-cookie", "sid=a b; path=/app/; SAMESITE=lax;secure"),
        ("set-cookie", "open1=x; Secure; HttpOnly; SameSite=Lax; Max-Age=1"),
        ("set-cookie", "c=1; domain=.APP.internal; Path=/app/x"),
        ("set-cookie", "d=1; Domain=a.LAN; Path=/appx"),
        ("set-cookie", "nothing"),
    ];
    let got = got(config, fields, "").await;
    assert_eq!(
        cookies(&got),
        [
            "plain=1; Domain=app.internal",
            "sid=a b; path=/app/; SameSite=Strict; secure; HttpOnly",
            "open1=x; Max-Age=1",
            "c=1; domain=.client.test; Path=/x; SameSite=None",
            "d=1; Domain=a.net; Path=/appx; SameSite=None",
            "nothing",
        ]
    );
}

#[tokio::test]
async fn no_value_of_a_request_adds_an_attribute() {
    let config = json!({"cookies": [{"paths": [{"prefix": "/", "with": "/${request.header.x-tenant}/"}]}]});
    let trial = trial(config, 200, &[("set-cookie", "a=b; Path=/")], "");
    let got = trial.get("/", &[("x-tenant", "t; Domain=evil.test")]).await;
    let [cookie] = cookies(&got)[..] else { panic!("{:?}", got.headers) };
    assert_eq!(cookie.matches(';').count(), 1, "{cookie}");
}

#[test]
fn settings_without_effect_are_rejected() {
    for (config, part) in [
        (json!({"rules": []}), "no rule"),
        (json!({"cookies": [{}]}), "changes nothing"),
        (json!({"cookies": [{"name": "a", "pattern": "a"}]}), "exclude"),
        (json!({"rules": [{"operation": "replace", "target": "header", "key": "location"}]}), "missing"),
        (
            json!({"rules": [{"operation": "replace", "target": "body", "key": "/a", "replacements": [{"equals": "a", "with": "b"}]}]}),
            "only header",
        ),
        (
            json!({"rules": [{"operation": "remove", "target": "header", "key": "a", "replacements": [{"equals": "a", "with": "b"}]}]}),
            "no meaning",
        ),
        (
            json!({"rules": [{"operation": "replace", "target": "header", "key": "a", "replacements": [{"with": "b"}]}]}),
            "exactly one",
        ),
        (
            json!({"rules": [{"operation": "replace", "target": "header", "key": "a", "replacements": [{"prefix": "", "with": "b"}]}]}),
            "is empty",
        ),
        (
            json!({"rules": [{"operation": "replace", "target": "header", "key": "a", "replacements": [{"pattern": "(a)", "with": "${match.2}"}]}]}),
            "no group",
        ),
        (
            json!({"rules": [{"operation": "replace", "target": "header", "key": "a", "replacements": [{"prefix": "a", "with": "${match.0}"}]}]}),
            "only `pattern`",
        ),
        (
            json!({"rules": [{"operation": "replace", "target": "header", "key": "a", "replacements": [{"pattern": "(", "with": ""}]}]}),
            "not a regex",
        ),
    ] {
        let problems = Trial::refused(PLUGINS, "response_transformer", &config).to_string();
        assert!(problems.contains(part), "{config}: {problems}");
    }
}
