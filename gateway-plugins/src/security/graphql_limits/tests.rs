//! What passes, what is refused, and that each option does something.

use gateway_core::plugin::entry;
use gateway_core::testing::{Got, Trial};
use gateway_plugin_common::testing::metric;
use serde_json::{Value, json};

use super::*;

fn trial(config: Value) -> Trial {
    Trial::new(&[entry::<GraphqlLimits>()], "graphql_limits", config)
}

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

async fn post(trial: &Trial, body: impl ToString) -> Got {
    trial.request("POST", "/graphql", JSON, body.to_string()).await
}

/// The code of the refusal, or `passed`.
async fn code(config: Value, query: &str) -> String {
    code_of(config, json!({ "query": query })).await
}

async fn code_of(config: Value, body: Value) -> String {
    let got = post(&trial(config), body).await;
    if got.status == 200 {
        "passed".into()
    } else {
        got.json()["errors"][0]["extensions"]["code"].as_str().unwrap().into()
    }
}

#[tokio::test]
async fn an_operation_passes_as_it_was_sent() {
    let trial = trial(json!({}));
    let body = json!({ "query": "query Q($n: Int) { a(first: $n) { b __typename } }", "variables": { "n": 2 }, "x": 1 });
    assert_eq!(post(&trial, &body).await.status, 200);
    assert_eq!(trial.asked()[0].body, body.to_string());
    let refused = post(&trial, json!({ "query": "{ a" })).await;
    assert_eq!((refused.status, refused.field("content-type")), (400, "application/json"));
    assert_eq!(trial.records()[1].reason, Some("graphql_syntax"));
    assert_eq!(trial.request("OPTIONS", "/", &[], "").await.status, 200);
    let other = trial.request("PUT", "/", JSON, "{}").await;
    assert_eq!((other.status, other.field("allow")), (405, "GET, POST"));
}

#[tokio::test]
async fn each_limit_holds_and_may_be_changed() {
    let deep = |n: usize| format!("{}x{}", "{ a ".repeat(n), " }".repeat(n)).replace("a x", "x");
    for (config, query, expected) in [
        (json!({ "max_depth": 3 }), deep(3), "passed"),
        (json!({ "max_depth": 2 }), deep(3), "graphql_depth"),
        (json!({}), deep(11), "graphql_depth"),
        (json!({ "max_aliases": 1 }), "{ x: a y: a }".into(), "graphql_aliases"),
        (json!({ "max_aliases": 2 }), "{ x: a y: a }".into(), "passed"),
        (json!({ "max_root_fields": 1 }), "{ a b }".into(), "graphql_root_fields"),
        (json!({ "max_directives": 1 }), "{ a @b b @c }".into(), "graphql_directives"),
        (json!({ "max_directives": 2 }), "{ a @b b @c }".into(), "passed"),
        (json!({ "max_tokens": 5 }), "{ a b c d e f }".into(), "graphql_tokens"),
        (json!({ "max_cost": 3 }), "{ a { b { c d } } }".into(), "graphql_cost"),
        (json!({ "max_cost": 4 }), "{ a { b { c d } } }".into(), "passed"),
        (json!({ "max_cost": 4, "field_costs": { "c": 2 } }), "{ a { b { c d } } }".into(), "graphql_cost"),
        (json!({ "operation_types": ["query"] }), "mutation { a }".into(), "graphql_operation_type"),
        (json!({ "operation_types": ["query"] }), "query { a }".into(), "passed"),
        (json!({ "operation_names": ["A"] }), "query B { a }".into(), "graphql_operation_name"),
        (json!({ "operation_names": ["A"] }), "{ a }".into(), "graphql_operation_name"),
        (json!({ "operation_names": ["A"] }), "query A { a }".into(), "passed"),
        (json!({ "operation_names": ["A"] }), "query A { a } query B { a }".into(), "graphql_operation_name"),
        (json!({}), "{ __schema { types { name } } }".into(), "graphql_introspection"),
        (
            json!({}),
            "{ ...f } fragment f on Query { __type(name: \"A\") { name } }".into(),
            "graphql_introspection",
        ),
        (json!({ "allow_introspection": true }), "{ __schema { types { name } } }".into(), "passed"),
        (
            json!({ "allow_introspection": true, "max_depth": 3 }),
            format!(
                "{{ __schema {{ types {{ ...T }} }} }} fragment T on __Type {{ {}name{} }}",
                "ofType {".repeat(9),
                "}".repeat(9)
            ),
            "passed",
        ),
        (
            json!({ "allow_introspection": true, "max_depth": 3 }),
            "{ a { b { __typename c { d } } } __schema { types { name } } }".into(),
            "graphql_depth",
        ),
        (json!({}), "type A { b: Int }".into(), "graphql_syntax"),
        (json!({}), "fragment f on A { b }".into(), "graphql_syntax"),
    ] {
        assert_eq!(code(config.clone(), &query).await, expected, "{config} {query}");
    }
}

