//! `/console/session`: logging in, who is logged in, logging out.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Extension, Request, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::Admin;
use super::super::attempt::Attempt;
use super::super::peer::Peer;
use super::super::problem::{Refused, problem};
use super::super::request::object;
use super::super::resources::answer;
use super::sessions::{IDLE, Session};
use super::{Encrypted, confirmed, cookie, from_console, own_page};
use crate::access::Caller;

/// Bytes of a login's body.
const MAX_BYTES: usize = 16 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    token: String,
}

/// `GET`: who is logged in, and for how long.
pub(super) async fn session(
    State(admin): State<Admin>,
    Extension(Encrypted(is_encrypted)): Extension<Encrypted>,
    headers: HeaderMap,
) -> Response {
    let found = own_page(&headers).and_then(|()| admin.console.session(&admin, &headers, is_encrypted));
    answer(found.map(|session| Json(shown(&admin, &session)).into_response()))
}

/// `POST {"token": "…"}`: begins a session.
pub(super) async fn log_in(
    State(admin): State<Admin>,
    Extension(Encrypted(is_encrypted)): Extension<Encrypted>,
    request: Request,
) -> Response {
    let attempt = Attempt::of(&request);
    let peer = request.extensions().get::<Arc<Peer>>().and_then(|peer| peer.address.clone());
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, MAX_BYTES).await.unwrap_or_default();
    let begun = begin(&admin, &parts.headers, peer.as_deref(), &body, is_encrypted);
    let caller = begun.as_ref().ok().map(|(caller, _)| caller.clone());
    let response = answer(begun.map(|(_, response)| response));
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
    let ended = own_page(headers).and_then(|()| {
        let session = admin.console.session(&admin, headers, is_encrypted)?;
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
    });
    let response = answer(ended);
    attempt.ended(&admin.engine.audit, caller.as_ref(), &response, false);
    response
}

fn begin(
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
    if let Some(wait) = admin.console.throttle.wait(peer) {
        let detail = "Too many failed logins from this address; wait a minute";
        let mut response = problem(StatusCode::TOO_MANY_REQUESTS, "throttled", detail);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
        return Err(Box::new(response));
    }
    let Login { token } = serde_json::from_value(Value::Object(object(body)?)).map_err(|_| {
        Box::new(problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid", "Send `{\"token\": \"…\"}`"))
    })?;
    let token = token.trim();
    let caller = admin.access().and_then(|access| access.bearer(token)).map_err(|why| {
        admin.console.throttle.failed(peer);
        admin.engine.telemetry.control.admin_tokens_refused.fetch_add(1, Ordering::Relaxed);
        Box::new(problem(StatusCode::UNAUTHORIZED, "unauthorized", why))
    })?;
    let caller = from_console(caller);
    let begun = admin.console.sessions.begin(caller.clone(), token).and_then(|(key, session)| {
        let mut response = Json(shown(admin, &session)).into_response();
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

fn shown(admin: &Admin, session: &Session) -> Value {
    let left = session.ends.saturating_duration_since(Instant::now());
    json!({
        "name": &*session.caller.name,
        "role": session.caller.role.as_str(),
        "csrf": &*session.csrf,
        "ends_in_seconds": left.as_secs(),
        "idle_seconds": IDLE.as_secs(),
        "mode": if admin.reconciler.is_some() { "database" } else { "file" },
        "version": env!("CARGO_PKG_VERSION"),
    })
}
