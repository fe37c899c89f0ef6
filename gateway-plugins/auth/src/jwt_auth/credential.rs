//! The keys by which consumers' tokens are verified.

use gateway_core::config::credential::{AtRest, CredentialType};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

/// Bits an RSA key must have (RFC 7518 §3.3).
const MIN_RSA_BITS: usize = 2048;
/// Bytes a shared secret must have: as many as the HMAC-SHA-256 it keys gives (RFC 7518 §3.2).
const MIN_SECRET: usize = 32;

/// A shared secret or a public key.
pub(super) static KEY: CredentialType = CredentialType {
    name: "jwt_auth",
    aliases: &["jwt", "jwtauth"],
    key: "secret",
    instead: &["public_key"],
    optional: &["kid"],
    check: public_key,
    min_bytes: MIN_SECRET,
    is_unique: false,
    at_rest: AtRest::Sealed(None),
};

/// A key must be a public key in PEM, of a type that tokens are signed with.
fn public_key(field: &str, text: &str) -> Option<&'static str> {
    if field != "public_key" {
        return None;
    }
    let mut blocks = Pem::iter_from_buffer(text.as_bytes());
    let (Some(Ok(block)), None) = (blocks.next(), blocks.next()) else {
        return Some("this is not one public key in PEM");
    };
    if block.label != "PUBLIC KEY" {
        return Some("this has to begin with `-----BEGIN PUBLIC KEY-----`");
    }
    let Ok(([], info)) = SubjectPublicKeyInfo::from_der(&block.contents) else {
        return Some("this public key can't be read");
    };
    match info.algorithm.algorithm.to_id_string().as_str() {
        // Ed25519
        "1.3.101.112" => return None,
        // RSA, elliptic curves
        "1.2.840.113549.1.1.1" | "1.2.840.10045.2.1" => {}
        _ => return Some("this key is none of RSA, P-256, P-384, P-521 and Ed25519"),
    }
    match info.parsed() {
        Ok(PublicKey::RSA(key)) if key.key_size() < MIN_RSA_BITS => {
            Some("this RSA key has fewer than 2048 bits")
        }
        Ok(PublicKey::RSA(_)) => None,
        Ok(PublicKey::EC(key)) if matches!(key.key_size(), 256 | 384 | 521 | 528) => None,
        _ => Some("this key is none of RSA, P-256, P-384, P-521 and Ed25519"),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};

    use super::*;

    #[test]
    fn public_keys_that_tokens_are_signed_with() {
        for algorithm in [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519] {
            let key = KeyPair::generate_for(algorithm).expect("a key");
            assert_eq!(public_key("public_key", &key.public_key_pem()), None);
            assert!(
                public_key("public_key", &key.serialize_pem()).is_some(),
                "a private key is no public one"
            );
            let twice = key.public_key_pem().repeat(2);
            assert!(public_key("public_key", &twice).is_some(), "two keys");
        }
        assert!(public_key("public_key", "sesame").is_some());
        assert_eq!(public_key("kid", "sesame"), None);
    }
}
