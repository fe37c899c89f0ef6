//! Which site's page caused a request, by what browsers say.

use http::header::{ORIGIN, REFERER};
use http::{HeaderMap, HeaderName, HeaderValue};

/// A field that browsers alone set, and no page can change (Fetch Metadata Request Headers §2.4).
pub const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Where a request was caused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initiator {
    /// By a page of the same origin, or by the user: a bookmark, the address bar.
    OwnSite,
    /// By a page of another origin, also of the same registrable domain.
    OtherSite,
    /// The client does not say: no browser, or an old one whose user or page withholds it.
    Unknown,
}

impl Initiator {
    /// Of a request with these fields to this host.
    pub fn of(headers: &HeaderMap, scheme: &str, host: &str) -> Self {
        let judge = |is_own| if is_own { Self::OwnSite } else { Self::OtherSite };
        match single(headers, &SEC_FETCH_SITE) {
            Ok(Some(site)) => return judge(matches!(site, "same-origin" | "none")),
            Err(NotSingle) => return Self::OtherSite,
            Ok(None) => {}
        }
        for (name, is_url) in [(&ORIGIN, false), (&REFERER, true)] {
            match single(headers, name) {
                Ok(Some(text)) => {
                    let origin = if is_url { origin_of(text) } else { text };
                    return judge(is_host(origin, scheme, Some(host)));
                }
                Err(NotSingle) => return Self::OtherSite,
                Ok(None) => {}
            }
        }
        Self::Unknown
    }
}

/// A field has several values, or one that is no text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotSingle;

/// The one value of a field.
pub fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, NotSingle> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => HeaderValue::to_str(value).map(Some).map_err(|_| NotSingle),
        _ => Err(NotSingle),
    }
}

/// The origin of a URL: what is before its path.
pub fn origin_of(url: &str) -> &str {
    let after = url.find("://").map_or(0, |n| n + 3);
    let end = url.get(after..).and_then(|rest| rest.find(['/', '?', '#'])).map_or(url.len(), |n| after + n);
    url.get(..end).unwrap_or(url)
}

/// Whether an origin is this host, which the client reached by `scheme`. A page that came without TLS may be anybody's on the network,
/// so it is another origin than the same host over TLS. The other way round a proxy in front may have ended TLS and not say so: then the
/// scheme counts only for the port it implies.
pub fn is_host(origin: &str, scheme: &str, host: Option<&str>) -> bool {
    let (Some((sent, authority)), Some(host)) = (origin.split_once("://"), host) else { return false };
    let Some(default) = (match sent {
        "http" if scheme != "https" => Some("80"),
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
        for (origin, scheme, host, is_it) in [
            ("https://a.example", "https", "a.example", true),
            ("https://a.example", "http", "a.example", true),
            ("https://A.example", "https", "a.example", true),
            ("https://a.example", "https", "a.example:443", true),
            ("http://a.example:80", "http", "a.example", true),
            ("http://a.example", "https", "a.example", false),
            ("http://a.example:443", "https", "a.example", false),
            ("http://a.example:8443", "https", "a.example:8443", false),
            ("https://a.example", "https", "a.example:8443", false),
            ("https://a.example:8443", "https", "a.example", false),
            ("https://a.example.evil.test", "https", "a.example", false),
            ("https://evil.test", "https", "a.example", false),
            ("https://a.example@evil.test", "https", "a.example", false),
            ("http://[::1]:8000", "http", "[::1]:8000", true),
            ("http://[::1]", "http", "[::1]", true),
            ("null", "http", "null", false),
            ("file://a.example", "http", "a.example", false),
            ("", "http", "a.example", false),
        ] {
            assert_eq!(is_host(origin, scheme, Some(host)), is_it, "{origin} {scheme} {host}");
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

    #[test]
    fn initiators() {
        use Initiator::{OtherSite, OwnSite, Unknown};
        for (fields, expected) in [
            (&[][..], Unknown),
            (&[("sec-fetch-site", "same-origin")], OwnSite),
            (&[("sec-fetch-site", "none")], OwnSite),
            (&[("sec-fetch-site", "same-site")], OtherSite),
            (&[("sec-fetch-site", "cross-site"), ("origin", "https://a.test")], OtherSite),
            (&[("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")], OtherSite),
            (&[("origin", "https://a.test")], OwnSite),
            (&[("origin", "http://a.test")], OtherSite),
            (&[("origin", "null")], OtherSite),
            (&[("referer", "https://a.test/x")], OwnSite),
            (&[("referer", "https://evil.test/?https://a.test/")], OtherSite),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.append(*name, HeaderValue::from_static(value));
            }
            assert_eq!(Initiator::of(&headers, "https", "a.test"), expected, "{fields:?}");
        }
    }
}
