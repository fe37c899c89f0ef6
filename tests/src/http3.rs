//! HTTP/3 through the gateway: with clients, with targets, while clients move and while things break.

mod alternatives;
mod frames;
mod hostile;
mod oracle;
pub(crate) mod raw;
mod targets;
mod upstream;
mod websocket;

use futures_util::FutureExt;
use http::Method;

use crate::support::edge::Edge;
use crate::support::h1::Talker;
use crate::support::h3::{Client, edge_with};
use crate::support::soon;
use crate::support::standing::Standing;
use crate::support::stream::tcp_backend;
use crate::support::wire::{Port, Wire, connect};

/// A gateway with one proxy in front of a scripted HTTP/1.1 origin.
async fn scripted() -> (Edge, Port) {
    let origin = Port::listen(None).await;
    let backend = tcp_backend(origin.address).replace("tcp", "http");
    (edge_with("", &format!("proxies:\n  - {{id: a, listen_path: /, {backend}}}\n")), origin)
}

async fn standing(settings: &str) -> (Edge, Standing) {
    let origin = Standing::start("o").await;
    let spec = format!("proxies:\n  - {{id: a, listen_path: /, {}}}\n", origin.backend());
    (edge_with(settings, &spec), origin)
}

async fn far_side(origin: &Port) -> Talker {
    Talker::new(Wire::new(origin.accept().await))
}

/// The cipher suite is in records, whichever it is.
#[tokio::test]
async fn the_cipher_is_known() {
    let (mut edge, _origin) = standing("").await;
    for suite in ["AES_128_GCM_SHA256", "CHACHA20_POLY1305_SHA256", "AES_256_GCM_SHA384"] {
        let client = Client::open_with(edge.https(), suite).await;
        assert_eq!(client.get("/").await.head.status(), 200);
        assert_eq!(edge.only_record().await.0["tls.cipher"], format!("TLS_{suite}"));
    }
}

#[tokio::test]
async fn a_request_and_its_answer() {
    let (mut edge, _origin) = standing("").await;
    let client = Client::open(edge.https()).await;
    let answer = client.get("/some/path?q=1").await;
    assert_eq!((answer.head.status().as_u16(), answer.head.version()), (200, http::Version::HTTP_3));
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(text.starts_with("o\nGET /some/path?q=1 HTTP/1.1\n"), "{text}");
    assert!(
        text.contains("x-forwarded-proto: https") && text.contains("x-forwarded-for: 127.0.0.1"),
        "{text}"
    );
    let record = edge.only_record().await;
    assert_eq!((record.status(), record.reason(), record.path()), (200, "", "/some/path"));
    assert_eq!(record.0["network.protocol.version"], "3");
    assert_eq!(record.0["tls.client.server_name"], "gateway.test");
    // What the client prefers.
    assert_eq!(record.0["tls.cipher"], "TLS_AES_256_GCM_SHA384");
    let mut stream = client.begin("HEAD", "/").await;
    stream.finish().await;
    let answer = stream.answer().await.unwrap();
    assert!(answer.body.is_empty() && answer.head.status() == 200);
    assert_eq!(edge.only_record().await.reason(), "");
    let answer = client.get("/%zz").await;
    assert_eq!(answer.head.status(), 400);
    assert_eq!(edge.only_record().await.reason(), "bad_request");
}

#[tokio::test]
async fn bodies_stream_both_ways_with_trailers() {
    let (mut edge, origin) = scripted().await;
    let client = Client::open(edge.https()).await;
    let mut stream = client.begin("POST", "/up").await;
    let mut far = far_side(&origin).await;
    assert_eq!(far.request().await.unwrap().line, "POST /up HTTP/1.1");
    far.send_head("HTTP/1.1 200 OK", &[], None).await.unwrap();
    assert_eq!(stream.head().await.unwrap().status(), 200);
    for n in 0..20 {
        let text = format!("piece {n}");
        stream.data(text.clone()).await;
        let mut got = Vec::new();
        while got.len() < text.len() {
            got.extend_from_slice(&far.data().await.unwrap().unwrap());
        }
        assert_eq!(got, text.as_bytes());
        far.send_data(text.as_bytes()).await.unwrap();
        assert_eq!(stream.piece().await.unwrap().unwrap(), text);
    }
    stream.finish().await;
    assert!(far.data().await.unwrap().is_none());
    far.finish(&[("x-checksum", "42")]).await.unwrap();
    let answer = stream.rest().await.unwrap();
    assert!(answer.body.is_empty());
    assert_eq!(answer.trailers["x-checksum"], "42");
    let record = edge.only_record().await;
    assert_eq!((record.status(), record.reason()), (200, ""));
}

