//! Bodies that are too large, broken, unread, or never come.

use http::Method;

use super::{DEAD, FIXED, answers};
use crate::support::edge::Edge;
use crate::support::talk::{Ask, Client, Origin, Will, WireProtocol};

const PAIRS: [(WireProtocol, WireProtocol); 4] = [
    (WireProtocol::H1, WireProtocol::H1),
    (WireProtocol::H1, WireProtocol::H2),
    (WireProtocol::H2, WireProtocol::H1),
    (WireProtocol::H2, WireProtocol::H2),
];

#[tokio::test]
async fn a_declared_length_beyond_the_limit_never_reaches_the_target() {
    let mut edge = Edge::start_with("  limits: {max_request_body: 10}", DEAD);
    for down in [WireProtocol::H1, WireProtocol::H2] {
        let ask = Ask { method: Method::POST, path: "/", headers: &[], body: Will::Length(11) };
        let mut client = Client::ask(&edge, down, ask).await;
        assert_eq!(client.head().await.unwrap().status, 413, "{down:?}");
        assert_eq!(edge.only_record().await.reason(), "body_too_large");
    }
}

#[tokio::test]
async fn a_proxy_has_a_limit_of_its_own() {
    let proxy = |id: &str, limit: u64| {
        format!(
            "  - {{id: {id}, listen_path: /{id}, backend_scheme: http, backend_host: 127.0.0.1, backend_port: 1, max_request_body: {limit}}}\n"
        )
    };
    let spec = format!("proxies:\n{}{}{}", proxy("less", 5), proxy("more", 20), proxy("all", 0));
    let mut edge = Edge::start_with("  limits: {max_request_body: 10}", &spec);
    for (path, length, status) in
        [("/less", 6, 413), ("/less", 5, 502), ("/more", 20, 502), ("/more", 21, 413), ("/all", 100, 502)]
    {
        let ask = Ask { method: Method::POST, path, headers: &[], body: Will::Length(length) };
        let mut client = Client::ask(&edge, WireProtocol::H1, ask).await;
        // Refused on sight, it may not be taken any more.
        drop(client.send(&vec![0; length]).await);
        assert_eq!(client.head().await.unwrap().status, status, "{path} {length}");
        edge.only_record().await;
    }
}

#[tokio::test]
async fn a_stream_beyond_the_limit_is_cut() {
    for (down, up) in PAIRS {
        let (mut origin, backend) = Origin::listen(up).await;
        let mut edge = Edge::start_with(
            "  limits: {max_request_body: 10}",
            &format!("proxies:\n  - {{id: a, listen_path: /, {backend}}}\n"),
        );
        let ask = Ask { method: Method::POST, path: "/", headers: &[], body: Will::Stream };
        let mut client = Client::ask(&edge, down, ask).await;
        client.send(b"0123456789").await.unwrap();
        let mut served = origin.serve().await;
        assert_eq!(served.data().await.unwrap().unwrap(), "0123456789");
        client.send(b"x").await.unwrap();
        assert_eq!(client.head().await.unwrap().status, 413, "{down:?} {up:?}");
        served.body().await.expect_err("a request cut short must not look whole");
        assert_eq!(edge.only_record().await.reason(), "body_too_large", "{down:?} {up:?}");
    }
}

