//! `/console/session`: logs in, shows the session, and logs out.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Extension, Request, State};
use axum::http::header::{CONTENT_TYPE, SET_COOKIE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::Admin;
use super::super::attempt::Attempt;
use super::super::peer::Peer;
use super::super::problem::{Refused, problem, store};
use super::super::request::object;
use super::super::resources::answer;
use super::sessions::{Credential, IDLE, Session};
use super::{Encrypted, confirmed, cookie, from_console, keys, own_page};
use crate::access::{Caller, password};

/// Bytes of a login's body.
const MAX_BYTES: usize = 16 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    token: Option<String>,
    name: Option<String>,
    password: Option<String>,
}

/// `GET`: who is logged in, and for how long.
pub(super) async fn session(
    State(admin): State<Admin>,
    Extension(Encrypted(is_encrypted)): Extension<Encrypted>,
    headers: HeaderMap,
) -> Response {
    let found = async {
        own_page(&headers)?;
        let session = admin.console.session(&admin, &headers, is_encrypted).await?;
        Ok(Json(session_document(&admin, &session)).into_response())
    };
    answer(found.await)
}

/// `POST {"token": "…"}` or `{"name": "…", "password": "…"}`: begins a session.
pub(super) async fn log_in(
    State(admin): State<Admin>,
    Extension(Encrypted(is_encrypted)): Extension<Encrypted>,
    request: Request,
) -> Response {
    let attempt = Attempt::of(&request);
    let peer = request.extensions().get::<Arc<Peer>>().and_then(|peer| peer.address.clone());
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, MAX_BYTES).await.unwrap_or_default();
    let begun = begin(&admin, &parts.headers, peer.as_deref(), &body, is_encrypted).await;
    let caller = begun.as_ref().ok().map(|(caller, _)| caller.clone());
    let response = answer(begun.map(|(_, response)| response));
    let control = &admin.engine.telemetry.control;
    let count = match response.status() {
        StatusCode::OK => &control.logins_accepted,
        StatusCode::TOO_MANY_REQUESTS => &control.logins_throttled,
        _ => &control.logins_refused,
    };
    count.fetch_add(1, Ordering::Relaxed);
    attempt.ended(&admin.engine.audit, caller.as_ref(), &response, false);
    response
}

/// `DELETE`: ends the session.
pub(super) async fn log_out(
    State(admin): State<Admin>,
    Extension(Encrypted(is_encrypted)): Extension<Encrypted>,
    request: Request,
) -> Response {
    let attempt = Attempt::of(&request);
    let headers = request.headers();
    let mut caller = None;
    let ended = async {
        own_page(headers)?;
        let session = admin.console.session(&admin, headers, is_encrypted).await?;
        caller = Some(session.caller.clone());
        confirmed(headers, &session)?;
        if let Some(key) = cookie::read(headers, is_encrypted) {
            admin.console.sessions.end(&key);
        }
        let mut response = StatusCode::NO_CONTENT.into_response();
        if let Some(cookie) = cookie::clear(headers, is_encrypted) {
            response.headers_mut().insert(SET_COOKIE, cookie);
        }
        Ok(response)
    };
    let response = answer(ended.await);
    attempt.ended(&admin.engine.audit, caller.as_ref(), &response, false);
    response
}

/// Whom a login is from, as what, and whether a password has to be chosen.
type Recognised = (Caller, Credential, bool);

async fn begin(
    admin: &Admin,
    headers: &HeaderMap,
    peer: Option<&str>,
    body: &Bytes,
    is_encrypted: bool,
) -> Result<(Caller, Response), Refused> {
    own_page(headers)?;
    // A form of another site can't send this type without asking first.
    if headers.get(CONTENT_TYPE).is_none_or(|kind| kind != "application/json") {
        let detail = "Send the token as application/json";
        return Err(Box::new(problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", detail)));
    }
    let login: Login = serde_json::from_value(Value::Object(object(body)?)).map_err(|_| unclear())?;
    let (caller, credential, must_change) = recognise(admin, peer, login).await?;
    let begun = admin.console.sessions.begin(caller.clone(), credential, must_change);
    let begun = begun.and_then(|(key, session)| {
        let mut response = Json(session_document(admin, &session)).into_response();
        response.headers_mut().insert(SET_COOKIE, cookie::set(headers, is_encrypted, &key)?);
        Some(response)
    });
    let response = begun.ok_or_else(|| {
        let detail = "The session could not begin: the system has no random numbers";
        Box::new(problem(StatusCode::SERVICE_UNAVAILABLE, "no_randomness", detail))
    })?;
    // A browser that logs in anew leaves its former session behind.
    if let Some(former) = cookie::read(headers, is_encrypted) {
        admin.console.sessions.end(&former);
    }
    Ok((caller, response))
}

async fn recognise(admin: &Admin, peer: Option<&str>, login: Login) -> Result<Recognised, Refused> {
    let keys = keys(peer, login.name.as_deref());
    admin.console.may_try(&keys)?;
    let found = match login {
        Login { token: Some(token), name: None, password: None } => by_token(admin, token.trim()),
        Login { token: None, name: Some(name), password: Some(password) } => {
            by_password(admin, &name, password).await?
        }
        _ => return Err(unclear()),
    };
    found.map_err(|why| {
        admin.console.failed(&keys);
        Box::new(problem(StatusCode::UNAUTHORIZED, "unauthorized", why)) as Refused
    })
}

fn unclear() -> Refused {
    let detail = "Send `{\"token\": \"…\"}` or `{\"name\": \"…\", \"password\": \"…\"}`";
    Box::new(problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail))
}

fn by_token(admin: &Admin, token: &str) -> Result<Recognised, &'static str> {
    let caller = admin.access().and_then(|access| access.bearer(token))?;
    Ok((from_console(caller), Credential::Token(token.into()), false))
}

/// An unknown name takes as long as a wrong password, and is refused in the same words.
async fn by_password(
    admin: &Admin,
    name: &str,
    password: String,
) -> Result<Result<Recognised, &'static str>, Refused> {
    let Some(reconciler) = &admin.reconciler else {
        return Ok(Err("Users are kept in a database, and this gateway has none; log in with a token"));
    };
    let store_of = reconciler.store();
    let user = store_of.user(name).await.map_err(|error| Box::new(store(&error)))?;
    let hash = user.as_ref().map(|user| user.hash.clone());
    let is_right = password::is_password(password, hash).await;
    let Some(user) = user.filter(|_| is_right) else { return Ok(Err("The name or the password is wrong")) };
    if let Err(error) = store_of.user_logged_in(name).await {
        tracing::warn!(%error, "the time of a login could not be noted");
    }
    let caller = Caller { name: user.name.as_str().into(), role: user.role, source: "console" };
    let credential = Credential::User { name: user.name.as_str().into(), version: user.version };
    Ok(Ok((caller, credential, user.must_change)))
}

fn session_document(admin: &Admin, session: &Session) -> Value {
    let left = session.ends.saturating_duration_since(Instant::now());
    json!({
        "name": &*session.caller.name,
        "role": session.caller.role.as_str(),
        "csrf": &*session.csrf,
        "ends_in_seconds": left.as_secs(),
        "idle_seconds": IDLE.as_secs(),
        "is_user": session.is_user,
        "must_change_password": session.must_change,
        "mode": if admin.reconciler.is_some() { "database" } else { "file" },
        "version": env!("CARGO_PKG_VERSION"),
    })
}
