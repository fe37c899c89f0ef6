//! Signed statements by which the gateway says which client it is, in the place of a secret (RFC 7523 §2.2, `private_key_jwt` of
//! OpenID Connect).

use aws_lc_rs::rand::{self, SystemRandom};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, ECDSA_P521_SHA512_FIXED_SIGNING,
    EcdsaKeyPair, Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gateway_core::config::problem::Problems;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;

use crate::credential::now;

/// The settings of a key.
#[derive(Default)]
pub(crate) struct KeySettings {
    pub(crate) private_key: Option<String>,
    pub(crate) key_id: Option<String>,
    pub(crate) audience: Option<String>,
}

impl KeySettings {
    /// Those that are set, by the names of their options.
    pub(crate) fn set(&self) -> impl Iterator<Item = &'static str> {
        [
            ("client_private_key", self.private_key.is_some()),
            ("client_key_id", self.key_id.is_some()),
            ("client_assertion_audience", self.audience.is_some()),
        ]
        .into_iter()
        .filter_map(|(name, is_set)| is_set.then_some(name))
    }
}

/// What signs them.
pub(crate) struct Assertions {
    key: SigningKey,
    key_id: Option<String>,
    audience: Option<String>,
}

enum SigningKey {
    Rsa(Box<RsaKeyPair>),
    Ec(&'static str, EcdsaKeyPair),
    Ed(Ed25519KeyPair),
}

/// How long one is good, in seconds.
const LIFETIME: u64 = 60;

/// No statement could be signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("nothing can be signed")]
pub(crate) struct Unsigned;

impl Assertions {
    /// Reads a key; what is wrong with it goes to `problems`.
    pub(crate) fn read(settings: KeySettings, problems: &mut Problems) -> Option<Self> {
        let Some(pem) = settings.private_key else {
            problems.add("config.client_private_key", "`private_key_jwt` needs a key");
            return None;
        };
        let key = SigningKey::read(&pem);
        if key.is_none() {
            // Nothing of the text is said: it is a secret.
            problems.add("config.client_private_key", "this is not a private key that can sign").remedy =
                Some("an RSA key of at least 2048 bits, one of P-256, P-384 or P-521, or an Ed25519 key, as PKCS#8 in PEM".into());
        }
        Some(Self { key: key?, key_id: settings.key_id, audience: settings.audience })
    }

    /// A statement for the server at this URL.
    ///
    /// # Errors
    /// There is no randomness.
    pub(crate) fn make(&self, client: &str, url: &str) -> Result<String, Unsigned> {
        let mut id = [0; 16];
        rand::fill(&mut id).map_err(|_| Unsigned)?;
        let mut header = json!({ "alg": self.key.algorithm(), "typ": "JWT" });
        if let Some(key_id) = &self.key_id {
            header["kid"] = key_id.as_str().into();
        }
        let now = now();
        let claims = json!({
            "iss": client,
            "sub": client,
            "aud": self.audience.as_deref().unwrap_or(url),
            "jti": URL_SAFE_NO_PAD.encode(id),
            "iat": now,
            "exp": now + LIFETIME,
        });
        let encoded = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encoded(header), encoded(claims));
        let signature = self.key.sign(signed.as_bytes()).ok_or(Unsigned)?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

impl SigningKey {
    fn read(pem: &str) -> Option<Self> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).ok()?;
        let der = der.secret_pkcs8_der();
        if let Ok(key) = RsaKeyPair::from_pkcs8(der) {
            return (key.public_modulus_len() >= 256).then(|| Self::Rsa(Box::new(key)));
        }
        for (name, kind) in [
            ("ES256", &ECDSA_P256_SHA256_FIXED_SIGNING),
            ("ES384", &ECDSA_P384_SHA384_FIXED_SIGNING),
            ("ES512", &ECDSA_P521_SHA512_FIXED_SIGNING),
        ] {
            if let Ok(key) = EcdsaKeyPair::from_pkcs8(kind, der) {
                return Some(Self::Ec(name, key));
            }
        }
        Ed25519KeyPair::from_pkcs8(der).ok().map(Self::Ed)
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::Rsa(_) => "RS256",
            Self::Ec(name, _) => name,
            Self::Ed(_) => "EdDSA",
        }
    }

    fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).ok()?;
                Some(signature)
            }
            Self::Ec(_, key) => Some(key.sign(&random, message).ok()?.as_ref().to_vec()),
            Self::Ed(key) => Some(key.sign(message).as_ref().to_vec()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::jose::testing::Signer;
    use crate::jose::{Key, Token};

    /// The private key of a signer, as people write it in settings.
    pub(crate) fn private_pem(signer: &Signer) -> String {
        let der: Vec<u8> = match signer {
            Signer::Rsa(key) => AsDer::<Pkcs8V1Der<'_>>::as_der(key).unwrap().as_ref().to_vec(),
            Signer::Ec(key) => key.to_pkcs8v1().unwrap().as_ref().to_vec(),
            Signer::Ed(key) => AsDer::<Pkcs8V1Der<'_>>::as_der(key).unwrap().as_ref().to_vec(),
            Signer::Secret(_) => panic!("a secret is no key"),
        };
        format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", STANDARD.encode(der))
    }

    #[test]
    fn statements_are_signed_with_every_kind_of_key() {
        for (signer, algorithm) in [
            (Signer::rsa(), "RS256"),
            (Signer::ec("ES256"), "ES256"),
            (Signer::ec("ES384"), "ES384"),
            (Signer::ec("ES512"), "ES512"),
            (Signer::ed(), "EdDSA"),
        ] {
            let settings = KeySettings {
                private_key: Some(private_pem(&signer)),
                key_id: Some("k1".into()),
                audience: None,
            };
            let mut problems = Problems::default();
            let assertions =
                Assertions::read(settings, &mut problems).unwrap_or_else(|| panic!("{problems}"));
            let texts = [(); 2].map(|()| assertions.make("shop", "https://idp.test/token").unwrap());
            let tokens = texts
                .each_ref()
                .map(|text| Token::read(text.as_bytes()).unwrap_or_else(|_| panic!("{text}")));
            let key = Key::pem(&signer.pem()).unwrap();
            for token in &tokens {
                assert!(token.is_signed_with(&key), "{algorithm}");
                assert_eq!(token.key_id.as_deref(), Some("k1"));
                let claims = &token.claims;
                assert_eq!((&claims["iss"], &claims["sub"]), (&json!("shop"), &json!("shop")));
                assert_eq!(claims["aud"], "https://idp.test/token");
                let (issued, expires) = (claims["iat"].as_u64().unwrap(), claims["exp"].as_u64().unwrap());
                assert_eq!(expires - issued, LIFETIME);
            }
            assert_ne!(tokens[0].claims["jti"], tokens[1].claims["jti"], "each is good once");
        }
    }

    #[test]
    fn bad_keys_are_refused_and_not_repeated() {
        let no_key = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n";
        for key in ["secret", no_key, &Signer::ed().pem()] {
            let settings = KeySettings { private_key: Some(key.to_owned()), ..KeySettings::default() };
            let mut problems = Problems::default();
            assert!(Assertions::read(settings, &mut problems).is_none());
            assert_eq!(problems.0[0].path, "config.client_private_key");
            assert!(!problems.to_string().contains(key), "{problems}");
        }
    }
}
