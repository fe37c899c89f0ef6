//! Logs users in at an OpenID provider (OpenID Connect, code flow with PKCE), and recognises them by an encrypted cookie.
//!
//! The session is in the browser: ID token, access token and refresh token, encrypted with `session_secret`, in several
//! cookies when it is long. Every gateway with the same secret can read it, and none has to keep it. When the access token
//! has expired, it is refreshed, once for all the requests that a browser sends at a time. Pages send the browser to the
//! provider; other requests without a session get 401. Targets never see the cookies, and the plugin's own paths are answered by it
//! whatever `when` says and other plugins find.
//!
//! A logout ends the session at all plugin configs of this gateway that have the same issuer and client, and what was opened with it
//! and goes on: WebSockets, streams of events, gRPC calls. With `auth_mode: multi`, this plugin has to be asked last, or what sends
//! browsers to the provider is lost.

mod build;
mod cookies;
mod login;
mod logout;
mod page;
mod provider;
mod provider_failure;
pub mod provider_login;
mod seal;
mod session;
mod settings;
mod visit;

use std::collections::HashMap;
use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::consumer::Identity;
use gateway_core::http::body::Body;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::metrics::Metric;
use gateway_core::plugin::step::Wait;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::{
    Authenticate, Claim, Family, Finding, Hooks, OnRequest, OnResponse, OwnPages, Plugin, Seat, Starter,
    Step, World,
};
use http::header::{AUTHORIZATION, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use tokio::time::Instant;

use crate::credential::grants::Grants;
use crate::credential::headers::ClaimHeaders;
use crate::credential::{absent, now};
use crate::privacy::keep_private;
use cookies::Cookies;
use provider::Provider;
use provider_failure::Failure;
use seal::Seal;
use session::{
    Ended, OpenSession, RefreshError, RefreshWait, Refreshed, Refreshes, Session, SessionCache,
    SessionStanding,
};
pub(crate) use settings::Config;
use visit::BrowserVisit;

/// The plugin.
pub(crate) struct Oidc {
    provider: Arc<Provider>,
    issuer: String,
    scopes: String,
    redirect_uri: Option<String>,
    paths: Paths,
    after_logout: Option<String>,
    /// Seconds from login to the session's end.
    session_ttl: u64,
    refresh: bool,
    seal: Seal,
    cookies: Cookies,
    grants: Grants,
    headers: ClaimHeaders,
    token_header: Option<HeaderName>,
    anonymous: Option<String>,
    known: SessionCache,
    ended: Arc<Ended>,
    refreshes: Arc<Refreshes>,
    counts: Counts,
}

/// Paths at which the plugin answers itself.
struct Paths {
    redirect: String,
    logout: String,
    login: Option<String>,
    back_channel: Option<String>,
    front_channel: Option<String>,
}

impl Paths {
    /// The paths that the proxy has to match, and the settings that name them. The default of `logout_path` need not be reached.
    fn needed(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let logout = Some(self.logout.as_str()).filter(|path| *path != settings::LOGOUT_PATH);
        [
            ("config.redirect_path", Some(self.redirect.as_str())),
            ("config.logout_path", logout),
            ("config.login_path", self.login.as_deref()),
            ("config.backchannel_logout_path", self.back_channel.as_deref()),
            ("config.frontchannel_logout_path", self.front_channel.as_deref()),
        ]
        .into_iter()
        .filter_map(|(setting, path)| Some((setting, path?)))
    }
}

struct Counts {
    logins: Counter,
    logouts: Counter,
    refreshes: Counter,
    refused: Counter,
    failed: Counter,
}

const SESSIONS: Metric = Metric::counter(
    "ferrum_oidc_sessions_total",
    "Sessions by event: login, logout, refresh, refused (by the provider, or by what its tokens say), failed (the provider gave no answer).",
);

impl Plugin for Oidc {
    const NAME: &'static str = "oidc";
    const FAMILY: Family = Family::Authentication;
    const SUMMARY: &'static str =
        "Logs users in at an OpenID provider, and recognises them by an encrypted cookie.";
    const EXAMPLE: &'static str = include_str!("../examples/oidc.yaml");
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        build::build(config, world)
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        self.headers.declare(hooks);
        for (setting, path) in self.paths.needed() {
            hooks.needs_path(setting, path);
        }
        hooks.own_pages(self.clone());
        hooks.authenticate(self.clone());
        hooks.on_request(self.clone());
        hooks.on_response(self);
    }

    fn start(self: &Arc<Self>, starter: &mut Starter<'_>) {
        let source = self.provider.source.clone();
        starter.task("keys", move |control| source.clone().keep_fresh(control));
    }
}

/// Refreshes that one request goes through at most; each was kept in mind for a minute.
const MAX_REFRESHES_IN_TURN: usize = 100;

