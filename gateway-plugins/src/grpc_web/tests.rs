//! Bodies and trailers, translated both ways.

use gateway_core::http::exchange::Client;
use http::Request;

use super::*;

fn plugin() -> GrpcWeb {
    let Ok(plugin) = GrpcWeb::build(Config::default(), &World::default()) else { panic!("defaults build") };
    plugin
}

fn exchange(content_type: &'static str, body: impl Into<Bytes>) -> Exchange {
    let mut request = Request::new(Body::full(body));
    *request.method_mut() = Method::POST;
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    let address = "127.0.0.1:1".parse().unwrap();
    Exchange::new(request, Arc::new(Client::new(address, address, false, None)))
}

/// A target's answer: one message, then trailers.
struct Answer(Vec<Frame<Bytes>>);

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Poll::Ready((!self.0.is_empty()).then(|| Ok(self.0.remove(0))))
    }
}

async fn answered(exchange: &mut Exchange) -> (Response<()>, Bytes) {
    let trailers =
        HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))]);
    let frames = vec![Frame::data(Bytes::from_static(b"\0\0\0\0\x01a")), Frame::trailers(trailers)];
    let mut response = Response::new(Body::stream(Answer(frames)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc+proto"));
    assert!(matches!(plugin().on_response(exchange, &mut response), Step::Next));
    let (parts, mut body) = response.into_parts();
    let (bytes, trailers) = body.collect(10_000).await.unwrap();
    assert!(trailers.is_none(), "a browser would not see them");
    (Response::from_parts(parts, ()), bytes)
}

const WITH_TRAILERS: &[u8] = b"\0\0\0\0\x01a\x80\0\0\0\x10grpc-status: 0\r\n";

#[tokio::test]
async fn binary_bodies_pass_and_trailers_become_the_last_frame() {
    let mut it = exchange("application/grpc-web+proto", &b"\0\0\0\0\x01q"[..]);
    assert!(matches!(plugin().on_request(&mut it), Step::Next));
    assert_eq!((it.dialect, &it.request.headers[CONTENT_TYPE]), (Dialect::Grpc, &GRPC));
    assert_eq!(it.body.collect(100).await.unwrap().0, &b"\0\0\0\0\x01q"[..]);
    let (head, body) = answered(&mut it).await;
    assert_eq!(head.headers()[CONTENT_TYPE], "application/grpc-web+proto");
    assert_eq!(head.headers()["access-control-expose-headers"], "grpc-status, grpc-message");
    assert_eq!(body, WITH_TRAILERS);
}

#[tokio::test]
async fn text_bodies_are_decoded_and_encoded() {
    // Two messages, each padded on its own.
    let sent = format!("{}{}\r\n", STANDARD.encode(b"\0\0\0\0\x01q"), STANDARD.encode(b"\0\0\0\0\x02rs"));
    let mut it = exchange("application/grpc-web-text", sent);
    assert!(matches!(plugin().on_request(&mut it), Step::Next));
    assert_eq!(it.body.collect(100).await.unwrap().0, &b"\0\0\0\0\x01q\0\0\0\0\x02rs"[..]);
    let (head, body) = answered(&mut it).await;
    assert_eq!(head.headers()[CONTENT_TYPE], "application/grpc-web-text");
    let mut decoder = Decoded { body: Body::empty(), rest: BytesMut::new() };
    assert_eq!(decoder.decode(&body).unwrap(), WITH_TRAILERS);
}

#[tokio::test]
async fn torn_or_foreign_text_is_refused() {
    for sent in ["AAA", "AA*A", "====="] {
        let mut it = exchange("application/grpc-web-text", sent);
        assert!(matches!(plugin().on_request(&mut it), Step::Next));
        assert!(matches!(it.body.collect(100).await, Err(BodyError::Framing(_))), "{sent}");
    }
}

#[tokio::test]
async fn other_types_are_left_alone() {
    for content_type in ["application/grpc", "application/grpc-webx", "application/json"] {
        let mut it = exchange(content_type, &b"AAAA"[..]);
        assert!(matches!(plugin().on_request(&mut it), Step::Next));
        assert_eq!(it.request.headers[CONTENT_TYPE], content_type);
        let mut response = Response::new(Body::empty());
        response.headers_mut().insert(CONTENT_TYPE, GRPC);
        assert!(matches!(plugin().on_response(&mut it, &mut response), Step::Next));
        assert_eq!(response.headers()[CONTENT_TYPE], GRPC);
    }
}
