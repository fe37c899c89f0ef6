//! Servers that speak Envoy's protocol over gRPC.

use std::collections::HashMap;

use bytes::BufMut as _;
use gateway_plugin_common::envoy::{BoolValue, HeaderValueOption, HttpStatus};
use prost::Message as _;

use super::*;
use crate::forward_auth::grpc::{
    Allowed, CheckRequest, CheckResponse, CheckResult, Denied, PATH, QueryParameter, Status,
};

/// What a server was asked.
fn check_request(sent: &gateway_plugin_common::testing::net::Sent) -> CheckRequest {
    assert_eq!(
        (sent.method.as_str(), sent.field("content-type"), sent.field("te")),
        ("POST", "application/grpc", "trailers")
    );
    assert_eq!(sent.url, format!("authz.test:50051{PATH}"));
    CheckRequest::decode(&sent.body[5..]).unwrap()
}

fn framed(response: &CheckResponse) -> Vec<u8> {
    let message = response.encode_to_vec();
    let mut bytes = vec![0];
    bytes.put_u32(u32::try_from(message.len()).unwrap());
    bytes.extend(message);
    bytes
}

fn served(bytes: Vec<u8>, status: &'static str) -> Served {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(status));
    Served::Response(Response::new(Body::full_with_trailers(bytes, trailers)))
}

/// A server that says this.
fn saying(code: i32, said: Option<CheckResult>) -> Machine {
    let machine = Machine::default();
    let response = CheckResponse { status: Some(Status { code }), said };
    machine.net.serve(move |_| served(framed(&response), "0"));
    machine
}

fn grpc(machine: &Machine, config: Value) -> Trial {
    let mut all = json!({ "url": "http://authz.test:50051", "convention": "envoy_grpc" });
    for (name, value) in config.as_object().unwrap() {
        all[name] = value.clone();
    }
    trial(machine, &all, &[])
}

fn set(name: &str, value: &str, append: Option<bool>) -> HeaderValueOption {
    HeaderValueOption {
        header: Some(gateway_plugin_common::envoy::field(name, value.as_bytes())),
        append: append.map(|value| BoolValue { value }),
        append_action: 0,
        keep_empty_value: false,
    }
}

#[tokio::test]
async fn the_question_has_all_of_the_request() {
    let machine = saying(0, None);
    let config = json!({ "send_body": true, "context_extensions": { "tenant": "a" } });
    let trial = grpc(&machine, config);
    let fields = [("host", "shop.test"), ("cookie", "a=b"), ("x-a", "1"), ("x-a", "2")];
    assert_eq!(trial.request("POST", "/a%20b?q=1", &fields, "ten").await.status, 200);
    assert_eq!(trial.asked()[0].body, "ten", "the target gets the body all the same");
    let sent = machine.net.sent();
    assert_eq!(sent[0].field("grpc-timeout"), "5000m");
    let attributes = check_request(&sent[0]).attributes.unwrap();
    let about = attributes.request.unwrap();
    assert!(about.time.unwrap().seconds > 1_700_000_000);
    let http = about.http.unwrap();
    let texts =
        [&http.method, &http.path, &http.host, &http.scheme, &http.protocol, &http.body].map(String::as_str);
    assert_eq!(texts, ["POST", "/a%20b?q=1", "shop.test", "http", "HTTP/1.1", "ten"]);
    assert_eq!((http.size, http.raw_body.len()), (3, 0));
    for (name, value) in
        [("cookie", "a=b"), ("x-a", "1,2"), (":path", "/a%20b?q=1"), (":authority", "shop.test")]
    {
        assert_eq!(http.headers.get(name).map(String::as_str), Some(value), "{name}");
    }
    let source = attributes.source.unwrap().address.unwrap().socket_address.unwrap();
    assert_eq!((source.address.as_str(), source.port), ("192.0.2.1", 4000));
    let here = attributes.destination.unwrap().address.unwrap().socket_address.unwrap();
    assert_eq!((here.address.as_str(), here.port), ("127.0.0.1", 8000));
    assert_eq!(attributes.context_extensions, HashMap::from([("tenant".to_owned(), "a".to_owned())]));
}

#[tokio::test]
async fn what_is_told_has_limits() {
    let machine = saying(0, None);
    let few = grpc(&machine, json!({ "request_headers": ["X-A"] }));
    few.request("POST", "/", &[("x-a", "1"), ("x-b", "2")], "body").await;
    let http = check_request(&machine.net.sent()[0]).attributes.unwrap().request.unwrap().http.unwrap();
    assert_eq!((http.headers.contains_key("x-a"), http.headers.contains_key("x-b")), (true, false));
    assert_eq!(http.body, "", "no body where none is asked for");
    let strict = grpc(&machine, json!({ "send_body": true, "max_body": 4 }));
    assert_eq!(strict.request("POST", "/", &[], "12345").await.status, 413);
    let partial = json!({ "send_body": true, "max_body": 4, "allow_partial_body": true });
    let partial = grpc(&machine, partial);
    assert_eq!(partial.request("POST", "/", &[], &b"\xff2345"[..]).await.status, 200);
    let http =
        check_request(machine.net.sent().last().unwrap()).attributes.unwrap().request.unwrap().http.unwrap();
    assert_eq!((&http.raw_body[..], http.body.as_str(), http.size), (&b"\xff234"[..], "", 5));
    assert_eq!(&partial.asked()[0].body[..], b"\xff2345");
}

