//! The plugin through the real pipeline.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use gateway_core::http::exchange::Field;
use gateway_core::http::reply::Cause;
use gateway_core::plugin::{Plugin, World};
use gateway_core::testing::{Got, Trial};
use http::Response;
use serde_json::{Value, json};

use super::Script;
use crate::SCRIPT;
use crate::testing::{Disk, world};

mod limits;

/// With the longest timeout, unless the test is about it: on a busy machine nothing is done in 20 ms.
fn trial(mut config: Value) -> Trial {
    config.as_object_mut().expect("settings").entry("timeout").or_insert_with(|| json!("1s"));
    Trial::new(&[SCRIPT], "script", config)
}

fn of_source(source: &str) -> Trial {
    trial(json!({ "source": source }))
}

/// What a request gets whose function is this.
async fn got(function: &str, fields: &[(&str, &str)]) -> Got {
    of_source(&format!("fn on_request(request) {{ {function} }}")).get("/a/b?x=1&y=a%20b+c", fields).await
}

fn spec(config: Value) -> String {
    json!({
        "proxies": [{
            "id": "a", "listen_path": "/", "strip_listen_path": false,
            "backend_host": "target.test", "backend_port": 80, "backend_scheme": "http",
        }],
        "upstreams": [{ "id": "other", "targets": [{ "host": "other.test", "port": 80 }] }],
        "plugin_configs": [{ "id": "p0", "plugin_name": "script", "config": config, "proxy_id": "a" }],
    })
    .to_string()
}

#[tokio::test]
async fn a_request_is_read() {
    for (expression, expected) in [
        ("request.method", "GET"),
        ("request.scheme", "http"),
        ("request.version", "HTTP/1.1"),
        ("request.path", "/a/b"),
        ("request.query", "x=1&y=a%20b+c"),
        ("request.host", "client.test"),
        ("request.client_ip", "192.0.2.1"),
        ("request.client_port", "4000"),
        ("request.proxy", "a"),
        ("request.id.len()", "36"),
        ("request.param(\"y\")", "a b c"),
        ("request.param(\"z\")", ""),
        ("request.cookie(\"b\")", "2=3"),
        ("request.header(\"x-a\")", "1"),
        ("request.header(\"x-none\")", ""),
        ("request.headers(\"x-a\").len()", "2"),
        ("request.header_names().len()", "3"),
        ("request.captures.len()", "0"),
        ("request.identity", ""),
        ("request.tls", ""),
    ] {
        let fields = [("x-a", "1"), ("x-a", "2"), ("cookie", "a=1; b=2=3")];
        let got = got(&format!("request.reply(200, `${{{expression}}}`)"), &fields).await;
        assert_eq!((got.status, got.text().as_str()), (200, expected), "{expression}");
    }
}

