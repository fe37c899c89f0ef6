//! The account's key, and requests signed with it (RFC 7515 as RFC 8555 uses it): ECDSA on P-256.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gateway_core::config::model::ExternalAccount;
use serde_json::{Value, json};

use super::error::KeyError;

/// Base64url without padding.
pub(super) fn base64url(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The key of an account.
pub(super) struct AccountKey {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

impl AccountKey {
    /// A new key, as PKCS #8 in base64url.
    pub(super) fn generate() -> Result<String, KeyError> {
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        document.map(base64url).map_err(|_| KeyError::Made)
    }

    /// Reads what [`Self::generate`] made.
    pub(super) fn read(text: &str) -> Result<Self, KeyError> {
        let document = URL_SAFE_NO_PAD.decode(text).map_err(|_| KeyError::Read)?;
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &document);
        Ok(Self { pair: pair.map_err(|_| KeyError::Read)?, random: SystemRandom::new() })
    }

    /// The public key (RFC 7517).
    pub(super) fn public(&self) -> Value {
        let (x, y) = self.point();
        json!({ "crv": "P-256", "kty": "EC", "x": x, "y": y })
    }

    /// The public key's thumbprint (RFC 7638).
    fn thumbprint(&self) -> String {
        let (x, y) = self.point();
        // Exactly these members in exactly this order, without spaces.
        let canonical = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
        base64url(digest(&SHA256, canonical.as_bytes()))
    }

    /// What answers a challenge with this token (RFC 8555, section 8.1).
    pub(super) fn authorization(&self, token: &str) -> String {
        format!("{token}.{}", self.thumbprint())
    }

    /// A signed request. `None` asks for a resource without changing anything.
    pub(super) fn sign(&self, mut header: Value, payload: Option<&Value>) -> Result<Vec<u8>, KeyError> {
        header["alg"] = "ES256".into();
        let signed = |text: &[u8]| {
            let signature = self.pair.sign(&self.random, text);
            signature.map(base64url).map_err(|_| KeyError::Signed)
        };
        envelope(&header, payload.map(Value::to_string).unwrap_or_default(), signed)
            .map(|signed| signed.to_string().into_bytes())
    }

    /// Says that this key's account belongs to one that the CA knows (RFC 8555, section 7.3.4).
    pub(super) fn bind(&self, account: &ExternalAccount, url: &str) -> Result<Value, KeyError> {
        let key =
            URL_SAFE_NO_PAD.decode(account.hmac_key.as_bytes()).map_err(|_| KeyError::ExternalAccount)?;
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        let header = json!({ "alg": "HS256", "kid": account.key_id, "url": url });
        envelope(&header, self.public().to_string(), |text| Ok(base64url(hmac::sign(&key, text))))
    }

    fn point(&self) -> (String, String) {
        // The form is 0x04, x, y.
        let bytes = self.pair.public_key().as_ref();
        let part = |from, to| base64url(bytes.get(from..to).unwrap_or_default());
        (part(1, 33), part(33, 65))
    }
}

fn envelope(
    header: &Value,
    payload: String,
    sign: impl FnOnce(&[u8]) -> Result<String, KeyError>,
) -> Result<Value, KeyError> {
    let (header, payload) = (base64url(header.to_string()), base64url(payload));
    let signature = sign(format!("{header}.{payload}").as_bytes())?;
    Ok(json!({ "protected": header, "payload": payload, "signature": signature }))
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    use super::*;

    fn text(signed: &Value, part: &str) -> String {
        let bytes = URL_SAFE_NO_PAD.decode(signed[part].as_str().unwrap()).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_request_is_signed_by_the_key_it_names() {
        let key = AccountKey::read(&AccountKey::generate().unwrap()).unwrap();
        let header = json!({ "nonce": "n", "url": "https://ca.test/a", "jwk": key.public() });
        let signed = key.sign(header, Some(&json!({ "a": 1 }))).unwrap();
        let signed: Value = serde_json::from_slice(&signed).unwrap();
        assert_eq!(text(&signed, "payload"), r#"{"a":1}"#);
        let header: Value = serde_json::from_str(&text(&signed, "protected")).unwrap();
        assert_eq!((&header["alg"], &header["url"]), (&json!("ES256"), &json!("https://ca.test/a")));
        let said =
            format!("{}.{}", signed["protected"].as_str().unwrap(), signed["payload"].as_str().unwrap());
        let signature = URL_SAFE_NO_PAD.decode(signed["signature"].as_str().unwrap()).unwrap();
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.pair.public_key());
        public.verify(said.as_bytes(), &signature).unwrap();
        assert!(public.verify(b"something else", &signature).is_err());
    }

    #[test]
    fn a_resource_is_asked_for_with_an_empty_payload() {
        let key = AccountKey::read(&AccountKey::generate().unwrap()).unwrap();
        let signed: Value = serde_json::from_slice(&key.sign(json!({}), None).unwrap()).unwrap();
        assert_eq!(signed["payload"], "");
    }

    #[test]
    fn what_is_no_key_is_not_read() {
        assert!(AccountKey::read("").is_err());
        assert!(AccountKey::read(&base64url("no key")).is_err());
    }

    #[test]
    fn an_answer_has_the_token_and_the_keys_thumbprint() {
        let key = AccountKey::read(&AccountKey::generate().unwrap()).unwrap();
        let answer = key.authorization("token");
        let (token, thumbprint) = answer.split_once('.').unwrap();
        assert_eq!((token, thumbprint.len()), ("token", 43));
    }
}
