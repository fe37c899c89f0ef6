//! Logins: the browser is sent to the provider, and comes back with a code.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use http::header::{CACHE_CONTROL, LOCATION, REFRESH, RETRY_AFTER, SET_COOKIE, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};

use super::Oidc;
use super::cookies::Cookies;
use super::page::{self, WayOn};
use super::provider_failure::Failure;
use super::seal::random;
use super::session::Session;
use super::visit::BrowserVisit;
use crate::credential::now;
use crate::oauth::form;

/// Seconds after which it makes sense to come again while the provider is away.
const RETRY: u16 = 5;
/// Seconds that a login may take.
const LOGIN: u64 = 600;
/// Logins that a browser may have begun; the others are forgotten.
const MAX_LOGINS: usize = 5;
/// Bytes of the URL that a browser comes back to; after a longer one it comes to `/`.
const MAX_TARGET: usize = 2048;

/// Ends the `state` of a login that began because another one could not be finished. A browser that keeps no cookies would go to and fro
/// for ever; this one ends at a page.
const AGAIN: &str = ".2";

/// A login under way, as the browser keeps it, encrypted.
#[derive(Serialize, Deserialize)]
struct Login {
    #[serde(rename = "s")]
    state: String,
    #[serde(rename = "n")]
    nonce: String,
    #[serde(rename = "v")]
    verifier: String,
    /// Path and query that the browser wanted.
    #[serde(rename = "t")]
    target: String,
    /// The last second since 1970 in which it may end.
    #[serde(rename = "u")]
    until: u64,
}

/// What a provider is asked when a login begins (OpenID Connect Core §3.1.2.1, RFC 7636 §4.3).
pub(super) struct Authorization<'a> {
    pub(super) client_id: &'a str,
    pub(super) redirect_uri: &'a str,
    pub(super) scopes: &'a str,
    pub(super) state: &'a str,
    pub(super) nonce: &'a str,
    pub(super) verifier: &'a str,
}

impl Authorization<'_> {
    /// The URL that a browser is sent to.
    pub(super) fn url(&self, endpoint: &str) -> String {
        let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, self.verifier.as_bytes()));
        let query = form(&[
            ("response_type", "code"),
            ("client_id", self.client_id),
            ("redirect_uri", self.redirect_uri),
            ("scope", self.scopes),
            ("state", self.state),
            ("nonce", self.nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ]);
        let joint = if endpoint.contains('?') { '&' } else { '?' };
        format!("{endpoint}{joint}{query}")
    }
}

/// A redirect that nobody may keep.
pub(super) fn redirect(location: &str) -> Option<Reply> {
    let location = HeaderValue::try_from(location).ok()?;
    let reply = Reply::fixed(StatusCode::FOUND, "").header(LOCATION, location);
    Some(reply.header(CACHE_CONTROL, HeaderValue::from_static("no-store")))
}

/// A page of this site that leads to another one. A redirect would be the end of a way that began at the provider's, on which
/// browsers send no strict cookies: the session would not be seen, and the login begin anew.
fn own_page(location: &str) -> Option<Reply> {
    let refresh = HeaderValue::try_from(format!("0;url={location}")).ok()?;
    let reply = Reply::fixed(StatusCode::OK, "").header(REFRESH, refresh);
    Some(reply.header(CACHE_CONTROL, HeaderValue::from_static("no-store")))
}

/// The refusal of a login or logout that makes no sense.
pub(super) fn bad(reason: &'static str, detail: &'static str) -> Box<Reply> {
    Box::new(Reply::new(Cause::BadRequest).reason(reason).detail(detail))
}

impl Oidc {
    /// The refusal while the provider can't be asked; why is in the log and in the record.
    pub(super) fn unavailable(&self, exchange: &mut Exchange, why: impl fmt::Display) -> Box<Reply> {
        self.counts.failed.add(1);
        exchange.note_failure(format!("{}: {why}", self.issuer));
        tracing::warn!(provider = %self.issuer, %why, "the OpenID provider gives no answer");
        let reply = Reply::new(Cause::NoTarget).reason("oidc_provider_failed");
        let reply = reply.detail("logging in is not possible now");
        Box::new(reply.header(RETRY_AFTER, HeaderValue::from(RETRY)))
    }

