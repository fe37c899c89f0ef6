//! Servers that allow, refuse, redirect, fail and say nothing.

mod grpc;
mod login;

use gateway_core::plugin::entry;
use gateway_core::testing::Trial;
use gateway_plugin_common::testing::Machine;
use gateway_plugin_common::testing::net::Served;
use serde_json::{Value, json};

use super::*;
use crate::access_control::AccessControl;
use crate::key_auth::KeyAuth;

/// A proxy with this plugin, and more plugins.
fn trial(machine: &Machine, config: &Value, more: &[(&str, Value)]) -> Trial {
    let mut all = json!({ "url": "https://auth.test/check?x=1" });
    for (name, value) in config.as_object().expect("an object") {
        all[name] = value.clone();
    }
    let mut plugins =
        vec![json!({ "id": "f", "plugin_name": "forward_auth", "proxy_id": "a", "config": all })];
    for (n, (name, config)) in more.iter().enumerate() {
        plugins
            .push(json!({ "id": format!("p{n}"), "plugin_name": name, "proxy_id": "a", "config": config }));
    }
    let spec = json!({
        "proxies": [{ "id": "a", "listen_path": "/", "strip_listen_path": false, "backend_host": "t.test", "backend_port": 80 }],
        "consumers": [{ "id": "a", "username": "alice", "credentials": { "key_auth": "k" } }],
        "plugin_configs": plugins,
    });
    let entries = [entry::<KeyAuth>(), entry::<ForwardAuth>(), entry::<AccessControl>()];
    Trial::of_spec(&entries, &spec.to_string(), &machine.world())
}

fn answering(status: u16, fields: &'static [(&'static str, &'static str)], body: &'static str) -> Machine {
    let machine = Machine::default();
    machine.net.serve(move |_| {
        let mut response = Response::builder().status(status);
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        Served::Response(response.body(body.into()).expect("a response"))
    });
    machine
}

#[tokio::test]
async fn what_the_other_server_is_asked() {
    let sent = [
        ("host", "shop.test"),
        ("cookie", "a=b"),
        ("x-a", "1"),
        ("x-forwarded-uri", "/forged"),
        ("x-original-uri", "/forged"),
        ("x-forwarded-for", "6.6.6.6"),
        ("x-real-ip", "6.6.6.6"),
        ("content-length", "4"),
    ];
    for (config, url, method, fields) in [
        (
            json!({}),
            "auth.test:443/check",
            "GET",
            json!({
                "x-forwarded-method": "POST", "x-forwarded-proto": "http", "x-forwarded-host": "shop.test",
                "x-forwarded-uri": "/a%20b?q=1", "x-forwarded-for": "192.0.2.1", "cookie": "a=b", "x-a": "1",
                "x-original-uri": "", "x-real-ip": "", "content-length": "", "host": "",
            }),
        ),
        (
            json!({ "convention": "nginx", "request_headers": ["X-A"] }),
            "auth.test:443/check",
            "GET",
            json!({
                "x-original-method": "POST", "x-original-uri": "/a%20b?q=1", "x-original-url": "http://shop.test/a%20b?q=1",
                "x-real-ip": "192.0.2.1", "x-forwarded-uri": "", "cookie": "", "x-a": "1",
            }),
        ),
        (
            json!({ "convention": "envoy" }),
            "auth.test:443/check/a%20b",
            "POST",
            json!({ "host": "shop.test", "cookie": "a=b", "x-a": "", "x-forwarded-for": "192.0.2.1" }),
        ),
        (json!({ "preserve_method": true }), "auth.test:443/check", "POST", json!({})),
        (json!({ "preserve_host": true }), "auth.test:443/check", "GET", json!({ "host": "shop.test" })),
    ] {
        let machine = answering(200, &[], "");
        let trial = trial(&machine, &config, &[]);
        assert_eq!(trial.request("POST", "/a%20b?q=1", &sent, "body").await.status, 200);
        assert_eq!(trial.asked()[0].body, "body");
        let asked = machine.net.sent().pop().expect("a question");
        assert_eq!(
            (asked.url.as_str(), asked.method.as_str(), asked.body.len()),
            (url, method, 0),
            "{config}"
        );
        for (name, value) in fields.as_object().expect("an object") {
            assert_eq!(asked.field(name), value.as_str().expect("a text"), "{name} with {config}");
        }
    }
}

