//! Every type of credential that configurations know is also known to what keeps credentials at rest.

#![allow(clippy::unwrap_used, reason = "helpers of tests may, too")]

use ferrum_edge::core::config::resolve::CREDENTIALS;
use ferrum_edge::store::seal::{Keys, seal, unseal};
use serde_json::{Value, json};

#[test]
fn a_plain_text_stands_for_the_same_thing() {
    let keys = Keys::parse(&"5a".repeat(32)).unwrap();
    let secret = "a text that is long enough for every type there is";
    for kind in CREDENTIALS {
        for name in std::iter::once(&kind.name).chain(kind.also) {
            let written = json!({"id": "ann", "username": "ann", "credentials": {*name: secret}}).to_string();
            let sealed = seal(&written, &keys).unwrap();
            let clear: Value = serde_json::from_str(&unseal(&sealed, &keys).unwrap()).unwrap();
            let credential = clear["credentials"][*name].as_object().unwrap();
            let fields: Vec<&String> = credential.keys().collect();
            if kind.name == "key_auth" {
                assert_eq!(fields, ["key_sha256"], "{name}");
                assert!(!sealed.contains(secret), "{name}");
            } else {
                assert_eq!(fields, [kind.key], "{name}");
                // An identity is no secret.
                assert_eq!(sealed.contains(secret), kind.name == "mtls_auth", "{name}");
            }
        }
    }
}
