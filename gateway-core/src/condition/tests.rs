//! What is written against what holds.

use std::net::SocketAddr;
use std::sync::Arc;

use http::Request;
use serde_json::json;

use super::*;
use crate::config::consumer::Identity;
use crate::config::model::{Consumer, Id};
use crate::http::body::Body;
use crate::http::dialect::Dialect;
use crate::http::exchange::{Client, ClientTls, Exchange};

fn written(value: serde_json::Value) -> written::Condition {
    serde_json::from_value(value).expect("the test writes what can be read")
}

fn condition(value: serde_json::Value) -> Condition {
    compile(&written(value), "when", Use::Response).expect("the test's condition is good")
}

fn problems(value: serde_json::Value, purpose: Use) -> Vec<String> {
    let problems = compile(&written(value), "when", purpose).expect_err("something is wrong");
    problems.0.iter().map(ToString::to_string).collect()
}

fn exchange(request: http::request::Builder, tls: Option<ClientTls>) -> Exchange {
    let request = request.body(Body::empty()).expect("the test's request is good");
    let (peer, local) = (SocketAddr::from(([192, 0, 2, 7], 5000)), SocketAddr::from(([127, 0, 0, 1], 8000)));
    let mut exchange = Exchange::new(request, Arc::new(Client::new(peer, local, false, tls)));
    exchange.dialect = Dialect::of(&exchange.request.method, &exchange.request.headers, false);
    exchange
}

fn get(uri: &str) -> http::request::Builder {
    Request::builder().uri(uri).header("host", "A.example:8000")
}

/// A guard's pattern is not passed by with a byte that `.` is often thought to leave out.
#[test]
fn regexes_see_line_feeds_and_what_is_no_text() {
    let any = |regex: &str| {
        json!({ "any": [
            { "headers": { "user-agent": { "regex": regex } } },
            { "query": { "q": { "regex": regex } } },
            { "cookies": { "q": { "regex": regex } } },
        ] })
    };
    let header = |bytes: &[u8]| http::HeaderValue::from_bytes(bytes).unwrap();
    let requests = || {
        [
            ("%ff", get("/?q=%ffevil")),
            ("%ff behind", get("/?q=evil%ff")),
            ("%0a", get("/?q=%0aevil%0d%0a")),
            ("cut off", get("/?q=evil%e4%bd")),
            ("header", get("/").header("user-agent", header(b"evil\xff"))),
            ("two headers", get("/").header("user-agent", "a").header("user-agent", header(b"\xe4evil"))),
            ("cookie", get("/").header("cookie", header(b"a=b; q=\xffevil\xfe"))),
        ]
    };
    for (name, request) in requests() {
        let exchange = exchange(request, None);
        for (regex, expected) in [
            (".*evil.*", true),
            ("[^/]*evil[^/]*", true),
            ("(?i).*EVIL.*", true),
            (r"\w*evil\w*", false),
            (".*good.*", false),
        ] {
            assert_eq!(condition(any(regex)).holds(&exchange), expected, "{name} {regex}");
        }
    }
    let letters = exchange(get("/?q=%c3%a9vil"), None);
    for (regex, expected) in [(r"\w+", true), ("[é]vil", true), (".vil", true), ("..vil", false)] {
        assert_eq!(condition(any(regex)).holds(&letters), expected, "{regex}");
    }
}

