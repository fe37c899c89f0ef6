//! Conditions on changed requests.

use serde_json::json;

use super::{Changes, RequestChange, What, before_changes};
use crate::cond::Cond;

fn path(regex: &str) -> Cond {
    Cond::path("regex", regex)
}

fn always(what: What) -> RequestChange {
    RequestChange::new(Cond::Always, what)
}

fn strip(prefix: &str) -> RequestChange {
    always(What::Strip { prefix: prefix.to_owned(), sure: true })
}

#[test]
fn a_prefix_that_was_taken_away_is_put_before_what_is_asked() {
    assert_eq!(
        before_changes(path("(?i)/admin/.*"), &[strip("/api")]),
        Some(path("(?i:/api)(?:(?i)/admin/.*)"))
    );
    let twice = before_changes(path("/x"), &[strip("/a"), strip("/b")]);
    assert_eq!(twice, Some(path("(?i:/a)(?:(?i:/b)(?:/x))")));
    // Nothing is left of the prefix itself, not even a slash.
    assert_eq!(before_changes(path("/"), &[strip("/a")]), Some(path("(?i:/a)(?:/)")));
    // Where it is not sure that the prefix is there, paths without it count, too.
    let what = What::Strip { prefix: "/a".to_owned(), sure: false };
    let expected = path("(?i:/a)(?:/x)").or(path("(?i:/a).*").negate().and(path("/x")));
    assert_eq!(before_changes(path("/x"), &[always(what)]), Some(expected));
    assert_eq!(before_changes(path("/a^b"), &[strip("/a")]), None);
}

#[test]
fn a_text_that_was_put_before_is_taken_off_what_is_asked() {
    let v2 = [always(What::Prepend("/v2".to_owned()))];
    assert_eq!(before_changes(path("(?i)/v2/admin/.*"), &v2), Some(path("(?i)/admin/.*")));
    assert_eq!(before_changes(path("/admin/.*"), &v2), Some(Cond::Never));
    assert_eq!(before_changes(path(".*/v2/x"), &v2), Some(path(".*/v2/x").or(path("/x"))));
    assert_eq!(before_changes(path("/[a-z]2/x"), &v2), None);
}

#[test]
fn what_is_fixed_is_known() {
    let changes = [always(What::Path("/admin/x".to_owned()))];
    assert_eq!(before_changes(path("/admin/.*"), &changes), Some(Cond::Always));
    assert_eq!(before_changes(path("/other"), &changes), Some(Cond::Never));
    let some = [RequestChange::new(path("/pub/.*"), What::Path("/admin/x".to_owned()))];
    let expected = path("/pub/.*").or(path("/pub/.*").negate().and(path("/admin/.*")));
    assert_eq!(before_changes(path("/admin/.*"), &some), Some(expected));
    let asks = |how| Cond::is(json!({ "headers": { "x-a": how } }));
    for (what, how, expected) in [
        (What::NoHeader("X-A".to_owned()), json!({ "present": true }), Cond::Never),
        (What::NoHeader("x-a".to_owned()), json!({ "present": false }), Cond::Always),
        (What::Header("x-a".to_owned(), "One".to_owned()), json!("One"), Cond::Always),
        (What::Header("x-a".to_owned(), "One".to_owned()), json!({ "regex": "(?i)one" }), Cond::Always),
        (What::Header("x-a".to_owned(), "One".to_owned()), json!({ "contains": "two" }), Cond::Never),
        (What::Header("x-b".to_owned(), "One".to_owned()), json!("1"), asks(json!("1"))),
    ] {
        assert_eq!(
            before_changes(asks(how.clone()), &[always(what.clone())]),
            Some(expected),
            "{what:?} {how}"
        );
    }
    let host = [always(What::Header("Host".to_owned(), "a.in.test:80".to_owned()))];
    let hosts = |name: &str| Cond::is(json!({ "hosts": [name] }));
    assert_eq!(before_changes(hosts("*.in.test"), &host), Some(Cond::Always));
    assert_eq!(before_changes(hosts("a.test"), &host), Some(Cond::Never));
}

#[test]
fn what_is_not_known_is_said_to_be() {
    for (what, cond) in [
        (What::AnyPath, path("/x")),
        (What::AnyHeader("x-*".to_owned()), Cond::is(json!({ "headers": { "x-a": "1" } }))),
        (What::AnyHeader("cookie".to_owned()), Cond::is(json!({ "cookies": { "a": "1" } }))),
        (What::AnyHeader("host".to_owned()), Cond::is(json!({ "hosts": ["a.test"] }))),
        (What::AnyQuery, Cond::is(json!({ "query": { "a": "1" } }))),
        (What::AnyClient, Cond::is(json!({ "clients": ["10.0.0.0/8"] })).negate()),
        (What::Fallback(vec!["/app.html".to_owned()]), path("/app.*")),
        (What::Fallback(vec!["/app.html".to_owned()]), path("/x").negate()),
    ] {
        let method = Cond::is(json!({ "methods": ["GET"] }));
        assert_eq!(
            before_changes(cond.clone().or(method.clone()), &[always(what.clone())]),
            None,
            "{what:?}"
        );
        assert_eq!(before_changes(method.clone(), &[always(what)]), Some(method));
    }
    assert_eq!(
        before_changes(path("/x"), &[always(What::Fallback(vec!["/app.html".to_owned()]))]),
        Some(path("/x"))
    );
    // What grows with each change is cut off.
    let many: Vec<RequestChange> = (0..40)
        .map(|n| {
            RequestChange::new(
                path(&format!("/{n}/.*")),
                What::Strip { prefix: "/a".to_owned(), sure: false },
            )
        })
        .collect();
    assert_eq!(before_changes(path("/x"), &many), None);
}

/// Changes for some requests only could be followed back in two ways each.
#[test]
fn many_changes_for_some_requests_end() {
    let when = || Cond::is(json!({ "clients": ["10.0.0.1"] }));
    let changes: Vec<RequestChange> =
        (0..60).map(|_| RequestChange::new(when(), What::Prepend("/a".to_owned()))).collect();
    assert_eq!(before_changes(Cond::path("regex", "(?:/a)*.*"), &changes), None);
    // Those of other headers are no matter, however many they are.
    let mut all = Changes::default();
    all.extend((0..20_000).map(|n| RequestChange::new(when(), What::NoHeader(format!("x-{n}")))));
    let cond = Cond::is(json!({ "headers": { "x-a": "b" } }));
    assert_eq!(all.before(cond.clone()), Some(cond));
    assert!(all.are_in("${request.header.X-7}") && !all.are_in("${request.header.x-a}${request.path}"));
    all.push(RequestChange::new(Cond::Always, What::Header("X-A".to_owned(), "b".to_owned())));
    assert_eq!(all.before(Cond::is(json!({ "headers": { "x-a": "b" } }))), Some(Cond::Always));
}
