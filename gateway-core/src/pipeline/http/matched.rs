//! The proxy of a request, and the request as its targets get it.

use std::borrow::Cow;
use std::sync::Arc;

use http::Method;
use tokio::time::Instant;

use crate::balance::Target;
use crate::condition::Assumed;
use crate::condition::Holds;
use crate::condition::holds_as;
use crate::config::model::HttpRules;
use crate::http::cgi_request::CgiRequest;
use crate::http::dialect::Dialect;
use crate::http::exchange::Exchange;
use crate::http::path;
use crate::http::reply::{Cause, Reply};
use crate::http::retry::Attempts;
use crate::http::upstream::Call;
use crate::pipeline::stream;
use crate::route::{RouteMatch, forward_path};
use crate::snapshot::{Route, Snapshot};
use crate::template::Facts;

/// A proxy's share of a request: the route and how much of the path it took.
#[derive(Clone, Copy)]
pub(super) struct Matched<'s> {
    pub(super) route: &'s Route,
    pub(super) rules: &'s HttpRules,
    pub(super) path_bytes: usize,
    /// The request is a preflight, which a plugin answers; the target must not see it.
    pub(super) is_preflight: bool,
}

/// What a target gets in place of what the client sent.
pub(super) struct SentAs<'e> {
    /// Path and query.
    pub(super) path: Cow<'e, str>,
    /// What it is told that speaks no HTTP.
    pub(super) cgi: Option<Box<CgiRequest>>,
}

impl Matched<'_> {
    /// Path and query as the target gets them.
    pub(super) fn path<'e>(&self, exchange: &'e Exchange, target_path: Option<&str>) -> Cow<'e, str> {
        if let Some(path) = &exchange.forward_path {
            return Cow::Borrowed(path);
        }
        let original = exchange.request.uri.path_and_query().map_or("/", |target| target.as_str());
        let prefix = target_path.or(self.rules.backend_path.as_deref());
        forward_path(original, self.path_bytes, self.rules.strip_listen_path, prefix)
    }

    /// No attempt made yet.
    pub(super) fn attempts<'m>(&'m self, exchange: &Exchange, method: &'m Method) -> Attempts<'m> {
        let path = || self.path(exchange, None).into_owned();
        Attempts::new(&self.route.proxy.retry, &self.route.budget, method, exchange.dialect, path)
    }

    /// One try: the request as this target gets it, begun at a moment, over connections of this number.
    pub(super) fn call<'e>(
        &'e self,
        exchange: &'e Exchange,
        method: &'e Method,
        sent: &'e SentAs<'_>,
        target: &'e Target,
        begun: Instant,
        pool_key: u64,
    ) -> Call<'e> {
        Call {
            backend: &self.route.proxy.backend,
            timeouts: &self.route.proxy.timeouts,
            target,
            chosen: exchange.upstream(),
            pool_key,
            method,
            path: &sent.path,
            host: exchange.host_for(target, &self.route.proxy),
            headers: &exchange.request.headers,
            forwarding: &exchange.forwarding,
            begun,
            dialect: exchange.dialect,
            trailers: exchange.trailers || exchange.dialect.needs_trailers(),
            upgrade: exchange.upgrade.as_ref(),
            client_version: exchange.request.version,
            cgi: sent.cgi.as_deref(),
        }
    }

    /// What this target gets of the request in place of what the client sent.
    ///
    /// # Errors
    /// The target speaks no HTTP, and the path leads to no script, or a parameter can't be made.
    pub(super) fn request_for<'e>(
        &self,
        exchange: &'e Exchange,
        target: &Target,
    ) -> Result<SentAs<'e>, Box<Reply>> {
        let path = self.path(exchange, target.rules.path.as_deref());
        let cgi = self.cgi(exchange, &path, target)?;
        Ok(SentAs { path, cgi })
    }

    fn cgi(
        &self,
        exchange: &Exchange,
        path: &str,
        target: &Target,
    ) -> Result<Option<Box<CgiRequest>>, Box<Reply>> {
        let Some(rules) = self.route.proxy.backend.fastcgi() else { return Ok(None) };
        let is_stripped = self.rules.strip_listen_path
            && exchange.forward_path.is_none()
            && self.rules.backend_path.is_none()
            && target.rules.path.is_none();
        let stripped = if is_stripped { exchange.path().get(..self.path_bytes) } else { None };
        let facts =
            Facts { proxy: Some(self.route.proxy.id.as_str()), target: Some(target), ..Facts::of(exchange) };
        CgiRequest::of(rules, &facts, path, stripped.unwrap_or_default()).map(|cgi| Some(Box::new(cgi)))
    }
}

/// A proxy that a request leads to.
pub(super) struct RequestRoute<'s> {
    pub(super) route: &'s Route,
    /// How much of the path it took.
    pub(super) path_bytes: usize,
    /// It is a preflight, which leads here as the request that it asks about, and must not reach a target.
    pub(super) is_preflight: bool,
}

