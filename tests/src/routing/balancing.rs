//! Several targets: which one is asked, which one no more, and what is tried again.

use std::collections::HashMap;

use http::Method;

use crate::support::edge::Edge;
use crate::support::standing::Standing;
use crate::support::wire::{Port, Wire};

/// One proxy (`fields` more) to an upstream (`rules` more) of these targets.
fn spec(targets: &[String], fields: &str, rules: &str) -> String {
    format!(
        "proxies:\n  - {{id: a, listen_path: /, backend_scheme: http, upstream_id: u{fields}}}\n\
         upstreams:\n  - {{id: u, targets: [{}]{rules}}}\n",
        targets.join(", ")
    )
}

/// A target nobody listens at: a port that only root may take, and that no test is given by chance.
const DEAD: &str = "{host: 127.0.0.1, port: 1}";

async fn names(edge: &Edge, requests: usize) -> HashMap<String, usize> {
    let mut names = HashMap::new();
    for _ in 0..requests {
        let (head, _) = edge.get("/").await;
        assert_eq!(head.status(), 200);
        *names.entry(head.field("x-origin").to_owned()).or_default() += 1;
    }
    names
}

#[tokio::test]
async fn three_targets_in_turn() {
    let origins = [Standing::start("a").await, Standing::start("b").await, Standing::start("c").await];
    let edge = Edge::start(&spec(&origins.each_ref().map(Standing::target), "", ""));
    let names = names(&edge, 9).await;
    assert_eq!(names.len(), 3);
    assert!(names.values().all(|count| *count == 3), "{names:?}");
}

#[tokio::test]
async fn a_target_that_cannot_be_reached_is_passed_over_also_by_a_post() {
    let live = Standing::start("live").await;
    let targets = [DEAD.to_owned(), live.target()];
    let mut edge = Edge::start(&spec(&targets, ", retry: {max_retries: 2, budget_percent: 1000}", ""));
    let mut attempts = 0;
    for _ in 0..4 {
        let (head, _) = edge.ask("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi").await;
        assert_eq!(head.status(), 200);
        attempts = attempts.max(edge.records.next().await.attempts());
    }
    assert_eq!(attempts, 2);
}

#[tokio::test]
async fn without_a_retry_rule_a_dead_target_is_a_502() {
    let mut edge = Edge::start(&spec(&[DEAD.to_owned()], "", ""));
    let (head, body) = edge.get("/").await;
    assert_eq!(head.status(), 502);
    assert!(body.contains("connect_failed") && !body.contains("127.0.0.1"), "{body}");
    let record = edge.only_record().await;
    assert_eq!((record.reason(), record.attempts()), ("connect_failed", 1));
}

/// A request that may have been carried out is not sent again, unless doing it twice is doing it once.
#[tokio::test]
async fn what_reached_a_target_is_repeated_only_when_idempotent() {
    for (method, status, attempts) in
        [(Method::POST, 502, 1), (Method::PATCH, 502, 1), (Method::GET, 200, 2), (Method::PUT, 200, 2)]
    {
        let port = Port::listen(None).await;
        let targets = [format!("{{host: 127.0.0.1, port: {}}}", port.address.port())];
        let mut edge = Edge::start(&spec(&targets, ", retry: {max_retries: 3, budget_percent: 1000}", ""));
        let mut talker = edge.talker().await;
        talker.wire.send(format!("{method} / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi")).await;
        let mut first = Wire::new(port.accept().await);
        first.until(b"hi").await.unwrap();
        drop(first);
        if attempts == 2 {
            let mut second = Wire::new(port.accept().await);
            second.until(b"hi").await.unwrap();
            second.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        }
        assert_eq!(talker.response(&method).await.unwrap().status(), status, "{method}");
        assert_eq!(edge.records.next().await.attempts(), attempts, "{method}");
    }
}

#[tokio::test]
async fn a_status_is_retried_elsewhere() {
    let (bad, good) = (Standing::start("bad").await, Standing::start("good").await);
    bad.answer(503);
    let retry = ", retry: {max_retries: 1, retryable_status_codes: [503], budget_percent: 1000}";
    let mut edge = Edge::start(&spec(&[bad.target(), good.target()], retry, ""));
    for _ in 0..4 {
        assert_eq!(edge.get("/").await.0.field("x-origin"), "good");
        edge.records.next().await;
    }
    assert!(bad.served() > 0);
    // A POST is passed on as it is.
    let mut statuses = Vec::new();
    for _ in 0..2 {
        let (head, _) = edge.ask("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi").await;
        statuses.push(head.status());
        assert_eq!(edge.records.next().await.attempts(), 1);
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 503]);
}

