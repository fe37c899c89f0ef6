//! Tells targets who calls and which way the request took; see [`Forwarding`].

use std::net::IpAddr;

use http::header::{FORWARDED, HeaderName, VIA};
use http::{HeaderMap, HeaderValue};

use crate::config::model::{ForwardedRules, HttpRules, Settings, Traffic};
use crate::http::early::{EARLY_DATA, MARK};
use crate::http::exchange::{Client, Exchange, canonical};
use crate::http::forwarding::{
    Forwarding, NAMES, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PORT, X_FORWARDED_PROTO,
};
use crate::http::mark::Mark;
use crate::http::reply::{Cause, Reply};
use crate::snapshot::Route;
use crate::template::{Facts, Render};

const HTTP: HeaderValue = HeaderValue::from_static("http");
const HTTPS: HeaderValue = HeaderValue::from_static("https");

/// Adds what the target should know: the caller, the way here.
///
/// # Errors
/// The request has been here before.
pub(super) fn forward(exchange: &mut Exchange, settings: &Settings, route: &Route) -> Result<(), Box<Reply>> {
    for owned in route.chain.owned_headers() {
        owned.remove_unless_set(exchange);
    }
    if exchange.early && exchange.client.is_early() {
        exchange.request.headers.insert(EARLY_DATA, MARK);
    }
    if let Traffic::Http(HttpRules { forwarded: Some(rules), .. }) = &route.proxy.traffic {
        tell_way(exchange, rules, route)?;
    }
    exchange.forwarding = Forwarding::of(exchange, settings, route.mark(settings.via.as_ref()))?;
    Ok(())
}

/// Makes what the proxy has targets told of the way; what a plugin has them told goes before it.
#[cold]
fn tell_way(exchange: &mut Exchange, rules: &ForwardedRules, route: &Route) -> Result<(), Box<Reply>> {
    exchange.remove_claims();
    let mut buffer = Vec::new();
    for (name, template) in [
        (X_FORWARDED_PROTO, &rules.proto),
        (X_FORWARDED_HOST, &rules.host),
        (X_FORWARDED_FOR, &rules.addresses),
        (X_FORWARDED_PORT, &rules.port),
    ] {
        let is_told = exchange.told_way().iter().any(|(known, _)| *known == name);
        let Some(template) = template.as_ref().filter(|_| !is_told) else { continue };
        let facts = Facts { proxy: Some(route.proxy.id.as_str()), ..Facts::of(exchange) };
        let value = template.header(&facts, &mut buffer).map_err(|_| {
            let reply = Reply::new(Cause::BadRequest).detail("the request has a value that can't be used");
            Box::new(reply.reason("value_not_usable"))
        })?;
        exchange.tell_way(name, Some(value).filter(|value| !value.is_empty()));
    }
    Ok(())
}

impl Forwarding {
    /// The fields of this request, whose headers lose what is said here or must not be said. What an untrusted client
    /// claims about itself is replaced, not extended.
    ///
    /// # Errors
    /// The request has been here before: some target leads back to the gateway.
    fn of(exchange: &mut Exchange, settings: &Settings, mark: &Mark) -> Result<Self, Box<Reply>> {
        let host = host(exchange);
        let client = &*exchange.client;
        let headers = &mut exchange.request.headers;
        // Looking once through the few fields there are costs less than looking each name up.
        let any = headers.keys().any(|name| {
            // The letters that the names begin with: most fields begin with others.
            matches!(name.as_str().as_bytes(), [b'f' | b'v' | b'x', ..]) && NAMES.contains(name)
        });
        if any && !client.trusted {
            for name in NAMES.iter().filter(|name| **name != VIA) {
                headers.remove(name);
            }
        }
        let mut earlier = |name: &HeaderName| if any { take(headers, name) } else { None };
        let scheme = if exchange.is_https { HTTPS } else { HTTP };
        let addresses = listed(earlier(&X_FORWARDED_FOR), client.peer_text.clone());
        let scheme = earlier(&X_FORWARDED_PROTO).unwrap_or(scheme);
        let name = earlier(&X_FORWARDED_HOST).or_else(|| host.clone());
        let port = earlier(&X_FORWARDED_PORT);
        let forwarded = match settings.forwarded_header {
            true => forwarded(client, host.as_ref()).map(|value| listed(earlier(&FORWARDED), value)),
            false => None,
        };
        let via = match settings.via.as_ref().and_then(|name| mark.via(exchange.request.version, name)) {
            None => None,
            Some(value) => {
                let earlier = earlier(&VIA);
                if earlier.as_ref().is_some_and(|earlier| mark.is_in(earlier)) {
                    return Err(Box::new(Reply::new(Cause::Loop)));
                }
                Some(listed(earlier, value))
            }
        };
        let caller = exchange.identity.clone();
        if caller.is_some() {
            overwritten(&mut exchange.request.headers);
        }
        let mut way = [Some(addresses), Some(scheme), name, port, forwarded, via];
        for (name, value) in exchange.told_way() {
            if let Some(at) = NAMES.iter().position(|known| known == name) {
                way[at].clone_from(value);
            }
        }
        Ok(Self { way, caller })
    }
}

/// Takes out what a plugin has said of the caller: the gateway says it itself. What clients say is gone already.
fn overwritten(headers: &mut HeaderMap) {
    let said = |name: &&HeaderName| name.as_str().starts_with("x-consumer-");
    while let Some(name) = headers.keys().find(said).cloned() {
        headers.remove(name);
    }
}

