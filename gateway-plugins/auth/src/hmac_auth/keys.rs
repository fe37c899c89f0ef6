//! Whose signature it is: consumers' secrets, and public keys of the settings.

use std::collections::HashMap;
use std::sync::Arc;

use aws_lc_rs::hmac;
use gateway_core::config::credential::{AtRest, CredentialType, any_text};
use gateway_core::config::problem::Problems;
use gateway_core::consumer::Identity;
use gateway_core::plugin::Seat;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::fault::SignatureError;
use crate::jose::{Algorithm, Key};

/// What requests are signed with.
pub(super) static SECRET: CredentialType = CredentialType {
    name: "hmac_auth",
    aliases: &["hmacauth"],
    key: "secret",
    instead: &[],
    optional: &[],
    check: any_text,
    min_bytes: 1,
    is_unique: false,
    at_rest: AtRest::Sealed(None),
};

/// A public key of a signer.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PublicKey {
    /// The `keyid` of its signatures. Required, unique.
    key_id: String,
    /// Key in PEM: Ed25519, P-256, P-384, or RSA with at least 2048 bits. Required.
    public_key: String,
    /// Username of the consumer that has the key. Default: a caller named like the `key_id`, which is not a consumer.
    consumer: Option<String>,
}

/// What a signature by RFC 9421 was made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    HmacSha256,
    Public(Algorithm),
}

impl Method {
    /// By the registered name (RFC 9421 §3.3).
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "hmac-sha256" => Self::HmacSha256,
            "ed25519" => Self::Public(Algorithm::EdDsa),
            "ecdsa-p256-sha256" => Self::Public(Algorithm::Es256),
            "ecdsa-p384-sha384" => Self::Public(Algorithm::Es384),
            "rsa-pss-sha512" => Self::Public(Algorithm::Ps512),
            "rsa-v1_5-sha256" => Self::Public(Algorithm::Rs256),
            _ => return None,
        })
    }
}

/// The public keys of the settings, by `key_id`.
#[derive(Default)]
pub(super) struct PublicKeys(HashMap<String, (Key, Option<String>)>);

impl PublicKeys {
    pub(super) fn read(written: Vec<PublicKey>, path: &str) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let mut keys = HashMap::new();
        for (n, one) in written.into_iter().enumerate() {
            let at = format!("{path}[{n}]");
            if one.key_id.is_empty() {
                problems.add(format!("{at}.key_id"), "`key_id` is missing");
            }
            let Some(key) = Key::pem(&one.public_key) else {
                problems.add(format!("{at}.public_key"), "this is not a public key in PEM that can be used");
                continue;
            };
            if keys.insert(one.key_id, (key, one.consumer)).is_some() {
                problems.add(format!("{at}.key_id"), "this `key_id` is there twice");
            }
        }
        problems.into_result(Self(keys))
    }

    /// Whose signature of `message` this is, by a key of the settings or a consumer's secret. `named` is the algorithm
    /// that the signature says; it has to be the key's.
    pub(super) fn verify(
        &self,
        key_id: &str,
        named: Option<Method>,
        message: &[u8],
        signature: &[u8],
        seat: Seat<'_>,
    ) -> Result<Arc<Identity>, SignatureError> {
        let Some((key, consumer)) = self.0.get(key_id) else {
            return match named {
                None | Some(Method::HmacSha256) => {
                    shared(key_id, hmac::HMAC_SHA256, message, signature, seat)
                }
                Some(Method::Public(_)) => Err(SignatureError::Signature),
            };
        };
        let algorithm = match named {
            Some(Method::Public(algorithm)) => algorithm,
            Some(Method::HmacSha256) => return Err(SignatureError::Algorithm),
            None => only_algorithm(key).ok_or(SignatureError::Algorithm)?,
        };
        if !key.verifies(algorithm, message, signature) {
            return Err(SignatureError::Signature);
        }
        match consumer {
            Some(name) => seat.consumers().by_name(name).cloned().ok_or(SignatureError::Signature),
            None => Ok(Arc::new(Identity::external(key_id))),
        }
    }
}

/// The algorithm of a key that has only one here; an RSA key has two, so that signatures have to say which.
fn only_algorithm(key: &Key) -> Option<Algorithm> {
    let Key::Public(keys) = key else { return None };
    match keys.as_slice() {
        [(only, _)] => Some(*only),
        _ => None,
    }
}

/// Whose secret made this signature, among those of the consumer with this name. Takes as long for a name that is
/// nobody's.
pub(super) fn shared(
    name: &str,
    hash: hmac::Algorithm,
    message: &[u8],
    signature: &[u8],
    seat: Seat<'_>,
) -> Result<Arc<Identity>, SignatureError> {
    let is_by = |secret: &[u8]| hmac::verify(&hmac::Key::new(hash, secret), message, signature).is_ok();
    let owner = seat.consumers().by_name(name);
    let consumer = owner.and_then(|owner| owner.consumer.as_ref());
    let mut secrets = consumer
        .into_iter()
        .flat_map(|consumer| consumer.secrets(&SECRET))
        .filter_map(|credential| credential.expose().get("secret").and_then(Value::as_str))
        .peekable();
    if secrets.peek().is_none() {
        std::hint::black_box(is_by(b"nobody's"));
        return Err(SignatureError::Signature);
    }
    match owner.filter(|_| secrets.any(|secret| is_by(secret.as_bytes()))) {
        Some(owner) => Ok(owner.clone()),
        None => Err(SignatureError::Signature),
    }
}
