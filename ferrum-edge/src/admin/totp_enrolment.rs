//! The second factor of users: `/v1/users/{name}/totp`.
//!
//! A user enrols an authenticator app by a secret, which is answered once, and confirms it by a code. From then on a login needs a
//! code. A recovery code works once in place of one. Another administrator can remove the second factor.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;

use super::Admin;
use super::console::OwnSession;
use super::peer::Peer;
use super::problem::{Refused, problem};
use super::request::AuthorizedRequest;
use super::resources::answer;
use super::second_factor::{accept, now, open, place, use_code};
use super::user_document::touch;
use super::users::{change, find_user, invalid, own_password, read};
use crate::access::totp;
use crate::store::seal::seal_text;
use crate::store::{SecondFactor, User, UserChange};

/// Enrolment, and its removal.
pub(super) const PATH: &str = "/v1/users/{name}/totp";
/// The end of an enrolment.
pub(super) const CONFIRM: &str = "/v1/users/{name}/totp/confirm";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewTotp {
    password: String,
    code: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TotpCode {
    code: String,
}

/// `POST /v1/users/{name}/totp`: makes a secret, which a code has to confirm. A second factor that there is stays until then.
pub(super) async fn enrol(
    State(admin): State<Admin>,
    asked: AuthorizedRequest,
    Path(name): Path<String>,
    peer: Option<Extension<Arc<Peer>>>,
    body: Bytes,
) -> Response {
    let enrolled = async {
        let NewTotp { password, code } = read(&body)?;
        own_password(&admin, &asked, &name, peer.as_ref(), password).await?;
        let keys = asked.reconciler.documents().keys();
        let secret = totp::new_secret().ok_or_else(no_randomness)?;
        let pending = seal_text(&secret, &place(&name), keys).ok_or_else(no_key)?;
        let is_begun = use_code(&admin.engine, &asked.reconciler, &name, asked.draft(), |user, draft| {
            let factor = match user.factor.is_enrolled() {
                true => accept(user, code.as_deref().unwrap_or_default(), keys)?,
                false => user.factor.clone(),
            };
            let factor = SecondFactor { pending, ..factor };
            touch(draft, "update", Some(user), Some(&User { factor: factor.clone(), ..user.clone() }));
            Some(factor)
        });
        if !is_begun.await? {
            let address = peer.as_ref().and_then(|peer| peer.address.as_deref());
            admin.console.failed(&super::console::keys(address, Some(&name)));
            return Err(wrong_code(
                "A code of the current app, or a recovery code, is needed, and this is none",
            ));
        }
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let uri = totp::uri(&secret, &name, &host);
        Ok(Json(json!({ "secret": secret, "uri": uri })).into_response())
    };
    answer(enrolled.await)
}

/// `POST /v1/users/{name}/totp/confirm`: the secret is the user's from now on. Answers the recovery codes. Other sessions of the
/// user end.
pub(super) async fn confirm(
    State(admin): State<Admin>,
    asked: AuthorizedRequest,
    Path(name): Path<String>,
    peer: Option<Extension<Arc<Peer>>>,
    own: Option<Extension<OwnSession>>,
    body: Bytes,
) -> Response {
    let confirmed = async {
        let TotpCode { code } = read(&body)?;
        let address = peer.as_ref().and_then(|peer| peer.address.as_deref());
        let throttled = super::console::keys(address, Some(&name));
        admin.console.may_try(&throttled)?;
        if asked.caller.name.as_ref() != name {
            let detail = "A second factor is confirmed by its user only";
            return Err(Box::new(problem(StatusCode::FORBIDDEN, "forbidden", detail)) as Refused);
        }
        let keys = asked.reconciler.documents().keys();
        let codes = totp::new_recovery_codes().ok_or_else(no_randomness)?;
        let recovery: Vec<String> = codes.iter().map(|code| totp::recovery_hash(code)).collect();
        let mut version = 0;
        let mut is_wrong = false;
        let done = change(&admin, &asked, |users, draft| {
            let before = find_user(users, &name)?;
            if before.factor.pending.is_empty() {
                let detail = "There is no secret to confirm; ask for one first";
                return Err(Box::new(problem(StatusCode::CONFLICT, "not_pending", detail)));
            }
            let pending = open(&before.factor.pending, &name, keys);
            let step = pending.and_then(|secret| totp::accepted_step(&secret, &code, now(), 0));
            let Some(used_step) = step else {
                is_wrong = true;
                return Err(wrong_code("The code is wrong; check the clock of the device"));
            };
            let secret = before.factor.pending.clone();
            let is_required = before.factor.is_required;
            let factor = SecondFactor { is_required, secret, pending: String::new(), used_step, recovery };
            let after = User { factor, ..before.clone() };
            version = before.version + 1;
            touch(draft, "update", Some(before), Some(&after));
            Ok(UserChange::Put(after))
        })
        .await;
        if is_wrong {
            admin.console.failed(&throttled);
        }
        done?;
        if let Some(Extension(own)) = own {
            admin.console.keep(&own, version);
        }
        Ok(Json(json!({ "recovery_codes": codes })).into_response())
    };
    answer(confirmed.await)
}

/// `DELETE /v1/users/{name}/totp`: another administrator removes the second factor. Whether the user needs one stays.
pub(super) async fn reset(
    State(admin): State<Admin>,
    asked: AuthorizedRequest,
    Path(name): Path<String>,
) -> Response {
    let removed = async {
        if asked.caller.source == "console" && asked.caller.name.as_ref() == name {
            let detail =
                "Another administrator has to remove it; to change to another app, enrol again with a code";
            return Err(Box::new(problem(StatusCode::FORBIDDEN, "own_second_factor", detail)) as Refused);
        }
        asked.operator_only()?;
        change(&admin, &asked, move |users, draft| {
            let before = find_user(users, &name)?;
            let factor = SecondFactor { is_required: before.factor.is_required, ..SecondFactor::default() };
            let after = User { factor, ..before.clone() };
            touch(draft, "update", Some(before), Some(&after));
            Ok(UserChange::Put(after))
        })
        .await?;
        Ok(StatusCode::NO_CONTENT.into_response())
    };
    answer(removed.await)
}

fn wrong_code(detail: &str) -> Refused {
    Box::new(problem(StatusCode::FORBIDDEN, "wrong_code", detail))
}

fn no_key() -> Refused {
    invalid("A second factor has to be encrypted, and this gateway has no `FERRUM_DB_ENCRYPTION_KEY`")
}

fn no_randomness() -> Refused {
    let detail = "The system has no random numbers; try again";
    Box::new(problem(StatusCode::SERVICE_UNAVAILABLE, "no_randomness", detail))
}