/// The question is about the path that is routed and forwarded: asked about `/public/../admin`, a server may see `/public/`.
#[tokio::test]
async fn the_path_asked_about_is_the_one_that_is_forwarded() {
    for (config, field, url) in [
        (json!({}), "x-forwarded-uri", "auth.test:443/check"),
        (json!({ "convention": "nginx" }), "x-original-uri", "auth.test:443/check"),
        (json!({ "convention": "envoy" }), "", "auth.test:443/check/admin"),
    ] {
        let machine = answering(200, &[], "");
        let trial = trial(&machine, &config, &[]);
        for path in ["/public/../admin?q=/../x", "/public/%2e%2E/admin?q=/../x", "//admin?q=/../x"] {
            assert_eq!(trial.get(path, &[]).await.status, 200);
            let asked = machine.net.sent().pop().expect("a question");
            assert_eq!(asked.url, url, "{config} {path}");
            if !field.is_empty() {
                assert_eq!(asked.field(field), "/admin?q=/../x", "{config} {path}");
            }
        }
    }
}

#[tokio::test]
async fn bodies_are_sent_up_to_a_limit() {
    let machine = answering(200, &[], "");
    let config = json!({ "send_body": true, "preserve_method": true, "max_body": 5, "request_headers": [] });
    let trial = trial(&machine, &config, &[]);
    let fields = [("content-type", "text/plain")];
    assert_eq!(trial.request("POST", "/", &fields, "12345").await.status, 200);
    let asked = machine.net.sent().pop().expect("a question");
    assert_eq!((&asked.body[..], asked.field("content-type")), (&b"12345"[..], "text/plain"));
    assert_eq!(trial.asked()[0].body, "12345", "the target gets it too");
    assert_eq!(trial.request("POST", "/", &fields, "123456").await.status, 413);
    assert_eq!(trial.records().pop().and_then(|it| it.reason), Some("forward_auth_body_too_large"));
    assert_eq!(trial.asked().len(), 1);
}

#[tokio::test]
async fn what_the_answers_mean() {
    for (convention, status, expected) in [
        ("traefik", 200, 200),
        ("traefik", 204, 200),
        ("traefik", 302, 302),
        ("traefik", 401, 401),
        ("traefik", 403, 403),
        ("traefik", 404, 404),
        ("traefik", 500, 503),
        ("nginx", 201, 200),
        ("nginx", 302, 503),
        ("nginx", 401, 401),
        ("nginx", 403, 403),
        ("nginx", 404, 503),
        ("nginx", 500, 503),
        ("envoy", 200, 200),
        ("envoy", 204, 403),
        ("envoy", 302, 302),
        ("envoy", 403, 403),
        ("envoy", 503, 503),
    ] {
        let machine =
            answering(status, &[("www-authenticate", "X"), ("x-b", "1"), ("location", "/login")], "no");
        let trial = trial(&machine, &json!({ "convention": convention }), &[]);
        let got = trial.get("/", &[]).await;
        assert_eq!(got.status, expected, "{convention} {status}");
        assert_eq!(trial.asked().len(), usize::from(expected == 200), "{convention} {status}");
        match (convention, expected) {
            (_, 200) => {}
            (_, 503) => {
                let record = &trial.records()[0];
                assert_eq!(record.reason, Some("forward_auth_failed"));
                let failure = record.failure.as_deref().unwrap_or_default();
                assert!(failure.starts_with(&format!("auth.test: it answers {status}")), "{failure}");
            }
            ("nginx", _) => {
                assert_eq!((got.field("x-b"), got.text().contains("no\n")), ("", false));
                assert_eq!(got.field("www-authenticate"), if expected == 401 { "X" } else { "" });
            }
            _ => assert_eq!(
                (got.field("x-b"), got.field("location"), got.text().as_str()),
                ("1", "/login", "no")
            ),
        }
    }
}

