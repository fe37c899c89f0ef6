//! Targets that speak HTTP/3 octet by octet: what breaks off is never whole, what was not looked at goes elsewhere.

use super::raw::{PLAIN, Raw, RawOrigin, frame, headers};
use crate::support::edge::Edge;
use crate::support::h1::Talker;
use crate::support::soon;
use crate::support::tls;

/// With all the time there is to connect: on a busy machine the gateway would take to TCP.
fn edge(origin: &RawOrigin, more: &str) -> Edge {
    Edge::start(&format!(
        "proxies:\n  - {{id: a, listen_path: /, backend_scheme: https, backend_http_version: '3', \
         backend_connect_timeout: 60000ms, backend_host: 127.0.0.1, backend_port: {}, backend_tls_ca_path: {:?}{more}}}\n",
        origin.address.port(),
        tls::authority().ca()
    ))
}

async fn ask(edge: &Edge, method: &str) -> Talker {
    let mut client = edge.talker().await;
    client.wire.send(format!("{method} /up HTTP/1.1\r\nhost: a.test\r\n\r\n")).await;
    client
}

/// Status and body of the answer, or that it broke off.
async fn answer(mut client: Talker) -> std::io::Result<(u16, Vec<u8>)> {
    let mut head = client.response(&http::Method::GET).await?;
    while head.status() < 200 {
        head = client.response(&http::Method::GET).await?;
    }
    Ok((head.status(), client.body().await?))
}

fn ok(more: &[(&str, &str)]) -> Vec<u8> {
    headers(&[&[(":status", "200")], more].concat())
}

/// Takes one request and answers with these octets, in order or not.
async fn serve(target: &Raw, octets: &[u8], whole: bool) {
    let (mut send, mut recv) = soon(target.quic.accept_bi()).await.unwrap();
    soon(recv.read_to_end(1 << 16)).await.unwrap();
    soon(send.write_all(octets)).await.unwrap();
    if whole {
        send.finish().unwrap();
    } else {
        // What was sent before has arrived by the time the rest is called off.
        drop(tokio::time::timeout(std::time::Duration::from_millis(1), send.stopped()).await);
        send.reset(0x102_u32.into()).unwrap();
    }
}

#[tokio::test]
async fn answers_come_through_with_whatever_is_between() {
    let origin = RawOrigin::start();
    let mut edge = edge(&origin, "");
    let client = ask(&edge, "GET").await;
    let target = origin.accept(&[PLAIN, &frame(0x21, b"grease")].concat()).await;
    let _unknown = target.uni(&[0x21, 1]).await;
    let octets = [
        &headers(&[(":status", "103"), ("link", "</a>")])[..],
        &frame(0x21, b"grease"),
        &headers(&[(":status", "103"), ("link", "</b>")]),
        &ok(&[("x-a", "b")]),
        &frame(0, b"he"),
        &frame(0x40, b"grease"),
        &frame(0, b"llo"),
        &headers(&[("x-sum", "1")]),
    ]
    .concat();
    serve(&target, &octets, true).await;
    let mut client = client;
    for link in ["</a>", "</b>"] {
        let head = client.response(&http::Method::GET).await.unwrap();
        assert_eq!((head.status(), head.field("link")), (103, link));
    }
    let head = client.response(&http::Method::GET).await.unwrap();
    assert_eq!((head.status(), head.field("x-a")), (200, "b"));
    assert_eq!(client.body().await.unwrap(), b"hello");
    assert_eq!(edge.only_record().await.reason(), "");
    // The same connection serves the next one.
    let client = ask(&edge, "GET").await;
    serve(&target, &ok(&[("content-length", "0")]), true).await;
    assert_eq!(answer(client).await.unwrap(), (200, Vec::new()));
}

