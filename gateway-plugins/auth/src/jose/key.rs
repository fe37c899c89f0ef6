//! Keys that verify tokens. A key knows its algorithms, so that no token can have a public key used as a secret.

use aws_lc_rs::hmac;
use aws_lc_rs::signature::ParsedPublicKey;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::Algorithm;

pub(crate) enum Key {
    /// A shared secret, by algorithm.
    Shared(Vec<(Algorithm, hmac::Key)>),
    /// A public key, by algorithm.
    Public(Vec<(Algorithm, ParsedPublicKey)>),
}

impl Key {
    /// A shared secret. It is used with the hashes it is long enough for (RFC 7518 §3.2).
    pub(crate) fn shared(secret: &[u8]) -> Self {
        let uses = [
            (Algorithm::Hs256, hmac::HMAC_SHA256, 32),
            (Algorithm::Hs384, hmac::HMAC_SHA384, 48),
            (Algorithm::Hs512, hmac::HMAC_SHA512, 64),
        ];
        let long_enough = uses.into_iter().filter(|(_, _, bytes)| secret.len() >= *bytes);
        Self::Shared(long_enough.map(|(name, hash, _)| (name, hmac::Key::new(hash, secret))).collect())
    }

    /// A public key in PEM (`-----BEGIN PUBLIC KEY-----`).
    pub(crate) fn pem(text: &str) -> Option<Self> {
        let (_, rest) = text.split_once("-----BEGIN PUBLIC KEY-----")?;
        let (body, _) = rest.split_once("-----END PUBLIC KEY-----")?;
        let body: String = body.split_ascii_whitespace().collect();
        Self::spki(&STANDARD.decode(body).ok()?)
    }

    /// A public key as X.509 has it.
    fn spki(der: &[u8]) -> Option<Self> {
        let parsed = Algorithm::ALL.into_iter().filter_map(|name| {
            let key = ParsedPublicKey::new(name.verification()?, der).ok()?;
            Some((name, key))
        });
        let keys: Vec<_> = parsed.collect();
        (!keys.is_empty()).then_some(Self::Public(keys))
    }

    /// Whether `signature` is one of `message` by this algorithm. False for an algorithm that is not this key's.
    pub(crate) fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Shared(keys) => {
                let key = keys.iter().find(|(name, _)| *name == algorithm);
                key.is_some_and(|(_, key)| hmac::verify(key, message, signature).is_ok())
            }
            Self::Public(keys) => {
                let key = keys.iter().find(|(name, _)| *name == algorithm);
                key.is_some_and(|(_, key)| key.verify_sig(message, signature).is_ok())
            }
        }
    }
}
