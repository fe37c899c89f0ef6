//! What is at rest, and what of it can be had back.

use serde_json::{Value, json};

use super::*;

const OLD: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const NEW: &str = "8J+mgPCfpoDwn6aA8J+mgPCfpoDwn6aA8J+mgPCfpoA=";

fn types() -> CredentialTypes {
    crate::plugins().credential_types()
}

fn keys(text: &str) -> Keys {
    Keys::parse(text).unwrap()
}

fn ann(credentials: Value) -> String {
    json!({"id": "ann", "username": "ann", "credentials": credentials}).to_string()
}

fn credentials(document: &str) -> Value {
    serde_json::from_str::<Value>(document).unwrap()["credentials"].take()
}

#[test]
fn a_key_is_kept_as_its_hash() {
    let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    for written in [json!("secret"), json!({"key": "secret"}), json!({"key_sha256": hash.to_uppercase()})] {
        let sealed = seal(&ann(json!({"keyauth": [written]})), &types(), &Keys::default()).unwrap();
        assert_eq!(credentials(&sealed), json!({"keyauth": [{"key_sha256": hash}]}));
        assert_eq!(unseal(&sealed, &types(), &Keys::default()).unwrap(), sealed);
    }
}

#[test]
fn what_could_be_a_secret_under_a_wrong_name_is_refused() {
    for wrong in [json!({"kye": "s"}), json!({"key": "s", "note": "s"}), json!({"key_sha256": "s"})] {
        let refused = seal(&ann(json!({"key_auth": ["k", wrong]})), &types(), &keys(OLD));
        let Err(error @ SealError::Credential { .. }) = refused else { panic!("{wrong}: {refused:?}") };
        let told = "`key_auth[1]` has neither `key` alone nor `key_sha256` alone, so it is no credential of this type";
        assert_eq!(error.to_string(), told, "{wrong}");
    }
    let number = seal(&ann(json!({"key_auth": 7})), &types(), &keys(OLD));
    assert!(matches!(number, Err(SealError::Document(_) | SealError::Credential { .. })), "{number:?}");
}

#[test]
fn what_a_scheme_needs_in_clear_comes_back() {
    let written = json!({
        "basic_auth": {"password": "pa\"ss"}, "jwt": ["s".repeat(32)], "hmac_auth": "h",
        "mtls_auth": {"identity": "CN=ann"}, "new_scheme": {"pin": "1234"},
    });
    let sealed = seal(&ann(written), &types(), &keys(OLD)).unwrap();
    for secret in ["pa", "ssss", "1234", "\"h\""] {
        assert!(!sealed.contains(secret), "{secret}: {sealed}");
    }
    let clear = unseal(&sealed, &types(), &keys(OLD)).unwrap();
    let expected = json!({
        "basic_auth": {"password": "pa\"ss"}, "jwt": [{"secret": "s".repeat(32)}], "hmac_auth": {"secret": "h"},
        "mtls_auth": {"identity": "CN=ann"}, "new_scheme": {"pin": "1234"},
    });
    assert_eq!(credentials(&clear), expected);
}

#[test]
fn without_a_key_nothing_that_needs_one_is_kept() {
    for (name, value) in [("basic_auth", json!("p")), ("jwt", json!([{"secret": "s"}])), ("odd", json!("x"))]
    {
        let Err(SealError::NoKey(of)) = seal(&ann(json!({name: value})), &types(), &Keys::default()) else {
            panic!()
        };
        assert_eq!(of, name);
    }
    let hashed = json!({"basic_auth": {"password_hash": "$2b$12$x"}, "mtls_auth": "CN=ann"});
    seal(&ann(hashed), &types(), &Keys::default()).unwrap();
    let both = json!({"basic_auth": {"password_hash": "$2b$12$x", "password": "p"}});
    assert!(matches!(seal(&ann(both), &types(), &Keys::default()), Err(SealError::NoKey(_))));
}

#[test]
fn the_same_again_is_the_same_text() {
    let document = ann(json!({"basic_auth": "p", "key_auth": ["k"]}));
    let once = seal(&document, &types(), &keys(OLD)).unwrap();
    assert_eq!(seal(&document, &types(), &keys(OLD)).unwrap(), once);
    assert_eq!(seal(&once, &types(), &keys(OLD)).unwrap(), once);
    // Another's same password looks like any other.
    let other = seal(&document.replace("ann", "bob"), &types(), &keys(OLD)).unwrap();
    assert_ne!(credentials(&other)["basic_auth"], credentials(&once)["basic_auth"]);
}

#[test]
fn keys_are_changed_one_after_the_other() {
    let old = seal(&ann(json!({"basic_auth": "p"})), &types(), &keys(OLD)).unwrap();
    let both = keys(&format!("{NEW},\n{OLD}"));
    assert_eq!(
        credentials(&unseal(&old, &types(), &both).unwrap()),
        json!({"basic_auth": {"password": "p"}})
    );
    let new = seal(&old, &types(), &both).unwrap();
    assert_ne!(new, old);
    assert_eq!(
        credentials(&unseal(&new, &types(), &keys(NEW)).unwrap()),
        json!({"basic_auth": {"password": "p"}})
    );
    let Err(SealError::Shut { cause, .. }) = unseal(&new, &types(), &keys(OLD)) else { panic!() };
    assert!(cause.contains("key"), "{cause}");
}

