//! Where clients are sent, and what they can't have themselves sent to.

use gateway_core::http::exchange::ClientTls;
use gateway_core::plugin::{Entry, World, entry};
use gateway_core::testing::{Got, Trial};
use serde_json::{Value, json};

use super::Redirect;

const PLUGINS: &[Entry] = &[entry::<Redirect>()];

fn trial(config: Value) -> Trial {
    Trial::new(PLUGINS, "redirect", config)
}

async fn get(config: Value, path: &str) -> Got {
    trial(config).get(path, &[]).await
}

#[tokio::test]
async fn each_part_has_its_effect() {
    for (config, path, to) in [
        (
            json!({"location": "https://example.com${request.path}"}),
            "/a/b?c=1",
            "https://example.com/a/b?c=1",
        ),
        (json!({"location": "https://example.com"}), "/", "https://example.com/"),
        (json!({"location": "/new?x=1"}), "/old?c=1", "/new?x=1&c=1"),
        (json!({"location": "/new#top"}), "/old", "/new#top"),
        (json!({"location": "https://a.test/new#top"}), "/old?c=1", "https://a.test/new?c=1#top"),
        (json!({"location": "/new", "query": "drop"}), "/old?c=1", "/new"),
        (json!({"scheme": "https"}), "/a?b", "https://client.test/a?b"),
        (json!({"host": "www.${request.host}"}), "/a", "http://www.client.test/a"),
        (json!({"port": 8080}), "/a", "http://client.test:8080/a"),
        (json!({"scheme": "https", "port": 443}), "/a", "https://client.test/a"),
        (json!({"path": "/v2${request.path}"}), "/a?b=c", "/v2/a?b=c"),
        (json!({"path": "/v2?x=1"}), "/a?b=c", "/v2?x=1&b=c"),
        (json!({"trailing_slash": "add"}), "/a?b", "/a/?b"),
        (json!({"trailing_slash": "remove"}), "/a/?b", "/a?b"),
    ] {
        let got = get(config.clone(), path).await;
        assert_eq!((got.status, got.field("location")), (302, to), "{config}");
    }
}

#[tokio::test]
async fn a_table_redirects_its_paths_only() {
    let table = json!({"/old": "/new", "/a%20b": "https://b.test${request.path}", "/self": "/self"});
    let listed = json!({"table": table, "query": "drop"});
    for (path, to) in [("/old?x=1", "/new"), ("/a%20b", "https://b.test/a%20b")] {
        let got = get(listed.clone(), path).await;
        assert_eq!((got.status, got.field("location")), (302, to), "{path}");
    }
    for path in ["/", "/old/", "/older", "/OLD"] {
        assert_eq!(get(listed.clone(), path).await.status, 200, "{path}");
    }
    assert_eq!(get(listed, "/self").await.status, 508);
    let both = json!({"table": {"/old": "/new"}, "location": "/rest"});
    assert_eq!(get(both.clone(), "/old?x").await.field("location"), "/new?x");
    assert_eq!(get(both, "/other").await.field("location"), "/rest");
}

#[tokio::test]
async fn a_table_is_checked() {
    let many: serde_json::Map<_, _> = (0..10_001).map(|n| (format!("/{n}"), json!("/x"))).collect();
    for config in [
        json!({"table": {"old": "/new"}}),
        json!({"table": {"/old": "new"}}),
        json!({"table": {"/old": "//evil.test"}}),
        json!({"table": {"/old": "${request.header.x}"}}),
        json!({"table": {"/%41": "/x", "/A": "/y"}}),
        json!({"table": {"/old": "/new"}, "scheme": "https"}),
        json!({"table": many}),
    ] {
        Trial::refused(PLUGINS, "redirect", &config);
    }
}

#[tokio::test]
async fn each_status_is_kept_and_others_are_refused() {
    for status in [301, 302, 303, 307, 308] {
        assert_eq!(get(json!({"location": "/new", "status_code": status}), "/old").await.status, status);
    }
    for status in [200, 300, 304, 305, 404] {
        Trial::refused(PLUGINS, "redirect", &json!({"location": "/new", "status_code": status}));
    }
}

