//! Who a caller is and what they may do, and the credentials and tokens that say so.

pub(crate) mod access_control;
pub(crate) mod assertion;
pub(crate) mod basic_auth;
pub(crate) mod credential;
pub(crate) mod csrf;
pub(crate) mod forward_auth;
pub(crate) mod hmac_auth;
pub(crate) mod jose;
pub(crate) mod jwks_auth;
pub(crate) mod jwt_auth;
pub(crate) mod key_auth;
#[cfg(feature = "ldap")]
pub(crate) mod ldap_auth;
pub(crate) mod mtls_auth;
pub(crate) mod oauth;
pub(crate) mod oauth2_introspection;
pub(crate) mod oidc;
pub(crate) mod privacy;
pub(crate) mod turns;
