//! Logins to the console by an OpenID provider: a browser, a gateway, and a provider that says what each case wants.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ferrum_edge::Gateway;
use serde_json::{Value, json};

use super::{Browser, is_problem};
use crate::database::place::{Folder, Running};

/// A provider on a port of its own.
struct Provider {
    at: SocketAddr,
    says: Arc<Mutex<Says>>,
}

/// What a provider says next.
#[derive(Clone, Default)]
struct Says {
    /// Of the login under way, as the browser was sent with it.
    nonce: String,
    challenge: String,
    /// Claims that differ from those of a good ID token; null removes one.
    claims: Value,
    /// The status of the token endpoint.
    status: u16,
    /// Whether another key signs.
    is_forged: bool,
}

impl Provider {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let says = Arc::new(Mutex::new(Says { status: 200, claims: json!({}), ..Says::default() }));
        let (own, other) = (Ed25519KeyPair::generate().unwrap(), Ed25519KeyPair::generate().unwrap());
        let kept = says.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let says = kept.lock().unwrap().clone();
                answer(connection, at, &says, &own, &other);
            }
        });
        Self { at, says }
    }

    fn with(&self, change: impl FnOnce(&mut Says)) {
        change(&mut self.says.lock().unwrap());
    }

    /// `gateway.admin_oidc`, in YAML.
    fn setting(&self, roles: &str) -> String {
        format!(
            "{{issuer: 'http://{}', client_id: console, client_secret: hush, label: Company login, roles: {roles}}}",
            self.at
        )
    }
}

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn answer(
    mut connection: TcpStream,
    at: SocketAddr,
    says: &Says,
    own: &Ed25519KeyPair,
    other: &Ed25519KeyPair,
) {
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    let (mut line, mut length) = (String::new(), 0);
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    loop {
        let mut field = String::new();
        reader.read_line(&mut field).unwrap();
        if let Some(value) = field.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if field.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let base = format!("http://{at}");
    let (status, document) = match path.as_str() {
        "/.well-known/openid-configuration" => (
            200,
            json!({
                "issuer": base, "authorization_endpoint": format!("{base}/auth"),
                "token_endpoint": format!("{base}/token"), "jwks_uri": format!("{base}/keys"),
            }),
        ),
        "/keys" => {
            let key = json!({ "kty": "OKP", "crv": "Ed25519", "kid": "k", "alg": "EdDSA", "x": encoded(own.public_key()) });
            (200, json!({ "keys": [key] }))
        }
        "/token" => {
            let form = String::from_utf8(body).unwrap();
            let fields: HashMap<&str, &str> =
                form.split('&').filter_map(|pair| pair.split_once('=')).collect();
            let is_right = encoded(digest(&SHA256, fields["code_verifier"].as_bytes())) == says.challenge;
            match (is_right, says.status) {
                (true, 200) => {
                    let key = if says.is_forged { other } else { own };
                    (200, json!({ "access_token": "at", "id_token": id_token(&base, says, key) }))
                }
                (_, 200 | 400) => (400, json!({ "error": "invalid_grant" })),
                (_, status) => (status, json!({})),
            }
        }
        _ => (404, json!({})),
    };
    let text = document.to_string();
    let head = format!(
        "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        text.len()
    );
    drop(connection.write_all(format!("{head}{text}").as_bytes()));
}

fn id_token(issuer: &str, says: &Says, key: &Ed25519KeyPair) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let mut claims = json!({
        "iss": issuer, "aud": "console", "sub": "u-1", "exp": now + 300, "iat": now, "nonce": says.nonce,
        "preferred_username": "ann", "groups": ["developers"],
    });
    for (name, value) in says.claims.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    let signed = format!("{}.{}", encoded(r#"{"alg":"EdDSA","kid":"k"}"#), encoded(claims.to_string()));
    format!("{signed}.{}", encoded(key.sign(signed.as_bytes())))
}

const ROLES: &str = "{admin: [platform], write: [developers]}";

fn model(provider: &Provider, roles: &str) -> ferrum_edge::core::config::model::Model {
    let text = format!(
        "gateway: {{http: '127.0.0.1:0', admin: off, workers: 1, admin_oidc: {}}}\n",
        provider.setting(roles)
    );
    ferrum_edge::source::file::parse(&text, "test.yaml", &ferrum_edge::plugins()).unwrap()
}

/// A gateway in file mode whose console asks this provider.
fn gateway(provider: &Provider) -> (Gateway, Browser) {
    let gateway = Gateway::start(model(provider, ROLES), ferrum_edge::plugins()).unwrap();
    let at = gateway.serve_admin(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    (gateway, browser(at))
}

fn browser(at: SocketAddr) -> Browser {
    Browser { at, cookie: String::new(), csrf: String::new() }
}

impl Browser {
    /// Begins a login: the `state`, and what the provider is to know of it. The browser has the cookie then.
    fn begin(&mut self, provider: &Provider) -> String {
        let begun = self.get("/console/oidc/login");
        assert_eq!((begun.0, begun.header("cache-control")), (303, Some("no-store")), "{}", begun.1);
        let cookie = begun.header("set-cookie").unwrap();
        let (pair, rest) = cookie.split_once(';').unwrap();
        assert_eq!(rest, " Path=/console; HttpOnly; SameSite=Lax; Max-Age=600");
        self.cookie = pair.to_owned();
        let location = begun.header("location").unwrap();
        let (url, query) = location.split_once('?').unwrap();
        assert_eq!(url, format!("http://{}/auth", provider.at));
        let fields: HashMap<&str, &str> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
        let callback = format!("http%3A%2F%2F127.0.0.1%3A{}%2Fconsole%2Foidc%2Fcallback", self.at.port());
        assert_eq!((fields["client_id"], fields["redirect_uri"]), ("console", callback.as_str()));
        assert_eq!((fields["code_challenge_method"], fields["scope"]), ("S256", "openid%20profile%20email"));
        provider.with(|says| {
            fields["nonce"].clone_into(&mut says.nonce);
            fields["code_challenge"].clone_into(&mut says.challenge);
        });
        fields["state"].to_owned()
    }

    /// Comes back from the provider, as browsers do: from another site.
    fn come_back(&self, query: &str) -> super::Answer {
        self.ask("GET", &format!("/console/oidc/callback?{query}"), "sec-fetch-site: cross-site\r\n", "")
    }

    fn log_in_by(&mut self, provider: &Provider) -> Value {
        let state = self.begin(provider);
        let back = self.come_back(&format!("code=c&state={state}"));
        assert_eq!((back.0, back.header("refresh")), (200, Some("0;url=/console/")), "{}", back.1);
        let cookie = back.header("set-cookie").unwrap();
        let (pair, rest) = cookie.split_once(';').unwrap();
        assert_eq!(rest, " Path=/console; HttpOnly; SameSite=Strict");
        pair.clone_into(&mut self.cookie);
        let session = self.get("/console/session").json();
        session["csrf"].as_str().unwrap().clone_into(&mut self.csrf);
        session
    }
}

/// The code with which a login ended at the login page.
fn ended(answer: &super::Answer) -> String {
    assert_eq!(answer.0, 303, "{}", answer.1);
    assert!(answer.header("set-cookie").is_none(), "{}", answer.1);
    answer.header("location").unwrap().strip_prefix("/console/#/now?login=").unwrap().to_owned()
}

#[test]
fn a_user_of_the_provider_has_the_role_of_his_groups() {
    let provider = Provider::start();
    let (_gateway, mut browser) = gateway(&provider);
    let ways = browser.get("/console/login").json();
    assert_eq!(ways, json!({ "users": false, "passkeys": false, "provider": "Company login" }));
    let session = browser.log_in_by(&provider);
    let name = format!("ann ({})", provider.at);
    assert_eq!((&session["name"], &session["role"]), (&json!(name), &json!("write")));
    assert_eq!(session["is_user"], json!(false));
    assert_eq!(browser.get("/console/api/v1/sessions").0, 200);
    is_problem(&browser.get("/console/api/v1/users"), 404, "file_mode");
    provider.with(|says| says.claims = json!({ "groups": ["platform"], "preferred_username": null }));
    let session = browser.log_in_by(&provider);
    assert_eq!(
        (&session["name"], &session["role"]),
        (&json!(format!("u-1 ({})", provider.at)), &json!("admin"))
    );
    assert_eq!(browser.change("DELETE", "/console/session", "").0, 204);
    is_problem(&browser.get("/console/session"), 401, "no_session");
}

#[test]
fn in_database_mode_the_history_and_the_audit_name_the_user() {
    let provider = Provider::start();
    let folder = Folder::new();
    let settings = model(&provider, ROLES).settings;
    let running = Running::with(Running::database(folder.location()), (*settings).clone());
    let mut browser = browser(running.admin);
    browser.log_in_by(&provider);
    let put = browser.change("PUT", "/console/api/v1/consumers/bob", r#"{"username":"bob"}"#);
    assert_eq!(put.0, 201, "{}", put.1);
    let name = json!(format!("ann ({})", provider.at));
    let revisions = browser.get("/console/api/v1/revisions").json();
    assert_eq!(
        (&revisions["items"][0]["author"], &revisions["items"][0]["source"]),
        (&name, &json!("console"))
    );
    // Nobody of the provider manages the users of the database, or has one's password.
    is_problem(&browser.get("/console/api/v1/users"), 403, "forbidden");
    let login = browser.until_audited("GET /console/oidc/callback");
    assert_eq!((&login["actor"], &login["outcome"]), (&name, &json!("allowed")));
    let audit = browser.get("/console/api/v1/audit?source=console").json();
    assert!(!audit.to_string().contains("state="), "{audit}");
}

#[test]
fn a_group_of_the_provider_has_the_objects_of_a_workspace() {
    let provider = Provider::start();
    let folder = Folder::new();
    let rules = "{admin: [platform]}, grants: [{groups: [developers], workspace: team-a}]";
    let settings = model(&provider, rules).settings;
    let running = Running::with(Running::database(folder.location()), (*settings).clone());
    let mut browser = browser(running.admin);
    let session = browser.log_in_by(&provider);
    assert_eq!((&session["role"], &session["is_restricted"]), (&json!("write"), &json!(true)));
    let mut api = running.api();
    for id in ["a-servers", "b-servers"] {
        let upstream = json!({ "targets": [{ "host": "127.0.0.1", "port": 9 }] });
        assert_eq!(api.send("PUT", &format!("/v1/upstreams/{id}"), &upstream).status, 201);
    }
    // An unknown workspace covers nothing, and a session follows the workspace.
    is_problem(&browser.get("/console/api/v1/upstreams/a-servers"), 403, "out_of_scope");
    assert_eq!(api.send("PUT", "/v1/workspaces/team-a", &json!({ "objects": ["a-*"] })).status, 200);
    assert_eq!(browser.get("/console/api/v1/upstreams/a-servers").0, 200);
    is_problem(&browser.get("/console/api/v1/upstreams/b-servers"), 403, "out_of_scope");
    let groups = api.get("/v1/workspaces").json()["items"][0]["used_by"]["provider_groups"].clone();
    assert_eq!(groups, json!([{ "group": "developers", "role": "write" }]));
}

#[test]
fn nothing_but_a_good_login_of_this_browser_begins_a_session() {
    let provider = Provider::start();
    let (_gateway, mut browser) = gateway(&provider);
    // Claims of the ID token, or what else the provider does.
    for (claims, status, is_forged, code) in [
        (json!({ "nonce": "other" }), 200, false, "login_refused"),
        (json!({ "nonce": null }), 200, false, "login_refused"),
        (json!({ "aud": "other" }), 200, false, "login_refused"),
        (json!({ "iss": "https://evil.test" }), 200, false, "login_refused"),
        (json!({ "exp": 1000 }), 200, false, "login_refused"),
        (json!({ "exp": null }), 200, false, "login_refused"),
        (json!({ "sub": null }), 200, false, "login_refused"),
        (json!({}), 200, true, "login_refused"),
        (json!({}), 400, false, "login_refused"),
        (json!({}), 500, false, "provider_away"),
        (json!({ "groups": ["guests"] }), 200, false, "no_role"),
        (json!({ "groups": null }), 200, false, "no_role"),
    ] {
        browser.cookie.clear();
        let state = browser.begin(&provider);
        provider
            .with(|says| (says.claims, says.status, says.is_forged) = (claims.clone(), status, is_forged));
        let back = browser.come_back(&format!("code=c&state={state}"));
        assert_eq!(ended(&back), code, "{claims} {status} {is_forged}");
        provider.with(|says| (says.claims, says.status, says.is_forged) = (json!({}), 200, false));
    }
    // What the browser brings.
    let state = browser.begin(&provider);
    let own = browser.cookie.clone();
    for (cookie, query, code) in [
        (String::new(), format!("code=c&state={state}"), "login_unknown"),
        (own.replace('=', "=A"), format!("code=c&state={state}"), "login_unknown"),
        (own.clone(), "code=c&state=unknown".to_owned(), "login_unknown"),
        (own.clone(), "code=c".to_owned(), "login_unknown"),
        (own.clone(), format!("code=c&state={state}&iss=https%3A%2F%2Fevil.test"), "login_refused"),
    ] {
        browser.cookie = cookie;
        assert_eq!(ended(&browser.come_back(&query)), code, "{query}");
    }
    // A login is ended once, and one that the provider refuses is over.
    browser.cookie.clear();
    let state = browser.begin(&provider);
    assert_eq!(ended(&browser.come_back(&format!("error=access_denied&state={state}"))), "login_refused");
    assert_eq!(ended(&browser.come_back(&format!("code=c&state={state}"))), "login_unknown");
    // A page of another site begins none.
    is_problem(
        &browser.ask("GET", "/console/oidc/login", "sec-fetch-site: cross-site\r\n", ""),
        403,
        "foreign_site",
    );
}

#[test]
fn a_session_ends_when_the_providers_settings_change() {
    let provider = Provider::start();
    let (gateway, mut browser) = gateway(&provider);
    browser.log_in_by(&provider);
    gateway.reload(&model(&provider, ROLES)).unwrap();
    assert_eq!(browser.get("/console/session").0, 200, "a reload without a change ends none");
    gateway.reload(&model(&provider, "{admin: [platform]}")).unwrap();
    is_problem(&browser.get("/console/session"), 401, "no_session");
    let state = browser.begin(&provider);
    assert_eq!(ended(&browser.come_back(&format!("code=c&state={state}"))), "no_role");
}

#[test]
fn without_the_setting_there_is_no_such_login() {
    let folder = Folder::new();
    let (_running, browser) = super::start(&folder);
    is_problem(&browser.get("/console/oidc/login"), 404, "not_found");
    assert_eq!(
        browser.get("/console/login").json(),
        json!({ "users": true, "passkeys": false, "provider": null })
    );
}

#[test]
fn settings_that_let_nobody_in_or_can_not_work_are_refused() {
    for (setting, problem) in [
        ("{client_id: a, roles: {admin: [x]}}", "`issuer` is missing"),
        ("{issuer: 'https://i.test', roles: {admin: [x]}}", "`client_id` is missing"),
        ("{issuer: 'https://i.test', client_id: a}", "nobody could log in"),
        ("{issuer: 'https://i.test', client_id: a, roles: {read: []}}", "nobody could log in"),
        ("{issuer: 'https://i.test', client_id: a, roles: {read: ['']}}", "a group has no name"),
        ("{issuer: i.test, client_id: a, roles: {read: ['*']}}", "is not a URL"),
        (
            "{issuer: 'https://i.test', client_id: a, roles: {read: ['*']}, redirect_uri: 'https://g.test/cb'}",
            "where logins end",
        ),
    ] {
        let text = format!("gateway: {{admin_oidc: {setting}}}\n");
        let refused = ferrum_edge::source::file::parse(&text, "t.yaml", &ferrum_edge::plugins()).unwrap_err();
        assert!(refused.to_string().contains(problem), "{setting}: {refused}");
    }
}
