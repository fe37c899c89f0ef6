//! What is stripped, what is added, and whom is believed.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{HeaderValue, Request};

use super::*;
use crate::http::body::Body;
use crate::http::exchange::Client;
use crate::http::names::{TrailerRules, strip_trailers};

const CLIENT: MessageSource = MessageSource::Request { trusted: false, underscores: Underscores::Drop };

fn exchange(peer: &str, trusted: bool, fields: &[(&str, &str)]) -> Exchange {
    let mut request = Request::new(Body::empty());
    for (name, value) in fields {
        request
            .headers_mut()
            .append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
    }
    let peer = SocketAddr::new(peer.parse().unwrap(), 1234);
    Exchange::new(request, Arc::new(Client::new(peer, "127.0.0.1:8000".parse().unwrap(), trusted, None)))
}

fn field<'a>(exchange: &'a Exchange, name: &str) -> Vec<&'a str> {
    exchange.request.headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
}

#[test]
fn hop_by_hop_fields_and_those_connection_names_are_removed() {
    let mut it = exchange(
        "192.0.2.1",
        false,
        &[
            ("connection", "close, X-Secret"),
            ("x-secret", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("proxy-authorization", "x"),
            ("accept", "*/*"),
        ],
    );
    strip(&mut it.request.headers, CLIENT);
    let left: Vec<_> = it.request.headers.keys().map(HeaderName::as_str).collect();
    assert_eq!(left, ["accept"]);
}

#[test]
fn connection_cannot_remove_what_others_check() {
    let mut it = exchange(
        "192.0.2.1",
        false,
        &[
            ("connection", "authorization, host, x-forwarded-for, content-length"),
            ("authorization", "Bearer x"),
        ],
    );
    strip(&mut it.request.headers, CLIENT);
    assert_eq!(field(&it, "authorization"), ["Bearer x"]);
}

#[test]
fn identity_of_a_client_is_not_believed() {
    let mut it =
        exchange("192.0.2.1", false, &[("X-Consumer-Username", "admin"), ("x-consumer-groups", "root")]);
    strip(&mut it.request.headers, CLIENT);
    assert!(it.request.headers.is_empty());
}

#[test]
fn underscores_are_found_wherever_they_are() {
    for length in 1..40 {
        for at in 0..length {
            let mut name = vec![b'^'; length];
            assert!(!has_underscore(&name), "{length}");
            name[at] = b'_';
            assert!(has_underscore(&name), "{at} of {length}");
        }
    }
}

#[test]
fn what_a_client_may_say_depends_on_who_it_is() {
    let fields = [
        ("client-cert", "x"),
        ("client-cert-chain", "x"),
        ("x-forwarded-client-cert", "x"),
        ("x-forwarded-tls-client-cert", "x"),
        ("x-forwarded-user", "x"),
        ("x-forwarded_server", "x"),
        ("x_consumer_username", "x"),
        ("x_forwarded_for", "x"),
        ("x-forwarded_for", "x"),
        ("client_cert", "x"),
        ("my_field", "x"),
        ("x-other", "x"),
    ];
    for (trusted, underscores, expected) in [
        (false, Underscores::Drop, &["x-other"][..]),
        (false, Underscores::Reject, &["x-other"]),
        (false, Underscores::Allow, &["my_field", "x-other"]),
        (
            true,
            Underscores::Drop,
            &[
                "client-cert",
                "client-cert-chain",
                "x-forwarded-client-cert",
                "x-forwarded-tls-client-cert",
                "x-forwarded-user",
                "x-other",
            ],
        ),
    ] {
        let mut it = exchange("192.0.2.1", trusted, &fields);
        strip(&mut it.request.headers, MessageSource::Request { trusted, underscores });
        let mut left: Vec<_> = it.request.headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, expected, "{trusted} {underscores:?}");
    }
}

/// The address of a client on this connection, with proxies in 10.0.0.0/8 trusted.
fn address_of(it: &mut Exchange, header: RealIpHeader) -> String {
    let trusted_proxies = vec!["10.0.0.0/8".parse().unwrap()];
    let settings = Settings { trusted_proxies, real_ip_header: header, ..Settings::default() };
    client_address(it, &settings).to_string()
}

#[test]
fn an_untrusted_client_cannot_claim_a_way() {
    let mut it = exchange("192.0.2.1", false, &[("x-forwarded-for", "10.0.0.1"), ("x-own", "10.0.0.2")]);
    assert_eq!(address_of(&mut it, RealIpHeader::XForwardedFor), "192.0.2.1");
    assert_eq!(address_of(&mut it, RealIpHeader::Forwarded), "192.0.2.1");
    assert!(it.request.headers.contains_key("x-own"));
    // Nobody is to take it for a proxy's word further on.
    let own = RealIpHeader::Other(HeaderName::from_static("x-own"));
    assert_eq!(address_of(&mut it, own), "192.0.2.1");
    assert!(!it.request.headers.contains_key("x-own"));
}

