//! The second factor of users, as a browser asks for it.

use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use ferrum_edge::core::config::model::Settings;
use serde_json::{Value, json};

use super::{ADMIN, Answer, Browser, is_problem, start, user};
use crate::client::until;
use crate::database::place::{Folder, Running};

/// Seconds of a step of RFC 6238.
const STEP: u64 = 30;

/// The current step; waits at the end of one, so that what follows is within it.
fn step() -> u64 {
    let mut seconds = 0;
    until("a step begins", || {
        seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        seconds % STEP < STEP - 8
    });
    seconds / STEP
}

/// The code of a step, computed apart from the gateway.
fn code(secret: &str, step: u64) -> String {
    let bits: Vec<u8> = secret
        .bytes()
        .flat_map(|letter| {
            let value = if letter >= b'A' { letter - b'A' } else { letter - b'2' + 26 };
            (0..5).rev().map(move |bit| value >> bit & 1)
        })
        .collect();
    let key: Vec<u8> =
        bits.chunks_exact(8).map(|byte| byte.iter().fold(0, |sum, bit| sum << 1 | bit)).collect();
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &key);
    let tag = hmac::sign(&key, &step.to_be_bytes());
    let at = usize::from(tag.as_ref()[19] & 15);
    let number = u32::from_be_bytes(tag.as_ref()[at..at + 4].try_into().unwrap()) & 0x7fff_ffff;
    format!("{:06}", number % 1_000_000)
}

impl Browser {
    fn try_code(&self, name: &str, password: &str, code: &str) -> Answer {
        let body = json!({ "name": name, "password": password, "code": code }).to_string();
        self.ask("POST", "/console/session", "content-type: application/json\r\n", &body)
    }

    fn enrol(&self, body: &Value) -> Answer {
        self.change("POST", "/console/api/v1/users/ann/totp", &body.to_string())
    }

    fn confirm(&self, code: &str) -> Answer {
        let body = json!({ "code": code }).to_string();
        self.change("POST", "/console/api/v1/users/ann/totp/confirm", &body)
    }
}

const PASSWORD: &str = "correct horse battery";

/// Ann, logged in, and her secret and recovery codes, confirmed by the code of the step before this one.
fn enrolled(browser: &Browser, step: u64) -> (Browser, String, Vec<String>) {
    let made = user(browser, "ann", "admin");
    let ann = browser.another().settled("ann", &made, PASSWORD);
    let begun = ann.enrol(&json!({ "password": PASSWORD }));
    assert_eq!(begun.0, 200, "{}", begun.1);
    let begun = begun.json();
    let secret = begun["secret"].as_str().unwrap().to_owned();
    assert!(begun["uri"].as_str().unwrap().starts_with("otpauth://totp/ferrum-edge%20"), "{begun}");
    let confirmed = ann.confirm(&code(&secret, step - 1));
    assert_eq!(confirmed.0, 200, "{}", confirmed.1);
    let codes = confirmed.json()["recovery_codes"].as_array().unwrap().clone();
    (ann, secret, codes.iter().map(|code| code.as_str().unwrap().to_owned()).collect())
}

#[test]
fn a_login_needs_a_code_once_a_user_is_enrolled() {
    let folder = Folder::new();
    let (_running, mut browser) = start(&folder);
    browser.log_in(ADMIN);
    let step = step();
    let made = user(&browser, "eve", "read");
    let other = browser.another().settled("eve", &made, "another good password");
    let (ann, secret, codes) = enrolled(&browser, step);
    assert_eq!(codes.len(), 10);
    // The session that enrolled goes on; the secret is not known to anybody else.
    assert_eq!(ann.get("/console/session").0, 200);
    is_problem(&other.confirm(&code(&secret, step)), 403, "forbidden");
    is_problem(&other.enrol(&json!({ "password": PASSWORD })), 403, "wrong_password");
    let elsewhere = browser.another();
    is_problem(&elsewhere.try_password("ann", PASSWORD), 401, "code_needed");
    is_problem(&elsewhere.try_code("ann", "not the password", &code(&secret, step)), 401, "unauthorized");
    is_problem(&elsewhere.try_code("ann", PASSWORD, &code(&secret, step - 1)), 401, "unauthorized");
    is_problem(&elsewhere.try_code("ann", PASSWORD, &code(&secret, step + 5)), 401, "unauthorized");
    let good = code(&secret, step);
    assert_eq!(elsewhere.try_code("ann", PASSWORD, &good).0, 200, "the wrong password used nothing up");
    is_problem(&elsewhere.try_code("ann", PASSWORD, &good), 401, "unauthorized");
    assert_eq!(elsewhere.try_code("ann", PASSWORD, &code(&secret, step + 1)).0, 200, "one step of drift");
    // A recovery code works once, however it is typed.
    let typed = codes[3].to_lowercase().replace('-', " ");
    assert_eq!(elsewhere.try_code("ann", PASSWORD, &typed).0, 200);
    is_problem(&elsewhere.try_code("ann", PASSWORD, &codes[3]), 401, "unauthorized");
    let users = browser.get("/console/api/v1/users").json();
    let row = &users["items"][0];
    assert_eq!((&row["totp"], &row["recovery_codes_left"]), (&json!("enrolled"), &json!(9)), "{users}");
    // No secret, code or hash is answered or noted, and the use of the recovery code is.
    let audit = browser.get("/console/api/v1/audit?kind=users&limit=1000").json();
    let last = &audit["items"][0];
    assert_eq!(last["action"], "POST /console/session", "{last}");
    assert_eq!(last["changes"][0]["after"]["recovery_codes_left"], 9, "{last}");
    for secret in [secret.as_str(), &codes[0], "v1:"] {
        assert!(!audit.to_string().contains(secret) && !users.to_string().contains(secret), "{secret}");
    }
    assert_eq!(browser.get("/console/api/v1/audit/verify").json()["valid"], true);
}

