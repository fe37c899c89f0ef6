//! Targets that are found by DNS SRV records.

use std::time::Duration;

use http::Method;
use tokio::time::Instant;

use crate::support::edge::Edge;
use crate::support::h1::Talker;
use crate::support::h2;
use crate::support::names::{Names, Srv, Zone};
use crate::support::soon;
use crate::support::standing::Standing;
use crate::support::stream::{Echo, LOOPBACK, free_port, open};
use crate::support::wire::{Port, Wire};

const SERVICE: &str = "srv:_http._tcp.shop.test";

/// A server of the service, on this machine.
fn srv(priority: u16, weight: u16, port: u16) -> Srv {
    (priority, weight, port, "localhost")
}

fn server(priority: u16, weight: u16, origin: &Standing) -> Srv {
    srv(priority, weight, origin.address.port())
}

/// A proxy whose upstream has these fields.
fn spec(fields: &str) -> String {
    format!(
        "proxies:\n  - {{id: a, listen_path: /, backend_scheme: http, upstream_id: u}}\n\
         upstreams:\n  - {{id: u, {fields}}}\n"
    )
}

fn found_by(names: &Names, fields: &str) -> Edge {
    Edge::start_with(&names.setting(), &spec(&format!("targets: [{{host: '{SERVICE}'}}]{fields}")))
}

/// The upstream's targets: port, weight and priority.
fn targets(edge: &Edge) -> Vec<(u16, u16, u8)> {
    let snapshot = edge.gateway.snapshot();
    let targets = snapshot.upstreams.get("u").expect("the upstream").list();
    targets.iter().map(|target| (target.rules.port, target.rules.weight, target.rules.priority)).collect()
}

/// Waits until something holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let mut looks = tokio::time::interval(Duration::from_millis(20));
    let waiting = async {
        while !holds() {
            looks.tick().await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(30), waiting).await.is_ok(), "{what}");
}

/// Who answers a request.
async fn answered_by(edge: &Edge) -> String {
    let (head, _) = edge.get("/").await;
    assert_eq!(head.status(), 200);
    head.field("x-origin").to_owned()
}

#[tokio::test]
async fn servers_get_traffic_by_their_weights_from_the_first_request_on() {
    let (a, b) = (Standing::start("a").await, Standing::start("b").await);
    let names = Names::start(Zone::Servers(vec![server(1, 30, &a), server(1, 10, &b)]));
    let edge = found_by(&names, "");
    for _ in 0..40 {
        answered_by(&edge).await;
    }
    assert_eq!((a.served(), b.served()), (30, 10));
}

#[tokio::test]
async fn priorities_are_tiers_and_what_fails_is_ejected() {
    let (a, b) = (Standing::start("a").await, Standing::start("b").await);
    let (first, second) = (server(10, 1, &a), server(20, 1, &b));
    let names = Names::start(Zone::Servers(vec![second, first]));
    let edge = found_by(&names, "");
    assert_eq!(targets(&edge), [(first.2, 1, 0), (second.2, 1, 1)]);
    for _ in 0..5 {
        assert_eq!(answered_by(&edge).await, "a");
    }
    drop(a);
    // Failover costs nobody an error, and after three failures the first tier is out.
    for _ in 0..6 {
        assert_eq!(answered_by(&edge).await, "b");
    }
    let snapshot = edge.gateway.snapshot();
    let list = snapshot.upstreams.get("u").unwrap().list();
    assert!(!list[0].is_healthy(Instant::now()) && list[1].is_healthy(Instant::now()));
}

#[tokio::test]
async fn found_servers_are_probed() {
    let (a, b) = (Standing::start("a").await, Standing::start("b").await);
    let names = Names::start(Zone::Servers(vec![server(1, 1, &a), server(1, 1, &b)]));
    b.answer(500);
    let probes = "interval: 1, unhealthy_threshold: 1, http_path: /health";
    let edge = found_by(&names, &format!(", health_checks: {{active: {{{probes}}}}}"));
    let port = b.address.port();
    until("the probe takes one out", || {
        let snapshot = edge.gateway.snapshot();
        let list = snapshot.upstreams.get("u").unwrap().list();
        list.iter().any(|target| target.rules.port == port && !target.is_healthy(Instant::now()))
    })
    .await;
}

#[tokio::test]
async fn another_answer_takes_the_place_of_the_one_before_and_old_servers_end_what_they_have() {
    let (held, b) = (Port::listen(None).await, Standing::start("b").await);
    let names = Names::start(Zone::Servers(vec![srv(1, 1, held.address.port())]));
    let edge = found_by(&names, "");
    let mut client = edge.talker().await;
    client.wire.send("GET /slow HTTP/1.1\r\nhost: a.test\r\n\r\n").await;
    let mut old = Talker::new(Wire::new_patient(held.accept_ever().await));
    soon(old.request()).await.unwrap();

    names.set(Zone::Servers(vec![server(1, 1, &b)]));
    let only_new = [(b.address.port(), 1, 0)];
    until("the new answer is in use", || targets(&edge) == only_new).await;
    for _ in 0..3 {
        assert_eq!(answered_by(&edge).await, "b");
    }
    // The request under way is answered by the server that has it.
    old.send_head("HTTP/1.1 200 OK", &[("x-origin", "old")], Some(2)).await.unwrap();
    old.send_data(b"ok").await.unwrap();
    let head = soon(client.response(&Method::GET)).await.unwrap();
    assert_eq!((head.status(), head.field("x-origin")), (200, "old"));
    assert_eq!(soon(client.body()).await.unwrap(), b"ok");
}

