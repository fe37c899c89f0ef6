//! The steps before any plugin: which proxy a request is for, and whether it may be tried at all.

use http::HeaderValue;

use super::ending::ExchangeEnding;
use super::matched::{self, Matched};
use super::spelling::{normalise, respell};
use crate::config::model::{HttpRules, Settings, Traffic};
use crate::http::exchange::Exchange;
use crate::http::guard;
use crate::http::headers::{self, MessageSource};
use crate::http::names::TrailerRules;
use crate::http::path;
use crate::http::reply::{Cause, Reply};
use crate::snapshot::Snapshot;

/// Finds the proxy of a request and makes sure that it may be tried at all.
pub(super) fn admit<'s>(
    snapshot: &'s Snapshot,
    end: &mut ExchangeEnding<'s>,
) -> Result<Matched<'s>, Box<Reply>> {
    let settings = &*snapshot.settings;
    let exchange = &mut end.exchange;
    let timeout = exchange.dialect.timeout(&exchange.request.method, &exchange.request.headers);
    exchange.deadline = timeout.map(|timeout| exchange.started + timeout);
    exchange.host = guard::check(exchange, &settings.limits)?;
    let oddities = normalise(exchange, settings.merge_slashes)?;
    guard::options(exchange)?;
    exchange.client_address = headers::client_address(exchange, settings);
    exchange.note_scheme();
    headers::check_names(&exchange.request.headers, settings.underscores_in_headers)?;
    let side = MessageSource::Request {
        trusted: exchange.client.trusted,
        underscores: settings.underscores_in_headers,
    };
    let stripped = headers::strip(&mut exchange.request.headers, side);
    exchange.trailers = stripped.trailers;
    exchange.keep_hop(stripped.hop);
    let mut found = matched::find(snapshot, exchange)?;
    let route = found.route;
    end.route = Some(route);
    if route.quarantine.is_some() {
        return Err(Box::new(Reply::new(Cause::Quarantined)));
    }
    let Traffic::Http(rules) = &route.proxy.traffic else {
        return Err(Box::new(Reply::new(Cause::NoRoute)));
    };
    if oddities.any() && respell(exchange, oddities, rules.path_rules, settings.merge_slashes)? {
        found = matched::find(snapshot, exchange)?;
        if !std::ptr::eq(found.route, route) {
            return Err(path::leads_elsewhere());
        }
    }
    if (oddities.reserved || oddities.any())
        && !matched::leads_here_in_every_reading(snapshot, exchange, &found)
    {
        return Err(path::leads_elsewhere());
    }
    if let (Some(methods), Some(allow)) = (&rules.allowed_methods, &route.allow)
        && !methods.contains(&exchange.request.method)
        && !found.is_preflight
    {
        let reply =
            Reply::new(Cause::MethodNotAllowed).header(http::header::ALLOW, HeaderValue::clone(allow));
        return Err(Box::new(reply));
    }
    if !rules.early_data && stripped.early {
        // Early on the way here: only the client can say it again, and it learns that from nothing but this.
        return Err(Box::new(Reply::new(Cause::TooEarly)));
    }
    matched::check_upgrade(exchange, route, rules)?;
    limit_body(exchange, rules, settings)?;
    if rules.preserve_host_header
        && let Some(authority) = exchange.request.uri.authority()
    {
        // The target must see the host that was routed by (RFC 9112 §3.2.2), not another one named beside it.
        let host =
            HeaderValue::from_str(authority.as_str()).map_err(|_| Box::new(Reply::new(Cause::BadHost)))?;
        exchange.request.headers.insert(http::header::HOST, host);
    }
    exchange.path_bytes = found.path_bytes;
    Ok(Matched { route, rules, path_bytes: found.path_bytes, is_preflight: found.is_preflight })
}

/// Holds the request's body to the proxy's limit, or the gateway's.
fn limit_body(exchange: &mut Exchange, rules: &HttpRules, settings: &Settings) -> Result<(), Box<Reply>> {
    let limit = rules.max_request_body.unwrap_or(settings.limits.max_request_body);
    guard::check_body(exchange, limit)?;
    // Where it is: most requests have no body, and one is large to move.
    exchange.body.limit(limit);
    if exchange.body.may_have_trailers() {
        exchange.body.pass_trailers_by(TrailerRules {
            underscores: settings.underscores_in_headers,
            max_fields: u16::try_from(settings.limits.max_headers).unwrap_or(u16::MAX),
            max_bytes: u32::try_from(settings.limits.max_header_size).unwrap_or(u32::MAX),
        });
    }
    Ok(())
}