#[tokio::test]
async fn fields_of_the_answer() {
    const FIELDS: [(&str, &str); 5] = [
        ("x-user", "ann"),
        ("x-other", "o"),
        ("set-cookie", "a=1"),
        ("set-cookie", "b=2"),
        ("x-hidden", "h"),
    ];
    let config = json!({ "response_headers": ["X-User", "X-Absent"], "client_headers": ["Set-Cookie"] });
    let machine = answering(200, &FIELDS, "");
    let open = trial(&machine, &config, &[]).answering(|_| {
        Response::builder().header("set-cookie", "t=0").body("ok".into()).expect("a response")
    });
    let got = open.get("/", &[("x-user", "root"), ("x-absent", "forged"), ("x-other", "mine")]).await;
    let asked = open.asked().pop().expect("a request");
    assert_eq!((asked.field("x-user"), asked.field("x-absent"), asked.field("x-other")), ("ann", "", "mine"));
    let cookies: Vec<_> = got.headers.get_all("set-cookie").iter().collect();
    assert_eq!(cookies, ["t=0", "a=1", "b=2"]);
    assert_eq!(got.field("x-hidden"), "");
    assert!(open.records()[0].fields.contains(&("forward_auth.status", 200_u64.into())));

    let machine = answering(403, &FIELDS, "no");
    let got = trial(&machine, &json!({ "refusal_headers": ["X-Hidden"] }), &[]).get("/", &[]).await;
    assert_eq!((got.status, got.field("x-hidden"), got.field("x-user")), (403, "h", ""));
}

#[tokio::test]
async fn an_answer_may_name_the_caller() {
    let config = json!({ "caller_header": "X-User", "groups_header": "X-Groups" });
    let staff = [("access_control", json!({ "allowed_groups": ["staff"] }))];
    for (fields, expected, caller) in [
        (&[("x-user", "ann"), ("x-groups", "a, staff")][..], 200, Some("ann")),
        (&[("x-user", "alice"), ("x-groups", "staff")], 200, Some("alice")),
        (&[("x-user", "ann"), ("x-groups", "a")], 403, Some("ann")),
        (&[("x-groups", "staff")], 401, None),
        (&[("x-user", ""), ("x-groups", "staff")], 401, None),
        (&[("x-user", "ann"), ("x-user", "bob"), ("x-groups", "staff")], 401, None),
    ] {
        let machine = answering(200, fields, "");
        let trial = trial(&machine, &config, &staff);
        assert_eq!(trial.get("/", &[("x-user", "root"), ("x-groups", "staff")]).await.status, expected);
        assert_eq!(trial.records()[0].caller.as_deref(), caller, "{fields:?}");
    }
}

/// Another plugin recognises the caller, and the other server is not asked: the client's fields are no answer.
#[tokio::test]
async fn what_clients_write_is_removed_where_nothing_is_asked() {
    let config =
        json!({ "caller_header": "X-User", "groups_header": "X-Groups", "response_headers": ["X-Role"] });
    let machine = answering(200, &[("x-user", "ann"), ("x-role", "reader")], "");
    let either = trial(&machine, &config, &[("key_auth", json!({}))]);
    let forged = [("x-user", "evil"), ("x-groups", "admin"), ("x-role", "admin"), ("x-other", "o")];
    let with_key: Vec<_> = forged.into_iter().chain([("x-api-key", "k")]).collect();
    for (sent, caller, role, asked) in [(&with_key[..], "alice", "", 0), (&forged, "ann", "reader", 1)] {
        assert_eq!(either.get("/", sent).await.status, 200);
        let got = either.asked().pop().expect("a request");
        assert_eq!(got.field("x-consumer-username"), caller);
        let fields = ["x-user", "x-groups", "x-role", "x-other"].map(|name| got.field(name));
        assert_eq!(fields, ["", "", role, "o"], "{caller}");
        assert_eq!(machine.net.sent().len(), asked, "{caller}");
    }
    let machine = answering(200, &[("x-role", "reader")], "");
    let nobody = trial(&machine, &config, &[("key_auth", json!({}))]);
    assert_eq!(nobody.get("/", &forged).await.status, 401, "an answer that names nobody");
}