/// What is kept for one exchange.
#[derive(Default)]
struct Mine {
    open: Option<Arc<OpenSession>>,
    /// `Set-Cookie` for the response.
    cookies: Vec<HeaderValue>,
}

impl Authenticate for Oidc {
    fn authenticate<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Claim<'a> {
        let second = now();
        let Some(open) = self.open(&exchange.request.headers, second) else {
            if let Some(name) = &self.anonymous {
                self.cookies.take_out(&mut exchange.request.headers);
                return absent(Some(name), seat, forbidden("session_missing", "a login is required"));
            }
            let visit = BrowserVisit::of(exchange);
            return Claim::wait(async move { Finding::Absent(Some(self.stranger(exchange, &visit).await)) });
        };
        if !self.is_due(&open.session, second) {
            return match self.admitted(exchange, seat, open, Vec::new()) {
                Ok(identity) => Claim::Caller(identity),
                Err(reply) => Claim::Refused(reply),
            };
        }
        Claim::wait(async move {
            match self.refreshed(exchange, seat, &open).await {
                Ok(identity) => Finding::Caller(identity),
                Err(reply) => Finding::Refused(reply),
            }
        })
    }

    fn hide(&self, exchange: &mut Exchange) {
        self.cookies.take_out(&mut exchange.request.headers);
    }
}

impl OwnPages for Oidc {
    fn page<'a>(&'a self, exchange: &'a mut Exchange, _seat: Seat<'a>) -> Option<Wait<'a, Box<Reply>>> {
        let page = self.page_at(exchange.uri().path())?;
        let visit = BrowserVisit::of(exchange);
        Some(Box::pin(async move {
            match page {
                Page::Finish => self.finish(exchange, &visit).await,
                Page::Begin => self.begin(exchange, &visit, "/".into()).await,
                Page::LogOut => self.confirm_log_out(exchange.method(), &visit).await,
                Page::BackChannel => self.back_channel(exchange).await,
                Page::FrontChannel => self.front_channel(&visit),
            }
        }))
    }

    fn pass_by(&self, exchange: &mut Exchange) {
        self.cookies.take_out(&mut exchange.request.headers);
    }
}

impl OnRequest for Oidc {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        let open = exchange.state.of::<Mine>(seat).and_then(|mine| mine.open.clone());
        self.headers.set(exchange, open.as_ref().map(|open| &open.claims));
        let Some(name) = &self.token_header else { return Step::Next };
        exchange.remove_header(name);
        let open = open.as_ref().filter(|open| !open.session.is_expired(now()));
        if let Some(token) = open.and_then(|open| open.session.access_token.as_deref()) {
            let text = if *name == AUTHORIZATION { format!("Bearer {token}") } else { token.to_owned() };
            if let Ok(mut value) = HeaderValue::try_from(text) {
                value.set_sensitive(true);
                exchange.request.headers.insert(name, value);
            }
        }
        Step::Next
    }
}

impl OnResponse for Oidc {
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        let mine = exchange.state.of::<Mine>(seat);
        let headers = response.headers_mut();
        for line in mine.into_iter().flat_map(|mine| &mine.cookies) {
            // A reply that replaces a response passes here once more.
            if !headers.get_all(SET_COOKIE).iter().any(|known| known == line) {
                headers.append(SET_COOKIE, line.clone());
            }
        }
        if mine.is_some_and(|mine| !mine.cookies.is_empty()) {
            keep_private(headers);
        }
        Step::Next
    }
}

/// What the plugin answers itself.
enum Page {
    Finish,
    Begin,
    LogOut,
    BackChannel,
    FrontChannel,
}

impl Oidc {
    fn page_at(&self, path: &str) -> Option<Page> {
        let is = |known: &Option<String>| known.as_deref() == Some(path);
        if path == self.paths.redirect {
            Some(Page::Finish)
        } else if path == self.paths.logout {
            Some(Page::LogOut)
        } else if is(&self.paths.login) {
            Some(Page::Begin)
        } else if is(&self.paths.back_channel) {
            Some(Page::BackChannel)
        } else if is(&self.paths.front_channel) {
            Some(Page::FrontChannel)
        } else {
            None
        }
    }

    /// The session of a request: of several the newest that is good.
    fn open(&self, headers: &HeaderMap, second: u64) -> Option<Arc<OpenSession>> {
        let mut newest: Option<Arc<OpenSession>> = None;
        self.cookies.read(headers, |text| {
            let Some(open) = self.opened(text) else { return false };
            let is_newer = newest.as_ref().is_none_or(|known| known.age_key() < open.age_key());
            if is_newer && self.is_good(&open, second) {
                newest = Some(open);
            }
            true
        });
        newest
    }

    /// All the sessions of a request, not judged yet.
    fn open_all(&self, headers: &HeaderMap) -> Vec<Arc<OpenSession>> {
        let mut all = Vec::new();
        self.cookies.read(headers, |text| {
            let open = self.opened(text);
            all.extend(open.clone());
            open.is_some()
        });
        all
    }

