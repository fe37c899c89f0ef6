//! Who counts as one caller and who does not.

use std::collections::hash_map::DefaultHasher;
use std::sync::Arc;

use gateway_core::config::model::Consumer;
use gateway_core::http::body::Body;
use gateway_core::http::exchange::Client;
use serde_json::json;

use super::*;

fn key_by(limit_by: serde_json::Value, on_missing: Missing) -> Result<KeyBy, Problems> {
    // A prefix says something only where addresses count.
    let by_address = limit_by != "route" && on_missing == Missing::Address;
    let ipv4_prefix = if by_address { 24 } else { 32 };
    let limit_by = serde_json::from_value(limit_by).unwrap();
    let mut problems = Problems::default();
    let settings = KeySettings { name: "limit_by", limit_by, ipv4_prefix, ipv6_prefix: 64, on_missing };
    let key_by = KeyBy::new(settings, &mut problems);
    problems.into_result(key_by)
}

fn exchange(address: &str, fields: &[(&str, &str)]) -> Exchange {
    let mut request = http::Request::get("/x?q=1");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let client =
        Client::new((address.parse::<IpAddr>().unwrap(), 1).into(), ([127, 0, 0, 1], 80).into(), false, None);
    Exchange::new(request.body(Body::empty()).unwrap(), Arc::new(client))
}

const PROXY: CountedProxy<'_> = CountedProxy { id: "a", owner: Some("ann") };

fn keyed(key_by: &KeyBy, exchange: &Exchange) -> Keyed {
    key_by.of_exchange(exchange, PROXY, DefaultHasher::new())
}

#[test]
fn addresses_count_by_their_networks() {
    let by = key_by(json!("address"), Missing::Address).unwrap();
    let same = |a, b| keyed(&by, &exchange(a, &[])) == keyed(&by, &exchange(b, &[]));
    assert!(same("192.0.2.1", "192.0.2.255"));
    assert!(same("192.0.2.1", "::ffff:192.0.2.9"), "IPv4 through an IPv6 socket is IPv4");
    assert!(!same("192.0.2.1", "192.0.3.1"));
    assert!(same("2001:db8::1", "2001:db8::ffff:0:1"));
    assert!(!same("2001:db8::1", "2001:db8:0:1::1"));
}

#[test]
fn each_part_tells_callers_apart() {
    let by = key_by(json!(["header:x-a", "cookie:c"]), Missing::Deny).unwrap();
    let key = |a, c| keyed(&by, &exchange("192.0.2.1", &[("x-a", a), ("cookie", c)]));
    assert_eq!(key("1", "c=1"), key("1", "c=1; d=2"));
    assert_ne!(key("1", "c=1"), key("2", "c=1"));
    assert_ne!(key("1", "c=1"), key("1", "c=2"));
    assert_ne!(key("1", "c=11"), key("11", "c=1"), "parts do not run into each other");
    assert_eq!(key("1", "d=1"), Keyed::Denied);
    let by = key_by(json!("template:${request.header.x-a}-${request.query}"), Missing::Deny).unwrap();
    let key = |a| keyed(&by, &exchange("192.0.2.1", &[("x-a", a)]));
    assert_ne!(key("1"), key("2"));
    let by = key_by(json!("route"), Missing::Address).unwrap();
    let of = |id, by: &KeyBy| {
        let proxy = CountedProxy { id, ..PROXY };
        by.of_exchange(&exchange("192.0.2.1", &[]), proxy, DefaultHasher::new())
    };
    assert_ne!(of("a", &by), of("b", &by));
    let by = key_by(json!("owner"), Missing::Deny).unwrap();
    assert_eq!(of("a", &by), of("b", &by), "of one owner");
    let nobodys = CountedProxy { owner: None, ..PROXY };
    let keyed = by.of_exchange(&exchange("192.0.2.1", &[]), nobodys, DefaultHasher::new());
    assert_eq!(keyed, Keyed::Denied);
    // The owner's own traffic on a proxy that is nobody's counts as that of the owner's proxies.
    let consumer = Consumer {
        id: "c1".parse().unwrap(),
        username: "ann".into(),
        custom_id: None,
        acl_groups: Vec::new(),
        credentials: Box::default(),
    };
    let mut exchange = exchange("192.0.2.1", &[]);
    exchange.identity = Some(Arc::new(Identity::consumer(Arc::new(consumer))));
    assert_eq!(by.of_exchange(&exchange, nobodys, DefaultHasher::new()), of("a", &by));
}

