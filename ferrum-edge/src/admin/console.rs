//! The console: embedded pages, browser sessions, and the admin API for those pages.
//!
//! - `/console/` serves the archive, with a policy that blocks resources from other origins.
//! - `/console/login` tells the ways to log in; `/console/oidc/…` is the way by an OpenID provider.
//! - `/console/passkey` answers a challenge for a login by a passkey.
//! - `/console/session` logs in with a token of the admin API or as a user, shows the session, and logs out.
//! - `/console/api/v1/…` serves `/v1/…` to requests with a session cookie instead of a token. The cookie gives access to nothing else,
//!   so a browser's credentials reach the API only after the checks of [`Console::admit`].

mod archive;
mod challenges;
mod cookie;
mod files;
mod login;
mod login_refusal;
mod passkey_login;
mod provider;
mod sessions;
mod throttle;

use axum::Router;
use axum::extract::Request;
use axum::http::header::RETRY_AFTER;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::routing::{get, post};
use percent_encoding::percent_decode_str;

use super::Admin;
use super::attempt::Attempt;
use super::peer::ConsoleCaller;
use super::problem::{Refused, problem, store};
use super::second_factor;
use super::site;
use crate::access::Caller;
use challenges::Challenges;
pub(super) use passkey_login::{ConsoleHost, no_randomness};
use provider::ProviderLogins;
use sessions::{Credential, Purpose, Session, Sessions};
use throttle::Throttle;

/// Under which the pages call the admin API.
const API: &str = "/console/api";
/// Whose value is that of the session's `csrf`, for all requests but GET and HEAD.
const CSRF: HeaderName = HeaderName::from_static("x-ferrum-csrf");
/// Says that nobody asked for this but a page that looks again and again: it keeps no session from being idle.
const POLL: HeaderName = HeaderName::from_static("x-ferrum-poll");
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Sessions and failed logins of one listener. A restart ends all sessions.
#[derive(Debug, Default)]
pub(crate) struct Console {
    sessions: Sessions,
    throttle: Throttle,
    provider_logins: ProviderLogins,
    challenges: Challenges,
}

/// The routes of the pages and of sessions.
pub(super) fn routes() -> Router<Admin> {
    Router::new()
        .route(files::ROOT, get(files::to_root))
        .route("/console/", get(files::page))
        .route("/console/{*file}", get(files::page))
        .route("/console/session", get(login::session).post(login::log_in).delete(login::log_out))
        .route("/console/login", get(login::ways))
        .route("/console/passkey", post(passkey_login::begin))
        .route(provider::LOGIN, get(login::begin_at_provider))
        .route(provider::CALLBACK, get(login::come_from_provider))
        .layer(axum::middleware::map_response(files::protected))
}

impl Console {
    /// Turns a request of `/console/api/…` into one of the admin API, from the session's caller; others pass as they are.
    ///
    /// # Errors
    /// 404 when the console is switched off, 401 without a session that lasts, 403 when the request may come from a page of
    /// another site.
    pub(super) async fn admit<B>(
        &self,
        admin: &Admin,
        mut request: Request<B>,
        is_encrypted: bool,
    ) -> Result<Request<B>, Refused> {
        let is_console = request
            .uri()
            .path()
            .strip_prefix(files::ROOT)
            .is_some_and(|rest| matches!(rest.as_bytes(), [] | [b'/', ..]));
        if is_console && !admin.engine.snapshot().settings.admin_console {
            let detail = "The console is switched off; see gateway.admin_console";
            return Err(Box::new(problem(StatusCode::NOT_FOUND, "not_found", detail)));
        }
        let Some(path) = api_path(request.uri()) else {
            request.extensions_mut().insert(Encrypted(is_encrypted));
            return Ok(request);
        };
        site::check(&admin.engine, &request).map_err(|refused| Box::new(files::shielded(*refused)))?;
        let admitted = async {
            own_page(request.headers())?;
            let session = self.session(admin, request.headers(), is_encrypted).await?;
            if !request.method().is_safe() {
                confirmed(request.headers(), &session)?;
            }
            settled(&session, &path)?;
            Ok::<_, Refused>(session)
        };
        let session = admitted.await.map_err(|refused| {
            let attempt = Attempt::of(&request);
            attempt.ended(&admin.engine.audit, None, &refused, true);
            Box::new(files::shielded(*refused))
        })?;
        if let Some(key) = cookie::read(request.headers(), is_encrypted) {
            request.extensions_mut().insert(OwnSession(key));
        }
        *request.uri_mut() = path;
        request.extensions_mut().insert(ConsoleCaller(session.caller));
        Ok(request)
    }

