//! FastCGI targets: the requests that they receive, the delivery of their responses, and the handling of invalid ones.

mod php;
mod scripts;

use crate::support::edge::Edge;
use crate::support::fastcgi::{Responder, STDERR, STDOUT, answer, end, record};
use crate::support::soon;

/// A proxy for `/` whose target is an application without scripts.
fn app(responder: &Responder, more: &str) -> Edge {
    Edge::start(&format!("proxies:\n  - {{id: a, listen_path: /, {}{more}}}\n", responder.backend()))
}

const PAGE: &str = "Content-Type: text/plain\r\n\r\nhello";

#[tokio::test]
async fn targets_are_told_of_the_request() {
    let responder = Responder::listen().await;
    let edge = app(
        &responder,
        ", fastcgi: {params: {APP: 'x-${request.host}', HTTP_X_B: over, PHP_VALUE: [a=1, b=2]}}",
    );
    let asked = tokio::spawn(async move {
        let mut talk = responder.accept().await;
        let request = talk.request().await;
        talk.wire.send(answer(PAGE)).await;
        request
    });
    let (head, body) = edge
        .ask(
            "POST /a%20b/c?d=%20e HTTP/1.1\r\nhost: a.test:81\r\ncontent-type: text/x\r\ncontent-length: 5\r\n\
             x-a: 1\r\nx-a: 2\r\ncookie: a=1\r\ncookie: b=2\r\nx-b: client\r\nproxy: http://evil\r\n\
             x-forwarded-for: 9.9.9.9\r\n\r\n12345",
        )
        .await;
    assert_eq!((head.status(), head.field("content-type"), body.as_str()), (200, "text/plain", "hello"));
    let request = asked.await.unwrap();
    for (name, value) in [
        ("REQUEST_METHOD", "POST"),
        ("REQUEST_URI", "/a%20b/c?d=%20e"),
        ("QUERY_STRING", "d=%20e"),
        ("SCRIPT_NAME", ""),
        ("PATH_INFO", "/a b/c"),
        ("SERVER_NAME", "a.test"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("REDIRECT_STATUS", "200"),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("CONTENT_TYPE", "text/x"),
        ("CONTENT_LENGTH", "5"),
        ("HTTP_HOST", "a.test:81"),
        ("HTTP_X_A", "1, 2"),
        ("HTTP_COOKIE", "a=1; b=2"),
        ("HTTP_X_B", "over"),
        ("HTTP_X_FORWARDED_FOR", "127.0.0.1"),
        ("HTTP_X_FORWARDED_PROTO", "http"),
        ("APP", "x-a.test"),
        ("PHP_VALUE", "a=1\nb=2"),
        ("HTTP_PROXY", "-"),
        ("HTTP_CONTENT_TYPE", "-"),
        ("HTTP_CONTENT_LENGTH", "-"),
        ("SCRIPT_FILENAME", "-"),
        ("HTTPS", "-"),
    ] {
        assert_eq!(request.param(name), value, "{name}");
    }
    assert_eq!((request.stdin.as_slice(), request.keeps), (&b"12345"[..], false));
}

#[tokio::test]
async fn a_stripped_path_is_where_the_application_is() {
    let port = Responder::listen().await.serve(|request| {
        let told = ["SCRIPT_NAME", "PATH_INFO", "REQUEST_URI"].map(|name| request.param(name).to_owned());
        answer(&format!("Content-Type: a/b\r\n\r\n{}", told.join(" ")))
    });
    let backend = format!("backend_protocol: fastcgi, backend_host: 127.0.0.1, backend_port: {port}");
    let edge = Edge::start(&format!(
        "proxies:\n  - {{id: a, listen_path: /app, {backend}}}\n  - {{id: b, listen_path: /, {backend}}}\n"
    ));
    assert_eq!(edge.get("/app/x?y").await.1, "/app /x /app/x?y");
    assert_eq!(edge.get("/x").await.1, " /x /x");
}

#[tokio::test]
async fn answers_follow_the_rules_of_cgi() {
    let port = Responder::listen().await.serve(|request| {
        answer(match request.param("PATH_INFO") {
            "/status" => "Status: 404 Not Found\r\nContent-Type: a/b\r\n\r\ngone",
            "/moved" => "Location: /elsewhere\n\nmoved",
            "/both" => "Status: 301\r\nLocation: https://b.test/\r\n\r\n",
            "/empty" => "Status: 204\r\n\r\nnothing of this is sent",
            "/length" => "Content-Length: 5\r\nContent-Type: a/b\r\n\r\nhello",
            "/hop" => "Content-Type: a/b\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\nhello",
            _ => PAGE,
        })
    });
    let edge = Edge::start(&format!(
        "proxies:\n  - {{id: a, listen_path: /, backend_protocol: fastcgi, backend_host: 127.0.0.1, backend_port: {port}}}\n"
    ));
    for (path, status, location, expected) in [
        ("/status", 404, "", "gone"),
        ("/moved", 302, "/elsewhere", "moved"),
        ("/both", 301, "https://b.test/", ""),
        ("/empty", 204, "", ""),
        ("/length", 200, "", "hello"),
        ("/hop", 200, "", "hello"),
    ] {
        let (head, body) = edge.get(path).await;
        assert_eq!(
            (head.status(), head.field("location"), body.as_str()),
            (status, location, expected),
            "{path}"
        );
        assert!(!head.headers.contains_key("status"), "{path}");
    }
    let (head, body) = edge.ask("HEAD / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!((head.status(), body.as_str()), (200, ""));
}

#[tokio::test]
async fn bodies_stream_both_ways_with_back_pressure() {
    const PIECE: usize = 100_000;
    let responder = Responder::listen().await;
    let edge = app(&responder, "");
    let mut talker = edge.talker().await;
    talker.wire.send(format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", 2 * PIECE)).await;
    talker.wire.send(vec![b'x'; PIECE]).await;
    let mut talk = responder.accept().await;
    assert_eq!(talk.head().await.unwrap().param("CONTENT_LENGTH"), (2 * PIECE).to_string());
    // The first half arrives before the client sends the second, in records of at most the permitted size.
    let mut come = 0;
    while come < PIECE {
        let (kind, content) = talk.record().await.unwrap();
        assert_eq!(kind, 5);
        come += content.len();
    }
    // The response also arrives while the request is still being sent.
    talk.wire.send(record(STDOUT, 1, b"Content-Type: a/b\r\n\r\nfirst", 7)).await;
    let head = talker.response(&http::Method::POST).await.unwrap();
    assert_eq!(head.field("transfer-encoding"), "chunked");
    assert_eq!(talker.data().await.unwrap().unwrap(), "first");
    talker.wire.send(vec![b'y'; PIECE]).await;
    while come < 2 * PIECE {
        come += talk.record().await.unwrap().1.len();
    }
    assert_eq!(talk.record().await.unwrap(), (5, Vec::new()));
    talk.wire.send([record(STDOUT, 1, b"second", 0), end(0)].concat()).await;
    assert_eq!(talker.data().await.unwrap().unwrap(), "second");
    assert_eq!(talker.data().await.unwrap(), None);
}

#[tokio::test]
async fn bodies_without_a_length_are_read_first() {
    let responder = Responder::listen().await;
    let edge = app(&responder, ", fastcgi: {unsized_body: 10}");
    let asked = tokio::spawn(async move {
        let mut talk = responder.accept().await;
        let request = talk.request().await;
        talk.wire.send(answer(PAGE)).await;
        request
    });
    let chunked = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    assert_eq!(edge.ask(&format!("{chunked}5\r\nhello\r\n0\r\n\r\n")).await.0.status(), 200);
    let request = asked.await.unwrap();
    assert_eq!((request.param("CONTENT_LENGTH"), &request.stdin[..]), ("5", &b"hello"[..]));
    let (head, body) = edge.ask(&format!("{chunked}b\r\nhello world\r\n0\r\n\r\n")).await;
    assert_eq!(head.status(), 411, "{body}");
    assert!(body.contains("length_required"), "{body}");
}

#[tokio::test]
async fn connections_are_kept_only_where_that_is_asked_for() {
    let responder = Responder::listen().await;
    let edge = app(&responder, ", fastcgi: {keep_alive: true}");
    let served = tokio::spawn(async move {
        let mut talk = responder.accept().await;
        for _ in 0..3 {
            assert!(talk.request().await.keeps);
            talk.wire.send(answer(PAGE)).await;
        }
        // If a target closes an idle connection, no request fails.
        drop(talk);
        let mut talk = responder.accept().await;
        talk.request().await;
        talk.wire.send(answer(PAGE)).await;
    });
    for _ in 0..4 {
        assert_eq!(edge.get("/").await.1, "hello");
    }
    served.await.unwrap();
}

#[tokio::test]
async fn a_truncated_answer_never_looks_whole() {
    let head = || record(STDOUT, 1, b"Content-Type: a/b\r\n\r\nsome", 0);
    for (name, bytes) in [
        ("the connection ends", head()),
        ("behind the end of the output", [head(), record(STDOUT, 1, b"", 0)].concat()),
        ("in a record", head()[..31].to_vec()),
        ("with a bad status", [head(), end(9)].concat()),
        ("with a refusal", [head(), end(2)].concat()),
        ("with another request's record", [head(), record(STDOUT, 2, b"more", 0)].concat()),
        ("with no record", [head(), b"HTTP/1.1 200 OK\r\n\r\n".to_vec()].concat()),
        (
            "before its length",
            [record(STDOUT, 1, b"Content-Length: 9\r\n\r\nsome", 0), record(STDOUT, 1, b"", 0), end(0)]
                .concat(),
        ),
    ] {
        let responder = Responder::listen().await;
        let edge = app(&responder, "");
        let mut talker = edge.talker().await;
        talker.wire.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        let mut talk = responder.accept().await;
        talk.request().await;
        talk.wire.send(bytes).await;
        drop(talk);
        let answered = talker.response(&http::Method::GET).await.unwrap();
        assert_eq!(answered.status(), 200, "{name}");
        assert!(talker.body().await.is_err(), "{name}");
    }
}

#[tokio::test]
async fn malformed_answers_are_answered_with_502() {
    for (name, bytes, status, reason) in [
        ("closes", Vec::new(), 502, "upstream_closed"),
        ("ends early", end(0), 502, "upstream_closed"),
        ("is overloaded", end(2), 502, "upstream_closed"),
        ("speaks HTTP", b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), 502, "upstream_garbage"),
        ("wrong id", record(STDOUT, 7, PAGE.as_bytes(), 0), 502, "upstream_garbage"),
        ("wrong type", record(5, 1, PAGE.as_bytes(), 0), 502, "upstream_garbage"),
        ("no head", answer("hello\r\n\r\n"), 502, "upstream_garbage"),
        ("a head without an end", answer("Content-Type: a/b\r\n"), 502, "upstream_closed"),
        ("a huge head", answer(&"x: y\r\n".repeat(20_000)), 502, "upstream_garbage"),
        ("endless empty records", record(STDERR, 1, b"", 0).repeat(5000), 502, "upstream_garbage"),
    ] {
        let responder = Responder::listen().await;
        let mut edge = app(&responder, "");
        let asked = tokio::spawn(async move {
            let mut talk = responder.accept().await;
            talk.request().await;
            _ = talk.wire.try_send(bytes).await;
        });
        let (head, body) = edge.get("/").await;
        assert_eq!(head.status(), status, "{name}: {body}");
        asked.await.unwrap();
        let record = edge.records.next().await;
        assert_eq!(record.0["error.type"].as_str(), Some(reason), "{name}: {record:?}");
    }
}

#[tokio::test]
async fn a_split_answer_with_a_huge_report_comes_whole() {
    let responder = Responder::listen().await;
    let edge = app(&responder, "");
    let mut talker = edge.talker().await;
    talker.wire.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let mut talk = responder.accept().await;
    talk.request().await;
    let report = record(STDERR, 1, &vec![b'e'; 60_000], 3).repeat(20);
    talk.wire.send(report).await;
    for byte in answer(PAGE) {
        talk.wire.send([byte]).await;
    }
    let head = talker.response(&http::Method::GET).await.unwrap();
    assert_eq!(head.status(), 200);
    assert_eq!(talker.body().await.unwrap(), b"hello");
}

#[tokio::test]
async fn reports_are_no_answer_and_timeouts_hold() {
    let responder = Responder::listen().await;
    let edge = app(&responder, ", backend_first_byte_timeout: 50ms");
    let mut talker = edge.talker().await;
    talker.wire.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let mut talk = responder.accept().await;
    talk.request().await;
    talk.wire.send(record(STDERR, 1, b"still here", 0)).await;
    let head = talker.response(&http::Method::GET).await.unwrap();
    assert_eq!(head.status(), 504);
    soon(talk.wire.closed()).await;
}

#[tokio::test]
async fn another_target_is_tried_by_the_rules_of_retries() {
    let (bad, good) = (Responder::listen().await, Responder::listen().await);
    let (refusing, port) = (bad.number(), good.serve(|_| answer(PAGE)));
    let edge = Edge::start(&format!(
        "proxies:\n  - {{id: a, listen_path: /, backend_protocol: fastcgi, upstream_id: u, retry: {{max_retries: 1}}}}\n\
         upstreams:\n  - {{id: u, targets: [{{host: 127.0.0.1, port: {refusing}, priority: 0}}, {{host: 127.0.0.1, port: {port}, priority: 1}}]}}\n"
    ));
    let asked = tokio::spawn(async move {
        let mut talk = bad.accept().await;
        talk.request().await;
        talk.wire.send(end(2)).await;
    });
    assert_eq!(edge.get("/").await.1, "hello");
    asked.await.unwrap();
}

#[tokio::test]
async fn upgrades_and_calls_are_refused() {
    let responder = Responder::listen().await;
    let edge = app(&responder, "");
    let upgrade = "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                   sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    assert_eq!(edge.ask(upgrade).await.0.status(), 501);
}

#[tokio::test]
async fn active_checks_ask_for_the_servers_own_page() {
    let responder = Responder::listen().await;
    let port = responder.serve(|request| {
        answer(match (request.param("SCRIPT_NAME"), request.param("SCRIPT_FILENAME")) {
            ("/fpm-ping", "/fpm-ping") => "Content-Type: text/plain\r\n\r\npong",
            _ => "Status: 500\r\n\r\n",
        })
    });
    for (path, healthy) in [("/fpm-ping", true), ("/other", false)] {
        let edge = Edge::start(&format!(
            "proxies:\n  - {{id: a, listen_path: /, backend_protocol: fastcgi, upstream_id: u}}\n\
             upstreams:\n  - {{id: u, targets: [{{host: 127.0.0.1, port: {port}}}], health_checks: {{active: \
             {{probe_type: fastcgi, http_path: {path}, interval: 1, healthy_threshold: 1, unhealthy_threshold: 1}}}}}}\n"
        ));
        let wanted = format!(
            "ferrum_target_healthy{{upstream=\"u\",target=\"127.0.0.1:{port}\"}} {}",
            u8::from(healthy)
        );
        soon(async {
            while !edge.metrics().await.contains(&wanted) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

#[test]
fn settings_that_can_have_no_effect_are_refused() {
    let problems = |proxy: &str| {
        let text = format!(
            "proxies:\n  - {{id: a, listen_path: /, backend_host: 127.0.0.1, backend_port: 9000, {proxy}}}\n"
        );
        crate::support::edge::problems(&text)
    };
    for (proxy, expected) in [
        ("fastcgi: {root: /srv}", "do not speak FastCGI"),
        ("backend_protocol: fastcgi, backend_http_version: '2'", "no effect"),
        ("backend_protocol: fastcgi, hedging: {}", "no effect"),
        ("backend_protocol: fastcgi, fastcgi: {index: index.php}", "without `root`"),
        ("backend_protocol: fastcgi, fastcgi: {root: /srv, index: a.txt}", "none of the endings"),
        ("backend_protocol: fastcgi, fastcgi: {root: /srv, split_path: [php]}", "not an ending"),
        (
            "backend_protocol: fastcgi, fastcgi: {root: /srv, try_files: [/a.html]}",
            "only scripts are passed on",
        ),
        ("backend_protocol: fastcgi, fastcgi: {root: /srv, try_files: ['/../a.php']}", "not a path"),
        ("backend_protocol: fastcgi, fastcgi: {params: {HTTP_PROXY: x}}", "never sent"),
        ("backend_protocol: fastcgi, fastcgi: {params: {SCRIPT_FILENAME: x}}", "choose the script"),
        ("backend_protocol: fastcgi, fastcgi: {params: {'a b': x}}", "not the name of a parameter"),
        ("backend_protocol: fastcgi, fastcgi: {params: {A: '${nope}'}}", "nope"),
        ("backend_protocol: fastcgi, backend_tls_verify_server_cert: false", "nothing is encrypted"),
        ("backend_scheme: fastcgi", "write `backend_protocol: fastcgi`"),
    ] {
        let found = problems(proxy);
        assert!(found.contains(expected), "{proxy}: {found}");
    }
}