#[tokio::test]
async fn a_request_is_changed() {
    let trial = of_source(
        r#"fn on_request(request) {
            request.set_header("x-tier", 3);
            request.add_header("x-a", "2");
            request.remove_header("x-gone");
            request.path = "/new/" + request.param("x");
            request.query = "q=" + url_encode("a b");
            request.body = json_encode(#{ n: 1, list: [true, ()] });
        }"#,
    );
    trial.request("POST", "/old?x=7", &[("x-a", "1"), ("x-gone", "1"), ("content-length", "3")], "abc").await;
    let asked = trial.asked().pop().unwrap();
    assert_eq!((asked.path.as_str(), asked.field("x-tier")), ("/new/7?q=a%20b", "3"));
    assert_eq!(asked.headers.get_all("x-a").iter().count(), 2);
    assert!(!asked.headers.contains_key("x-gone"));
    assert_eq!(&asked.body[..], br#"{"list":[true,null],"n":1}"#);
    assert_eq!(asked.field("content-length"), asked.body.len().to_string());
}

#[tokio::test]
async fn a_changed_query_keeps_the_path_and_what_cannot_be_a_path_fails() {
    let trial = of_source(r#"fn on_request(request) { request.query = ""; }"#);
    trial.get("/old?x=7", &[]).await;
    assert_eq!(trial.asked()[0].path, "/old");
    for path in ["x", "/a/../b", "/a?b", "/a b"] {
        assert_eq!(got(&format!("request.path = \"{path}\";"), &[]).await.status, 500, "{path}");
    }
}

#[tokio::test]
async fn a_response_is_read_and_changed() {
    let trial = trial(json!({ "read_response_body": true, "source": r#"
        fn on_request(request) { request.set("who", request.header("x-who")); }
        fn on_response(request, response) {
            if response.status == 200 { response.status = 203; }
            response.set_header("x-who", request.get("who"));
            response.set_header("x-path", request.path);
            response.remove_header("server");
            response.body = response.body.to_upper() + `${response.from_target}`;
        }"# }))
    .answering(|_| {
        Response::builder().header("server", "s").header("etag", "\"1\"").body("hello ".into()).unwrap()
    });
    let got = trial.get("/p", &[("x-who", "me")]).await;
    assert_eq!((got.status, got.text().as_str()), (203, "HELLO true"));
    assert_eq!((got.field("x-who"), got.field("x-path"), got.field("server")), ("me", "/p", ""));
    assert_eq!((got.field("content-length"), got.field("etag")), ("10", ""));
}

#[tokio::test]
async fn a_response_that_a_script_reads_is_asked_for_without_a_coding() {
    let config = json!({ "read_response_body": true, "source": "fn on_response(request, response) { response.body += \"!\"; }" });
    let browser = [("accept-encoding", "gzip, br")];
    let trial = trial(config);
    let got = trial.get("/", &browser).await;
    assert_eq!((got.status, trial.asked()[0].field("accept-encoding")), (200, ""));
    let trial = trial.answering(|_| {
        Response::builder().header("content-encoding", "gzip").body("\u{1f}\u{8b}".into()).unwrap()
    });
    let got = trial.get("/", &browser).await;
    assert_eq!((got.status, trial.records()[1].reason), (502, Some("script_body_compressed")));
}

#[tokio::test]
async fn a_script_answers_itself() {
    let refused = got("false", &[]).await;
    assert_eq!((refused.status, refused.json()["code"].as_str().unwrap().to_owned()), (403, "script".into()));
    let got = got(r#"request.reply(429, "slow", #{ "retry-after": 5, "x-a": ["1", "2"] })"#, &[]).await;
    assert_eq!((got.status, got.text().as_str(), got.field("retry-after")), (429, "slow", "5"));
    assert_eq!(got.headers.get_all("x-a").iter().count(), 2);
    assert_eq!(got.field("content-type"), "text/plain; charset=utf-8");
    let trial = of_source(r#"fn on_response(request, response) { request.reply(418) }"#);
    assert_eq!(trial.get("/", &[]).await.status, 418);
    assert_eq!(trial.asked().len(), 1);
}

#[tokio::test]
async fn constants_settings_and_closures_work() {
    let source = r#"
        const LIST = ["a", "b"];
        const GREETING = "hello " + settings.name;
        fn helper(x) { LIST.contains(x) }
        fn on_request(request) {
            let n = LIST.map(|it| it.len()).reduce(|sum, it| sum + it, 0);
            request.reply(200, `${GREETING} ${helper("b")} ${helper("c")} ${n}`)
        }"#;
    let trial = trial(json!({ "source": source, "settings": { "name": "world" } }));
    assert_eq!(trial.get("/", &[]).await.text(), "hello world true false 2");
}

#[tokio::test]
async fn bodies_are_read_only_where_asked_for() {
    let source = r#"fn on_request(request) { request.reply(200, request.body + request.body_bytes.len()) }"#;
    assert_eq!(of_source(source).request("POST", "/", &[], "abc").await.status, 500);
    let trial = trial(json!({ "source": source, "read_request_body": true, "max_body": 5 }));
    assert_eq!(trial.request("POST", "/", &[], "abc").await.text(), "abc3");
    assert_eq!(trial.request("POST", "/", &[], "abcdef").await.status, 413);
    assert_eq!(trial.request("POST", "/", &[], Bytes::from_static(&[0xff])).await.status, 500);
    let trial = self::trial(json!({ "read_request_body": true, "source": "fn on_request(request) {}" }));
    assert_eq!(trial.request("POST", "/", &[], "kept").await.status, 200);
    assert_eq!(trial.asked()[0].body, "kept");
    let trial = self::trial(json!({
        "read_response_body": true, "max_body": 1, "source": "fn on_response(request, response) {}",
    }));
    assert_eq!(trial.get("/", &[]).await.status, 502);
}

#[tokio::test]
async fn record_fields_and_counters_are_those_that_are_declared() {
    let source =
        r#"fn on_request(request) { request.note("tier", "gold"); request.note("n", 3); count("seen"); }"#;
    let config = json!({ "source": source, "record_fields": ["tier", "n"], "counters": ["seen"] });
    let world = World::default();
    let trial = Trial::of_spec(&[SCRIPT], &spec(config), &world);
    trial.get("/", &[]).await;
    let fields = trial.records()[0].fields.clone();
    assert_eq!(fields, [("script.tier", Field::Text("gold".into())), ("script.n", Field::Number(3))]);
    let metrics = world.meters().text();
    for line in [
        "ferrum_script_events_total{plugin_config=\"p0\",event=\"seen\"} 1",
        "ferrum_script_runs_total{plugin_config=\"p0\",outcome=\"passed\"} 1",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
    for call in ["request.note(\"other\", 1)", "count(\"other\")", "request.upstream = \"other\""] {
        assert_eq!(got(call, &[]).await.status, 500, "{call}");
    }
}

#[tokio::test]
async fn shared_values_are_seen_by_all_requests() {
    let trial = of_source(
        r#"fn on_request(request) {
            let n = shared_add("n", 2, 60);
            shared_set("last", request.path, 60);
            if n == 4 { shared_remove("n"); }
            request.reply(200, `${n} ${shared_get("last")} ${shared_get("n")}`)
        }"#,
    );
    assert_eq!(trial.get("/x", &[]).await.text(), "2 /x 2");
    assert_eq!(trial.get("/y", &[]).await.text(), "4 /y ");
    assert_eq!(trial.get("/z", &[]).await.text(), "2 /z 2");
    for call in ["shared_set(\"last\", [], 1)", "shared_set(\"t\", \"x\", 0); shared_add(\"t\", 1, 0)"] {
        assert_eq!(got(call, &[]).await.status, 500, "{call}");
    }
}

#[tokio::test]
async fn an_upstream_is_chosen() {
    let config = json!({ "source": "fn on_request(request) { request.upstream = \"other\" }", "upstreams": ["other"] });
    let trial = Trial::of_spec(&[SCRIPT], &spec(config), &World::default());
    assert_eq!(trial.get("/", &[]).await.status, 200);
    assert_eq!(trial.asked()[0].authority, "other.test:80");
}

#[tokio::test]
async fn a_request_is_sent_once_where_a_script_says_so() {
    for (call, sent) in [("request.send_once()", 1), ("()", 2)] {
        let config = json!({ "source": format!("fn on_request(request) {{ {call} }}") });
        let retry = r#""retry":{"max_retries":1,"retryable_status_codes":[503]},"backend_host""#;
        let spec = spec(config).replace("\"backend_host\"", retry);
        let trial = Trial::of_spec(&[SCRIPT], &spec, &World::default());
        let trial = trial.answering(|_| {
            Response::builder().status(503).body(gateway_core::http::body::Body::empty()).unwrap()
        });
        assert_eq!(trial.get("/", &[]).await.status, 503);
        assert_eq!(trial.asked().len(), sent, "{call}");
    }
}

#[tokio::test]
async fn a_call_is_made_and_its_answer_decides() {
    let source = r#"
        fn on_request(request) {
            request.set_header("x-before", "1");
            let key = request.header("x-key");
            fetch("auth", #{ method: "POST", path: "/check?a=1", headers: #{ "x-key": key }, body: "b" }, |answer| {
                if answer.status != 200 { request.reply(401, answer.body + answer.error); return; }
                request.set_header("x-user", answer.headers["x-user"]);
                fetch("auth", #{}, |second| { request.set_header("x-second", second.status); })
            })
        }"#;
    let config = json!({ "source": source, "calls": { "auth": { "url": "http://auth.test/v1/" } } });
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    let world = world(
        move |host, request| {
            counted.fetch_add(1, Ordering::Relaxed);
            let key = request.headers().get("x-key").and_then(|key| key.to_str().ok());
            let about = (host, request.method().as_str(), request.uri().to_string(), key);
            match (about.0, about.1, about.2.as_str(), about.3) {
                ("auth.test", "POST", "/v1/check?a=1", Some("good")) if request.body() == "b" => {
                    Ok(Response::builder().header("x-user", "ann").body("".into()).unwrap())
                }
                ("auth.test", "GET", "/v1/", None) => {
                    Ok(Response::builder().status(204).body("".into()).unwrap())
                }
                (_, _, _, Some("down")) => Err(Cause::ConnectFailed),
                _ => Ok(Response::builder().status(403).body("wrong".into()).unwrap()),
            }
        },
        Arc::default(),
    );
    let trial = Trial::of_spec(&[SCRIPT], &spec(config), &world);
    assert_eq!(trial.get("/", &[("x-key", "good")]).await.status, 200);
    let asked = trial.asked().pop().unwrap();
    assert_eq!(["x-before", "x-user", "x-second"].map(|name| asked.field(name)), ["1", "ann", "204"]);
    let got = trial.get("/", &[("x-key", "bad")]).await;
    assert_eq!((got.status, got.text().as_str()), (401, "wrong"));
    let got = trial.get("/", &[("x-key", "down")]).await;
    assert_eq!((got.status, got.text().as_str()), (401, "connect_failed"));
    assert_eq!(calls.load(Ordering::Relaxed), 4);
}

#[tokio::test]
async fn calls_have_limits() {
    let source = r#"
        fn again(request) { fetch("a", #{}, |answer| { again(request) }) }
        fn on_request(request) { again(request) }"#;
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    let answer = move |_: &str, _: &http::Request<Bytes>| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(Response::new("".into()))
    };
    let config = json!({ "source": source, "max_calls": 3, "calls": { "a": { "url": "http://a.test" } } });
    let trial = Trial::of_spec(&[SCRIPT], &spec(config), &world(answer, Arc::default()));
    assert_eq!((trial.get("/", &[]).await.status, calls.load(Ordering::Relaxed)), (500, 3));
    for (call, expected) in [
        ("fetch(\"b\", #{}, |a| {})", "`b` is not one of `calls`"),
        ("fetch(\"a\", #{ url: 1 }, |a| {})", "no option `url`"),
        ("fetch(\"a\", #{ path: \"/../x\" }, |a| {})", "dot segments"),
        ("fetch(\"a\", #{}, |a| {}); fetch(\"a\", #{}, |a| {})", "one call at a time"),
        ("fetch(\"a\", #{ headers: #{ host: \"b\" } }, |a| {})", "frames messages"),
    ] {
        let source = format!("fn on_request(request) {{ {call} }}");
        let config = json!({ "source": source, "calls": { "a": { "url": "http://a.test" } } });
        let trial = self::trial(config);
        assert_eq!(trial.get("/", &[]).await.status, 500, "{call}");
        let fields = trial.records()[0].fields.clone();
        assert!(format!("{fields:?}").contains(expected), "{fields:?}");
    }
}

#[tokio::test]
async fn a_changed_file_is_loaded_and_a_broken_one_is_not() {
    let disk = Arc::<Disk>::default();
    disk.write("s.rhai", "fn on_request(request) { request.reply(201) }");
    let world = world(|_, _| Err(Cause::ConnectFailed), disk.clone());
    let config = serde_json::from_value(json!({ "path": "s.rhai" })).unwrap();
    let script = Arc::new(Script::build(config, &world).unwrap());
    let first = script.program.load_full();
    script.refresh().unwrap();
    assert!(Arc::ptr_eq(&first, &script.program.load_full()), "nothing has changed");
    disk.write("s.rhai", "fn on_request(request) { let x = ; }");
    let error = script.refresh().unwrap_err().to_string();
    assert!(error.starts_with("s.rhai: line 1, column 34: "), "{error}");
    assert!(Arc::ptr_eq(&first, &script.program.load_full()), "the one of before stays");
    disk.write("s.rhai", "fn on_response(request, response) {}");
    script.refresh().unwrap();
    assert!(script.program.load().program.on_response && !script.program.load().program.on_request);
}

/// gRPC's status is in the trailers. To ask a body for its length changes nothing of what describes it.
#[tokio::test]
async fn trailers_go_on_behind_a_body_that_was_read() {
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
    trailers.insert("content-digest", http::HeaderValue::from_static("d"));
    let run = async |line: &str| {
        let trailers = trailers.clone();
        let source = format!("fn on_response(request, response) {{ {line} }}");
        let trial = trial(json!({ "source": source, "read_response_body": true })).answering(move |_| {
            let body = gateway_core::http::body::Body::full_with_trailers("one", trailers.clone());
            Response::builder().header("etag", "\"1\"").body(body).unwrap()
        });
        trial.get("/", &[("te", "trailers")]).await
    };
    for (line, text, described) in [
        ("response.set_header(\"x-a\", response.body.len().to_string());", "one", true),
        ("response.body = \"other\";", "other", false),
    ] {
        let got = run(line).await;
        let trailers = got.trailers.clone().expect("trailers");
        assert_eq!((got.text().as_str(), &trailers["grpc-status"] == "0"), (text, true), "{line}");
        assert_eq!(trailers.contains_key("content-digest"), described, "{line}");
        assert_eq!(got.headers.contains_key("etag"), described, "{line}");
    }
}