#[test]
fn each_key() {
    let plain = || {
        get("/users/7/posts?q=a%20b&q=c&flag")
            .header("x-a", "one")
            .header("x-b", "1")
            .header("x-b", "2")
            .header("cookie", "sid=abc; t=1")
            .header("content-type", "Application/JSON; charset=utf-8")
    };
    let cases = [
        (json!({"methods": ["get", "HEAD"]}), true),
        (json!({"methods": ["POST"]}), false),
        (json!({"path": "/users"}), true),
        (json!({"path": "/user"}), false),
        (json!({"path": "/users/{id}"}), false),
        (json!({"path": "/users/{id}/posts"}), true),
        (json!({"path": "/users/{rest...}"}), true),
        (json!({"path": "~/users/\\d+/.*"}), true),
        (json!({"path": "~/users"}), false),
        (json!({"path": {"exact": "/users"}}), false),
        (json!({"path": {"exact": "/users/7/posts"}}), true),
        (json!({"path": {"prefix": "/users/7"}}), true),
        (json!({"path": {"regex": ".*/posts"}}), true),
        (json!({"hosts": ["a.example"]}), true),
        (json!({"hosts": ["*.example"]}), true),
        (json!({"hosts": ["b.example"]}), false),
        (json!({"scheme": "http"}), true),
        (json!({"scheme": "https"}), false),
        (json!({"ports": [8000, 443]}), true),
        (json!({"ports": [443]}), false),
        (json!({"addresses": ["127.0.0.1"]}), true),
        (json!({"addresses": ["10.0.0.0/8", "::1"]}), false),
        (json!({"headers": {"X-A": "one"}}), true),
        (json!({"headers": {"X-A": "One"}}), false),
        (json!({"headers": {"X-A": {"exact": "One", "ignore_case": true}}}), true),
        (json!({"headers": {"X-A": {"prefix": "on"}}}), true),
        (json!({"headers": {"X-A": {"suffix": "NE", "ignore_case": true}}}), true),
        (json!({"headers": {"X-A": {"contains": "n"}}}), true),
        (json!({"headers": {"X-A": {"contains": "N", "ignore_case": true}}}), true),
        (json!({"headers": {"X-A": {"contains": "x"}}}), false),
        (json!({"headers": {"X-A": {"regex": "o.e"}}}), true),
        (json!({"headers": {"X-A": {"regex": "o."}}}), false),
        (json!({"headers": {"X-A": {"one_of": ["two", "one"]}}}), true),
        (json!({"headers": {"X-A": {"present": true}}}), true),
        (json!({"headers": {"X-A": {"present": false}}}), false),
        (json!({"headers": {"X-C": {"present": false}}}), true),
        (json!({"headers": {"X-C": ""}}), false),
        (json!({"headers": {"X-B": "1, 2"}}), true),
        (json!({"headers": {"X-B": "1"}}), false),
        (json!({"query": {"q": "a b"}}), true),
        (json!({"query": {"q": "c"}}), false),
        (json!({"query": {"flag": {"present": true}}}), true),
        (json!({"query_string": {"regex": "(.*[&;])?q=c([&;].*)?"}}), true),
        (json!({"authority": "A.example:8000"}), true),
        (json!({"authority": {"exact": "a.example:8000", "ignore_case": true}}), true),
        (json!({"authority": "a.example:8000"}), false),
        (json!({"authority": {"regex": "(?i)a\\.example"}}), false),
        (json!({"authority": {"present": false}}), false),
        (json!({"query_string": {"prefix": "q=a b"}}), false),
        (json!({"query_string": {"present": false}}), false),
        (json!({"cookies": {"sid": {"prefix": "ab"}}}), true),
        (json!({"cookies": {"sid": "ab"}}), false),
        (json!({"content_types": ["text/*", "application/json"]}), true),
        (json!({"content_types": ["application/*"]}), true),
        (json!({"content_types": ["text/*"]}), false),
        (json!({"clients": ["192.0.2.0/24"]}), true),
        (json!({"clients": ["192.0.2.7"]}), true),
        (json!({"clients": ["10.0.0.0/8", "::/0"]}), false),
        (json!({"grpc": {}}), false),
        (json!({"tls": {}}), false),
        (json!({"tls": {"client_certificate": {"present": false}}}), false),
        (json!({"consumers": ["ann"]}), false),
        (json!({"statuses": [200]}), false),
        (json!({"path": "/users", "methods": ["POST"]}), false),
        (json!({"all": [{"path": "/users"}, {"methods": ["GET"]}]}), true),
        (json!({"all": [{"path": "/users"}, {"methods": ["POST"]}]}), false),
        (json!({"any": [{"path": "/x"}, {"methods": ["GET"]}]}), true),
        (json!({"any": [{"path": "/x"}, {"methods": ["POST"]}]}), false),
        (json!({"not": {"path": "/x"}}), true),
        (json!({"not": {"path": "/users", "methods": ["GET"]}}), false),
        (json!({"not": {"any": [{"path": "/x"}, {"not": {"methods": ["GET"]}}]}}), true),
    ];
    for (value, expected) in cases {
        let text = value.to_string();
        assert_eq!(condition(value).holds(&exchange(plain(), None)), expected, "{text}");
    }
}