#[test]
fn identities_claims_and_groups() {
    let who = |name: &str, group: &str| {
        let mut identity = Identity::external(name);
        identity.groups = Arc::new([Arc::from(group)]);
        identity.claims =
            json!({ "tenant": group, "https://example.com/role": name }).as_object().cloned().map(Arc::new);
        let mut exchange = exchange("192.0.2.1", &[]);
        exchange.identity = Some(Arc::new(identity));
        exchange
    };
    for (by, same_group_same) in [
        ("consumer", false),
        ("group", true),
        ("claim:tenant", true),
        ("claim:https://example.com/role", false),
    ] {
        let by_this = key_by(json!(by), Missing::Deny).unwrap();
        let alike = keyed(&by_this, &who("alice", "g")) == keyed(&by_this, &who("bob", "g"));
        assert_eq!(alike, same_group_same, "{by}");
        assert_eq!(keyed(&by_this, &exchange("192.0.2.1", &[])), Keyed::Denied, "{by}");
        let changed = keyed(&by_this, &who("alice", "g")) == keyed(&by_this, &who("alicia", "h"));
        assert!(!changed, "{by}");
    }
}

#[test]
fn a_name_of_one_issuer_is_not_that_of_another() {
    let who = |issuer: Option<&str>| {
        let mut identity = Identity::external("1001");
        identity.claims = issuer.map(|iss| Arc::new(json!({ "iss": iss }).as_object().cloned().unwrap()));
        let mut exchange = exchange("192.0.2.1", &[]);
        exchange.identity = Some(Arc::new(identity));
        keyed(&key_by(json!("consumer"), Missing::Deny).unwrap(), &exchange)
    };
    assert_eq!(who(Some("https://a.test")), who(Some("https://a.test")));
    assert_ne!(who(Some("https://a.test")), who(Some("https://b.test")));
    assert_ne!(who(Some("https://a.test")), who(None));
}

#[test]
fn what_is_missing() {
    let bare = exchange("192.0.2.1", &[]);
    let other = exchange("198.51.100.1", &[]);
    let by = key_by(json!("header:x-a"), Missing::Address).unwrap();
    assert!(matches!(keyed(&by, &bare), Keyed::Key(_)));
    assert_ne!(keyed(&by, &bare), keyed(&by, &other));
    let empty = exchange("192.0.2.1", &[("x-a", "")]);
    assert_eq!(keyed(&by, &bare), keyed(&by, &empty), "an empty value is none");
    assert_eq!(keyed(&key_by(json!("header:x-a"), Missing::Allow).unwrap(), &bare), Keyed::Nobody);
    assert_eq!(keyed(&key_by(json!("header:x-a"), Missing::Deny).unwrap(), &bare), Keyed::Denied);
}

#[test]
fn sessions_count_by_what_they_have() {
    let session = |address: &str| Session::new(exchange(address, &[]).client);
    let by = key_by(json!("address"), Missing::Address).unwrap();
    let key = |session: &Session| by.of_session(session, PROXY, DefaultHasher::new());
    assert_eq!(key(&session("192.0.2.1")), key(&session("192.0.2.2")));
    assert_ne!(key(&session("192.0.2.1")), key(&session("192.0.3.2")));
    let by = key_by(json!("template:${request.path}"), Missing::Deny).unwrap();
    assert_eq!(by.of_session(&session("192.0.2.1"), PROXY, DefaultHasher::new()), Keyed::Denied);
}

#[test]
fn what_cant_be_counted_by_is_refused() {
    for (limit_by, path) in [
        (json!([]), "config.limit_by"),
        (json!("ip"), "config.limit_by"),
        (json!(["address", "header:a b"]), "config.limit_by[1]"),
        (json!("header:"), "config.limit_by"),
        (json!("cookie:"), "config.limit_by"),
        (json!("claim:}x"), "config.limit_by"),
        (json!("template:fixed"), "config.limit_by"),
        (json!("template:${request.nothing}"), "config.limit_by"),
        (json!("template:${response.status}"), "config.limit_by"),
    ] {
        let problems = key_by(limit_by.clone(), Missing::Deny).expect_err(&limit_by.to_string());
        assert_eq!(problems.0[0].path, path, "{limit_by}");
    }
    let mut problems = Problems::default();
    let limit_by = OneOrMany::One("address".into());
    KeyBy::new(
        KeySettings {
            name: "limit_by",
            limit_by,
            ipv4_prefix: 33,
            ipv6_prefix: 0,
            on_missing: Missing::Address,
        },
        &mut problems,
    );
    assert_eq!(problems.count(), 2);
}
