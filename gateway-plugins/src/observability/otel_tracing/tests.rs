//! Contexts and spans of requests through the real pipeline; spans are read from the queue, as JSON.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gateway_core::config::problem::Problems;
use gateway_core::http::body::Body;
use gateway_core::plugin::{Entry, Registry, World, entry};
use gateway_core::testing::Trial;
use gateway_plugin_common::testing::{Machine, metric};
use gateway_telemetry::batch::{Batches, Limits};
use http::Response;
use serde_json::{Value, json};

use super::*;

const ENTRIES: &[Entry] = &[
    entry::<OtelTracing>(),
    entry::<crate::content::fault_injection::FaultInjection>(),
    entry::<crate::transformation::response_transformer::ResponseTransformer>(),
];
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// A trial with its world, whose queue a test empties.
struct Traced {
    trial: Trial,
    world: World,
    queue: usize,
}

fn traced(config: Value) -> Traced {
    traced_with(config, json!([]), json!({}), Machine::default())
}

fn traced_with(mut config: Value, plugins: Value, proxy: Value, machine: Machine) -> Traced {
    config["exporter"]["protocol"] = json!("http/json");
    let queue = config["queue"]["max_spans"].as_u64().unwrap_or(16_384) as usize;
    let mut proxies = json!({
        "id": "shop", "listen_path": "/shop", "backend_host": "target.test", "backend_port": 80,
        "backend_scheme": "http", "backend_path": "/v1",
    });
    proxies.as_object_mut().unwrap().extend(proxy.as_object().unwrap().clone());
    let mut configs =
        vec![json!({ "id": "t", "plugin_name": "otel_tracing", "proxy_id": "shop", "config": config })];
    configs.extend(plugins.as_array().unwrap().iter().cloned());
    let spec = json!({ "proxies": [proxies], "plugin_configs": configs, "upstreams": [
        { "id": "pair", "targets": [{ "host": "one.test", "port": 81 }, { "host": "two.test", "port": 82 }] },
    ]});
    let world = machine.world();
    Traced { trial: Trial::of_spec(ENTRIES, &spec.to_string(), &world), world, queue }
}

impl Traced {
    /// The spans that wait, in the order in which they were written.
    fn spans(&self) -> Vec<Value> {
        let limits = Limits {
            items: self.queue,
            bytes: 16 << 20,
            chunk_items: self.queue.min(512),
            chunk_bytes: 1 << 20,
        };
        let owner =
            gateway_core::plugin::world::Owner { plugin: "otel_tracing", config: "t".parse().unwrap() };
        let name = format!("{limits:?}{:?}", Some(b','));
        let batches =
            self.world.owned_by(owner).kept(&name, || -> Batches { panic!("the plugin has no such queue") });
        let mut spans = Vec::new();
        while let Some(chunk) = batches.take() {
            let text = format!("[{}]", String::from_utf8(chunk.bytes).expect("UTF-8"));
            let read: Vec<Value> =
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            assert_eq!(read.len(), chunk.items);
            spans.extend(read);
        }
        spans
    }

    fn traceparents(&self) -> Vec<String> {
        self.trial.asked().iter().map(|asked| asked.field("traceparent").to_owned()).collect()
    }
}

fn attributes(span: &Value) -> BTreeMap<String, String> {
    let all = span["attributes"].as_array().unwrap().iter().map(|pair| {
        let value = pair["value"].as_object().unwrap().values().next().unwrap();
        (
            pair["key"].as_str().unwrap().to_owned(),
            value.as_str().map_or_else(|| value.to_string(), str::to_owned),
        )
    });
    let all: Vec<_> = all.collect();
    let map: BTreeMap<_, _> = all.iter().cloned().collect();
    assert_eq!(map.len(), all.len(), "an attribute twice: {all:?}");
    map
}

fn named<'s>(spans: &'s [Value], name: &str) -> &'s Value {
    spans.iter().find(|span| span["name"] == name).unwrap_or_else(|| panic!("no span {name}: {spans:#?}"))
}

