//! Secrets of plugin configs are hidden, kept and moved as they should.

use super::*;

const DOCUMENT: &str = r#"{"id":"p","plugin_name":"x","config":{"client_id":"me","client_secret":"hush","issuers":[{"api_key":"k1"}],"token_header":"x-t"}}"#;

fn keys() -> Keys {
    Keys::parse(&"11".repeat(crate::store::seal::KEY_BYTES)).expect("a key")
}

#[test]
fn secrets_are_known_by_their_names() {
    for name in ["secret", "client_secret", "password", "bind_password", "api_key", "tokens"] {
        assert!(is_secret(name), "{name}");
    }
    for name in ["secretary", "key", "token_header", "key_location", "password_field", "xtoken"] {
        assert!(!is_secret(name), "{name}");
    }
}

#[test]
fn what_is_stored_holds_no_secret_and_opens_again() {
    let sealed = seal(DOCUMENT, None, &keys()).expect("is sealed");
    assert!(!sealed.contains("hush") && !sealed.contains("k1") && sealed.contains("x-t"), "{sealed}");
    assert_eq!(unseal(&sealed, &keys()).expect("opens"), DOCUMENT);
    assert_eq!(seal(&sealed, None, &keys()).expect("is sealed"), sealed, "sealing twice changes nothing");
    let elsewhere = sealed.replace(r#""id":"p""#, r#""id":"q""#);
    assert!(unseal(&elsewhere, &keys()).is_err(), "a secret is bound to its plugin config");
    assert!(seal(DOCUMENT, None, &Keys::default()).is_err(), "without a key nothing secret is stored");
}

#[test]
fn answers_hold_fingerprints_that_can_be_written_back() {
    let sealed = seal(DOCUMENT, None, &keys()).expect("is sealed");
    let shown = redact(&sealed).expect("is shown");
    assert!(!shown.contains("sealed") && shown.contains("fingerprint"), "{shown}");
    assert_eq!(retain(&shown, &sealed, &keys()).expect("is kept"), sealed);
    let foreign = shown.replace("fingerprint\":\"", "fingerprint\":\"0");
    assert!(retain(&foreign, &sealed, &keys()).is_err());
}

#[test]
fn headers_that_carry_keys_are_secrets() {
    let document = json!({ "id": "p", "plugin_name": "x", "config": {
        "exporter": { "headers": { "x-honeycomb-team": "hush-1", "x-scope-orgid": "hush-2" } },
        "headers": { "X-Api-Key": "hush-3", "Authorization": "Bearer hush-4", "accept": "shown-1" },
        "rules": [
            { "operation": "set", "target": "header", "key": "Authorization", "value": "Bearer hush-5" },
            { "operation": "set", "target": "header", "key": "x-note", "value": "shown-2" },
            { "operation": "set", "target": "header", "key": "x-api-key", "value": "${request.header.shown-3}" },
        ],
        "authorization": { "name": "shown-4" },
    }});
    let document = document.to_string();
    let sealed = seal(&document, None, &keys()).expect("is sealed");
    for text in [&sealed, &redact(&sealed).expect("is shown"), &redact(&document).expect("is shown")] {
        assert!(!text.contains("hush"), "{text}");
        for shown in 1..=4 {
            assert!(text.contains(&format!("shown-{shown}")), "{text}");
        }
    }
    assert_eq!(unseal(&sealed, &keys()).expect("opens"), document);
    assert_eq!(seal(&sealed, None, &keys()).expect("is sealed"), sealed, "sealing twice changes nothing");
    assert_eq!(retain(&redact(&sealed).expect("is shown"), &sealed, &keys()).expect("is kept"), sealed);
}

#[test]
fn a_kept_secret_does_not_go_to_another_server() {
    let document = |url: &str, rate: u32, secret: Value| {
        json!({ "id": "p", "plugin_name": "x", "config":
            { "introspection_url": url, "rate": rate, "client_secret": secret } })
    };
    let (home, other) = ("https://idp.example.com/i", "http://evil.example.com/");
    let stored = seal(&document(home, 1, json!("hush")).to_string(), None, &keys()).expect("is sealed");
    let kept: Value = serde_json::from_str(&stored).expect("JSON");
    let kept = kept["config"]["client_secret"].clone();
    let check = |request: Value, new: Value| {
        let new = seal(&new.to_string(), None, &keys()).expect("is sealed");
        check_binding(&request, &new, &stored, &keys())
    };
    check(json!({}), document(home, 2, kept.clone())).expect("the server is the same");
    let patch = json!({ "config": { "introspection_url": other } });
    let refused = check(patch, document(other, 1, kept.clone())).expect_err("the secret would go there");
    assert!(matches!(&refused, SealError::Moved(place) if place == "/client_secret"), "{refused}");
    assert_eq!(refused.pointer(), "/config/client_secret");
    // Who knows the secret, or has it as it is stored, may move it.
    check(json!({}), document(other, 1, json!("known"))).expect("it is a new secret");
    let whole = document(other, 1, kept.clone());
    check(whole.clone(), whole).expect("it was sent as it is stored");
    let mut renamed = document(home, 1, kept);
    renamed["plugin_name"] = json!("y");
    assert!(check(json!({}), renamed).is_err());
}

#[test]
fn documents_without_secrets_need_no_key() {
    let plain = r#"{"id":"p","plugin_name":"x","config":{"rate":1}}"#;
    assert_eq!(seal(plain, None, &Keys::default()).expect("is stored"), plain);
}

/// A transformer with a plain rule and one with a credential, in this order or the other.
fn transformer(credential: Value, is_first: bool) -> Value {
    let plain =
        json!({ "operation": "set", "target": "header", "key": "x-a", "value": "https://shown.example" });
    let secret =
        json!({ "operation": "set", "target": "header", "key": "authorization", "value": credential });
    let rules = if is_first { [secret, plain] } else { [plain, secret] };
    json!({ "id": "p", "plugin_name": "request_transformer", "config": { "rules": rules } })
}

#[test]
fn rules_with_secrets_change_places() {
    let stored = seal(&transformer(json!("HUSH"), false).to_string(), None, &keys()).expect("is sealed");
    let shown: Value = serde_json::from_str(&redact(&stored).expect("is shown")).expect("JSON");
    let mark = shown["config"]["rules"][1]["value"].clone();
    let mut request = transformer(mark, true);
    request["config"]["rules"][1]["value"] = json!("https://other.example");
    let kept = retain(&request.to_string(), &stored, &keys()).expect("is kept");
    check_binding(&request, &kept, &stored, &keys()).expect("no server gets it");
    let opened = unseal(&seal(&kept, Some(&stored), &keys()).expect("is sealed"), &keys()).expect("opens");
    let opened: Value = serde_json::from_str(&opened).expect("JSON");
    assert_eq!(opened["config"]["rules"][0]["value"], "HUSH");
    // Not to any place: another setting may be sent to somebody else.
    let elsewhere = shown.to_string().replace("\"rules\"", "\"others\"");
    assert!(retain(&elsewhere, &stored, &keys()).is_err());
}

#[test]
fn secrets_become_the_previous_ones() {
    let oidc = |config: Value| json!({ "id": "p", "plugin_name": "oidc", "config": config }).to_string();
    let stored = seal(&oidc(json!({ "session_secret": "old" })), None, &keys()).expect("is sealed");
    let shown: Value = serde_json::from_str(&redact(&stored).expect("is shown")).expect("JSON");
    let mark = &shown["config"]["session_secret"];
    let next = oidc(json!({ "session_secret": "new", "previous_session_secret": mark }));
    let kept = retain(&next, &stored, &keys()).expect("is kept");
    assert!(unseal(&kept, &keys()).expect("opens").contains(r#""previous_session_secret":"old""#));
    let sent_away = oidc(json!({ "session_secret": "new", "client_secret": mark }));
    assert!(retain(&sent_away, &stored, &keys()).is_err(), "the provider would get the sessions' secret");
}

#[test]
fn only_servers_that_get_secrets_count() {
    let check = |plugin: &str, before: Value, after: Value| {
        let document = |config| json!({ "id": "p", "plugin_name": plugin, "config": config }).to_string();
        let stored = seal(&document(before), None, &keys()).expect("is sealed");
        let kept: Value = serde_json::from_str(&redact(&stored).expect("is shown")).expect("JSON");
        let mut config = kept["config"].clone();
        for (name, value) in after.as_object().expect("settings") {
            config[name] = value.clone();
        }
        let request: Value = serde_json::from_str(&document(config)).expect("JSON");
        let new = retain(&request.to_string(), &stored, &keys()).expect("is kept");
        check_binding(&request, &new, &stored, &keys())
    };
    for (plugin, secret, name) in [
        ("csrf", "secret", "trusted_origins"),
        ("oidc", "client_secret", "redirect_uri"),
        ("oidc", "client_secret", "post_logout_redirect_uri"),
        ("oidc", "client_secret", "role_claim"),
        ("oidc", "session_secret", "issuer"),
        ("jwt_auth", "revoked_tokens", "issuer"),
        ("oauth2_introspection", "client_secret", "issuer"),
        ("oauth2_introspection", "revoked_tokens", "introspection_url"),
    ] {
        let before = json!({ secret: "hush", name: "https://a.example" });
        let checked = check(plugin, before, json!({ name: "https://b.example" }));
        assert!(checked.is_ok(), "{plugin}.{name}: {checked:?}");
    }
    for (plugin, secret, name) in [
        ("oidc", "client_secret", "issuer"),
        ("oidc", "client_secret", "discovery_url"),
        ("oauth2_introspection", "client_secret", "introspection_url"),
        ("ldap_auth", "bind_password", "servers"),
        ("some_wasm", "api_key", "whatever"),
    ] {
        let before = json!({ secret: "hush", name: "https://a.example" });
        assert!(check(plugin, before, json!({ name: "https://b.example" })).is_err(), "{plugin}.{name}");
    }
}

#[test]
fn a_reference_is_no_proof_of_knowing_the_secret() {
    let document = |url: &str, secret: &str| {
        json!({ "id": "p", "plugin_name": "oauth2_introspection", "config":
            { "introspection_url": url, "client_secret": secret } })
    };
    let stored = document("https://a.example", "${env:SECRET}");
    let stored = seal(&stored.to_string(), None, &keys()).expect("is sealed");
    let check = |new: Value| check_binding(&new, &new.to_string(), &stored, &keys());
    for secret in ["${env:SECRET}", "x${env:SECRET}"] {
        let refused = check(document("https://b.example", secret)).expect_err("would be sent elsewhere");
        assert!(matches!(&refused, SealError::Moved(_)), "{refused}");
    }
    check(document("https://b.example", "${env:OTHER}")).expect("as for a new object");
    check(document("https://a.example", "${env:SECRET}")).expect("the server is the same");
}

#[test]
fn without_a_key_what_is_stored_in_the_clear_can_be_changed() {
    let document = |is_enabled: bool, secret: &str| {
        json!({ "id": "p", "plugin_name": "otel_tracing", "enabled": is_enabled,
            "config": { "exporter": { "headers": { "x-team": secret } } } })
        .to_string()
    };
    let (stored, none) = (document(true, "hush"), Keys::default());
    let off = document(false, "hush");
    assert_eq!(seal(&off, Some(&stored), &none).expect("is stored"), off);
    assert!(matches!(seal(&document(false, "new"), Some(&stored), &none), Err(SealError::NoKey(_))));
    assert!(seal(&off, None, &none).is_err());
    assert!(!seal(&off, Some(&stored), &keys()).expect("is sealed").contains("hush"));
}

#[test]
fn names_of_claims_are_no_secrets_and_texts_beside_a_variable_are() {
    let document = json!({ "id": "p", "plugin_name": "x", "config": {
        "claims_to_headers": { "access-token": "shown-1", "access_token": "shown-2" },
        "page": "shown-3",
        "headers": {
            "x-api-key": "${request.header.shown-4}",
            "x-one-token": "hush-${request.id}",
            "x-two-token": "${request.id:-hush}",
            "x-three-token": "${request.id}hush${request.id}",
        },
    }});
    let sealed = seal(&document.to_string(), None, &keys()).expect("is sealed");
    assert!(!sealed.contains("hush"), "{sealed}");
    for shown in 1..=4 {
        assert!(sealed.contains(&format!("shown-{shown}")), "{sealed}");
    }
}

mod all_plugins;