/// Finds the proxy of a request. A preflight of CORS belongs to the proxy of the request that it asks about, where a plugin there
/// answers it.
pub(super) fn find<'s>(
    snapshot: &'s Snapshot,
    exchange: &mut Exchange,
) -> Result<RequestRoute<'s>, Box<Reply>> {
    if let Some(method) = exchange.announced_method() {
        let assumed = Assumed { method: Some(&method), ..Assumed::default() };
        let announced = lookup(snapshot, exchange, exchange.request.uri.path(), assumed);
        if let Some(found) = announced.filter(|found| is_answered(found.route, exchange)) {
            exchange.captures = found.captures(exchange.request.uri.path());
            return Ok(RequestRoute { route: found.route, path_bytes: found.matched, is_preflight: true });
        }
    }
    let found = lookup(snapshot, exchange, exchange.request.uri.path(), Assumed::default());
    if let Some(server_name) = other_server_name(exchange) {
        let assumed = Assumed { server_name: Some(server_name), ..Assumed::default() };
        let meant = lookup(snapshot, exchange, exchange.request.uri.path(), assumed);
        let is_same = |found: &RouteMatch<'_, Arc<Route>>| {
            meant.as_ref().is_none_or(|meant| Arc::ptr_eq(meant.route, found.route))
        };
        if meant.is_some() && !found.as_ref().is_some_and(is_same) {
            // RFC 9110 §15.5.20: the client asks again over a connection for this host.
            return Err(Box::new(Reply::new(Cause::Misdirected)));
        }
    }
    let Some(found) = found else { return Err(Box::new(Reply::new(Cause::NoRoute))) };
    exchange.captures = found.captures(exchange.request.uri.path());
    Ok(RequestRoute { route: found.route, path_bytes: found.matched, is_preflight: false })
}

/// Whether a plugin of this route answers the preflight.
fn is_answered(route: &Route, exchange: &Exchange) -> bool {
    route.chain.answered_preflights().any(|when| when.is_none_or(|when| when.holds(exchange)))
}

/// The host that is asked, where the client named another one when it opened its TLS connection: browsers send requests for several
/// hosts over one connection, if its certificate is for all of them.
fn other_server_name(exchange: &Exchange) -> Option<&str> {
    let opened_for = exchange.client.tls.as_ref()?.server_name.as_deref()?;
    let asked = exchange.asked_host()?;
    let name = asked.rsplit_once(':').map_or(asked, |(name, _)| name).trim_end_matches('.');
    (!name.eq_ignore_ascii_case(opened_for)).then_some(name)
}

fn lookup<'s>(
    snapshot: &'s Snapshot,
    exchange: &Exchange,
    path: &str,
    assumed: Assumed<'_>,
) -> Option<RouteMatch<'s, Arc<Route>>> {
    snapshot.routes.find(exchange.asked_host(), path, |condition| holds_as(condition, exchange, assumed))
}

/// Whether every way in which a target may read the path leads to this proxy as well: a target must not be reached past the proxy that
/// is meant for what it reads. Nor must a preflight's answer come from another one.
pub(super) fn leads_here_in_every_reading(
    snapshot: &Snapshot,
    exchange: &Exchange,
    found: &RequestRoute<'_>,
) -> bool {
    let announced = exchange.announced_method().filter(|_| found.is_preflight);
    let assumed = Assumed { method: announced.as_ref(), ..Assumed::default() };
    path::other_readings(exchange.request.uri.path()).all(|reading| {
        let other = lookup(snapshot, exchange, &reading, assumed);
        other.is_none_or(|other| std::ptr::eq(&**other.route, found.route))
    })
}

/// Whether an upgrade may go on to the target.
pub(super) fn check_upgrade(
    exchange: &mut Exchange,
    route: &Route,
    rules: &HttpRules,
) -> Result<(), Box<Reply>> {
    if exchange.upgrade.is_none() {
        return Ok(());
    }
    if !rules.websocket.is_allowed {
        if exchange.is_switched_by_success() {
            // A success would be taken for the switch.
            return Err(Box::new(Reply::new(Cause::UpgradeRefused)));
        }
        exchange.upgrade = None;
        exchange.dialect = Dialect::of(&exchange.request.method, &exchange.request.headers, false);
        return Ok(());
    }
    stream::make_readable(route, &mut exchange.request.headers);
    let mut origins = exchange.request.headers.get_all(http::header::ORIGIN).iter();
    let origin = origins.next().and_then(|origin| origin.to_str().ok());
    // Of several, the target may take another one for the page's.
    if origins.next().is_none() && rules.may_upgrade_from(origin) {
        return Ok(());
    }
    Err(Box::new(Reply::new(Cause::Forbidden).detail("this origin may not upgrade here")))
}