#[test]
fn a_trusted_proxy_is_believed_up_to_the_first_stranger() {
    let mut it = exchange(
        "10.0.0.9",
        true,
        &[("x-forwarded-for", "198.51.100.7, 203.0.113.5"), ("x-forwarded-for", "10.1.1.1")],
    );
    assert_eq!(address_of(&mut it, RealIpHeader::XForwardedFor), "203.0.113.5");
}

#[test]
fn clients_are_named_in_the_field_that_is_set() {
    let fields =
        [("x-forwarded-for", "192.0.2.1"), ("forwarded", "for=192.0.2.2"), ("x-real-ip", "192.0.2.3")];
    let own = |name: &'static str| RealIpHeader::Other(HeaderName::from_static(name));
    for (header, expected) in [
        (RealIpHeader::XForwardedFor, "192.0.2.1"),
        (RealIpHeader::Forwarded, "192.0.2.2"),
        (own("x-real-ip"), "192.0.2.3"),
        (own("cf-connecting-ip"), "10.0.0.9"),
    ] {
        assert_eq!(
            address_of(&mut exchange("10.0.0.9", true, &fields), header.clone()),
            expected,
            "{header:?}"
        );
    }
}

#[test]
fn what_clients_have_a_proxy_quote_is_not_believed() {
    for (forwarded, expected) in [
        ("for=198.51.100.7, for=203.0.113.5;proto=https", "203.0.113.5"),
        ("for=198.51.100.7,for=203.0.113.5, For=\"10.1.1.1:4711\"", "203.0.113.5"),
        ("proto=http;FOR=\"[2001:db8::7]:80\";by=10.0.0.1", "2001:db8::7"),
        ("for=203.0.113.5;host=\"a,for=192.0.2.1;x=\"", "203.0.113.5"),
        ("host=\"a;for=192.0.2.1;b\";for=203.0.113.5", "203.0.113.5"),
        ("host=\"a\\\",for=192.0.2.1;b\";for=203.0.113.5", "203.0.113.5"),
        ("for=\"x, for=203.0.113.5", "203.0.113.5"),
        ("for=unknown", "10.0.0.9"),
        ("for=_hidden, for=10.1.1.1", "10.1.1.1"),
        ("", "10.0.0.9"),
    ] {
        let mut it = exchange("10.0.0.9", true, &[("forwarded", forwarded)]);
        assert_eq!(address_of(&mut it, RealIpHeader::Forwarded), expected, "{forwarded}");
    }
}

#[test]
fn hops_with_ports_and_brackets_are_read() {
    for (hop, expected) in [
        ("10.0.0.1:80", Some("10.0.0.1")),
        (" [2001:db8::1]:443", Some("2001:db8::1")),
        ("[2001:db8::1]", Some("2001:db8::1")),
        ("::ffff:10.0.0.1", Some("10.0.0.1")),
        ("unknown", None),
    ] {
        assert_eq!(parse_hop(hop.as_bytes()).map(|it| it.to_string()).as_deref(), expected);
    }
}

fn rules(underscores: Underscores) -> TrailerRules {
    TrailerRules { underscores, max_fields: 20, max_bytes: 500 }
}

#[test]
fn trailers_keep_to_the_limits() {
    let fields = |count: usize, value: &str| {
        let field = |n| (format!("x-{n}").parse().unwrap(), HeaderValue::from_str(value).unwrap());
        (0..count).map(field).collect::<HeaderMap>()
    };
    for (count, value, is_good) in
        [(20, "1", true), (21, "1", false), (1, &*"x".repeat(497), true), (1, &*"x".repeat(498), false)]
    {
        let done = strip_trailers(&mut fields(count, value), rules(Underscores::Drop));
        assert_eq!(done.is_ok(), is_good, "{count} of {}", value.len());
    }
}

#[test]
fn trailers_go_by_the_rules_of_the_head() {
    let fields = [
        "X-Checksum",
        "x_other",
        "X-Consumer-Username",
        "X_Consumer_Username",
        "X-Credential-Identifier",
        "Client-Cert",
        "client_cert_chain",
        "X-Forwarded-For",
        "X_Forwarded_For",
        "X-Real-IP",
        "x-real_ip",
        "Forwarded",
        "Via",
        "X-API-Key",
        "Early-Data",
        "Alt-Used",
        "Proxy-Authorization",
        "Keep-Alive",
    ];
    let trailers = || {
        let field = |name: &&str| (name.parse().unwrap(), HeaderValue::from_static("x"));
        fields.iter().map(field).collect::<HeaderMap>()
    };
    for (underscores, expected) in
        [(Underscores::Drop, &["x-checksum"][..]), (Underscores::Allow, &["x-checksum", "x_other"])]
    {
        let mut it = trailers();
        strip_trailers(&mut it, rules(underscores)).unwrap();
        let mut left: Vec<_> = it.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, expected, "{underscores:?}");
    }
    strip_trailers(&mut trailers(), rules(Underscores::Reject)).unwrap_err();
    let mut plain = HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("x"))]);
    strip_trailers(&mut plain, rules(Underscores::Reject)).unwrap();
    assert_eq!(plain.len(), 1);
}