#[tokio::test]
async fn what_breaks_off_or_breaks_the_rules_is_never_whole() {
    let origin = RawOrigin::start();
    for (octets, whole, code) in [
        (Vec::new(), true, None),
        (frame(0, b"body"), true, Some(0x105)),
        (headers(&[(":status", "99x")]), true, None),
        (headers(&[("x-a", "b")]), true, None),
        (headers(&[(":status", "200"), (":path", "/")]), true, None),
        (headers(&[(":status", "200"), ("connection", "close")]), true, None),
        (headers(&[(":status", "101")]), true, None),
        (headers(&[(":status", "103")]).repeat(40), true, None),
        (frame(5, &[0]), true, Some(0x108)),
        (frame(4, &[]), true, Some(0x105)),
        (frame(1, &[0, 0, 0x80]), true, Some(0x200)),
        (ok(&[])[..5].to_vec(), true, Some(0x106)),
        (frame(1, &[0; 1]).repeat(1), true, Some(0x200)),
    ] {
        let mut edge = edge(&origin, ", retry: {max_retries: 0}");
        let client = ask(&edge, "GET").await;
        let target = origin.accept(PLAIN).await;
        serve(&target, &octets, whole).await;
        let (status, _) = answer(client).await.unwrap();
        assert_eq!(status, 502, "{octets:x?}");
        let record = edge.only_record().await;
        assert!(matches!(record.reason(), "upstream_closed" | "upstream_garbage"), "{octets:x?} {record:?}");
        if let Some(code) = code {
            assert_eq!(target.closed().await, code, "{octets:x?}");
        }
    }
}

#[tokio::test]
async fn bodies_that_break_off_are_never_whole() {
    let origin = RawOrigin::start();
    for (octets, whole) in [
        ([&ok(&[("content-length", "10")])[..], &frame(0, b"half")].concat(), true),
        ([&ok(&[("content-length", "2")])[..], &frame(0, b"much")].concat(), true),
        ([&ok(&[])[..], &frame(0, b"half")].concat(), false),
        ([&ok(&[])[..], &[0, 9, b'h']].concat(), true),
        ([&ok(&[])[..], &frame(0, b"half"), &headers(&[(":status", "200")])].concat(), true),
    ] {
        let mut edge = edge(&origin, "");
        let client = ask(&edge, "GET").await;
        let target = origin.accept(PLAIN).await;
        serve(&target, &octets, whole).await;
        match answer(client).await {
            Ok((status, _)) => assert_eq!(status, 502, "{octets:x?}"),
            Err(error) => assert_ne!(error.kind(), std::io::ErrorKind::TimedOut),
        }
        let record = edge.only_record().await;
        assert!(matches!(record.reason(), "upstream_closed" | "upstream_garbage"), "{octets:x?} {record:?}");
    }
}

/// RFC 9114 §5.2: what a target has not looked at may be sent again, whatever its method, and whether or not the target
/// says a word about the very request.
#[tokio::test]
async fn what_was_not_looked_at_goes_elsewhere() {
    let origin = RawOrigin::start();
    for says_so in [true, false] {
        let mut edge = edge(&origin, ", retry: {max_retries: 2, budget_percent: 1000}");
        let client = ask(&edge, "POST").await;
        let mut first = origin.accept(PLAIN).await;
        let (mut send, mut recv) = soon(first.quic.accept_bi()).await.unwrap();
        soon(recv.read_to_end(1 << 16)).await.unwrap();
        soon(first.control.write_all(&frame(7, &[0]))).await.unwrap();
        if says_so {
            send.reset(0x10b_u32.into()).unwrap();
        }
        let second = origin.accept(PLAIN).await;
        serve(&second, &ok(&[("content-length", "0")]), true).await;
        assert_eq!(answer(client).await.unwrap().0, 200);
        assert_eq!(edge.only_record().await.reason(), "");
        // The first one gets no more, though it may still be open.
        let client = ask(&edge, "GET").await;
        serve(&second, &ok(&[("content-length", "0")]), true).await;
        assert_eq!(answer(client).await.unwrap().0, 200);
        assert!(first.quic.close_reason().is_none() || first.closed().await == 0x100);
    }
}