#[tokio::test]
async fn lists_multiply_costs() {
    for (query, variables, expected) in [
        ("{ a(first: 10) { b } }", json!({}), "passed"),
        ("{ a(first: 11) { b } }", json!({}), "graphql_cost"),
        ("{ a(first: 5) { b(last: 5) { c } } }", json!({}), "graphql_cost"),
        ("query($n: Int) { a(first: $n) { b } }", json!({ "n": 11 }), "graphql_cost"),
        ("query($n: Int) { a(first: $n) { b } }", json!({ "n": 11.0 }), "graphql_cost"),
        ("query($n: Int) { a(first: $n) { b } }", json!({ "n": "11" }), "graphql_cost"),
        ("query($n: Int) { a(first: $n) { b } }", json!({ "n": 10 }), "passed"),
        ("query($n: Int) { a(first: $n) { b } }", json!({}), "passed"),
        ("query($n: Int = 11) { a(first: $n) { b } }", json!({}), "graphql_cost"),
        ("query($n: Int = 11) { a(first: $n) { b } }", json!({ "n": 1 }), "passed"),
        ("{ a(first: -5) { b } }", json!({}), "passed"),
        ("{ a(first: 99999999999999999999999) { b } }", json!({}), "graphql_cost"),
        ("{ a(size: 100) { b } }", json!({}), "passed"),
    ] {
        let body = json!({ "query": query, "variables": variables });
        assert_eq!(code_of(json!({ "max_cost": 20 }), body).await, expected, "{query} {variables}");
    }
    let own = json!({ "max_cost": 20, "list_arguments": ["size"] });
    assert_eq!(code(own, "{ a(size: 100) { b } }").await, "graphql_cost");
}

#[tokio::test]
async fn fragments_are_counted_where_they_are_spread_and_never_for_ever() {
    let doubled = |levels: usize| {
        let fragments =
            (0..levels).map(|n| format!("fragment f{n} on Q {{ a{{ ...f{} ...f{} }} }} ", n + 1, n + 1));
        let fragments: String = fragments.collect();
        format!("{{ ...f0 }} {fragments} fragment f{levels} on Q {{ x }}")
    };
    let wide = json!({ "max_depth": 100, "max_tokens": 100_000, "max_cost": 100 });
    assert_eq!(code(wide.clone(), &doubled(5)).await, "passed");
    assert_eq!(code(wide, &doubled(60)).await, "graphql_cost", "two to the power of sixty");
    assert_eq!(
        code(json!({}), "{ ...f } fragment f on Q { a { ...g } } fragment g on Q { ...f }").await,
        "graphql_syntax"
    );
    assert_eq!(code(json!({}), "{ ...nowhere }").await, "graphql_syntax");
    assert_eq!(
        code(json!({}), "{ ...f } fragment f on Q { a } fragment f on Q { b }").await,
        "graphql_syntax"
    );
    let inline = "{ ... on Q { x: a ... { y: a } } }";
    assert_eq!(code(json!({ "max_aliases": 1 }), inline).await, "graphql_aliases");
}

#[tokio::test]
async fn batches_are_limited_and_each_operation_counts() {
    let config = || json!({ "max_batch": 2, "max_root_fields": 1 });
    let one = json!({ "query": "{ a }" });
    assert_eq!(code_of(config(), json!([one, one])).await, "passed");
    assert_eq!(code_of(config(), json!([one, one, one])).await, "graphql_batch");
    assert_eq!(code_of(config(), json!([one, { "query": "{ a b }" }])).await, "graphql_root_fields");
    assert_eq!(code_of(json!({ "max_batch": 1 }), json!([one])).await, "graphql_batch");
}

