//! `otel_tracing` through a running gateway, with collectors that work, fail, or never answer.

use http::Method;

use crate::support::collector::Collector;
use crate::support::edge::Edge;
use crate::support::standing::Standing;
use crate::support::stream::{LOOPBACK, free_port, open, tcp_backend};
use crate::support::talk::{Ask, Client, Will, WireProtocol};
use crate::support::wire::{Port, Wire};

fn spec(origin: &Standing, config: &str) -> String {
    format!(
        "proxies:\n  - {{id: a, listen_path: /, {}}}\n\
         plugin_configs:\n  - {{id: t, plugin_name: otel_tracing, proxy_id: a, config: {config}}}\n",
        origin.backend(),
    )
}

const QUEUE: &str = "queue: {interval: 10ms}";

#[tokio::test]
async fn spans_come_to_a_collector_by_every_protocol() {
    let origin = Standing::start("o").await;
    for protocol in ["http/protobuf", "http/json", "grpc"] {
        let mut collector = Collector::speaking(protocol).await;
        let config = format!(
            "{{exporter: {{endpoint: 'http://{}', protocol: {protocol}, headers: {{x-tenant: shop}}, bearer_token: s3}}, \
              service_name: edge, resource_attributes: {{deployment.environment.name: test}}, {QUEUE}}}",
            collector.address
        );
        let edge = Edge::start(&spec(&origin, &config));
        let (head, body) = edge.get("/items").await;
        assert_eq!(head.status(), 200);
        let parent = body.lines().find_map(|line| line.strip_prefix("traceparent: ")).expect("a traceparent");
        let (spans, resource) = collector.spans(2).await;
        assert_eq!(resource["service.name"], "edge", "{protocol}");
        assert_eq!(resource["deployment.environment.name"], "test");
        let server = spans.iter().find(|span| span.kind == 2).expect("a server span");
        let client = spans.iter().find(|span| span.kind == 3).expect("a client span");
        assert_eq!(parent, format!("00-{}-{}-01", client.trace, client.id), "{protocol}");
        assert_eq!((&client.parent, &client.trace), (&server.id, &server.trace));
        assert_eq!((server.name.as_str(), server.attributes["url.path"].as_str()), ("GET /", "/items"));
        assert_eq!(server.attributes["http.response.status_code"], "200");
    }
}

/// What a client can write into a request: every byte that HTTP takes, and marks of what spans are written in.
fn odd_values() -> Vec<Vec<u8>> {
    let every: Vec<u8> = (0x20..=0xffu8).filter(|byte| *byte != 0x7f).chain([b'\t']).collect();
    let marks: [&[u8]; 4] = [
        b"\"}},{\"key\":\"forged\",\"value\":{\"stringValue\":\"x\"}},{\"key\":\"",
        b"\\\",\"forged\":\"",
        b"\xff\xfe\xc3",
        b"\xe2\x80\xa8\xc2\x85\\u0000",
    ];
    let marks = marks.into_iter().map(<[u8]>::to_vec);
    // Some values are longer than spans take.
    let long = [&b"\""[..], b"\xff", b"\\"].map(|unit| unit.repeat(12_000));
    std::iter::once(every).chain(marks).chain(long).collect()
}

