//! A consumer as written.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;

/// A caller that the gateway can authenticate.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Consumer {
    /// Unique among consumers: 1–254 letters, digits, `.`, `_` and `-`, beginning with a letter or digit. Required.
    #[schemars(length(max = 254))]
    pub id: Option<String>,
    /// Username; unique, used by `access_control`. Required.
    #[schemars(length(max = 255))]
    pub username: Option<String>,
    /// ID of the consumer in another system; unique, and not the username of another consumer.
    #[schemars(length(max = 255))]
    pub custom_id: Option<String>,
    /// Credentials by authentication plugin (`key_auth`, `basic_auth`, `jwt_auth`, `hmac_auth`, `mtls_auth`; also
    /// `keyauth`, `basicauth`, `jwt`): a map such as `{key: …}`, a list of such maps while you rotate a credential, or
    /// only the key, password, secret or identity. `key_sha256` can replace the key, `password_hash` (argon2id, bcrypt
    /// or apr1) the password, and `public_key` in PEM the secret of `jwt_auth`; keys of `jwt_auth` may have a `kid`.
    pub credentials: BTreeMap<String, serde_json::Value>,
    /// Groups for `access_control`. Targets receive them in `X-Consumer-Groups`, together with the groups from a token,
    /// a directory or another server; of the latter, names with commas are omitted, and those beyond 4 KiB.
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
