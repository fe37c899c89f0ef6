//! Origins of web pages (RFC 6454), as users list them.

pub mod initiator;

/// One origin, or all subdomains of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Exactly this, as browsers write it.
    Exact(Box<str>),
    /// `https://*.example.com:8443`, in its parts.
    Subdomains { scheme: Box<str>, domain: Box<str>, port: Option<u16> },
}

impl Origin {
    /// Reads `https://example.com`, `http://localhost:3000`, `https://*.example.com` or `null`.
    pub fn read(text: &str) -> Option<Self> {
        if text == "null" {
            return Some(Self::Exact("null".into()));
        }
        let (scheme, rest) = text.split_once("://")?;
        let is_scheme =
            |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '+' | '-' | '.');
        if scheme.is_empty() || !scheme.chars().all(is_scheme) {
            return None;
        }
        let (host, port) = host_and_port(rest)?;
        if port.is_some() && port == default_port(scheme) {
            // Browsers leave it out, so this would never match.
            return None;
        }
        let is_name = |host: &str| {
            !host.is_empty()
                && host.bytes().all(|b| {
                    b.is_ascii_lowercase()
                        || b.is_ascii_digit()
                        || matches!(b, b'-' | b'.' | b'_' | b'[' | b']' | b':')
                })
        };
        match host.strip_prefix("*.") {
            Some(domain) if is_name(domain) => {
                Some(Self::Subdomains { scheme: scheme.into(), domain: domain.into(), port })
            }
            None if is_name(host) => Some(Self::Exact(text.into())),
            _ => None,
        }
    }

    /// Whether a browser's `Origin` is this one.
    pub fn is(&self, sent: &[u8]) -> bool {
        match self {
            Self::Exact(known) => known.as_bytes() == sent,
            Self::Subdomains { scheme, domain, port } => {
                let Ok(sent) = std::str::from_utf8(sent) else { return false };
                let Some((sent_scheme, rest)) = sent.split_once("://") else { return false };
                let Some((host, sent_port)) = host_and_port(rest) else { return false };
                let sub = host.strip_suffix(&**domain).and_then(|sub| sub.strip_suffix('.'));
                let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
                **scheme == *sent_scheme
                    && sent_port == *port
                    && sub.is_some_and(|sub| !sub.is_empty() && sub.bytes().all(is_plain))
            }
        }
    }
}

fn host_and_port(text: &str) -> Option<(&str, Option<u16>)> {
    match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => Some((host, Some(port.parse().ok()?))),
        _ => Some((text, None)),
    }
}

/// The port that is left out of a scheme's origins.
fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_read_and_matched() {
        for (written, sent, matches) in [
            ("https://a.example", "https://a.example", true),
            ("https://a.example", "http://a.example", false),
            ("https://a.example", "https://a.example:8443", false),
            ("https://a.example", "https://a.example.evil.test", false),
            ("http://localhost:3000", "http://localhost:3000", true),
            ("http://[::1]:3000", "http://[::1]:3000", true),
            ("null", "null", true),
            ("https://*.example.com", "https://a.example.com", true),
            ("https://*.example.com", "https://a.b.example.com", true),
            ("https://*.example.com", "https://example.com", false),
            ("https://*.example.com", "https://evilexample.com", false),
            ("https://*.example.com", "https://.example.com", false),
            ("https://*.example.com", "https://evil.test/.example.com", false),
            ("https://*.example.com", "https://user@a.example.com", false),
            ("https://*.example.com", "http://a.example.com", false),
            ("https://*.example.com", "https://a.example.com:444", false),
            ("https://*.example.com:444", "https://a.example.com:444", true),
        ] {
            let origin = Origin::read(written).expect(written);
            assert_eq!(origin.is(sent.as_bytes()), matches, "{written} {sent}");
        }
    }

    #[test]
    fn what_no_browser_sends_is_refused() {
        for text in [
            "example.com",
            "https://",
            "https://a/",
            "https://a/path",
            "HTTPS://a",
            "https://A.example",
            "*",
            "",
            "https://a:443",
            "http://a:80",
            "https://a:x",
            "https://*.",
            "https://*",
            "https://a*.b",
            "https://a b",
        ] {
            assert_eq!(Origin::read(text), None, "{text}");
        }
    }
}
