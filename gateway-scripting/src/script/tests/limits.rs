//! What a script may take, and what becomes of one that takes more or fails.

use super::*;

#[test]
fn faults_are_found_when_a_script_is_loaded_with_their_place() {
    for (config, path, expected) in [
        (json!({}), "config.source", "is required"),
        (json!({ "source": "", "path": "x" }), "config.source", "second source"),
        (json!({ "source": "" }), "config.source", "neither a function `on_request(request)`"),
        (json!({ "source": "fn on_request() {}" }), "config.source", "takes one parameter"),
        (
            json!({ "source": "\nfn on_request(request) {\n  let x = ; }" }),
            "config.source",
            "line 3, column 11: ",
        ),
        (json!({ "source": "fn on_request(r) {\n  requst.path }" }), "config.source", "line 2, column 3: "),
        (json!({ "source": "fn on_request(r) { eval(\"1\") }" }), "config.source", "eval"),
        (json!({ "source": "loop {} fn on_request(r) {}" }), "config.source", "`max_operations`"),
        (json!({ "source": "import \"x\" as y; fn on_request(r) {}" }), "config.source", "import"),
        (json!({ "path": "/none" }), "config.path", "can't be read"),
        (json!({ "source": "fn on_request(r) {}", "refresh": 5 }), "config.refresh", "no effect"),
        (
            json!({ "source": "fn on_request(r) {}", "record_fields": ["A"] }),
            "config.record_fields[0]",
            "name",
        ),
        (json!({ "source": "fn on_request(r) {}", "counters": [""] }), "config.counters[0]", "name"),
        (
            json!({ "source": "fn on_request(r) {}", "calls": { "a": { "url": "ftp://a" } } }),
            "config.calls.a.url",
            "must begin with",
        ),
        (
            json!({ "source": "fn on_request(r) {}", "read_request_body": true, "max_string_bytes": 100 }),
            "config.max_string_bytes",
            "less than",
        ),
    ] {
        let problems = Trial::refused(&[SCRIPT], "script", &config);
        assert_eq!(problems.0[0].path, path, "{config}");
        assert!(problems.0[0].message.contains(expected), "{config}: {}", problems.0[0].message);
    }
}

#[tokio::test]
async fn each_limit_ends_the_function_and_costs_one_request() {
    let cases = [
        ("loop {}", json!({ "max_operations": 1000 }), "`max_operations`"),
        ("loop {}", json!({ "max_operations": 10_000_000, "timeout_ms": 1 }), "`timeout_ms`"),
        (
            "let s = \"x\"; loop { s += s; }",
            json!({ "max_string_bytes": 1000 }),
            "Length of string too large",
        ),
        ("let a = [1]; loop { a.push(1); }", json!({ "max_array_size": 10 }), "Size of array"),
        (
            "let m = #{}; let n = 0; loop { n += 1; m.set(`${n}`, 1); }",
            json!({ "max_map_size": 10 }),
            "object map",
        ),
        ("again(1)", json!({ "max_call_depth": 5 }), "Stack overflow"),
    ];
    for (function, limits, expected) in cases {
        let source = format!(
            "fn again(n) {{ again(n + 1) }}
             fn on_request(request) {{ if request.path == \"/bad\" {{ {function} }} }}"
        );
        let mut config = limits.clone();
        config["source"] = json!(source);
        let trial = trial(config);
        let got = trial.get("/bad", &[]).await;
        assert_eq!((got.status, got.json()["code"].as_str()), (500, Some("script_failed")), "{function}");
        let fields = format!("{:?}", trial.records()[0].fields);
        assert!(fields.contains(expected), "{function}: {fields}");
        assert_eq!(trial.get("/good", &[]).await.status, 200, "{function}");
    }
}

#[tokio::test]
async fn a_failure_closes_unless_it_is_said_to_open() {
    let source = r#"
        fn on_request(request) { request.set_header("x-a", "1"); if request.path == "/q" { throw "no"; } }
        fn on_response(request, response) { response.status = 201; let x = 1 / 0; }"#;
    let closed = of_source(source);
    assert_eq!((closed.get("/q", &[]).await.status, closed.asked().len()), (500, 0));
    assert_eq!((closed.get("/", &[]).await.status, closed.asked().len()), (500, 1));
    let open = trial(json!({ "source": source, "on_error": "open" }));
    assert_eq!(open.get("/q", &[]).await.status, 201);
    assert_eq!(open.asked()[0].field("x-a"), "1", "what it had changed until then");
    let fields = format!("{:?}", open.records()[0].fields);
    assert!(fields.contains("script.error") && fields.contains("line 3, column"), "{fields}");
}

#[tokio::test]
async fn headers_that_frame_messages_are_the_gateways() {
    for name in ["content-length", "transfer-encoding", "connection", "host", "te", "upgrade"] {
        assert_eq!(got(&format!("request.set_header(\"{name}\", \"1\")"), &[]).await.status, 500, "{name}");
        assert_eq!(got(&format!("request.remove_header(\"{name}\")"), &[]).await.status, 500, "{name}");
    }
    assert_eq!(got("request.set_header(\"x-a\", \"1\\r\\nx-b: 2\")", &[]).await.status, 500);
    assert_eq!(got("for n in 0..2000 { request.add_header(\"x-a\", n) }", &[]).await.status, 500);
}

#[tokio::test]
async fn tools_do_what_they_say() {
    for (expression, expected) in [
        ("base64_encode(\"hi\")", "aGk="),
        ("base64_decode(\"aGk=\").as_string()", "hi"),
        ("url_encode(\"a b/ü\")", "a%20b%2F%C3%BC"),
        ("url_decode(\"a%20b\")", "a b"),
        ("json_decode(`{\"a\":[1,{\"b\":2.5}]}`).a[1].b", "2.5"),
        ("json_encode([1, \"x\", ()])", "[1,\"x\",null]"),
        ("sha256(\"abc\").sub_string(0, 8)", "ba7816bf"),
        ("hmac_sha256(\"Jefe\", \"what do ya want for nothing?\").sub_string(0, 8)", "5bdcc146"),
        ("equal(\"a\", \"a\")", "true"),
        ("equal(\"a\", \"b\")", "false"),
        ("random(1)", "0"),
        ("now_ms() > 1700000000000", "true"),
    ] {
        let got = got(&format!("let v = {expression}; request.reply(200, `${{v}}`)"), &[]).await;
        assert_eq!((got.status, got.text().as_str()), (200, expected), "{expression}");
    }
    for bad in ["json_decode(\"{\")", "base64_decode(\"*\")", "random(0)", "url_decode(\"%ff\")"] {
        assert_eq!(got(&format!("{bad};"), &[]).await.status, 500, "{bad}");
    }
}
