//! Reading, verifying and judging tokens.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};

use super::testing::{Signer, b64};
use super::*;

mod vectors;

fn object(value: Value) -> Map<String, Value> {
    value.as_object().cloned().expect("an object")
}

/// A header with so many fields beside its algorithm.
fn many_fields(count: usize) -> String {
    let fields: String = (0..count).map(|n| format!(",\"x{n}\":{n}")).collect();
    format!("{{\"alg\":\"HS256\"{fields}}}")
}

#[test]
fn every_algorithm_is_verified_with_its_key_and_no_other() {
    let secret =
        || Signer::Secret(b"a secret that is long enough for the longest of the three hashes".to_vec());
    let signers = [
        (vec!["HS256", "HS384", "HS512"], secret()),
        (vec!["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"], Signer::rsa()),
        (vec!["ES256"], Signer::ec("ES256")),
        (vec!["ES384"], Signer::ec("ES384")),
        (vec!["ES512"], Signer::ec("ES512")),
        (vec!["EdDSA"], Signer::ed()),
    ];
    let key = |signer: &Signer| match signer {
        Signer::Secret(secret) => Key::shared(secret),
        signer => Key::pem(&signer.pem()).expect("a key"),
    };
    for (n, (algorithms, signer)) in signers.iter().enumerate() {
        for algorithm in algorithms {
            let text = signer.token(algorithm, &json!({ "sub": "a" }));
            let token = Token::read(text.as_bytes()).unwrap_or_else(|fault| panic!("{algorithm}: {fault:?}"));
            for (other, (_, owner)) in signers.iter().enumerate() {
                assert_eq!(token.is_signed_with(&key(owner)), other == n, "{algorithm} with key {other}");
            }
            let wrong = signer.token(algorithm, &json!({ "sub": "b" }));
            let (head, _) = wrong.rsplit_once('.').expect("parts");
            let (_, signature) = text.rsplit_once('.').expect("parts");
            let forged = format!("{head}.{signature}");
            let forged = Token::read(forged.as_bytes()).unwrap_or_else(|fault| panic!("{fault:?}"));
            assert!(!forged.is_signed_with(&key(signer)), "{algorithm}: a signature of something else");
        }
    }
}

#[test]
fn a_short_secret_is_not_used_with_a_long_hash() {
    let secret = b"only long enough for HS256, isn't it".to_vec();
    let signer = Signer::Secret(secret.clone());
    for (algorithm, fits) in [("HS256", true), ("HS384", false), ("HS512", false)] {
        let text = signer.token(algorithm, &json!({}));
        let token = Token::read(text.as_bytes()).unwrap_or_else(|fault| panic!("{fault:?}"));
        assert_eq!(token.is_signed_with(&Key::shared(&secret)), fits, "{algorithm}");
    }
}