#[tokio::test]
async fn gets_are_looked_at_too() {
    let trial = trial(json!({ "max_root_fields": 1 }));
    for (query, status) in [
        ("query=%7Ba%7D", 200),
        ("query={a+b}", 400),
        ("query=mutation{a}", 405),
        ("query={a}&query={a,b}", 400),
        ("query={a}&QUERY={a,b}", 400),
        ("%71uery={a,b}", 400),
        ("query={a}&variables={", 400),
        ("query=query($n:Int){a(first:$n){b}}&variables={\"n\":5000}", 400),
        ("other=1", 403),
        ("", 403),
    ] {
        let query: String = query.replace('"', "%22").replace('{', "%7B").replace('}', "%7D");
        assert_eq!(trial.get(&format!("/graphql?{query}"), &[]).await.status, status, "{query}");
    }
}

#[tokio::test]
async fn what_cant_be_read_is_refused() {
    let trial = trial(json!({ "max_body": 1000 }));
    let good = r#"{"query":"{a}"}"#;
    let json_with = |more: &[(&'static str, &'static str)]| [JSON, more].concat();
    for (fields, body, status) in [
        (vec![], good, 415),
        (vec![("content-type", "text/plain")], good, 415),
        (vec![("content-type", "multipart/form-data; boundary=x")], good, 415),
        (vec![("content-type", "application/json; charset=utf-16")], good, 415),
        (vec![("content-type", "Application/JSON; charset=UTF-8")], good, 200),
        (vec![("content-type", "application/graphql")], "{a}", 200),
        (vec![("content-type", "application/graphql")], "{__schema{types{name}}}", 403),
        (json_with(&[("content-encoding", "gzip")]), good, 415),
        (json_with(&[("content-type", "text/plain")]), good, 415),
        (JSON.to_vec(), r#"{"query":"{a}","query":"{b}"}"#, 400),
        (JSON.to_vec(), r#"{"query":"{a}","Query":"{b}"}"#, 400),
        (JSON.to_vec(), r#"{"query":5}"#, 400),
        (JSON.to_vec(), r#""{a}""#, 400),
        (JSON.to_vec(), "", 400),
        (JSON.to_vec(), r#"{"extensions":{"persistedQuery":{"version":1,"sha256Hash":"x"}}}"#, 403),
    ] {
        let got = trial.request("POST", "/graphql", &fields, body).await;
        assert_eq!(got.status, status, "{fields:?} {body}");
    }
    assert_eq!(trial.request("POST", "/graphql?query=%7Bb%7D", JSON, good).await.status, 400);
    assert_eq!(post(&trial, json!({ "query": " ".repeat(1000) })).await.status, 413);
    let persisted = self::trial(json!({ "allow_persisted": true }));
    assert_eq!(post(&persisted, json!({ "extensions": {} })).await.status, 200);
}

/// A form of the GraphQL multipart request specification with these parts: each its header and its content.
fn form(parts: &[(&str, &str)]) -> String {
    let parts = parts
        .iter()
        .map(|(header, content)| format!("--x\r\ncontent-disposition: {header}\r\n\r\n{content}\r\n"));
    parts.collect::<String>() + "--x--\r\n"
}

#[tokio::test]
async fn forms_with_files_are_read_where_they_are_allowed() {
    const OPERATIONS: &str = "form-data; name=\"operations\"";
    const MAP: &str = "form-data; name=\"map\"";
    const FILE: &str = "form-data; name=\"0\"; filename=\"Ann's photo.jpg\"";
    let upload = r#"{"query":"mutation($file: Upload!) { a(file: $file) }","variables":{"file":null}}"#;
    let (operations, map, file) =
        ((OPERATIONS, upload), (MAP, r#"{"0":["variables.file"]}"#), (FILE, "\u{1}--y\n"));
    let batch = format!("[{upload},{upload}]");
    let passes = form(&[operations, map, file]);
    for (form, status) in [
        (passes.clone(), 200),
        (form(&[(OPERATIONS, &batch), (MAP, r#"{"0":["0.variables.file","1.variables.file"]}"#), file]), 200),
        (form(&[(OPERATIONS, &upload.replace("a(file", "b: c d: e f(file")), map, file]), 400),
        // Without what the specification demands, or in another order.
        (form(&[operations]), 400),
        (form(&[operations, file]), 400),
        (form(&[map, operations, file]), 400),
        (form(&[operations, map, file, file]), 400),
        (form(&[operations, map, ("form-data; name=\"1\"; filename=\"a\"", "")]), 400),
        (form(&[operations, map, file, operations]), 400),
        // A file for what is not a variable.
        (form(&[operations, (MAP, r#"{"0":["query"]}"#), file]), 400),
        (form(&[operations, (MAP, r#"{"0":["0.query"]}"#), file]), 400),
        (form(&[operations, (MAP, r#"{"0":["variables."]}"#), file]), 400),
        (form(&[operations, (MAP, r#"{"0":["query"],"0":["variables.file"]}"#), file]), 400),
        // What servers read in different ways.
        (form(&[("form-data; name=operations", upload), map, file]), 400),
        (form(&[("form-data; name=\"operations\"; name=\"x\"", upload), map, file]), 400),
        (form(&[("form-data; name=\"operations\"; filename=\"a\"", upload), map, file]), 400),
        (form(&[operations, map, ("form-data; name=\"0\"; filename*=UTF-8''a", "")]), 400),
        (
            form(&[
                ("form-data; name=\"operations\"\r\ncontent-transfer-encoding: base64", upload),
                map,
                file,
            ]),
            400,
        ),
        (
            form(&[
                operations,
                map,
                (FILE, "\n--x\ncontent-disposition: form-data; name=\"operations\"\n\n{}"),
            ]),
            400,
        ),
        (format!("\r\n{passes}"), 400),
        (format!("{passes}--x\r\n"), 400),
        (passes.replace("--x--\r\n", ""), 400),
        (form(&[(OPERATIONS, &upload.replace("mutation", &" ".repeat(700))), map, file]), 413),
        (form(&[operations, map, (FILE, &"a".repeat(2000))]), 413),
    ] {
        let trial = trial(json!({ "max_aliases": 1, "max_body": 700, "max_upload": 2000 }));
        let fields = [("content-type", "multipart/form-data; boundary=x")];
        let got = trial.request("POST", "/graphql", &fields, form.clone()).await;
        assert_eq!(got.status, status, "{form}: {:?}", trial.records()[0].reason);
        assert_eq!(
            trial.asked().first().map(|asked| &*asked.body),
            (status == 200).then_some(form.as_bytes())
        );
    }
    let trial = trial(json!({ "max_upload": 2000 }));
    for kind in ["multipart/form-data; boundary=x; boundary=y", "multipart/form-data"] {
        assert_eq!(
            trial.request("POST", "/graphql", &[("content-type", kind)], passes.clone()).await.status,
            400,
            "{kind}"
        );
    }
}

#[tokio::test]
async fn hostile_documents_end_soon() {
    let wide = json!({ "max_tokens": 100_000, "max_body": "4MiB", "max_depth": 100 });
    let trial = trial(wide);
    for query in [
        "{a".repeat(49_000),
        format!("{{a(b:{})}}", "[".repeat(90_000)),
        format!("{{a(b:{})}}", "{c:".repeat(30_000)),
        format!("query($a:{}Int{}){{a}}", "[".repeat(40_000), "]".repeat(40_000)),
        "{".repeat(90_000),
        "\u{0}\u{ffff}\"\"\"".repeat(1000),
        "#".repeat(90_000),
        "{ ...f } ".to_owned()
            + (0..5000).map(|n| format!("fragment f{n} on Q{{...f{}}}", n + 1)).collect::<String>().as_str(),
    ] {
        assert_eq!(post(&trial, json!({ "query": query })).await.status, 400);
    }
    let chained = "{ ...f0 } ".to_owned()
        + (0..900).map(|n| format!("fragment f{n} on Q{{...f{}}}", n + 1)).collect::<String>().as_str()
        + "fragment f900 on Q{a}";
    assert_eq!(post(&trial, json!({ "query": chained })).await.status, 400);
}

#[tokio::test]
async fn a_dry_run_refuses_nothing() {
    let world = World::default();
    let spec = json!({
        "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "t.test", "backend_port": 80 }],
        "plugin_configs": [{ "id": "g", "plugin_name": "graphql_limits", "proxy_id": "a", "config": { "dry_run": true } }],
    });
    let trial = Trial::of_spec(&[entry::<GraphqlLimits>()], &spec.to_string(), &world);
    let bad = json!({ "query": "{ __schema { a } }" });
    assert_eq!(post(&trial, &bad).await.status, 200);
    assert_eq!(trial.asked()[0].body, bad.to_string(), "the body is whole");
    assert_eq!(trial.records()[0].fields, [("graphql_limits.would_refuse", "graphql_introspection".into())]);
    assert_eq!(metric(&world, REQUESTS.name, &["would_refuse"]), 1);
}

#[test]
fn a_dry_run_ends_no_websocket() {
    for (dry_run, passes) in [(true, true), (false, false)] {
        let config = serde_json::from_value(json!({ "max_depth": 1, "dry_run": dry_run })).unwrap();
        let plugin =
            GraphqlLimits::build(config, &World::default()).unwrap_or_else(|problems| panic!("{problems}"));
        let deep: &[u8] = br#"{"id":"1","type":"subscribe","payload":{"query":"{ a { b } }"}}"#;
        for found in [check_message(&plugin.limits, deep), binary()] {
            assert_eq!(matches!(plugin.passage(&found), Passage::Forward), passes, "{found:?}");
        }
        assert_eq!((plugin.refused.get(), plugin.passed.get()), (2, 0));
    }
}

#[test]
fn messages_of_websockets() {
    let config = serde_json::from_value(json!({ "max_root_fields": 1, "max_body": 200 })).unwrap();
    let plugin =
        GraphqlLimits::build(config, &World::default()).unwrap_or_else(|problems| panic!("{problems}"));
    let passes = |text: &str| plugin.judge(&check_message(&plugin.limits, text.as_bytes()));
    assert!(passes(r#"{"type":"connection_init","payload":{"token":"x"}}"#));
    assert!(passes(r#"{"id":"1","type":"subscribe","payload":{"query":"subscription { a }"}}"#));
    for bad in [
        r#"{"id":"1","type":"subscribe","payload":{"query":"{ a b }"}}"#,
        r#"{"id":"1","type":"start","payload":{"query":"{ a b }"}}"#,
        r#"{"id":"1","type":"subscribe"}"#,
        r#"{"id":"1","type":"ping","type":"subscribe","payload":{"query":"{ a b }"}}"#,
        "nonsense",
        &format!(r#"{{"type":"ping","payload":"{}"}}"#, "x".repeat(200)),
    ] {
        assert!(!passes(bad), "{bad}");
    }
}

#[test]
fn bad_settings_are_refused() {
    for (config, path) in [
        (json!({ "max_depth": 0 }), "config.max_depth"),
        (json!({ "max_batch": 0 }), "config.max_batch"),
        (json!({ "operation_types": [] }), "config.operation_types"),
        (json!({ "operation_types": ["x"] }), "config.operation_types[0]"),
        (json!({ "operation_names": ["a b"] }), "config.operation_names[0]"),
        (json!({ "list_arguments": ["1"] }), "config.list_arguments[0]"),
        (json!({ "field_costs": { "A.b": 1 } }), "config.field_costs.A.b"),
        (json!({ "max_body": "17MiB" }), "config.max_body"),
    ] {
        let problems = Trial::refused(&[entry::<GraphqlLimits>()], "graphql_limits", &config);
        assert_eq!(problems.0[0].path, path, "{problems}");
    }
}

/// Streams and datagrams hold nothing that it could read.
#[test]
fn proxies_without_http_are_refused() {
    for (scheme, traffic) in [("tcp", "TCP and TLS"), ("udp", "UDP and DTLS")] {
        let spec = json!({
            "proxies": [{ "id": "a", "listen_port": 9999, "backend_scheme": scheme, "backend_host": "t", "backend_port": 1 }],
            "plugin_configs": [{ "id": "g", "plugin_name": "graphql_limits", "proxy_id": "a", "config": { "max_depth": 1 } }],
        });
        let entries = [entry::<GraphqlLimits>()];
        let Err(problems) = Trial::try_of_spec(&entries, &spec.to_string(), &World::default()) else {
            panic!("{scheme} was accepted")
        };
        assert!(problems.to_string().contains(&format!("does nothing for {traffic} traffic")), "{problems}");
    }
}
