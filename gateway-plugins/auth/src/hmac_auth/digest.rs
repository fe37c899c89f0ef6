//! Whether a body is the one whose digest is signed: `Content-Digest` (RFC 9530), or the older `Digest` (RFC 3230).

use std::collections::HashSet;

use aws_lc_rs::digest::{self, Algorithm};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gateway_core::http::body::{Body, BodyError};
use http::HeaderMap;
use sfv::ListEntry;

use super::fault::SignatureError;
use super::signature::dictionary;

/// Digests that a body has to have.
pub(super) type Digests = Vec<(&'static Algorithm, Vec<u8>)>;

/// The digests that are signed. Every known one counts; where there is one, one at least has to be known.
pub(super) fn signed(headers: &HeaderMap, covered: &HashSet<String>) -> Result<Digests, SignatureError> {
    let mut digests = Vec::new();
    let content = headers.contains_key("content-digest") && covered.contains("content-digest");
    if content {
        for (name, value) in &dictionary(headers, "content-digest")? {
            let ListEntry::Item(item) = value else { return Err(SignatureError::Malformed) };
            let bytes = item.bare_item.as_byte_sequence().ok_or(SignatureError::Malformed)?;
            digests.extend(known(name.as_str()).map(|algorithm| (algorithm, bytes.to_vec())));
        }
    }
    let older = headers.contains_key("digest") && covered.contains("digest");
    if older {
        for line in headers.get_all("digest") {
            for part in line.to_str().map_err(|_| SignatureError::Malformed)?.split(',') {
                let (name, value) = part.trim().split_once('=').ok_or(SignatureError::Malformed)?;
                let Some(algorithm) = known(&name.to_ascii_lowercase()) else { continue };
                digests.push((algorithm, STANDARD.decode(value).map_err(|_| SignatureError::Malformed)?));
            }
        }
    }
    if digests.is_empty() && (content || older) { Err(SignatureError::Digest) } else { Ok(digests) }
}

fn known(name: &str) -> Option<&'static Algorithm> {
    match name {
        "sha-256" => Some(&digest::SHA256),
        "sha-512" => Some(&digest::SHA512),
        _ => None,
    }
}

/// Whether the body has these digests; it is whole again afterwards. One that is not empty has to have one.
pub(super) async fn verify(body: &mut Body, digests: Digests, limit: u64) -> Result<(), SignatureError> {
    if digests.is_empty() {
        return if body.is_empty() { Ok(()) } else { Err(SignatureError::Digest) };
    }
    if body.exact_length().is_some_and(|length| length > limit) {
        return Err(SignatureError::BodyTooLarge);
    }
    let bytes = match body.peek(limit.saturating_add(1)).await {
        Ok(bytes) if bytes.len() as u64 > limit => return Err(SignatureError::BodyTooLarge),
        Ok(bytes) => bytes,
        Err(BodyError::NoRoom) => return Err(SignatureError::Busy),
        Err(BodyError::TooLarge { .. }) => return Err(SignatureError::BodyTooLarge),
        Err(_) => return Err(SignatureError::BodyBroken),
    };
    let is_right = |(algorithm, wanted): &(&'static Algorithm, Vec<u8>)| {
        digest::digest(algorithm, &bytes).as_ref() == wanted.as_slice()
    };
    if digests.iter().all(is_right) { Ok(()) } else { Err(SignatureError::Digest) }
}
