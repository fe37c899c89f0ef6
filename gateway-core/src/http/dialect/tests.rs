//! Which requests speak gRPC, and how long they wait.

use http::{HeaderName, HeaderValue};

use super::*;

#[test]
fn grpc_is_a_post_of_its_own_content_type() {
    for (method, content_type, expected) in [
        (Method::POST, "application/grpc", Dialect::Grpc),
        (Method::POST, "application/grpc+proto", Dialect::Grpc),
        (Method::POST, "application/grpc+json", Dialect::Grpc),
        (Method::POST, "application/grpc;charset=utf-8", Dialect::Grpc),
        (Method::POST, "application/grpc ; x", Dialect::Grpc),
        (Method::POST, "application/grpc\t;x", Dialect::Grpc),
        (Method::POST, "Application/gRPC", Dialect::Grpc),
        (Method::POST, "APPLICATION/GRPC+PROTO", Dialect::Grpc),
        (Method::POST, "Application/GRPC-Web", Dialect::Plain),
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

#[test]
fn timeouts_in_every_unit() {
    let of = |text: &'static str| {
        let name = HeaderName::from_static("grpc-timeout");
        Dialect::Grpc.timeout(&Method::POST, &HeaderMap::from_iter([(name, HeaderValue::from_static(text))]))
    };
    assert_eq!(of("2H"), Some(Duration::from_secs(7200)));
    assert_eq!(of("3M"), Some(Duration::from_secs(180)));
    assert_eq!(of("4S"), Some(Duration::from_secs(4)));
    assert_eq!(of("100m"), Some(Duration::from_millis(100)));
    assert_eq!(of("5u"), Some(Duration::from_micros(5)));
    assert_eq!(of("6n"), Some(Duration::from_nanos(6)));
    assert_eq!(of("99999999H"), Some(MAX_DEADLINE));
    for bad in ["", "S", "1", "1s", "123456789S", "-1S", "1.5S", " 1S"] {
        assert_eq!(of(bad), None, "{bad}");
    }
}
