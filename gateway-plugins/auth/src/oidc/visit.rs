//! What of a request the pages of a login need, apart from the request itself.

use std::net::IpAddr;

use gateway_core::http::exchange::Exchange;
use gateway_plugin_common::origin::initiator::Initiator;
use http::header::ACCEPT;
use http::{HeaderMap, Method};

/// A browser's visit.
pub(super) struct BrowserVisit {
    pub(super) headers: HeaderMap,
    scheme: &'static str,
    host: String,
    /// Path and query as the client sent them.
    pub(super) target: String,
    pub(super) query: String,
    /// Whether the browser goes to a page, rather than fetch something for one.
    pub(super) is_navigation: bool,
}

impl BrowserVisit {
    pub(super) fn of(exchange: &Exchange) -> Self {
        let uri = exchange.uri();
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        Self {
            headers: exchange.request.headers.clone(),
            scheme: exchange.scheme(),
            host: exchange.authority().unwrap_or_default().to_owned(),
            // `//host` would lead elsewhere.
            target: format!("/{}", target.trim_start_matches(['/', '\\'])),
            query: uri.query().unwrap_or_default().to_owned(),
            is_navigation: is_navigation(exchange),
        }
    }

    /// Which site's page caused it.
    pub(super) fn initiator(&self) -> Initiator {
        Initiator::of(&self.headers, self.scheme, &self.host)
    }

    /// Whether the browser's cookies may only come over TLS.
    pub(super) fn is_secure(&self) -> bool {
        self.scheme == "https"
    }

    /// The host's name, where cookies can be for a domain: no address, and not a name alone.
    pub(super) fn domain(&self) -> Option<&str> {
        let name = self.host.rsplit_once(':').map_or(self.host.as_str(), |(name, _)| name);
        let is_name = name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-'));
        (is_name && name.contains('.') && name.parse::<IpAddr>().is_err()).then_some(name)
    }

    /// A URL of this host.
    pub(super) fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.host)
    }
}

fn is_navigation(exchange: &Exchange) -> bool {
    let headers = &exchange.request.headers;
    let has = |name: &str, word: &str| {
        headers.get(name).and_then(|value| value.to_str().ok()).is_some_and(|value| value.contains(word))
    };
    let is_safe = matches!(*exchange.method(), Method::GET | Method::HEAD);
    is_safe
        && match headers.contains_key("sec-fetch-mode") {
            true => has("sec-fetch-mode", "navigate"),
            false => has(ACCEPT.as_str(), "text/html"),
        }
}