/// `Keep-Alive` and what `Connection` names are about the connection to the other server.
#[tokio::test]
async fn a_refusal_says_nothing_about_the_other_servers_connection() {
    const FIELDS: [(&str, &str); 5] = [
        ("connection", "X-Hop, close"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("x-hop", "1"),
        ("x-end", "1"),
    ];
    let got = trial(&answering(403, &FIELDS, "no"), &json!({}), &[]).get("/", &[]).await;
    let fields =
        ["connection", "keep-alive", "proxy-connection", "x-hop", "x-end"].map(|name| got.field(name));
    assert_eq!((got.status, fields), (403, ["", "", "", "", "1"]));
}

#[tokio::test]
async fn it_is_asked_after_the_caller_is_known() {
    let machine = answering(200, &[], "");
    let trial = trial(&machine, &json!({ "request_headers": [] }), &[("key_auth", json!({}))]);
    assert_eq!(trial.get("/", &[]).await.status, 401);
    assert_eq!(machine.net.sent().len(), 0);
    assert_eq!(trial.get("/", &[("x-api-key", "k")]).await.status, 200);
    assert_eq!(machine.net.sent()[0].field("x-consumer-username"), "alice");
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_nothing_passes() {
    let machine = Machine::default();
    let config = json!({ "timeout": "50ms", "max_concurrent_calls": 1, "max_waiting_calls": 0, "status_on_error": 403 });
    let trial = trial(&machine, &config, &[]);
    let got = trial.get("/", &[]).await;
    let record = &trial.records()[0];
    assert_eq!((got.status, record.reason), (403, Some("forward_auth_failed")));
    assert_eq!(record.failure.as_deref(), Some("auth.test: connect_failed"));
    assert!(record.fields.contains(&("forward_auth.server", "auth.test".into())));
    machine.net.serve(|_| Served::Silent);
    let (first, second) = tokio::join!(trial.get("/", &[]), trial.get("/", &[]));
    assert_eq!((first.status, first.field("retry-after")), (403, ""));
    assert_eq!((second.status, second.field("retry-after")), (403, "1"));
    let why: Vec<_> = trial.records().into_iter().filter_map(|record| record.failure).collect();
    assert!(why.iter().any(|why| why.ends_with("within 50ms, which is what `timeout` allows")), "{why:?}");
    assert!(trial.asked().is_empty());
}

#[test]
fn settings_that_make_no_sense() {
    let with = |more: Value| {
        let mut all = json!({ "url": "https://auth.test/" });
        for (name, value) in more.as_object().expect("an object") {
            all[name] = value.clone();
        }
        all
    };
    for (config, path) in [
        (json!({}), "config.url"),
        (with(json!({ "url": "auth.test" })), "config.url"),
        (with(json!({ "convention": "kong" })), "config.convention"),
        (with(json!({ "response_headers": ["a b"] })), "config.response_headers[0]"),
        (with(json!({ "response_headers": ["Transfer-Encoding"] })), "config.response_headers[0]"),
        (with(json!({ "client_headers": ["Content-Length"] })), "config.client_headers[0]"),
        (with(json!({ "request_headers": ["", "x"] })), "config.request_headers[0]"),
        (with(json!({ "groups_header": "X-Groups" })), "config.groups_header"),
        (with(json!({ "send_body": true })), "config.send_body"),
        (with(json!({ "status_on_error": 200 })), "config.status_on_error"),
        (with(json!({ "timeout": "0ms" })), "config.timeout"),
        (with(json!({ "convention": "envoy", "preserve_query": true })), "config.preserve_query"),
        (with(json!({ "login": {} })), "config.login"),
        (with(json!({ "login": { "location": "//evil" } })), "config.login.location"),
        (with(json!({ "login": { "location": "${request.header.x}" } })), "config.login.location"),
        (with(json!({ "login": { "location": "https://${request.header.x}/" } })), "config.login.location"),
        (with(json!({ "login": { "location": "/", "statuses": [200] } })), "config.login.statuses[0]"),
        (with(json!({ "login": { "location": "/", "status_code": 301 } })), "config.login.status_code"),
        (with(json!({ "set_request_headers": { "Host": "" } })), "config.set_request_headers.Host"),
        (with(json!({ "set_request_headers": { "TE": "x" } })), "config.set_request_headers.TE"),
        (
            with(json!({ "set_request_headers": { "X-A": "${response.status}" } })),
            "config.set_request_headers.X-A",
        ),
    ] {
        let problems = Trial::refused(&[entry::<ForwardAuth>()], "forward_auth", &config);
        assert_eq!(problems.0[0].path, path, "{config}");
    }
}