#[test]
fn calls_of_grpc() {
    let call = || {
        Request::builder()
            .method("POST")
            .uri("http://a.example/shop.v1.Orders/List")
            .header("content-type", "application/grpc+proto")
    };
    let cases = [
        (json!({"grpc": {}}), true),
        (json!({"grpc": {"service": "shop.v1.Orders"}}), true),
        (json!({"grpc": {"service": "shop.v1"}}), false),
        (json!({"grpc": {"method": "List"}}), true),
        (json!({"grpc": {"service": "shop.v1.Orders", "method": "Put"}}), false),
    ];
    for (value, expected) in cases {
        let text = value.to_string();
        assert_eq!(condition(value).holds(&exchange(call(), None)), expected, "{text}");
    }
}

#[test]
fn calls_of_grpc_in_every_disguise() {
    let any = json!({"grpc": {}});
    let method = json!({"grpc": {"method": "List"}});
    let service = json!({"grpc": {"service": "shop.v1.Orders"}});
    let list = json!({"grpc": {"service": "shop.v1.Orders", "method": "List"}});
    let cases = [
        ("POST", "/shop.v1.Orders/List", "Application/GRPC", [true; 4]),
        ("POST", "/shop.v1.Orders/List", "application/grpc\t;x=y", [true; 4]),
        ("POST", "/shop.v1.Orders/List", "application/grpc-web+proto", [true; 4]),
        ("POST", "/shop.v1.Orders/List", "Application/gRPC-Web-Text", [true; 4]),
        // Servers exist that take calls of any type, and JSON may become one.
        ("POST", "/shop.v1.Orders/List", "application/x", [false, false, true, true]),
        ("POST", "/shop.v1.Orders/List", "application/grpc-webx", [false, false, true, true]),
        ("GET", "/shop.v1.Orders/List", "application/grpc", [false; 4]),
        // A prefix that the proxy takes away.
        ("POST", "/api/shop.v1.Orders/List", "application/grpc", [true; 4]),
        ("POST", "/other.shop.v1.Orders/List", "application/grpc", [true, true, false, false]),
        ("POST", "/shop.v1.Orders/Put", "application/grpc", [true, false, true, false]),
    ];
    for (verb, path, content_type, expected) in cases {
        let request = || {
            let uri = format!("http://a.example{path}");
            Request::builder().method(verb).uri(uri).header("content-type", content_type)
        };
        let holds = |value: &serde_json::Value, purpose| {
            let compiled = compile(&written(value.clone()), "when", purpose).expect("the condition is good");
            compiled.holds(&exchange(request(), None))
        };
        let all = [&any, &method, &service, &list];
        assert_eq!(all.map(|it| holds(it, Use::Plugin)), expected, "{verb} {path} {content_type}");
        // A disguise has nobody spared, and nothing routed elsewhere.
        let is_plain = content_type.to_ascii_lowercase().starts_with("application/grpc")
            && !content_type.contains("eb")
            && verb == "POST";
        let is_exact = path.starts_with("/shop.v1.Orders/");
        for (value, expected) in all.iter().zip(expected) {
            let names_service = value["grpc"]["service"].is_string();
            let strictly = expected && is_plain && (is_exact || !names_service);
            assert_eq!(holds(value, Use::Route), strictly, "{value} {verb} {path} {content_type}");
            let not = json!({ "not": value });
            assert_eq!(holds(&not, Use::Plugin), !strictly, "{not} {verb} {path} {content_type}");
            let twice = json!({"not": {"not": value}});
            assert_eq!(holds(&twice, Use::Plugin), expected, "{twice} {verb} {path} {content_type}");
        }
    }
}

