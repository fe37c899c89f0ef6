//! Tests of the rights to approve, reject, withdraw and force changes.

use serde_json::json;

use super::*;
use crate::store::PendingState;

fn caller(name: &str, role: Role, is_person: bool) -> Caller {
    Caller { name: name.into(), role, source: "admin-api", is_person, grants: None }
}

fn with_grants(objects: &str) -> Caller {
    let grants = Grants::of(json!([{ "objects": [objects], "hosts": ["*"] }]), Role::Write).unwrap();
    Caller { grants: Some(grants.into()), ..caller("bob", Role::Write, true) }
}

fn change(role: Role, objects: &[(&str, &str)]) -> PendingChange {
    let object = |(kind, id): &(&str, &str)| PendingObject {
        kind: (*kind).to_owned(),
        id: (*id).to_owned(),
        action: "update".to_owned(),
    };
    PendingChange {
        number: 7,
        state: PendingState::Pending,
        author: Author { name: "ann".to_owned(), source: "console".to_owned() },
        role: role.as_str().to_owned(),
        note: String::new(),
        base: 1,
        created_at: 1,
        expires_at: 100,
        decided_by: None,
        decided_at: None,
        reason: String::new(),
        revision: None,
        objects: objects.iter().map(object).collect(),
    }
}

fn rules(by_admin: bool) -> AdminApproval {
    AdminApproval {
        roles: ["write", "admin"].into(),
        objects: ["*".into()].into(),
        by_admin,
        expires_after: std::time::Duration::from_secs(60),
    }
}

#[test]
fn another_person_with_the_right_decides() {
    let own = &[("proxies", "a-shop")][..];
    let mixed = &[("proxies", "a-shop"), ("proxies", "b-shop")][..];
    let consumer = &[("consumers", "a-bob")][..];
    let bob = |role| caller("bob", role, true);
    for (by, needed, objects, by_admin, expected) in [
        (bob(Role::Write), Role::Write, own, false, "ok"),
        (bob(Role::Admin), Role::Admin, own, false, "ok"),
        (bob(Role::Admin), Role::Write, own, true, "ok"),
        (bob(Role::Write), Role::Write, consumer, false, "ok"),
        (bob(Role::Read), Role::Write, own, false, "forbidden"),
        (bob(Role::Write), Role::Admin, own, false, "forbidden"),
        (bob(Role::Write), Role::Write, own, true, "forbidden"),
        // The author, by whatever way.
        (caller("ann", Role::Admin, true), Role::Write, own, false, "own_change"),
        (caller("Ann", Role::Admin, true), Role::Write, own, false, "own_change"),
        (caller("ann (idp.example)", Role::Admin, true), Role::Write, own, false, "own_change"),
        // Names of no person.
        (caller("admin token", Role::Admin, false), Role::Write, own, false, "no_person"),
        (caller("uid 0", Role::Admin, false), Role::Write, own, false, "no_person"),
        // By grants.
        (with_grants("a-*"), Role::Write, own, false, "ok"),
        (with_grants("*"), Role::Write, mixed, false, "ok"),
        (with_grants("a-*"), Role::Write, mixed, false, "not_found"),
        (with_grants("b-*"), Role::Write, own, false, "not_found"),
        (with_grants("*"), Role::Write, consumer, false, "not_found"),
    ] {
        let done = may_decide(Some(&rules(by_admin)), &by, &change(needed, objects));
        let code = done.as_ref().err().map_or("ok", ApprovalError::code);
        assert_eq!(code, expected, "{by:?} {needed:?} {objects:?} {by_admin}");
    }
    let seen = Grants::of(json!([{ "objects": ["a-*"], "role": "read" }]), Role::Write).unwrap();
    let reader = Caller { grants: Some(seen.into()), ..bob(Role::Write) };
    assert_eq!(may_decide(None, &reader, &change(Role::Write, own)).unwrap_err().code(), "out_of_scope");
}

#[test]
fn only_what_waits_is_decided() {
    let bob = caller("bob", Role::Admin, true);
    for state in PendingState::ALL {
        let change = PendingChange { state, ..change(Role::Write, &[("proxies", "a")]) };
        let is_pending = state == PendingState::Pending;
        assert_eq!(may_decide(None, &bob, &change).is_ok(), is_pending, "{state:?}");
        let late = change.at(100);
        assert_eq!(may_decide(None, &bob, &late).unwrap_err().code(), "decided", "{state:?}");
    }
}

#[test]
fn only_the_operator_applies_a_change_in_an_emergency() {
    for (by, reason, expected) in [
        (caller("admin token", Role::Admin, false), "fire", "ok"),
        (caller("uid 0", Role::Admin, false), "fire", "ok"),
        (caller("admin token", Role::Admin, false), " ", "no_reason"),
        (caller("write token", Role::Write, false), "fire", "no_operator"),
        (caller("bob", Role::Admin, true), "fire", "no_operator"),
        (caller("ann", Role::Admin, true), "fire", "no_operator"),
    ] {
        let done = may_force(&by, &change(Role::Write, &[("proxies", "a")]), reason);
        assert_eq!(done.as_ref().err().map_or("ok", ApprovalError::code), expected, "{by:?}");
    }
}

#[test]
fn only_the_author_withdraws_a_change() {
    let change = change(Role::Write, &[("proxies", "a")]);
    assert!(may_withdraw(&caller("ann", Role::Write, true), &change).is_ok());
    for name in ["bob", "Ann", "ann (idp.example)"] {
        let done = may_withdraw(&caller(name, Role::Admin, true), &change);
        assert_eq!(done.unwrap_err().code(), "not_own_change", "{name}");
    }
}

#[test]
fn patterns_cover_objects_by_kind_and_id() {
    for (pattern, kind, id, is_covered) in [
        ("*", ObjectKind::Consumers, "a", true),
        ("shop-*", ObjectKind::Proxies, "shop-a", true),
        ("shop-*", ObjectKind::Upstreams, "shop-a", true),
        ("shop-*", ObjectKind::Proxies, "a-shop-", false),
        ("consumers/*", ObjectKind::Consumers, "a", true),
        ("consumers/*", ObjectKind::Proxies, "a", false),
        ("proxies/shop", ObjectKind::Proxies, "shop", true),
        ("proxies/shop", ObjectKind::Proxies, "shops", false),
    ] {
        assert_eq!(covers(pattern, kind, id), is_covered, "{pattern} {kind} {id}");
    }
}