    fn opened(&self, text: &[u8]) -> Option<Arc<OpenSession>> {
        let print = session::print(text);
        if let Some(open) = self.known.get(&print) {
            return Some(open);
        }
        let open = OpenSession::new(self.seal.open(&self.cookies.name, text)?)?;
        self.known.put(print, open.clone());
        Some(open)
    }

    /// Whether a session has neither come to its end nor been ended.
    fn is_good(&self, open: &OpenSession, second: u64) -> bool {
        second < open.session.began.saturating_add(self.session_ttl) && !self.ended.has(open)
    }

    /// Whether its tokens have to be renewed.
    fn is_due(&self, session: &Session, second: u64) -> bool {
        self.refresh && session.refresh_token.is_some() && session.is_expired(second)
    }

    /// The caller of a session.
    fn admitted(
        &self,
        exchange: &mut Exchange,
        seat: Seat<'_>,
        open: Arc<OpenSession>,
        cookies: Vec<HeaderValue>,
    ) -> Result<Arc<Identity>, Box<Reply>> {
        let mut identity = self.grants.caller(open.claims.clone(), seat).map_err(|fault| {
            let (reason, detail) = fault.words();
            forbidden(reason, detail)
        })?;
        let until = open.session.began.saturating_add(self.session_ttl);
        let standing = SessionStanding { open: open.clone(), ended: self.ended.clone(), until };
        Arc::make_mut(&mut identity).standing = Some(Arc::new(standing));
        self.cookies.take_out(&mut exchange.request.headers);
        exchange.state.put(seat, Mine { open: Some(open), cookies });
        Ok(identity)
    }

    /// The caller of a session with new tokens. Requests of one session that come together cause one refresh, and have what it comes
    /// to, also its failure.
    async fn refreshed(
        &self,
        exchange: &mut Exchange,
        seat: Seat<'_>,
        old: &Arc<OpenSession>,
    ) -> Result<Arc<Identity>, Box<Reply>> {
        let visit = BrowserVisit::of(exchange);
        let open = match self.newest(old).await {
            Ok(Some(open)) => open,
            Ok(None) => {
                self.counts.refused.add(1);
                return Err(self.expired(exchange, &visit).await);
            }
            Err(why) => return Err(self.unavailable(exchange, why)),
        };
        let lines = self
            .session_cookies(&visit, &open.session)
            .ok_or_else(|| Box::new(Reply::new(Cause::Internal).reason("oidc_session_too_large")))?;
        self.admitted(exchange, seat, open, lines)
    }

    /// The session with tokens that are good now. A client that does not keep cookies comes with the old ones for as long as their
    /// refresh is kept in mind, and the new tokens may have expired meanwhile: then these are refreshed in their turn.
    async fn newest(&self, old: &Arc<OpenSession>) -> Refreshed {
        let asked = Instant::now();
        let mut open = old.clone();
        for _ in 0..MAX_REFRESHES_IN_TURN {
            let refresh = self.join_refresh(&open).ok_or(RefreshError::TooMany)?;
            let (ended, refreshed) = refresh.within(self.provider.timeout).await?;
            let Some(newer) = refreshed else { return Ok(None) };
            // What the provider has just given is the best there is, even if it says that it expires at once.
            if ended >= asked || !self.is_due(&newer.session, now()) {
                return Ok(Some(newer));
            }
            open = newer;
        }
        Err(RefreshError::TooOften)
    }

    fn join_refresh(&self, old: &Arc<OpenSession>) -> Option<RefreshWait> {
        let token = old.session.refresh_token.as_deref().unwrap_or_default();
        self.refreshes.join(token, || {
            let (provider, old, count) = (self.provider.clone(), old.clone(), self.counts.refreshes.clone());
            async move {
                match provider.refresh(&old).await {
                    Ok(session) => {
                        count.add(1);
                        Ok(OpenSession::new(session))
                    }
                    Err(Failure::Unavailable(why)) => Err(RefreshError::Provider(why)),
                    Err(Failure::Refused | Failure::Token(_)) => Ok(None),
                }
            }
        })
    }
}

fn forbidden(reason: &'static str, detail: &'static str) -> Box<Reply> {
    Box::new(Reply::new(Cause::Forbidden).reason(reason).detail(detail))
}

/// The fields of a form or query; of two with one name the first counts.
fn parameters(text: &str) -> HashMap<String, String> {
    let decoded = |text: &str| {
        let plain = text.replace('+', " ");
        percent_encoding::percent_decode_str(&plain).decode_utf8().ok().map(|text| text.into_owned())
    };
    let mut all = HashMap::new();
    for (name, value) in text.split('&').filter_map(|pair| pair.split_once('=')) {
        if let (Some(name), Some(value)) = (decoded(name), decoded(value)) {
            all.entry(name).or_insert(value);
        }
    }
    all
}

#[cfg(test)]
mod tests;
