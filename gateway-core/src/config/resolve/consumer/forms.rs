//! What the text of a credential has to look like, so that a credential that nobody could ever use is refused.

use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

/// Bits an RSA key must have (RFC 7518 §3.3).
const MIN_RSA_BITS: usize = 2048;

/// KiB of memory and passes over it that one check by argon2id may take.
const MAX_ARGON2_KIB: u32 = 256 << 10;
const MAX_ARGON2_PASSES: u32 = 32;
/// The cost of bcrypt, which doubles with each step; 16 takes some seconds.
const MAX_BCRYPT_COST: u32 = 16;
/// Length of a hash by bcrypt.
const BCRYPT_BYTES: usize = 60;

/// Any text will do.
pub(super) fn any(_field: &str, _text: &str) -> Option<&'static str> {
    None
}

/// `basic_auth`: a hash must be of a kind that can be checked, at a cost that a gateway can bear.
pub(super) fn password_hash(field: &str, text: &str) -> Option<&'static str> {
    if field != "password_hash" {
        return None;
    }
    if text.starts_with("$argon2id$") {
        // `$argon2id$v=19$m=65536,t=3,p=4$salt$hash`
        let cost = |name: &str| {
            let mut costs = text.split('$').flat_map(|part| part.split(','));
            costs.find_map(|part| part.strip_prefix(name)?.parse::<u32>().ok())
        };
        return match (cost("m="), cost("t=")) {
            (Some(memory), Some(passes)) if memory <= MAX_ARGON2_KIB && passes <= MAX_ARGON2_PASSES => None,
            _ => Some("this argon2id hash can't be read, or needs more than 256 MiB or 32 passes"),
        };
    }
    if ["$2a$", "$2b$", "$2y$"].iter().any(|kind| text.starts_with(kind)) {
        let cost = text.get(4..6).and_then(|digits| digits.parse::<u32>().ok());
        return match cost {
            Some(cost) if cost <= MAX_BCRYPT_COST && text.len() == BCRYPT_BYTES => None,
            _ => Some("this bcrypt hash can't be read, or has a cost above 16"),
        };
    }
    (!text.starts_with("$apr1$")).then_some("this is not a hash by argon2id, bcrypt or apr1")
}

/// `jwt_auth`: a key must be a public key in PEM, of a type that tokens are signed with.
pub(super) fn public_key(field: &str, text: &str) -> Option<&'static str> {
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

    #[test]
    fn hashes_that_can_be_checked() {
        assert_eq!(password_hash("password", "plain"), None);
        for (hash, is_good) in [
            ("$2b$16$abcdefghijklmnopqrstuuKwGqVXbkv6RsmDSLcqOPMLYGHnqd7Su", true),
            ("$2b$17$abcdefghijklmnopqrstuuKwGqVXbkv6RsmDSLcqOPMLYGHnqd7Su", false),
            ("$2b$12$x", false),
            ("$argon2id$v=19$m=65536,t=3,p=4$c2FsdHNhbHRzYWx0$aGFzaA", true),
            ("$argon2id$v=19$m=1048576,t=3,p=4$c2FsdHNhbHRzYWx0$aGFzaA", false),
            ("$argon2id$v=19$m=65536,t=99,p=4$c2FsdHNhbHRzYWx0$aGFzaA", false),
            ("$argon2id$x", false),
            ("$apr1$saltsalt$EGVZDNN6gOqijy.tv9axG/", true),
            ("{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", false),
            ("5f4dcc3b5aa765d61d8327deb882cf99", false),
        ] {
            assert_eq!(password_hash("password_hash", hash).is_none(), is_good, "{hash}");
        }
    }
}
