//! Logouts: asked for by the user (RP-initiated), or told by the provider (back-channel, and front-channel in a frame).

use std::collections::BTreeSet;

use futures_util::future::join_all;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_plugin_common::origin::initiator::Initiator;
use http::header::{ALLOW, CACHE_CONTROL, SET_COOKIE};
use http::{HeaderValue, Method, StatusCode};
use serde_json::Value;

use super::Oidc;
use super::login::{bad, redirect};
use super::page::{self, WayOn};
use super::provider_failure::Failure;
use super::session::OpenSession;
use super::visit::BrowserVisit;
use crate::credential::now;
use crate::jose::Token;
use crate::oauth::form;

/// Bytes of a logout request's body.
const MAX_BODY: u64 = 64 << 10;
/// Seconds that a logout token may be old.
const MAX_AGE: u64 = 300;
/// What makes a token a logout token (OpenID Connect Back-Channel Logout §2.4).
const EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";

impl Oidc {
    /// Logs out where the user wants it: by a link or a form of this site, or by the address bar. Another site can make a browser go
    /// here, so that the user is asked.
    pub(super) async fn confirm_log_out(&self, method: &Method, visit: &BrowserVisit) -> Box<Reply> {
        let is_post = *method == Method::POST;
        if !is_post && !matches!(*method, Method::GET | Method::HEAD) {
            let refused = Reply::new(Cause::MethodNotAllowed);
            return Box::new(refused.header(ALLOW, HeaderValue::from_static("GET, HEAD, POST")));
        }
        if visit.initiator() == Initiator::OwnSite {
            return self.log_out(visit).await;
        }
        if visit.is_navigation {
            let way_on = WayOn::Button { path: &self.paths.logout, label: "Log out" };
            return Box::new(page::question("Do you want to log out?", &way_on).reason("oidc_logout_asked"));
        }
        let reply = Reply::new(Cause::Forbidden).reason("oidc_logout_cross_site");
        Box::new(reply.detail("a logout has to be asked for by a page of this site"))
    }

    /// Ends the session, and sends the browser to the provider to end it there.
    async fn log_out(&self, visit: &BrowserVisit) -> Box<Reply> {
        // Copies, and sessions of before at another path: what remained of them would let in again.
        let mut all = self.open_all(&visit.headers);
        all.sort_by_key(|open| std::cmp::Reverse(open.age_key()));
        all.iter().for_each(|open| self.end(open));
        let tokens: BTreeSet<&str> =
            all.iter().filter_map(|open| open.session.refresh_token.as_deref()).collect();
        for outcome in join_all(tokens.into_iter().map(|token| self.provider.revoke(token))).await {
            if let Err(why) = outcome {
                tracing::warn!(provider = %self.issuer, %why, "the refresh token of a logout is not revoked");
            }
        }
        let hint = all.first().map(|open| open.session.id_token.clone());
        let after = self.after_logout.as_deref();
        let location = match self.provider.url("end_session_endpoint").await {
            Some(endpoint) => {
                let mut fields = vec![("client_id", self.provider.oauth.id.as_str())];
                fields.extend(hint.as_deref().map(|hint| ("id_token_hint", hint)));
                fields.extend(after.map(|after| ("post_logout_redirect_uri", after)));
                let joint = if endpoint.contains('?') { '&' } else { '?' };
                format!("{endpoint}{joint}{}", form(&fields))
            }
            None => after.unwrap_or("/").to_owned(),
        };
        let Some(mut reply) = redirect(&location) else { return Box::new(Reply::new(Cause::Internal)) };
        for line in self.cookies.clear(visit) {
            reply = reply.header(SET_COOKIE, line);
        }
        self.counts.logouts.add(1);
        Box::new(reply.reason("oidc_logged_out"))
    }

