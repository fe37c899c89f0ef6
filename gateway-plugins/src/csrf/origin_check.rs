//! Whether a request comes from the site's own pages.

use gateway_core::http::exchange::Exchange;
use http::header::{ORIGIN, REFERER};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::origin::Origin;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Which origins may send requests.
pub(super) struct Origins {
    pub(super) trusted: Box<[Origin]>,
    pub(super) same_site: bool,
    pub(super) without: bool,
}

impl Origins {
    /// Whether this request may change something.
    pub(super) fn admit(&self, exchange: &Exchange) -> bool {
        let headers = &exchange.request.headers;
        let Ok(origin) = one(headers, &ORIGIN) else { return false };
        if origin.is_some_and(|origin| self.trusted.iter().any(|trusted| trusted.is(origin.as_bytes()))) {
            return true;
        }
        // Browsers alone set it, and no page can change it.
        match one(headers, &SEC_FETCH_SITE) {
            Ok(Some("same-origin" | "none")) => return true,
            Ok(Some("same-site")) => return self.same_site,
            Ok(Some(_)) | Err(()) => return false,
            Ok(None) => {}
        }
        let host = exchange.authority();
        if let Some(origin) = origin {
            return is_host(origin, host);
        }
        match one(headers, &REFERER) {
            Ok(Some(page)) => {
                let origin = origin_of(page);
                is_host(origin, host) || self.trusted.iter().any(|trusted| trusted.is(origin.as_bytes()))
            }
            Ok(None) => self.without,
            Err(()) => false,
        }
    }
}

/// The one value of a field; several, or one that is no text, are an error.
fn one<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => HeaderValue::to_str(value).map(Some).map_err(drop),
        _ => Err(()),
    }
}

/// The origin of a URL: what is before its path.
fn origin_of(url: &str) -> &str {
    let after = url.find("://").map_or(0, |n| n + 3);
    let end = url.get(after..).and_then(|rest| rest.find(['/', '?', '#'])).map_or(url.len(), |n| after + n);
    url.get(..end).unwrap_or(url)
}

/// Whether an origin is this host. A proxy in front may have ended TLS, so the scheme counts only for the port it implies.
fn is_host(origin: &str, host: Option<&str>) -> bool {
    let (Some((scheme, authority)), Some(host)) = (origin.split_once("://"), host) else { return false };
    let Some(default) = (match scheme {
        "http" => Some("80"),
        "https" => Some("443"),
        _ => None,
    }) else {
        return false;
    };
    let (name, port) = split(authority);
    let (host, host_port) = split(host);
    name.eq_ignore_ascii_case(host) && port.unwrap_or(default) == host_port.unwrap_or(default)
}

fn split(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        for (origin, host, is_it) in [
            ("https://a.example", "a.example", true),
            ("https://A.example", "a.example", true),
            ("https://a.example", "a.example:443", true),
            ("http://a.example:80", "a.example", true),
            ("https://a.example", "a.example:8443", false),
            ("https://a.example:8443", "a.example", false),
            ("https://a.example.evil.test", "a.example", false),
            ("https://evil.test", "a.example", false),
            ("https://a.example@evil.test", "a.example", false),
            ("http://[::1]:8000", "[::1]:8000", true),
            ("http://[::1]", "[::1]", true),
            ("null", "null", false),
            ("file://a.example", "a.example", false),
            ("", "a.example", false),
        ] {
            assert_eq!(is_host(origin, Some(host)), is_it, "{origin} {host}");
        }
    }

    #[test]
    fn origins_of_urls() {
        for (url, origin) in [
            ("https://a.example/x?y", "https://a.example"),
            ("https://a.example?x=/y", "https://a.example"),
            ("https://a.example#x", "https://a.example"),
            ("https://a.example", "https://a.example"),
            ("nonsense", "nonsense"),
        ] {
            assert_eq!(origin_of(url), origin);
        }
    }
}
