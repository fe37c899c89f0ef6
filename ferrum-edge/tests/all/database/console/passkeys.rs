//! Passkeys of users, as a browser with an authenticator asks for them.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::{ADMIN, Answer, Browser, is_problem, start, user};
use crate::database::place::Folder;

const PASSWORD: &str = "correct horse battery";
/// User present and verified.
const FLAGS: u8 = 5;

/// An authenticator with one passkey.
struct Authenticator {
    key: EcdsaKeyPair,
    counter: u32,
}

fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// What a browser adds to a challenge.
fn client_data(kind: &str, challenge: &Value, origin: &str) -> Vec<u8> {
    json!({ "type": kind, "challenge": challenge, "origin": origin, "crossOrigin": false })
        .to_string()
        .into_bytes()
}

impl Authenticator {
    fn new() -> Self {
        Self { key: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap(), counter: 0 }
    }

    fn data(&mut self, host: &str, flags: u8) -> Vec<u8> {
        self.counter += 1;
        [digest(&SHA256, host.as_bytes()).as_ref(), &[flags], &self.counter.to_be_bytes()].concat()
    }

    /// The body that keeps a new passkey.
    fn make(&mut self, challenge: &Value, origin: &str, host: &str) -> Value {
        let mut data = self.data(host, FLAGS | 1 << 6);
        let (x, y) = self.key.public_key().as_ref()[1..].split_at(32);
        let key = [&[0xa5, 1, 2, 3, 0x26, 0x20, 1, 0x21, 0x58, 32][..], x, &[0x22, 0x58, 32], y].concat();
        data.extend([&[0; 16][..], &[0, 7], b"the-one", &key].concat());
        let client_data = client_data("webauthn.create", challenge, origin);
        json!({ "label": "laptop", "client_data": encoded(&client_data), "authenticator_data": encoded(&data) })
    }

    /// The body of a login.
    fn log_in(&mut self, challenge: &Value, origin: &str, host: &str) -> Value {
        let (client_data, data) = (client_data("webauthn.get", challenge, origin), self.data(host, FLAGS));
        let signed = [&data[..], digest(&SHA256, &client_data).as_ref()].concat();
        let signature = self.key.sign(&SystemRandom::new(), &signed).unwrap();
        json!({ "passkey": {
            "id": encoded(b"the-one"), "client_data": encoded(&client_data),
            "authenticator_data": encoded(&data), "signature": encoded(signature.as_ref()),
        } })
    }
}

impl Browser {
    /// As a page that was opened by `localhost`.
    fn at_localhost(&self, method: &str, path: &str, body: &Value) -> Answer {
        let port = self.at.port();
        let lines = format!(
            "host: localhost:{port}\r\norigin: http://localhost:{port}\r\nsec-fetch-site: same-origin\r\n\
             content-type: application/json\r\nx-ferrum-csrf: {}\r\n",
            self.csrf
        );
        self.ask(method, path, &lines, &if body.is_null() { String::new() } else { body.to_string() })
    }

    fn origin(&self) -> String {
        format!("http://localhost:{}", self.at.port())
    }

    fn begin_passkey(&self) -> Value {
        let begun =
            self.at_localhost("POST", "/console/api/v1/users/ann/passkeys", &json!({ "password": PASSWORD }));
        assert_eq!(begun.0, 200, "{} {}", begun.1, String::from_utf8_lossy(&begun.2));
        begun.json()
    }

    fn challenge(&self) -> Value {
        let begun = self.at_localhost("POST", "/console/passkey", &Value::Null);
        assert_eq!((begun.0, &begun.json()["host"]), (200, &json!("localhost")), "{}", begun.1);
        begun.json()["challenge"].clone()
    }

    fn confirm_passkey(&self, body: &Value) -> Answer {
        self.at_localhost("POST", "/console/api/v1/users/ann/passkeys/confirm", body)
    }

    fn try_passkey(&self, body: &Value) -> Answer {
        self.at_localhost("POST", "/console/session", body)
    }
}

/// Ann, logged in, with a passkey.
fn with_passkey(browser: &Browser) -> (Browser, Authenticator) {
    let made = user(browser, "ann", "admin");
    let ann = browser.another().settled("ann", &made, PASSWORD);
    let mut own = Authenticator::new();
    let begun = ann.begin_passkey();
    assert_eq!((&begun["host"], &begun["algorithms"]), (&json!("localhost"), &json!([-7, -257])), "{begun}");
    let kept = ann.confirm_passkey(&own.make(&begun["challenge"], &ann.origin(), "localhost"));
    assert_eq!(kept.0, 201, "{} {}", kept.1, String::from_utf8_lossy(&kept.2));
    assert_eq!(kept.json()["passkeys"][0]["label"], "laptop");
    (ann, own)
}