#[tokio::test]
async fn no_value_breaks_a_span_or_adds_an_attribute() {
    let origin = Standing::start("o").await;
    for protocol in ["http/protobuf", "http/json", "grpc"] {
        let mut collector = Collector::speaking(protocol).await;
        let config = format!(
            "{{exporter: {{endpoint: 'http://{}', protocol: {protocol}}}, request_headers: [x-odd], {QUEUE}}}",
            collector.address
        );
        let own = "  - {id: r, plugin_name: request_termination, proxy_id: a, config: {status_code: 200}}\n";
        let edge = Edge::start(&(spec(&origin, &config) + own));
        let mut known = None;
        for value in [b"plain".to_vec()].into_iter().chain(odd_values()) {
            let mut wire = edge.wire().await;
            let head =
                b"GET /a%22%ff%0a?x=%22%00&y=%0d%0a HTTP/1.1\r\nhost: a\r\nconnection: close\r\nuser-agent: ";
            wire.send([&head[..], &value, b"\r\nx-odd: ", &value, b"\r\n\r\n"].concat()).await;
            wire.expect("HTTP/1.1 ").await;
            wire.rest().await;
            let (spans, _) = collector.spans(1).await;
            let attributes = spans.iter().map(|span| {
                let keys: Vec<_> = span.attributes.keys().cloned().collect();
                (span.kind, span.name.clone(), keys)
            });
            let mut attributes: Vec<_> = attributes.collect();
            attributes.sort();
            let shown = String::from_utf8_lossy(&value[..value.len().min(40)]).into_owned();
            assert_eq!(known.get_or_insert_with(|| attributes.clone()), &attributes, "{protocol} {shown}");
            let longest = spans.iter().flat_map(|span| span.attributes.values()).map(String::len).max();
            assert!(longest.unwrap_or(0) <= 16 << 10, "{protocol} {shown}: {longest:?} bytes");
        }
    }
}

#[tokio::test]
async fn requests_to_a_collector_have_their_path_and_fields() {
    let origin = Standing::start("o").await;
    let mut collector = Collector::http(&[]).await;
    let config = format!(
        "{{exporter: {{endpoint: 'http://{}/base/', headers: {{x-tenant: shop}}, bearer_token: s3, compression: gzip}}, {QUEUE}}}",
        collector.address
    );
    let edge = Edge::start(&spec(&origin, &config));
    edge.get("/items").await;
    let sent = collector.next().await;
    assert_eq!(sent.path, "/base/v1/traces");
    assert_eq!(
        (&sent.headers["x-tenant"], &sent.headers["authorization"]),
        (&"shop".parse::<http::HeaderValue>().unwrap(), &"Bearer s3".parse().unwrap())
    );
    assert_eq!(
        (&sent.headers["content-encoding"], &sent.body[..2]),
        (&"gzip".parse::<http::HeaderValue>().unwrap(), &[0x1f, 0x8b][..])
    );
}

#[tokio::test]
async fn spans_are_sent_again_to_a_collector_that_was_busy_and_the_rest_at_the_end() {
    let origin = Standing::start("o").await;
    let mut collector = Collector::http(&[503]).await;
    let config = format!("{{exporter: {{endpoint: 'http://{}'}}, {QUEUE}}}", collector.address);
    let edge = Edge::start(&spec(&origin, &config));
    edge.get("/items").await;
    assert_eq!(collector.next().await.path, "/v1/traces", "refused");
    assert_eq!(collector.spans(2).await.0.len(), 2, "sent again");
    let config =
        format!("{{exporter: {{endpoint: 'http://{}'}}, queue: {{interval: 3600000ms}}}}", collector.address);
    edge.reload(&spec(&origin, &config));
    edge.get("/last").await;
    edge.reload("proxies:\n");
    let (spans, _) = collector.spans(2).await;
    assert!(spans.iter().any(|span| span.attributes.get("url.path").is_some_and(|path| path == "/last")));
}

#[tokio::test]
async fn traffic_does_not_wait_for_a_collector() {
    let origin = Standing::start("o").await;
    // Nobody listens; and one that takes connections and never answers.
    let silent = Port::listen_on(([127, 0, 0, 1], 0).into(), None).await;
    for address in ["127.0.0.1:1".to_owned(), silent.address.to_string()] {
        let config = format!(
            "{{exporter: {{endpoint: 'http://{address}'}}, queue: {{max_spans: 10, interval: 1ms}}}}"
        );
        let mut edge = Edge::start(&spec(&origin, &config));
        for _ in 0..50 {
            let (head, _) = edge.get("/items").await;
            assert_eq!(head.status(), 200);
            edge.records.next().await;
        }
    }
}

