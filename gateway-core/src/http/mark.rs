//! What a proxy is known by in `Via`.

use std::sync::Arc;

use http::{HeaderValue, Version};
use sha2::{Digest, Sha256};

use crate::config::model::Proxy;

/// What a proxy is known by in `Via`, so that a request that comes back to it is seen (RFC 9110 §7.6.3). Gateways with the
/// same proxy and targets have the same mark: where one leads to the other, that is a loop too.
pub struct Mark {
    /// The proxy and its targets, digested.
    digest: String,
    /// The name it was written with, and the values for HTTP/1.0, 1.1, 2 and 3.
    values: Option<(Arc<str>, [HeaderValue; 4])>,
}

/// Bytes of the digest, which stand in `Via` in hexadecimal.
const MARK_BYTES: usize = 5;

impl Mark {
    /// The mark of a proxy that is forwarded under this pseudonym.
    pub fn new(proxy: &Proxy, name: Option<&Arc<str>>) -> Self {
        let mut digest = Sha256::new().chain_update(proxy.id.as_str());
        for target in &proxy.backend.upstream.targets {
            digest.update(b"\0");
            digest.update(&*target.host);
            digest.update(target.port.to_be_bytes());
        }
        Self::with(
            digest.finalize().iter().take(MARK_BYTES).map(|byte| format!("{byte:02x}")).collect(),
            name,
        )
    }

    pub(crate) fn with(digest: String, name: Option<&Arc<str>>) -> Self {
        let values = name.and_then(|name| {
            let value = |version| value(version, name, &digest);
            Some((name.clone(), [value("1.0")?, value("1.1")?, value("2")?, value("3")?]))
        });
        Self { digest, values }
    }

    pub(crate) fn via(&self, version: Version, name: &Arc<str>) -> Option<HeaderValue> {
        let (at, protocol) = match version {
            Version::HTTP_10 => (0, "1.0"),
            Version::HTTP_2 => (2, "2"),
            Version::HTTP_3 => (3, "3"),
            _ => (1, "1.1"),
        };
        match &self.values {
            Some((known, values)) if known == name => values.get(at).cloned(),
            // The settings changed after the proxy was compiled.
            _ => value(protocol, name, &self.digest),
        }
    }

    pub(crate) fn is_in(&self, via: &HeaderValue) -> bool {
        memchr::memmem::find(via.as_bytes(), self.digest.as_bytes()).is_some()
    }
}

fn value(protocol: &str, name: &str, digest: &str) -> Option<HeaderValue> {
    let text = format!("{protocol} {name} ({digest})");
    HeaderValue::from_maybe_shared(bytes::Bytes::from(text)).ok()
}
