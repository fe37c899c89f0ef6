//! Keeps web pages away from the admin API: a browser lets a page of any site ask a server that its name comes to point at
//! (DNS rebinding), and sends its simple requests anywhere.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use gateway_core::config::model::Settings;

use super::attempt::Attempt;
use super::door;
use super::problem::{Refused, problem};
use crate::engine::Engine;

/// Refuses requests that a page of another site makes. Health is for everybody.
pub(super) async fn guard(State(engine): State<Arc<Engine>>, request: Request, next: Next) -> Response {
    let is_health = door::HEALTH_PATHS.contains(&request.uri().path());
    match is_health {
        true => next.run(request).await,
        false => match check(&engine, &request) {
            Ok(()) => next.run(request).await,
            Err(refused) => *refused,
        },
    }
}

/// Refuses a request that a page of another site makes.
pub(super) fn check<B>(engine: &Engine, request: &http::Request<B>) -> Result<(), Refused> {
    let Some(detail) = refused(request.headers(), &engine.snapshot().settings) else { return Ok(()) };
    engine.telemetry.control.admin_sites_refused.fetch_add(1, Ordering::Relaxed);
    let response = problem(StatusCode::FORBIDDEN, "foreign_site", detail);
    Attempt::of(request).ended(&engine.audit, None, &response, true);
    Err(Box::new(response))
}

/// Why a request is refused.
fn refused(headers: &HeaderMap, settings: &Settings) -> Option<&'static str> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text(HOST).and_then(|host| host.parse::<Authority>().ok());
    if headers.contains_key(ORIGIN) {
        let origin = text(ORIGIN).and_then(|origin| origin.split_once("://")?.1.parse::<Authority>().ok());
        let is_same = matches!((&origin, &host), (Some(origin), Some(host)) if origin.as_str().eq_ignore_ascii_case(host.as_str()));
        if !is_same {
            return Some("The request comes from a page of another site");
        }
    }
    // Beyond loopback a name says nothing: others may ask by any that leads here.
    let is_local = settings.admin.is_none_or(|address| address.ip().is_loopback());
    let is_known = host.is_some_and(|host| is_known(host.host(), settings));
    (is_local && !is_known).then_some(
        "The admin API is not known by this name; ask by address or localhost, or name it in gateway.admin_hosts",
    )
}

fn is_known(host: &str, settings: &Settings) -> bool {
    let name = host.trim_start_matches('[').trim_end_matches(']');
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || settings.admin_hosts.iter().any(|known| known.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_names_and_pages_of_its_own_are_let_in() {
        let local = Settings { admin_hosts: vec!["gateway.internal".into()], ..Settings::default() };
        let wide = Settings { admin: Some(([0, 0, 0, 0], 9000).into()), ..Settings::default() };
        for (settings, host, origin, passes) in [
            (&local, "127.0.0.1:9000", None, true),
            (&local, "[::1]:9000", None, true),
            (&local, "localhost:9000", None, true),
            (&local, "Gateway.Internal", None, true),
            (&local, "evil.example:9000", None, false),
            (&local, "localhost.evil.example", None, false),
            (&local, "", None, false),
            (&local, "localhost:9000", Some("http://localhost:9000"), true),
            (&local, "localhost:9000", Some("http://localhost:8000"), false),
            (&local, "localhost:9000", Some("https://evil.example"), false),
            (&local, "localhost:9000", Some("null"), false),
            (&wide, "gateway.example:9000", None, true),
            (&wide, "gateway.example:9000", Some("https://evil.example"), false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().unwrap());
            if let Some(origin) = origin {
                headers.insert(ORIGIN, origin.parse().unwrap());
            }
            assert_eq!(refused(&headers, settings).is_none(), passes, "{host} {origin:?}");
        }
    }
}