#[tokio::test]
async fn an_allowed_request_is_changed_as_the_answer_says() {
    let allowed = Allowed {
        headers: vec![
            set("x-user", "ann", None),
            set("x-a", "2", Some(true)),
            set("host", "evil.test", None),
        ],
        headers_to_remove: vec!["authorization".into(), "content-length".into()],
        response_headers_to_add: vec![set("x-r", "1", Some(true)), set("x-origin", "gateway", None)],
        query_parameters_to_set: vec![QueryParameter { key: "user".into(), value: "a&b".into() }],
        query_parameters_to_remove: vec!["token".into()],
    };
    let machine = saying(0, Some(CheckResult::Allowed(allowed)));
    let trial = grpc(&machine, json!({})).answering(|_| {
        let response = Response::builder().header("x-r", "0").header("x-origin", "target");
        response.body("ok".into()).unwrap()
    });
    let fields = [("x-user", "forged"), ("x-a", "1"), ("authorization", "secret")];
    let got = trial.get("/p?token=t&b=1", &fields).await;
    assert_eq!(got.status, 200);
    let asked = &trial.asked()[0];
    assert_eq!(
        (asked.field("x-user"), asked.field("authorization"), asked.field("host")),
        ("ann", "", "t.test")
    );
    assert_eq!(asked.headers.get_all("x-a").iter().collect::<Vec<_>>(), ["1", "2"]);
    assert_eq!(asked.path, "/p?b=1&user=a%26b");
    assert_eq!(got.headers.get_all("x-r").iter().collect::<Vec<_>>(), ["0", "1"]);
    assert_eq!(got.field("x-origin"), "gateway");
}

#[tokio::test]
async fn a_refusal_is_the_other_servers() {
    let denied = |code, body: &str| {
        let status = (code > 0).then_some(HttpStatus { code });
        let headers = vec![set("location", "/login", None), set("transfer-encoding", "chunked", None)];
        Some(CheckResult::Denied(Denied { status, headers, body: body.into() }))
    };
    for (code, said, status, body, location) in [
        (16, denied(302, ""), 302, "", "/login"),
        (7, denied(418, "no"), 418, "no", "/login"),
        (7, denied(0, "no"), 403, "no", "/login"),
        (7, denied(200, "fine"), 403, "fine", "/login"),
    ] {
        let trial = grpc(&saying(code, said), json!({}));
        let got = trial.get("/", &[]).await;
        assert_eq!((got.status, got.text().as_str(), got.field("location")), (status, body, location));
        assert_eq!(got.headers.get("transfer-encoding"), None);
        assert_eq!(trial.records()[0].reason, Some("forward_auth_refused"));
    }
    for said in [None, Some(CheckResult::Allowed(Allowed::default()))] {
        assert_eq!(grpc(&saying(7, said), json!({})).get("/", &[]).await.status, 403, "the status decides");
    }
    let trial = grpc(&saying(16, denied(401, "who are you?")), json!({}));
    let call = trial.request("POST", "/s.S/M", &[("content-type", "application/grpc")], "").await;
    assert_eq!(
        (call.status, call.field("grpc-status"), call.field("grpc-message")),
        (200, "16", "who are you?")
    );
    assert!(trial.asked().is_empty());
}

