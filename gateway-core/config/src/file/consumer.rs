//! A consumer as written.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;

/// Somebody who may be recognised.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Consumer {
    /// Unique among consumers: 1–254 letters, digits, `.`, `_` and `-`, beginning with a letter or digit. Required.
    #[schemars(length(max = 254))]
    pub id: Option<String>,
    /// Unique; what `access_control` names. Required.
    #[schemars(length(max = 255))]
    pub username: Option<String>,
    /// The owner's own name for it; unique when given, and nobody else's username.
    #[schemars(length(max = 255))]
    pub custom_id: Option<String>,
    /// By authentication plugin (`key_auth`, `basic_auth`, `jwt_auth`, `hmac_auth`, `mtls_auth`; also `keyauth`,
    /// `basicauth`, `jwt`): a map such as `{key: …}`, a list of such maps while a credential is rotated, or just the
    /// key, password, secret or identity itself. Instead of the key there may be a `key_sha256`, of the password a
    /// `password_hash` (argon2id, bcrypt or apr1), and of the secret of `jwt_auth` a `public_key` in PEM; keys of
    /// `jwt_auth` may have a `kid`.
    pub credentials: BTreeMap<String, serde_json::Value>,
    /// Groups for `access_control`. Targets learn of them in `X-Consumer-Groups`, along with those that a token, a directory or
    /// another server tells of the caller; of these, names with commas are left out, and those beyond 4 KiB.
    #[schemars(length(max = 500), inner(length(min = 1, max = 255)))]
    pub acl_groups: Vec<String>,
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Credentials never reach a log, also not by way of a debug print.
        f.debug_struct("Consumer")
            .field("id", &self.id)
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}
