//! A browser, a gateway, and a provider that is played by a closure: logins, sessions, refreshes, logouts, and forgeries of
//! each.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::digest::{SHA256, digest};
use gateway_core::plugin::entry;
use gateway_core::testing::{Got, Trial};
use gateway_plugin_common::testing::Machine;
use gateway_plugin_common::testing::net::{Served, page};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::*;
use crate::jose::testing::{Signer, b64};
use crate::key_auth::KeyAuth;

mod callbacks;
mod copies;
mod logouts;
mod sessions;
mod shared;
mod signing;

use sessions::{sealed, session};

const SECRET: &str = "a session secret that has 32 bytes and more";

/// What browsers say of a link of the same site.
const OWN: &[(&str, &str)] = &[("sec-fetch-site", "same-origin")];

/// A provider: what its next ID token says, and what it does with refresh tokens.
struct Idp {
    machine: Machine,
    state: Arc<Mutex<IdpState>>,
    signer: Arc<Signer>,
}

struct IdpState {
    /// By code: the nonce and the code challenge of the login.
    codes: BTreeMap<String, (String, String)>,
    /// Claims that differ from those of a good ID token; null removes one.
    claims: Value,
    /// Fields of the token endpoint's answer that differ from those of a good one.
    answer: Value,
    refresh_status: u16,
    revocation_status: u16,
    /// Its answers to refreshes wait until they are told to come.
    held: Option<Arc<Notify>>,
    /// Whether its keys can't be had.
    keys_away: bool,
    /// Fields of the discovery document that differ from those of a good one.
    about: Value,
}

impl Idp {
    fn new() -> Self {
        let state = IdpState {
            codes: BTreeMap::new(),
            claims: json!({}),
            answer: json!({}),
            refresh_status: 200,
            revocation_status: 200,
            held: None,
            keys_away: false,
            about: json!({}),
        };
        let (machine, state) = (Machine::default(), Arc::new(Mutex::new(state)));
        let signer = Arc::new(Signer::ed());
        let idp = Self { machine, state, signer };
        idp.serve();
        idp
    }

    /// It can be reached from now on.
    fn serve(&self) {
        let (served, keys) = (self.state.clone(), self.signer.clone());
        self.machine.net.serve(move |sent| match sent.url.as_str() {
            "idp.test:443/.well-known/openid-configuration" => {
                let about = json!({
                    "issuer": "https://idp.test", "authorization_endpoint": "https://idp.test/auth?tenant=1",
                    "token_endpoint": "https://idp.test/token", "jwks_uri": "https://idp.test/keys",
                    "end_session_endpoint": "https://idp.test/logout",
                    "revocation_endpoint": "https://idp.test/revoke",
                });
                page(200, &merged(about, &served.lock().unwrap_or_else(PoisonError::into_inner).about))
            }
            "idp.test:443/keys" if served.lock().unwrap_or_else(PoisonError::into_inner).keys_away => {
                Served::Away
            }
            "idp.test:443/keys" => page(200, &json!({ "keys": [keys.jwk("k")] })),
            "idp.test:443/token" => {
                let mut state = served.lock().unwrap_or_else(PoisonError::into_inner);
                let held = state.held.clone();
                match (answer(&mut state, &keys, &sent.form()), held) {
                    (Served::Response(response), Some(held)) => Served::Held(held, response),
                    (Served::Response(response), None) => Served::Late(response),
                    (other, _) => other,
                }
            }
            "idp.test:443/revoke" => {
                page(served.lock().unwrap_or_else(PoisonError::into_inner).revocation_status, &json!({}))
            }
            other => panic!("nobody should ask {other}"),
        });
    }

