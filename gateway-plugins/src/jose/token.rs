//! A token in compact form, taken apart.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use super::{Algorithm, Key, TokenError, json};

/// Bytes of a token; longer ones are refused unread.
pub(crate) const MAX_TOKEN: usize = 16 << 10;
/// Bytes of a token's `kid`.
const MAX_KEY_ID: usize = 256;
/// Header fields that bring a key along, say that there is something else that must be understood, or change what is
/// signed. A token that has one is refused (RFC 8725 §3.10, RFC 7515 §4.1.11, RFC 7797).
const REFUSED: [&str; 6] = ["jwk", "jku", "x5u", "x5c", "crit", "b64"];

/// What a token says, which is worth nothing before [`Token::is_signed_with`].
pub(crate) struct Token<'a> {
    pub(crate) algorithm: Algorithm,
    pub(crate) key_id: Option<String>,
    pub(crate) claims: Map<String, Value>,
    signed: &'a [u8],
    signature: Vec<u8>,
}

impl<'a> Token<'a> {
    /// Takes a token apart. Base64 that is not canonical, duplicate names and anything else that two readers could
    /// understand differently is refused.
    pub(crate) fn read(text: &'a [u8]) -> Result<Self, TokenError> {
        Self::of_kind(text, &["jwt", "at+jwt"])
    }

    /// As [`Self::read`], for a logout token (OpenID Connect Back-Channel Logout §2.4).
    pub(crate) fn read_logout(text: &'a [u8]) -> Result<Self, TokenError> {
        Self::of_kind(text, &["logout+jwt", "jwt"])
    }

    /// As [`Self::read`], whatever is signed: published vectors don't sign claims.
    #[cfg(test)]
    pub(crate) fn read_any(text: &'a [u8]) -> Result<Self, TokenError> {
        let (header, content, signature) = parts(text)?;
        let signed = text.get(..header.len() + 1 + content.len()).ok_or(TokenError::Malformed)?;
        let (algorithm, key_id) = read_header(&decoded_object(header)?, &["jwt"])?;
        URL_SAFE_NO_PAD.decode(content).map_err(|_| TokenError::Malformed)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| TokenError::Malformed)?;
        Ok(Self { algorithm, key_id, claims: Map::new(), signed, signature })
    }

    fn of_kind(text: &'a [u8], kinds: &[&str]) -> Result<Self, TokenError> {
        let (header, claims, signature) = parts(text)?;
        let signed = text.get(..header.len() + 1 + claims.len()).ok_or(TokenError::Malformed)?;
        let (algorithm, key_id) = read_header(&decoded_object(header)?, kinds)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| TokenError::Malformed)?;
        Ok(Self { algorithm, key_id, claims: decoded_object(claims)?, signed, signature })
    }

    /// Whether it was signed with this key, by the algorithm its header names.
    pub(crate) fn is_signed_with(&self, key: &Key) -> bool {
        key.verifies(self.algorithm, self.signed, &self.signature)
    }
}

/// Header, content and signature, encoded.
type Parts<'a> = (&'a [u8], &'a [u8], &'a [u8]);

/// The three parts of a token.
fn parts(text: &[u8]) -> Result<Parts<'_>, TokenError> {
    if text.len() > MAX_TOKEN {
        return Err(TokenError::Malformed);
    }
    let mut parts = text.split(|c| *c == b'.');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(header), Some(content), Some(signature), None) => Ok((header, content, signature)),
        _ => Err(TokenError::Malformed),
    }
}

fn decoded_object(part: &[u8]) -> Result<Map<String, Value>, TokenError> {
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Malformed)?;
    json::object(&bytes).ok_or(TokenError::Malformed)
}

fn read_header(
    header: &Map<String, Value>,
    kinds: &[&str],
) -> Result<(Algorithm, Option<String>), TokenError> {
    if REFUSED.iter().any(|name| header.contains_key(*name)) {
        return Err(TokenError::Malformed);
    }
    match header.get("typ").map(Value::as_str) {
        None => {}
        Some(Some(kind)) if is_one_of(kind, kinds) => {}
        Some(_) => return Err(TokenError::Malformed),
    }
    let key_id = match header.get("kid") {
        None => None,
        Some(Value::String(id)) if id.len() <= MAX_KEY_ID => Some(id.clone()),
        Some(_) => return Err(TokenError::Malformed),
    };
    let name = header.get("alg").and_then(Value::as_str).ok_or(TokenError::Malformed)?;
    Ok((Algorithm::named(name).ok_or(TokenError::Algorithm)?, key_id))
}

/// A token that says it is something else, such as a logout token, must not be taken for an access token (RFC 8725
/// §3.11).
fn is_one_of(kind: &str, kinds: &[&str]) -> bool {
    let kind = kind.strip_prefix("application/").unwrap_or(kind);
    kinds.iter().any(|known| kind.eq_ignore_ascii_case(known))
}
