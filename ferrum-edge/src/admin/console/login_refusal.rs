//! Why a login is refused.

use crate::access::passkey::PasskeyError;

/// Why a login is refused, in words for the person who logs in. They do not tell an unknown name from a wrong password.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoginRefusal {
    #[error("Users are kept in a database, and this gateway has none; log in with a token")]
    NoDatabase,
    #[error("{0}")]
    Token(&'static str),
    #[error("The name or the password is wrong")]
    Password,
    #[error("The code is wrong or was used before")]
    Code,
    #[error("This passkey is not known here; log in with the password")]
    UnknownPasskey,
    #[error(transparent)]
    Passkey(#[from] PasskeyError),
}