/// Whether there is a retry doesn't depend on how the bytes of a short body arrive.
#[tokio::test]
async fn a_short_body_is_there_for_a_retry() {
    let (bad, good) = (Standing::start("bad").await, Standing::start("good").await);
    bad.answer(503);
    let retry = ", retry: {max_retries: 1, retryable_status_codes: [503], retryable_methods: [POST], budget_percent: 1000}";
    let mut edge = Edge::start(&spec(&[bad.target(), good.target()], retry, ""));
    let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n";
    // The first target in turn is either of them.
    for _ in 0..2 {
        let mut talker = edge.talker().await;
        talker.wire.send(format!("{head}h")).await;
        // The gateway has seen it meanwhile.
        edge.ask("DELETE /other HTTP/1.1\r\nhost: a\r\n\r\n").await;
        edge.records.next().await;
        talker.wire.send("i").await;
        let response = talker.response(&Method::POST).await.unwrap();
        assert_eq!(response.status(), 200);
        edge.records.next().await;
    }
    // One of unknown length is passed on as it comes.
    let mut statuses = Vec::new();
    for _ in 0..2 {
        let chunked = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
        statuses.push(edge.ask(chunked).await.0.status());
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 503]);
}

/// Retries are a share of the load, so that they never double it.
#[tokio::test]
async fn the_budget_ends_retries() {
    let bad = Standing::start("bad").await;
    bad.answer(503);
    let retry = ", retry: {max_retries: 1, retryable_status_codes: [503], budget_percent: 10}";
    let edge = Edge::start(&spec(&[bad.target(), bad.target().replace("127.0.0.1", "localhost")], retry, ""));
    for _ in 0..200 {
        assert_eq!(edge.get("/").await.0.status(), 503);
    }
    let retries = bad.served() - 200;
    assert!((1..=60).contains(&retries), "{retries} retries of 200 requests");
}

#[tokio::test]
async fn a_target_that_fails_gets_no_more_traffic() {
    let (bad, good) = (Standing::start("bad").await, Standing::start("good").await);
    bad.answer(500);
    let passive = ", health_checks: {passive: {unhealthy_threshold: 2, healthy_after: 3600}}";
    let edge = Edge::start(&spec(&[bad.target(), good.target()], "", passive));
    for _ in 0..10 {
        edge.get("/").await;
    }
    assert_eq!(bad.served(), 2);
    assert_eq!(names(&edge, 5).await.get("good"), Some(&5));
}

