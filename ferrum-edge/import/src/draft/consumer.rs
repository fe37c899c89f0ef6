//! Consumers and their credentials.

use super::settings::{Any, Text, Texts, settings};

settings! {
    /// A caller that is known.
    Consumer: "consumers" { id: Text, username: Text, custom_id: Text, acl_groups: Texts, credentials: Any }
    /// What it is known by.
    Credentials: "consumers/credentials" { basic_auth: Any }
    /// A key.
    KeyCredential: "consumers/credentials/key_auth" { key: Text }
    /// A password, or its hash.
    BasicCredential: "consumers/credentials/basic_auth" { password: Text, password_hash: Text }
}
