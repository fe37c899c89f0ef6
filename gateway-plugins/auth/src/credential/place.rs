//! Where in a request a credential is.

use std::borrow::Cow;

use gateway_core::config::problem::Problems;
use gateway_core::http::exchange::Exchange;
use gateway_core::plugin::Hooks;
use gateway_plugin_common::headers::is_framing;
use http::header::{AUTHORIZATION, COOKIE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};

/// A place where credentials may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CredentialLocation {
    /// `Authorization: Bearer …`.
    Bearer,
    /// The whole value of a header.
    Header(HeaderName),
    Query(String),
    Cookie(String),
}

/// What is at a place, or at several.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CredentialLookup<'e> {
    Nothing,
    /// As it is in the request; only what is encoded in a query is copied.
    One(Cow<'e, [u8]>),
    /// Whichever were taken, somebody else could take the other.
    Several,
}

/// Every place that is looked at.
#[derive(Debug)]
pub(crate) struct CredentialLocations(Box<[CredentialLocation]>);

impl CredentialLocation {
    /// `header:NAME`, `query:NAME` or `cookie:NAME`. `header:Authorization` is that of a Bearer token.
    pub(crate) fn named(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once(':')?;
        let is_plain = !name.is_empty() && name.bytes().all(is_plain);
        match kind {
            "header" => match HeaderName::from_bytes(name.as_bytes()).ok()? {
                AUTHORIZATION => Some(Self::Bearer),
                name => Some(Self::Header(name)),
            },
            "query" if is_plain => Some(Self::Query(name.to_owned())),
            "cookie" if is_plain => Some(Self::Cookie(name.to_owned())),
            _ => None,
        }
    }

    fn find<'e>(&self, exchange: &'e Exchange) -> CredentialLookup<'e> {
        let headers = &exchange.request.headers;
        match self {
            Self::Bearer => only(headers.get_all(AUTHORIZATION).iter().filter_map(bearer).map(Cow::Borrowed)),
            Self::Header(name) => {
                only(headers.get_all(name).iter().map(|value| Cow::Borrowed(value.as_bytes())))
            }
            Self::Query(name) => {
                let values = pairs(&exchange.request.uri).filter(|(key, _)| is_named(key, name));
                only(values.map(|(_, value)| percent_encoding::percent_decode_str(value).into()))
            }
            Self::Cookie(name) => {
                let values = cookies(headers).filter(|(key, _)| *key == name.as_bytes());
                only(values.map(|(_, value)| Cow::Borrowed(value)))
            }
        }
    }

    /// Takes out what is at this place; the request stays as it is where there is nothing.
    fn take_out(&self, exchange: &mut Exchange) {
        match self {
            // Another scheme than Bearer is no credential of this plugin, and stays.
            Self::Bearer => {
                if self.find(exchange) != CredentialLookup::Nothing {
                    exchange.request.headers.remove(AUTHORIZATION);
                }
            }
            Self::Header(name) => drop(exchange.remove_header(name)),
            Self::Query(name) => {
                if self.find(exchange) != CredentialLookup::Nothing {
                    take_out_of_query(&mut exchange.request.uri, name);
                }
            }
            Self::Cookie(name) => {
                if self.find(exchange) != CredentialLookup::Nothing {
                    take_out_of_cookies(&mut exchange.request.headers, name);
                }
            }
        }
    }
}

/// Characters that stand for themselves in a query and in a cookie's name.
fn is_plain(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.' | b'~')
}

fn only<'e>(mut values: impl Iterator<Item = Cow<'e, [u8]>>) -> CredentialLookup<'e> {
    match (values.next(), values.next()) {
        (None, _) => CredentialLookup::Nothing,
        (Some(value), None) => CredentialLookup::One(value),
        _ => CredentialLookup::Several,
    }
}

/// The token of a Bearer credential (RFC 6750 §2.1); `None` for another scheme.
fn bearer(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, rest) = value.as_bytes().split_at_checked(6)?;
    (scheme.eq_ignore_ascii_case(b"bearer") && rest.first().is_none_or(|c| *c == b' '))
        .then(|| rest.trim_ascii())
}

