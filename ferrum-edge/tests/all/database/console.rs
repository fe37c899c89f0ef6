//! The console as a browser asks it, and as a page of another site makes a browser ask it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use ferrum_edge::core::config::model::Settings;
use ferrum_edge::store::Engine;
use serde_json::{Value, json};

use crate::client::{target, until};
use crate::database::peers::{self, database};
use crate::database::place::{ADMIN, Folder, READ, Running, WRITE, proxy};
use crate::servers::shared;

mod passkeys;
mod provider;
mod second_factor;

/// An answer: its status, the lines of its head in lower case, and its body.
struct Answer(u16, String, Vec<u8>);

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.1.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.2).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&self.2)))
    }
}

struct Browser {
    at: SocketAddr,
    cookie: String,
    csrf: String,
}

impl Browser {
    /// Sends a request with these further lines of the head.
    fn ask(&self, method: &str, path: &str, lines: &str, body: &str) -> Answer {
        let mut connection = TcpStream::connect(self.at).unwrap();
        let host = if lines.contains("host: ") { String::new() } else { format!("host: {}\r\n", self.at) };
        let cookie =
            if self.cookie.is_empty() { String::new() } else { format!("cookie: {}\r\n", self.cookie) };
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\n{host}{cookie}{lines}content-length: {length}\r\nconnection: close\r\n\r\n"
        );
        connection.write_all((head + body).as_bytes()).unwrap();
        let mut bytes = Vec::new();
        drop(connection.read_to_end(&mut bytes));
        let end = bytes.windows(4).position(|part| part == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer(status, head, bytes[end + 4..].to_vec())
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "sec-fetch-site: same-origin\r\n", "")
    }

    fn change(&self, method: &str, path: &str, body: &str) -> Answer {
        let lines = format!(
            "origin: http://{}\r\nsec-fetch-site: same-origin\r\nx-ferrum-csrf: {}\r\n",
            self.at, self.csrf
        );
        self.ask(method, path, &lines, body)
    }

    fn try_log_in(&self, token: &str) -> Answer {
        let body = json!({ "token": token }).to_string();
        self.ask("POST", "/console/session", "content-type: application/json\r\n", &body)
    }

    fn log_in(&mut self, token: &str) -> Value {
        let answer = self.try_log_in(token);
        assert_eq!(answer.0, 200, "{}", answer.1);
        let cookie = answer.header("set-cookie").unwrap();
        let (pair, rest) = cookie.split_once(';').unwrap();
        assert_eq!(rest, " Path=/console; HttpOnly; SameSite=Strict");
        self.cookie = pair.to_owned();
        let session = answer.json();
        self.csrf = session["csrf"].as_str().unwrap().to_owned();
        session
    }

    /// The entry of the audit with this action. What is no change of the database is written beside the answer.
    fn until_audited(&self, action: &str) -> Value {
        let mut found = None;
        until(action, || {
            let audit = self.get("/console/api/v1/audit?source=console").json();
            found =
                audit["items"].as_array().unwrap().iter().find(|entry| entry["action"] == action).cloned();
            found.is_some()
        });
        found.unwrap()
    }
}

/// A gateway, and a browser.
fn start(folder: &Folder) -> (Running, Browser) {
    let running = Running::new(folder);
    let browser = Browser { at: running.admin, cookie: String::new(), csrf: String::new() };
    (running, browser)
}

#[test]
fn a_console_that_is_switched_off_is_not_there() {
    let folder = Folder::new();
    let settings = Settings { admin_console: false, ..Settings::default() };
    let running = Running::with(Running::database(folder.location()), settings);
    let browser = Browser { at: running.admin, cookie: String::new(), csrf: String::new() };
    for path in ["/console", "/console/", "/console/session", "/console/api/v1/proxies"] {
        is_problem(&browser.get(path), 404, "not_found");
    }
    is_problem(&browser.try_log_in(ADMIN), 404, "not_found");
    assert_eq!(browser.get("/v1/status").0, 200);
}

