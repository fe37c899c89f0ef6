//! Codes of the second factor of users: whether one is needed, and whether one is accepted.

use std::time::SystemTime;

use axum::http::StatusCode;

use super::problem::{Refused, problem, store};
use super::user_document::touch;
use crate::access::{Role, totp};
use crate::audit::Draft;
use crate::engine::Engine;
use crate::source::database::Reconciler;
use crate::store::seal::{Keys, open_text, seal_text};
use crate::store::{SecondFactor, User};

/// Whether a user has to enrol before anything else, by the user's own setting or that of the role.
pub(super) fn is_enrolment_needed(engine: &Engine, user: &User) -> bool {
    let snapshot = engine.snapshot();
    let is_needed = user.factor.is_required || is_needed_by(&snapshot.settings.admin_totp_roles, user.role);
    is_needed && !user.factor.is_enrolled()
}

fn is_needed_by(roles: &[&str], role: Role) -> bool {
    roles.contains(&role.as_str())
}

/// Whether a login of this user, whose password is right, goes on: without a second factor, or with a code, which is used up.
///
/// # Errors
/// `code_needed` if a code is missing; or the database does not answer.
pub(super) async fn is_accepted(
    engine: &Engine,
    reconciler: &Reconciler,
    user: &User,
    code: Option<&str>,
    draft: Draft,
) -> Result<bool, Refused> {
    if !user.factor.is_enrolled() {
        return Ok(true);
    }
    let Some(code) = code.map(str::trim).filter(|code| !code.is_empty()) else {
        let detail = "Send `code` too: a code of your authenticator app, or a recovery code";
        return Err(Box::new(problem(StatusCode::UNAUTHORIZED, "code_needed", detail)));
    };
    use_code(engine, reconciler, &user.name, draft, |user, draft| {
        let factor = accept(user, code, reconciler.documents().keys())?;
        // A used recovery code is a change for the audit, an app's code is not.
        if factor.recovery != user.factor.recovery {
            touch(draft, "update", Some(user), Some(&User { factor: factor.clone(), ..user.clone() }));
        }
        Some(factor)
    })
    .await
}

/// Changes the second factor as `decide` says, under the lock of all writers; whether it has decided for a change.
pub(super) async fn use_code(
    engine: &Engine,
    reconciler: &Reconciler,
    name: &str,
    draft: Draft,
    decide: impl FnOnce(&User, &mut Draft) -> Option<SecondFactor> + Send,
) -> Result<bool, Refused> {
    let used = reconciler.store().use_second_factor(name, decide, draft).await;
    match used.map_err(|error| Box::new(store(&error)))? {
        None => Ok(false),
        Some(entry) => {
            if let Some((draft, line)) = entry {
                engine.audit.kept(&draft, &line);
            }
            Ok(true)
        }
    }
}

/// The second factor after the use of a code; `None` if the code is wrong or was used.
pub(super) fn accept(user: &User, code: &str, keys: &Keys) -> Option<SecondFactor> {
    let mut after = user.factor.clone();
    let hash = totp::recovery_hash(code);
    if let Some(at) = after.recovery.iter().position(|known| *known == hash) {
        after.recovery.remove(at);
        return Some(after);
    }
    let secret = open(&user.factor.secret, &user.name, keys)?;
    after.used_step = totp::accepted_step(&secret, code, now(), user.factor.used_step)?;
    // A new encryption key reaches the secret at the next login.
    after.secret = seal_text(&secret, &place(&user.name), keys)?;
    Some(after)
}

pub(super) fn open(sealed: &str, name: &str, keys: &Keys) -> Option<String> {
    open_text(sealed, &place(name), keys)
        .map_err(|why| tracing::error!(user = %name, %why, "the second factor of a user cannot be decrypted"))
        .ok()
}

/// What a secret is encrypted for: that of one user is no other's.
pub(super) fn place(name: &str) -> String {
    format!("totp {name}")
}

pub(super) fn now() -> u64 {
    totp::step_at(SystemTime::now())
}