#[tokio::test]
async fn records_have_the_ids_of_the_trace() {
    let origin = Standing::start("o").await;
    let mut collector = Collector::http(&[]).await;
    let config = format!("{{exporter: {{endpoint: 'http://{}'}}, {QUEUE}}}", collector.address);
    let mut edge = Edge::start(&spec(&origin, &config));
    for kind in [WireProtocol::H1, WireProtocol::H1Tls, WireProtocol::H2, WireProtocol::H2Tls] {
        let ask = Ask { method: Method::GET, path: "/", headers: &[], body: Will::Nothing };
        let mut client = Client::ask(&edge, kind, ask).await;
        assert_eq!(client.head().await.expect("an answer").status, 200);
        drop(client.body().await);
        let record = edge.records.next().await;
        let (spans, _) = collector.spans(2).await;
        let server = spans.iter().find(|span| span.kind == 2).expect("a server span");
        assert_eq!(
            (record.0["trace_id"].as_str(), record.0["span_id"].as_str()),
            (Some(&*server.trace), Some(&*server.id)),
            "{kind:?}"
        );
    }
}

#[tokio::test]
async fn a_tcp_session_is_a_span_with_the_ids_of_its_record() {
    let origin = Port::listen(None).await;
    let mut collector = Collector::http(&[]).await;
    let port = free_port();
    let mut edge = Edge::start_with(
        LOOPBACK,
        &format!(
            "proxies:\n  - {{id: a, listen_port: {port}, {}}}\n\
         plugin_configs:\n  - {{id: t, plugin_name: otel_tracing, proxy_id: a, \
         config: {{exporter: {{endpoint: 'http://{}'}}, {QUEUE}}}}}\n",
            tcp_backend(origin.address),
            collector.address
        ),
    );
    let mut client = open(port).await;
    client.send("up").await;
    let mut target = Wire::new(origin.accept().await);
    target.expect("up").await;
    client.shutdown().await;
    target.closed().await;
    target.shutdown().await;
    client.closed().await;
    let record = edge.records.next().await;
    let (spans, _) = collector.spans(1).await;
    assert_eq!(
        (record.0["trace_id"].as_str(), record.0["span_id"].as_str()),
        (Some(&*spans[0].trace), Some(&*spans[0].id)),
        "{record:?}"
    );
}

/// With tracing for all: a request that nothing serves, and one that is none, over each version.
#[tokio::test]
async fn what_no_proxy_serves_is_traced_as_long_as_tracing_is_global() {
    let origin = Standing::start("o").await;
    let mut collector = Collector::http(&[]).await;
    let spec = |scope: &str| {
        format!(
            "proxies:\n  - {{id: a, listen_path: /a, {}}}\n\
             plugin_configs:\n  - {{id: t, plugin_name: otel_tracing, {scope}, \
             config: {{exporter: {{endpoint: 'http://{}'}}, {QUEUE}}}}}\n",
            origin.backend(),
            collector.address
        )
    };
    let (all, one) = (spec("scope: global"), spec("proxy_id: a"));
    let mut edge = Edge::start(&one);
    assert_eq!(edge.get("/nowhere").await.0.status(), 404);
    assert!(edge.records.next().await.0["trace_id"].is_null(), "only the proxy is traced");
    edge.reload(&all);
    for kind in [WireProtocol::H1, WireProtocol::H1Tls, WireProtocol::H2, WireProtocol::H2Tls] {
        let ask = Ask { method: Method::GET, path: "/nowhere", headers: &[], body: Will::Nothing };
        let mut client = Client::ask(&edge, kind, ask).await;
        assert_eq!(client.head().await.expect("an answer").status, 404);
        drop(client.body().await);
        let record = edge.records.next().await;
        let (spans, _) = collector.spans(1).await;
        assert_eq!((spans[0].name.as_str(), spans[0].kind), ("GET", 2), "{kind:?}");
        assert_eq!(record.0["trace_id"].as_str(), Some(&*spans[0].trace), "{kind:?}");
    }
    let mut wire = edge.wire().await;
    wire.send("GET / HTTP/1.1\r\nhost: a\r\nbad name: 1\r\n\r\n").await;
    wire.expect("HTTP/1.1 400").await;
    let (spans, _) = collector.spans(1).await;
    assert_eq!(spans[0].attributes["http.response.status_code"], "400");
    edge.records.next().await;
    edge.reload(&one);
    assert_eq!(edge.get("/nowhere").await.0.status(), 404);
    assert!(edge.records.next().await.0["trace_id"].is_null(), "tracing is the proxy's own again");
}
