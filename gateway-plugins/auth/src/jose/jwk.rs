//! Key sets of issuers (RFC 7517).

use std::sync::Arc;

use aws_lc_rs::signature::{ParsedPublicKey, RsaParameters, RsaPublicKeyComponents};
use aws_lc_rs::signature::{
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gateway_plugin_common::strict_json;
use serde_json::{Map, Value};

use super::{Algorithm, Key, Token};

/// Keys of one set; more are refused.
const MAX_KEYS: usize = 100;

/// The public keys of an issuer.
pub(crate) struct KeySet(Vec<Jwk>);

struct Jwk {
    id: Option<String>,
    key: Key,
}

impl KeySet {
    /// Reads a key set. Keys that verify nothing here (of other types, for encryption, secrets, RSA keys that are too
    /// short) are left out; `None` where none is left.
    pub(crate) fn read(bytes: &[u8]) -> Option<Arc<Self>> {
        let set = strict_json::object(bytes)?;
        let keys = set.get("keys")?.as_array()?;
        if keys.len() > MAX_KEYS {
            return None;
        }
        let usable: Vec<Jwk> = keys.iter().filter_map(|key| Jwk::read(key.as_object()?)).collect();
        (!usable.is_empty()).then(|| Arc::new(Self(usable)))
    }

    /// Whether the token is signed with one of these keys; `None` where none fits its `kid`, so that newer keys may do.
    pub(crate) fn verify(&self, token: &Token<'_>) -> Option<bool> {
        let wanted = token.key_id.as_deref();
        let fits = |jwk: &&Jwk| wanted.is_none() || jwk.id.is_none() || jwk.id.as_deref() == wanted;
        let mut fitting = self.0.iter().filter(fits).peekable();
        fitting.peek()?;
        Some(fitting.any(|jwk| token.is_signed_with(&jwk.key)))
    }
}

impl Jwk {
    fn read(fields: &Map<String, Value>) -> Option<Self> {
        let text = |name: &str| fields.get(name).and_then(Value::as_str);
        if text("use").is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        if let Some(operations) = fields.get("key_ops").and_then(Value::as_array)
            && !operations.iter().any(|operation| operation == "verify")
        {
            return None;
        }
        let only = match fields.get("alg") {
            None => None,
            Some(name) => Some(Algorithm::named(name.as_str()?)?),
        };
        let bytes = |name| URL_SAFE_NO_PAD.decode(text(name)?).ok();
        let keys = match (text("kty")?, text("crv")) {
            ("RSA", _) => rsa(&bytes("n")?, &bytes("e")?),
            ("EC", Some("P-256")) => point(Algorithm::Es256, 32, &bytes("x")?, &bytes("y")?),
            ("EC", Some("P-384")) => point(Algorithm::Es384, 48, &bytes("x")?, &bytes("y")?),
            ("EC", Some("P-521")) => point(Algorithm::Es512, 66, &bytes("x")?, &bytes("y")?),
            ("OKP", Some("Ed25519")) => parsed(Algorithm::EdDsa, &bytes("x")?),
            _ => return None,
        };
        let keys: Vec<_> =
            keys.into_iter().filter(|(name, _)| only.is_none_or(|only| only == *name)).collect();
        let id = text("kid").map(str::to_owned);
        (!keys.is_empty()).then_some(Self { id, key: Key::Public(keys) })
    }
}

/// An RSA key of 2048 bits or more, for each algorithm of RSA.
fn rsa(modulus: &[u8], exponent: &[u8]) -> Vec<(Algorithm, ParsedPublicKey)> {
    // Some issuers write the zero that ASN.1 puts before a high bit.
    let modulus = modulus.strip_prefix(&[0]).unwrap_or(modulus);
    if modulus.len() < 256 {
        return Vec::new();
    }
    let uses: [(Algorithm, &'static RsaParameters); 6] = [
        (Algorithm::Rs256, &RSA_PKCS1_2048_8192_SHA256),
        (Algorithm::Rs384, &RSA_PKCS1_2048_8192_SHA384),
        (Algorithm::Rs512, &RSA_PKCS1_2048_8192_SHA512),
        (Algorithm::Ps256, &RSA_PSS_2048_8192_SHA256),
        (Algorithm::Ps384, &RSA_PSS_2048_8192_SHA384),
        (Algorithm::Ps512, &RSA_PSS_2048_8192_SHA512),
    ];
    let components = RsaPublicKeyComponents { n: modulus, e: exponent };
    let key = |(name, how)| Some((name, components.to_parsed_public_key(how).ok()?));
    uses.into_iter().filter_map(key).collect()
}

/// A point of an elliptic curve, whose coordinates have their full length (RFC 7518 §6.2.1.2).
fn point(name: Algorithm, length: usize, x: &[u8], y: &[u8]) -> Vec<(Algorithm, ParsedPublicKey)> {
    if x.len() != length || y.len() != length {
        return Vec::new();
    }
    parsed(name, &[&[4], x, y].concat())
}

fn parsed(name: Algorithm, bytes: &[u8]) -> Vec<(Algorithm, ParsedPublicKey)> {
    let key = name.verification().and_then(|how| ParsedPublicKey::new(how, bytes).ok());
    key.map(|key| (name, key)).into_iter().collect()
}