#[tokio::test]
async fn a_large_answer_waits_for_its_reader() {
    const LENGTH: usize = 24 << 20;
    let (mut edge, origin) = scripted().await;
    let client = Client::open(edge.https()).await;
    let mut slow = client.begin("GET", "/large").await;
    slow.finish().await;
    let mut far = far_side(&origin).await;
    far.request().await.unwrap();
    far.send_head("HTTP/1.1 200 OK", &[], Some(LENGTH)).await.unwrap();
    let writing = tokio::spawn(async move {
        for n in 0..LENGTH >> 16 {
            far.send_data(&vec![n as u8; 1 << 16]).await.unwrap();
        }
        far
    });
    assert_eq!(slow.head().await.unwrap().status(), 200);
    let marker = Client::open(edge.https()).await;
    for _ in 0..20 {
        for client in [&client, &marker] {
            assert_eq!(client.get("/%zz").await.head.status(), 400);
            edge.records.next().await;
        }
    }
    assert!(!writing.is_finished(), "the gateway took 24 MiB that nobody read");
    let mut got = 0;
    while let Some(piece) = slow.piece().await.unwrap() {
        for (at, byte) in piece.iter().enumerate().step_by(997) {
            assert_eq!(*byte, ((got + at) >> 16) as u8);
        }
        got += piece.len();
    }
    assert_eq!(got, LENGTH);
    drop(soon(writing).await.unwrap());
    assert_eq!(edge.only_record().await.reason(), "");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_not_taken_for_whole() {
    let (mut edge, origin) = scripted().await;
    let client = Client::open(edge.https()).await;
    for head in ["content-length: 100", "transfer-encoding: chunked"] {
        let mut stream = client.begin("GET", "/").await;
        stream.finish().await;
        let mut far = far_side(&origin).await;
        far.request().await.unwrap();
        far.wire.send(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n4\r\nhalf\r\n")).await;
        assert_eq!(stream.head().await.unwrap().status(), 200);
        stream.piece().await.unwrap().unwrap();
        drop(far);
        loop {
            match stream.piece().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("{head}: half an answer looked whole"),
                Err(_) => break,
            }
        }
        assert_eq!(edge.only_record().await.reason(), "upstream_closed");
    }
    // The connection is none the worse.
    assert_eq!(client.get("/%zz").await.head.status(), 400);
}

#[tokio::test]
async fn a_request_that_breaks_off_is_not_taken_for_whole() {
    let (mut edge, origin) = scripted().await;
    let client = Client::open(edge.https()).await;
    let mut stream = client.begin("POST", "/").await;
    stream.data("half of i").await;
    let mut far = far_side(&origin).await;
    far.request().await.unwrap();
    assert_eq!(far.data().await.unwrap().unwrap(), "half of i");
    stream.0.stop_stream(h3::error::Code::H3_REQUEST_CANCELLED);
    far.data().await.expect_err("no end in order");
    assert_eq!(edge.only_record().await.reason(), "client_gone");
}

/// For longer than it may be silent, a client only listens.
#[tokio::test]
async fn a_stream_lasts_while_the_target_speaks() {
    let settings = "  client_timeouts: {body: 2000ms}";
    let port = Port::listen(None).await;
    let spec = format!(
        "proxies:\n  - {{id: a, listen_path: /, {}, backend_http_version: '2'}}\n",
        tcp_backend(port.address).replace("tcp", "http")
    );
    let mut edge = edge_with(settings, &spec);
    let mut streams = crate::support::h2::origin(port);
    let client = Client::open(edge.https()).await;
    let mut stream = client.begin("POST", "/").await;
    stream.data("a").await;
    let (request, mut respond) = soon(streams.recv()).await.unwrap();
    let mut down = respond.send_response(http::Response::new(()), false).unwrap();
    assert_eq!(stream.head().await.unwrap().status(), 200);
    let mut every = tokio::time::interval(std::time::Duration::from_millis(50));
    let begun = std::time::Instant::now();
    while begun.elapsed() < std::time::Duration::from_millis(4500) {
        every.tick().await;
        crate::support::h2::send(&mut down, b"news", false).await.unwrap();
        assert!(stream.piece().await.unwrap().is_some());
    }
    stream.finish().await;
    let mut far = request.into_body();
    while crate::support::h2::data(&mut far).await.unwrap().is_some() {}
    crate::support::h2::send(&mut down, b"", true).await.unwrap();
    while stream.piece().await.unwrap().is_some() {}
    let record = edge.only_record().await;
    assert_eq!((record.status(), record.reason()), (200, ""));
}

#[tokio::test]
async fn a_client_that_goes_frees_its_target() {
    let (mut edge, origin) = scripted().await;
    // With the whole connection, while its answer is waited for.
    let client = Client::open(edge.https()).await;
    let mut stream = client.begin("GET", "/").await;
    stream.finish().await;
    let mut far = far_side(&origin).await;
    far.request().await.unwrap();
    client.quic.close(0_u32.into(), b"");
    far.wire.rest().await;
    assert_eq!(edge.only_record().await.reason(), "client_gone");
    // One stream of it, in the middle of its answer.
    let client = Client::open(edge.https()).await;
    let mut stream = client.begin("GET", "/").await;
    stream.finish().await;
    let mut far = far_side(&origin).await;
    far.request().await.unwrap();
    far.send_head("HTTP/1.1 200 OK", &[], None).await.unwrap();
    far.send_data(b"first").await.unwrap();
    assert_eq!(stream.head().await.unwrap().status(), 200);
    stream.0.stop_sending(h3::error::Code::H3_REQUEST_CANCELLED);
    while far.send_data(&[b'x'; 1000]).await.is_ok() {}
    let record = edge.only_record().await;
    assert_eq!((record.status(), record.reason()), (200, "client_gone"));
    assert!(record.0["http.response.body.size"].as_u64() >= Some(5), "what went out is counted");
    assert_eq!(client.get("/%zz").await.head.status(), 400);
}

#[tokio::test]
async fn a_client_that_moves_goes_on() {
    let (mut edge, origin) = standing("  workers: 4").await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(Client::open(edge.https()).await);
    }
    for _ in 0..6 {
        for client in &clients {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            let port = socket.local_addr().unwrap().port();
            client.endpoint.rebind(socket).unwrap();
            for _ in 0..3 {
                assert_eq!(client.get("/").await.head.status(), 200);
                edge.records.next().await;
            }
            assert_eq!(client.endpoint.local_addr().unwrap().port(), port);
        }
    }
    assert_eq!(origin.served(), 72);
    edge.nothing_recorded().await;
}