#[tokio::test]
async fn the_last_answer_stays_while_dns_fails() {
    let a = Standing::start("a").await;
    let names = Names::start(Zone::Servers(vec![server(1, 1, &a)]));
    let edge = found_by(&names, "");
    for broken in [Zone::Fails, Zone::Unknown] {
        names.set(broken);
        let before = names.asked();
        until("it is asked again", || names.asked() > before).await;
        assert_eq!(answered_by(&edge).await, "a");
        assert_eq!(targets(&edge), [(a.address.port(), 1, 0)]);
    }
    // A reload does not lose it either.
    edge.reload(&spec(&format!("targets: [{{host: '{SERVICE}', max_requests: 50}}]")));
    assert_eq!(answered_by(&edge).await, "a");
}

#[tokio::test]
async fn a_service_without_servers_is_refused_until_it_has_some() {
    let a = Standing::start("a").await;
    let names = Names::start(Zone::Servers(Vec::new()));
    let mut edge = found_by(&names, "");
    let (head, _) = edge.get("/").await;
    assert_eq!((head.status(), head.field("retry-after")), (503, "1"));
    assert_eq!(edge.records.next().await.reason(), "no_target");
    names.set(Zone::Servers(vec![server(1, 1, &a)]));
    until("it is found", || !targets(&edge).is_empty()).await;
    assert_eq!(answered_by(&edge).await, "a");
}

#[tokio::test]
async fn found_servers_and_configured_ones_go_together() {
    let (a, b) = (Standing::start("a").await, Standing::start("b").await);
    let names = Names::start(Zone::Servers(vec![server(5, 2, &a)]));
    let spec = spec(&format!(
        "targets: [{{host: '{SERVICE}', weight: 3, priority: 1, tags: {{zone: z}}}}, {}]",
        b.target()
    ));
    let edge = Edge::start_with(&names.setting(), &spec);
    assert_eq!(targets(&edge), [(a.address.port(), 6, 1), (b.address.port(), 1, 0)]);
    assert_eq!(answered_by(&edge).await, "b");
    drop(b);
    assert_eq!(answered_by(&edge).await, "a");
}

#[tokio::test]
async fn streams_find_their_servers_too() {
    let echo = Echo::start().await;
    let names = Names::start(Zone::Servers(vec![srv(1, 1, echo.address.port())]));
    let port = free_port();
    let spec = format!(
        "proxies:\n  - {{id: a, listen_port: {port}, backend_scheme: tcp, upstream_id: u}}\n\
         upstreams:\n  - {{id: u, targets: [{{host: '{SERVICE}'}}]}}\n"
    );
    let edge = Edge::start_with(&format!("{LOOPBACK}\n{}", names.setting()), &spec);
    let mut client = open(port).await;
    client.send("hello").await;
    client.expect("hello").await;
    drop(edge);
}

/// What a proxy's host, whose name is looked up for a second at a time, is now.
fn named(names: &Names, port: u16, version: &str) -> Edge {
    let spec = format!(
        "proxies:\n  - {{id: a, listen_path: /, backend_scheme: http, backend_host: shop.test, backend_port: {port}, \
         backend_http_version: '{version}'}}\n"
    );
    Edge::start_with(&names.setting(), &spec)
}

/// Connections that are kept and never idle for long go where the name leads now.
#[tokio::test]
async fn a_name_that_moves_takes_busy_connections_along() {
    let names = Names::start(Zone::Address([127, 0, 0, 1]));
    let one = Standing::start("one").await;
    // The same port of another address of this machine.
    let other = Standing::start_at(([127, 0, 0, 2], one.address.port()).into(), "other").await;
    let edge = named(&names, one.address.port(), "1.1");
    assert_eq!(answered_by(&edge).await, "one");
    names.set(Zone::Address([127, 0, 0, 2]));
    // Nothing but traffic has it looked up again.
    let mut every = tokio::time::interval(Duration::from_millis(50));
    let moving = async {
        while answered_by(&edge).await != "other" {
            every.tick().await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(60), moving).await.is_ok());
    assert!(other.served() > 0);
}

/// The same over HTTP/2. What is under way ends where it began.
#[tokio::test]
async fn a_name_that_moves_takes_shared_connections_along() {
    let names = Names::start(Zone::Address([127, 0, 0, 1]));
    let one = Port::listen(None).await;
    let port = one.address.port();
    let mut first = h2::origin(one);
    let mut second = h2::origin(Port::listen_on(([127, 0, 0, 2], port).into(), None).await);
    let edge = named(&names, port, "2");
    let mut long = edge.talker().await;
    long.wire.send("GET /long HTTP/1.1\r\nhost: a.test\r\n\r\n").await;
    let (_, mut respond) = soon(first.recv()).await.expect("a stream");
    let mut under_way = respond.send_response(http::Response::new(()), false).expect("a head");
    names.set(Zone::Address([127, 0, 0, 2]));
    let mut every = tokio::time::interval(Duration::from_millis(50));
    let moving = async {
        loop {
            every.tick().await;
            let asking = edge.get("/");
            let answering = async {
                let (is_second, (_, mut respond)) = tokio::select! {
                    stream = first.recv() => (false, stream.expect("a stream")),
                    stream = second.recv() => (true, stream.expect("a stream")),
                };
                respond.send_response(http::Response::new(()), true).expect("a head");
                is_second
            };
            if tokio::join!(asking, answering).1 {
                return;
            }
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(60), moving).await.is_ok());
    h2::send(&mut under_way, b"the end", true).await.expect("it goes on");
    let response = long.response(&Method::GET).await.expect("an answer");
    assert_eq!(response.status(), 200);
    let body = long.body().await.expect("a body");
    assert_eq!(body, b"the end");
}
