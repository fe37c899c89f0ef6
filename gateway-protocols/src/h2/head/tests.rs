//! Heads from fields: what a target and the pipeline get to see of them.

use super::*;

fn fields(role: Role, given: &[(&str, &'static [u8])]) -> Fields {
    let mut fields = Fields::new(role);
    for (name, value) in given {
        fields.push(Field::new(Name::parse(name.as_bytes()), Bytes::from_static(value)));
    }
    fields
}

const LINE: [(&str, &[u8]); 3] = [(":method", b"GET"), (":scheme", b"https"), (":path", b"/a?b")];

fn request(more: &[(&str, &'static [u8])]) -> Result<RequestHead, Malformed> {
    fields(Role::Server, &[&LINE[..], more].concat()).take_request()
}

#[test]
fn targets_are_whole_where_there_is_an_authority() {
    let head = request(&[(":authority", b"x.test:1")]).unwrap();
    assert_eq!(head.request.uri().to_string(), "https://x.test:1/a?b");
    assert_eq!(head.request.version(), Version::HTTP_2);
    let head = request(&[("host", b"x.test")]).unwrap();
    assert_eq!(head.request.uri().to_string(), "/a?b");
    assert_eq!(head.request.headers()["host"], "x.test");
}

#[test]
fn lengths() {
    assert_eq!(request(&[("content-length", b"10")]).unwrap().length, Some(10));
    assert_eq!(request(&[]).unwrap().length, None);
    for bad in [&b"+1"[..], b"", b"1, 1", b"99999999999999999999"] {
        assert!(request(&[("content-length", bad)]).is_err(), "{bad:?}");
    }
}

#[test]
fn crumbs_are_joined_in_order() {
    let head = request(&[("cookie", b"a=1"), ("x", b"y"), ("cookie", b"b=2"), ("cookie", b"c=3")]).unwrap();
    let cookies: Vec<_> = head.request.headers().get_all(COOKIE).iter().collect();
    assert_eq!(cookies, ["a=1; b=2; c=3"]);
}

#[test]
fn extended_connect_says_its_protocol() {
    let given: [(&str, &[u8]); 5] = [
        (":method", b"CONNECT"),
        (":protocol", b"websocket"),
        (":scheme", b"https"),
        (":path", b"/chat"),
        (":authority", b"x.test"),
    ];
    let head = fields(Role::Server, &given).take_request().unwrap();
    assert_eq!(&head.request.extensions().get::<Protocol>().unwrap().0[..], b"websocket");
    assert_eq!(head.request.uri().path(), "/chat");
    assert!(fields(Role::Server, &given[..4]).take_request().is_err(), "no authority");
}

#[test]
fn responses() {
    let response = |status: &'static [u8]| fields(Role::Client, &[(":status", status)]).take_response();
    assert_eq!(response(b"200").unwrap().0.status(), StatusCode::OK);
    for bad in [&b"20"[..], b"2000", b"abc", b"", b"099"] {
        assert!(response(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn trailers_have_no_pseudo_header_fields() {
    assert!(fields(Role::Client, &[("x", b"y")]).take_trailers().is_ok());
    assert!(fields(Role::Client, &[(":status", b"200")]).take_trailers().is_err());
    assert!(fields(Role::Client, &[("x", b"y"), ("connection", b"close")]).take_trailers().is_err());
}

#[test]
fn secrets() {
    let value = HeaderValue::from_static("x");
    for name in [header::AUTHORIZATION, COOKIE, SET_COOKIE, PROXY_AUTHORIZATION] {
        assert!(is_secret(&name, &value), "{name}");
    }
    let mut marked = value.clone();
    marked.set_sensitive(true);
    assert!(is_secret(&header::ETAG, &marked) && !is_secret(&header::ETAG, &value));
}
