//! The request's path in the one spelling it is routed by.

use std::borrow::Cow;

use crate::config::model::PathRules;
use crate::http::exchange::Exchange;
use crate::http::path::{self, Normal, Oddities};
use crate::http::reply::{Cause, Reply};

/// Gives the request's path its one spelling, and says what there is in it for the proxy's rules to decide on.
pub(super) fn normalise(exchange: &mut Exchange, merge_slashes: bool) -> Result<Oddities, Box<Reply>> {
    let Some(target) = exchange.request.uri.path_and_query() else { return Ok(Oddities::default()) };
    let Normal { text, oddities } = path::normalise(target.as_str(), merge_slashes)?;
    if let Cow::Owned(clean) = text {
        set_path(exchange, &clean)?;
    }
    Ok(oddities)
}

/// Obeys the proxy's rules for odd paths. Says whether the path is another one now.
pub(super) fn respell(
    exchange: &mut Exchange,
    oddities: Oddities,
    rules: PathRules,
    merge_slashes: bool,
) -> Result<bool, Box<Reply>> {
    let path = exchange.request.uri.path();
    let Some(text) = path::respell(path, oddities, rules, merge_slashes)? else { return Ok(false) };
    let query = exchange.request.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    set_path(exchange, &format!("{text}{query}"))?;
    Ok(true)
}

fn set_path(exchange: &mut Exchange, path_and_query: &str) -> Result<(), Box<Reply>> {
    let mut parts = exchange.request.uri.clone().into_parts();
    let bad = || Box::new(Reply::new(Cause::BadRequest).detail("the request target is malformed"));
    parts.path_and_query = Some(path_and_query.parse().map_err(|_| bad())?);
    exchange.normalised(http::Uri::from_parts(parts).map_err(|_| bad())?);
    Ok(())
}
