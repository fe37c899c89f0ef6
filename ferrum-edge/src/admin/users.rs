//! Users of the console: `/v1/users`.
//!
//! A password is never answered, except once one that the gateway has made up. The last user with the role admin can neither
//! be removed nor lose the role.

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Extension, Path, RawQuery, State};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::sync::Arc;

use super::Admin;
use super::peer::Peer;
use super::problem::{Refused, problem, store};
use super::query::{nothing_else, pairs};
use super::request::{AuthorizedRequest, object};
use super::resources::answer;
use super::user_document::{touch, user_document};
use crate::access::grants::Grants;
use crate::access::{Role, password};
use crate::audit::Draft;
use crate::store::{MAX_USERS, SecondFactor, User, UserChange};

/// All of them.
pub(super) const PATH: &str = "/v1/users";
/// One of them.
pub(super) const ONE: &str = "/v1/users/{name}";
/// Choosing one's own password.
pub(super) const PASSWORD: &str = "/v1/users/{name}/password";

/// Bytes of a name.
const MAX_NAME: usize = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewUser {
    name: String,
    role: Role,
    password: Option<String>,
    grants: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangedUser {
    role: Option<Role>,
    password: Option<String>,
    /// Null takes them away.
    #[serde(default, deserialize_with = "null_or_value")]
    grants: Option<Value>,
    /// The user has to enrol a second factor.
    totp_required: Option<bool>,
    #[serde(default)]
    reset_password: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnPassword {
    old: String,
    new: String,
}

/// What is given, null too.
fn null_or_value<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// The grants of a user with this role; none where null is written.
fn granted(written: Option<Value>, role: Role) -> Result<Option<Arc<Grants>>, Refused> {
    let Some(written) = written.filter(|written| !written.is_null()) else { return Ok(None) };
    let grants = Grants::of(written, role).map_err(|bad| invalid(&bad.to_string()))?;
    Ok(Some(Arc::new(grants)))
}

/// `GET /v1/users`.
pub(super) async fn list(asked: AuthorizedRequest, RawQuery(query): RawQuery) -> Response {
    let listed = async {
        nothing_else(&pairs(query.as_deref()))?;
        let users = asked.reconciler.store().users().await.map_err(|error| Box::new(store(&error)))?;
        let items: Vec<Value> = users.iter().map(user_document).collect();
        Ok(Json(json!({ "items": items, "next": null })).into_response())
    };
    answer(listed.await)
}

/// `POST /v1/users`: adds one. Without a password one is made up and answered, and the user has to choose another.
pub(super) async fn create(State(admin): State<Admin>, asked: AuthorizedRequest, body: Bytes) -> Response {
    let created = async {
        asked.operator_only()?;
        let NewUser { name, role, password, grants } = read(&body)?;
        let grants = granted(grants, role)?;
        if !is_name(&name) {
            let detail = format!(
                "`name` has 1 to {MAX_NAME} letters, digits, `.`, `_`, `-` and `@`, and begins with a letter or digit"
            );
            return Err(invalid(&detail));
        }
        let (hash, made) = hashed(password, &name).await?;
        let user = User {
            name: name.clone(),
            role,
            hash,
            must_change: true,
            version: 0,
            created_at: 0,
            changed_at: 0,
            login_at: None,
            grants,
            factor: SecondFactor::default(),
            passkeys: Vec::new(),
        };
        let put = user.clone();
        change(&admin, &asked, move |users, draft| {
            if users.iter().any(|known| known.name == put.name) {
                let detail = format!("There is a user `{}` already", put.name);
                return Err(Box::new(problem(StatusCode::CONFLICT, "exists", &detail)));
            }
            if users.len() >= MAX_USERS {
                return Err(invalid(&format!("There are {MAX_USERS} users, which is the most there can be")));
            }
            touch(draft, "create", None, Some(&put));
            Ok(UserChange::Put(put))
        })
        .await?;
        answered(&asked, &name, made, StatusCode::CREATED).await
    };
    answer(created.await)
}

/// `PATCH /v1/users/{name}`: another role, another password, or both. Sessions of the user end.
pub(super) async fn patch(
    State(admin): State<Admin>,
    asked: AuthorizedRequest,
    Path(name): Path<String>,
    body: Bytes,
) -> Response {
    let patched = async {
        asked.operator_only()?;
        let ChangedUser { role, password, grants, totp_required, reset_password } = read(&body)?;
        let has_field = role.is_some() || password.is_some() || grants.is_some() || totp_required.is_some();
        if !has_field && !reset_password {
            return Err(invalid("Send `role`, `grants`, `totp_required`, `password` or `reset_password`"));
        }
        let hash = match password.is_some() || reset_password {
            true => Some(hashed(password, &name).await?),
            false => None,
        };
        let (hash, made) = hash.map_or((None, None), |(hash, made)| (Some(hash), made));
        let of = name.clone();
        change(&admin, &asked, move |users, draft| {
            let before = find_user(users, &of)?;
            let mut after = before.clone();
            after.role = role.unwrap_or(before.role);
            after.factor.is_required = totp_required.unwrap_or(before.factor.is_required);
            // Those of before have to be possible with another role, too.
            let written = grants.unwrap_or_else(|| json!(before.grants.as_deref()));
            after.grants = granted(Some(written), after.role)?;
            if let Some(hash) = hash {
                (after.hash, after.must_change) = (hash, true);
            }
            if after.role < Role::Admin {
                not_the_last(users, before)?;
            }
            touch(draft, "update", Some(before), Some(&after));
            Ok(UserChange::Put(after))
        })
        .await?;
        answered(&asked, &name, made, StatusCode::OK).await
    };
    answer(patched.await)
}

/// `DELETE /v1/users/{name}`. Sessions of the user end.
pub(super) async fn delete(
    State(admin): State<Admin>,
    asked: AuthorizedRequest,
    Path(name): Path<String>,
) -> Response {
    let deleted = async {
        asked.operator_only()?;
        change(&admin, &asked, move |users, draft| {
            let before = find_user(users, &name)?;
            not_the_last(users, before)?;
            touch(draft, "delete", Some(before), None);
            Ok(UserChange::Delete(name))
        })
        .await?;
        Ok(StatusCode::NO_CONTENT.into_response())
    };
    answer(deleted.await)
}

/// `POST /v1/users/{name}/password`: the user chooses a password. Sessions of the user end.
pub(super) async fn choose(
    State(admin): State<Admin>,
    asked: AuthorizedRequest,
    Path(name): Path<String>,
    peer: Option<Extension<Arc<Peer>>>,
    body: Bytes,
) -> Response {
    let chosen = async {
        let OwnPassword { old, new } = read(&body)?;
        own_password(&admin, &asked, &name, peer.as_ref(), old.clone()).await?;
        if old == new {
            return Err(invalid("`new`: it is the current password; choose another one"));
        }
        let (hash, _) = hashed(Some(new), &name).await?;
        change(&admin, &asked, move |users, draft| {
            let before = find_user(users, &name)?;
            let after = User { hash, must_change: false, ..before.clone() };
            touch(draft, "update", Some(before), Some(&after));
            Ok(UserChange::Put(after))
        })
        .await?;
        Ok(StatusCode::NO_CONTENT.into_response())
    };
    answer(chosen.await)
}

/// Confirms a user's own change by the user's password. Wrong ones are throttled as at a login.
///
/// # Errors
/// `wrong_password`, also for another user's name; or too many were wrong; or the database does not answer.
pub(super) async fn own_password(
    admin: &Admin,
    asked: &AuthorizedRequest,
    name: &str,
    peer: Option<&Extension<Arc<Peer>>>,
    password: String,
) -> Result<(), Refused> {
    let throttled = super::console::keys(peer.and_then(|peer| peer.address.as_deref()), Some(name));
    admin.console.may_try(&throttled)?;
    let user = asked.reconciler.store().user(name).await.map_err(|error| Box::new(store(&error)))?;
    let hash = user.as_ref().map(|user| user.hash.clone());
    if *asked.caller.name == *name && password::is_password(password, hash).await {
        return Ok(());
    }
    admin.console.failed(&throttled);
    let detail = "The current password is wrong";
    Err(Box::new(problem(StatusCode::FORBIDDEN, "wrong_password", detail)))
}

/// Writes a change of users together with its entry in the audit.
pub(super) async fn change(
    admin: &Admin,
    asked: &AuthorizedRequest,
    decide: impl FnOnce(&[User], &mut Draft) -> Result<UserChange, Refused> + Send,
) -> Result<(), Refused> {
    let changed = asked.reconciler.store().change_users(decide, asked.draft()).await;
    let (draft, line) = changed.map_err(|error| Box::new(store(&error)))??;
    admin.engine.audit.kept(&draft, &line);
    Ok(())
}

/// The user as it is now, with the password that was made up.
async fn answered(
    asked: &AuthorizedRequest,
    name: &str,
    made: Option<String>,
    status: StatusCode,
) -> Result<Response, Refused> {
    let user = asked.reconciler.store().user(name).await.map_err(|error| Box::new(store(&error)))?;
    let mut document = user.as_ref().map_or_else(|| json!({ "name": name }), user_document);
    if let Some(made) = made {
        document["password"] = json!(made);
    }
    Ok((status, Json(document)).into_response())
}

/// The hash of a password; of one that is made up where none is given, which is then answered.
async fn hashed(given: Option<String>, name: &str) -> Result<(String, Option<String>), Refused> {
    if let Some(objection) = given.as_deref().and_then(|given| password::objection(given, name)) {
        return Err(invalid(&format!("The password can't be used: {objection}")));
    }
    let made = if given.is_none() { password::made_up() } else { None };
    let hash = match given.or_else(|| made.clone()) {
        Some(password) => password::hash(password).await,
        None => None,
    };
    let hash = hash.ok_or_else(|| {
        let detail = "The password could not be hashed; try again";
        let mut response = problem(StatusCode::SERVICE_UNAVAILABLE, "crowded", detail);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(Duration::from_secs(1).as_secs()));
        Box::new(response)
    })?;
    Ok((hash, made))
}

pub(super) fn find_user<'u>(users: &'u [User], name: &str) -> Result<&'u User, Refused> {
    users.iter().find(|user| user.name == name).ok_or_else(|| {
        let detail = format!("There is no user `{name}`");
        Box::new(problem(StatusCode::NOT_FOUND, "not_found", &detail)) as Refused
    })
}

