//! What of a request is signed: its line, its target's parts and its header fields.

use std::borrow::Cow;
use std::collections::HashSet;

use gateway_core::http::exchange::Exchange;
use http::{HeaderMap, Version};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// What stays as it is in a query parameter (RFC 9421 §2.2.8).
const PARAMETER: &AsciiSet = &NON_ALPHANUMERIC.remove(b'*').remove(b'-').remove(b'.').remove(b'_');

/// A request as its signer saw it.
pub(super) struct Message<'a> {
    pub(super) method: &'a str,
    pub(super) version: Version,
    /// `https` or `http`, in front of the outermost trusted proxy.
    pub(super) scheme: &'a str,
    /// In lower case, without the scheme's own port.
    pub(super) authority: String,
    pub(super) path: &'a str,
    pub(super) query: Option<&'a str>,
    pub(super) headers: &'a HeaderMap,
}

impl<'a> Message<'a> {
    pub(super) fn of(exchange: &'a Exchange) -> Self {
        let headers = &exchange.request.headers;
        let scheme = exchange.scheme();
        let uri = exchange.uri();
        Self {
            method: exchange.method().as_str(),
            version: exchange.version(),
            scheme,
            authority: authority(exchange.authority().unwrap_or_default(), scheme),
            path: if uri.path().is_empty() { "/" } else { uri.path() },
            query: uri.query(),
            headers,
        }
    }

    /// Path and query.
    pub(super) fn target(&self) -> String {
        match self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.to_owned(),
        }
    }

    /// `GET /path?query HTTP/1.1`.
    pub(super) fn line(&self) -> String {
        let version = match self.version {
            Version::HTTP_10 => "1.0",
            Version::HTTP_2 => "2.0",
            Version::HTTP_3 => "3.0",
            _ => "1.1",
        };
        format!("{} {} HTTP/{version}", self.method, self.target())
    }

    /// The values of a header field, with commas between them; `None` where there is none, or it is not ASCII.
    pub(super) fn field(&self, name: &str) -> Option<Cow<'_, str>> {
        let mut values = self.headers.get_all(name).iter().map(|value| value.to_str().map(str::trim));
        let Some(first) = values.next() else {
            return (name == "host" && !self.authority.is_empty()).then(|| self.authority.as_str().into());
        };
        let first = first.ok()?;
        let mut all = Cow::Borrowed(first);
        for more in values {
            let all = all.to_mut();
            all.push_str(", ");
            all.push_str(more.ok()?);
        }
        Some(all)
    }

    /// A derived component (RFC 9421 §2.2); `None` where it is not one of a request.
    pub(super) fn derived(&self, name: &str) -> Option<String> {
        Some(match name {
            "@method" => self.method.to_owned(),
            "@target-uri" => format!("{}://{}{}", self.scheme, self.authority, self.target()),
            "@authority" => self.authority.clone(),
            "@scheme" => self.scheme.to_owned(),
            "@request-target" => self.target(),
            "@path" => self.path.to_owned(),
            "@query" => format!("?{}", self.query.unwrap_or_default()),
            _ => return None,
        })
    }

    /// The value of a query parameter, encoded as it is signed; `None` unless it is there once.
    pub(super) fn parameter(&self, name: &str) -> Option<String> {
        let pairs = self.query?.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let mut values = pairs.filter(|(key, _)| encoded(key) == name).map(|(_, value)| value);
        match (values.next(), values.next()) {
            (Some(value), None) => Some(encoded(value)),
            _ => None,
        }
    }
}

/// A form's text, decoded and encoded again in the one way that is signed.
fn encoded(text: &str) -> String {
    let plain = text.replace('+', " ");
    let decoded: Vec<u8> = percent_decode_str(&plain).collect();
    utf8_percent_encode(&String::from_utf8_lossy(&decoded), PARAMETER).to_string()
}

fn authority(text: &str, scheme: &str) -> String {
    let text = text.to_ascii_lowercase();
    let port = if scheme == "https" { ":443" } else { ":80" };
    text.strip_suffix(port).map(str::to_owned).unwrap_or(text)
}

/// Whether all of `needed` is signed where `covered` is: `@target-uri` stands for its parts.
pub(super) fn covers(covered: &HashSet<String>, needed: &str) -> bool {
    let has = |name: &str| covered.contains(name);
    has(needed)
        || match needed {
            "@path" | "@query" => has("@request-target") || has("@target-uri"),
            "@authority" | "host" => has("@authority") || has("host") || has("@target-uri"),
            "@scheme" => has("@target-uri"),
            "@request-target" => has("@target-uri") || (has("@path") && has("@query")),
            "@target-uri" => has("@scheme") && has("@authority") && covers(covered, "@request-target"),
            _ => false,
        }
}
