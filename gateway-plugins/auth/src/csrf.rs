//! Protects pages that authenticate by cookie against requests that other sites have a browser send (CSRF).
//!
//! Two checks, both on unless switched off. **Origin**: a request that changes something must come from the site's own pages or
//! from `trusted_origins`, by `Sec-Fetch-Site`, `Origin` or `Referer`. **Token** (signed double submit): a response to a safe
//! request sets a cookie with a signed token that expires; the page reads it and sends it back in a header, or in a form field,
//! which another site's page can't. WebSocket handshakes are checked by origin only: pages can't add headers to them.
//!
//! Requests that are not authenticated by cookie, such as those with a bearer token, need none of it: leave them out with
//! `when`.

mod origin_check;
mod settings;
mod token;

use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::http::body::{Body, BodyError};
use gateway_core::http::dialect::Dialect;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::{
    Family, Hooks, Need, Needs, OnRequest, OnResponse, Plugin, Seat, Step, Verdict, World,
};
use gateway_core::request_values;
use gateway_core::template::{MAX_RENDERED, TextContext};
use http::header::{CONTENT_TYPE, SET_COOKIE};
use http::{HeaderValue, Response};

use crate::credential::now;
use crate::privacy::keep_private;
use gateway_core::template::Render;
use origin_check::Origins;
use settings::{Config, Settings};
use token::{Age, Tokens};

/// The plugin.
pub(crate) struct Csrf {
    settings: Settings,
    origins: Option<Origins>,
    tokens: Option<Tokens>,
    passed: Counter,
    refused: Counter,
}

/// The cookie that the response is to set.
struct Issue(HeaderValue);

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CsrfRefusal {
    CrossOrigin,
    Missing,
    Invalid,
    TooLarge,
}

const REQUESTS: Metric = Metric::counter(
    "ferrum_csrf_requests_total",
    "Requests with unsafe methods, by outcome: passed, refused (would_refuse in a dry run).",
);

impl Plugin for Csrf {
    const NAME: &'static str = "csrf";
    const FAMILY: Family = Family::Security;
    const SUMMARY: &'static str = "Refuses requests that other sites have a browser send.";
    const EXAMPLE: &'static str = include_str!("../examples/csrf.yaml");
    const NEEDS: &'static [Needs] = &[
        Needs::new("allow_without_origin", Need::On("origin")),
        Needs::new("allow_same_site", Need::On("origin")),
        Needs::new("trusted_origins", Need::On("origin")),
        Needs::new("secret", Need::On("token")),
        Needs::new("previous_secret", Need::On("token")),
        Needs::new("cookie_name", Need::On("token")),
        Needs::new("cookie_domain", Need::On("token")),
        Needs::new("cookie_path", Need::On("token")),
        Needs::new("cookie_secure", Need::On("token")),
        Needs::new("cookie_same_site", Need::On("token")),
        Needs::new("header_name", Need::On("token")),
        Needs::new("form_field", Need::On("token")),
        Needs::new("ttl", Need::On("token")),
        Needs::new("bind_to", Need::On("token")),
        Needs::new("max_form", Need::Given(&["form_field"])),
    ];
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let (settings, origins, tokens) = settings::read(config)?;
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let count =
            |outcome| world.meters().counter(REQUESTS, &["plugin_config", "outcome"], &[owner, outcome]);
        Ok(Self {
            passed: count("passed"),
            refused: count(if settings.dry_run { "would_refuse" } else { "refused" }),
            settings,
            origins,
            tokens,
        })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.renders("config.bind_to", self.settings.bind_to.as_ref());
        hooks.on_request(self.clone());
        if self.tokens.is_some() {
            hooks.on_response(self);
        }
    }
}

impl OnRequest for Csrf {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        let upgrades = exchange.dialect == Dialect::Upgrade;
        if self.settings.safe_methods.contains(exchange.method()) && !upgrades {
            if let Some(tokens) = &self.tokens {
                self.renew(tokens, exchange, seat);
            }
            return Step::Next;
        }
        if self.origins.as_ref().is_some_and(|origins| !origins.admit(exchange)) {
            return self.outcome(exchange, Err(CsrfRefusal::CrossOrigin)).map_or(Step::Next, Step::reply);
        }
        let Some(tokens) = self.tokens.as_ref().filter(|_| !upgrades) else {
            self.passed.add(1);
            return Step::Next;
        };
        let bound = self.bound(exchange, seat);
        let sent = exchange.request.headers.get(&self.settings.header).map(|value| value.as_bytes().to_vec());
        if sent.is_none() && self.settings.form_field.is_some() && is_form(exchange) {
            return Step::wait(self.check_form(tokens, exchange, bound));
        }
        let found = check(tokens, &self.settings.cookie, exchange, sent.as_deref(), &bound);
        self.outcome(exchange, found).map_or(Step::Next, Step::reply)
    }
}

