//! Why a token is not accepted.

use gateway_core::http::reply::{Cause, Reply};
use http::HeaderValue;
use http::header::WWW_AUTHENTICATE;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenError {
    /// More than one token, or one that is not the three parts of a JWS.
    Malformed,
    /// An algorithm that is unknown, not allowed, or not one of the key's.
    Algorithm,
    /// No key fits, or the signature is wrong.
    Signature,
    Expired,
    NotYetValid,
    Issuer,
    Audience,
    /// A claim that is required is missing, or has another value.
    Claim,
    /// The caller it names is not known.
    Caller,
    /// It was revoked by its `jti`.
    Revoked,
    /// Its issuer says that it is not valid, or not any more.
    Inactive,
    /// The token is good, but does not grant what is needed here.
    Scope,
}

impl TokenError {
    /// The reason for logs, and the sentence for the client.
    pub(crate) fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Malformed => ("token_malformed", "the token is malformed"),
            Self::Algorithm => ("token_algorithm", "the token's algorithm is not accepted"),
            Self::Signature => ("token_signature", "the token's signature is not valid"),
            Self::Expired => ("token_expired", "the token has expired"),
            Self::NotYetValid => ("token_not_yet_valid", "the token is not valid yet"),
            Self::Issuer => ("token_issuer", "the token's issuer is not accepted"),
            Self::Audience => ("token_audience", "the token is for another audience"),
            Self::Claim => ("token_claim", "the token lacks a required claim, or a required value of one"),
            Self::Revoked => ("token_revoked", "the token has been revoked"),
            Self::Inactive => ("token_inactive", "the token is not valid"),
            Self::Scope => ("token_scope", "the token does not grant access to this"),
            Self::Caller => ("token_caller", "the token is for an unknown caller"),
        }
    }

    /// The refusal, with a challenge by RFC 6750 §3.
    pub(crate) fn reply(self) -> Box<Reply> {
        let (reason, sentence) = self.words();
        let (cause, error) = match self {
            Self::Scope => (Cause::Forbidden, "insufficient_scope"),
            _ => (Cause::Unauthenticated, "invalid_token"),
        };
        let challenge =
            format!("Bearer realm=\"ferrum-edge\", error=\"{error}\", error_description=\"{sentence}\"");
        let reply = Reply::new(cause).detail(sentence).reason(reason);
        Box::new(match HeaderValue::try_from(challenge) {
            Ok(challenge) => reply.header(WWW_AUTHENTICATE, challenge),
            Err(_) => reply,
        })
    }
}

/// The refusal of a request without a token.
pub(crate) fn missing() -> Box<Reply> {
    let challenge = HeaderValue::from_static("Bearer realm=\"ferrum-edge\"");
    let reply = Reply::new(Cause::Unauthenticated).detail("a token is required").reason("token_missing");
    Box::new(reply.header(WWW_AUTHENTICATE, challenge))
}
