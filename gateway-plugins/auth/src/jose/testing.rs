//! Signs tokens for tests.

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

pub(crate) fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub(crate) enum Signer {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
    Secret(Vec<u8>),
}

impl Signer {
    pub(crate) fn rsa() -> Self {
        Self::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).expect("a key"))
    }

    pub(crate) fn ec(algorithm: &str) -> Self {
        let kind = match algorithm {
            "ES256" => &signature::ECDSA_P256_SHA256_FIXED_SIGNING,
            "ES384" => &signature::ECDSA_P384_SHA384_FIXED_SIGNING,
            _ => &signature::ECDSA_P521_SHA512_FIXED_SIGNING,
        };
        Self::Ec(EcdsaKeyPair::generate(kind).expect("a key"))
    }

    pub(crate) fn ed() -> Self {
        Self::Ed(Ed25519KeyPair::generate().expect("a key"))
    }

    pub(crate) fn pem(&self) -> String {
        let der = match self {
            Self::Rsa(key) => key.public_key().as_der().expect("DER").as_ref().to_vec(),
            Self::Ec(key) => key.public_key().as_der().expect("DER").as_ref().to_vec(),
            Self::Ed(key) => key.public_key().as_der().expect("DER").as_ref().to_vec(),
            Self::Secret(_) => panic!("a secret has no public key"),
        };
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(der))
    }

    pub(crate) fn sign(&self, algorithm: &str, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(key) => {
                let padding: &'static dyn signature::RsaEncoding = match algorithm {
                    "RS256" => &signature::RSA_PKCS1_SHA256,
                    "RS384" => &signature::RSA_PKCS1_SHA384,
                    "RS512" => &signature::RSA_PKCS1_SHA512,
                    "PS256" => &signature::RSA_PSS_SHA256,
                    "PS384" => &signature::RSA_PSS_SHA384,
                    _ => &signature::RSA_PSS_SHA512,
                };
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(padding, &random, message, &mut signature).expect("a signature");
                signature
            }
            Self::Ec(key) => key.sign(&random, message).expect("a signature").as_ref().to_vec(),
            Self::Ed(key) => key.sign(message).as_ref().to_vec(),
            Self::Secret(secret) => {
                let hash = match algorithm {
                    "HS384" => hmac::HMAC_SHA384,
                    "HS512" => hmac::HMAC_SHA512,
                    _ => hmac::HMAC_SHA256,
                };
                hmac::sign(&hmac::Key::new(hash, secret), message).as_ref().to_vec()
            }
        }
    }

    /// A token with this header and these claims, as they are written.
    pub(crate) fn raw(&self, algorithm: &str, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", b64(header), b64(claims));
        let signature = self.sign(algorithm, signed.as_bytes());
        format!("{signed}.{}", b64(signature))
    }

    pub(crate) fn token(&self, algorithm: &str, claims: &Value) -> String {
        self.raw(algorithm, &json!({ "alg": algorithm, "typ": "JWT" }).to_string(), &claims.to_string())
    }

    /// The public key as an issuer's key set has it.
    pub(crate) fn jwk(&self, kid: &str) -> Value {
        match self {
            Self::Rsa(key) => {
                // The modulus of 2048 bits, after the heads of the sequence and of the integer.
                let modulus = key.public_key().as_ref().get(9..265).expect("a modulus").to_vec();
                json!({ "kty": "RSA", "kid": kid, "use": "sig", "n": b64(modulus), "e": "AQAB" })
            }
            Self::Ec(key) => {
                let point = key.public_key().as_ref().get(1..).expect("a point");
                let (x, y) = point.split_at(point.len() / 2);
                let curve = match x.len() {
                    32 => "P-256",
                    48 => "P-384",
                    _ => "P-521",
                };
                json!({ "kty": "EC", "kid": kid, "crv": curve, "x": b64(x), "y": b64(y) })
            }
            Self::Ed(key) => {
                json!({ "kty": "OKP", "kid": kid, "crv": "Ed25519", "x": b64(key.public_key().as_ref()) })
            }
            Self::Secret(secret) => json!({ "kty": "oct", "kid": kid, "k": b64(secret) }),
        }
    }
}