/// Somebody has to be able to administer users.
fn not_the_last(users: &[User], user: &User) -> Result<(), Refused> {
    let is_other_admin = |other: &User| other.role == Role::Admin && other.name != user.name;
    if user.role < Role::Admin || users.iter().any(is_other_admin) {
        return Ok(());
    }
    let detail =
        format!("`{}` is the last user with the role admin; give it to another user first", user.name);
    Err(Box::new(problem(StatusCode::CONFLICT, "last_admin", &detail)))
}

fn is_name(name: &str) -> bool {
    let mut letters = name.chars();
    name.len() <= MAX_NAME
        && letters.next().is_some_and(|first| first.is_ascii_alphanumeric())
        && letters.all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-' | '@'))
}

pub(super) fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Refused> {
    // What serde says of a wrong value may repeat it, and it may be a password.
    serde_json::from_value(Value::Object(object(body)?)).map_err(|error| match error.to_string() {
        text if text.starts_with("unknown field") || text.starts_with("missing field") => invalid(&text),
        text if text.starts_with("unknown variant") => invalid("`role` is read, write or admin"),
        _ => invalid("A field has the wrong type: names, roles, passwords and codes are strings"),
    })
}

pub(super) fn invalid(detail: &str) -> Refused {
    Box::new(problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail))
}
