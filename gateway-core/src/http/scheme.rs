//! The scheme that a client used, also where proxies in front of the gateway end its TLS.

use http::HeaderMap;
use http::header::FORWARDED;

use super::exchange::Exchange;
use super::forwarding::X_FORWARDED_PROTO;
use super::headers::UnquotedParts;

impl Exchange {
    /// The scheme that the client used: `https` or `http`. Behind a trusted proxy it is what the outermost one says in
    /// `X-Forwarded-Proto` or `Forwarded`, else whether this connection is encrypted. Plugins ask here, whatever the fields say.
    pub fn scheme(&self) -> &'static str {
        if self.is_https { "https" } else { "http" }
    }

    /// Notes the scheme; before any plugin runs, as the fields that tell it are taken out of the request on its way to the target.
    pub(crate) fn note_scheme(&mut self) {
        let told = match self.client.trusted {
            true => forwarded_https(&self.request.headers),
            false => None,
        };
        self.is_https = told.unwrap_or_else(|| self.client.tls.is_some());
    }
}

/// Whether the outermost proxy says that its client used TLS; `None` where no field says so in a way that is understood. Proxies
/// append to these lists, so the first item is the outermost proxy's.
fn forwarded_https(headers: &HeaderMap) -> Option<bool> {
    let first = headers.get(X_FORWARDED_PROTO).map(|value| first_item(value.as_bytes(), b','));
    first.and_then(is_https).or_else(|| {
        let element = first_item(headers.get(FORWARDED)?.as_bytes(), b',');
        let pairs = UnquotedParts { rest: Some(element), separator: b';' };
        let mut values = pairs.filter_map(|pair| {
            let at = memchr::memchr(b'=', pair)?;
            pair[..at].trim_ascii().eq_ignore_ascii_case(b"proto").then(|| pair[at + 1..].trim_ascii())
        });
        let value = values.next()?;
        is_https(value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value))
    })
}

/// What precedes the first separator outside of quotes.
fn first_item(list: &[u8], separator: u8) -> &[u8] {
    UnquotedParts { rest: Some(list), separator }.last().unwrap_or_default().trim_ascii()
}

/// A proxy that upgrades to a WebSocket may say `wss`.
fn is_https(scheme: &[u8]) -> Option<bool> {
    let is = |name: &str| scheme.eq_ignore_ascii_case(name.as_bytes());
    if is("https") || is("wss") {
        Some(true)
    } else if is("http") || is("ws") {
        Some(false)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Request;

    use super::*;
    use crate::http::body::Body;
    use crate::http::exchange::{Client, ClientTls};

    #[test]
    fn proxies_tell_the_scheme_in_many_ways() {
        for (fields, trusted, tls, expected) in [
            (&[][..], true, false, "http"),
            (&[], true, true, "https"),
            (&[("x-forwarded-proto", "https")], true, false, "https"),
            (&[("x-forwarded-proto", "https")], false, false, "http"),
            (&[("x-forwarded-proto", "HTTPS")], true, false, "https"),
            (&[("x-forwarded-proto", "https, http")], true, false, "https"),
            (&[("x-forwarded-proto", "https,https")], true, false, "https"),
            (&[("x-forwarded-proto", "http, https")], true, true, "http"),
            (&[("x-forwarded-proto", "https"), ("x-forwarded-proto", "http")], true, false, "https"),
            (&[("x-forwarded-proto", "wss")], true, false, "https"),
            (&[("x-forwarded-proto", "ws")], true, true, "http"),
            (&[("x-forwarded-proto", "gopher")], true, true, "https"),
            (&[("x-forwarded-proto", "")], true, false, "http"),
            (&[("forwarded", "for=1.2.3.4;proto=https;by=x, for=y;proto=http")], true, false, "https"),
            (&[("forwarded", "for=\"[::1]\";Proto=\"HTTPS\"")], true, false, "https"),
            (&[("forwarded", "for=\"a,proto=https\";proto=http")], true, true, "http"),
            (&[("forwarded", "for=1.2.3.4;proto=https")], false, false, "http"),
            (&[("x-forwarded-proto", "http"), ("forwarded", "proto=https")], true, false, "http"),
        ] {
            let mut request = Request::new(Body::empty());
            for (name, value) in fields {
                request.headers_mut().append(*name, value.parse().unwrap());
            }
            let tls = tls.then(ClientTls::default);
            let client =
                Client::new("10.0.0.9:1".parse().unwrap(), "127.0.0.1:80".parse().unwrap(), trusted, tls);
            let mut exchange = Exchange::new(request, Arc::new(client));
            exchange.note_scheme();
            assert_eq!(exchange.scheme(), expected, "{fields:?} trusted {trusted}");
        }
    }
}