/// After broken framing nothing on the connection can be trusted to be a request.
#[tokio::test]
async fn broken_chunks_are_refused_and_what_follows_is_not_read() {
    for chunks in [
        "zz\r\n0\r\n\r\n",
        "4\r\nabcdX\r\n0\r\n\r\n",
        "4\nabcd\r\n0\r\n\r\n",
        "0x4\r\nabcd\r\n0\r\n\r\n",
        "-4\r\nabcd\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nabcd\r\n0\r\n\r\n",
        "4;\u{1}\r\nabcd\r\n0\r\n\r\n",
        "4;\r\nabcd\r\n0\r\n\r\n",
        "4 \r\nabcd\r\n0\r\n\r\n",
        "4;bad[=x\r\nabcd\r\n0\r\n\r\n",
        "4;a=\"b\r\nabcd\r\n0\r\n\r\n",
        "0\r\n\n",
        "0\r\nbad name: x\r\n\r\n",
        "0\r\nx: 1\ny: 2\r\n\r\n",
    ] {
        let (mut origin, backend) = Origin::listen(WireProtocol::H1).await;
        let mut edge = Edge::start(&format!("proxies:\n  - {{id: a, listen_path: /, {backend}}}\n"));
        let request = format!(
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{chunks}GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n"
        );
        // Where the first chunk is broken already, the target never hears of the request.
        let target = tokio::spawn(async move { origin.serve().await });
        let got = answers(edge.wire().await, request.as_bytes()).await;
        assert_eq!(got, [400], "{chunks:?}");
        if let Ok(served) = target.await {
            assert_eq!(served.path, "/", "{chunks:?}");
            served.gone().await;
        }
        let record = edge.only_record().await;
        assert_eq!((record.reason(), record.path()), ("bad_request", "/"), "{chunks:?}");
    }
}

/// The connection ends after them, and the answer says so: whoever asked again on it would lose that request.
#[tokio::test]
async fn the_answer_to_a_broken_body_says_that_the_connection_ends() {
    let reads = "plugins: [{plugin_config_id: v}]}\nplugin_configs:\n  - {id: v, plugin_name: request_validation, scope: proxy, \
                 proxy_id: a, config: {body_schema: {type: object}}}\n";
    for rest in ["}\n", reads] {
        let (_origin, backend) = Origin::listen(WireProtocol::H1).await;
        let rest = if rest == reads { format!(", {rest}") } else { rest.to_owned() };
        let mut edge = Edge::start(&format!("proxies:\n  - {{id: a, listen_path: /, {backend}{rest}"));
        let mut talker = edge.talker().await;
        let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
        talker.wire.send(format!("{head}zz\r\n")).await;
        let head = talker.response(&Method::POST).await.unwrap();
        assert_eq!((head.status(), head.field("connection")), (400, "close"), "{rest}");
        talker.body().await.unwrap();
        talker.wire.closed().await;
        assert_eq!(edge.only_record().await.reason(), "bad_request");
    }
}

