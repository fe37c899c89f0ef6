//! Which answer a request gets.

use std::time::{Duration, Instant};

use gateway_core::plugin::{Entry, entry};
use gateway_core::testing::Trial;
use serde_json::json;

use super::ResponseMock;

const PLUGINS: &[Entry] = &[entry::<ResponseMock>()];

#[tokio::test]
async fn the_first_rule_that_fits_answers() {
    let trial = Trial::new(
        PLUGINS,
        "response_mock",
        json!({"rules": [
            {"method": "post", "path": "/users", "status_code": 201, "body": "made"},
            {"path": "/users", "body": "[]", "headers": {"X-Mock": "1"}},
            {"path": "/static/*", "status_code": 204, "headers": {}},
            {"path": "~/users/[0-9]+", "status_code": 503, "body": "{}"},
        ]}),
    );
    for (method, path, status, body) in [
        ("POST", "/users", 201, "made"),
        ("GET", "/users?x=1", 200, "[]"),
        ("GET", "/static/x", 204, ""),
        ("GET", "/static", 404, "no mock fits this request\n"),
        ("GET", "/users/7", 503, "{}"),
        ("GET", "/users/7/x", 404, "no mock fits this request\n"),
        ("GET", "/Users", 404, "no mock fits this request\n"),
    ] {
        let got = trial.request(method, path, &[], "").await;
        assert_eq!((got.status, got.text().as_str()), (status, body), "{method} {path}");
    }
    assert!(trial.asked().is_empty());
    assert_eq!(trial.get("/users", &[]).await.field("x-mock"), "1");
    assert_eq!(trial.get("/users/7", &[]).await.field("content-type"), "application/json");
    let records = trial.records();
    assert!(records.iter().all(|record| record.is_error == (record.status == 404)));
}

#[tokio::test]
async fn other_requests_pass_where_wanted() {
    let rules = json!([{"path": "/a"}]);
    let trial =
        Trial::new(PLUGINS, "response_mock", json!({"rules": rules, "passthrough_on_no_match": true}));
    assert_eq!(trial.get("/b", &[]).await.text(), "ok");
    assert_eq!(trial.get("/a", &[]).await.text(), "");
}

#[tokio::test]
async fn an_answer_waits() {
    let trial = Trial::new(PLUGINS, "response_mock", json!({"rules": [{"path": "/", "delay": "30ms"}]}));
    let begun = Instant::now();
    assert_eq!(trial.get("/", &[]).await.status, 200);
    assert!(begun.elapsed() >= Duration::from_millis(30));
}

#[test]
fn settings_that_can_not_be_meant_are_refused() {
    for rule in [
        json!({"path": "users"}),
        json!({"path": "~("}),
        json!({"path": "/mk/a b"}),
        json!({"path": "/a?b=1"}),
        json!({"path": "/a/../b"}),
        json!({"path": "/%zz"}),
        json!({"path": "/", "method": "a b"}),
        json!({"path": "/", "status_code": 101}),
        json!({"path": "/", "status_code": 204, "body": "x"}),
        json!({"path": "/", "headers": {"content-length": "1"}}),
        json!({"path": "/", "headers": {"x-a": "a\nb"}}),
        json!({"path": "/", "delay": "61s"}),
    ] {
        Trial::refused(PLUGINS, "response_mock", &json!({"rules": [rule]}));
    }
    Trial::refused(PLUGINS, "response_mock", &json!({}));
    let problems = Trial::refused(PLUGINS, "response_mock", &json!({"rules": [{"path": "/mk/./a"}]}));
    assert_eq!(problems.0[0].remedy.as_deref(), Some("write `/mk/a`"));
}

#[tokio::test]
async fn paths_match_in_either_spelling() {
    for (path, asked) in [
        ("/mk/a%20%C3%A9", "/mk/a%20%c3%a9"),
        ("/mk/é", "/mk/%C3%A9"),
        ("/mk/%c3%a9", "/mk/%C3%A9"),
        ("/mk/é*", "/mk/%C3%A9x"),
        ("~/mk/[éè]+", "/mk/%C3%A8%C3%A9"),
        ("/%61", "/a"),
        ("/.well-known/*", "/.well-known/x"),
    ] {
        let rules = json!([{"path": path, "body": "here"}]);
        let trial = Trial::new(PLUGINS, "response_mock", json!({ "rules": rules }));
        assert_eq!(trial.get(asked, &[]).await.text(), "here", "{path} {asked}");
    }
}