#[test]
fn zero_and_odd_signatures_of_elliptic_curves() {
    let signer = Signer::ec("ES256");
    let key = Key::pem(&signer.pem()).expect("a key");
    let signed = format!("{}.{}", b64(r#"{"alg":"ES256"}"#), b64("{}"));
    for signature in [vec![], vec![0; 64], vec![0; 63], vec![0; 65], vec![255; 64]] {
        let text = format!("{signed}.{}", b64(&signature));
        let token = Token::read(text.as_bytes()).unwrap_or_else(|fault| panic!("{fault:?}"));
        assert!(!token.is_signed_with(&key), "{} bytes", signature.len());
    }
}

#[test]
fn tokens_that_can_be_read_in_two_ways_are_not_read() {
    let signer = Signer::Secret(vec![b's'; 64]);
    let header = r#"{"alg":"HS256"}"#;
    let good = signer.raw("HS256", header, r#"{"sub":"a"}"#);
    assert!(Token::read(good.as_bytes()).is_ok());
    let refused = [
        signer.raw("HS256", header, r#"{"sub":"a","sub":"b"}"#),
        signer.raw("HS256", header, r#"{"x":[{"a":1,"a":2}]}"#),
        signer.raw("HS256", header, r#"{"sub":"a"} {}"#),
        signer.raw("HS256", header, "[]"),
        signer.raw("HS256", r#"{"alg":"none","alg":"HS256"}"#, "{}"),
        signer.raw("HS256", r#"{"alg":["HS256"]}"#, "{}"),
        signer.raw("HS256", r#"{}"#, "{}"),
        signer.raw("HS256", r#"{"alg":"HS256","kid":7}"#, "{}"),
        signer.raw("HS256", &json!({"alg": "HS256", "kid": "k".repeat(300)}).to_string(), "{}"),
        signer.raw("HS256", r#"{"alg":"HS256","typ":"logout+jwt"}"#, "{}"),
        signer.raw("HS256", r#"{"alg":"HS256","typ":7}"#, "{}"),
        signer.raw("HS256", r#"{"alg":"HS256","\u0061lg":"HS256"}"#, "{}"),
        signer.raw("HS256", r#"{"alg":"HS256","x":{"y":1,"y":2}}"#, "{}"),
        signer.raw("HS256", r#"{"alg":"HS256","\u0063rit":["exp"]}"#, "{}"),
        signer.raw("HS256", &many_fields(32), "{}"),
        signer.raw("HS256", r#"{"alg":"HS256"}1"#, "{}"),
        signer.raw("HS256", r#"{"alg":"HS256","crit":["exp"]}"#, "{}"),
        signer.raw("HS256", r#"{"alg":"HS256","b64":false}"#, "{}"),
        signer.raw("HS256", r#"{"alg":"HS256","jwk":{"kty":"oct","k":"c3M"}}"#, "{}"),
        signer.raw("HS256", r#"{"alg":"HS256","jku":"https://evil.test/keys"}"#, "{}"),
        signer.raw("HS256", r#"{"alg":"HS256","x5u":"https://evil.test/cert"}"#, "{}"),
        signer.raw("HS256", r#"{"alg":"HS256","x5c":["MIIB"]}"#, "{}"),
        signer.raw("HS256", header, &json!({ "long": "x".repeat(token::MAX_TOKEN) }).to_string()),
        signer.raw("HS256", header, &format!("{}1{}", "[".repeat(500), "]".repeat(500))),
        format!("{good}="),
        format!("{good}.extra"),
        good.replace('.', ""),
        format!(" {good}"),
        String::new(),
        "..".to_owned(),
        "\u{e9}.a.b".to_owned(),
    ];
    for text in &refused {
        assert_eq!(Token::read(text.as_bytes()).err(), Some(TokenError::Malformed), "{text}");
    }
}

#[test]
fn base64_that_is_not_canonical() {
    let signer = Signer::Secret(vec![b's'; 64]);
    let good = signer.raw("HS256", r#"{"alg":"HS256"}"#, r#"{"sub":"a"}"#);
    // 32 bytes are 43 digits; the last holds two bits that must be zero.
    let last = good.chars().last().expect("a digit");
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let at = alphabet.find(last).expect("a digit");
    let twin = alphabet.chars().nth(at + 1).expect("its twin");
    let altered = format!("{}{twin}", good.strip_suffix(last).expect("a digit"));
    assert_eq!(Token::read(altered.as_bytes()).err(), Some(TokenError::Malformed));
    let standard = good.replace(['-', '_'], "+");
    let padded = good.replacen('.', "=.", 1);
    assert!(standard == good || Token::read(standard.as_bytes()).is_err());
    assert!(Token::read(padded.as_bytes()).is_err());
}

#[test]
fn unknown_algorithms_and_none() {
    for name in ["none", "None", "NONE", "", "hs256", "RS256 ", "HS1", "ES256K"] {
        let text = format!("{}.{}.", b64(json!({ "alg": name }).to_string()), b64("{}"));
        assert_eq!(Token::read(text.as_bytes()).err(), Some(TokenError::Algorithm), "{name}");
    }
}

#[test]
fn claims_are_judged_by_the_second() {
    let rules = Rules {
        issuers: vec!["i".into(), "j".into()],
        audiences: vec!["a".into(), "b".into()],
        claims: Vec::new(),
        leeway: 10,
        requires_expiry: true,
    };
    let with = |more: Value| {
        let mut all = object(json!({ "iss": "i", "aud": "a", "exp": 1000 }));
        all.extend(object(more));
        all.retain(|_, value| !value.is_null());
        all
    };
    for (more, now, expected) in [
        (json!({}), 1009, Ok(1010)),
        (json!({}), 1010, Err(TokenError::Expired)),
        (json!({ "exp": 1000.9 }), 1009, Ok(1010)),
        (json!({ "exp": -5 }), 1009, Err(TokenError::Expired)),
        (json!({ "exp": "1000" }), 0, Err(TokenError::Malformed)),
        (json!({ "exp": null }), 0, Err(TokenError::Claim)),
        (json!({ "exp": u64::MAX }), 5, Ok(u64::MAX)),
        (json!({ "nbf": 500 }), 490, Ok(1010)),
        (json!({ "nbf": 500 }), 489, Err(TokenError::NotYetValid)),
        (json!({ "nbf": [] }), 600, Err(TokenError::Malformed)),
        (json!({ "iss": "j" }), 0, Ok(1010)),
        (json!({ "iss": "k" }), 0, Err(TokenError::Issuer)),
        (json!({ "iss": ["i"] }), 0, Err(TokenError::Issuer)),
        (json!({ "iss": null }), 0, Err(TokenError::Issuer)),
        (json!({ "aud": ["x", "b"] }), 0, Ok(1010)),
        (json!({ "aud": ["x"] }), 0, Err(TokenError::Audience)),
        (json!({ "aud": null }), 0, Err(TokenError::Audience)),
        (json!({ "aud": {"a": "a"} }), 0, Err(TokenError::Audience)),
    ] {
        assert_eq!(rules.judge(&with(more.clone()), now), expected, "{more} at {now}");
    }
    let lax = Rules { requires_expiry: false, ..Rules::default() };
    assert_eq!(lax.judge(&Map::new(), 5), Ok(claims::NEVER));
}

#[test]
fn claims_are_found_by_name_and_by_path() {
    let all = object(json!({ "a": { "b": { "c": 1 } }, "https://x.test/r": 2, "a.b": 3,
        "https://x.test/app.roles": { "shop.admin": { "since": 4 } } }));
    assert_eq!(claims::find(&all, "a.b.c"), Some(&json!(1)));
    assert_eq!(claims::find(&all, "https://x.test/r"), Some(&json!(2)));
    assert_eq!(claims::find(&all, "a.b"), Some(&json!(3)));
    assert_eq!(claims::find(&all, "https://x.test/app.roles.shop.admin.since"), Some(&json!(4)));
    assert_eq!(claims::find(&all, "https://x.test/app.roles.shop"), None);
    assert_eq!(claims::find(&all, "a.x"), None);
}

/// The keys and tokens of RFC 7515 appendices A.1 and A.3, with the signature's values that must not pass.
#[test]
fn the_tokens_of_rfc_7515() {
    const CLAIMS: &str =
        "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    let secret = URL_SAFE_NO_PAD
        .decode("AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow")
        .expect("base64");
    let hs = format!(
        "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.{CLAIMS}.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    );
    let token = Token::read(hs.as_bytes()).unwrap_or_else(|fault| panic!("{fault:?}"));
    assert!(token.is_signed_with(&Key::shared(&secret)));
    let keys = jwk::KeySet::read(
        br#"{"keys":[{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
            "y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}"#,
    )
    .expect("a key");
    let good = URL_SAFE_NO_PAD
        .decode("DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q")
        .expect("base64");
    let passes = |signature: &[u8]| {
        let text = format!("eyJhbGciOiJFUzI1NiJ9.{CLAIMS}.{}", b64(signature));
        Token::read(text.as_bytes()).is_ok_and(|token| keys.verify(&token) == Some(true))
    };
    assert!(passes(&good));
    let (r, s) = good.split_at(32);
    let zero = [0; 32];
    // The order of the curve, which stands for zero.
    let order = URL_SAFE_NO_PAD.decode("_____wAAAAD__________7zm-q2nF56E87nKwvxjJVE").expect("base64");
    let der = [&[0x30, 0x45, 0x02, 0x20], r, &[0x02, 0x21, 0x00], s].concat();
    for (what, signature) in [
        ("nothing", Vec::new()),
        ("zeros", [zero, zero].concat()),
        ("r of zero", [&zero, s].concat()),
        ("s of zero", [r, &zero].concat()),
        ("the order twice", [&order[..], &order].concat()),
        ("r of the order", [&order, s].concat()),
        ("ones", vec![255; 64]),
        ("swapped", [s, r].concat()),
        ("ASN.1", der),
        ("half of it", r.to_vec()),
        ("a byte more", [&good[..], &[0]].concat()),
        ("a zero before", [&[0], &good[..]].concat()),
    ] {
        assert!(!passes(&signature), "{what}");
    }
}