    fn with(&self, change: impl FnOnce(&mut IdpState)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn asked(&self, url: &str) -> usize {
        self.machine.net.sent().iter().filter(|sent| sent.url == url).count()
    }

    fn trial(&self, more: &Value) -> Trial {
        let spec = json!({
            "proxies": [{ "id": "a", "listen_path": "/", "strip_listen_path": false, "backend_host": "t.test", "backend_port": 80 }],
            "consumers": [{ "id": "a", "username": "alice" }, { "id": "g", "username": "guest" }],
            "plugin_configs": [{ "id": "o", "plugin_name": "oidc", "proxy_id": "a", "config": settings(more) }],
        });
        Trial::of_spec(&[entry::<Oidc>()], &spec.to_string(), &self.machine.world())
    }
}

fn merged(mut all: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().expect("an object") {
        all[name] = value.clone();
    }
    all.as_object_mut().expect("an object").retain(|_, value| !value.is_null());
    all
}

fn settings(more: &Value) -> Value {
    let all = json!({ "issuer": "https://idp.test", "client_id": "shop", "client_secret": "s", "session_secret": SECRET });
    merged(all, more)
}

fn id_token(signer: &Signer, nonce: Option<&str>, more: &Value) -> String {
    let claims = json!({
        "iss": "https://idp.test", "aud": "shop", "sub": "alice", "exp": now() + 300, "iat": now(), "nonce": nonce,
        "sid": "s-1", "email": "a@b.test",
    });
    signer.raw("EdDSA", r#"{"alg":"EdDSA","kid":"k"}"#, &merged(claims, more).to_string())
}

fn answer(state: &mut IdpState, signer: &Signer, form: &BTreeMap<String, String>) -> Served {
    let refused = || page(400, &json!({ "error": "invalid_grant" }));
    let good = json!({ "access_token": "at-1", "refresh_token": "rt-1", "expires_in": 3600, "token_type": "Bearer" });
    if form["grant_type"] == "refresh_token" {
        return match state.refresh_status {
            200 => page(
                200,
                &merged(
                    merged(good, &json!({ "access_token": "at-2", "refresh_token": "rt-2" })),
                    &state.answer,
                ),
            ),
            400 => refused(),
            status => page(status, &json!({})),
        };
    }
    // A code is good once, and for who knows the verifier.
    let Some((nonce, challenge)) = state.codes.remove(&form["code"]) else { return refused() };
    if b64(digest(&SHA256, form["code_verifier"].as_bytes())) != challenge {
        return refused();
    }
    let id_token = id_token(signer, Some(&nonce), &state.claims);
    page(200, &merged(merged(good, &json!({ "id_token": id_token })), &state.answer))
}

/// A browser's cookies.
#[derive(Default, Clone)]
struct Jar(BTreeMap<String, String>);

impl Jar {
    async fn get(&mut self, trial: &Trial, target: &str, fields: &[(&str, &str)]) -> Got {
        let line: Vec<String> = self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let line = line.join("; ");
        let mut all = vec![("accept", "text/html,*/*"), ("cookie", line.as_str())];
        all.extend(fields);
        let got = trial.get(target, &all).await;
        for set in got.headers.get_all(SET_COOKIE) {
            let set = set.to_str().expect("a text");
            let (name, rest) = set.split_once('=').expect("a name");
            let (value, attributes) = rest.split_once("; ").expect("attributes");
            assert!(attributes.contains("HttpOnly"), "{set}");
            match value {
                "" => drop(self.0.remove(name)),
                value => drop(self.0.insert(name.to_owned(), value.to_owned())),
            }
        }
        got
    }

    /// Begins a login: what the provider is asked.
    async fn begin(&mut self, trial: &Trial, target: &str) -> HashMap<String, String> {
        let got = self.get(trial, target, &[]).await;
        assert_eq!((got.status, got.field("cache-control")), (302, "no-store"));
        let (url, query) = got.field("location").split_once('?').expect("a query");
        assert_eq!(url, "https://idp.test/auth");
        parameters(query)
    }

    /// Goes through a whole login; the answer at its end.
    async fn log_in(&mut self, trial: &Trial, idp: &Idp, target: &str) -> Got {
        let asked = self.begin(trial, target).await;
        idp.with(|it| {
            drop(it.codes.insert("c".into(), (asked["nonce"].clone(), asked["code_challenge"].clone())))
        });
        self.get(trial, &format!("/oidc/callback?code=c&state={}", asked["state"]), &[]).await
    }
}

/// What the record says of a failure.
fn why(trial: &Trial) -> String {
    trial.records().pop().and_then(|record| record.failure).unwrap_or_default()
}

fn reason(trial: &Trial) -> &'static str {
    trial.records().pop().and_then(|record| record.reason).unwrap_or_default()
}

#[tokio::test]
async fn a_login_and_what_the_target_sees() {
    let idp = Idp::new();
    let trial = idp.trial(&json!({
        "claims_to_headers": { "email": "X-Email" }, "access_token_header": "Authorization", "scopes": ["email"],
    }));
    let mut jar = Jar::default();
    let asked = jar.begin(&trial, "/shop?x=1&y=%2F").await;
    for (name, value) in [
        ("tenant", "1"),
        ("response_type", "code"),
        ("client_id", "shop"),
        ("redirect_uri", "http://client.test/oidc/callback"),
        ("scope", "openid email"),
        ("code_challenge_method", "S256"),
    ] {
        assert_eq!(asked[name], value);
    }
    let got = jar.log_in(&trial, &idp, "/shop?x=1&y=%2F").await;
    assert_eq!((got.status, got.field("location")), (302, "/shop?x=1&y=%2F"));
    assert!(trial.asked().is_empty(), "nothing reached the target so far");
    let sent = idp.machine.net.sent().into_iter().find(|sent| sent.url.ends_with("/token")).expect("a call");
    assert_eq!(sent.form()["redirect_uri"], "http://client.test/oidc/callback");
    assert!(sent.field("authorization").starts_with("Basic "));
    jar.0.insert("theme".into(), "dark".into());
    for _ in 0..2 {
        let got = jar.get(&trial, "/shop", &[("x-email", "root@b.test"), ("authorization", "Basic x")]).await;
        assert_eq!(got.status, 200);
        let asked = trial.asked().pop().expect("a request");
        assert_eq!((asked.field("x-email"), asked.field("authorization")), ("a@b.test", "Bearer at-1"));
        assert_eq!(asked.field("cookie"), "theme=dark", "no cookie of the gateway's");
        assert_eq!(trial.records().pop().and_then(|it| it.caller).as_deref(), Some("alice"));
    }
    assert_eq!(idp.asked("idp.test:443/token"), 1);
}

#[tokio::test]
async fn who_is_sent_to_the_login() {
    let idp = Idp::new();
    let trial = idp.trial(&json!({}));
    for (method, fields, expected) in [
        ("GET", &[("accept", "text/html")][..], 302),
        ("HEAD", &[("accept", "text/html")], 302),
        ("GET", &[("accept", "*/*"), ("sec-fetch-mode", "navigate")], 302),
        ("GET", &[("accept", "text/html"), ("sec-fetch-mode", "cors")], 401),
        ("GET", &[("accept", "application/json")], 401),
        ("GET", &[], 401),
        ("POST", &[("accept", "text/html")], 401),
    ] {
        let got = trial.request(method, "/", fields, "").await;
        assert_eq!(got.status, expected, "{method} {fields:?}");
        assert_eq!(got.headers.contains_key("www-authenticate"), expected == 401);
    }
    let got = trial.get("//evil.test/x", &[("accept", "text/html")]).await;
    assert!(got.status == 302 || got.status == 400);
    let mut jar = Jar::default();
    let got = jar.log_in(&trial, &idp, "/..//evil.test").await;
    assert!(!got.field("location").starts_with("//"), "{}", got.field("location"));
}

#[tokio::test]
async fn logins_that_must_fail() {
    let good = json!({});
    for (claims, answer, expected) in [
        (json!({ "nonce": "another" }), &good, "token_claim"),
        (json!({ "nonce": null }), &good, "token_claim"),
        (json!({ "aud": "other" }), &good, "token_audience"),
        (json!({ "aud": ["shop", "other"] }), &good, "token_audience"),
        (json!({ "aud": ["shop", "other"], "azp": "other" }), &good, "token_audience"),
        (json!({ "iss": "https://evil.test" }), &good, "token_issuer"),
        (json!({ "exp": 1 }), &good, "token_expired"),
        (json!({ "exp": null }), &good, "token_claim"),
        (json!({ "sub": null }), &good, "token_claim"),
        (json!({}), &json!({ "id_token": "a.b.c" }), "token_malformed"),
        (json!({}), &json!({ "id_token": id_token(&Signer::ed(), None, &json!({})) }), "token_signature"),
        (json!({}), &json!({ "id_token": null }), "oidc_provider_failed"),
    ] {
        let idp = Idp::new();
        let trial = idp.trial(&json!({}));
        idp.with(|it| (it.claims, it.answer) = (claims.clone(), answer.clone()));
        let mut jar = Jar::default();
        let got = jar.log_in(&trial, &idp, "/").await;
        let status = if expected == "oidc_provider_failed" { 503 } else { 403 };
        assert_eq!((got.status, reason(&trial)), (status, expected), "{claims} {answer}");
        assert!(!jar.0.contains_key("ferrum_session"));
    }
    let idp = Idp::new();
    idp.with(|it| it.claims = json!({ "aud": ["shop", "other"], "azp": "shop" }));
    assert_eq!(Jar::default().log_in(&idp.trial(&json!({})), &idp, "/").await.status, 302);
}

#[tokio::test]
async fn who_may_come_in() {
    for (more, claims, status, caller) in [
        (json!({ "consumer_claim": "email" }), json!({}), 200, Some("a@b.test")),
        (json!({ "require_consumer": true }), json!({}), 200, Some("alice")),
        (json!({ "require_consumer": true }), json!({ "sub": "stranger" }), 403, None),
        (json!({ "required_roles": ["admin"] }), json!({ "roles": ["admin"] }), 200, Some("alice")),
        (json!({ "required_roles": ["admin"], "role_claim": "x" }), json!({ "roles": ["admin"] }), 403, None),
    ] {
        let idp = Idp::new();
        idp.with(|it| it.claims = claims.clone());
        let trial = idp.trial(&more);
        let mut jar = Jar::default();
        jar.log_in(&trial, &idp, "/").await;
        assert_eq!(jar.get(&trial, "/", &[]).await.status, status, "{more} {claims}");
        assert_eq!(trial.records().pop().and_then(|it| it.caller).as_deref(), caller);
    }
}

#[tokio::test]
async fn options_of_logins_and_cookies() {
    let idp = Idp::new();
    let trial = idp.trial(&json!({
        "anonymous": "guest", "login_path": "/login", "redirect_uri": "https://shop.test/a/cb", "redirect_path": "/a/cb",
        "logout_path": "/a", "cookie_name": "s", "cookie_path": "/a", "cookie_domain": "shop.test", "cookie_same_site": "none",
        "client_auth": "client_secret_post", "algorithms": ["ES256"],
    }));
    let mut jar = Jar::default();
    assert_eq!(jar.get(&trial, "/", &[]).await.status, 200);
    assert_eq!(trial.records().pop().and_then(|it| it.caller).as_deref(), Some("guest"));
    let got = jar.get(&trial, "/login", &[]).await;
    let set = got.field("set-cookie");
    assert!(set.starts_with("s_login_") && !set.contains("Secure"), "{set}");
    for part in ["; Path=/a;", "; Domain=shop.test", "; SameSite=None", "; Max-Age=600;"] {
        assert!(set.contains(part), "{set}");
    }
    let asked = parameters(got.field("location").split_once('?').expect("a query").1);
    assert_eq!(asked["redirect_uri"], "https://shop.test/a/cb");
    idp.with(|it| {
        drop(it.codes.insert("c".into(), (asked["nonce"].clone(), asked["code_challenge"].clone())))
    });
    let got = jar.get(&trial, &format!("/a/cb?code=c&state={}", asked["state"]), &[]).await;
    assert_eq!((got.status, reason(&trial)), (403, "token_algorithm"));
    let sent = idp.machine.net.sent().into_iter().find(|sent| sent.url.ends_with("/token")).expect("a call");
    assert_eq!((sent.form()["client_secret"].as_str(), sent.field("authorization")), ("s", ""));
    let secure = idp.trial(&json!({})).from_trusted_proxy();
    let got = secure.get("/", &[("accept", "text/html"), ("x-forwarded-proto", "https")]).await;
    assert!(got.field("set-cookie").ends_with("; Secure"), "{}", got.field("set-cookie"));
}

#[tokio::test]
async fn a_provider_that_is_away_lets_nobody_in() {
    let idp = Idp::new();
    let trial = idp.trial(&json!({}));
    let mut jar = sealed(&session(&idp, 0, now()));
    idp.machine.net.serve(|_| Served::Away);
    assert_eq!(jar.get(&trial, "/", &[]).await.status, 200, "who is logged in needs no provider");
    let got = Jar::default().get(&trial, "/", &[]).await;
    assert_eq!((got.status, reason(&trial)), (503, "oidc_provider_failed"));
    assert!(why(&trial).starts_with("https://idp.test: https://idp.test/.well-known/"), "{}", why(&trial));
    // It says so of a refresh, too, and what the provider answers.
    let idp = Idp::new();
    idp.with(|it| it.refresh_status = 500);
    let trial = idp.trial(&json!({}));
    let mut jar = sealed(&session(&idp, now() - 1, now() - 60));
    assert_eq!(jar.get(&trial, "/", &[]).await.status, 503);
    assert_eq!(why(&trial), "https://idp.test: https://idp.test/token answers 500 Internal Server Error");
}

/// A provider that starts after the gateway is found within a second, not within ten.
#[tokio::test(start_paused = true)]
async fn a_provider_that_starts_late_is_soon_found() {
    let idp = Idp::new();
    let trial = idp.trial(&json!({}));
    idp.machine.net.serve(|_| Served::Away);
    assert_eq!(trial.get("/", &[("accept", "text/html")]).await.status, 503);
    idp.serve();
    tokio::time::advance(std::time::Duration::from_millis(1001)).await;
    assert_eq!(trial.get("/", &[("accept", "text/html")]).await.status, 302);
}

#[test]
fn settings_that_make_no_sense() {
    for (more, path) in [
        (json!({ "issuer": null }), "config.issuer"),
        (json!({ "issuer": "idp" }), "config.issuer"),
        (json!({ "client_id": null }), "config.client_id"),
        (json!({ "session_secret": null }), "config.session_secret"),
        (json!({ "session_secret": "short" }), "config.session_secret"),
        (json!({ "previous_session_secret": "short" }), "config.previous_session_secret"),
        (json!({ "redirect_path": "callback" }), "config.redirect_path"),
        (json!({ "logout_path": "/oidc/callback" }), "config.logout_path"),
        (json!({ "frontchannel_logout_path": "/oidc/logout" }), "config.frontchannel_logout_path"),
        (json!({ "login_path": "/a?b" }), "config.login_path"),
        (json!({ "redirect_uri": "/cb" }), "config.redirect_uri"),
        (json!({ "post_logout_redirect_uri": "shop" }), "config.post_logout_redirect_uri"),
        (json!({ "cookie_name": "a b" }), "config.cookie_name"),
        (json!({ "cookie_path": "/;x" }), "config.cookie_path"),
        (json!({ "cookie_path": "app" }), "config.cookie_path"),
        (json!({ "cookie_path": "/app" }), "config.redirect_path"),
        (json!({ "cookie_path": "/oidc/call" }), "config.redirect_path"),
        (json!({ "cookie_path": "/oidc", "logout_path": "/out" }), "config.logout_path"),
        (
            json!({ "cookie_path": "/oidc", "frontchannel_logout_path": "/f" }),
            "config.frontchannel_logout_path",
        ),
        (json!({ "cookie_domain": "" }), "config.cookie_domain"),
        (json!({ "algorithms": ["HS256"] }), "config.algorithms"),
        (json!({ "access_token_header": "Content-Length" }), "config.access_token_header"),
        (json!({ "session_ttl": 1 }), "config.session_ttl"),
        (json!({ "discovery_url": "ftp://x" }), "config.discovery_url"),
    ] {
        let config = settings(&more);
        let problems = Trial::refused(&[entry::<Oidc>()], "oidc", &config);
        assert_eq!(problems.0[0].path, path, "{config}");
    }
}
