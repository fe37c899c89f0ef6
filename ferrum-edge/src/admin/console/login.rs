//! `/console/session`: logs in, shows the session, and logs out; `/console/oidc/…`: logs in by an OpenID provider.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Extension, Request, State};
use axum::http::header::{CONTENT_TYPE, SET_COOKIE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::Admin;
use super::super::attempt::Attempt;
use super::super::peer::Peer;
use super::super::problem::{Refused, not_found, problem, store};
use super::super::query::pairs;
use super::super::request::object;
use super::super::resources::answer;
use super::super::second_factor;
use super::login_refusal::LoginRefusal;
use super::passkey_login::{self, PasskeyLogin};
use super::provider::{Failed, landed};
use super::sessions::{Credential, IDLE, Session};
use super::{ConsoleHost, Encrypted, confirmed, cookie, from_console, keys, own_page, throttle};
use crate::access::{Caller, password};
use crate::store::User;

/// Bytes of a login's body.
const MAX_BYTES: usize = 16 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    token: Option<String>,
    name: Option<String>,
    password: Option<String>,
    /// Of an authenticator app, or a recovery code.
    code: Option<String>,
    passkey: Option<PasskeyLogin>,
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

/// `GET`: the ways to log in, for the login page.
pub(super) async fn ways(State(admin): State<Admin>, headers: HeaderMap) -> Response {
    if let Err(refused) = own_page(&headers) {
        return *refused;
    }
    let provider = admin.engine.snapshot().settings.admin_oidc.clone();
    let ways = json!({
        "users": admin.reconciler.is_some(),
        "passkeys": admin.reconciler.is_some() && ConsoleHost::of(&headers).is_ok(),
        "provider": provider.map(|rules| rules.label.to_string()),
    });
    Json(ways).into_response()
}

/// `GET /console/oidc/login`: sends the browser to the OpenID provider.
pub(super) async fn begin_at_provider(
    State(admin): State<Admin>,
    Extension(Encrypted(is_encrypted)): Extension<Encrypted>,
    request: Request,
) -> Response {
    let headers = request.headers();
    if let Err(refused) = own_page(headers) {
        return *refused;
    }
    let Some(rules) = admin.engine.snapshot().settings.admin_oidc.clone() else {
        return not_found(request.uri().clone()).await;
    };
    let peer = request.extensions().get::<Arc<Peer>>().and_then(|peer| peer.address.clone());
    let (logins, world) = (&admin.console.provider_logins, admin.engine.world());
    let address = throttle::subscriber(peer.as_deref());
    let begun = logins.begin(&rules, &world, headers, is_encrypted, address).await;
    begun.unwrap_or_else(|failed| failed.to_login_page())
}

/// `GET /console/oidc/callback`: the browser comes back from the provider, and is given a session.
pub(super) async fn come_from_provider(
    State(admin): State<Admin>,
    Extension(Encrypted(is_encrypted)): Extension<Encrypted>,
    request: Request,
) -> Response {
    let attempt = Attempt::of(&request).of_change();
    let (Parts { uri, headers, .. }, _) = request.into_parts();
    let (audit, control) = (&admin.engine.audit, &admin.engine.telemetry.control);
    match recognised_by_provider(&admin, &uri, &headers, is_encrypted).await {
        Ok((caller, response)) => {
            control.logins_accepted.fetch_add(1, Ordering::Relaxed);
            attempt.ended(audit, Some(&caller), &response, false);
            if let Some(former) = cookie::read(&headers, is_encrypted) {
                admin.console.sessions.end(&former);
            }
            response
        }
        Err(failed) => {
            control.logins_refused.fetch_add(1, Ordering::Relaxed);
            attempt.ended(audit, None, &failed.problem(), false);
            failed.to_login_page()
        }
    }
}

async fn recognised_by_provider(
    admin: &Admin,
    uri: &Uri,
    headers: &HeaderMap,
    is_encrypted: bool,
) -> Result<(Caller, Response), Failed> {
    let (logins, world) = (&admin.console.provider_logins, admin.engine.world());
    let now = admin.engine.snapshot().settings.admin_oidc.clone();
    let query: HashMap<String, String> = pairs(uri.query()).into_iter().collect();
    let browser = cookie::read_login(headers, is_encrypted);
    let (caller, rules) = logins.finish(now.as_ref(), &world, &query, browser).await?;
    let begun = admin.console.sessions.begin(caller.clone(), Credential::Provider(rules), false);
    let cookie = begun.and_then(|(key, _)| cookie::set(headers, is_encrypted, &key));
    let cookie = cookie.ok_or_else(Failed::no_randomness)?;
    Ok((caller, landed(cookie)))
}

/// `POST {"token": "…"}`, `{"name": "…", "password": "…"}` or `{"passkey": {…}}`: begins a session.
pub(super) async fn log_in(
    State(admin): State<Admin>,
    Extension(Encrypted(is_encrypted)): Extension<Encrypted>,
    request: Request,
) -> Response {
    let attempt = Attempt::of(&request);
    let peer = request.extensions().get::<Arc<Peer>>().and_then(|peer| peer.address.clone());
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, MAX_BYTES).await.unwrap_or_default();
    let begun = begin(&admin, &attempt, &parts.headers, peer.as_deref(), &body, is_encrypted).await;
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

/// What a user has to do before anything else.
#[derive(Debug, Clone, Copy, Default)]
struct Unsettled {
    /// Choose a password.
    must_change: bool,
    /// Enrol a second factor.
    must_enrol: bool,
}

/// Whom a login is from.
struct Recognised {
    caller: Caller,
    credential: Credential,
    unsettled: Unsettled,
}

async fn begin(
    admin: &Admin,
    attempt: &Attempt,
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
    let Recognised { caller, credential, unsettled } =
        recognise(admin, attempt, headers, peer, login).await?;
    let begun = admin.console.sessions.begin(caller.clone(), credential, unsettled.must_change);
    let begun = begun.and_then(|(key, mut session)| {
        session.must_enrol = unsettled.must_enrol;
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

async fn recognise(
    admin: &Admin,
    attempt: &Attempt,
    headers: &HeaderMap,
    peer: Option<&str>,
    login: Login,
) -> Result<Recognised, Refused> {
    let keys = keys(peer, login.name.as_deref());
    admin.console.may_try(&keys)?;
    let found = match login {
        Login { token: Some(token), name: None, password: None, code: None, passkey: None } => {
            by_token(admin, token.trim())
        }
        Login { token: None, name: Some(name), password: Some(password), code, passkey: None } => {
            by_password(admin, attempt, &name, password, code.as_deref()).await?
        }
        Login { token: None, name: None, password: None, code: None, passkey: Some(passkey) } => {
            by_passkey(admin, headers, &passkey).await?
        }
        _ => return Err(unclear()),
    };
    found.map_err(|why| {
        admin.console.failed(&keys);
        Box::new(problem(StatusCode::UNAUTHORIZED, "unauthorized", &why.to_string())) as Refused
    })
}

fn unclear() -> Refused {
    let detail =
        "Send `{\"token\": \"…\"}`, `{\"name\": \"…\", \"password\": \"…\"}` or `{\"passkey\": {…}}`";
    Box::new(problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail))
}

fn by_token(admin: &Admin, token: &str) -> Result<Recognised, LoginRefusal> {
    let caller = admin.access().and_then(|access| access.bearer(token)).map_err(LoginRefusal::Token)?;
    let credential = Credential::Token(token.into());
    Ok(Recognised { caller: from_console(caller), credential, unsettled: Unsettled::default() })
}

/// An unknown name takes as long as a wrong password, and is refused in the same words.
async fn by_password(
    admin: &Admin,
    attempt: &Attempt,
    name: &str,
    password: String,
    code: Option<&str>,
) -> Result<Result<Recognised, LoginRefusal>, Refused> {
    let Some(reconciler) = &admin.reconciler else {
        return Ok(Err(LoginRefusal::NoDatabase));
    };
    let store_of = reconciler.store();
    let user = store_of.user(name).await.map_err(|error| Box::new(store(&error)))?;
    let hash = user.as_ref().map(|user| user.hash.clone());
    let is_right = password::is_password(password, hash).await;
    let Some(user) = user.filter(|_| is_right) else { return Ok(Err(LoginRefusal::Password)) };
    let caller = caller_of(&user);
    if !second_factor::is_accepted(&admin.engine, reconciler, &user, code, attempt.draft(&caller)).await? {
        return Ok(Err(LoginRefusal::Code));
    }
    note_login(admin, name).await;
    let must_enrol = second_factor::is_enrolment_needed(&admin.engine, &user);
    let unsettled = Unsettled { must_change: user.must_change, must_enrol };
    Ok(Ok(Recognised { caller, credential: password_credential(&user), unsettled }))
}

fn caller_of(user: &User) -> Caller {
    Caller {
        name: user.name.as_str().into(),
        role: user.role,
        source: "console",
        is_person: true,
        grants: user.grants.clone(),
    }
}

/// The credential of a session that a password began.
fn password_credential(user: &User) -> Credential {
    Credential::User { name: user.name.as_str().into(), version: user.version, is_by_passkey: false }
}

/// The credential of a session that a passkey began.
fn passkey_credential(user: &User) -> Credential {
    Credential::User { name: user.name.as_str().into(), version: user.version, is_by_passkey: true }
}

async fn by_passkey(
    admin: &Admin,
    headers: &HeaderMap,
    passkey: &PasskeyLogin,
) -> Result<Result<Recognised, LoginRefusal>, Refused> {
    let user = match passkey_login::user_of(admin, headers, passkey).await? {
        Ok(user) => user,
        Err(why) => return Ok(Err(why)),
    };
    note_login(admin, &user.name).await;
    let unsettled = Unsettled { must_change: user.must_change, must_enrol: false };
    Ok(Ok(Recognised { caller: caller_of(&user), credential: passkey_credential(&user), unsettled }))
}

/// Keeps when a user logged in last.
async fn note_login(admin: &Admin, name: &str) {
    let Some(reconciler) = &admin.reconciler else { return };
    if let Err(error) = reconciler.store().user_logged_in(name).await {
        tracing::warn!(%error, "the time of a login could not be noted");
    }
}

fn session_document(admin: &Admin, session: &Session) -> Value {
    let left = session.ends.saturating_duration_since(Instant::now());
    json!({
        "name": &*session.caller.name,
        "role": session.caller.role.as_str(),
        "csrf": &*session.csrf,
        "ends_in_seconds": left.as_secs(),
        "idle_seconds": IDLE.as_secs(),
        "is_restricted": session.caller.grants.is_some(),
        "is_user": session.is_user,
        "must_change_password": session.must_change,
        "must_enrol_second_factor": session.must_enrol,
        "mode": if admin.reconciler.is_some() { "database" } else { "file" },
        "version": env!("CARGO_PKG_VERSION"),
    })
}