    /// What somebody gets who is not logged in: the way to the login, or a refusal where that would lead nowhere.
    pub(super) async fn stranger(&self, exchange: &mut Exchange, visit: &BrowserVisit) -> Box<Reply> {
        if visit.is_navigation {
            return self.begin(exchange, visit, visit.target.clone()).await;
        }
        let mut reply = Self::refusal();
        for line in self.cookies.clear(visit) {
            reply = reply.header(SET_COOKIE, line);
        }
        Box::new(reply)
    }

    /// What somebody gets whose session the provider does not refresh. It may be that another gateway has refreshed it, and
    /// that the browser has the new one already: only a page, which leads to a login, takes the cookies away.
    pub(super) async fn expired(&self, exchange: &mut Exchange, visit: &BrowserVisit) -> Box<Reply> {
        match visit.is_navigation {
            true => self.begin(exchange, visit, visit.target.clone()).await,
            false => Box::new(Self::refusal()),
        }
    }

    fn refusal() -> Reply {
        let challenge = HeaderValue::from_static("OpenIDConnect realm=\"ferrum-edge\"");
        let reply =
            Reply::new(Cause::Unauthenticated).reason("session_missing").detail("a login is required");
        reply.header(WWW_AUTHENTICATE, challenge)
    }

    /// Sends the browser to the provider; it comes back to `target`.
    pub(super) async fn begin(
        &self,
        exchange: &mut Exchange,
        visit: &BrowserVisit,
        target: String,
    ) -> Box<Reply> {
        let endpoint = match self.provider.needed("authorization_endpoint").await {
            Ok(endpoint) => endpoint,
            Err(failure) => return self.unavailable(exchange, failure),
        };
        let reply = random().and_then(|state| self.begun(visit, &endpoint, target, state));
        reply.map_or_else(|| Box::new(Reply::new(Cause::Internal)), Box::new)
    }

    fn begun(&self, visit: &BrowserVisit, endpoint: &str, target: String, state: String) -> Option<Reply> {
        let (nonce, verifier) = (random()?, random()?);
        let asked = Authorization {
            client_id: &self.provider.oauth.id,
            redirect_uri: &self.redirect_uri(visit),
            scopes: &self.scopes,
            state: &state,
            nonce: &nonce,
            verifier: &verifier,
        };
        let location = asked.url(endpoint);
        let target = if target.len() > MAX_TARGET { "/".to_owned() } else { target };
        let name = self.cookies.login(&state);
        let login = Login { state, nonce, verifier, target, until: now().saturating_add(LOGIN) };
        let secure = visit.is_secure();
        let cookie = self.cookies.set_login(&name, &self.seal.close(&name, &login)?, LOGIN, secure)?;
        let mut reply = redirect(&location)?.header(SET_COOKIE, cookie);
        let headers = &visit.headers;
        let mut old = self.cookies.logins(headers);
        old.truncate(old.len().saturating_sub(MAX_LOGINS - 1));
        let gone = old.iter().filter_map(|name| self.cookies.set(name, "", 0, secure));
        for line in gone.chain(self.cookies.clear(visit)) {
            reply = reply.header(SET_COOKIE, line);
        }
        Some(reply.reason("oidc_login"))
    }

    fn redirect_uri(&self, visit: &BrowserVisit) -> String {
        self.redirect_uri.clone().unwrap_or_else(|| visit.url(&self.paths.redirect))
    }

    /// The end of a login: the browser comes back from the provider.
    pub(super) async fn finish(&self, exchange: &mut Exchange, visit: &BrowserVisit) -> Box<Reply> {
        let query = super::parameters(&visit.query);
        let field = |name: &str| query.get(name).map(String::as_str);
        let Some(state) = field("state").filter(|state| state.is_ascii()) else {
            return self.as_page(Self::unknown_login(), visit);
        };
        let name = self.cookies.login(state);
        let mut texts = Cookies::values(&visit.headers, &name).take(MAX_LOGINS);
        let login: Option<Login> = texts.find_map(|text| self.seal.open(&name, text));
        let login = match login.filter(|login| login.state == state) {
            Some(login) if now() <= login.until => login,
            Some(late) => {
                return self
                    .answer_unfinished(exchange, visit, Self::unknown_login(), state, late.target)
                    .await;
            }
            // The cookies' path is the part of the site that this session is for.
            None => {
                let home = self.cookies.path.clone();
                return self.answer_unfinished(exchange, visit, Self::unknown_login(), state, home).await;
            }
        };
        if !self.provider.is_own_answer(field("iss")).await {
            return self.as_page(*bad("oidc_issuer", "the answer is another provider's"), visit);
        }
        let Some(code) = field("code") else {
            let reply = Reply::new(Cause::Forbidden).reason("oidc_denied");
            let reply = self.as_page(reply.detail("the provider did not log you in"), visit);
            return Box::new(self.forgetting(*reply, visit, &name));
        };
        let redirect_uri = self.redirect_uri(visit);
        match self.provider.redeem(code, &login.verifier, &redirect_uri, &login.nonce).await {
            Ok(session) => self.landed(visit, &session, &name, &login.target),
            Err(Failure::Unavailable(why)) => self.unavailable(exchange, why),
            Err(Failure::Refused) => {
                self.counts.refused.add(1);
                let reply = Reply::new(Cause::Forbidden).reason("oidc_code");
                let reply = reply.detail("the login is not valid any more");
                let reply = self.answer_unfinished(exchange, visit, reply, state, login.target).await;
                Box::new(self.forgetting(*reply, visit, &name))
            }
            Err(Failure::Token(fault)) => {
                self.counts.refused.add(1);
                let (reason, detail) = fault.words();
                let reply = Reply::new(Cause::Forbidden).reason(reason).detail(detail);
                Box::new(self.forgetting(*self.as_page(reply, visit), visit, &name))
            }
        }
    }

