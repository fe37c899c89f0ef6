//! A token in compact form, taken apart.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gateway_plugin_common::strict_json;
use serde_json::{Map, Value};

use super::header::Header;
use super::{Algorithm, Key, TokenError};

/// Bytes of a token; longer ones are refused unread.
pub(crate) const MAX_TOKEN: usize = 16 << 10;
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
        let Header { algorithm, key_id } = Header::read(&decoded(header)?, &["jwt"])?;
        decoded(content)?;
        let signature = decoded(signature)?;
        Ok(Self { algorithm, key_id, claims: Map::new(), signed, signature })
    }

    fn of_kind(text: &'a [u8], kinds: &[&str]) -> Result<Self, TokenError> {
        let (header, claims, signature) = parts(text)?;
        let signed = text.get(..header.len() + 1 + claims.len()).ok_or(TokenError::Malformed)?;
        let Header { algorithm, key_id } = Header::read(&decoded(header)?, kinds)?;
        let claims = strict_json::object(&decoded(claims)?).ok_or(TokenError::Malformed)?;
        Ok(Self { algorithm, key_id, claims, signed, signature: decoded(signature)? })
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

fn decoded(part: &[u8]) -> Result<Vec<u8>, TokenError> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Malformed)
}
