//! Who a caller is and what they may do, and the credentials and tokens that say so.
//!
//! # Where things are
//!
//! - One file for each plugin, with its parts in a folder. `jwks_auth/source.rs` fetches and refreshes an issuer's keys, also for `oidc`.
//! - `credential/`: what plugins share. `place.rs` finds a credential in a request, `bearer.rs` and `basic.rs` read its schemes,
//!   `checked.rs` remembers checks, `grants.rs` maps claims to groups, `headers.rs` hands claims to targets, `revoked.rs` reads lists of
//!   revoked tokens.
//! - `jose/`: signed tokens: `token.rs` reads and verifies them, `key.rs` and `jwk.rs` read keys, `claims.rs` judges claims.
//! - `oauth.rs`: the gateway as a client of an authorization server; `assertion.rs` signs in the place of a secret.
//! - `turns.rs` bounds how many checks run and wait; `privacy.rs` keeps responses with one client's cookies out of caches.

mod access_control;
mod assertion;
mod basic_auth;
mod credential;
mod csrf;
mod forward_auth;
mod hmac_auth;
mod jose;
mod jwks_auth;
mod jwt_auth;
mod key_auth;
#[cfg(feature = "ldap")]
mod ldap_auth;
mod mtls_auth;
mod oauth;
mod oauth2_introspection;
mod oidc;
mod privacy;
mod turns;

use gateway_core::plugin::{Entry, entry};

/// The plugin `access_control`.
pub const ACCESS_CONTROL: Entry = entry::<access_control::AccessControl>();

/// The plugin `basic_auth`.
pub const BASIC_AUTH: Entry = entry::<basic_auth::BasicAuth>();

/// The plugin `csrf`.
pub const CSRF: Entry = entry::<csrf::Csrf>();

/// The plugin `forward_auth`.
pub const FORWARD_AUTH: Entry = entry::<forward_auth::ForwardAuth>();

/// The plugin `hmac_auth`.
pub const HMAC_AUTH: Entry = entry::<hmac_auth::HmacAuth>();

/// The plugin `jwks_auth`.
pub const JWKS_AUTH: Entry = entry::<jwks_auth::JwksAuth>();

/// The plugin `jwt_auth`.
pub const JWT_AUTH: Entry = entry::<jwt_auth::JwtAuth>();

/// The plugin `key_auth`.
pub const KEY_AUTH: Entry = entry::<key_auth::KeyAuth>();

/// The plugin `ldap_auth`.
#[cfg(feature = "ldap")]
pub const LDAP_AUTH: Entry = entry::<ldap_auth::LdapAuth>();

/// The plugin `mtls_auth`.
pub const MTLS_AUTH: Entry = entry::<mtls_auth::MtlsAuth>();

/// The plugin `oauth2_introspection`.
pub const OAUTH2_INTROSPECTION: Entry = entry::<oauth2_introspection::Oauth2Introspection>();

pub use oidc::provider_login;

/// The plugin `oidc`.
pub const OIDC: Entry = entry::<oidc::Oidc>();