#[test]
fn enrolment_can_be_required_of_a_user_and_of_a_role() {
    let folder = Folder::new();
    let settings = Settings { admin_totp_roles: Box::from(["write"]), ..Settings::default() };
    let running = Running::with(Running::database(folder.location()), settings);
    let mut browser = Browser { at: running.admin, cookie: String::new(), csrf: String::new() };
    browser.log_in(ADMIN);
    let made = user(&browser, "ann", "write");
    let ann = browser.another().with_password("ann", &made);
    is_problem(&ann.get("/console/api/v1/proxies"), 403, "password_change_needed");
    let body = json!({ "old": made, "new": PASSWORD }).to_string();
    assert_eq!(ann.change("POST", "/console/api/v1/users/ann/password", &body).0, 204);
    let ann = browser.another().with_password("ann", PASSWORD);
    assert_eq!(ann.get("/console/session").json()["must_enrol_second_factor"], true);
    is_problem(&ann.get("/console/api/v1/proxies"), 403, "second_factor_needed");
    is_problem(&ann.get("/console/api/v1/users/anna/totp"), 403, "second_factor_needed");
    is_problem(&ann.confirm("123456"), 409, "not_pending");
    let secret = ann.enrol(&json!({ "password": PASSWORD })).json()["secret"].as_str().unwrap().to_owned();
    is_problem(&ann.confirm("000000x"), 403, "wrong_code");
    is_problem(&ann.get("/console/api/v1/proxies"), 403, "second_factor_needed");
    assert_eq!(ann.confirm(&code(&secret, step())).0, 200);
    assert_eq!(ann.get("/console/api/v1/proxies").0, 200);
    // One user of a role that needs none, with a name that browsers encode in paths.
    let (name, path) = ("eve@example.org", "/console/api/v1/users/eve%40example.org");
    let made = user(&browser, name, "read");
    let eve = browser.another().settled(name, &made, "another good password");
    assert_eq!(eve.get("/console/api/v1/proxies").0, 200);
    let required = browser.change("PATCH", path, r#"{"totp_required":true}"#);
    assert_eq!((required.0, &required.json()["totp_required"]), (200, &json!(true)));
    is_problem(&eve.get("/console/session"), 401, "no_session");
    let eve = browser.another().with_password(name, "another good password");
    is_problem(&eve.get("/console/api/v1/proxies"), 403, "second_factor_needed");
    let body = json!({ "password": "another good password" }).to_string();
    let enrolled = eve.change("POST", &format!("{path}/totp"), &body);
    assert_eq!(enrolled.0, 200, "{}", enrolled.1);
}

#[test]
fn another_administrator_removes_a_second_factor_and_a_code_replaces_it() {
    let folder = Folder::new();
    let (_running, mut browser) = start(&folder);
    browser.log_in(ADMIN);
    let step = step();
    let (ann, secret, codes) = enrolled(&browser, step);
    is_problem(&ann.change("DELETE", "/console/api/v1/users/ann/totp", ""), 403, "own_second_factor");
    // Another app needs the password and a code, and counts only once it is confirmed.
    is_problem(&ann.enrol(&json!({ "password": PASSWORD })), 403, "wrong_code");
    let next = ann.enrol(&json!({ "password": PASSWORD, "code": codes[0] }));
    let next = next.json()["secret"].as_str().unwrap().to_owned();
    assert_eq!(browser.another().try_code("ann", PASSWORD, &code(&secret, step)).0, 200);
    assert_eq!(ann.confirm(&code(&next, step)).0, 200);
    is_problem(&browser.another().try_code("ann", PASSWORD, &code(&secret, step + 1)), 401, "unauthorized");
    is_problem(&browser.another().try_code("ann", PASSWORD, &codes[1]), 401, "unauthorized");
    assert_eq!(browser.another().try_code("ann", PASSWORD, &code(&next, step + 1)).0, 200);
    assert_eq!(browser.change("DELETE", "/console/api/v1/users/ann/totp", "").0, 204);
    is_problem(&ann.get("/console/session"), 401, "no_session");
    assert_eq!(browser.another().try_password("ann", PASSWORD).0, 200);
    // Whoever comes under the name later has no second factor of the former.
    is_problem(&browser.change("DELETE", "/console/api/v1/users/bob/totp", ""), 404, "not_found");
}

#[test]
fn wrong_codes_are_slowed_down_as_wrong_passwords_are() {
    let folder = Folder::new();
    let (_running, mut browser) = start(&folder);
    browser.log_in(ADMIN);
    let step = step();
    let (_ann, secret, _) = enrolled(&browser, step);
    for _ in 0..10 {
        is_problem(&browser.another().try_code("ann", PASSWORD, "no code"), 401, "unauthorized");
    }
    is_problem(&browser.another().try_code("ann", PASSWORD, &code(&secret, step)), 429, "throttled");
}
