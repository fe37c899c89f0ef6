//! Why logins and refreshes fail at the provider.

use std::sync::Arc;

use gateway_core::plugin::world::calls::CallError;
use gateway_plugin_common::server_url::ServerUrlError;
use http::{StatusCode, Uri};

use crate::jose::TokenError;
use crate::oauth::NoRequest;

/// Why there are no tokens.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum Failure {
    /// The provider refuses: the code or the refresh token is not good.
    #[error("it refuses")]
    Refused,
    /// It can't be reached, or its answer can't be used. All that wait for one refresh are told.
    #[error("{0}")]
    Unavailable(Arc<NoAnswer>),
    /// The ID token is not good.
    #[error("{}", .0.words().1)]
    Token(TokenError),
}

impl<E: Into<NoAnswer>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Unavailable(Arc::new(error.into()))
    }
}

/// Why the provider gives no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoAnswer {
    #[error("too many calls wait for it")]
    Busy,
    #[error(transparent)]
    Url(#[from] ServerUrlError),
    #[error(transparent)]
    Request(#[from] NoRequest),
    #[error("{uri}: {error}")]
    Call { uri: Uri, error: CallError },
    /// With the `error` of the answer (RFC 6749 §5.2), if there is one.
    #[error("{url} answers {status}{}", .error.as_ref().map_or_else(String::new, |error| format!(" ({error})")))]
    Status { url: String, status: StatusCode, error: Option<String> },
    #[error("{0} gives no JSON object")]
    NotJson(String),
    #[error("its token endpoint gives no ID token")]
    NoIdToken,
    #[error("its discovery document has no `{0}`")]
    NoUrl(String),
    /// Why there is no discovery document, or there are no keys.
    #[error("{0}")]
    Source(String),
    #[error("there is no randomness")]
    NoRandomness,
}
