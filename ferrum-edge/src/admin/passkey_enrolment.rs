//! Passkeys of users: `/v1/users/{name}/passkeys`.
//!
//! A user makes passkeys in the console. A login with one needs neither password nor code: its device has verified the user. A user
//! removes own passkeys, an administrator any.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::json;

use super::Admin;
use super::console::{ConsoleHost, OwnSession, no_randomness};
use super::peer::Peer;
use super::problem::{Refused, problem};
use super::request::AuthorizedRequest;
use super::resources::answer;
use super::user_document::{touch, user_document};
use super::users::{change, find_user, invalid, own_password, read};
use crate::access::Role;
use crate::access::passkey::ALGORITHMS;
use crate::store::{MAX_PASSKEYS, Passkey, User, UserChange};

/// A new one.
pub(super) const PATH: &str = "/v1/users/{name}/passkeys";
/// The end of its making.
pub(super) const CONFIRM: &str = "/v1/users/{name}/passkeys/confirm";
/// One of them.
pub(super) const ONE: &str = "/v1/users/{name}/passkeys/{id}";

/// Bytes of a label.
const MAX_LABEL: usize = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewPasskey {
    password: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MadePasskey {
    label: String,
    /// In base64url, as is the next.
    client_data: String,
    authenticator_data: String,
}

/// `POST /v1/users/{name}/passkeys`: what the browser needs to make a passkey.
pub(super) async fn begin(
    State(admin): State<Admin>,
    asked: AuthorizedRequest,
    Path(name): Path<String>,
    peer: Option<Extension<Arc<Peer>>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let begun = async {
        let NewPasskey { password } = read(&body)?;
        let place = ConsoleHost::of(&headers)?;
        own_password(&admin, &asked, &name, peer.as_ref(), password).await?;
        let known = asked.reconciler.store().users().await;
        let known = known.map_err(|error| Box::new(super::problem::store(&error)) as Refused)?;
        let own = find_user(&known, &name)?;
        room(own)?;
        let challenge = admin.console.enrolment_challenge(&name).ok_or_else(no_randomness)?;
        Ok(Json(json!({
            "challenge": challenge,
            "host": place.host(),
            "user": { "id": URL_SAFE_NO_PAD.encode(&name), "name": name },
            "algorithms": ALGORITHMS,
            "exclude": own.passkeys.iter().map(|passkey| &passkey.id).collect::<Vec<_>>(),
        }))
        .into_response())
    };
    answer(begun.await)
}

/// `POST /v1/users/{name}/passkeys/confirm`: keeps what the browser has made. Other sessions of the user end.
pub(super) async fn confirm(
    State(admin): State<Admin>,
    asked: AuthorizedRequest,
    Path(name): Path<String>,
    own: Option<Extension<OwnSession>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let confirmed = async {
        let MadePasskey { label, client_data, authenticator_data } = read(&body)?;
        let label = label.trim().to_owned();
        if label.is_empty() || label.len() > MAX_LABEL || label.chars().any(char::is_control) {
            return Err(invalid(&format!("`label` has 1 to {MAX_LABEL} bytes and no control characters")));
        }
        if asked.caller.name.as_ref() != name {
            let detail = "A passkey is made by its user only";
            return Err(Box::new(problem(StatusCode::FORBIDDEN, "forbidden", detail)) as Refused);
        }
        let place = ConsoleHost::of(&headers)?;
        let decoded = |text: &str| {
            let bytes = URL_SAFE_NO_PAD.decode(text);
            bytes.map_err(|_| invalid("`client_data` and `authenticator_data` are base64url without padding"))
        };
        let (client_data, data) = (decoded(&client_data)?, decoded(&authenticator_data)?);
        let made = admin.console.new_passkey(&name, &place, &client_data, &data);
        let made = made.map_err(|error| {
            let detail = format!("The passkey is not accepted: {error}");
            Box::new(problem(StatusCode::FORBIDDEN, "wrong_passkey", &detail)) as Refused
        })?;
        let passkey = Passkey {
            id: URL_SAFE_NO_PAD.encode(&made.id),
            key: URL_SAFE_NO_PAD.encode(&made.key),
            host: place.host(),
            counter: made.counter,
            label,
            created_at: now(),
            used_at: 0,
        };
        let mut after = None;
        change(&admin, &asked, |users, draft| {
            let before = find_user(users, &name)?;
            room(before)?;
            // An id is looked for among all users at a login.
            if users.iter().flat_map(|user| &user.passkeys).any(|known| known.id == passkey.id) {
                let detail = "This passkey is known already";
                return Err(Box::new(problem(StatusCode::CONFLICT, "exists", detail)));
            }
            let mut changed = before.clone();
            changed.passkeys.push(passkey);
            touch(draft, "update", Some(before), Some(&changed));
            after = Some((before.version + 1, user_document(&changed)));
            Ok(UserChange::Put(changed))
        })
        .await?;
        let Some((version, document)) = after else { return Err(no_randomness()) };
        if let Some(Extension(own)) = own {
            admin.console.keep(&own, version);
        }
        Ok((StatusCode::CREATED, Json(document)).into_response())
    };
    answer(confirmed.await)
}

/// `DELETE /v1/users/{name}/passkeys/{id}`: by the user, or by an administrator. Other sessions of the user end.
pub(super) async fn remove(
    State(admin): State<Admin>,
    asked: AuthorizedRequest,
    Path((name, id)): Path<(String, String)>,
    own: Option<Extension<OwnSession>>,
) -> Response {
    let removed = async {
        let is_own = asked.caller.source == "console" && asked.caller.name.as_ref() == name;
        if !is_own {
            if !asked.is(Role::Admin) {
                let detail = "Only the user and administrators remove a passkey";
                return Err(Box::new(problem(StatusCode::FORBIDDEN, "forbidden", detail)) as Refused);
            }
            asked.operator_only()?;
        }
        let mut version = 0;
        change(&admin, &asked, |users, draft| {
            let before = find_user(users, &name)?;
            let mut after = before.clone();
            after.passkeys.retain(|passkey| passkey.id != id);
            if after.passkeys.len() == before.passkeys.len() {
                let detail = format!("`{name}` has no such passkey");
                return Err(Box::new(problem(StatusCode::NOT_FOUND, "not_found", &detail)) as Refused);
            }
            version = before.version + 1;
            touch(draft, "update", Some(before), Some(&after));
            Ok(UserChange::Put(after))
        })
        .await?;
        if let Some(Extension(own)) = own.filter(|_| is_own) {
            admin.console.keep(&own, version);
        }
        Ok(StatusCode::NO_CONTENT.into_response())
    };
    answer(removed.await)
}

fn room(user: &User) -> Result<(), Refused> {
    match user.passkeys.len() < MAX_PASSKEYS {
        true => Ok(()),
        false => Err(invalid(&format!("There are {MAX_PASSKEYS} passkeys, the most a user can have"))),
    }
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
