//! Changes that another user has to approve.

use std::sync::Arc;

use super::Notes;
use super::words;
use crate::file::{self, AdminRole};
use crate::model::AdminApproval;

/// The kinds of objects.
const KINDS: [&str; 4] = ["proxies", "consumers", "upstreams", "plugin_configs"];
/// Seconds in 7 days.
const WEEK: u64 = 7 * 24 * 3600;

/// Resolves the rules; `None` where there are none.
pub(super) fn rules(
    notes: &mut Notes<'_>,
    written: Option<&file::AdminApproval>,
) -> Option<Arc<AdminApproval>> {
    let written = written?;
    let roles = written.roles.as_deref().unwrap_or(&[AdminRole::Write, AdminRole::Admin]);
    if roles.contains(&AdminRole::Read) {
        notes.add("admin_approval.roles", "the role read changes nothing; write `write` or `admin`");
    }
    if roles.is_empty() {
        notes.add("admin_approval.roles", "no role needs an approval").remedy =
            Some("remove `admin_approval`, or name `write`, `admin` or both".to_owned());
    }
    let objects = written.objects.clone().unwrap_or_else(|| vec!["*".to_owned()]);
    if objects.is_empty() {
        notes.add("admin_approval.objects", "no object needs an approval").remedy =
            Some("remove `admin_approval`, or write patterns such as `\"*\"`".to_owned());
    }
    for (n, pattern) in objects.iter().enumerate() {
        let kind = pattern.split_once('/').map(|(kind, _)| kind);
        if kind.is_some_and(|kind| !KINDS.contains(&kind)) {
            notes.add(
                &format!("admin_approval.objects[{n}]"),
                "before `/` is no kind: proxies, consumers, upstreams or plugin_configs",
            );
        }
    }
    if written.approver_role == Some(AdminRole::Read) {
        notes.add("admin_approval.approver_role", "the role read approves nothing; write `write` or `admin`");
    }
    Some(Arc::new(AdminApproval {
        roles: words::roles(roles),
        objects: objects.into_iter().map(Box::from).collect(),
        by_admin: written.approver_role == Some(AdminRole::Admin),
        expires_after: words::seconds(written.expires_after, WEEK),
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn resolved(written: &Value) -> (Option<Arc<AdminApproval>>, String) {
        let written = serde_json::from_value::<file::AdminApproval>(written.clone()).unwrap();
        let mut notes = Notes::new("gateway");
        let rules = rules(&mut notes, Some(&written));
        (rules, notes.problems.to_string())
    }

    #[test]
    fn rules_cover_all_changes_by_default() {
        let (rules, problems) = resolved(&json!({}));
        let rules = rules.unwrap();
        assert_eq!(problems, "");
        assert_eq!((&*rules.roles, rules.by_admin), (&["write", "admin"][..], false));
        assert_eq!((&*rules.objects[0], rules.expires_after.as_secs()), ("*", WEEK));
    }

    #[test]
    fn rules_that_can_not_be_meant_are_problems() {
        for (written, why) in [
            (json!({ "roles": ["read"] }), "changes nothing"),
            (json!({ "roles": [] }), "no role needs"),
            (json!({ "objects": [] }), "no object needs"),
            (json!({ "objects": ["*", "routes/*"] }), "objects[1]"),
            (json!({ "approver_role": "read" }), "approves nothing"),
        ] {
            let (_, problems) = resolved(&written);
            assert!(problems.contains(why), "{written}: {problems}");
        }
        assert_eq!(resolved(&json!({ "objects": ["consumers/*", "shop-*"], "expires_after": "12h" })).1, "");
    }
}
