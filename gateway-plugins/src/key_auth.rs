//! Recognises consumers by a key they send in a header or in the query.
//!
//! The key is one of the consumer's `key_auth` credentials; several may be valid at a time, so that a key can be
//! replaced without a gap. It is taken out of the request before the target sees it.

use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::plugin::{Authenticate, Claim, Hooks, Plugin, Seat, World};
use http::header::WWW_AUTHENTICATE;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Uri};
use schemars::JsonSchema;
use serde::Deserialize;

/// Settings of `key_auth`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Where the key is: `header:NAME` or `query:NAME`. Default `header:X-API-Key`.
    key_location: String,
    /// Takes the key out of the request, so that targets and their logs never see it. Default true.
    hide_credentials: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { key_location: "header:X-API-Key".into(), hide_credentials: true }
    }
}

/// The plugin.
pub(crate) struct KeyAuth {
    place: Place,
    hide: bool,
}

enum Place {
    Header(HeaderName),
    Query(String),
}

/// Longer keys are refused unseen.
const MAX_KEY: usize = 4096;

impl Plugin for KeyAuth {
    const NAME: &'static str = "key_auth";
    const SUMMARY: &'static str = "Recognises consumers by a key they send in a header or in the query.";
    type Config = Config;

    fn build(config: Config, _world: &World) -> Result<Self, Problems> {
        let place = match config.key_location.split_once(':') {
            Some(("header", name)) => HeaderName::from_bytes(name.as_bytes()).ok().map(Place::Header),
            Some(("query", name)) if !name.is_empty() && name.bytes().all(is_plain) => {
                Some(Place::Query(name.to_owned()))
            }
            _ => None,
        };
        let Some(place) = place else {
            let mut problems = Problems::default();
            let message = format!("`{}` is not a place for a key", config.key_location);
            problems.add("config.key_location", message).remedy =
                Some("write `header:NAME` or `query:NAME`".into());
            return Err(problems);
        };
        Ok(Self { place, hide: config.hide_credentials })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.authenticate(self);
    }
}

/// Characters that stand for themselves in a query.
fn is_plain(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.' | b'~')
}

impl Authenticate for KeyAuth {
    fn authenticate<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Claim<'a> {
        let found = match &self.place {
            Place::Header(name) => in_header(exchange, name),
            Place::Query(name) => in_query(&exchange.request.uri, name),
        };
        let owner = match &found {
            Found::Nothing => return Claim::Absent(Some(refusal("a key is required"))),
            Found::Key(key) => seat.consumers().by_credential(Self::NAME, key),
            // Two keys: whichever is taken, somebody else may take the other.
            Found::Unusable => None,
        };
        let Some(owner) = owner else {
            return Claim::Refused(refusal("the key is not valid"));
        };
        let owner = owner.clone();
        if self.hide {
            self.take_out(exchange);
        }
        Claim::Caller(owner)
    }
}

fn refusal(detail: &'static str) -> Box<Reply> {
    let challenge = HeaderValue::from_static("ApiKey realm=\"ferrum-edge\"");
    Box::new(Reply::new(Cause::Unauthenticated).detail(detail).header(WWW_AUTHENTICATE, challenge))
}

enum Found {
    Nothing,
    Key(Vec<u8>),
    Unusable,
}

fn in_header(exchange: &Exchange, name: &HeaderName) -> Found {
    let mut values = exchange.request.headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Found::Nothing,
        (Some(key), None) if (1..=MAX_KEY).contains(&key.len()) => Found::Key(key.as_bytes().to_vec()),
        _ => Found::Unusable,
    }
}

fn in_query(uri: &Uri, name: &str) -> Found {
    let mut values = pairs(uri).filter(|(key, _)| *key == name).map(|(_, value)| value);
    match (values.next(), values.next()) {
        (None, _) => Found::Nothing,
        (Some(key), None) if (1..=MAX_KEY).contains(&key.len()) => {
            Found::Key(percent_encoding::percent_decode_str(key).collect())
        }
        _ => Found::Unusable,
    }
}

fn pairs(uri: &Uri) -> impl Iterator<Item = (&str, &str)> {
    let query = uri.query().unwrap_or_default();
    query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

impl KeyAuth {
    fn take_out(&self, exchange: &mut Exchange) {
        let name = match &self.place {
            Place::Header(name) => {
                exchange.request.headers.remove(name);
                return;
            }
            Place::Query(name) => name,
        };
        let uri = &exchange.request.uri;
        let kept: Vec<&str> = uri
            .query()
            .unwrap_or_default()
            .split('&')
            .filter(|pair| pair.split_once('=').map_or(*pair, |(key, _)| key) != name)
            .collect();
        let path = uri.path();
        let target = if kept.is_empty() { path.to_owned() } else { format!("{path}?{}", kept.join("&")) };
        let mut parts = uri.clone().into_parts();
        // What is left of a valid target is a valid target.
        if let Ok(target) = target.parse::<PathAndQuery>() {
            parts.path_and_query = Some(target);
            if let Ok(uri) = Uri::from_parts(parts) {
                exchange.request.uri = uri;
            }
        }
    }
}

#[cfg(test)]
mod tests;
