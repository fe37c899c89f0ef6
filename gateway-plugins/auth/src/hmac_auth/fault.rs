//! Why a signed request is not accepted.

use gateway_core::http::reply::{Cause, Reply};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignatureError {
    /// No signature.
    Missing,
    /// One that can't be read, or several.
    Malformed,
    /// An algorithm that is unknown, not allowed, or not the key's.
    Algorithm,
    /// Nobody's, or wrong: which of these is not said.
    Signature,
    /// Too old, too new, or without a date.
    Date,
    /// Something that has to be signed is not.
    Uncovered,
    /// The body's digest is missing, not signed, or that of another body.
    Digest,
    /// Seen before, or without a nonce.
    Replay,
    BodyTooLarge,
    BodyBroken,
    /// As many signatures or bodies are held as may be.
    Busy,
}

impl SignatureError {
    /// The refusal, without a challenge.
    pub(super) fn reply(self) -> Reply {
        let (cause, reason, detail) = match self {
            Self::Missing => (Cause::Unauthenticated, "signature_missing", "a signature is required"),
            Self::Malformed => (Cause::Unauthenticated, "signature_malformed", "the signature is malformed"),
            Self::Algorithm => {
                (Cause::Unauthenticated, "signature_algorithm", "the signature's algorithm is not accepted")
            }
            Self::Signature => (Cause::Unauthenticated, "signature_invalid", "the signature is not valid"),
            Self::Date => (
                Cause::Unauthenticated,
                "signature_date",
                "the signature has no date, or is too old or too new",
            ),
            Self::Uncovered => (
                Cause::Unauthenticated,
                "signature_uncovered",
                "the signature does not cover all that has to be signed",
            ),
            Self::Digest => {
                (Cause::Unauthenticated, "signature_digest", "the body has no signed digest, or another one")
            }
            Self::Replay => (
                Cause::Unauthenticated,
                "signature_replayed",
                "the signature was used before, or has no nonce",
            ),
            Self::BodyTooLarge => {
                (Cause::BodyTooLarge, "signature_body_too_large", "the body is too large to be verified")
            }
            Self::BodyBroken => (Cause::BadRequest, "signature_body_broken", "the body was cut off"),
            Self::Busy => (Cause::Overloaded, "signature_busy", "too many signed requests at a time"),
        };
        Reply::new(cause).reason(reason).detail(detail)
    }
}