#[tokio::test]
async fn a_request_without_context_begins_a_trace() {
    let traced = traced(json!({ "response_header": "x-trace-id" }));
    let got = traced.trial.get("/shop/items?page=1&token=s3cret", &[("user-agent", "test")]).await;
    let sent = traced.traceparents();
    let parts: Vec<&str> = sent[0].split('-').collect();
    assert_eq!((parts[0], parts[1].len(), parts[3]), ("00", 32, "01"));
    assert_eq!(got.field("x-trace-id"), parts[1]);
    let spans = traced.spans();
    assert_eq!(spans.len(), 2);
    let (client, server) = (named(&spans, "GET"), named(&spans, "GET /shop"));
    assert_eq!((&server["traceId"], &client["traceId"]), (&json!(parts[1]), &json!(parts[1])));
    assert_eq!(client["spanId"], json!(parts[2]), "the target is told the span of the attempt");
    assert_eq!((&client["parentSpanId"], server.get("parentSpanId")), (&server["spanId"], None));
    assert_eq!((&server["kind"], &client["kind"], server.get("status")), (&json!(2), &json!(3), None));
    let time = |span: &Value, key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
    assert!(time(server, "startTimeUnixNano") <= time(client, "startTimeUnixNano"));
    assert!(time(client, "endTimeUnixNano") <= time(server, "endTimeUnixNano"));
    let about = attributes(server);
    for (key, value) in [
        ("http.request.method", "GET"),
        ("url.path", "/shop/items"),
        ("url.query", "page=1&token=REDACTED"),
        ("url.scheme", "http"),
        ("http.route", "/shop"),
        ("server.address", "client.test"),
        ("client.address", "192.0.2.1"),
        ("http.response.status_code", "200"),
        ("network.protocol.version", "1.1"),
        ("user_agent.original", "test"),
        ("ferrum.proxy.id", "shop"),
    ] {
        assert_eq!(about.get(key).map(String::as_str), Some(value), "{key}: {about:#?}");
    }
    let about = attributes(client);
    assert_eq!(about["url.full"], "http://target.test:80/v1/items?page=1&token=REDACTED");
    assert_eq!((about["server.address"].as_str(), about["server.port"].as_str()), ("target.test", "80"));
    assert_eq!(
        (about["http.response.status_code"].as_str(), about["ferrum.connection.reused"].as_str()),
        ("200", "false")
    );
}

#[tokio::test]
async fn a_context_that_came_in_goes_on() {
    let traced = traced(json!({}));
    let parent = format!("00-{TRACE}-{PARENT}-01");
    traced.trial.get("/shop", &[("traceparent", &parent), ("tracestate", "a=1, b=2")]).await;
    let asked = &traced.trial.asked()[0];
    let span = asked.field("traceparent").split('-').nth(2).unwrap().to_owned();
    assert!(asked.field("traceparent").starts_with(&format!("00-{TRACE}-")) && span != PARENT);
    assert_eq!(asked.field("tracestate"), "a=1,b=2");
    let spans = traced.spans();
    let server = named(&spans, "GET /shop");
    assert_eq!((&server["traceId"], &server["parentSpanId"]), (&json!(TRACE), &json!(PARENT)));
    assert_eq!((&server["traceState"], &server["flags"]), (&json!("a=1,b=2"), &json!(0x301)));
    for bad in [&[("traceparent", "00-0-0-01")][..], &[("traceparent", &parent), ("traceparent", &parent)]] {
        let fields: Vec<_> = bad.iter().copied().chain([("tracestate", "a=1")]).collect();
        traced.trial.get("/shop", &fields).await;
        let asked = traced.trial.asked().pop().unwrap();
        assert_eq!(asked.headers.get_all("traceparent").iter().count(), 1);
        assert!(!asked.field("traceparent").contains(TRACE), "{}", asked.field("traceparent"));
        assert!(!asked.headers.contains_key("tracestate"));
    }
}

