//! Heads as they come off the wire, good and bad.

use super::*;

const LIMITS: HeadLimits = HeadLimits { bytes: 1024, fields: 10, target: 100 };

fn parse(wire: &str) -> Result<Option<RequestHead>, HeadError> {
    request(&mut BytesMut::from(wire.as_bytes()), &LIMITS)
}

#[track_caller]
fn good(wire: &str) -> RequestHead {
    parse(wire).unwrap().unwrap()
}

#[track_caller]
fn refused(wire: &str) -> HeadError {
    match parse(wire) {
        Err(error) => error,
        Ok(other) => panic!("{wire:?} was read as {other:?}"),
    }
}

#[test]
fn a_request_is_read_in_any_slicing() {
    let wire = b"\r\nPOST /a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nX-Y:  z \r\n\r\nabcGET";
    let mut buffer = BytesMut::new();
    for (n, byte) in wire.iter().enumerate() {
        buffer.extend_from_slice(&[*byte]);
        if let Some(head) = request(&mut buffer, &LIMITS).unwrap() {
            assert_eq!(n, wire.len() - 7);
            assert_eq!(head.framing, Framing::Length(3));
            assert_eq!(head.request.uri(), "/a?b=c");
            assert_eq!(head.request.headers()["x-y"], "z");
            assert!(head.keep_alive && !head.expects_continue && head.upgrade.is_none());
            assert!(buffer.is_empty());
            return;
        }
    }
    panic!("never complete");
}

#[test]
fn framing_that_two_readers_could_read_differently_is_refused() {
    for fields in [
        "Content-Length: 3\r\nTransfer-Encoding: chunked",
        "Content-Length: 3\r\nContent-Length: 3",
        "Content-Length: 3\r\nContent-Length: 4",
        "Content-Length: 3, 3",
        "Content-Length: +3",
        "Content-Length: 0x3",
        "Content-Length: ",
        "Content-Length: 99999999999999999999",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: \u{b}chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Content-Length : 3",
        " Content-Length: 3",
        "X: a\r\n b",
        "X: a\nY: b",
        "X: a\rY: b",
        "X\0: a",
        "X: \0",
    ] {
        refused(&format!("POST / HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n"));
    }
    refused("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n");
    refused("GET / HTTP/1.1\nHost: x\n\n");
}

#[test]
fn request_lines() {
    for bad in [
        "GET  / HTTP/1.1",
        "GET / HTTP/1.:",
        "GET / HTTP/1.10",
        "GET / HTTP/01.1",
        "GET / HTTP/2.0",
        "GET /",
        "GET",
        " GET / HTTP/1.1",
        "G(T / HTTP/1.1",
        "GET / HTTP/1.1 ",
        "GET a HTTP/1.1",
        "GET * HTTP/1.1",
        "GET /\u{7f} HTTP/1.1",
        "GET x:80 HTTP/1.1",
        "CONNECT / HTTP/1.1",
        "\0 / HTTP/1.1",
    ] {
        refused(&format!("{bad}\r\nHost: x\r\n\r\n"));
    }
    for later in ["HTTP/1.2", "HTTP/1.9"] {
        let head = good(&format!("GET / {later}\r\nHost: x\r\n\r\n"));
        assert!(head.keep_alive && head.request.version() == Version::HTTP_11, "{later}");
        let answer = format!("{later} 200 OK\r\nContent-Length: 0\r\n\r\n");
        let head = response(&mut BytesMut::from(answer.as_bytes()), &LIMITS, &Method::GET).unwrap().unwrap();
        assert_eq!(head.response.version(), Version::HTTP_11, "{later}");
    }
    assert_eq!(good("GET http://a.example/x HTTP/1.1\r\n\r\n").request.uri().host(), Some("a.example"));
    assert_eq!(good("OPTIONS * HTTP/1.1\r\n\r\n").request.uri(), "*");
    assert_eq!(good("CONNECT a:443 HTTP/1.1\r\n\r\n").request.method(), Method::CONNECT);
}

#[test]
fn a_target_is_text_also_where_it_is_dropped() {
    for target in [&b"/a#\xff"[..], b"/a#\xc3", b"/\xff", b"http://a/#\xff"] {
        let wire = [b"GET ", target, b" HTTP/1.1\r\nHost: x\r\n\r\n"].concat();
        assert!(request(&mut BytesMut::from(&wire[..]), &LIMITS).is_err(), "{target:?}");
    }
    assert_eq!(good("GET /a?b#c HTTP/1.1\r\nHost: x\r\n\r\n").request.uri(), "/a?b");
}

#[test]
fn sizes_are_limited() {
    let long = "a".repeat(2000);
    assert_eq!(refused(&format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(200))), HeadError::TargetTooLong);
    assert_eq!(refused(&format!("GET / HTTP/1.1\r\nX: {long}")), HeadError::TooLarge);
    assert_eq!(refused(&format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(11))), HeadError::TooMany);
    assert!(request(&mut BytesMut::from(&*"\r\n".repeat(600)), &LIMITS).unwrap().is_none());
    assert_eq!(
        good(&format!("{}GET /a HTTP/1.1\r\nHost: x\r\n\r\n", "\r\n".repeat(600))).request.uri(),
        "/a"
    );
}

#[test]
fn keeping_the_connection() {
    assert!(good("GET / HTTP/1.1\r\n\r\n").keep_alive);
    assert!(!good("GET / HTTP/1.1\r\nConnection: foo, Close\r\n\r\n").keep_alive);
    assert!(!good("GET / HTTP/1.0\r\n\r\n").keep_alive);
    assert!(good("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").keep_alive);
    let upgrade = good("GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").upgrade;
    assert_eq!(upgrade.unwrap(), "websocket");
    assert!(good("GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n").upgrade.is_none());
}

fn answer(wire: &str, to: Method) -> Result<ResponseHead, HeadError> {
    response(&mut BytesMut::from(wire.as_bytes()), &LIMITS, &to).map(Option::unwrap)
}

#[test]
fn responses_and_their_bodies() {
    let framing = |wire: &str, to: Method| answer(wire, to).unwrap().framing;
    assert_eq!(framing("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Method::GET), Framing::Length(5));
    assert_eq!(framing("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Method::HEAD), Framing::None);
    assert_eq!(framing("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", Method::GET), Framing::None);
    assert_eq!(framing("HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n", Method::GET), Framing::Chunked);
    let open = answer("HTTP/1.1 200 OK\r\n\r\n", Method::GET).unwrap();
    assert_eq!((open.framing, open.keep_alive), (Framing::UntilClose, false));
    assert!(
        answer("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", Method::GET)
            .is_err()
    );
    assert!(answer("HTP/1.1 200 OK\r\n\r\n", Method::GET).is_err());
    assert!(answer("HTTP/1.1 99 OK\r\n\r\n", Method::GET).is_err());
}
