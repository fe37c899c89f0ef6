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
        (json!({ "source": "fn on_request(r) { let f = || 1; f.curry(r) }" }), "config.source", "curry"),
        (json!({ "source": "fn on_request(r) { curry(|| 1, r) }" }), "config.source", "curry"),
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
            json!({ "source": "fn on_request(r) {}", "read_request_body": true, "max_string": 100 }),
            "config.max_string",
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
        ("loop {}", json!({ "max_operations": 10_000_000, "timeout": "1ms" }), "`timeout`"),
        ("let s = \"x\"; loop { s += s; }", json!({ "max_string": 1000 }), "Length of string too large"),
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

/// Each of these would make gigabytes out of what is within the limits, before a look at the size of the result; padding with
/// nothing would never end.
#[tokio::test]
async fn what_multiplies_fails_before_it_takes_memory() {
    let long = "let s = \"a\"; s.pad(1000000, \"aaaa\"); let c = 'a'; ";
    let map = "let s = \"a\"; s.pad(900000, \"a\"); let m = #{}; let n = 0; loop { if n == 9000 { break; } m[`${n}`] = s; n += 1; } ";
    let list =
        "let s = \"a\"; s.pad(900000, \"a\"); let m = []; m.pad(9000, ()); for n in 0..9000 { m[n] = s; } ";
    let (string, array) = ("Length of string too large", "Size of array");
    let cases = [
        (long, "s.replace(\"a\", s)", string),
        (long, "s.replace(c, s)", string),
        (long, "s.replace(\"\", s)", string),
        (long, "s.replace(\"a\", '\u{1F600}')", string),
        (long, "s.replace(c, '\u{1F600}')", string),
        (long, "s.pad(999999999999, s)", string),
        (long, "s.pad(999999999999, 'a')", string),
        (long, "s.pad(1000001, \"\")", "empty text"),
        (long, "s.split(\"\")", array),
        (long, "s.split(c)", array),
        (long, "s.split(\"a\", 900000)", array),
        (long, "s.split(c, 900000)", array),
        (long, "s.split_rev(\"\")", array),
        (long, "s.split_rev(c)", array),
        (long, "s.split_rev(\"a\", 900000)", array),
        (long, "s.split_rev(c, 900000)", array),
        (long, "s.to_chars()", array),
        ("let s = \"a \"; s.pad(900000, \"a \"); ", "s.split()", array),
        (long, "s.to_blob().to_array()", array),
        (map, "m.to_json()", string),
        (map, "m.to_string()", string),
        (map, "m.to_debug()", string),
        (map, "print(m)", string),
        (map, "debug(m)", string),
        (map, "let t = `${m}`", string),
        (map, "let t = \"\" + m", string),
        (map, "let t = \"\"; t += m", string),
        (map, "json_encode(m)", string),
        (map, "request.set(\"m\", m)", string),
        (list, "m.to_string()", string),
        (list, "print(m)", string),
        (list, "debug(m)", string),
        (list, "let t = `${m}`", string),
        (list, "json_encode(m)", string),
        (long, "let a = [1]; a.pad(999999999999, s)", string),
        ("", "let a = [1]; a.pad(999999999999, 1)", array),
        ("", "let a = [1]; loop { a = [a, a]; }", array),
        ("", "let a = [1]; loop { a.append(a); }", array),
        ("", "let a = [1]; loop { a.splice(0, 0, a); }", array),
        ("", "let m = #{ a: 1 }; loop { m = #{ a: m, b: m }; }", "object map"),
        ("", "blob(999999999999)", array),
        ("", "let b = blob(1); b.pad(999999999999, 1)", "Size of BLOB"),
        ("", "let b = blob(1); loop { b.append(b); }", array),
        ("let s = \"a\"; ", "loop { s.append(s); }", string),
        ("", concat!("sleep", "(9)"), "can't sleep"),
        ("", concat!("sleep", "(9.0)"), "can't sleep"),
    ];
    for (first, then, expected) in cases {
        let trial = trial(json!({
            "source": format!("fn on_request(request) {{ {first} {then} }}"),
            "timeout": "1000ms", "max_operations": 10_000_000, "max_string": 1_000_000,
        }));
        assert_eq!(trial.get("/", &[]).await.status, 500, "{then}");
        let fields = format!("{:?}", trial.records()[0].fields);
        assert!(fields.contains(expected), "{then}: {fields}");
    }
}

