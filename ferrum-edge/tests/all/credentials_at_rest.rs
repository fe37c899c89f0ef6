//! Every type of credential that a plugin declares is kept as it declares.

use ferrum_edge::core::config::credential::AtRest;
use ferrum_edge::store::seal::{Keys, seal, unseal};
use serde_json::{Value, json};

#[test]
fn a_plain_text_stands_for_the_same_thing() {
    let keys = Keys::parse(&"5a".repeat(32)).unwrap();
    let secret = "a text that is long enough for every type there is";
    let types = ferrum_edge::plugins().credential_types();
    assert_eq!(types.iter().count(), 5);
    for kind in types.iter() {
        for name in std::iter::once(&kind.name).chain(kind.aliases) {
            let written = json!({"id": "ann", "username": "ann", "credentials": {*name: secret}}).to_string();
            let sealed = seal(&written, &types, &keys).unwrap();
            let clear: Value = serde_json::from_str(&unseal(&sealed, &types, &keys).unwrap()).unwrap();
            let credential = clear["credentials"][*name].as_object().unwrap();
            let fields: Vec<&String> = credential.keys().collect();
            let field = match kind.at_rest {
                AtRest::Hashed(field) => field,
                AtRest::Sealed(_) | AtRest::Clear => kind.key,
            };
            assert_eq!(fields, [field], "{name}");
            assert_eq!(sealed.contains(secret), kind.at_rest == AtRest::Clear, "{name}");
        }
    }
}
