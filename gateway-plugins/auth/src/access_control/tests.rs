//! Who may pass and who may not.

use gateway_core::config::file::{NoReferences, Origin};
use gateway_core::config::resolve;
use serde_json::json;

use super::*;

fn alice() -> Identity {
    let spec = "consumers: [{id: a, username: alice, acl_groups: [staff, ops]}]";
    let origin = Origin { name: "test".into(), folder: "".into(), format: None };
    let any = |_: &str, _: &serde_json::Value| Ok(());
    let model = resolve::load(spec, &origin, &NoReferences, &any, |_| Problems::default()).unwrap();
    Identity::consumer(model.consumers[0].clone())
}

fn admits(config: serde_json::Value, identity: &Identity) -> bool {
    let config = serde_json::from_value(config).unwrap();
    AccessControl::build(config, &World::default())
        .unwrap_or_else(|problems| panic!("{problems}"))
        .admits(identity)
}

#[test]
fn who_may_pass() {
    let outsider = Identity::external("subject-1");
    for (config, alice_may, outsider_may) in [
        (json!({"allowed_consumers": ["alice"]}), true, false),
        (json!({"allowed_consumers": ["bob"]}), false, false),
        (json!({"allowed_groups": ["ops"]}), true, false),
        (json!({"allowed_groups": ["ops"], "disallowed_groups": ["staff"]}), false, false),
        (json!({"allowed_consumers": ["alice"], "disallowed_consumers": ["alice"]}), false, false),
        (json!({"disallowed_consumers": ["bob"]}), true, true),
        (json!({"disallowed_groups": ["ops"]}), false, true),
        (json!({"allow_authenticated_identity": true}), true, true),
        (json!({"allowed_consumers": ["subject-1"]}), false, true),
    ] {
        assert_eq!(admits(config.clone(), &alice()), alice_may, "alice, {config}");
        assert_eq!(admits(config.clone(), &outsider), outsider_may, "outsider, {config}");
    }
}

#[test]
fn a_rule_that_says_nothing_is_refused() {
    assert!(AccessControl::build(Config::default(), &World::default()).is_err());
}
