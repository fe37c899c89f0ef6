//! Who may, and who may not.

use super::*;

const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn access() -> Access {
    let mut access = Access::default();
    access.add_token("a-static-admin-token", Role::Admin).unwrap();
    access.add_token("a-static-read-token", Role::Read).unwrap();
    access.set_jwt(SECRET, None).unwrap();
    access
}

fn jwt(header: &str, claims: &str, secret: &str) -> String {
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes()));
    format!("{signed}.{signature}")
}

fn caller(access: &Access, authorization: &str) -> Result<Caller, &'static str> {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, authorization.parse().unwrap());
    access.caller(&headers)
}

#[test]
fn static_tokens_have_their_roles() {
    let access = access();
    assert_eq!(caller(&access, "Bearer a-static-admin-token").unwrap().role, Role::Admin);
    let reader = caller(&access, "bearer a-static-read-token").unwrap();
    assert_eq!(reader.role, Role::Read);
    assert_eq!(reader.role, Role::Read);
}

#[test]
fn what_is_no_token_is_nobody() {
    let access = access();
    let long = format!("Bearer {}", "x".repeat(MAX_BEARER_BYTES + 1));
    for bad in [
        "Bearer a-static-admin-toke",
        "Basic a-static-admin-token",
        "Bearer",
        "Bearer ",
        "Bearer a.b.c",
        &long,
    ] {
        assert!(caller(&access, bad).is_err(), "{bad}");
    }
    assert!(access.caller(&HeaderMap::new()).is_err());
    assert!(caller(&Access::default(), "Bearer ").is_err(), "nobody may, until somebody is added");
}

#[test]
fn signed_tokens_tell_who_and_what() {
    let access = access();
    let hs256 = r#"{"alg":"HS256","typ":"JWT"}"#;
    let good = r#"{"sub":"ann","exp":4102444800,"role":"write"}"#;
    let caller_of = |token: String| caller(&access, &format!("Bearer {token}"));
    let ann = caller_of(jwt(hs256, good, SECRET)).unwrap();
    assert_eq!(
        ann,
        Caller { name: "ann".into(), role: Role::Write, source: "admin-api", is_person: true, grants: None }
    );
    for (header, claims, secret) in [
        (hs256, good, "another secret of enough bytes 123"),
        (r#"{"alg":"none"}"#, good, SECRET),
        (r#"{"alg":"HS512"}"#, good, SECRET),
        (r#"{"alg":"HS256","crit":["x"]}"#, good, SECRET),
        (hs256, r#"{"sub":"ann","exp":1,"role":"write"}"#, SECRET),
        (hs256, r#"{"sub":"ann","exp":4102444800,"nbf":4102444000,"role":"write"}"#, SECRET),
        (hs256, r#"{"sub":"ann","role":"write"}"#, SECRET),
        (hs256, r#"{"sub":"ann","exp":4102444800,"role":"root"}"#, SECRET),
        (hs256, r#"{"sub":"ann","exp":-1.5,"role":"write"}"#, SECRET),
        (hs256, r#"{"sub":"ann","exp":"4102444800","role":"write"}"#, SECRET),
        (hs256, r#"{"sub":"ann","exp":99.5,"role":"write"}"#, SECRET),
        (hs256, r#"{"sub":"ann","exp":4102444800}"#, SECRET),
    ] {
        assert!(caller_of(jwt(header, claims, secret)).is_err(), "{header} {claims}");
    }
    // Python's `time.time() + 60` has a fraction (RFC 7519 §2), and what is missing is named.
    let fraction = r#"{"sub":"ann","exp":4102444800.18,"nbf":1.5,"role":"write"}"#;
    assert_eq!(caller_of(jwt(hs256, fraction, SECRET)).unwrap(), ann);
    for (claims, told) in [
        (r#"{"exp":4102444800,"role":"write"}"#, "lacks `sub`"),
        (r#"{"sub":"","exp":4102444800,"role":"write"}"#, "lacks `sub`"),
        (r#"{"sub":" ","exp":4102444800,"role":"write"}"#, "lacks `sub`"),
        (r#"{"sub":"ann","role":"write"}"#, "lacks `exp`"),
        (r#"{"sub":"ann","exp":4102444800}"#, "lacks `role`"),
        (r#"{"sub":"ann","exp":"soon","role":"write"}"#, "of another kind"),
    ] {
        let refused = caller_of(jwt(hs256, claims, SECRET)).unwrap_err();
        assert!(refused.to_string().contains(told), "{claims}: {refused}");
    }
    // Without the signature.
    let token = jwt(hs256, good, SECRET);
    assert!(caller_of(token.rsplit_once('.').unwrap().0.to_owned() + ".").is_err());
}

#[test]
fn an_issuer_has_to_be_the_right_one() {
    let mut access = Access::default();
    access.set_jwt(SECRET, Some("edge".to_owned())).unwrap();
    let token = |claims| format!("Bearer {}", jwt(r#"{"alg":"HS256"}"#, claims, SECRET));
    assert!(caller(&access, &token(r#"{"sub":"a","exp":4102444800,"role":"read","iss":"edge"}"#)).is_ok());
    assert!(caller(&access, &token(r#"{"sub":"a","exp":4102444800,"role":"read","iss":"other"}"#)).is_err());
    assert!(caller(&access, &token(r#"{"sub":"a","exp":4102444800,"role":"read"}"#)).is_err());
}

#[test]
fn short_secrets_are_refused() {
    assert!(Access::default().add_token("short", Role::Read).is_err());
    assert!(Access::default().set_jwt("0123456789", None).is_err());
}