impl OnResponse for Csrf {
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        let Some(Issue(cookie)) = exchange.state.of::<Issue>(seat) else { return Step::Next };
        let headers = response.headers_mut();
        // A response may pass here twice, when another plugin replaces it.
        if !headers.get_all(SET_COOKIE).iter().any(|known| known == cookie) {
            headers.append(SET_COOKIE, cookie.clone());
        }
        keep_private(headers);
        Step::Next
    }
}

fn is_form(exchange: &Exchange) -> bool {
    let kind = exchange.request.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let kind = kind.split(|c| *c == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
}

/// Whether what was sent is the cookie's token, and the token is good.
fn check(
    tokens: &Tokens,
    cookie: &str,
    exchange: &Exchange,
    sent: Option<&[u8]>,
    bound: &[u8],
) -> Result<(), CsrfRefusal> {
    let cookie =
        request_values::cookie(&exchange.request.headers, cookie).filter(|cookie| !cookie.is_empty());
    let (Some(cookie), Some(sent)) = (cookie, sent.filter(|sent| !sent.is_empty())) else {
        return Err(CsrfRefusal::Missing);
    };
    let same = aws_lc_rs::constant_time::verify_slices_are_equal(cookie, sent).is_ok();
    (same && tokens.age(cookie, bound, now()).is_some()).then_some(()).ok_or(CsrfRefusal::Invalid)
}

impl Csrf {
    /// What the token is bound to; empty where it is bound to nothing, or nothing is there.
    fn bound(&self, exchange: &Exchange, seat: Seat<'_>) -> Vec<u8> {
        let mut bound = Vec::new();
        if let Some(template) = &self.settings.bind_to {
            let facts = gateway_plugin_common::facts::of(exchange, seat);
            if template.render(&facts, TextContext::Text, MAX_RENDERED, &mut bound).is_err() {
                bound.clear();
            }
        }
        bound
    }

    /// Has the response set a new token where the client has none that is good for a while.
    fn renew(&self, tokens: &Tokens, exchange: &mut Exchange, seat: Seat<'_>) {
        let bound = self.bound(exchange, seat);
        let cookie = request_values::cookie(&exchange.request.headers, &self.settings.cookie);
        if cookie.and_then(|cookie| tokens.age(cookie, &bound, now())) == Some(Age::Fresh) {
            return;
        }
        let Some(token) = tokens.make(&bound, now()) else { return };
        let text = format!("{}={token}{}", self.settings.cookie, self.settings.attributes);
        if let Ok(cookie) = HeaderValue::from_str(&text) {
            exchange.state.put(seat, Issue(cookie));
        }
    }

    async fn check_form(&self, tokens: &Tokens, exchange: &mut Exchange, bound: Vec<u8>) -> Verdict {
        let found = match exchange.body.collect(self.settings.max_form).await {
            Ok((bytes, trailers)) => {
                let field = self.settings.form_field.as_deref().unwrap_or_default();
                let form = std::str::from_utf8(&bytes).ok();
                let sent = request_values::query(form, field);
                let found = check(tokens, &self.settings.cookie, exchange, sent.as_deref(), &bound);
                drop(sent);
                exchange.body = match trailers {
                    Some(trailers) => Body::full_with_trailers(bytes, trailers),
                    None => Body::full(bytes),
                };
                found
            }
            Err(BodyError::TooLarge { .. }) => Err(CsrfRefusal::TooLarge),
            Err(error) => return Verdict::Reply(error.into_reply()),
        };
        self.outcome(exchange, found).map_or(Verdict::Next, Verdict::reply)
    }

    /// The refusal, where there is one.
    fn outcome(&self, exchange: &mut Exchange, found: Result<(), CsrfRefusal>) -> Option<Reply> {
        let Err(fault) = found else {
            self.passed.add(1);
            return None;
        };
        self.refused.add(1);
        let (reason, detail) = match fault {
            CsrfRefusal::CrossOrigin => ("csrf_cross_origin", "requests from other sites are not allowed"),
            CsrfRefusal::Missing => ("csrf_token_missing", "the request lacks its CSRF token or the cookie"),
            CsrfRefusal::Invalid => ("csrf_token_invalid", "the CSRF token is wrong or has expired"),
            CsrfRefusal::TooLarge => {
                ("csrf_form_too_large", "the form is too large to look for its CSRF token")
            }
        };
        if self.settings.dry_run {
            exchange.note("csrf.would_refuse", reason);
            return None;
        }
        Some(Reply::new(Cause::Forbidden).reason(reason).detail(detail))
    }
}

#[cfg(test)]
mod tests;
