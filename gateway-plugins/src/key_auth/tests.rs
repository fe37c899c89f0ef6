//! Keys found, refused, and taken out.

use gateway_core::config::file::{NoReferences, Origin};
use gateway_core::config::resolve;
use gateway_core::http::body::Body;
use gateway_core::http::exchange::Client;
use gateway_core::plugin::Finding;
use http::Request;

use super::*;

/// Two consumers; one has two keys while they are rotated.
fn consumers() -> Consumers {
    let spec = "consumers:
  - {id: a, username: alice, credentials: {key_auth: [{key: old}, {key: 'new key'}]}}
  - {id: b, username: bob, credentials: {keyauth: bobs}}
";
    let origin = Origin { name: "test".into(), folder: "".into(), format: None };
    let any = |_: &str, _: &serde_json::Value| Ok(());
    let model = resolve::load(spec, &origin, &NoReferences, &any, |_| Problems::default()).unwrap();
    Consumers::new(&model.consumers)
}

fn exchange(target: &str, fields: &[(&'static str, &str)]) -> Exchange {
    let mut request = Request::get(target).body(Body::empty()).unwrap();
    for (name, value) in fields {
        request.headers_mut().append(*name, value.parse().unwrap());
    }
    let address = "127.0.0.1:1".parse().unwrap();
    Exchange::new(request, Arc::new(Client::new(address, address, false, None)))
}

fn plugin(key_location: &str, hide_credentials: bool) -> KeyAuth {
    let config = Config { key_location: key_location.into(), hide_credentials };
    KeyAuth::build(config, &World::default()).unwrap_or_else(|problems| panic!("{problems}"))
}

/// Who is recognised: a name, `-` when no key was sent, or the refusal's status.
async fn verdict(plugin: &KeyAuth, exchange: &mut Exchange) -> String {
    match plugin.authenticate(exchange, &consumers()).finding().await {
        Finding::Absent => "-".into(),
        Finding::Caller(identity) => identity.name.to_string(),
        Finding::Refused(reply) => {
            assert!(reply.headers.contains_key(WWW_AUTHENTICATE));
            reply.http_status().as_u16().to_string()
        }
    }
}

#[tokio::test]
async fn keys_in_a_header() {
    let plugin = plugin("header:X-API-Key", true);
    for (fields, expected) in [
        (&[("x-api-key", "old")][..], "alice"),
        (&[("x-api-key", "new key")], "alice"),
        (&[("x-api-key", "bobs")], "bob"),
        (&[("x-api-key", "Old")], "401"),
        (&[("x-api-key", "")], "401"),
        (&[("x-api-key", "old"), ("x-api-key", "bobs")], "401"),
        (&[("other", "old")], "-"),
    ] {
        let mut it = exchange("/", fields);
        assert_eq!(verdict(&plugin, &mut it).await, expected, "{fields:?}");
        let stays = expected == "401";
        assert_eq!(
            it.request.headers.contains_key("x-api-key"),
            stays,
            "a good key must not reach the target"
        );
    }
}

#[tokio::test]
async fn keys_in_the_query() {
    let plugin = plugin("query:key", true);
    for (target, expected, left) in [
        ("/p?key=old", "alice", "/p"),
        ("/p?a=1&key=new%20key&b=2", "alice", "/p?a=1&b=2"),
        ("/p?akey=old&keys=old", "-", "/p?akey=old&keys=old"),
        ("/p?key=old&key=bobs", "401", "/p?key=old&key=bobs"),
        ("/p?key", "401", "/p?key"),
        ("/p", "-", "/p"),
    ] {
        let mut it = exchange(target, &[]);
        assert_eq!(verdict(&plugin, &mut it).await, expected, "{target}");
        assert_eq!(it.uri(), left);
    }
}

#[tokio::test]
async fn keys_stay_where_the_operator_wants_them() {
    let mut it = exchange("/p?key=bobs", &[]);
    assert_eq!(verdict(&plugin("query:key", false), &mut it).await, "bob");
    assert_eq!(it.uri(), "/p?key=bobs");
}

#[test]
fn places_that_are_none_are_refused() {
    for place in ["", "header:", "header:a b", "query:", "query:a&b", "cookie:x", "X-API-Key"] {
        let config = Config { key_location: place.into(), hide_credentials: true };
        assert!(KeyAuth::build(config, &World::default()).is_err(), "{place}");
    }
}
