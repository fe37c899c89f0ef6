//! What templates make of a request, and what they refuse.

use std::net::SocketAddr;
use std::sync::Arc;

use http::Request;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::config::consumer::Identity;
use crate::config::model::{Consumer, Id};
use crate::http::body::Body;
use crate::http::exchange::{Client, ClientTls};
use crate::route::Captures;

fn exchange() -> Exchange {
    let request = Request::builder()
        .uri("/users/7/a%20b?q=x%20y&amp=1%262")
        .header("host", "API.example:8000")
        .header("x-a", "one")
        .header("x-b", "1")
        .header("x-b", "2")
        .header("cookie", "sid=abc")
        .header("x-host", "a:80/b@c")
        .header("x-url", "https://evil.test/")
        .header("x-slashes", "///evil.test/")
        .header("x-cookie", "a; Domain=b,\"")
        .body(Body::empty())
        .expect("the request is good");
    let peer = SocketAddr::from(([192, 0, 2, 7], 5000));
    let tls =
        ClientTls { server_name: Some("api.example".into()), version: "TLSv1.3", ..ClientTls::default() };
    let client = Client::new(peer, SocketAddr::from(([127, 0, 0, 1], 443)), false, Some(tls));
    let mut exchange = Exchange::new(request, Arc::new(client));
    let consumer = Consumer {
        id: Id::new("c1").unwrap(),
        username: "ann".into(),
        custom_id: None,
        acl_groups: vec!["staff".into(), "admin".into()],
        credentials: [].into(),
    };
    let mut identity = Identity::consumer(Arc::new(consumer));
    let claims = json!({"sub": "u7", "org": {"id": 9}, "roles": ["a", "b"], "https://x.y/z": true});
    identity.claims = claims.as_object().cloned().map(Arc::new);
    exchange.identity = Some(Arc::new(identity));
    exchange.set_request_id(HeaderValue::from_static("id-1"));
    exchange.captures =
        Some(Box::new(Captures::new([("id", "7"), ("rest", "a%20b"), ("team", "a&team=victim;x")])));
    exchange
}

fn render(text: &str, place: TextContext) -> Result<String, Unrenderable> {
    let template = Template::parse(text, Moment::Request).expect("the test's template is good");
    let exchange = exchange();
    let mut out = Vec::new();
    template.render(&Facts { proxy: Some("p1"), ..Facts::of(&exchange) }, place, 100, &mut out)?;
    Ok(String::from_utf8(out).expect("is text"))
}