#[tokio::test]
async fn a_breaker_opens_and_tries_again_later() {
    let origin = Standing::start("o").await;
    origin.answer(500);
    let breaker = ", circuit_breaker: {failure_threshold: 2, success_threshold: 1, timeout: 1}";
    let mut edge = Edge::start(&spec(&[origin.target()], breaker, ""));
    for _ in 0..2 {
        assert_eq!(edge.get("/").await.0.status(), 500);
        edge.records.next().await;
    }
    let (head, body) = edge.get("/").await;
    assert_eq!((head.status(), head.field("retry-after")), (503, "1"));
    assert!(body.contains("circuit_open"), "{body}");
    assert_eq!(edge.only_record().await.reason(), "circuit_open");
    assert_eq!(origin.served(), 2, "an open breaker lets nothing through");
    origin.answer(200);
    // The breaker's own clock decides when; ask until it lets one through.
    crate::support::soon(async {
        while edge.get("/").await.0.status() != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(edge.get("/").await.0.status(), 200);
}

/// A kept connection that died while it waited is nobody's fault, and nobody notices.
#[tokio::test]
async fn dead_kept_connections_are_replaced() {
    let origin = Standing::abrupt("o").await;
    let mut edge = Edge::start(&spec(&[origin.target()], "", ""));
    let mut talker = edge.talker().await;
    for _ in 0..50 {
        talker.wire.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        assert_eq!(talker.response(&Method::GET).await.unwrap().status(), 200);
        talker.body().await.unwrap();
        assert_eq!(edge.records.next().await.reason(), "");
    }
    assert_eq!(origin.connections(), 50);
}

/// And those that live are used again.
#[tokio::test]
async fn living_connections_are_kept() {
    let origin = Standing::start("o").await;
    let edge = Edge::start(&spec(&[origin.target()], "", ""));
    for _ in 0..20 {
        assert_eq!(edge.get("/").await.0.status(), 200);
    }
    assert_eq!(origin.connections(), 1);
}

#[tokio::test]
async fn one_dead_target_of_two_costs_nobody_an_error() {
    let live = Standing::start("live").await;
    let mut edge = Edge::start(&spec(&[DEAD.to_owned(), live.target()], "", ""));
    let mut attempts = Vec::new();
    for _ in 0..12 {
        let (head, _) = edge.ask("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi").await;
        assert_eq!(head.status(), 200);
        attempts.push(edge.records.next().await.attempts());
    }
    assert_eq!(
        attempts.iter().filter(|attempts| **attempts == 2).count(),
        3,
        "then it is left alone: {attempts:?}"
    );
}

#[tokio::test]
async fn failover_can_be_switched_off_and_so_can_leaving_a_target_alone() {
    let live = Standing::start("live").await;
    let targets = [DEAD.to_owned(), live.target()];
    let never_out = ", health_checks: {passive: {unhealthy_threshold: 0}}";
    let edge = Edge::start(&spec(&targets, ", retry: {retry_on_connect_failure: false}", never_out));
    let mut failed = 0;
    for _ in 0..12 {
        failed += usize::from(edge.get("/").await.0.status() == 502);
    }
    assert_eq!(failed, 6);
}

#[tokio::test]
async fn a_backup_is_asked_only_when_the_others_are_gone() {
    let (backup, live) = (Standing::start("backup").await, Standing::start("live").await);
    let with = |target: String, priority| format!("{}, priority: {priority}}}", target.trim_end_matches('}'));
    let edge = Edge::start(&spec(&[with(backup.target(), 1), live.target()], "", ""));
    assert_eq!(names(&edge, 6).await, HashMap::from([("live".to_owned(), 6)]));
    let edge = Edge::start(&spec(&[with(backup.target(), 1), DEAD.to_owned()], "", ""));
    assert_eq!(names(&edge, 6).await, HashMap::from([("backup".to_owned(), 6)]));
}

#[tokio::test]
async fn a_sticky_cookie_brings_a_client_back() {
    let origins = [Standing::start("a").await, Standing::start("b").await, Standing::start("c").await];
    let sticky = ", sticky: {cookie: at, cookie_config: {path: /shop, ttl: 0, secure: true, same_site: Lax}}";
    let edge = Edge::start(&spec(&origins.each_ref().map(Standing::target), "", sticky));
    for _ in 0..3 {
        let (head, _) = edge.get("/").await;
        let cookie = head.field("set-cookie").to_owned();
        assert!(cookie.ends_with("; Path=/shop; HttpOnly; SameSite=Lax; Secure"), "{cookie}");
        let pair = cookie.split(';').next().unwrap();
        for _ in 0..4 {
            let (again, _) = edge.ask(&format!("GET / HTTP/1.1\r\nhost: a\r\ncookie: {pair}\r\n\r\n")).await;
            assert_eq!(again.field("x-origin"), head.field("x-origin"));
            assert_eq!(again.field("set-cookie"), "", "it has the cookie already");
        }
    }
}

#[tokio::test]
async fn a_hashed_cookie_is_given_and_brings_a_client_back() {
    let origins = [Standing::start("a").await, Standing::start("b").await, Standing::start("c").await];
    let rules = ", algorithm: consistent_hashing, hash_on: \"cookie:id\", hash_on_cookie_config: {ttl: 60}";
    let edge = Edge::start(&spec(&origins.each_ref().map(Standing::target), "", rules));
    let mut seen = HashMap::new();
    for _ in 0..24 {
        let (head, _) = edge.get("/").await;
        let cookie = head.field("set-cookie").to_owned();
        assert!(cookie.ends_with("; Path=/; Max-Age=60; HttpOnly"), "{cookie}");
        let pair = cookie.split(';').next().unwrap();
        let (again, _) = edge.ask(&format!("GET / HTTP/1.1\r\nhost: a\r\ncookie: {pair}\r\n\r\n")).await;
        assert_eq!(again.field("x-origin"), head.field("x-origin"));
        assert_eq!(again.field("set-cookie"), "");
        *seen.entry(head.field("x-origin").to_owned()).or_insert(0) += 1;
    }
    assert!(seen.len() > 1, "clients are spread: {seen:?}");
}

#[tokio::test]
async fn tags_choose_among_the_targets_of_one_upstream() {
    let (old, new) = (Standing::start("old").await, Standing::start("new").await);
    let tagged =
        |target: String, version| format!("{}, tags: {{v: {version}}}}}", target.trim_end_matches('}'));
    let targets = [tagged(old.target(), "one"), tagged(new.target(), "two")];
    for (version, name) in [("one", "old"), ("two", "new")] {
        let edge = Edge::start(&spec(&targets, &format!(", backend_tags: {{v: {version}}}"), ""));
        assert_eq!(names(&edge, 6).await, HashMap::from([(name.to_owned(), 6)]));
    }
}

#[tokio::test]
async fn a_full_target_has_a_queue_and_beyond_it_503() {
    let port = Port::listen(None).await;
    let targets = [format!("{{host: 127.0.0.1, port: {}, max_requests: 1}}", port.address.port())];
    let queue = ", queue: {max_waiting: 1, timeout: 60000ms}";
    let mut edge = Edge::start(&spec(&targets, "", queue));
    let request = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    let mut first = edge.talker().await;
    first.wire.send(request).await;
    let mut target = Wire::new(port.accept().await);
    target.until(b"\r\n\r\n").await.unwrap();
    let (mut second, mut third) = (edge.talker().await, edge.talker().await);
    second.wire.send(request).await;
    third.wire.send(request).await;
    let (refused, mut waiting) = tokio::select! {
        head = second.response(&Method::GET) => (head.unwrap(), third),
        head = third.response(&Method::GET) => (head.unwrap(), second),
    };
    assert_eq!((refused.status(), refused.field("retry-after")), (503, "1"));
    assert_eq!(edge.records.next().await.reason(), "targets_full");
    target.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    assert_eq!(first.response(&Method::GET).await.unwrap().status(), 200);
    target.until(b"\r\n\r\n").await.unwrap();
    target.send("HTTP/1.1 204 No Content\r\n\r\n").await;
    assert_eq!(waiting.response(&Method::GET).await.unwrap().status(), 204);
}
