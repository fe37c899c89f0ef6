//! What becomes of records and counters when the gateway ends, and when a reload puts other places for them in use.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use tokio::net::UdpSocket;

use super::{fields, start};
use crate::support::collector::Collector;
use crate::support::edge::Edge;
use crate::support::h1::Talker;
use crate::support::soon;
use crate::support::standing::Standing;
use crate::support::wire::{Port, Wire};

#[tokio::test]
async fn the_record_of_what_the_end_cuts_off_is_sent() {
    let silent = Port::listen_on(([127, 0, 0, 1], 0).into(), None).await;
    let mut server = Collector::http(&[]).await;
    let settings = format!(
        "    sinks:\n      - {{name: s, interval: 600000ms, http: {{url: 'http://{}'}}}}",
        server.address
    );
    let address = silent.address;
    let spec = format!(
        "proxies:\n  - {{id: a, listen_path: /, backend_scheme: http, backend_host: {}, backend_port: {}}}\n",
        address.ip(),
        address.port()
    );
    let edge = Edge::start_with(&settings, &spec);
    let mut client = edge.wire().await;
    client.send("GET /cut HTTP/1.1\r\nhost: a.test\r\n\r\n").await;
    let mut target = Talker::new(Wire::new_patient(silent.accept_ever().await));
    target.request().await.expect("a request");
    let page = edge.meters_at_the_end().await;
    let sent = server.next().await;
    let line = fields(std::str::from_utf8(&sent.body).expect("UTF-8").trim_end());
    assert_eq!((&line["url.path"], &line["error.type"]), (&"/cut".into(), &"drained".into()));
    assert!(page.contains("{sink=\"s\",outcome=\"sent\"} 1\n"), "{page}");
}

#[tokio::test]
async fn a_server_that_answers_500_is_asked_again() {
    let origin = Standing::start("o").await;
    let mut server = Collector::http(&[500]).await;
    let edge = start(&origin, &format!("loki: {{url: 'http://{}'}}", server.address));
    edge.get("/one").await;
    let (refused, taken) = (server.next().await, server.next().await);
    assert_eq!(refused.body, taken.body);
    let page = edge.meters_at_the_end().await;
    assert!(page.contains("{sink=\"s\",outcome=\"sent\"} 1\n"), "{page}");
}

#[tokio::test]
async fn counters_are_not_pushed_again_after_a_reload() {
    let origin = Standing::start("o").await;
    let statsd = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let settings = format!(
        "  metrics:\n    statsd: {{address: 'udp://{}', interval: 100ms}}",
        statsd.local_addr().expect("an address")
    );
    let spec = format!("proxies:\n  - {{id: shop, listen_path: /, {}}}\n", origin.backend());
    let mut edge = Edge::start_with(&settings, &spec);
    edge.get("/").await;
    edge.records.next().await;
    let mut space = [0; 65_536];
    let mut counted = 0;
    while counted == 0 {
        let length = soon(statsd.recv(&mut space)).await.expect("a datagram");
        counted += requests(&space[..length]);
    }
    // The push before sends once more, this one at its end only.
    edge.reload_with("interval: 100ms", "interval: 600000ms, prefix: edge.", &spec);
    edge.get("/").await;
    edge.records.next().await;
    edge.meters_at_the_end().await;
    while let Ok(length) = statsd.try_recv(&mut space) {
        counted += requests(&space[..length]);
    }
    assert_eq!(counted, 2);
}

/// By how much a datagram says that the requests of a proxy grew.
fn requests(datagram: &[u8]) -> u32 {
    let lines = std::str::from_utf8(datagram).expect("UTF-8").lines();
    let grown = lines.filter_map(|line| {
        let (_, rest) = line.split_once("ferrum_proxy_requests:")?;
        rest.split_once("|c|#proxy:shop,http_response_status_class:2xx")?.0.parse::<u32>().ok()
    });
    grown.sum()
}