#[test]
fn what_was_moved_or_changed_stays_shut() {
    let sealed = seal(&ann(json!({"basic_auth": "p"})), &types(), &keys(OLD)).unwrap();
    let text = credentials(&sealed)["basic_auth"]["sealed"].as_str().unwrap().to_owned();
    let other = text.chars().rev().nth(9).unwrap();
    let changed = {
        let mut letters: Vec<char> = text.chars().collect();
        let at = letters.len() - 10;
        letters[at] = if other == 'A' { 'B' } else { 'A' };
        letters.into_iter().collect::<String>()
    };
    let hostile = [
        sealed.replace("\"id\":\"ann\"", "\"id\":\"bob\""),
        sealed.replace("basic_auth", "jwt_auth"),
        sealed.replace(&text, &changed),
        sealed.replace(&text, "v1:"),
        sealed.replace(&text, "v2:x:y"),
        sealed.replace(&text, text.split_at(20).0),
        ann(json!({"basic_auth": {"sealed": 7}})),
        ann(json!({"basic_auth": {"sealed": text, "password": "mine"}})),
    ];
    for document in hostile {
        assert_ne!(document, sealed);
        for result in [
            unseal(&document, &types(), &keys(OLD)).map(drop),
            seal(&document, &types(), &keys(OLD)).map(drop),
        ] {
            let Err(error) = result else { panic!("{document}") };
            assert!(matches!(error, SealError::Shut { .. }), "{error}");
        }
    }
}

#[test]
fn another_spelling_of_the_type_is_the_same_type() {
    let sealed = seal(&ann(json!({"basicauth": "p"})), &types(), &keys(OLD))
        .unwrap()
        .replace("basicauth", "basic_auth");
    assert_eq!(
        credentials(&unseal(&sealed, &types(), &keys(OLD)).unwrap()),
        json!({"basic_auth": {"password": "p"}})
    );
}

#[test]
fn what_is_shown_says_nothing_and_can_be_written_back() {
    let written = json!({"key_auth": ["first", "second"], "basic_auth": "p", "mtls_auth": "CN=ann"});
    let stored = seal(&ann(written), &types(), &keys(OLD)).unwrap();
    let shown = redact(&stored).unwrap();
    for secret in ["first", "sealed", "sha256", "CN=", "password"] {
        assert!(!shown.contains(secret), "{secret}: {shown}");
    }
    let marks = credentials(&shown);
    assert_ne!(marks["key_auth"][0]["fingerprint"], marks["key_auth"][1]["fingerprint"]);
    assert_eq!(retain(&shown, &stored, &types()).unwrap(), stored);
    // One is taken away, one is added, the username changes.
    let mut edited: Value = serde_json::from_str(&shown).unwrap();
    edited["username"] = json!("anna");
    edited["credentials"]["key_auth"][0] = json!("third");
    let edited =
        seal(&retain(&edited.to_string(), &stored, &types()).unwrap(), &types(), &keys(OLD)).unwrap();
    let (now, before) = (credentials(&edited), credentials(&stored));
    assert_eq!(now["key_auth"][1], before["key_auth"][1]);
    assert_eq!(now["basic_auth"], before["basic_auth"]);
    assert_ne!(now["key_auth"][0], before["key_auth"][0]);
    let stranger = ann(json!({"key_auth": {"fingerprint": "000000000000"}}));
    assert!(retain(&stranger, &stored, &types()).is_err());
}

#[test]
fn what_is_no_consumer_is_never_shown() {
    for document in ["", "[]", "{}", r#"{"id":7}"#, r#"{"id":"a","credentials":"secret"}"#] {
        assert!(redact(document).is_err(), "{document}");
        assert!(seal(document, &types(), &keys(OLD)).is_err(), "{document}");
    }
    assert_eq!(redact(r#"{"id":"a"}"#).unwrap(), r#"{"id":"a"}"#);
}

#[test]
fn keys_that_are_none_are_refused_without_being_repeated() {
    for wrong in ["short", OLD.split_at(1).1, &format!("{OLD} {}", "g".repeat(64))] {
        let error = Keys::parse(wrong).unwrap_err();
        assert!(!error.to_string().contains(wrong.split(' ').next_back().unwrap()), "{error}");
    }
    assert!(matches!(Keys::parse(" \n"), Err(SealError::Keys(0))));
    assert!(matches!(Keys::parse(&format!("{OLD} ").repeat(MAX_KEYS + 1)), Err(SealError::Keys(17))));
    assert!(!format!("{:?}", keys(OLD)).contains("0001"));
}

#[test]
fn keys_come_from_the_environment_or_a_file() {
    let path = std::env::temp_dir().join(format!("ferrum-keys-{}", std::process::id()));
    std::fs::write(&path, format!("{NEW}\n{OLD}\n")).unwrap();
    let file = path.display().to_string();
    let from = |name: &'static str, value: String| {
        Keys::from_environment(move |asked| (asked == name).then(|| value.clone()))
    };
    let keys = from("FERRUM_DB_ENCRYPTION_KEY_FILE", file).unwrap();
    std::fs::remove_file(path).unwrap();
    let sealed = seal(&ann(json!({"basic_auth": "p"})), &types(), &keys).unwrap();
    let first = from("FERRUM_DB_ENCRYPTION_KEY", NEW.to_owned()).unwrap();
    unseal(&sealed, &types(), &first).unwrap();
    assert!(from("FERRUM_DB_ENCRYPTION_KEY", " ".to_owned()).unwrap().is_empty());
    assert!(matches!(
        from("FERRUM_DB_ENCRYPTION_KEY_FILE", "/nowhere/key".to_owned()),
        Err(SealError::File(_))
    ));
}