fn pairs(uri: &Uri) -> impl Iterator<Item = (&str, &str)> {
    let query = uri.query().unwrap_or_default();
    query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// Whether a parameter has this name, as targets read it: `api%5Fkey` is `api_key`.
fn is_named(key: &str, name: &str) -> bool {
    key == name
        || (key.contains('%') && Cow::from(percent_encoding::percent_decode_str(key)) == name.as_bytes())
}

/// Name and value of every cookie.
pub(crate) fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&[u8], &[u8])> {
    let all = headers.get_all(COOKIE).iter();
    all.flat_map(|line| line.as_bytes().split(|c| *c == b';')).filter_map(cookie)
}

fn cookie(pair: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = pair.iter().position(|c| *c == b'=')?;
    let (name, value) = pair.split_at_checked(at)?;
    Some((name.trim_ascii(), value.get(1..)?.trim_ascii()))
}

fn take_out_of_query(uri: &mut Uri, name: &str) {
    let kept: Vec<&str> = uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !is_named(pair.split_once('=').map_or(*pair, |(key, _)| key), name))
        .collect();
    let path = uri.path();
    let target = if kept.is_empty() { path.to_owned() } else { format!("{path}?{}", kept.join("&")) };
    let mut parts = uri.clone().into_parts();
    // What is left of a valid target is a valid target.
    if let Ok(target) = target.parse::<PathAndQuery>() {
        parts.path_and_query = Some(target);
        if let Ok(changed) = Uri::from_parts(parts) {
            *uri = changed;
        }
    }
}

/// Removes the cookies of a name.
pub(crate) fn take_out_of_cookies(headers: &mut HeaderMap, name: &str) {
    let is_other = |pair: &&[u8]| cookie(pair).is_none_or(|(key, _)| key != name.as_bytes());
    let lines: Vec<Vec<u8>> = headers
        .get_all(COOKIE)
        .iter()
        .map(|line| {
            let kept = line.as_bytes().split(|c| *c == b';').filter(is_other);
            kept.map(<[u8]>::trim_ascii).collect::<Vec<_>>().join(&b"; "[..])
        })
        .filter(|line| !line.is_empty())
        .collect();
    headers.remove(COOKIE);
    for line in lines {
        // What is left of a valid value is a valid value.
        if let Ok(value) = HeaderValue::try_from(line) {
            headers.append(COOKIE, value);
        }
    }
}

impl CredentialLocations {
    /// Reads the places written at `path`; there must be one.
    pub(crate) fn read(written: Vec<String>, path: &str) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let mut places = Vec::new();
        for text in written {
            match CredentialLocation::named(&text) {
                Some(CredentialLocation::Header(name)) if name == COOKIE => {
                    problems.add(path, "the header has all cookies together").remedy =
                        Some("write `cookie:NAME`".into());
                }
                Some(CredentialLocation::Header(name)) if is_framing(&name) => {
                    problems.add(path, format!("`{name}` frames messages and can't be a credential"));
                }
                // A credential there would count as two.
                Some(place) if places.contains(&place) => {
                    problems.add(path, format!("`{text}` is there twice"));
                }
                Some(place) => places.push(place),
                None => {
                    problems.add(path, format!("`{text}` is not a place for a credential")).remedy =
                        Some("write `header:NAME`, `query:NAME` or `cookie:NAME`".into());
                }
            }
        }
        if places.is_empty() && problems.0.is_empty() {
            problems.add(path, "there is no place to look at");
        }
        problems.into_result(Self(places.into()))
    }

    /// Declares where credentials are, so that logs don't show them and no cache hands one caller's answers to another.
    pub(crate) fn hide(&self, hooks: &mut Hooks) {
        for place in &self.0 {
            match place {
                // Of the well-known fields.
                CredentialLocation::Bearer => {}
                CredentialLocation::Header(name) => hooks.takes_credential_in_field(name),
                CredentialLocation::Query(name) => hooks.hides_query(name),
                CredentialLocation::Cookie(name) => hooks.takes_credential_in_cookie(name),
            }
        }
    }

    /// What is at all of them together.
    pub(crate) fn find<'e>(&self, exchange: &'e Exchange) -> CredentialLookup<'e> {
        if let [only] = &*self.0 {
            return only.find(exchange);
        }
        let mut found = CredentialLookup::Nothing;
        for place in &self.0 {
            match (&found, place.find(exchange)) {
                (_, CredentialLookup::Nothing) => {}
                (CredentialLookup::Nothing, here) => found = here,
                _ => return CredentialLookup::Several,
            }
        }
        found
    }

    /// Takes what is at these places out of the request.
    pub(crate) fn take_out(&self, exchange: &mut Exchange) {
        for place in &self.0 {
            place.take_out(exchange);
        }
    }
}