fn is_problem(answer: &Answer, status: u16, code: &str) {
    assert_eq!(answer.0, status, "{}", answer.1);
    assert_eq!(answer.json()["code"], code, "{}", answer.1);
}

#[test]
fn pages_are_served_under_a_strict_policy() {
    let folder = Folder::new();
    let (_running, browser) = start(&folder);
    let moved = browser.get("/console");
    assert_eq!((moved.0, moved.header("location")), (308, Some("/console/")));
    let page = browser.get("/console/");
    assert_eq!((page.0, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert_eq!(
        (page.header("content-encoding"), page.header("cache-control")),
        (Some("gzip"), Some("no-cache"))
    );
    let tag = page.header("etag").unwrap().to_owned();
    let known = browser.ask("GET", "/console/", &format!("if-none-match: {tag}\r\n"), "");
    assert_eq!((known.0, known.2.len()), (304, 0));
    let plain = browser.ask("GET", "/console/", "accept-encoding: br, gzip;q=0\r\n", "");
    is_problem(&plain, 406, "not_acceptable");
    // Every answer below the root, also one that fails, can't be framed, guessed at or made to load anything.
    for path in [
        "/console",
        "/console/",
        "/console/nothing.js",
        "/console/../x",
        "/console/session",
        "/console/api/v1/proxies",
    ] {
        let answer = browser.get(path);
        let policy =
            answer.header("content-security-policy").unwrap_or_else(|| panic!("{path}: {}", answer.1));
        for rule in ["default-src 'none'", "script-src 'self';", "frame-ancestors 'none'", "base-uri 'none'"]
        {
            assert!(policy.contains(rule), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.header("x-frame-options"), Some("DENY"), "{path}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"), "{path}");
    }
    is_problem(&browser.get("/console/nothing.js"), 404, "not_found");
    is_problem(&browser.ask("POST", "/console/", "", ""), 405, "method_not_allowed");
}

#[test]
fn a_session_stands_for_its_token_and_its_role() {
    let folder = Folder::new();
    let (_running, mut browser) = start(&folder);
    let target = target("behind");
    is_problem(&browser.get("/console/session"), 401, "no_session");
    is_problem(&browser.get("/console/api/v1/proxies"), 401, "no_session");
    let session = browser.log_in(READ);
    assert_eq!((&session["role"], &session["mode"]), (&json!("read"), &json!("database")));
    assert_eq!(browser.get("/console/session").json()["csrf"], session["csrf"]);
    assert_eq!(browser.get("/console/api/v1/proxies").json(), json!({ "items": [], "next": null }));
    let shop = proxy("shop", "/shop", target).to_string();
    is_problem(&browser.change("PUT", "/console/api/v1/proxies/shop", &shop), 403, "forbidden");
    // Logging in anew ends the session before.
    let former = (browser.cookie.clone(), browser.csrf.clone());
    browser.log_in(WRITE);
    let mut gone = Browser { at: browser.at, cookie: former.0, csrf: former.1 };
    is_problem(&gone.get("/console/session"), 401, "no_session");
    let put = browser.change("PUT", "/console/api/v1/proxies/shop?note=by%20hand", &shop);
    assert_eq!((put.0, put.header("etag")), (201, Some("\"1\"")), "{}", put.1);
    let revisions = browser.get("/console/api/v1/revisions").json();
    let revision = &revisions["items"][0];
    assert_eq!((&revision["source"], &revision["note"]), (&json!("console"), &json!("by hand")));
    // A cookie opens nothing outside the console.
    is_problem(&browser.get("/v1/proxies"), 401, "unauthorized");
    browser.until_audited("POST /console/session");
    browser.until_audited("PUT /v1/proxies/shop");
    let out = browser.change("DELETE", "/console/session", "");
    assert_eq!(out.0, 204, "{}", out.1);
    assert!(out.header("set-cookie").unwrap().ends_with("; Max-Age=0"));
    is_problem(&browser.get("/console/session"), 401, "no_session");
    gone.log_in(ADMIN);
    assert_eq!(gone.get("/console/api/v1/export").0, 200);
}

/// What a page of another site can make a browser send: the cookie at most, never the session's `csrf`.
#[test]
fn pages_of_other_sites_change_and_read_nothing() {
    let folder = Folder::new();
    let (_running, mut browser) = start(&folder);
    browser.log_in(ADMIN);
    let own = format!("origin: http://{}\r\n", browser.at);
    let csrf = format!("x-ferrum-csrf: {}\r\n", browser.csrf);
    let path = "/console/api/v1/consumers/ann";
    let body = r#"{"username":"ann"}"#;
    for lines in [
        // No token, or that of another session.
        own.clone(),
        format!("{own}x-ferrum-csrf: \r\n"),
        format!("{own}x-ferrum-csrf: {}\r\n", "A".repeat(43)),
        // Another origin, another port, or none that can be told.
        format!("{csrf}origin: https://evil.example\r\n"),
        format!("{csrf}origin: http://127.0.0.1:1\r\n"),
        format!("{csrf}origin: null\r\n"),
        // As the browser itself says.
        format!("{own}{csrf}sec-fetch-site: cross-site\r\n"),
        format!("{own}{csrf}sec-fetch-site: same-site\r\n"),
        // DNS rebinding: the name of another site points here.
        format!("{own}{csrf}host: evil.example\r\n"),
        format!("{csrf}host: evil.example:{}\r\n", browser.at.port()),
    ] {
        let answer = browser.ask("PUT", path, &lines, body);
        is_problem(&answer, 403, "foreign_site");
    }
    for (lines, path) in [
        ("sec-fetch-site: cross-site\r\n", "/console/api/v1/export"),
        ("sec-fetch-site: same-site\r\n", "/console/session"),
        ("host: evil.example\r\n", "/console/"),
        ("host: evil.example\r\n", "/console/session"),
        ("origin: https://evil.example\r\n", "/console/session"),
    ] {
        is_problem(&browser.ask("GET", path, lines, ""), 403, "foreign_site");
    }
    is_problem(&browser.ask("DELETE", "/console/session", &own, ""), 403, "foreign_site");
    is_problem(&browser.get(path), 404, "not_found");
    assert_eq!(browser.change("PUT", path, body).0, 201);
    // A form logs nobody in.
    let form = browser.ask(
        "POST",
        "/console/session",
        "content-type: text/plain\r\n",
        &json!({ "token": ADMIN }).to_string(),
    );
    is_problem(&form, 415, "not_json");
}

#[test]
fn wrong_tokens_are_refused_and_slowed_down() {
    let folder = Folder::new();
    let (_running, mut browser) = start(&folder);
    for _ in 0..10 {
        is_problem(&browser.try_log_in("not-a-token-of-this-gateway"), 401, "unauthorized");
    }
    let held = browser.try_log_in(ADMIN);
    is_problem(&held, 429, "throttled");
    let wait: u64 = held.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=61).contains(&wait), "{wait}");
    let metrics = String::from_utf8(browser.get("/metrics").2).unwrap();
    for (outcome, count) in [("accepted", 0), ("refused", 10), ("throttled", 1)] {
        let line = format!("ferrum_console_logins_total{{outcome=\"{outcome}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}");
    }
    for (lines, body) in [("", ""), ("", "{"), ("", r#"{"token":1}"#), ("", r#"{"token":"x","y":1}"#)] {
        let lines = format!("content-type: application/json\r\n{lines}");
        assert!((400..=429).contains(&browser.ask("POST", "/console/session", &lines, body).0), "{body}");
    }
    browser.cookie = "ferrum-console-1=x; a=b; ferrum-console".to_owned();
    is_problem(&browser.get("/console/session"), 401, "no_session");
}

fn user(browser: &Browser, name: &str, role: &str) -> String {
    let body = json!({ "name": name, "role": role }).to_string();
    let added = browser.change("POST", "/console/api/v1/users", &body);
    assert_eq!(added.0, 201, "{}", added.1);
    let user = added.json();
    assert_eq!((&user["role"], &user["must_change_password"]), (&json!(role), &json!(true)));
    user["password"].as_str().unwrap().to_owned()
}

impl Browser {
    fn another(&self) -> Self {
        Self { at: self.at, cookie: String::new(), csrf: String::new() }
    }

    fn try_password(&self, name: &str, password: &str) -> Answer {
        let body = json!({ "name": name, "password": password }).to_string();
        self.ask("POST", "/console/session", "content-type: application/json\r\n", &body)
    }

    fn with_password(&self, name: &str, password: &str) -> Self {
        let answer = self.try_password(name, password);
        assert_eq!(answer.0, 200, "{}", answer.1);
        let cookie = answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        Self { at: self.at, cookie, csrf: answer.json()["csrf"].as_str().unwrap().to_owned() }
    }

    /// Logs in for the first time and chooses a password.
    fn settled(&self, name: &str, made: &str, own: &str) -> Self {
        let first = self.with_password(name, made);
        is_problem(&first.get("/console/api/v1/proxies"), 403, "password_change_needed");
        // As a browser encodes it.
        let path = format!("/console/api/v1/users/{}/password", name.replace('@', "%40"));
        let chosen = first.change("POST", &path, &json!({ "old": made, "new": own }).to_string());
        assert_eq!(chosen.0, 204, "{}", chosen.1);
        is_problem(&first.get("/console/session"), 401, "no_session");
        self.with_password(name, own)
    }
}

#[test]
fn users_log_in_choose_a_password_and_have_their_role() {
    let folder = Folder::new();
    let running = Running::new(&folder);
    users_have_their_role(&running, &running);
}

#[test]
fn users_of_postgres_are_those_of_each_gateway_on_it() {
    users_on(Engine::Postgres);
}

#[test]
fn users_of_mariadb_are_those_of_each_gateway_on_it() {
    users_on(Engine::MySql);
}

fn users_on(engine: Engine) {
    let location = database(shared(engine), "test_users");
    users_have_their_role(&peers::start(&location), &peers::start(&location));
}

/// Users are changed through one gateway and log in at the other.
fn users_have_their_role(one: &Running, other: &Running) {
    let at = |running: &Running| Browser { at: running.admin, cookie: String::new(), csrf: String::new() };
    let (mut browser, elsewhere) = (at(one), at(other));
    browser.log_in(ADMIN);
    let made = user(&browser, "ann", "write");
    is_problem(&elsewhere.another().try_password("ann", "not the password"), 401, "unauthorized");
    is_problem(&elsewhere.another().try_password("nobody", &made), 401, "unauthorized");
    let first = elsewhere.another().with_password("ann", &made);
    let path = "/console/api/v1/users/ann/password";
    for (old, new, status, code) in [
        ("wrong", "correct horse battery", 403, "wrong_password"),
        (&*made, "short", 422, "invalid"),
        (&*made, "ann and her dog", 422, "invalid"),
        (&*made, &*made, 422, "invalid"),
    ] {
        let body = json!({ "old": old, "new": new }).to_string();
        is_problem(&first.change("POST", path, &body), status, code);
    }
    let ann = elsewhere.another().settled("ann", &made, "correct horse battery");
    let consumer = r#"{"username":"bob"}"#;
    assert_eq!(ann.change("PUT", "/console/api/v1/consumers/bob", consumer).0, 201);
    is_problem(&ann.get("/console/api/v1/users"), 403, "forbidden");
    is_problem(&ann.change("DELETE", "/console/api/v1/users/ann", ""), 403, "forbidden");
    // Somebody else's password is nobody's to choose.
    user(&browser, "eve", "read");
    let body = json!({ "old": "correct horse battery", "new": "another good password" }).to_string();
    is_problem(&ann.change("POST", "/console/api/v1/users/eve/password", &body), 403, "wrong_password");
    let author = browser.get("/console/api/v1/revisions").json()["items"][0]["author"].clone();
    assert_eq!(author, "ann");
    // A change of the user ends the sessions, and a removal does.
    assert_eq!(browser.change("PATCH", "/console/api/v1/users/ann", r#"{"role":"read"}"#).0, 200);
    is_problem(&ann.get("/console/session"), 401, "no_session");
    let ann = elsewhere.another().with_password("ann", "correct horse battery");
    is_problem(&ann.change("PUT", "/console/api/v1/consumers/bob", consumer), 403, "forbidden");
    assert_eq!(browser.change("DELETE", "/console/api/v1/users/ann", "").0, 204);
    is_problem(&ann.get("/console/session"), 401, "no_session");
    is_problem(&elsewhere.another().try_password("ann", "correct horse battery"), 401, "unauthorized");
}

#[test]
fn the_last_administrator_stays() {
    let folder = Folder::new();
    let (_running, mut browser) = start(&folder);
    browser.log_in(ADMIN);
    user(&browser, "ann", "admin");
    let (ann, bob) = ("/console/api/v1/users/ann", "/console/api/v1/users/bob");
    is_problem(&browser.change("DELETE", ann, ""), 409, "last_admin");
    is_problem(&browser.change("PATCH", ann, r#"{"role":"write"}"#), 409, "last_admin");
    user(&browser, "bob", "admin");
    assert_eq!(browser.change("PATCH", ann, r#"{"role":"write"}"#).0, 200);
    is_problem(&browser.change("DELETE", bob, ""), 409, "last_admin");
    assert_eq!(browser.change("DELETE", ann, "").0, 204);
    is_problem(&browser.change("DELETE", ann, ""), 404, "not_found");
    is_problem(
        &browser.change("POST", "/console/api/v1/users", r#"{"name":"bob","role":"read"}"#),
        409,
        "exists",
    );
    for body in [
        r#"{"name":"","role":"read"}"#,
        r#"{"name":"<b>","role":"read"}"#,
        r#"{"name":"x","role":"root"}"#,
        r#"{"name":"x"}"#,
        r#"{"name":"x","role":"read","password":"short"}"#,
        r#"{"name":"x","role":"read","hash":"y"}"#,
    ] {
        is_problem(&browser.change("POST", "/console/api/v1/users", body), 422, "invalid");
    }
    // Each change is one entry, with who and what, and without a password or its hash.
    let audit = browser.get("/console/api/v1/audit?kind=users&limit=1000").json();
    let entries = audit["items"].as_array().unwrap();
    let told: Vec<_> = entries
        .iter()
        .map(|entry| (entry["action"].clone(), entry["changes"][0]["action"].clone()))
        .collect();
    assert_eq!(told.len(), 4, "{told:?}");
    assert_eq!(told[0], (json!("DELETE /v1/users/ann"), json!("delete")));
    assert!(!audit.to_string().contains("argon2") && !audit.to_string().contains("password\":\""), "{audit}");
    assert_eq!(browser.get("/console/api/v1/audit/verify").json()["valid"], true);
}

#[test]
fn wrong_passwords_of_a_user_are_slowed_down() {
    let folder = Folder::new();
    let (_running, mut browser) = start(&folder);
    browser.log_in(ADMIN);
    let made = user(&browser, "ann", "read");
    for _ in 0..10 {
        is_problem(&browser.another().try_password("ann", "not the password"), 401, "unauthorized");
    }
    is_problem(&browser.another().try_password("ann", &made), 429, "throttled");
}
