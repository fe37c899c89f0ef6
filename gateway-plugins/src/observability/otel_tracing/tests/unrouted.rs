//! Requests that no proxy's chain runs for.

use super::*;

fn spec(scope: Value, config: Value) -> Value {
    let mut tracing = json!({ "id": "t", "plugin_name": "otel_tracing", "config": config });
    tracing["config"]["exporter"]["protocol"] = json!("http/json");
    tracing.as_object_mut().unwrap().extend(scope.as_object().unwrap().clone());
    json!({
        "proxies": [{
            "id": "shop", "listen_path": "/shop", "backend_host": "target.test", "backend_port": 80,
            "backend_scheme": "http",
        }],
        "plugin_configs": [tracing],
    })
}

fn tracing_all(config: Value) -> Traced {
    let world = Machine::default().world();
    let spec = spec(json!({ "scope": "global" }), config).to_string();
    Traced { trial: Trial::of_spec(ENTRIES, &spec, &world), world, queue: 16_384 }
}

#[tokio::test]
async fn a_request_that_no_proxy_serves_has_a_span_named_after_its_method() {
    let traced = tracing_all(json!({ "response_header": "x-trace-id" }));
    let parent = format!("00-{TRACE}-{PARENT}-01");
    let got = traced.trial.get("/other/place?token=s3cret", &[("traceparent", &parent)]).await;
    assert_eq!(got.status, 404);
    let spans = traced.spans();
    assert_eq!(spans.len(), 1, "{spans:#?}");
    let (span, about) = (&spans[0], attributes(&spans[0]));
    assert_eq!((&span["name"], &span["kind"], span.get("status")), (&json!("GET"), &json!(2), None));
    assert_eq!((&span["traceId"], &span["parentSpanId"]), (&json!(TRACE), &json!(PARENT)));
    assert_eq!(got.field("x-trace-id"), TRACE);
    assert_eq!(got.json()["trace_id"], json!(TRACE));
    for (key, value) in [
        ("http.request.method", "GET"),
        ("url.path", "/other/place"),
        ("url.query", "token=REDACTED"),
        ("http.response.status_code", "404"),
        ("error.type", "no_route"),
    ] {
        assert_eq!(about.get(key).map(String::as_str), Some(value), "{key}: {about:#?}");
    }
    assert!(!about.contains_key("http.route") && !about.contains_key("ferrum.proxy.id"), "{about:#?}");
}

#[tokio::test]
async fn a_request_refused_before_routing_has_a_span_too() {
    let traced = tracing_all(json!({}));
    for (method, host, name) in
        [("GET", "two hosts", "GET"), ("BREW", "a b", "HTTP"), ("CONNECT", "a b", "CONNECT")]
    {
        let request = http::Request::builder().method(method).uri("/shop").header("host", host);
        let got = traced.trial.send(request.body(Body::empty()).unwrap()).await;
        assert!((400..=501).contains(&got.status), "{method} {}", got.status);
        let spans = traced.spans();
        assert_eq!(spans.len(), 1, "{method}: {spans:#?}");
        assert_eq!(spans[0]["name"], name);
        assert_eq!(attributes(&spans[0])["http.response.status_code"], got.status.to_string());
    }
    let fields = [("content-type", "application/grpc"), ("te", "trailers")];
    traced.trial.request("POST", "/some.Service/Any", &fields, "").await;
    assert_eq!(traced.spans()[0]["name"], "POST", "a service that nobody serves names no span");
}

#[tokio::test]
async fn they_are_sampled_like_others() {
    let parent = |flag: &str| format!("00-{TRACE}-{PARENT}-{flag}");
    for (config, flag, expected) in [
        (json!({ "sampler": "always_off" }), "01", 0),
        (json!({ "sampler": "parentbased_always_off" }), "01", 1),
        (json!({ "sampler": "parentbased_always_on" }), "00", 0),
        (json!({ "sampler": "always_on", "accept_context": false }), "00", 1),
    ] {
        let traced = tracing_all(config.clone());
        traced.trial.get("/nowhere", &[("traceparent", &parent(flag))]).await;
        assert_eq!(traced.spans().len(), expected, "{config} {flag}");
    }
}

/// Its plugins can't be put together, so that none of them runs.
#[tokio::test]
async fn what_a_closed_proxy_refuses_has_a_span_and_is_recorded_as_a_failure() {
    let world = Machine::default().world();
    let mut spec = spec(json!({ "scope": "global" }), json!({ "sampler": "always_off" }));
    spec["consumers"] = json!([{ "id": "ann", "username": "ann" }]);
    spec["plugin_configs"].as_array_mut().unwrap().push(json!({ "id": "d", "plugin_name": "fault_injection",
        "proxy_id": "shop", "when": { "consumers": ["ann"] },
        "config": { "abort": { "percentage": 100, "status_code": 503 } } }));
    let traced = Traced { trial: Trial::of_spec(ENTRIES, &spec.to_string(), &world), world, queue: 16_384 };
    assert_eq!(traced.trial.closed(), ["shop"]);
    assert_eq!(traced.trial.get("/shop/items", &[]).await.status, 503);
    let spans = traced.spans();
    assert_eq!((spans.len(), &spans[0]["name"]), (1, &json!("GET /shop")));
    let about = attributes(&spans[0]);
    assert_eq!((about["error.type"].as_str(), about["ferrum.proxy.id"].as_str()), ("quarantined", "shop"));
    assert_eq!(traced.trial.get("/nowhere", &[]).await.status, 404);
    assert_eq!(traced.spans().len(), 0, "no failure");
}

#[tokio::test]
async fn only_a_global_config_sees_them_and_only_where_its_condition_holds() {
    let world = Machine::default().world();
    let spec_of = |scope| spec(scope, json!({})).to_string();
    let trial = Trial::of_spec(ENTRIES, &spec_of(json!({ "proxy_id": "shop" })), &world);
    let traced = Traced { trial, world, queue: 16_384 };
    assert_eq!(traced.trial.get("/nowhere", &[]).await.status, 404);
    assert_eq!(traced.spans().len(), 0);
    let world = Machine::default().world();
    let when = json!({ "scope": "global", "when": { "methods": ["POST"] } });
    let trial = Trial::of_spec(ENTRIES, &spec_of(when), &world);
    let traced = Traced { trial, world, queue: 16_384 };
    traced.trial.get("/nowhere", &[]).await;
    assert_eq!(traced.spans().len(), 0);
    traced.trial.request("POST", "/nowhere", &[], "").await;
    assert_eq!(traced.spans().len(), 1);
}

#[tokio::test]
async fn a_routed_request_has_no_second_span() {
    let traced = tracing_all(json!({}));
    assert_eq!(traced.trial.get("/shop", &[]).await.status, 200);
    assert_eq!(traced.spans().len(), 2, "the exchange and its attempt");
}

#[tokio::test]
async fn a_disabled_sdk_records_none_of_them() {
    let world = with_variables(&[("OTEL_SDK_DISABLED", "true")]).world();
    let spec = spec(json!({ "scope": "global" }), json!({ "response_header": "x-trace-id" })).to_string();
    let trial = Trial::of_spec(ENTRIES, &spec, &world);
    assert_eq!(trial.get("/nowhere", &[]).await.field("x-trace-id"), "");
}
