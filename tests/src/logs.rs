//! Access records through a running gateway to servers that take them: syslog, lines, batches, Loki, OTLP.

mod ending;
mod flapping;
mod rsyslog;

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt, BufReader};
use tokio::net::UdpSocket;

use crate::support::collector::Collector;
use crate::support::edge::Edge;
use crate::support::names::{Names, Zone};
use crate::support::soon;
use crate::support::standing::Standing;
use crate::support::stream::free_port;
use crate::support::wire::{Port, Wire};

fn start(origin: &Standing, sink: &str) -> Edge {
    let settings = format!("    sinks:\n      - {{name: s, interval: 10ms, {sink}}}");
    Edge::start_with(&settings, &format!("proxies:\n  - {{id: a, listen_path: /, {}}}\n", origin.backend()))
}

fn fields(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// What the admin API says of the gateway.
async fn status(admin: SocketAddr) -> Value {
    let mut wire = Wire::open(admin).await;
    wire.send("GET /v1/status HTTP/1.0\r\nhost: localhost\r\n\r\n").await;
    let answer = String::from_utf8_lossy(&wire.rest().await).into_owned();
    fields(answer.split_once("\r\n\r\n").expect("a body").1)
}

#[tokio::test]
async fn syslog_takes_a_datagram_for_each_record() {
    let origin = Standing::start("o").await;
    let server = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let address = server.local_addr().expect("an address");
    let edge =
        start(&origin, &format!("syslog: {{address: 'udp://{address}', facility: 3, app_name: edge}}"));
    for path in ["/one", "/two"] {
        edge.get(path).await;
        let mut space = [0; 65_536];
        let length = soon(server.recv(&mut space)).await.expect("a datagram");
        let message = std::str::from_utf8(&space[..length]).expect("UTF-8");
        let (head, line) = message.split_once(" access - ").expect("a head");
        let words: Vec<&str> = head.split(' ').collect();
        assert_eq!(
            (words[0], words[3], words[4]),
            ("<30>1", "edge", std::process::id().to_string().as_str()),
            "{head}"
        );
        assert!(words[1].ends_with('Z') && words.len() == 5, "{head}");
        assert_eq!(fields(line)["url.path"], path);
    }
}

#[tokio::test]
async fn records_name_the_upstream_that_was_chosen() {
    let (own, canary) = (Standing::start("own").await, Standing::start("canary").await);
    let server = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let address = server.local_addr().expect("an address");
    let settings =
        format!("    sinks:\n      - {{name: s, interval: 10ms, syslog: {{address: 'udp://{address}'}}}}");
    let edge = Edge::start_with(
        &settings,
        &format!(
            "proxies:\n  - {{id: a, listen_path: /, upstream_id: own}}\n\
             upstreams:\n  - {{id: own, targets: [{}]}}\n  - {{id: canary, targets: [{}]}}\n\
             plugin_configs:\n  - {{id: s, plugin_name: traffic_split, scope: proxy, proxy_id: a, config: {{splits: [{{weight: 1}}], \
             overrides: [{{header: x-canary, upstream_id: canary}}]}}}}\n",
            own.target(),
            canary.target()
        ),
    );
    for (field, expected) in [("x-other", "own"), ("x-canary", "canary")] {
        let request = format!("GET / HTTP/1.1\r\nhost: a.test\r\n{field}: 1\r\nconnection: close\r\n\r\n");
        edge.ask(&request).await;
        let mut space = [0; 65_536];
        let length = soon(server.recv(&mut space)).await.expect("a datagram");
        let message = std::str::from_utf8(&space[..length]).expect("UTF-8");
        let (_, line) = message.split_once(" access - ").expect("a head");
        assert_eq!(fields(line)["upstream.id"], expected);
        let connected = format!(
            "ferrum_upstream_connection_duration_seconds_count{{upstream=\"{expected}\",phase=\"connect\"}} 1"
        );
        assert!(edge.metrics().await.contains(&connected), "{connected}");
    }
}

#[tokio::test]
async fn datagrams_go_where_the_gateways_name_servers_say() {
    let origin = Standing::start("o").await;
    let names = Names::start(Zone::Address([127, 0, 0, 1]));
    let [logs, statsd] = [UdpSocket::bind("127.0.0.1:0").await, UdpSocket::bind("127.0.0.1:0").await];
    let [logs, statsd] = [logs, statsd].map(|socket| socket.expect("a socket"));
    let port = |socket: &UdpSocket| socket.local_addr().expect("an address").port();
    let settings = format!(
        "    sinks:\n      - {{name: s, interval: 10ms, syslog: {{address: 'udp://logs.test:{}'}}}}\n{}\n  \
         metrics: {{statsd: {{address: 'udp://logs.test:{}', interval: 100ms}}}}",
        port(&logs),
        names.setting(),
        port(&statsd)
    );
    let edge = Edge::start_with(
        &settings,
        &format!("proxies:\n  - {{id: a, listen_path: /, {}}}\n", origin.backend()),
    );
    edge.get("/one").await;
    let mut space = [0; 65_536];
    let length = soon(logs.recv(&mut space)).await.expect("a datagram");
    assert!(String::from_utf8_lossy(&space[..length]).contains("\"url.path\":\"/one\""));
    soon(statsd.recv(&mut space)).await.expect("a datagram");
}

#[tokio::test]
async fn a_sink_that_cannot_send_says_why_in_the_status() {
    let origin = Standing::start("o").await;
    let port = free_port();
    let edge = start(&origin, &format!("tcp: {{address: 'tcp://127.0.0.1:{port}'}}, retry_for: 0ms"));
    let admin = edge.gateway.serve_admin(([127, 0, 0, 1], 0).into()).expect("an admin listener");
    edge.get("/one").await;
    let shown = async {
        loop {
            let status = status(admin).await;
            // The sink knows it a moment before its task is seen to have failed.
            let task = &status["plugin_tasks"]["tasks"][0];
            if status["log_sinks"][0]["last_error"].is_string() && task["last_error"].is_string() {
                return status;
            }
        }
    };
    let status = soon(shown).await;
    let sink = &status["log_sinks"][0];
    let wanted = format!("connect_failed: connect to 127.0.0.1:{port}: Connection refused");
    assert!(sink["last_error"].as_str().expect("text").contains(&wanted), "{sink}");
    assert!(sink["name"] == "s" && sink["failing_since"].is_string(), "{sink}");
    assert_eq!(status["plugin_tasks"]["tasks"][0]["last_error"], sink["last_error"]);
}

#[tokio::test]
async fn syslog_over_tcp_counts_octets_and_lines_end_with_a_feed() {
    let origin = Standing::start("o").await;
    let port = Port::listen_on(([127, 0, 0, 1], 0).into(), None).await;
    let edge = start(
        &origin,
        &format!("syslog: {{address: 'tcp://{}'}}, template: '${{request.path}}'", port.address),
    );
    edge.get("/one").await;
    edge.get("/two").await;
    let mut stream = BufReader::new(soon(port.accept_ever()).await);
    for path in ["/one", "/two"] {
        let mut length = String::new();
        loop {
            match soon(stream.read_u8()).await.expect("a length") {
                b' ' => break,
                digit => length.push(char::from(digit)),
            }
        }
        let mut message = vec![0; length.parse().expect("a number")];
        soon(stream.read_exact(&mut message)).await.expect("a message");
        let message = String::from_utf8(message).expect("UTF-8");
        assert!(
            message.starts_with("<134>1 ") && message.ends_with(&format!(" access - {path}")),
            "{message}"
        );
    }
    let port = Port::listen_on(([127, 0, 0, 1], 0).into(), None).await;
    let edge =
        start(&origin, &format!("tcp: {{address: 'tcp://{}'}}, template: '${{request.path}}'", port.address));
    edge.get("/one").await;
    let mut stream = soon(port.accept_ever()).await;
    let mut line = [0; 5];
    soon(stream.read_exact(&mut line)).await.expect("a line");
    assert_eq!(&line, b"/one\n");
    // The server goes away: what comes then goes over a new connection.
    drop(stream);
    edge.get("/two").await;
    let mut stream = soon(port.accept_ever()).await;
    soon(stream.read_exact(&mut line)).await.expect("a line");
    assert_eq!(&line, b"/two\n");
}

#[tokio::test]
async fn batches_are_posted_and_tried_again() {
    let origin = Standing::start("o").await;
    let mut server = Collector::http(&[503]).await;
    let sink = format!(
        "http: {{url: 'http://{}/in?x=1', bearer_token: s3, headers: {{x-team: blue}}}}, response_headers: [x-origin, set-cookie]",
        server.address
    );
    let edge = start(&origin, &sink);
    edge.get("/one?token=s3cret").await;
    let refused = server.next().await;
    let taken = server.next().await;
    assert_eq!(refused.body, taken.body, "sent again after a 503");
    assert_eq!(
        (taken.path.as_str(), taken.field("authorization"), taken.field("x-team")),
        ("/in?x=1", "Bearer s3", "blue")
    );
    let text = String::from_utf8(taken.body).expect("UTF-8");
    assert!(text.ends_with("}\n") && !text.contains("s3cret"), "{text}");
    let line = fields(text.lines().next().expect("a line"));
    assert_eq!((&line["url.path"], &line["http.response.header.x-origin"]), (&"/one".into(), &"o".into()));
}

#[tokio::test]
async fn loki_gets_a_stream_with_labels() {
    let origin = Standing::start("o").await;
    let mut server = Collector::http(&[]).await;
    let sink = format!(
        "loki: {{url: 'http://{}', labels: {{job: edge}}, tenant: t, compression: none}}, format: logfmt",
        server.address
    );
    let edge = start(&origin, &sink);
    edge.get("/a%22b").await;
    let sent = server.next().await;
    assert_eq!((sent.path.as_str(), sent.field("x-scope-orgid")), ("/loki/api/v1/push", "t"));
    let push: Value = serde_json::from_slice(&sent.body).expect("JSON");
    assert_eq!(push["streams"][0]["stream"]["job"], "edge");
    let value = &push["streams"][0]["values"][0];
    assert!(value[0].as_str().expect("a time").parse::<u64>().expect("nanoseconds") > 1 << 60);
    assert!(value[1].as_str().expect("a line").contains("url.path=/a%22b "), "{value}");
}

#[tokio::test]
async fn a_collector_gets_log_records() {
    let origin = Standing::start("o").await;
    let mut server = Collector::http(&[]).await;
    let sink =
        format!("otlp: {{endpoint: 'http://{}', protocol: http/json}}, when: {{path: /one}}", server.address);
    let edge = start(&origin, &sink);
    edge.get("/two").await;
    edge.get("/one").await;
    let sent = server.next().await;
    assert_eq!(sent.path, "/v1/logs");
    let request: Value = serde_json::from_slice(&sent.body).expect("JSON");
    let records = request["resourceLogs"][0]["scopeLogs"][0]["logRecords"].as_array().expect("records");
    assert_eq!((records.len(), &records[0]["body"]["stringValue"]), (1, &"GET /one 200".into()));
    let attributes = records[0]["attributes"].as_array().expect("attributes");
    assert!(
        attributes.iter().any(|pair| pair["key"] == "url.path" && pair["value"]["stringValue"] == "/one")
    );
}

/// Labels are the names of configured things: what clients write is in none of them, whatever looks at it.
#[tokio::test]
async fn no_value_of_a_client_comes_into_the_metrics() {
    let spec = r#"
proxies:
  - {id: a, listen_path: "~/(?<part>.*)", backend_scheme: http, backend_host: 127.0.0.1, backend_port: 1}
plugin_configs:
  - {id: k, plugin_name: key_auth, scope: global, config: {anonymous: nobody}}
  - {id: l, plugin_name: rate_limiting, scope: global, config: {limits: [{rate: 1000, per: 1m}], limit_by: 'header:x-odd'}}
  - {id: r, plugin_name: request_termination, scope: global, config: {status_code: 200}}
consumers:
  - {id: nobody, username: nobody}
"#;
    let edge = Edge::start(spec);
    let pages = [b"plain".as_slice(), b"\"forged\" 1\t\xff", b"\\\"} 1 forged{x=\""];
    let mut series: Vec<Vec<String>> = Vec::new();
    for value in pages {
        let mut wire = edge.wire().await;
        let head = b"GET /forged%0a%22 HTTP/1.1\r\nhost: forged\r\nconnection: close\r\nx-api-key: ";
        wire.send([&head[..], value, b"\r\nx-odd: ", value, b"\r\n\r\n"].concat()).await;
        wire.expect("HTTP/1.1 ").await;
        wire.rest().await;
        let page = [edge.metrics().await, edge.meters()].concat();
        let lines = page.lines().filter(|line| line.starts_with("ferrum_"));
        let names = lines.map(|line| {
            let (name, number) = line.rsplit_once(' ').expect("a number");
            assert!(number.parse::<f64>().is_ok(), "{line}");
            name.to_owned()
        });
        series.push(names.collect());
        assert!(!page.contains("forged"), "{page}");
    }
    assert!(
        series[0].iter().any(|name| name.starts_with("ferrum_proxy_requests_total{proxy=\"a\"")),
        "{series:?}"
    );
    assert_eq!((&series[1], &series[2]), (&series[0], &series[0]));
}

#[tokio::test]
async fn metrics_are_pushed_by_otlp_and_statsd() {
    let origin = Standing::start("o").await;
    let mut collector = Collector::http(&[]).await;
    let statsd = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let settings = format!(
        "  metrics:\n    otlp: {{exporter: {{endpoint: 'http://{}', protocol: http/json}}, interval: 100ms}}\n    \
         statsd: {{address: 'udp://{}', prefix: edge., interval: 100ms}}",
        collector.address,
        statsd.local_addr().expect("an address"),
    );
    let spec = format!("proxies:\n  - {{id: shop, listen_path: /, {}}}\n", origin.backend());
    let edge = Edge::start_with(&settings, &spec);
    edge.get("/").await;
    let mut space = [0; 65_536];
    loop {
        let length = soon(statsd.recv(&mut space)).await.expect("a datagram");
        let lines = std::str::from_utf8(&space[..length]).expect("UTF-8");
        let line = "edge.ferrum_proxy_requests:1|c|#proxy:shop,http_response_status_class:2xx";
        if lines.lines().any(|known| known == line) {
            break;
        }
    }
    loop {
        let sent = collector.next().await;
        assert_eq!(sent.path, "/v1/metrics");
        let request: Value = serde_json::from_slice(&sent.body).expect("JSON");
        let metrics =
            request["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().expect("metrics");
        let point = metrics.iter().find(|metric| metric["name"] == "ferrum_proxy_request_duration_seconds");
        let Some(point) =
            point.map(|metric| &metric["histogram"]["dataPoints"][0]).filter(|it| !it.is_null())
        else {
            continue;
        };
        assert_eq!(
            (&point["count"], &point["attributes"][0]["value"]["stringValue"]),
            (&"1".into(), &"shop".into())
        );
        break;
    }
}

#[tokio::test]
async fn metrics_are_pushed_by_otlp_over_grpc() {
    let origin = Standing::start("o").await;
    let mut collector = Collector::grpc().await;
    let settings = format!(
        "  metrics:\n    otlp: {{exporter: {{endpoint: 'http://{}', protocol: grpc, bearer_token: s3}}, interval: 100ms}}",
        collector.address,
    );
    let spec = format!("proxies:\n  - {{id: shop, listen_path: /, {}}}\n", origin.backend());
    let edge = Edge::start_with(&settings, &spec);
    edge.get("/").await;
    let has = |body: &[u8], text: &str| body.windows(text.len()).any(|piece| piece == text.as_bytes());
    loop {
        let sent = collector.next().await;
        assert_eq!(sent.path, "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export");
        assert_eq!(
            (sent.field("content-type"), sent.field("authorization")),
            ("application/grpc", "Bearer s3")
        );
        // They come in several calls, and the proxy is an attribute of a point once there was a request.
        if has(&sent.body, "ferrum_proxy_request_duration_seconds") && has(&sent.body, "shop") {
            break;
        }
    }
}

#[tokio::test]
async fn traffic_does_not_wait_for_a_sink() {
    let origin = Standing::start("o").await;
    let silent = Port::listen_on(([127, 0, 0, 1], 0).into(), None).await;
    for sink in [
        "tcp: {address: 'tcp://127.0.0.1:1'}, queue: 5".to_owned(),
        format!("http: {{url: 'http://{}'}}, queue: 5", silent.address),
    ] {
        let mut edge = start(&origin, &sink);
        for _ in 0..50 {
            assert_eq!(edge.get("/").await.0.status(), 200);
            edge.records.next().await;
        }
    }
}