#[tokio::test]
async fn it_is_announced_over_tls_only() {
    let (edge, _origin) = standing("").await;
    let port = edge.https().port();
    let ask = "GET / HTTP/1.1\r\nhost: a.test\r\n\r\n";
    let mut plain = edge.talker().await;
    plain.wire.send(ask).await;
    assert_eq!(plain.response(&Method::GET).await.unwrap().field("alt-svc"), "");
    let mut secret = Talker::new(Wire::new(connect(edge.https(), Some(&["http/1.1"])).await));
    secret.wire.send(ask).await;
    let head = secret.response(&Method::GET).await.unwrap();
    assert!(head.field("alt-svc").starts_with(&format!("h3=\":{port}\"")), "{head:?}");
    let mut requests = crate::support::h2::client(connect(edge.https(), Some(&["h2"])).await).await;
    let request = http::Request::get("https://a.test/").body(()).unwrap();
    let answer = soon(requests.send_request(request, true).unwrap().0).await.unwrap();
    assert!(answer.headers()["alt-svc"].to_str().unwrap().starts_with(&format!("h3=\":{port}\"")));
    let client = Client::open(edge.https()).await;
    assert!(!client.get("/").await.head.headers().contains_key("alt-svc"), "it is spoken already");
}

#[tokio::test]
async fn many_requests_share_a_connection() {
    let (mut edge, origin) = standing("  limits: {max_concurrent_streams: 16}").await;
    let client = std::sync::Arc::new(Client::open(edge.https()).await);
    for _ in 0..200 {
        assert_eq!(client.get("/one").await.head.status(), 200);
    }
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..200 {
        let client = client.clone();
        tasks.spawn(async move {
            let mut stream = client.begin("POST", &format!("/{n}")).await;
            stream.data(vec![0; n * 100]).await;
            stream.finish().await;
            let answer = stream.answer().await.unwrap();
            assert!(answer.body.starts_with(format!("o\nPOST /{n} HTTP/1.1").as_bytes()));
        });
    }
    while let Some(done) = soon(tasks.join_next()).await {
        done.unwrap();
    }
    for _ in 0..400 {
        let record = edge.records.next().await;
        assert_eq!((record.status(), record.reason()), (200, ""));
    }
    assert_eq!(origin.served(), 400);
    edge.nothing_recorded().await;
}

/// A new connection is allowed fewer streams at first than the setting says, and more once it uses them.
#[tokio::test]
async fn a_client_opens_as_many_streams_as_the_setting_allows() {
    for most in [90, 130] {
        let (edge, _origin) = standing(&format!("  limits: {{max_concurrent_streams: {most}}}")).await;
        let client = Client::open(edge.https()).await;
        let mut open = Vec::new();
        for n in 0..most {
            open.push(soon(client.begin("POST", &format!("/{n}"))).await);
        }
        assert!(client.quic.open_bi().now_or_never().is_none(), "{most}");
        open.clear();
    }
}

/// Connections that go at any moment give everything back.
#[tokio::test]
async fn nothing_is_left_of_many_connections() {
    let (edge, _origin) = standing("  limits: {max_connections: 6, max_requests: 6}").await;
    for _ in 0..30 {
        let client = Client::open(edge.https()).await;
        let mut stream = client.begin("GET", "/").await;
        stream.finish().await;
        assert_eq!(stream.head().await.unwrap().status(), 200);
        client.quic.close(0_u32.into(), b"");
        soon(client.endpoint.wait_idle()).await;
    }
}