    /// The session of a request's cookie. What it was begun with is checked again: a token that ends, and a user who is
    /// removed or changed, take their sessions along.
    async fn session(
        &self,
        admin: &Admin,
        headers: &HeaderMap,
        is_encrypted: bool,
    ) -> Result<Session, Refused> {
        let ended = || unauthorized("Log in; the session has ended or there was none");
        let key = cookie::read(headers, is_encrypted).ok_or_else(ended)?;
        let purpose = if headers.contains_key(POLL) { Purpose::Refresh } else { Purpose::Use };
        let (mut session, credential) = self.sessions.find(&key, purpose).ok_or_else(ended)?;
        let is_good = match credential {
            Credential::Token(bearer) => match admin.access().and_then(|access| access.bearer(&bearer)) {
                Ok(caller) => {
                    session.caller = from_console(caller);
                    true
                }
                Err(_) => false,
            },
            Credential::User { name, version, is_by_passkey } => {
                let Some(reconciler) = &admin.reconciler else { return Err(ended()) };
                let user = reconciler.store().user(&name).await.map_err(|error| Box::new(store(&error)))?;
                let user = user.filter(|user| user.version == version);
                let needs = |user| second_factor::is_enrolment_needed(&admin.engine, user);
                session.must_enrol = !is_by_passkey && user.as_ref().is_some_and(needs);
                user.is_some()
            }
            Credential::Provider(rules) => {
                admin.engine.snapshot().settings.admin_oidc.as_ref() == Some(&rules)
            }
        };
        if is_good {
            return Ok(session);
        }
        self.sessions.end(&key);
        Err(unauthorized(
            "Log in again; the token, the user or the provider of this session has changed or is gone",
        ))
    }

    /// Refuses a try that comes too soon after too many that failed.
    pub(super) fn may_try(&self, keys: &[String]) -> Result<(), Refused> {
        let Some(wait) = keys.iter().filter_map(|key| self.throttle.wait(key)).max() else { return Ok(()) };
        let detail = "Too many failed logins; wait a minute";
        let mut response = problem(StatusCode::TOO_MANY_REQUESTS, "throttled", detail);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
        Err(Box::new(response))
    }

    /// Lets a session go on over the change of its user to this version.
    pub(super) fn keep(&self, own: &OwnSession, version: u64) {
        self.sessions.keep(&own.0, version);
    }

    /// Counts a try that failed.
    pub(super) fn failed(&self, keys: &[String]) {
        keys.iter().for_each(|key| self.throttle.failed(key));
    }
}

/// What failed logins are counted by: the address, and the user's name.
pub(super) fn keys(peer: Option<&str>, user: Option<&str>) -> Vec<String> {
    let user = user.map(|name| format!("user {name}"));
    [throttle::subscriber(peer)].into_iter().chain(user).collect()
}

/// Refuses what comes before the password that a user has to choose, and before the second factor that a user has to enrol.
fn settled(session: &Session, path: &Uri) -> Result<(), Refused> {
    let of_user = path.path().strip_prefix("/v1/users/").and_then(|rest| rest.split_once('/'));
    // The name may be encoded, as `ann%40example.org`.
    let is_own =
        |name: &str| percent_decode_str(name).decode_utf8().is_ok_and(|name| *name == *session.caller.name);
    let own = of_user.filter(|(name, _)| is_own(name)).map_or("", |(_, what)| what);
    let refused = |code: &'static str, detail: &str| -> Result<(), Refused> {
        Err(Box::new(problem(StatusCode::FORBIDDEN, code, detail)))
    };
    if session.must_change && own != "password" {
        return refused("password_change_needed", "Choose a password first: POST /v1/users/NAME/password");
    }
    let is_enrolling = matches!(own, "totp" | "totp/confirm" | "password");
    if session.must_enrol && !is_enrolling {
        return refused("second_factor_needed", "Enrol a second factor first: POST /v1/users/NAME/totp");
    }
    Ok(())
}

/// The session that a request of the console comes from.
#[derive(Debug, Clone)]
pub(super) struct OwnSession(sessions::Key);

/// Whether a connection is by TLS.
#[derive(Debug, Clone, Copy)]
struct Encrypted(bool);

/// `/console/api/v1/x?y` is `/v1/x?y`.
fn api_path(uri: &Uri) -> Option<Uri> {
    let rest = uri.path_and_query()?.as_str().strip_prefix(API)?;
    rest.starts_with("/v1/").then(|| rest.parse::<PathAndQuery>().ok().map(Uri::from))?
}

fn from_console(caller: Caller) -> Caller {
    Caller { source: "console", ..caller }
}

/// Refuses what a browser says a page of another site asks for, also one of the same machine at another port.
fn own_page(headers: &HeaderMap) -> Result<(), Refused> {
    match headers.get(FETCH_SITE) {
        None => Ok(()),
        Some(site) if site == "same-origin" => Ok(()),
        Some(_) => Err(foreign("The request comes from a page of another site")),
    }
}

/// Refuses a change that lacks the session's own `csrf`, which only the session's page can read.
fn confirmed(headers: &HeaderMap, session: &Session) -> Result<(), Refused> {
    let sent = headers.get(CSRF).map(HeaderValue::as_bytes).unwrap_or_default();
    match session.is_confirmed_by(sent) {
        true => Ok(()),
        false => Err(foreign("The header X-Ferrum-CSRF is missing or is that of another session")),
    }
}

fn foreign(detail: &str) -> Refused {
    Box::new(problem(StatusCode::FORBIDDEN, "foreign_site", detail))
}

fn unauthorized(detail: &str) -> Refused {
    Box::new(problem(StatusCode::UNAUTHORIZED, "no_session", detail))
}