    fn unknown_login() -> Reply {
        *bad("oidc_state", "this login was not begun in this browser, or took too long")
    }

    /// What a browser gets that comes back to a login which is over, unknown, or was finished before: the page, where it is logged in
    /// already, or a new login. Where that was tried, and for other clients, it is the refusal.
    async fn answer_unfinished(
        &self,
        exchange: &mut Exchange,
        visit: &BrowserVisit,
        refusal: Reply,
        state: &str,
        target: String,
    ) -> Box<Reply> {
        if !visit.is_navigation {
            return Box::new(refusal);
        }
        if self.open(&visit.headers, now()).is_some()
            && let Some(reply) = redirect(&target)
        {
            return Box::new(reply.reason("oidc_logged_in_before"));
        }
        if state.ends_with(AGAIN) {
            return self.as_page(refusal, visit);
        }
        let endpoint = match self.provider.needed("authorization_endpoint").await {
            Ok(endpoint) => endpoint,
            Err(failure) => return self.unavailable(exchange, failure),
        };
        let state = random().map(|state| state + AGAIN);
        let reply = state.and_then(|state| self.begun(visit, &endpoint, target, state));
        reply.map_or_else(|| Box::new(Reply::new(Cause::Internal)), Box::new)
    }

    /// A refusal, for browsers as a page that leads to another try.
    fn as_page(&self, refusal: Reply, visit: &BrowserVisit) -> Box<Reply> {
        if !visit.is_navigation {
            return Box::new(refusal);
        }
        let path = self.paths.login.as_deref().unwrap_or(&self.cookies.path);
        Box::new(page::of_refusal(refusal, &WayOn::Link { path, label: "Log in again" }))
    }

    /// A reply that removes the cookie of a login.
    fn forgetting(&self, reply: Reply, visit: &BrowserVisit, name: &str) -> Reply {
        let secure = visit.is_secure();
        match self.cookies.set(name, "", 0, secure) {
            Some(line) => reply.header(SET_COOKIE, line),
            None => reply,
        }
    }

    fn landed(&self, visit: &BrowserVisit, session: &Session, name: &str, target: &str) -> Box<Reply> {
        let Some(lines) = self.session_cookies(visit, session) else {
            let reply = Reply::new(Cause::Internal).reason("oidc_session_too_large");
            return Box::new(reply.detail("the provider's tokens are too large for cookies"));
        };
        let reply = if self.cookies.is_strict() { own_page(target) } else { redirect(target) };
        let Some(mut reply) = reply else { return Box::new(Reply::new(Cause::Internal)) };
        self.counts.logins.add(1);
        reply = self.forgetting(reply, visit, name);
        for line in lines {
            reply = reply.header(SET_COOKIE, line);
        }
        Box::new(reply.reason("oidc_logged_in"))
    }

    /// `Set-Cookie` for a session; `None` when it is too large.
    pub(super) fn session_cookies(
        &self,
        visit: &BrowserVisit,
        session: &Session,
    ) -> Option<Vec<HeaderValue>> {
        let left = session.began.saturating_add(self.session_ttl).saturating_sub(now());
        let text = self.seal.close(&self.cookies.name, session)?;
        self.cookies.write(visit, &text, left)
    }
}