#[tokio::test]
async fn a_client_that_is_not_trusted_has_no_say() {
    let traced = traced(json!({ "accept_context": false, "propagators": ["tracecontext", "baggage", "b3"] }));
    let parent = format!("00-{TRACE}-{PARENT}-00");
    traced.trial.get("/shop", &[("traceparent", &parent), ("baggage", "user=1"), ("b3", "0")]).await;
    let asked = &traced.trial.asked()[0];
    assert!(!asked.field("traceparent").contains(TRACE) && asked.field("traceparent").ends_with("-01"));
    assert!(!asked.headers.contains_key("baggage"));
    assert!(asked.field("b3").ends_with("-1"));
    assert_eq!(named(&traced.spans(), "GET /shop").get("parentSpanId"), None);
}

#[tokio::test]
async fn what_is_not_sampled_is_only_recorded_when_it_fails_or_is_slow() {
    let unsampled = format!("00-{TRACE}-{PARENT}-00");
    let traced = traced(json!({}));
    traced.trial.get("/shop", &[("traceparent", &unsampled)]).await;
    assert!(traced.traceparents()[0].ends_with("-00"));
    assert!(traced.spans().is_empty());
    let failing = |config: Value| {
        let mut traced = traced_with(config, json!([]), json!({}), Machine::default());
        traced.trial =
            traced.trial.answering(|_| Response::builder().status(500).body(Body::empty()).unwrap());
        traced
    };
    let with = failing(json!({ "sampler": "always_off" }));
    with.trial.get("/shop", &[]).await;
    let spans = with.spans();
    assert_eq!(spans.len(), 2, "the attempt as well");
    let server = named(&spans, "GET /shop");
    assert_eq!((&server["status"]["code"], attributes(server)["error.type"].as_str()), (&json!(2), "500"));
    assert_eq!(server["flags"], json!(0x100), "nobody else is asked to record it");
    let without = failing(json!({ "sampler": "always_off", "record_errors": false }));
    without.trial.get("/shop", &[]).await;
    assert!(without.spans().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_slow_is_recorded_with_the_plugin_that_waited() {
    let delay = json!([{ "id": "d", "plugin_name": "fault_injection", "proxy_id": "shop",
        "config": { "delay": { "percentage": 100, "duration": "300ms" } } }]);
    let slow = |limit: u64| {
        let config = json!({ "sampler": "always_off", "record_slower_than": format!("{limit}ms") });
        traced_with(config, delay.clone(), json!({}), Machine::default())
    };
    let traced = slow(301);
    traced.trial.get("/shop", &[]).await;
    assert!(traced.spans().is_empty());
    let traced = slow(300);
    traced.trial.get("/shop", &[]).await;
    let spans = traced.spans();
    let (waited, server) = (named(&spans, "fault_injection"), named(&spans, "GET /shop"));
    assert_eq!((&waited["kind"], &waited["parentSpanId"]), (&json!(1), &server["spanId"]));
    let time = |key: &str| waited[key].as_str().unwrap().parse::<u64>().unwrap();
    assert!(
        time("endTimeUnixNano") - time("startTimeUnixNano") >= Duration::from_millis(300).as_nanos() as u64
    );
    let about = attributes(waited);
    assert_eq!(
        (about["ferrum.plugin.hook"].as_str(), about["ferrum.plugin.config"].as_str()),
        ("request", "d")
    );
}

#[tokio::test]
async fn a_share_of_traces_is_recorded() {
    let traced = traced(json!({ "sampler": "traceidratio", "sample_ratio": 0.0 }));
    traced.trial.get("/shop", &[("traceparent", &format!("00-{TRACE}-{PARENT}-01"))]).await;
    assert!(traced.traceparents()[0].ends_with("-00"), "whatever the client says");
    assert!(traced.spans().is_empty());
}

#[tokio::test]
async fn every_attempt_has_a_span_and_the_target_is_told_of_its_own() {
    let retry = json!({ "upstream_id": "pair", "backend_host": null, "backend_port": null,
        "retry": { "max_retries": 2, "retryable_status_codes": [503] } });
    let mut traced = traced_with(json!({}), json!([]), retry, Machine::default());
    let answers = Arc::new(Mutex::new(vec![200, 503]));
    traced.trial = traced.trial.answering(move |_| {
        let status: u16 = answers.lock().unwrap().pop().unwrap_or(500);
        Response::builder().status(status).body(Body::empty()).unwrap()
    });
    assert_eq!(traced.trial.get("/shop", &[]).await.status, 200);
    let spans = traced.spans();
    assert_eq!(spans.len(), 3, "{spans:#?}");
    let told: Vec<String> =
        traced.traceparents().iter().map(|it| it.split('-').nth(2).unwrap().to_owned()).collect();
    assert_eq!((&spans[0]["spanId"], &spans[1]["spanId"]), (&json!(told[0]), &json!(told[1])));
    let (first, second) = (attributes(&spans[0]), attributes(&spans[1]));
    assert_eq!((first["http.response.status_code"].as_str(), first["error.type"].as_str()), ("503", "503"));
    assert_eq!(spans[0]["status"]["code"], json!(2));
    assert!(!first.contains_key("http.request.resend_count"));
    assert_eq!(second["http.request.resend_count"], "1");
    assert_ne!(first["server.address"], second["server.address"]);
    assert_eq!(second["ferrum.upstream.id"], "pair");
    assert_eq!(attributes(&spans[2])["ferrum.attempts"], "2");
}

#[tokio::test]
async fn other_formats_are_read_and_written() {
    let traced = traced(json!({ "propagators": ["b3multi", "jaeger"] }));
    let fields = [
        ("x-b3-traceid", TRACE),
        ("x-b3-spanid", PARENT),
        ("x-b3-sampled", "1"),
        ("traceparent", "untouched"),
    ];
    traced.trial.get("/shop", &fields).await;
    let asked = &traced.trial.asked()[0];
    assert_eq!((asked.field("x-b3-traceid"), asked.field("x-b3-sampled")), (TRACE, "1"));
    assert!(asked.field("uber-trace-id").starts_with(TRACE));
    assert_eq!(asked.field("traceparent"), "untouched", "a format that is not listed is nobody's business");
    assert_eq!(named(&traced.spans(), "GET /shop")["parentSpanId"], json!(PARENT));
}

#[tokio::test]
async fn hostile_values_neither_break_nor_forge_a_span() {
    let config = json!({ "request_headers": ["x-odd", "x-many"], "baggage_attributes": ["user"] });
    let traced = traced(config);
    let huge = "a".repeat(1 << 20);
    let mut request = http::Request::get("/shop/%22%7D%5D?q=%22,%22forged%22:1").body(Body::empty()).unwrap();
    let headers = request.headers_mut();
    headers.insert("x-odd", HeaderValue::from_bytes(b"\"},{\"traceId\":\"x\"\xff\t").unwrap());
    headers.append("x-many", huge.parse().unwrap());
    headers.append("x-many", "two".parse().unwrap());
    headers.insert("user-agent", huge.parse().unwrap());
    headers.insert("baggage", "user=a%22%0A".parse().unwrap());
    traced.trial.send(request).await;
    let spans = traced.spans();
    assert_eq!(spans.len(), 2);
    let about = attributes(named(&spans, "GET /shop"));
    assert!(about["user_agent.original"].len() < 3000, "cut off");
    assert_eq!(about["baggage.user"], "a\"\n");
    assert!(about["http.request.header.x-odd"].contains('\u{fffd}'), "{about:#?}");
    assert!(about["http.request.header.x-many"].contains("two"));
}

#[tokio::test]
async fn credentials_are_not_sent() {
    let config = json!({ "request_headers": ["authorization", "cookie", "x-api-key", "x-plain"], "redact_query": ["Pin"] });
    let traced = traced(config);
    let fields = [
        ("authorization", "Bearer s3cret"),
        ("cookie", "sid=s3cret; b=s3cret"),
        ("x-api-key", "s3cret"),
        ("x-plain", "shown"),
    ];
    traced.trial.get("/shop?pin=s3cret&token=s3cret&a=1", &fields).await;
    let spans = traced.spans();
    let about = attributes(named(&spans, "GET /shop"));
    assert!(!format!("{spans:?}").contains("s3cret"), "{about:#?}");
    assert_eq!(about["url.query"], "pin=REDACTED&token=REDACTED&a=1");
    assert!(about["http.request.header.authorization"].contains("Bearer REDACTED"), "{about:#?}");
    assert!(about["http.request.header.cookie"].contains("sid=REDACTED; b=REDACTED"), "{about:#?}");
    assert!(about["http.request.header.x-plain"].contains("shown"), "{about:#?}");
}

#[tokio::test]
async fn refusals_are_traced_and_problem_documents_name_the_trace() {
    let plugins = json!([{ "id": "d", "plugin_name": "fault_injection", "proxy_id": "shop",
        "config": { "abort": { "percentage": 100, "status_code": 503 } } }]);
    let traced = traced_with(json!({}), plugins, json!({}), Machine::default());
    let got = traced.trial.get("/shop", &[]).await;
    let spans = traced.spans();
    assert_eq!(got.json()["trace_id"], spans[0]["traceId"]);
    assert_eq!((spans.len(), got.status, &spans[0]["status"]["code"]), (1, 503, &json!(2)));
}

#[tokio::test]
async fn templates_know_the_trace() {
    let plugins = json!([{ "id": "r", "plugin_name": "response_transformer", "proxy_id": "shop",
        "config": { "rules": [{ "operation": "add", "target": "header", "key": "x-ids",
            "value": "${trace.id}/${trace.span_id}" }] } }]);
    let traced = traced_with(json!({}), plugins, json!({}), Machine::default());
    let got = traced.trial.get("/shop", &[]).await;
    let spans = traced.spans();
    let server = named(&spans, "GET /shop");
    let ids = format!("{}/{}", server["traceId"].as_str().unwrap(), server["spanId"].as_str().unwrap());
    assert_eq!(got.field("x-ids"), ids);
}

#[tokio::test]
async fn a_full_queue_loses_spans_and_counts_them() {
    let traced = traced(json!({ "queue": { "max_spans": 3 } }));
    for _ in 0..3 {
        assert_eq!(traced.trial.get("/shop", &[]).await.status, 200);
    }
    // Two spans each: those of a request are taken or lost together.
    assert_eq!(metric(&traced.world, "ferrum_otel_spans_total", &["queue_full"]), 4);
    assert_eq!(traced.spans().len(), 2);
}

#[tokio::test]
async fn a_queue_smaller_than_a_request_has_its_own_span() {
    let traced = traced(json!({ "queue": { "max_spans": 1 } }));
    assert_eq!(traced.trial.get("/shop", &[]).await.status, 200);
    assert_eq!(metric(&traced.world, "ferrum_otel_spans_total", &["queue_full"]), 1);
    let spans = traced.spans();
    assert_eq!(spans.len(), 1);
    named(&spans, "GET /shop");
}

#[tokio::test]
async fn grpc_calls_have_their_names() {
    let traced = traced_with(json!({}), json!([]), json!({ "listen_path": "/" }), Machine::default());
    let fields = [("content-type", "application/grpc"), ("te", "trailers")];
    traced.trial.request("POST", "/shop.Cart/Add", &fields, "").await;
    let spans = traced.spans();
    let about = attributes(named(&spans, "shop.Cart/Add"));
    assert_eq!((about["rpc.service"].as_str(), about["rpc.method"].as_str()), ("shop.Cart", "Add"));
    assert_eq!(about["rpc.system"], "grpc");
}

/// The status is in the trailers, or in the head of a response without messages.
#[tokio::test]
async fn grpc_calls_have_their_status() {
    for (in_head, code, server_failed) in
        [(false, "5", false), (false, "13", true), (true, "14", true), (false, "0", false)]
    {
        let config = json!({ "sampler": "always_off" });
        let mut traced = traced_with(config, json!([]), json!({ "listen_path": "/" }), Machine::default());
        traced.trial = traced.trial.answering(move |_| {
            let status: HeaderValue = code.parse().unwrap();
            if in_head {
                return Response::builder().header("grpc-status", status).body(Body::empty()).unwrap();
            }
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", status);
            Response::new(Body::full_with_trailers("message", trailers))
        });
        let fields = [("content-type", "application/grpc"), ("te", "trailers")];
        let got = traced.trial.request("POST", "/shop.Cart/Add", &fields, "").await;
        assert!(in_head || got.trailers.is_some_and(|trailers| trailers["grpc-status"] == code));
        let spans = traced.spans();
        // Nothing is sampled but failures.
        assert_eq!(spans.is_empty(), !server_failed, "{code}: {spans:?}");
        if server_failed {
            for span in [named(&spans, "shop.Cart/Add"), named(&spans, "POST")] {
                assert_eq!(attributes(span)["rpc.grpc.status_code"], code);
                assert_eq!(span["status"]["code"], 2);
            }
        }
    }
}

fn with_variables(variables: &[(&str, &str)]) -> Machine {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Machine { variables: Arc::new(variables.collect()), ..Machine::default() }
}

#[tokio::test]
async fn the_environment_gives_defaults() {
    let machine = with_variables(&[
        ("OTEL_PROPAGATORS", "b3, none"),
        ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", "0"),
    ]);
    let traced = traced_with(json!({}), json!([]), json!({}), machine);
    traced.trial.get("/shop", &[]).await;
    let asked = &traced.trial.asked()[0];
    assert!(asked.field("b3").ends_with("-0") && !asked.headers.contains_key("traceparent"));
    let machine = with_variables(&[("OTEL_PROPAGATORS", "b3"), ("OTEL_TRACES_SAMPLER", "always_off")]);
    let config = json!({ "propagators": ["tracecontext"], "sampler": "always_on" });
    let traced = traced_with(config, json!([]), json!({}), machine);
    traced.trial.get("/shop", &[]).await;
    assert!(traced.traceparents()[0].ends_with("-01"), "settings come before the environment");
}

#[tokio::test]
async fn a_disabled_sdk_records_nothing_and_passes_good_contexts_on() {
    let traced =
        traced_with(json!({}), json!([]), json!({}), with_variables(&[("OTEL_SDK_DISABLED", "true")]));
    let parent = format!("00-{TRACE}-{PARENT}-01");
    let got = traced.trial.get("/shop", &[("traceparent", &parent), ("tracestate", "a=1")]).await;
    assert_eq!(got.status, 200);
    traced.trial.get("/shop", &[("traceparent", "bad")]).await;
    assert_eq!(traced.traceparents(), [parent, String::new()]);
}

fn refused(config: Value, variables: &[(&str, &str)]) -> Problems {
    let registry = Registry::new(ENTRIES).with_world(with_variables(variables).world());
    match registry.build("otel_tracing", None, &config) {
        Ok(_) => panic!("{config} {variables:?} is taken"),
        Err(problems) => problems,
    }
}

#[test]
fn bad_settings_are_named() {
    for (config, path) in [
        (json!({ "exporter": { "endpoint": "collector" } }), "config.exporter.endpoint"),
        (json!({ "exporter": { "headers": { "a b": "c" } } }), "config.exporter.headers"),
        (json!({ "exporter": { "bearer_token": "a\nb" } }), "config.exporter.bearer_token"),
        (json!({ "exporter": { "client_cert_path": "a" } }), "config.exporter"),
        (json!({ "sample_ratio": 0.5 }), "config.sample_ratio"),
        (json!({ "request_headers": ["a b"] }), "config.request_headers[0]"),
        (json!({ "propagators": ["b3"], "baggage_attributes": ["a"] }), "config.baggage_attributes"),
        (json!({ "response_header": "a b" }), "config.response_header"),
        (json!({ "sampler": "some" }), "config.sampler"),
        (json!({ "queue": { "max_spans": 0 } }), "config.queue.max_spans"),
    ] {
        assert_eq!(refused(config.clone(), &[]).0[0].path, path, "{config}");
    }
    for (name, value) in [
        ("OTEL_PROPAGATORS", "xray"),
        ("OTEL_TRACES_SAMPLER", "some"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "carrier-pigeon"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zip"),
        ("OTEL_RESOURCE_ATTRIBUTES", "=x"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
    ] {
        assert_eq!(refused(json!({}), &[(name, value)]).0[0].path, name);
    }
}

mod credentials;
mod unrouted;