/// The host the client asked for, as a header value that shares its bytes where it can.
fn host(exchange: &Exchange) -> Option<HeaderValue> {
    match exchange.request.uri.authority() {
        Some(authority) => HeaderValue::from_str(authority.as_str()).ok(),
        None => exchange.host.clone(),
    }
}

/// Takes all fields of a name, as one: several fields of a list are one list (RFC 9110 §5.3), and many targets read
/// only the first.
fn take(headers: &mut HeaderMap, name: &HeaderName) -> Option<HeaderValue> {
    let http::header::Entry::Occupied(entry) = headers.entry(name) else { return None };
    let (_, values) = entry.remove_entry_mult();
    values.reduce(|all, one| listed(Some(all), one))
}

/// `value` behind what is in the list already.
fn listed(earlier: Option<HeaderValue>, value: HeaderValue) -> HeaderValue {
    let Some(earlier) = earlier else { return value };
    let joined = [earlier.as_bytes(), value.as_bytes()].join(&b", "[..]);
    HeaderValue::from_maybe_shared(bytes::Bytes::from(joined)).unwrap_or(value)
}

fn forwarded(client: &Client, host: Option<&HeaderValue>) -> Option<HeaderValue> {
    let node = match canonical(client.peer.ip()) {
        IpAddr::V4(address) => format!("for={address}"),
        IpAddr::V6(address) => format!("for=\"[{address}]\""),
    };
    let host = host.and_then(|host| host.to_str().ok()).filter(|host| !host.contains(['"', '\\']));
    let host = host.map_or_else(String::new, |host| format!(";host=\"{host}\""));
    HeaderValue::from_str(&format!("{node};proto={}{host}", client.scheme())).ok()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use http::Request;

    use super::*;
    use crate::http::body::Body;

    /// The fields told of a request with these fields, and what is left of those.
    fn told(
        trusted: bool,
        fields: &[(&str, &str)],
        settings: &Settings,
    ) -> (Vec<(String, String)>, Vec<String>) {
        let mut request = Request::new(Body::empty());
        for (name, value) in fields {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            request.headers_mut().append(name, value.parse().unwrap());
        }
        let peer: SocketAddr = "10.0.0.9:1234".parse().unwrap();
        let client = Client::new(peer, "127.0.0.1:8000".parse().unwrap(), trusted, None);
        let mut exchange = Exchange::new(request, Arc::new(client));
        exchange.host = exchange.request.headers.get(http::header::HOST).cloned();
        let mark = Mark::with("0123456789".to_owned(), settings.via.as_ref());
        let told = Forwarding::of(&mut exchange, settings, &mark).unwrap();
        let told = told.fields().map(|(name, value)| (name.to_string(), value.to_str().unwrap().into()));
        let mut left: Vec<_> = exchange.request.headers.keys().map(ToString::to_string).collect();
        left.sort();
        (told.collect(), left)
    }

    fn pairs(fields: &[(&str, &str)]) -> Vec<(String, String)> {
        fields.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    #[test]
    fn an_untrusted_client_cannot_claim_a_way() {
        let (told, left) = told(
            false,
            &[
                ("x-forwarded-for", "10.0.0.1"),
                ("x-forwarded-for", "10.0.0.2"),
                ("x-forwarded-proto", "https"),
                ("x-forwarded-host", "b.example"),
                ("forwarded", "for=10.0.0.1"),
                ("host", "a.example"),
            ],
            &Settings::default(),
        );
        let expected = [
            ("x-forwarded-for", "10.0.0.9"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-host", "a.example"),
            ("via", "1.1 ferrum-edge (0123456789)"),
        ];
        assert_eq!((told, left), (pairs(&expected), vec!["host".to_string()]));
    }

    #[test]
    fn nobody_is_told_of_a_host_that_was_not_named() {
        let (told, left) = told(false, &[("x-forwarded-host", "b.example")], &Settings::default());
        assert!(told.iter().all(|(name, _)| name != "x-forwarded-host"), "{told:?}");
        assert!(left.is_empty());
    }

    #[test]
    fn what_a_trusted_proxy_said_is_kept_and_extended() {
        let (told, left) = told(
            true,
            &[
                ("x-forwarded-for", "198.51.100.7, 203.0.113.5"),
                ("x-forwarded-for", "10.1.1.1"),
                ("x-forwarded-proto", "https"),
                ("x-real-ip", "198.51.100.7"),
                ("forwarded", "for=198.51.100.7"),
                ("via", "1.0 edge"),
                ("host", "a.example"),
            ],
            &Settings { forwarded_header: true, ..Settings::default() },
        );
        let expected = [
            ("x-forwarded-for", "198.51.100.7, 203.0.113.5, 10.1.1.1, 10.0.0.9"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "a.example"),
            ("forwarded", "for=198.51.100.7, for=10.0.0.9;proto=http;host=\"a.example\""),
            ("via", "1.0 edge, 1.1 ferrum-edge (0123456789)"),
        ];
        assert_eq!((told, left), (pairs(&expected), vec!["host".to_string(), "x-real-ip".to_string()]));
    }

    #[test]
    fn what_is_not_ours_to_say_stays_as_it_was() {
        let settings = Settings { via: None, ..Settings::default() };
        let (told, left) = told(true, &[("forwarded", "for=198.51.100.7"), ("via", "1.0 edge")], &settings);
        assert_eq!(told, pairs(&[("x-forwarded-for", "10.0.0.9"), ("x-forwarded-proto", "http")]));
        assert_eq!(left, ["forwarded", "via"]);
    }
}