#[tokio::test]
async fn counters_of_otlp_began_with_the_gateway_also_after_a_reload() {
    let origin = Standing::start("o").await;
    let mut collector = Collector::http(&[]).await;
    let settings = format!(
        "  metrics:\n    otlp: {{exporter: {{endpoint: 'http://{}', protocol: http/json}}, interval: 600000ms}}",
        collector.address
    );
    let spec = format!("proxies:\n  - {{id: shop, listen_path: /, {}}}\n", origin.backend());
    let mut edge = Edge::start_with(&settings, &spec);
    let mut begun = BTreeSet::new();
    edge.reload_with("600000", "500000", &spec);
    begun.insert(begun_of(&mut collector).await);
    edge.meters_at_the_end().await;
    begun.insert(begun_of(&mut collector).await);
    assert_eq!(begun.len(), 1, "{begun:?}");
}

/// Since when the counters of the next push count.
async fn begun_of(collector: &mut Collector) -> String {
    loop {
        let sent = collector.next().await;
        let request: Value = serde_json::from_slice(&sent.body).expect("JSON");
        let metrics = &request["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
        let mut sums =
            metrics.as_array().expect("metrics").iter().map(|metric| &metric["sum"]["dataPoints"][0]);
        if let Some(point) = sums.find(|point| !point.is_null()) {
            return point["startTimeUnixNano"].as_str().expect("a time").to_owned();
        }
    }
}

#[tokio::test]
async fn points_that_a_collector_refuses_keep_no_others_from_it() {
    let origin = Standing::start("o").await;
    let port = Port::listen_on(([127, 0, 0, 1], 0).into(), None).await;
    let settings = format!(
        "  metrics:\n    otlp: {{exporter: {{endpoint: 'http://{}', protocol: http/json}}, interval: 600000ms}}",
        port.address
    );
    let spec = format!("proxies:\n  - {{id: shop, listen_path: /, {}}}\n", origin.backend());
    let edge = Edge::start_with(&settings, &spec);
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let _server = tokio::spawn(async move {
        let mut talker = Talker::new(Wire::new_patient(port.accept_ever().await));
        while talker.request().await.is_ok() && talker.body().await.is_ok() {
            count.fetch_add(1, Ordering::Relaxed);
            let body = r#"{"partialSuccess":{"rejectedDataPoints":"1","errorMessage":"no"}}"#;
            let head = talker.send_head("HTTP/1.1 200 OK", &[], Some(body.len())).await;
            head.and(talker.send_data(body.as_bytes()).await).expect("a client");
        }
    });
    let page = edge.meters_at_the_end().await;
    assert!(asked.load(Ordering::Relaxed) > 1);
    assert!(page.contains("{to=\"otlp\",outcome=\"failed\"} 1\n"), "{page}");
}

/// Who leaves in the middle of a response has had its status and some of its bytes.
#[tokio::test]
async fn a_response_that_is_cut_off_is_recorded_as_far_as_it_came() {
    let target = Port::listen_on(([127, 0, 0, 1], 0).into(), None).await;
    let address = target.address;
    let mut edge = Edge::start(&format!(
        "proxies:\n  - {{id: a, listen_path: /, backend_scheme: http, backend_host: {}, backend_port: {}}}\n",
        address.ip(),
        address.port()
    ));
    for is_sent in [true, false] {
        let mut client = edge.wire().await;
        client.send("GET /cut HTTP/1.1\r\nhost: a.test\r\n\r\n").await;
        let mut far = Talker::new(Wire::new_patient(target.accept_ever().await));
        far.request().await.expect("a request");
        if is_sent {
            far.wire.send("HTTP/1.1 206 Partial Content\r\ncontent-length: 1000\r\n\r\nsome").await;
            client.until(b"some").await.expect("the beginning");
        }
        drop(client);
        let record = edge.records.next().await;
        let expected = if is_sent { (206, 4) } else { (499, 0) };
        let got = (record.status(), record.0["http.response.body.size"].as_u64().unwrap_or_default());
        assert_eq!((got, record.reason()), (expected, "client_gone"));
    }
}