#[test]
fn a_user_makes_a_passkey_and_logs_in_with_it_alone() {
    let folder = Folder::new();
    let (_running, mut browser) = start(&folder);
    browser.log_in(ADMIN);
    let (ann, mut own) = with_passkey(&browser);
    assert_eq!(ann.get("/console/session").0, 200, "the session that made it goes on");
    let elsewhere = browser.another();
    let login = own.log_in(&elsewhere.challenge(), &elsewhere.origin(), "localhost");
    let session = elsewhere.try_passkey(&login);
    assert_eq!((session.0, &session.json()["name"]), (200, &json!("ann")), "{}", session.1);
    assert_eq!(session.json()["role"], "admin");
    // The answer to a challenge is used once.
    is_problem(&elsewhere.try_passkey(&login), 401, "unauthorized");
    let users = browser.get("/console/api/v1/users").json();
    let passkey = &users["items"][0]["passkeys"][0];
    assert!(passkey["last_used_at"].is_string() && passkey.get("key").is_none(), "{users}");
    // A second factor that is required is the passkey.
    let required = browser.change("PATCH", "/console/api/v1/users/ann", r#"{"totp_required":true}"#);
    assert_eq!(required.0, 200, "{}", required.1);
    let again = elsewhere.try_passkey(&own.log_in(&elsewhere.challenge(), &elsewhere.origin(), "localhost"));
    assert_eq!((again.0, &again.json()["must_enrol_second_factor"]), (200, &json!(false)), "{}", again.1);
    let by_password = elsewhere.try_password("ann", PASSWORD);
    assert_eq!(by_password.json()["must_enrol_second_factor"], true);
    // An administrator removes it, which ends the user's sessions.
    let path = format!("/console/api/v1/users/ann/passkeys/{}", encoded(b"the-one"));
    assert_eq!(browser.change("DELETE", &path, "").0, 204);
    is_problem(&browser.change("DELETE", &path, ""), 404, "not_found");
    is_problem(&ann.get("/console/session"), 401, "no_session");
    let gone = elsewhere.try_passkey(&own.log_in(&elsewhere.challenge(), &elsewhere.origin(), "localhost"));
    is_problem(&gone, 401, "unauthorized");
    let audit = browser.get("/console/api/v1/audit?kind=users&limit=1000").json();
    assert!(audit.to_string().contains("laptop"), "{audit}");
    assert_eq!(browser.get("/console/api/v1/audit/verify").json()["valid"], true);
}

#[test]
fn passkeys_of_others_and_for_other_sites_log_in_nobody() {
    let folder = Folder::new();
    let (_running, mut browser) = start(&folder);
    browser.log_in(ADMIN);
    let (ann, mut own) = with_passkey(&browser);
    let elsewhere = browser.another();
    let origin = elsewhere.origin();
    let refused = |body: &Value| is_problem(&elsewhere.try_passkey(body), 401, "unauthorized");
    // Another site, another host, another purpose, a challenge that was never sent.
    refused(&own.log_in(&elsewhere.challenge(), "https://evil.example", "localhost"));
    refused(&own.log_in(&elsewhere.challenge(), "http://localhost:1", "localhost"));
    refused(&own.log_in(&elsewhere.challenge(), &origin, "evil.example"));
    refused(&own.log_in(&ann.begin_passkey()["challenge"], &origin, "localhost"));
    refused(&own.log_in(&json!(encoded(&[7; 56])), &origin, "localhost"));
    // The key of another device.
    let mut other = Authenticator::new();
    other.counter = 100;
    refused(&other.log_in(&elsewhere.challenge(), &origin, "localhost"));
    // None of these has used anything up, and a counter that goes back is refused.
    let good = elsewhere.try_passkey(&own.log_in(&elsewhere.challenge(), &origin, "localhost"));
    assert_eq!(good.0, 200, "{}", good.1);
    own.counter -= 1;
    refused(&own.log_in(&elsewhere.challenge(), &origin, "localhost"));
    // Browsers have no passkeys for addresses.
    let by_address = elsewhere.ask("POST", "/console/passkey", "sec-fetch-site: same-origin\r\n", "");
    is_problem(&by_address, 422, "no_passkeys");
    assert_eq!(elsewhere.get("/console/login").json()["passkeys"], false);
    let foreign = format!("host: localhost:{}\r\nsec-fetch-site: cross-site\r\n", elsewhere.at.port());
    is_problem(&elsewhere.ask("POST", "/console/passkey", &foreign, ""), 403, "foreign_site");
}

#[test]
fn a_passkey_is_made_by_its_user_with_the_password_and_a_challenge_of_its_own() {
    let folder = Folder::new();
    let (_running, mut browser) = start(&folder);
    browser.log_in(ADMIN);
    let (ann, mut own) = with_passkey(&browser);
    let made = user(&browser, "eve", "write");
    let eve = browser.another().settled("eve", &made, "another good password");
    let path = "/console/api/v1/users/ann/passkeys";
    let wrong = ann.at_localhost("POST", path, &json!({ "password": "not the password" }));
    is_problem(&wrong, 403, "wrong_password");
    is_problem(&eve.at_localhost("POST", path, &json!({ "password": PASSWORD })), 403, "wrong_password");
    // What ann was sent is for ann alone.
    let begun = ann.begin_passkey();
    assert_eq!(begun["exclude"], json!([encoded(b"the-one")]));
    let body = Authenticator::new().make(&begun["challenge"], &ann.origin(), "localhost");
    is_problem(&eve.confirm_passkey(&body), 403, "forbidden");
    let foreign = eve.at_localhost("POST", "/console/api/v1/users/eve/passkeys/confirm", &body);
    is_problem(&foreign, 403, "wrong_passkey");
    // A challenge of a login makes none, and one id is one passkey.
    let login = Authenticator::new().make(&ann.challenge(), &ann.origin(), "localhost");
    is_problem(&ann.confirm_passkey(&login), 403, "wrong_passkey");
    is_problem(
        &ann.confirm_passkey(&own.make(&begun["challenge"], &ann.origin(), "localhost")),
        409,
        "exists",
    );
    is_problem(&ann.confirm_passkey(&body), 403, "wrong_passkey");
    // Others remove it only as administrators; its user does.
    let one = format!("{path}/{}", encoded(b"the-one"));
    is_problem(&eve.change("DELETE", &one, ""), 403, "forbidden");
    assert_eq!(ann.at_localhost("DELETE", &one, &Value::Null).0, 204);
    assert_eq!(ann.get("/console/session").0, 200);
}