/// Logins set several cookies at once.
#[tokio::test]
async fn all_cookies_of_an_answer_count() {
    let cookies =
        || vec![set("set-cookie", "a=1", None), set("Set-Cookie", "b=2", None), set("x-a", "1", Some(false))];
    let status = || Some(HttpStatus { code: 302 });
    let denied = Denied { status: status(), headers: cookies(), body: String::new() };
    let got = grpc(&saying(16, Some(CheckResult::Denied(denied))), json!({})).get("/", &[]).await;
    assert_eq!(got.headers.get_all("set-cookie").iter().collect::<Vec<_>>(), ["a=1", "b=2"]);
    let mut last = set("x-a", "2", None);
    last.append_action = 2;
    let denied = Denied { status: status(), headers: vec![set("x-a", "1", None), last], body: String::new() };
    let got = grpc(&saying(16, Some(CheckResult::Denied(denied))), json!({})).get("/", &[]).await;
    assert_eq!(got.headers.get_all("x-a").iter().collect::<Vec<_>>(), ["2"], "one that overwrites does");
    let allowed = Allowed { response_headers_to_add: cookies(), ..Allowed::default() };
    let trial = grpc(&saying(0, Some(CheckResult::Allowed(allowed))), json!({})).answering(|_| {
        Response::builder().header("set-cookie", "t=0").header("x-a", "0").body("ok".into()).unwrap()
    });
    let got = trial.get("/", &[]).await;
    assert_eq!(got.headers.get_all("set-cookie").iter().collect::<Vec<_>>(), ["t=0", "a=1", "b=2"]);
    assert_eq!(got.headers.get_all("x-a").iter().collect::<Vec<_>>(), ["1"], "another field is the answer's");
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_nothing_passes_unless_it_may() {
    let bad_status = CheckResponse {
        status: Some(Status { code: 7 }),
        said: Some(CheckResult::Denied(Denied {
            status: Some(HttpStatus { code: 99 }),
            ..Denied::default()
        })),
    };
    let yes_and_no = CheckResponse {
        status: Some(Status { code: 0 }),
        said: Some(CheckResult::Denied(Denied::default())),
    };
    let bad_field = Allowed { headers: vec![set("x-a", "1\n2", None)], ..Allowed::default() };
    let bad_field = CheckResponse { status: None, said: Some(CheckResult::Allowed(bad_field)) };
    let ok = framed(&CheckResponse { status: Some(Status { code: 0 }), said: None });
    let cases: Vec<Box<dyn Fn() -> Served + Send + Sync>> = vec![
        Box::new(|| Served::Away),
        Box::new(|| Served::Silent),
        Box::new(move || served(framed(&bad_status), "0")),
        Box::new(move || served(framed(&yes_and_no), "0")),
        Box::new(move || served(framed(&bad_field), "0")),
        Box::new({
            let ok = ok.clone();
            move || served(ok.clone(), "14")
        }),
        Box::new({
            let ok = ok.clone();
            move || Served::Response(Response::new(Body::full(ok.clone())))
        }),
        Box::new({
            let ok = ok.clone();
            move || served(ok[..ok.len() - 1].to_vec(), "0")
        }),
        Box::new({
            let mut compressed = ok.clone();
            compressed[0] = 1;
            move || served(compressed.clone(), "0")
        }),
        Box::new(|| served(Vec::new(), "0")),
        Box::new(|| Served::Response(Response::builder().status(404).body(Body::empty()).unwrap())),
    ];
    for (n, case) in cases.into_iter().enumerate() {
        let machine = Machine::default();
        machine.net.serve(move |_| case());
        let strict = grpc(&machine, json!({ "status_on_error": 500 }));
        let got = strict.get("/", &[]).await;
        assert_eq!((got.status, strict.records()[0].reason), (500, Some("forward_auth_failed")), "{n}");
        let lax = grpc(&machine, json!({ "failure_mode_allow": true }));
        assert_eq!(lax.get("/", &[]).await.status, 200, "{n}");
    }
}

#[tokio::test]
async fn failures_may_pass_with_the_other_conventions_too() {
    let machine = Machine::default();
    let world = machine.world();
    let spec = json!({
        "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "t.test", "backend_port": 80 }],
        "plugin_configs": [{ "id": "f", "plugin_name": "forward_auth", "proxy_id": "a",
            "config": { "url": "http://a.test", "failure_mode_allow": true } }],
    });
    let trial = Trial::of_spec(&[entry::<ForwardAuth>()], &spec.to_string(), &world);
    assert_eq!(trial.get("/", &[]).await.status, 200);
    for result in ["failed", "allowed"] {
        assert_eq!(gateway_plugin_common::testing::metric(&world, REQUESTS.name, &[result]), 1, "{result}");
    }
}

#[tokio::test]
async fn the_answer_may_name_the_caller() {
    let allowed = Allowed { headers: vec![set("x-user", "alice", None)], ..Allowed::default() };
    let trial = grpc(&saying(0, Some(CheckResult::Allowed(allowed))), json!({ "caller_header": "X-User" }));
    assert_eq!(trial.get("/", &[]).await.status, 200);
    assert_eq!(trial.records()[0].caller.as_deref(), Some("alice"));
    let nobody = grpc(&saying(0, None), json!({ "caller_header": "X-User" }));
    assert_eq!(nobody.get("/", &[("x-user", "alice")]).await.status, 401);
}

#[test]
fn what_does_not_go_together_is_refused() {
    for (config, path) in [
        (json!({ "url": "http://a/check" }), "config.url"),
        (json!({ "response_headers": ["x-a"] }), "config.response_headers"),
        (json!({ "client_headers": ["x-a"] }), "config.client_headers"),
        (json!({ "refusal_headers": [] }), "config.refusal_headers"),
        (json!({ "preserve_method": true }), "config.preserve_method"),
        (json!({ "preserve_host": true }), "config.preserve_host"),
        (json!({ "allow_partial_body": true }), "config.allow_partial_body"),
        (json!({ "failure_mode_allow": true, "caller_header": "x-a" }), "config.failure_mode_allow"),
        (json!({ "convention": "envoy", "context_extensions": { "a": "b" } }), "config.context_extensions"),
        (
            json!({ "convention": "envoy", "send_body": true, "allow_partial_body": true }),
            "config.allow_partial_body",
        ),
    ] {
        let mut all = json!({ "url": "http://authz.test:50051", "convention": "envoy_grpc" });
        for (name, value) in config.as_object().unwrap() {
            all[name] = value.clone();
        }
        let problems = Trial::refused(&[entry::<ForwardAuth>()], "forward_auth", &all);
        assert_eq!(problems.0[0].path, path, "{config}: {problems}");
    }
}