#[test]
fn what_the_handshake_said() {
    let mut params = rcgen::CertificateParams::new(vec!["orders.internal".to_owned()]).expect("is a name");
    params.distinguished_name.push(rcgen::DnType::CommonName, "orders");
    let key = rcgen::KeyPair::generate().expect("there is randomness");
    let certificate = params.self_signed(&key).expect("is good");
    let tls = |certificate: Option<&[u8]>| {
        Some(ClientTls {
            server_name: Some("a.example".into()),
            certificate: certificate.map(Arc::from),
            ..ClientTls::default()
        })
    };
    let cases = [
        (json!({"tls": {}}), true, true),
        (json!({"scheme": "https"}), true, true),
        (json!({"tls": {"server_names": ["*.example"]}}), true, true),
        (json!({"tls": {"server_names": ["b.example"]}}), false, false),
        (json!({"tls": {"client_certificate": {}}}), true, false),
        (json!({"tls": {"client_certificate": {"present": false}}}), false, true),
        (json!({"tls": {"client_certificate": {"common_name": "orders"}}}), true, false),
        (json!({"tls": {"client_certificate": {"subject": {"contains": "CN=orders"}}}}), true, false),
        (json!({"tls": {"client_certificate": {"san": {"suffix": ".internal"}}}}), true, false),
        (json!({"tls": {"client_certificate": {"san": "a"}}}), false, false),
    ];
    for (value, with, without) in cases {
        let text = value.to_string();
        let condition = condition(value);
        assert_eq!(condition.holds(&exchange(get("/"), tls(Some(certificate.der())))), with, "{text}");
        assert_eq!(condition.holds(&exchange(get("/"), tls(None))), without, "{text}");
        assert!(!condition.holds(&exchange(get("/"), None)), "{text}");
    }
    let broken = condition(json!({"tls": {"client_certificate": {"san": {"present": false}}}}));
    assert!(!broken.holds(&exchange(get("/"), tls(Some(b"no certificate")))));
}

#[test]
fn callers_and_statuses() {
    let mut exchange = exchange(get("/"), None);
    let consumer = Consumer {
        id: Id::new("c1").unwrap(),
        username: "ann".into(),
        custom_id: None,
        acl_groups: vec!["staff".into()],
        credentials: [].into(),
    };
    exchange.identity = Some(Arc::new(Identity::consumer(Arc::new(consumer))));
    assert!(condition(json!({"consumers": ["bob", "ann"]})).holds(&exchange));
    assert!(!condition(json!({"consumers": ["bob"]})).holds(&exchange));
    assert!(condition(json!({"groups": ["staff"]})).holds(&exchange));
    assert!(!condition(json!({"groups": ["ann"]})).holds(&exchange));
    let bad = condition(json!({"statuses": [404, "5xx", "420-422"]}));
    let cases = [(404, true), (405, false), (500, true), (599, true), (419, false), (422, true)];
    for (status, expected) in cases {
        assert_eq!(bad.holds_with(&exchange, status), expected, "{status}");
    }
    let problem = "when.groups: who calls is not known yet when a proxy is chosen (write it as the `when` of a plugin that \
         runs after authentication)";
    assert_eq!(problems(json!({"groups": ["staff"]}), Use::Route), [problem]);
    let problem = "when.statuses: there is no response yet (remove it)";
    assert_eq!(problems(json!({"statuses": ["5xx"]}), Use::Plugin), [problem]);
}

#[test]
fn every_problem_at_once() {
    let found = problems(
        json!({
            "methods": ["G T"],
            "path": "users",
            "hosts": ["http://a"],
            "headers": {"x y": "1", "host": "a", "x-a": {"regex": "("}, "x-b": {}, "x-c": {"exact": "1", "prefix": "2"}},
            "cookies": {"": "1"},
            "content_types": ["json", "text/html; charset=utf-8"],
            "clients": ["10.0.0.0/33"],
            "statuses": ["6xx", 99],
            "not": {},
            "any": [{"path": {"exact": "/a", "prefix": "/b"}}, {"path": "/{a}/{a}"}],
        }),
        Use::Response,
    );
    let places: Vec<&str> = found.iter().map(|text| text.split(": ").next().unwrap_or_default()).collect();
    let expected = [
        "when.methods[0]",
        "when.path",
        "when.hosts[0]",
        "when.headers.host",
        "when.headers.x y",
        "when.headers.x-a.regex",
        "when.headers.x-b",
        "when.headers.x-c",
        "when.cookies",
        "when.content_types[0]",
        "when.content_types[1]",
        "when.clients[0]",
        "when.statuses[0]",
        "when.statuses[1]",
        "when.any[0].path",
        "when.any[1].path",
        "when.not",
    ];
    let mut sorted = (places.clone(), expected.to_vec());
    sorted.0.sort_unstable();
    sorted.1.sort_unstable();
    assert_eq!(sorted.0, sorted.1, "{found:#?}");
    let deep = (0..20).fold(json!({"methods": ["GET"]}), |inner, _| json!({"not": inner}));
    assert!(problems(deep, Use::Route)[0].contains("deep"));
    let wide = json!({"clients": [], "all": vec![json!({"methods": ["GET"]}); MAX_PARTS]});
    assert!(problems(wide, Use::Route)[0].contains("parts"));
}