#[test]
fn every_value() {
    let cases = [
        ("plain", "plain"),
        ("", ""),
        ("$$5 for $${x}", "$5 for ${x}"),
        ("${request.method} ${request.path}", "GET /users/7/a%20b"),
        ("${request.query}|${request.target}", "q=x%20y&amp=1%262|/users/7/a%20b?q=x%20y&amp=1%262"),
        ("${request.scheme}://${request.host}|${request.authority}", "https://api.example|API.example:8000"),
        ("${request.version} ${request.id}", "HTTP/1.1 id-1"),
        ("${request.header.X-A},${request.header.x-b}", "one,1, 2"),
        ("${request.query.q}${request.query.amp}", "x y1&2"),
        ("${request.cookie.sid}", "abc"),
        ("${client.address}:${client.port} ${server.address}:${server.port}", "192.0.2.7:5000 127.0.0.1:443"),
        ("${consumer.username} ${consumer.id} ${consumer.group}", "ann c1 staff,admin"),
        ("${identity.name} ${identity.claim.sub} ${identity.claim.org.id}", "ann u7 9"),
        ("${identity.claim.roles} ${identity.claim.https://x.y/z}", "a,b true"),
        ("${capture.id}/${capture.rest}", "7/a%20b"),
        ("${tls.server_name} ${tls.version}", "api.example TLSv1.3"),
        ("${proxy.id}", "p1"),
        ("[${request.header.none}]", "[]"),
        ("[${request.header.none:-a:-b}]", "[a:-b]"),
        ("[${request.header.x-a:-other}]", "[one]"),
        ("[${identity.claim.none.x:-nobody}]", "[nobody]"),
        ("[${consumer.custom_id:-none}]", "[none]"),
    ];
    for (text, expected) in cases {
        assert_eq!(render(text, TextContext::Text).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn values_are_encoded_for_their_place() {
    let cases = [
        ("/v2/${capture.rest}", TextContext::Path, "/v2/a%20b"),
        ("/v2/${request.query.q}", TextContext::Path, "/v2/x%20y"),
        ("a${request.query.amp}", TextContext::Query, "a1%262"),
        ("${request.query}", TextContext::Query, "q%3Dx%2520y%26amp%3D1%25262"),
        ("${capture.team}", TextContext::Query, "a%26team%3Dvictim%3Bx"),
        ("/v2?team=${capture.team}", TextContext::Path, "/v2?team=a%26team%3Dvictim%3Bx"),
        (
            "/v2?${request.query}&x=${request.query}",
            TextContext::Path,
            "/v2?q=x%20y&amp=1%262&x=q%3Dx%2520y%26amp%3D1%25262",
        ),
        ("/v2/${capture.team}", TextContext::Path, "/v2/a&team=victim;x"),
        (
            "/login?next=${request.target}",
            TextContext::Url,
            "/login?next=/users/7/a%2520b%3Fq%3Dx%2520y%26amp%3D1%25262",
        ),
        ("/login#${request.query.amp}", TextContext::Url, "/login#1%262"),
        (
            "https://${request.authority}${request.target}",
            TextContext::Url,
            "https://API.example:8000/users/7/a%20b?q=x%20y&amp=1%262",
        ),
        ("https://${request.header.x-host}.internal/", TextContext::Url, "https://a%3A80%2Fb%40c.internal/"),
        ("${request.header.x-url}", TextContext::Url, "https%3A//evil.test/"),
        // No value begins a host where the template has none.
        ("${request.header.x-slashes}", TextContext::Url, "/evil.test/"),
        ("/${request.header.x-slashes}", TextContext::Url, "/evil.test/"),
        ("/${request.header.none}/${request.header.x-host}", TextContext::Url, "/a:80/b@c"),
        ("${request.header.none}/${request.header.x-slashes}", TextContext::Url, "/evil.test/"),
        ("//cdn.test/${request.header.x-slashes}", TextContext::Url, "//cdn.test////evil.test/"),
        ("/a/${request.header.x-slashes}", TextContext::Url, "/a////evil.test/"),
        ("https://a.test/${request.header.x-url}", TextContext::Url, "https://a.test/https://evil.test/"),
        ("${request.authority}", TextContext::Host, "API.example:8000"),
        ("${capture.id}.internal", TextContext::Host, "7.internal"),
        ("sid=${request.header.x-cookie}; Path=/", TextContext::Cookie, "sid=a%3B%20Domain=b%2C%22; Path=/"),
        ("${request.target}", TextContext::Log, "/users/7/a%20b?q=x%20y&amp=1%262"),
        ("a b&c=d#e%20\u{e9}", TextContext::Query, "a%20b%26c%3Dd%23e%2520%C3%A9"),
        ("${request.header.none:-a b&c}", TextContext::Query, "a%20b%26c"),
        ("/a b", TextContext::Path, "/a b"),
    ];
    for (text, place, expected) in cases {
        assert_eq!(render(text, place).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn no_value_brings_more_than_a_host_into_a_host() {
    assert_eq!(render("${request.header.x-host}.internal", TextContext::Host), Err(Unrenderable::Host));
}

#[test]
fn cookies_that_are_one_value_pass_as_they_came() {
    let exchange = exchange();
    let field = |text| {
        let template = Template::parse(text, Moment::Request).expect("is good");
        template.field(&SET_COOKIE, &Facts::of(&exchange), &mut Vec::new()).expect("is a field")
    };
    assert_eq!(field("${request.header.x-cookie}"), "a; Domain=b,\"");
    assert_eq!(field("a=${request.header.x-cookie}; Secure"), "a=a%3B%20Domain=b%2C%22; Secure");
}

#[test]
fn log_lines_show_no_credentials() {
    let mut exchange = exchange();
    let uri = "/cb?code=hush-1&page=2&api%5Fkey=hush-2;token=hush-3";
    exchange.request.uri = uri.parse().expect("is good");
    for (name, value) in
        [("authorization", "Bearer hush-4"), ("x-api-key", "hush-5"), ("x-original-url", uri)]
    {
        exchange.request.headers.insert(name, value.parse().expect("is good"));
    }
    let mut headers = HeaderMap::new();
    headers.append("location", HeaderValue::from_static("/cb?code=hush-6&page=3"));
    headers.append("set-cookie", HeaderValue::from_static("a=hush-7; Path=/"));
    headers.append("set-cookie", HeaderValue::from_static("b=hush-8; Path=/"));
    let facts = Facts { response: Some((StatusCode::FOUND, &headers)), ..Facts::of(&exchange) };
    for (text, expected) in [
        ("${request.target}", "/cb?code=REDACTED&page=2&api%5Fkey=REDACTED;token=REDACTED"),
        ("${request.query}", "code=REDACTED&page=2&api%5Fkey=REDACTED;token=REDACTED"),
        ("${request.query.code} ${request.query.page}", "REDACTED 2"),
        ("${request.cookie.sid} ${request.cookie.none:--}", "REDACTED -"),
        ("${request.header.authorization} ${request.header.x-api-key}", "Bearer REDACTED REDACTED"),
        ("${request.header.x-original-url}", "/cb?code=REDACTED&page=2&api%5Fkey=REDACTED;token=REDACTED"),
        ("${request.header.cookie} ${request.header.x-a}", "sid=REDACTED one"),
        ("${response.header.location}", "/cb?code=REDACTED&page=3"),
        ("${response.header.set-cookie}", "a=REDACTED; Path=/, b=REDACTED; Path=/"),
    ] {
        let template = Template::parse(text, Moment::End).expect("is good");
        let mut out = Vec::new();
        template.render(&facts, TextContext::Log, 1000, &mut out).expect("is rendered");
        assert_eq!(String::from_utf8_lossy(&out), expected, "{text}");
    }
}

#[test]
fn what_is_refused() {
    let cases = [
        ("${request.heder.x-a}", "did you mean `request.header.x-a`?"),
        ("${request.pth}", "did you mean `request.path`?"),
        ("${host}", "there is no value `host`"),
        ("${request.header.}", "no name after its last dot"),
        ("${request.header.x a}", "not a header's name"),
        ("${request.path", "has no end"),
        ("$host", "stands alone"),
        ("5$", "stands alone"),
        ("a\nb", "control characters"),
        ("${response.status}", "there is no response yet"),
        ("${target.host}", "no target has been picked yet"),
        ("${duration_ms}", "not ended yet"),
        ("${time}", "not ended yet"),
        ("${request.path:-${x}}", "plain text"),
        ("${env:HOME}", "one `$`"),
    ];
    for (text, part) in cases {
        let error = Template::parse(text, Moment::Request).expect_err(text).to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
    assert!(Template::parse("${response.status} ${target.host}", Moment::Response).is_ok());
    assert!(Template::parse("${duration_ms} ${cause:--}", Moment::End).is_ok());
    assert!(Template::parse(&"a".repeat(MAX_TEMPLATE + 1), Moment::End).is_err());
}

#[test]
fn limits_leave_the_buffer_as_it_was() {
    let exchange = exchange();
    let template = Template::parse("${request.path}${request.path}", Moment::Request).expect("is good");
    let mut out = b"before".to_vec();
    let limited = template.render(&Facts::of(&exchange), TextContext::Text, 20, &mut out);
    assert_eq!((limited, &*out), (Err(Unrenderable::TooLong(20)), &b"before"[..]));
    let limited = template.render(&Facts::of(&exchange), TextContext::Text, 28, &mut out);
    assert_eq!((limited, out.len()), (Ok(()), 6 + 28));
}

#[test]
fn responses() {
    let exchange = exchange();
    let mut headers = HeaderMap::new();
    headers.insert("x-r", HeaderValue::from_static("r"));
    let facts = Facts { response: Some((StatusCode::NOT_FOUND, &headers)), ..Facts::of(&exchange) };
    let text = "${response.status} ${response.header.x-r}";
    let template = Template::parse(text, Moment::Response).expect("is good");
    let value = template.header(&facts, &mut Vec::new()).expect("is a header");
    assert_eq!(value, "404 r");
    assert_eq!(Template::parse("a$$", Moment::Request).expect("is good").literal(), Some("a$"));
    assert_eq!(template.literal(), None);
}

proptest! {
    #[test]
    fn no_value_forges_a_line(value in "[ -~\\r\\n\\x00\\t%&=+#?/]{0,20}", path in any::<bool>()) {
        let mut exchange = exchange();
        let mut identity = Identity::consumer(
            exchange.identity.as_ref().and_then(|caller| caller.consumer.clone()).expect("is known"),
        );
        identity.claims = json!({"v": value}).as_object().cloned().map(Arc::new);
        exchange.identity = Some(Arc::new(identity));
        let template = Template::parse("${identity.claim.v}", Moment::Request).expect("is good");
        let place = if path { TextContext::Path } else { TextContext::Query };
        let mut out = Vec::new();
        match template.header(&Facts::of(&exchange), &mut out) {
            Ok(header) => prop_assert!(!header.as_bytes().iter().any(|b| matches!(b, b'\r' | b'\n' | 0))),
            Err(error) => {
                prop_assert_eq!(error, Unrenderable::Control);
                prop_assert!(value.bytes().any(|b| b < b' ' && b != b'\t'));
            }
        }
        out.clear();
        template.render(&Facts::of(&exchange), place, 1000, &mut out).expect("is encoded");
        prop_assert!(out.iter().all(|b| b.is_ascii_graphic() && !matches!(b, b'?' | b'#')));
        let back: Vec<u8> = percent_encoding::percent_decode(&out).collect();
        prop_assert_eq!(back, value.as_bytes());
    }
}
