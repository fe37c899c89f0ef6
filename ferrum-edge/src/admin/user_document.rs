//! Users as the admin API answers them, and as the audit keeps them.

use serde_json::{Value, json};

use super::timestamp::time;
use crate::audit::{Draft, Touched};
use crate::store::{Passkey, User};

/// A user as it is answered, without the hash.
pub(super) fn user_document(user: &User) -> Value {
    json!({
        "name": user.name,
        "role": user.role.as_str(),
        "grants": user.grants.as_deref(),
        "must_change_password": user.must_change,
        "totp": totp_state(user),
        "totp_required": user.factor.is_required,
        "recovery_codes_left": user.factor.recovery.len(),
        "passkeys": user.passkeys.iter().map(passkey_document).collect::<Vec<_>>(),
        "created_at": time(user.created_at),
        "changed_at": time(user.changed_at),
        "last_login_at": user.login_at.map(time),
    })
}

/// A passkey without its key.
fn passkey_document(passkey: &Passkey) -> Value {
    json!({
        "id": passkey.id,
        "label": passkey.label,
        "host": passkey.host,
        "created_at": time(passkey.created_at),
        "last_used_at": Some(passkey.used_at).filter(|at| *at > 0).map(time),
    })
}

/// `enrolled`, `pending` until a code confirms the secret, or `none`.
fn totp_state(user: &User) -> &'static str {
    match (user.factor.is_enrolled(), user.factor.pending.is_empty()) {
        (true, _) => "enrolled",
        (false, false) => "pending",
        (false, true) => "none",
    }
}

/// What the audit keeps of a user.
fn noted(user: &User) -> Value {
    json!({
        "name": user.name, "role": user.role.as_str(), "grants": user.grants.as_deref(), "must_change_password": user.must_change,
        "totp": totp_state(user), "totp_required": user.factor.is_required, "recovery_codes_left": user.factor.recovery.len(),
        "passkeys": user.passkeys.iter().map(|passkey| &passkey.label).collect::<Vec<_>>(),
    })
}

/// Adds the change of a user to an entry of the audit.
pub(super) fn touch(draft: &mut Draft, action: &str, before: Option<&User>, after: Option<&User>) {
    let id = before.or(after).map(|user| user.name.clone()).unwrap_or_default();
    draft.changes = vec![Touched {
        kind: "users".to_owned(),
        id,
        action: action.to_owned(),
        before: before.map(noted),
        after: after.map(noted),
        documents_left_out: false,
    }];
}