#[tokio::test]
async fn what_is_there_already_goes_on_and_a_loop_ends() {
    for config in [
        json!({"scheme": "http"}),
        json!({"host": "CLIENT.test"}),
        json!({"port": 80}),
        json!({"trailing_slash": "add"}),
        json!({"path": "/a/"}),
    ] {
        assert_eq!(get(config.clone(), "/a/").await.status, 200, "{config}");
    }
    assert_eq!(get(json!({"trailing_slash": "remove"}), "/").await.status, 200);
    for location in [
        "/a",
        "http://client.test/a",
        "http://CLIENT.test:80/a",
        "${request.scheme}://${request.authority}${request.path}",
    ] {
        let trial = trial(json!({"location": location}));
        assert_eq!(trial.get("/a", &[]).await.status, 508, "{location}");
        assert_eq!(trial.records()[0].reason, Some("redirect_loop"));
        assert!(trial.asked().is_empty());
    }
}

#[tokio::test]
async fn a_secure_client_is_not_sent_to_https_again() {
    let tls = Some(ClientTls { version: "TLSv1.3", ..ClientTls::default() });
    let secure = trial(json!({"scheme": "https"})).from_client([192, 0, 2, 7].into(), tls);
    assert_eq!(secure.get("/a", &[]).await.status, 200);
    // Only a trusted proxy is believed.
    let open = trial(json!({"scheme": "https"}));
    assert_eq!(open.get("/a", &[("x-forwarded-proto", "https")]).await.status, 302);
}

#[tokio::test]
async fn no_request_decides_the_host() {
    for path in ["//evil.test/x", "/%2F/evil.test", "/\\evil.test", "/.//evil.test"] {
        for config in
            [json!({"location": "/${request.query.none:-}${request.path}"}), json!({"scheme": "https"})]
        {
            let got = get(config, path).await;
            let to = got.field("location");
            assert!(
                matches!(got.status, 400 | 508)
                    || to.starts_with('/') && !to.starts_with("//") && !to.starts_with("/\\")
                    || to.starts_with("http://client.test/")
                    || to.starts_with("https://client.test/"),
                "{path}: {} {to}",
                got.status
            );
        }
    }
    let config = json!({"location": "https://example.com${request.query.x}/"});
    assert_eq!(get(config, "/?x=@evil.test").await.status, 400);
    let config = json!({"host": "${request.query.x}"});
    for bad in ["a/b", "u@evil.test", "a%0d%0aSet-Cookie:x", ""] {
        assert_eq!(get(config.clone(), &format!("/?x={bad}")).await.status, 400, "{bad}");
    }
    for location in ["${request.query.next}", "//evil.test", "javascript:alert(1)", "ftp://x/"] {
        Trial::refused(PLUGINS, "redirect", &json!({"location": location}));
    }
}

#[tokio::test]
async fn captures_of_the_route_are_there() {
    let spec = json!({
        "proxies": [{
            "id": "a", "matches": [{"path": "/users/{id}/{rest...}"}], "backend_host": "target.test",
            "backend_port": 80, "backend_scheme": "http",
        }],
        "plugin_configs": [{
            "id": "r", "plugin_name": "redirect", "proxy_id": "a",
            "config": {"path": "/people/${capture.rest}/${capture.id}"},
        }],
    });
    let trial = Trial::of_spec(PLUGINS, &spec.to_string(), &World::default());
    let got = trial.get("/users/7/x/y", &[]).await;
    assert_eq!(got.field("location"), "/people/x/y/7");
}

#[test]
fn settings_that_say_nothing_or_two_things_are_refused() {
    for config in [
        json!({}),
        json!({"location": "/a", "scheme": "https"}),
        json!({"path": "a"}),
        json!({"port": 0}),
        json!({"host": "${no.such}"}),
        json!({"scheme": "ftp"}),
    ] {
        Trial::refused(PLUGINS, "redirect", &config);
    }
}
