//! Consumers and their credentials.

use super::settings::{Any, List, OneOrList, Text, Texts, settings};

settings! {
    /// A caller that is known.
    Consumer: "consumers" { id: Text, username: Text, custom_id: Text, acl_groups: Texts, credentials: Any }
    /// What it is known by.
    Credentials: "consumers/credentials" {
        key_auth: List<KeyCredential>, basic_auth: OneOrList<BasicCredential>, jwt_auth: List<JwtCredential>,
        hmac_auth: List<HmacCredential>,
    }
    /// A key.
    KeyCredential: "consumers/credentials/key_auth" { key: Text }
    /// A password, or its hash.
    BasicCredential: "consumers/credentials/basic_auth" { password: Text, password_hash: Text }
    /// What its tokens are signed with.
    JwtCredential: "consumers/credentials/jwt_auth" { public_key: Text, secret: Text }
    /// What its requests are signed with.
    HmacCredential: "consumers/credentials/hmac_auth" { secret: Text }
}
