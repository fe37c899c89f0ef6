//! The RSA key and token of RFC 7515 appendix A.2, and what must not pass in their place: other encodings of the same number,
//! other algorithms of the same key, and the public key as a secret.

use std::sync::Arc;

use super::*;

const MODULUS: &str = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";
const CLAIMS: &str =
    "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
const SIGNATURE: &str = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
const HEADER: &str = "eyJhbGciOiJSUzI1NiJ9";

fn decoded(text: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(text).expect("base64")
}

/// A key set with this key, and more about it.
fn keys(more: Value) -> Option<Arc<jwk::KeySet>> {
    let mut key = json!({ "kty": "RSA", "n": MODULUS, "e": "AQAB" });
    for (name, value) in more.as_object().expect("an object") {
        key[name] = value.clone();
    }
    jwk::KeySet::read(json!({ "keys": [key] }).to_string().as_bytes())
}

fn passes(keys: &jwk::KeySet, header: &str, signature: &[u8]) -> bool {
    let text = format!("{header}.{CLAIMS}.{}", b64(signature));
    Token::read(text.as_bytes()).is_ok_and(|token| keys.verify(&token) == Some(true))
}

#[test]
fn a_signature_of_rsa_has_one_form() {
    let keys = keys(json!({})).expect("a key");
    let good = decoded(SIGNATURE);
    assert!(passes(&keys, HEADER, &good));
    // The same number modulo the key's modulus.
    let mut sum = vec![0; good.len() + 1];
    let mut carry = 0;
    for (n, (a, b)) in good.iter().zip(decoded(MODULUS)).enumerate().rev() {
        let total = u16::from(*a) + u16::from(b) + carry;
        sum[n + 1] = total.to_le_bytes()[0];
        carry = total >> 8;
    }
    sum[0] = carry.to_le_bytes()[0];
    for (what, signature) in [
        ("nothing", Vec::new()),
        ("zeros", vec![0; good.len()]),
        ("one", [&vec![0; good.len() - 1][..], &[1]].concat()),
        ("the modulus", decoded(MODULUS)),
        ("more than the modulus", sum),
        ("a zero before", [&[0], &good[..]].concat()),
        ("a byte more", [&good[..], &[0]].concat()),
        ("a byte less", good[1..].to_vec()),
        ("twice", [&good[..], &good].concat()),
    ] {
        assert!(!passes(&keys, HEADER, &signature), "{what}");
    }
    for n in 0..good.len() {
        let mut altered = good.clone();
        altered[n] ^= 1;
        assert!(!passes(&keys, HEADER, &altered), "byte {n} altered");
    }
}

#[test]
fn a_signature_counts_for_its_algorithm_only() {
    let keys = keys(json!({})).expect("a key");
    let good = decoded(SIGNATURE);
    for name in ["RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "EdDSA", "HS256"] {
        assert!(!passes(&keys, &b64(json!({ "alg": name }).to_string()), &good), "{name}");
    }
    let secrets = [MODULUS.as_bytes().to_vec(), decoded(MODULUS)];
    for secret in secrets {
        let token = Signer::Secret(secret).raw("HS256", r#"{"alg":"HS256"}"#, "{}");
        let token = Token::read(token.as_bytes()).unwrap_or_else(|fault| panic!("{fault:?}"));
        assert_ne!(keys.verify(&token), Some(true), "the public key is no secret");
    }
}

#[test]
fn what_a_key_is_for_is_obeyed() {
    let good = decoded(SIGNATURE);
    for (more, expected) in [
        (json!({ "alg": "RS256" }), true),
        (json!({ "alg": "PS256" }), false),
        (json!({ "use": "sig" }), true),
        (json!({ "use": "enc" }), false),
        (json!({ "key_ops": ["verify"] }), true),
        (json!({ "key_ops": ["encrypt"] }), false),
        (json!({ "alg": "none" }), false),
        (json!({ "kty": "oct", "k": MODULUS }), false),
        (json!({ "e": "AQ" }), false),
        (json!({ "n": "AQAB" }), false),
    ] {
        let is_good = keys(more.clone()).is_some_and(|keys| passes(&keys, HEADER, &good));
        assert_eq!(is_good, expected, "{more}");
    }
}

/// Published vectors that are judged differently on purpose, by number, with what they are.
const DIFFERENT: [(u64, &str); 8] = [
    (346, "valid, but its key is for another algorithm"),
    (347, "valid, but its key is for an algorithm that does not exist"),
    (350, "as 346"),
    (351, "as 347"),
    (367, "invalid for padding, which is not there: the token is the valid one"),
    (370, "as 367"),
    (372, "valid, with a character that base64 does not have"),
    (373, "as 372"),
];

/// The vectors that Wycheproof publishes, where a file with them is named; see CONTRIBUTING.md.
#[test]
fn published_vectors_are_judged_alike() {
    let Some(path) = std::env::var_os("FERRUM_WYCHEPROOF") else { return };
    let text = std::fs::read_to_string(&path).expect("the file with vectors");
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let (mut judged, mut wrong) = (0, Vec::new());
    for group in document["testGroups"].as_array().expect("groups") {
        let jwk = if group["public"].is_object() { &group["public"] } else { &group["private"] };
        let secret = jwk["k"].as_str().map(|secret| Key::shared(&decoded(secret)));
        let public = jwk::KeySet::read(json!({ "keys": [jwk] }).to_string().as_bytes());
        let passes = |text: &str| {
            let Ok(token) = Token::read_any(text.as_bytes()) else { return false };
            // Of a secret the settings say which algorithms it is for.
            let is_meant = jwk["alg"].as_str().and_then(Algorithm::named) == Some(token.algorithm);
            match (&secret, &public) {
                (Some(secret), _) => is_meant && token.is_signed_with(secret),
                (None, Some(public)) => public.verify(&token) == Some(true),
                (None, None) => false,
            }
        };
        for test in group["tests"].as_array().expect("tests") {
            judged += 1;
            let is_valid = test["result"] == "valid";
            let expected = is_valid != DIFFERENT.iter().any(|(number, _)| test["tcId"] == *number);
            if passes(test["jws"].as_str().unwrap_or_default()) != expected {
                wrong.push(format!(
                    "{} {} {}: {}",
                    group["comment"], test["tcId"], test["comment"], test["result"]
                ));
            }
        }
    }
    assert!(judged > 100 && wrong.is_empty(), "{} of {judged}:\n{}", wrong.len(), wrong.join("\n"));
}