/// A body nobody wanted is read and forgotten, and the next request is found after it.
#[tokio::test]
async fn the_next_request_is_found_behind_an_unread_body() {
    let mut edge = Edge::start(FIXED);
    let mut talker = edge.talker().await;
    talker.wire.send("POST /1 HTTP/1.1\r\nhost: a\r\ncontent-length: 50000\r\n\r\n").await;
    assert_eq!(talker.response(&Method::POST).await.unwrap().status(), 200);
    assert_eq!(talker.body().await.unwrap(), b"ok");
    talker.wire.send(vec![b'x'; 50000]).await;
    talker.wire.send("POST /2 HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nabcde\r\n").await;
    assert_eq!(talker.response(&Method::POST).await.unwrap().status(), 200);
    assert_eq!(talker.body().await.unwrap(), b"ok");
    talker.wire.send("0\r\n\r\nGET /3 HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(talker.response(&Method::GET).await.unwrap().status(), 200);
    assert_eq!(talker.body().await.unwrap(), b"ok");
    for path in ["/1", "/2", "/3"] {
        assert_eq!(edge.records.next().await.path(), path);
    }
    edge.nothing_recorded().await;
}

/// Nobody knows whether a client that was refused before it was told to go on will still send its body: what comes
/// next could be either, so the connection ends.
#[tokio::test]
async fn a_refusal_instead_of_100_continue_ends_the_connection() {
    let mut edge = Edge::start(FIXED);
    let request = "POST /1 HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 40\r\n\r\n";
    let mut talker = edge.talker().await;
    talker.wire.send(request).await;
    let head = talker.response(&Method::POST).await.unwrap();
    assert_eq!((head.status(), head.field("connection")), (200, "close"));
    assert_eq!(talker.body().await.unwrap(), b"ok");
    talker.wire.closed().await;
    edge.only_record().await;
}

/// An unread body too long to be read for nothing ends the connection.
#[tokio::test]
async fn a_long_unread_body_ends_the_connection() {
    let mut edge = Edge::start(FIXED);
    let mut talker = edge.talker().await;
    talker.wire.send("POST /1 HTTP/1.1\r\nhost: a\r\ncontent-length: 50000000\r\n\r\n").await;
    let head = talker.response(&Method::POST).await.unwrap();
    assert_eq!((head.status(), head.field("connection")), (200, "close"));
    assert_eq!(talker.body().await.unwrap(), b"ok");
    talker.wire.closed().await;
    edge.only_record().await;
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_its_body() {
    for (down, up) in PAIRS {
        let (mut origin, backend) = Origin::listen(up).await;
        let mut edge = Edge::start(&format!("proxies:\n  - {{id: a, listen_path: /, {backend}}}\n"));
        let ask = Ask { method: Method::POST, path: "/", headers: &[], body: Will::Stream };
        let mut client = Client::ask(&edge, down, ask).await;
        client.send(b"half").await.unwrap();
        let mut served = origin.serve().await;
        assert_eq!(served.data().await.unwrap().unwrap(), "half");
        client.hang_up();
        served.body().await.expect_err("a request cut short must not look whole");
        assert_eq!(edge.only_record().await.reason(), "client_gone", "{down:?} {up:?}");
    }
}

/// A target that merges trailers into the head would believe them.
#[tokio::test]
async fn trailers_say_nothing_of_who_asks_and_from_where() {
    const CLAIMS: &[(&str, &str)] = &[
        ("x-sum", "1"),
        ("x_consumer_username", "root"),
        ("x-consumer-username", "root"),
        ("x-credential-identifier", "root"),
        ("client-cert", "x"),
        ("x-real-ip", "10.0.0.1"),
        ("x_forwarded_for", "10.0.0.1"),
        ("forwarded", "for=10.0.0.1"),
        ("via", "1.1 a"),
        ("x-api-key", "other"),
    ];
    for (down, up) in PAIRS {
        let (mut origin, backend) = Origin::listen(up).await;
        let mut edge = Edge::start(&format!("proxies:\n  - {{id: a, listen_path: /, {backend}}}\n"));
        let ask = Ask { method: Method::POST, path: "/", headers: &[], body: Will::Stream };
        let mut client = Client::ask(&edge, down, ask).await;
        client.send(b"x").await.unwrap();
        client.finish(CLAIMS).await.unwrap();
        let mut served = origin.serve().await;
        assert_eq!(served.body().await.unwrap(), b"x");
        let trailers = served.trailers().await.unwrap();
        let names: Vec<_> = trailers.keys().map(http::HeaderName::as_str).collect();
        assert_eq!(names, ["x-sum"], "{down:?} {up:?}");
        served.respond(204, &[], Will::Nothing).await;
        assert_eq!(client.head().await.unwrap().status, 204, "{down:?} {up:?}");
        assert_eq!(client.body().await.unwrap(), b"");
        assert_eq!(edge.records.next().await.status(), 204, "{down:?} {up:?}");
    }
}

#[tokio::test]
async fn trailers_with_underscores_are_refused_where_fields_with_them_are() {
    for (down, up) in PAIRS {
        let (mut origin, backend) = Origin::listen(up).await;
        let spec = format!("proxies:\n  - {{id: a, listen_path: /, {backend}}}\n");
        let mut edge = Edge::start_with("  underscores_in_headers: reject", &spec);
        let ask = Ask { method: Method::POST, path: "/", headers: &[], body: Will::Stream };
        let mut client = Client::ask(&edge, down, ask).await;
        client.send(b"x").await.unwrap();
        let mut served = origin.serve().await;
        assert_eq!(served.data().await.unwrap().unwrap(), "x");
        client.finish(&[("a_b", "1")]).await.unwrap();
        assert_eq!(client.head().await.unwrap().status, 400, "{down:?} {up:?}");
        served.body().await.expect_err("a request cut short must not look whole");
        assert_eq!(edge.only_record().await.reason(), "bad_request", "{down:?} {up:?}");
    }
}

/// What plugins remove from the head, or set in it, doesn't come behind the body.
#[tokio::test]
async fn trailers_say_nothing_that_plugins_decide() {
    let plugins = "plugin_configs:
  - {id: t, plugin_name: request_transformer, scope: proxy, proxy_id: a, config: {rules: [
      {operation: remove, target: header, key: x-removed},
      {operation: add, target: header, key: x-user, value: ann},
      {operation: rename, target: header, key: x-old, new_key: x-new}]}}
  - {id: s, plugin_name: script, scope: proxy, proxy_id: a, config: {source: 'fn on_request(request) { request.remove_header(\"x-role\"); request.set_header(\"x-by-script\", \"ann\"); }'}}
  - {id: c, plugin_name: correlation_id, scope: proxy, proxy_id: a, config: {}}
  - {id: k, plugin_name: key_auth, scope: proxy, proxy_id: a, config: {key_location: 'header:X-Own-Key', hide_credentials: true}}
consumers:
  - {id: ann, username: ann, credentials: {key_auth: [{key: 0d9a4ff2c1e7a880}]}}
";
    const FORGED: &[(&str, &str)] = &[
        ("x-sum", "1"),
        ("x-removed", "1"),
        ("x-user", "root"),
        ("x-old", "1"),
        ("x-new", "1"),
        ("x-own-key", "other"),
        ("x-role", "admin"),
        ("x-by-script", "root"),
        ("x-request-id", "forged"),
        ("cf-connecting-ip", "192.0.2.1"),
    ];
    for (down, up) in PAIRS {
        let (mut origin, backend) = Origin::listen(up).await;
        let spec = format!("proxies:\n  - {{id: a, listen_path: /, {backend}}}\n{plugins}");
        let mut edge = Edge::start_with("  real_ip_header: CF-Connecting-IP", &spec);
        let headers = &[("x-own-key", "0d9a4ff2c1e7a880")];
        let ask = Ask { method: Method::POST, path: "/", headers, body: Will::Stream };
        let mut client = Client::ask(&edge, down, ask).await;
        client.send(b"x").await.unwrap();
        client.finish(FORGED).await.unwrap();
        let mut served = origin.serve().await;
        assert_eq!(served.field("x-user"), "ann");
        assert_eq!(served.body().await.unwrap(), b"x");
        let trailers = served.trailers().await.unwrap();
        let names: Vec<_> = trailers.keys().map(http::HeaderName::as_str).collect();
        assert_eq!(names, ["x-sum"], "{down:?} {up:?}");
        served.respond(204, &[], Will::Nothing).await;
        assert_eq!(client.head().await.unwrap().status, 204, "{down:?} {up:?}");
        assert_eq!(client.body().await.unwrap(), b"");
        assert_eq!(edge.records.next().await.status(), 204, "{down:?} {up:?}");
    }
}

/// The limits of heads hold for trailers, whatever carries them.
#[tokio::test]
async fn trailers_beyond_the_limits_are_refused() {
    let many: Vec<_> = (0..9).map(|n| (format!("x-{n}"), "1".to_owned())).collect();
    let large = vec![("x-large".to_owned(), "x".repeat(2000))];
    for (down, up) in PAIRS {
        for trailers in [&many, &large] {
            let (mut origin, backend) = Origin::listen(up).await;
            let spec = format!("proxies:\n  - {{id: a, listen_path: /, {backend}}}\n");
            let mut edge = Edge::start_with("  limits: {max_headers: 8, max_header_size: 1500}", &spec);
            let ask = Ask { method: Method::POST, path: "/", headers: &[], body: Will::Stream };
            let mut client = Client::ask(&edge, down, ask).await;
            client.send(b"x").await.unwrap();
            let mut served = origin.serve().await;
            assert_eq!(served.data().await.unwrap().unwrap(), "x");
            let trailers: Vec<_> = trailers.iter().map(|(name, value)| (&**name, &**value)).collect();
            drop(client.finish(&trailers).await);
            served.body().await.expect_err("a request cut short must not look whole");
            // HTTP/2 has a limit of its own for blocks of fields, and resets the stream.
            if let Ok(head) = client.head().await {
                assert_eq!(head.status, 400, "{down:?} {up:?}");
            }
            assert_ne!(edge.records.next().await.status(), 204, "{down:?} {up:?}");
        }
    }
}
