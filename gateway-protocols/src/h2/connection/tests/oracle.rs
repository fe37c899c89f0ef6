//! Both roles of ours against the h2 crate's, over a pipe in memory.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use ::h2::{client, server};
use atomic_refcell::AtomicRefCell;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use tokio::io::DuplexStream;

use super::*;
use crate::h2::handle::{Cell, Handle};
use crate::h2::wire::Wire;

/// Has a task move octets between our end and the pipe.
fn drive(ours: Connection, pipe: DuplexStream) -> Cell {
    let cell: Cell = Arc::new(AtomicRefCell::new(ours));
    let driven = cell.clone();
    tokio::spawn(async move {
        let mut wire = Wire::new(pipe);
        poll_fn(|cx| {
            loop {
                driven.borrow_mut().attend();
                if let Poll::Ready(Err(_)) = wire.poll_write(cx, &driven) {
                    return Poll::Ready(());
                }
                match wire.poll_read(cx, &driven) {
                    Poll::Ready(Ok(true)) => {}
                    Poll::Ready(ended) => {
                        driven.borrow_mut().lose(crate::h2::wire::ended(ended));
                        return Poll::Ready(());
                    }
                    Poll::Pending => {
                        driven.borrow_mut().watch(cx);
                        return Poll::Pending;
                    }
                }
            }
        })
        .await;
    });
    cell
}

const TIMEOUT: Duration = Duration::from_secs(10);

async fn whole(stream: &Handle) -> (Vec<u8>, Option<HeaderMap>) {
    let mut body = Vec::new();
    while let Some(data) = poll_fn(|cx| stream.poll_data(cx, TIMEOUT)).await {
        body.extend_from_slice(&data.unwrap());
    }
    (body, stream.trailers())
}

async fn send(stream: &Handle, body: &[u8], trailers: Option<&HeaderMap>) {
    let mut rest = Bytes::copy_from_slice(body);
    while !rest.is_empty() {
        let room = poll_fn(|cx| stream.poll_room(cx, TIMEOUT)).await.unwrap();
        stream.send_data(rest.split_to(room.min(rest.len())), false).unwrap();
    }
    match trailers {
        Some(trailers) => stream.send_trailers(trailers).unwrap(),
        None => stream.send_data(Bytes::new(), true).unwrap(),
    }
}

async fn their_whole(body: &mut ::h2::RecvStream) -> (Vec<u8>, Option<HeaderMap>) {
    let mut all = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        all.extend_from_slice(&data);
    }
    (all, body.trailers().await.unwrap())
}

async fn their_send(stream: &mut ::h2::SendStream<Bytes>, body: &[u8], trailers: Option<HeaderMap>) {
    let mut rest = Bytes::copy_from_slice(body);
    while !rest.is_empty() {
        stream.reserve_capacity(rest.len());
        let room = poll_fn(|cx| stream.poll_capacity(cx)).await.unwrap().unwrap();
        stream.send_data(rest.split_to(room.min(rest.len())), false).unwrap();
    }
    match trailers {
        Some(trailers) => stream.send_trailers(trailers).unwrap(),
        None => stream.send_data(Bytes::new(), true).unwrap(),
    }
}

/// Fields of all kinds: known and unknown names, repeated ones, some that stay the same from turn to turn.
fn fields(random: &mut fastrand::Rng) -> HeaderMap {
    let mut map = HeaderMap::new();
    let names = ["accept", "content-type", "x-a", "x-b", "cookie", "authorization", "te-st", "server"];
    for _ in 0..random.usize(..12) {
        let name = HeaderName::from_static(names[random.usize(..names.len())]);
        let length = if random.u8(0..10) == 0 { random.usize(..3000) } else { random.usize(..12) };
        let value: Vec<u8> = match random.bool() {
            true => b"the same each time".to_vec(),
            false => {
                (0..length).map(|_| random.choice(b"abcXYZ019-;=\xe9~".iter().copied()).unwrap()).collect()
            }
        };
        if name == "cookie" && map.contains_key("cookie") {
            // Crumbs would come back as one.
            continue;
        }
        map.append(name, HeaderValue::from_bytes(&value).unwrap());
    }
    map
}

fn body(random: &mut fastrand::Rng) -> Vec<u8> {
    let length = match random.u8(0..4) {
        0 => 0,
        1 => random.usize(..100),
        2 => random.usize(..20_000),
        _ => random.usize(..300_000),
    };
    vec![random.u8(..); length]
}

const TURNS: u64 = 40;

