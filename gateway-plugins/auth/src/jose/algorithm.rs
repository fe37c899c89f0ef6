//! Signature algorithms (RFC 7518 §3.1, RFC 8037).

use aws_lc_rs::signature::{self, VerificationAlgorithm};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum Algorithm {
    #[serde(rename = "HS256")]
    Hs256,
    #[serde(rename = "HS384")]
    Hs384,
    #[serde(rename = "HS512")]
    Hs512,
    #[serde(rename = "RS256")]
    Rs256,
    #[serde(rename = "RS384")]
    Rs384,
    #[serde(rename = "RS512")]
    Rs512,
    #[serde(rename = "PS256")]
    Ps256,
    #[serde(rename = "PS384")]
    Ps384,
    #[serde(rename = "PS512")]
    Ps512,
    #[serde(rename = "ES256")]
    Es256,
    #[serde(rename = "ES384")]
    Es384,
    #[serde(rename = "ES512")]
    Es512,
    #[serde(rename = "EdDSA")]
    EdDsa,
}

impl Algorithm {
    pub(crate) const ALL: [Self; 13] = [
        Self::Hs256,
        Self::Hs384,
        Self::Hs512,
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Es256,
        Self::Es384,
        Self::Es512,
        Self::EdDsa,
    ];

    /// The algorithm of a header's `alg`. `none` is none.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "HS256" => Self::Hs256,
            "HS384" => Self::Hs384,
            "HS512" => Self::Hs512,
            "RS256" => Self::Rs256,
            "RS384" => Self::Rs384,
            "RS512" => Self::Rs512,
            "PS256" => Self::Ps256,
            "PS384" => Self::Ps384,
            "PS512" => Self::Ps512,
            "ES256" => Self::Es256,
            "ES384" => Self::Es384,
            "ES512" => Self::Es512,
            // RFC 9864 gives the only curve that is used a name of its own.
            "EdDSA" | "Ed25519" => Self::EdDsa,
            _ => return None,
        })
    }

    /// Whether it needs a secret that the signer and the gateway share.
    pub(crate) fn is_symmetric(self) -> bool {
        self.verification().is_none()
    }

    /// How a public key verifies it; `None` for shared secrets.
    pub(crate) fn verification(self) -> Option<&'static dyn VerificationAlgorithm> {
        Some(match self {
            Self::Hs256 | Self::Hs384 | Self::Hs512 => return None,
            Self::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
            Self::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
            Self::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
            Self::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
            Self::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
            Self::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
            Self::Es256 => &signature::ECDSA_P256_SHA256_FIXED,
            Self::Es384 => &signature::ECDSA_P384_SHA384_FIXED,
            Self::Es512 => &signature::ECDSA_P521_SHA512_FIXED,
            Self::EdDsa => &signature::ED25519,
        })
    }
}
