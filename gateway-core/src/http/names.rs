//! Names of fields that a client may not send, or not behind a request's body.

use http::HeaderMap;
use http::header::HeaderName;
use smallvec::SmallVec;

use crate::config::model::Underscores;

const ALT_USED: HeaderName = HeaderName::from_static("alt-used");

/// Whether [`is_claim`] has to look at a name: asked of every field of every request, so it is coarse and quick.
#[inline]
pub(super) fn may_be_claim(name: &[u8]) -> bool {
    has_underscore(name)
        || matches!(
            name,
            [b'x', b'-', b'c' | b'f' | b'r', ..]
                | [b'c', b'l', b'i', ..]
                | [b'a', b'l', b't', ..]
                | [b'f', b'o', b'r', ..]
        )
}

/// Whether a client may not say this.
pub(super) fn is_claim(name: &HeaderName, trusted: bool, underscores: Underscores) -> bool {
    *name == ALT_USED
        || is_identity(name.as_str())
        || (!trusted && (is_certificate(name.as_str()) || is_way(name.as_str())))
        || (has_underscore(name.as_str().as_bytes())
            && (underscores != Underscores::Allow || poses(name, trusted)))
}

/// Headers that tell a target who the caller is; believed only from the gateway itself.
pub(super) fn is_identity(name: &str) -> bool {
    name.starts_with("x-consumer-") || name == "x-credential-identifier"
}

/// Headers that tell a target which certificate the client showed (RFC 9440, and Envoy's).
fn is_certificate(name: &str) -> bool {
    matches!(name, "client-cert" | "client-cert-chain" | "x-forwarded-client-cert")
}

/// What else only a trusted proxy may say: the way here, and who the client is (Traefik's `X-Forwarded-Tls-Client-Cert`, oauth2-proxy's
/// `X-Forwarded-User`). Targets tend to believe it, and so do plugins, which see these fields only if a trusted proxy wrote them.
fn is_way(name: &str) -> bool {
    name.starts_with("x-forwarded-") || matches!(name, "x-real-ip" | "forwarded")
}

/// Whether a name with underscores could be taken for one of those that a client may not use or that say where it comes
/// from: those are removed even where underscores are allowed.
fn poses(name: &HeaderName, trusted: bool) -> bool {
    let plain = name.as_str().replace('_', "-");
    is_identity(&plain)
        || (!trusted && is_certificate(&plain))
        || plain.starts_with("x-forwarded-")
        || matches!(plain.as_str(), "x-real-ip" | "content-length" | "transfer-encoding" | "early-data")
}

/// Whether the name has an underscore. Names of 4 to 16 bytes, as most are, are looked at in one or two pieces that may overlap.
#[inline]
pub(super) fn has_underscore(name: &[u8]) -> bool {
    let has = |word: u64| {
        const ONES: u64 = u64::MAX / 255;
        // A byte that is an underscore becomes zero; a zero borrows from its highest bit.
        let zeros = word ^ (ONES * u64::from(b'_'));
        zeros.wrapping_sub(ONES) & !zeros & (ONES << 7) != 0
    };
    if let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) {
        let ends = has(u64::from_ne_bytes(*first)) || has(u64::from_ne_bytes(*last));
        return ends || (name.len() > 16 && name.contains(&b'_'));
    }
    match (name.first_chunk(), name.last_chunk()) {
        (Some(first), Some(last)) => {
            has(u64::from(u32::from_ne_bytes(*first)) << 32 | u64::from(u32::from_ne_bytes(*last)))
        }
        _ => name.contains(&b'_'),
    }
}

#[inline]
pub(super) fn is_hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "te"
            | "transfer-encoding"
            | "upgrade"
            | "proxy-authenticate"
            | "proxy-authorization"
    )
}

/// What trailers of a client's request have to keep to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TrailerRules {
    pub(crate) underscores: Underscores,
    /// Fields, as many as the head may have. Small numbers, for bodies are moved about.
    pub(crate) max_fields: u16,
    /// Bytes of their names and values together.
    pub(crate) max_bytes: u32,
}

/// Removes from a client's trailers what must not come behind a request (RFC 9110 §6.5.1): what its head may not say, and what
/// the gateway or a credential has said in the head. A target that merges both would believe the client. What frames a message
/// is dropped by whoever reads and writes it.
///
/// # Errors
/// What is wrong, where the settings have such a request refused.
pub(super) fn strip_trailers(trailers: &mut HeaderMap, rules: TrailerRules) -> Result<(), &'static str> {
    let TrailerRules { underscores, max_fields, max_bytes } = rules;
    if trailers.len() > usize::from(max_fields) {
        return Err("there are too many trailer fields");
    }
    let bytes = trailers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>();
    if bytes as u64 > u64::from(max_bytes) {
        return Err("the trailer fields are too large");
    }
    if underscores == Underscores::Reject
        && trailers.keys().any(|name| has_underscore(name.as_str().as_bytes()))
    {
        return Err("a trailer field's name has an underscore");
    }
    // Nobody is trusted here: a proxy that may speak of its client does so in the head.
    let is_out_of_place = |name: &HeaderName| {
        is_hop_by_hop(name.as_str())
            || is_claim(name, false, underscores)
            || is_of_the_head(name.as_str())
            || name.as_str() == "early-data"
    };
    let removed: SmallVec<[HeaderName; 4]> =
        trailers.keys().filter(|name| is_out_of_place(name)).cloned().collect();
    for name in removed {
        trailers.remove(name);
    }
    Ok(())
}

/// Where a request comes from, and the usual names of credentials, which plugins look for in the head alone.
fn is_of_the_head(name: &str) -> bool {
    name.starts_with("x-forwarded-")
        || matches!(name, "forwarded" | "via" | "x-api-key" | "api-key" | "apikey" | "x-auth-token")
}