#[test]
fn unknown_keys_are_refused() {
    for value in [
        json!({"method": ["GET"]}),
        json!({"path": {"exakt": "/"}}),
        json!({"headers": {"a": {"regexp": "x"}}}),
        json!({"tls": {"sni": "x"}}),
        json!({"all": [{"pfad": "/"}]}),
    ] {
        assert!(serde_json::from_value::<written::Condition>(value.clone()).is_err(), "{value}");
    }
}

#[test]
fn what_excludes_what() {
    let cases = [
        (json!({"methods": ["GET"]}), json!({"methods": ["POST"]}), true),
        (json!({"methods": ["GET", "POST"]}), json!({"methods": ["POST"]}), false),
        (json!({"headers": {"v": "1"}}), json!({"headers": {"v": "2"}}), true),
        (json!({"headers": {"v": "1"}}), json!({"headers": {"w": "2"}}), false),
        (json!({"headers": {"v": {"present": false}}}), json!({"headers": {"v": {"regex": ".*"}}}), true),
        (
            json!({"headers": {"v": {"exact": "A", "ignore_case": true}}}),
            json!({"headers": {"v": "a"}}),
            false,
        ),
        (json!({"headers": {"v": {"prefix": "a"}}}), json!({"headers": {"v": {"prefix": "b"}}}), true),
        (json!({"headers": {"v": {"prefix": "a"}}}), json!({"headers": {"v": "b"}}), true),
        (json!({"headers": {"v": {"regex": "a+"}}}), json!({"headers": {"v": "b"}}), true),
        (json!({"headers": {"v": {"regex": "a+"}}}), json!({"headers": {"v": {"regex": "b+"}}}), false),
        (json!({"scheme": "http"}), json!({"scheme": "https"}), true),
        (json!({"ports": [80, 81]}), json!({"ports": [82]}), true),
        (json!({"ports": [80, 81]}), json!({"ports": [81]}), false),
        (json!({"addresses": ["10.0.0.1"]}), json!({"addresses": ["10.0.0.2"]}), true),
        (json!({"scheme": "http"}), json!({"tls": {"server_names": ["a"]}}), true),
        (json!({"clients": ["10.0.0.0/8"]}), json!({"clients": ["10.1.0.0/16"]}), false),
        (json!({"clients": ["10.0.0.0/8"]}), json!({"clients": ["11.0.0.0/8"]}), true),
        (json!({"grpc": {"method": "A"}}), json!({"grpc": {"method": "B"}}), true),
        (json!({"content_types": ["text/*"]}), json!({"content_types": ["text/html"]}), false),
        (json!({"content_types": ["text/html"]}), json!({"content_types": ["text/css"]}), true),
        (json!({"any": [{"methods": ["GET"]}, {"methods": ["PUT"]}]}), json!({"methods": ["POST"]}), true),
        (json!({"any": [{"methods": ["GET"]}, {"methods": ["PUT"]}]}), json!({"methods": ["PUT"]}), false),
        (json!({"not": {"methods": ["GET"]}}), json!({"methods": ["GET"], "scheme": "http"}), true),
        (json!({"not": {"methods": ["GET"]}}), json!({"methods": ["GET", "POST"]}), false),
    ];
    for (a, b, expected) in cases {
        let text = format!("{a} {b}");
        let (a, b) = (condition(a), condition(b));
        assert_eq!((a.excludes(&b), b.excludes(&a)), (expected, expected), "{text}");
    }
}
