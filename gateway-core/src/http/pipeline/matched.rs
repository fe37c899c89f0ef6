//! The proxy of a request, and the request as its targets get it.

use std::borrow::Cow;

use http::{HeaderValue, Method};
use tokio::time::Instant;

use crate::balance::Target;
use crate::config::model::HttpRules;
use crate::config::snapshot::{Route, Snapshot};
use crate::http::exchange::Exchange;
use crate::http::path;
use crate::http::reply::{Cause, Reply};
use crate::http::retry::Attempts;
use crate::route::forward_path;
use crate::stream::pipeline as stream;
use crate::upstream::Call;

/// A proxy's share of a request: the route and how much of the path it took.
#[derive(Clone, Copy)]
pub(super) struct Matched<'s> {
    pub(super) route: &'s Route,
    pub(super) rules: &'s HttpRules,
    pub(super) path_bytes: usize,
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

    /// The host as the target gets it.
    fn host<'e>(&self, exchange: &'e Exchange, target: &'e Target) -> &'e HeaderValue {
        if let Some(host) = exchange.forward_host() {
            return host;
        }
        let client = match self.rules.preserve_host_header {
            true => exchange.request.headers.get(http::header::HOST),
            false => None,
        };
        match client {
            Some(host) => host,
            _ if self.route.proxy.backend.scheme.is_encrypted() => target.host_header(443),
            _ => target.host_header(80),
        }
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
        path: &'e str,
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
            path,
            host: self.host(exchange, target),
            headers: &exchange.request.headers,
            forwarding: &exchange.forwarding,
            begun,
            dialect: exchange.dialect,
            trailers: exchange.trailers || exchange.dialect.needs_trailers(),
            upgrade: exchange.upgrade.as_ref(),
            client_version: exchange.request.version,
        }
    }
}

/// Finds the proxy of a request, and how much of the path it took.
pub(super) fn find<'s>(
    snapshot: &'s Snapshot,
    exchange: &mut Exchange,
) -> Result<(&'s Route, usize), Box<Reply>> {
    let path = exchange.request.uri.path();
    let found = snapshot.routes.find(exchange.asked_host(), path, |condition| condition.holds(exchange));
    let Some(found) = found else { return Err(Box::new(Reply::new(Cause::NoRoute))) };
    let (route, matched) = (found.route, found.matched);
    exchange.captures = found.captures(path);
    Ok((route, matched))
}

/// Whether a path with escaped characters that it may have plainly leads to this proxy in either form: targets may take one for the other.
pub(super) fn is_plainly(snapshot: &Snapshot, exchange: &Exchange, route: &Route) -> bool {
    let Some(plain) = path::plain(exchange.request.uri.path()) else { return true };
    let found = snapshot.routes.find(exchange.asked_host(), &plain, |condition| condition.holds(exchange));
    found.is_none_or(|found| std::ptr::eq(&**found.route, route))
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
    stream::make_readable(route, &mut exchange.request.headers);
    let mut origins = exchange.request.headers.get_all(http::header::ORIGIN).iter();
    let origin = origins.next().and_then(|origin| origin.to_str().ok());
    // Of several, the target may take another one for the page's.
    if origins.next().is_none() && rules.may_upgrade_from(origin) {
        return Ok(());
    }
    Err(Box::new(Reply::new(Cause::Forbidden).detail("this origin may not upgrade here")))
}