    /// Notes that a session is over, so that copies of its cookies are worth nothing. Without room for more only the cookies go.
    fn end(&self, open: &OpenSession) {
        let until = self.ended.until(open.session.began);
        if now() < until {
            let _noted = self.ended.note("id", &open.session.id, now(), until);
        }
    }

    /// The provider's logout page says, in a frame, that this browser has logged out. Whoever else makes a browser load this can
    /// only end the session that the browser has, and has to know which one that is.
    pub(super) fn front_channel(&self, visit: &BrowserVisit) -> Box<Reply> {
        let asked = super::parameters(&visit.query);
        let mut reply =
            Reply::fixed(StatusCode::OK, "").header(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let mut all = self.open_all(&visit.headers);
        if all.is_empty() {
            return Box::new(reply);
        }
        all.retain(|open| match (asked.get("iss"), asked.get("sid")) {
            (Some(issuer), Some(id)) => *issuer == self.issuer && open.sid() == Some(id),
            // A provider that does not say which session ends all of the browser's.
            (None, None) => true,
            _ => false,
        });
        if all.is_empty() {
            return bad("oidc_logout_session", "this is not the session of this browser");
        }
        for open in &all {
            self.end(open);
            if let Some(sid) = open.sid() {
                let _noted = self.ended.note("sid", sid, now(), self.ended.until(now()));
            }
        }
        for line in self.cookies.clear(visit) {
            reply = reply.header(SET_COOKIE, line);
        }
        self.counts.logouts.add(1);
        Box::new(reply.reason("oidc_logged_out"))
    }

    /// The provider says that somebody has logged out.
    pub(super) async fn back_channel(&self, exchange: &mut Exchange) -> Box<Reply> {
        if *exchange.method() != Method::POST {
            let refused = Reply::new(Cause::MethodNotAllowed);
            return Box::new(refused.header(ALLOW, HeaderValue::from_static("POST")));
        }
        let Ok((body, _)) = exchange.body.collect(MAX_BODY).await else {
            return bad("oidc_logout_token", "the logout request can't be read");
        };
        let fields = super::parameters(&String::from_utf8_lossy(&body));
        let token = fields.get("logout_token").map(String::as_str).unwrap_or_default();
        let invalid = || bad("oidc_logout_token", "the logout token is not valid");
        let Ok(token) = Token::read_logout(token.as_bytes()) else { return invalid() };
        match self.provider.check(&token).await {
            Ok(()) => {}
            Err(Failure::Unavailable(why)) => return self.unavailable(exchange, why),
            Err(_) => return invalid(),
        }
        let claims = &token.claims;
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        let is_event =
            claims.get("events").and_then(|events| events.get(EVENT)).is_some_and(Value::is_object);
        let issued = claims.get("iat").and_then(Value::as_u64).unwrap_or(0);
        let is_new = issued.abs_diff(now()) <= MAX_AGE;
        if !is_event || !is_new || claims.contains_key("nonce") || text("jti").is_none() {
            return invalid();
        }
        let who = text("sid").map(|id| ("sid", id)).or_else(|| text("sub").map(|id| ("sub", id)));
        let (Some((name, id)), Some(jti)) = (who, text("jti")) else { return invalid() };
        if self.ended.is_noted("jti", jti, now()) {
            return bad("oidc_logout_token", "the logout token has been used");
        }
        // Logins after it was made are none of its: a copy of the token must not end them, at another gateway for example.
        let second = now().min(issued.saturating_add(self.provider.rules.leeway));
        let is_noted = self.ended.note(name, id, second, self.ended.until(now()))
            && self.ended.note("jti", jti, now(), issued.saturating_add(MAX_AGE + 1));
        if !is_noted {
            return self.unavailable(exchange, "too many sessions have been ended");
        }
        self.counts.logouts.add(1);
        let reply = Reply::fixed(StatusCode::OK, "").reason("oidc_logged_out");
        Box::new(reply.header(CACHE_CONTROL, HeaderValue::from_static("no-store")))
    }
}
