//! Which requests speak gRPC.

use http::HeaderValue;

use super::*;

#[test]
fn grpc_is_a_post_of_its_own_content_type() {
    for (method, content_type, expected) in [
        (Method::POST, "application/grpc", Dialect::Grpc),
        (Method::POST, "application/grpc+proto", Dialect::Grpc),
        (Method::POST, "application/grpc+json", Dialect::Grpc),
        (Method::POST, "application/grpc;charset=utf-8", Dialect::Grpc),
        (Method::POST, "application/grpc ; x", Dialect::Grpc),
        (Method::POST, "application/grpc-web", Dialect::Plain),
        (Method::POST, "application/grpc-web+proto", Dialect::Plain),
        (Method::POST, "application/grpcx", Dialect::Plain),
        (Method::POST, "application/json", Dialect::Plain),
        (Method::GET, "application/grpc", Dialect::Plain),
    ] {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(content_type))]);
        assert_eq!(Dialect::of(&method, &headers, false), expected, "{method} {content_type}");
        assert_eq!(Dialect::of(&method, &headers, true), Dialect::Upgrade);
    }
    assert_eq!(Dialect::of(&Method::POST, &HeaderMap::new(), false), Dialect::Plain);
}