/// Wrong things on a target's control stream end its connection.
#[tokio::test]
async fn control_streams_of_targets_are_held_to_the_rules() {
    let origin = RawOrigin::start();
    for (control, code) in [
        (&[0, 7, 1, 0][..], 0x10a),
        (&[0, 4, 0, 4, 0], 0x105),
        (&[0, 4, 0, 0xd, 1, 0], 0x105),
        (&[0, 4, 0, 7, 1, 1], 0x108),
        (&[0, 4, 0, 3, 1, 0], 0x108),
        (&[0, 4, 2, 3, 0], 0x109),
        (&[1, 0], 0x108),
        (&[2, 0xc0], 0x201),
        (&[3, 0x80], 0x202),
    ] {
        let edge = edge(&origin, ", retry: {max_retries: 0}");
        let client = ask(&edge, "GET").await;
        let target = origin.accept(control).await;
        assert_eq!(target.closed().await, code, "{control:x?}");
        assert_eq!(answer(client).await.unwrap().0, 502, "{control:x?}");
    }
}

/// RFC 9114 §4.2.2: a head larger than the target takes is not sent to it.
#[tokio::test]
async fn heads_are_as_large_as_the_target_takes_them() {
    let origin = RawOrigin::start();
    let mut edge = edge(&origin, "");
    let client = ask(&edge, "GET").await;
    // 1024 octets.
    let target = origin.accept(&[0, 4, 3, 6, 0x44, 0]).await;
    serve(&target, &ok(&[("content-length", "0")]), true).await;
    assert_eq!(answer(client).await.unwrap().0, 200);
    edge.only_record().await;
    for (octets, status, reason) in [(200, 200, ""), (1000, 431, "headers_too_large"), (200, 200, "")] {
        let mut client = edge.talker().await;
        let long = "x".repeat(octets);
        client.wire.send(format!("GET /up HTTP/1.1\r\nhost: a.test\r\nx-long: {long}\r\n\r\n")).await;
        if status == 200 {
            loop {
                // The stream that was given up for the large one has nothing on it.
                let (mut send, mut recv) = soon(target.quic.accept_bi()).await.unwrap();
                if soon(recv.read_to_end(1 << 16)).await.is_ok() {
                    soon(send.write_all(&ok(&[("content-length", "0")]))).await.unwrap();
                    send.finish().unwrap();
                    break;
                }
            }
        }
        assert_eq!(answer(client).await.unwrap().0, status);
        assert_eq!(edge.only_record().await.reason(), reason);
    }
}

/// More requests than a target allows on one connection go over others, as many as there may be.
#[tokio::test]
async fn full_connections_have_company() {
    let origin = RawOrigin::with_streams(2);
    let mut edge = edge(&origin, ", pool_http3_connections_per_backend: 2");
    let mut clients = Vec::new();
    for _ in 0..2 {
        clients.push(ask(&edge, "GET").await);
    }
    let first = origin.accept(PLAIN).await;
    let mut streams = Vec::new();
    for _ in 0..2 {
        streams.push(soon(first.quic.accept_bi()).await.unwrap());
    }
    for _ in 0..2 {
        clients.push(ask(&edge, "GET").await);
    }
    let second = origin.accept(PLAIN).await;
    for _ in 0..2 {
        streams.push(soon(second.quic.accept_bi()).await.unwrap());
    }
    // The fifth waits for one of the four.
    clients.push(ask(&edge, "GET").await);
    edge.nothing_recorded().await;
    for (n, (mut send, mut recv)) in streams.into_iter().enumerate() {
        soon(recv.read_to_end(1 << 16)).await.unwrap();
        soon(send.write_all(&ok(&[("content-length", "0")]))).await.unwrap();
        send.finish().unwrap();
        assert_eq!(edge.records.next().await.status(), 200, "{n}");
    }
    let (mut send, mut recv) = tokio::select! {
        stream = soon(first.quic.accept_bi()) => stream.unwrap(),
        stream = soon(second.quic.accept_bi()) => stream.unwrap(),
    };
    soon(recv.read_to_end(1 << 16)).await.unwrap();
    soon(send.write_all(&ok(&[("content-length", "0")]))).await.unwrap();
    send.finish().unwrap();
    for client in clients {
        assert_eq!(answer(client).await.unwrap().0, 200);
    }
    assert_eq!(edge.only_record().await.status(), 200);
}