#[tokio::test]
async fn what_multiplies_does_what_rhai_says() {
    for (expression, expected) in [
        ("let s = \"abcab\"; s.replace(\"ab\", \"x\"); s", "xcx"),
        (
            "let s = \"abcab\"; s.replace('a', \"xy\"); s.replace(\"b\", 'z'); s.replace('c', '-'); s",
            "xyz-xyz",
        ),
        ("let s = \"ab\"; s.replace(\"\", \"-\"); s", "-a-b-"),
        ("let s = \"\"; s.replace(\"\", \"-\"); s", ""),
        ("let s = \"ab\"; s.pad(7, \"123\"); s", "ab12312"),
        ("let s = \"ab\"; s.pad(4, 'ü'); s.pad(1, 'x'); s.pad(-1, 'x'); s", "abüü"),
        ("\"a,b,c\".split(\",\")", "[\"a\", \"b\", \"c\"]"),
        ("\"a,b,c\".split(',', 2)", "[\"a\", \"b,c\"]"),
        ("\"a,b,c\".split_rev(\",\", 2)", "[\"c\", \"a,b\"]"),
        ("\"a,b,c\".split_rev(',')", "[\"c\", \"b\", \"a\"]"),
        ("\"a,b\".split(\",\", 0)", "[\"a,b\"]"),
        ("\"ab\".split(\";\")", "[\"ab\"]"),
        ("\" a  b \".split()", "[\"a\", \"b\"]"),
        ("\"ab\".to_chars()", "['a', 'b']"),
        ("\"ab\".to_blob().to_array()", "[97, 98]"),
        ("#{ a: 1, b: [(), \"x\"] }", "#{\"a\": 1, \"b\": [(), \"x\"]}"),
        ("#{ a: 1 }.to_json()", "{\"a\":1}"),
        ("[1.5, 'c', true, #{}]", "[1.5, 'c', true, #{}]"),
    ] {
        let got = got(&format!("let v = {{ {expression} }}; request.reply(200, `${{v}}`)"), &[]).await;
        assert_eq!((got.status, got.text().as_str()), (200, expected), "{expression}");
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

/// Builds closures that have captured closures, as many as `max_operations` allows, on a thread with little room.
#[test]
fn closures_within_closures_are_freed_one_by_one() {
    let chain = "let f = || 1; for n in 0..9000 { let g = f; f = || g; } ";
    let late = "let all = []; for n in 0..300 { let x = (); all.push(|| x); let y = all; x = y; } ";
    let circle = "let f = (); f = || f; let a = []; let g = || a; let h = [g]; a = h; ";
    let by_map = "let f = #{ a: () }; for n in 0..4000 { let g = #{ a: [f] }; f = #{ a: || g }; } ";
    let functions = "fn wrap(f) { || f } ";
    let called = "let f = || 1; for n in 0..9000 { f = wrap(f); } ";
    let mut sources = vec![];
    for part in [chain, circle, by_map, called] {
        sources.push(format!("{functions} fn on_request(request) {{ {part} }}"));
        sources.push(format!("{functions} {part} const KEPT = f; fn on_request(request) {{ }}"));
        for write in ["debug(f)", "print(f)", "let t = `${f}`", "debug([f])", "throw f"] {
            sources.push(format!("{functions} fn on_request(request) {{ {part} {write} }}"));
        }
    }
    sources.push(format!("fn on_request(request) {{ {late} }}"));
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        for source in sources {
            let trial = trial(json!({ "source": source, "max_operations": 1_000_000 }));
            let got = runtime.block_on(trial.get("/", &[]));
            let writes = ["debug(f)", "print(f)", "${f}"].iter().any(|it| source.contains(it));
            let fails = source.contains("throw") || source.contains("debug([f])");
            let expected = if fails || (writes && source.contains("#{")) { 500 } else { 200 };
            let fields = format!("{:?}", trial.records()[0].fields);
            assert_eq!(got.status, expected, "{source}: {fields}");
        }
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(run).expect("a thread");
    thread.join().expect("it has room");
}

#[tokio::test]
async fn closures_capture_so_many_variables() {
    let count = "let n = 0; for i in 0..10001 { let x = i; let f = || x; n += f.call(); }";
    let trial = trial(json!({
        "source": format!("fn on_request(request) {{ let kept = []; for i in 0..10001 {{ let x = i; kept.push(|| x); }} }}
            fn on_response(request, response) {{ {count} response.status = if n == 50005000 {{ 201 }} else {{ 202 }}; }}"),
        "max_operations": 1_000_000, "max_array_size": 20_000, "on_error": "open",
    }));
    trial.get("/", &[]).await;
    let fields = format!("{:?}", trial.records()[0].fields);
    assert!(fields.contains("closures may capture 10000 variables"), "{fields}");
}

/// What a callback has captured is there when the answer comes, and constants keep theirs from request to request.
#[tokio::test]
async fn captured_variables_last_as_long_as_their_closures() {
    let source = r#"
        let first = 40; const ADD = |n| first + n;
        fn on_request(request) { let two = 2; let add = |n| ADD.call(n) + two - 2; request.reply(200, `${add.call(two)}`) }"#;
    let trial = of_source(source);
    for _ in 0..3 {
        let text = trial.get("/", &[]).await.text();
        assert_eq!(text, "42", "{:?}", trial.records());
    }
}