#[tokio::test]
async fn their_client_and_our_server() {
    let (near, far) = tokio::io::duplex(50_000);
    let mut roomy = rules(Role::Server);
    roomy.max_header_list = 1 << 20;
    let cell = drive(Connection::new(roomy, Instant::now()), near);
    let (mut requests, connection) = client::handshake(far).await.unwrap();
    tokio::spawn(connection);
    for seed in 0..TURNS {
        let mut random = fastrand::Rng::with_seed(seed);
        let (sent, upload) = (fields(&mut random), body(&mut random));
        let mut request = Request::builder().method(Method::PUT).uri("http://a.test/p?q").body(()).unwrap();
        *request.headers_mut() = sent.clone();
        let (answered, download) = (fields(&mut random), body(&mut random));
        let trailers = random.bool().then(|| fields(&mut random)).filter(|map| !map.is_empty());
        let (response, mut sending) = requests.send_request(request, false).unwrap();
        let theirs = async {
            their_send(&mut sending, &upload, trailers.clone()).await;
            let (head, mut body) = response.await.unwrap().into_parts();
            (head, their_whole(&mut body).await)
        };
        let ours = async {
            let arrival = poll_fn(|cx| match cell.borrow_mut().next_arrival() {
                Some(arrival) => Poll::Ready(arrival),
                None => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
            })
            .await;
            let stream = Handle::adopt(&cell, arrival.stream.unwrap().0);
            let request = arrival.head.unwrap().request;
            assert_eq!(
                (request.method(), request.uri()),
                (&Method::PUT, &"http://a.test/p?q".parse().unwrap())
            );
            assert_eq!(request.headers(), &sent);
            let (body, seen) = whole(&stream).await;
            assert!(body == upload);
            assert_eq!(seen, trailers);
            let teapot = StatusCode::IM_A_TEAPOT;
            stream.respond(teapot, &answered, &Extra::default(), false).unwrap();
            send(&stream, &download, trailers.as_ref()).await;
        };
        let ((head, (body, seen)), ()) = tokio::join!(theirs, ours);
        assert_eq!((head.status, &head.headers), (StatusCode::IM_A_TEAPOT, &answered));
        assert!(body == download);
        assert_eq!(seen, trailers);
    }
    assert!(cell.borrow().end().is_none());
}

#[tokio::test]
async fn our_client_and_their_server() {
    let (near, far) = tokio::io::duplex(50_000);
    let mut roomy = rules(Role::Client);
    roomy.max_header_list = 1 << 20;
    let cell = drive(Connection::new(roomy, Instant::now()), near);
    let mut connection = server::Builder::new().initial_window_size(70_000).handshake(far).await.unwrap();
    let (sender, mut streams) = tokio::sync::mpsc::channel(8);
    tokio::spawn(async move {
        while let Some(Ok(stream)) = connection.accept().await {
            sender.send(stream).await.unwrap();
        }
    });
    for seed in 0..TURNS {
        let mut random = fastrand::Rng::with_seed(seed);
        let (sent, upload) = (fields(&mut random), body(&mut random));
        let (answered, download) = (fields(&mut random), body(&mut random));
        let trailers = random.bool().then(|| fields(&mut random)).filter(|map| !map.is_empty());
        let line = RequestLine { method: &Method::POST, scheme: "https", authority: b"b.test", path: "/x" };
        let opened = cell.borrow_mut().request(&line, &sent, &Extra::default(), false);
        let stream = Handle::adopt(&cell, opened.unwrap().0);
        let ours = async {
            send(&stream, &upload, trailers.as_ref()).await;
            let head = loop {
                match poll_fn(|cx| stream.poll_said(cx, || None)).await.unwrap() {
                    crate::h2::handle::ResponseHead::Interim(head) => assert_eq!(head.status(), 103),
                    crate::h2::handle::ResponseHead::Final(head) => break head,
                }
            };
            (head, whole(&stream).await)
        };
        let theirs = async {
            let (request, mut respond): (Request<::h2::RecvStream>, server::SendResponse<Bytes>) =
                streams.recv().await.unwrap();
            let (parts, mut recv) = request.into_parts();
            assert_eq!((parts.method, parts.uri), (Method::POST, "https://b.test/x".parse().unwrap()));
            assert_eq!(parts.headers, sent);
            let (body, seen) = their_whole(&mut recv).await;
            assert!(body == upload);
            assert_eq!(seen, trailers);
            respond.send_informational(Response::builder().status(103).body(()).unwrap()).unwrap();
            let mut response = Response::builder().status(201).body(()).unwrap();
            *response.headers_mut() = answered.clone();
            let mut sending = respond.send_response(response, false).unwrap();
            their_send(&mut sending, &download, trailers.clone()).await;
        };
        let ((head, (body, seen)), ()) = tokio::join!(ours, theirs);
        assert_eq!((head.status(), head.headers()), (StatusCode::CREATED, &answered));
        assert!(body == download);
        assert_eq!(seen, trailers);
    }
    assert!(cell.borrow().is_open());
}
