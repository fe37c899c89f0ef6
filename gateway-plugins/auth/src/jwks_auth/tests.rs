//! Issuers that rotate their keys, are away, or lie.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use gateway_core::http::body::Body;
use gateway_core::http::tunnel::Tunnel;
use gateway_core::plugin::entry;
use gateway_core::plugin::world::Reach;
use gateway_core::plugin::world::blocking::Inline;
use gateway_core::plugin::world::calls::{Call, CallError, Caller, Calls, Client, Endpoint, Server};
use gateway_core::plugin::world::files::NoFiles;
use gateway_core::plugin::world::meters::Meters;
use gateway_core::plugin::world::tasks::TaskControl;
use gateway_core::testing::Trial;
use http::{Request, Response};
use serde_json::{Value, json};

use super::*;
use crate::jose::testing::{Signer, b64};

/// Servers: what they have under `host:port/path`, and what they were asked. Nothing is a server that is away.
#[derive(Clone, Default)]
struct Web(Arc<Mutex<Pages>>);

#[derive(Default)]
struct Pages {
    pages: BTreeMap<String, String>,
    asked: Vec<String>,
}

impl Web {
    fn put(&self, url: &str, page: &Value) {
        let mut web = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        web.pages.insert(url.to_owned(), page.to_string());
    }

    fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pages.clear();
    }

    fn asked(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).asked.len()
    }

    fn world(&self) -> World {
        World::new(Reach {
            gateway: "test".into(),
            calls: Arc::new(self.clone()),
            files: Arc::new(NoFiles),
            blocking: Arc::new(Inline),
            meters: Meters::default(),
            variables: Default::default(),
        })
    }
}

impl Calls for Web {
    fn client(&self, endpoint: Endpoint) -> Result<Client, Problems> {
        let Server::Address { host, port } = &endpoint.server else { panic!("an address") };
        let base = format!("{host}:{port}");
        Ok(Client::new(Arc::new(Site { web: self.clone(), base, limit: endpoint.max_response })))
    }
}

struct Site {
    web: Web,
    base: String,
    limit: u64,
}

impl Caller for Site {
    fn send<'a>(&'a self, request: Request<Body>) -> Call<'a, Response<Body>> {
        let url = format!("{}{}", self.base, request.uri().path());
        let mut web = self.web.0.lock().unwrap_or_else(PoisonError::into_inner);
        web.asked.push(url.clone());
        let page = web.pages.get(&url).cloned();
        let answer = page.map(|page| Response::new(Body::full(Bytes::from(page))));
        Box::pin(std::future::ready(answer.ok_or_else(|| CallError::new(Cause::ConnectFailed))))
    }

    fn open(&self) -> Call<'_, Tunnel> {
        Box::pin(std::future::ready(Err(CallError::new(Cause::ConnectFailed))))
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn max_response(&self) -> u64 {
        self.limit
    }
}

const ISSUER: &str = "https://idp.test";
const KEYS: &str = "idp.test:443/keys";

fn trial(web: &Web, config: &Value) -> Trial {
    let spec = json!({
        "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "t.test", "backend_port": 80 }],
        "consumers": [{ "id": "a", "username": "alice", "acl_groups": ["staff"] }, { "id": "g", "username": "guest" }],
        "plugin_configs": [{ "id": "j", "plugin_name": "jwks_auth", "proxy_id": "a", "config": config }],
    });
    Trial::of_spec(&[entry::<JwksAuth>()], &spec.to_string(), &web.world())
}

/// One issuer whose keys are at a URL, with more settings.
fn provider(more: &Value) -> Value {
    let mut all = json!({ "issuer": ISSUER, "jwks_uri": "https://idp.test/keys" });
    for (name, value) in more.as_object().expect("an object") {
        all[name] = value.clone();
    }
    json!({ "providers": [all] })
}

fn token(signer: &Signer, algorithm: &str, kid: &str, more: &Value) -> String {
    let mut claims = json!({ "iss": ISSUER, "sub": "alice", "exp": now() + 600 });
    for (name, value) in more.as_object().expect("an object") {
        claims[name] = value.clone();
    }
    let header = json!({ "alg": algorithm, "kid": kid });
    signer.raw(algorithm, &header.to_string(), &claims.to_string())
}

/// The caller, or the refusal's reason.
async fn caller(trial: &Trial, token: &str) -> String {
    let got = trial.get("/", &[("authorization", &format!("Bearer {token}"))]).await;
    let record = trial.records().pop().expect("a record");
    match got.status {
        200 => record.caller.expect("a caller").to_string(),
        401 | 403 => {
            assert!(got.field("www-authenticate").starts_with("Bearer "));
            record.reason.expect("a reason").to_owned()
        }
        status => format!("{status} {}", record.reason.expect("a reason")),
    }
}

#[tokio::test]
async fn every_type_of_key() {
    let signers = [
        ("RS256", Signer::rsa()),
        ("ES256", Signer::ec("ES256")),
        ("ES384", Signer::ec("ES384")),
        ("ES512", Signer::ec("ES512")),
        ("EdDSA", Signer::ed()),
    ];
    let web = Web::default();
    let keys: Vec<Value> = signers.iter().map(|(name, signer)| signer.jwk(name)).collect();
    web.put(KEYS, &json!({ "keys": keys }));
    let trial = trial(&web, &provider(&json!({})));
    for (algorithm, signer) in &signers {
        assert_eq!(caller(&trial, &token(signer, algorithm, algorithm, &json!({}))).await, "alice");
        let other = if *algorithm == "EdDSA" { "ES256" } else { "EdDSA" };
        let wrong = token(signer, algorithm, other, &json!({}));
        assert_eq!(caller(&trial, &wrong).await, "token_signature", "{algorithm} with another's kid");
    }
    assert_eq!(caller(&trial, &token(&signers[0].1, "PS512", "RS256", &json!({}))).await, "alice");
    assert_eq!(web.asked(), 1, "keys are fetched once");
}

#[tokio::test]
async fn keys_that_must_not_be_used() {
    let (rsa, secret) = (Signer::rsa(), Signer::Secret(vec![b's'; 64]));
    let with = |name: &str, value: Value| {
        let mut key = rsa.jwk("k");
        key[name] = value;
        key
    };
    for (key, expected) in [
        (with("use", json!("enc")), "503 token_keys_missing"),
        (with("key_ops", json!(["encrypt"])), "503 token_keys_missing"),
        (with("alg", json!("PS256")), "token_signature"),
        (with("alg", json!("RSA-OAEP")), "503 token_keys_missing"),
        (with("n", json!(b64([255; 128]))), "503 token_keys_missing"),
        (with("kty", json!("EC")), "503 token_keys_missing"),
        (secret.jwk("k"), "503 token_keys_missing"),
        (with("alg", json!("RS256")), "alice"),
    ] {
        let web = Web::default();
        web.put(KEYS, &json!({ "keys": [key] }));
        let trial = trial(&web, &provider(&json!({})));
        assert_eq!(caller(&trial, &token(&rsa, "RS256", "k", &json!({}))).await, expected, "{key}");
    }
    let web = Web::default();
    web.put(KEYS, &json!({ "keys": [secret.jwk("k"), rsa.jwk("r")] }));
    let trial = trial(&web, &provider(&json!({})));
    assert_eq!(caller(&trial, &token(&secret, "HS256", "k", &json!({}))).await, "token_algorithm");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_key_has_the_keys_fetched_again_but_not_too_often() {
    let (old, new) = (Signer::ed(), Signer::ed());
    let web = Web::default();
    web.put(KEYS, &json!({ "keys": [old.jwk("old")] }));
    let trial = trial(&web, &provider(&json!({})));
    let (with_old, with_new) =
        (token(&old, "EdDSA", "old", &json!({})), token(&new, "EdDSA", "new", &json!({})));
    assert_eq!(caller(&trial, &with_old).await, "alice");
    web.put(KEYS, &json!({ "keys": [new.jwk("new")] }));
    // The first fetch was just now.
    assert_eq!(caller(&trial, &with_new).await, "token_signature");
    assert_eq!(web.asked(), 1);
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(caller(&trial, &with_new).await, "alice");
    assert_eq!(caller(&trial, &with_old).await, "token_signature", "a key that is gone, also from the cache");
    for n in 0..20 {
        let made_up = token(&new, "EdDSA", &format!("kid-{n}"), &json!({}));
        assert_eq!(caller(&trial, &made_up).await, "token_signature");
    }
    assert_eq!(web.asked(), 2, "made-up keys must not hammer the issuer");
    // What is refused by its claims has nothing fetched.
    tokio::time::advance(Duration::from_secs(60)).await;
    let expired = token(&new, "EdDSA", "newer", &json!({ "exp": 1 }));
    assert_eq!(caller(&trial, &expired).await, "token_expired");
    assert_eq!(web.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn keys_are_kept_while_the_issuer_is_away_but_not_for_ever() {
    let signer = Signer::ed();
    let web = Web::default();
    web.put(KEYS, &json!({ "keys": [signer.jwk("k")] }));
    let mut config = provider(&json!({}));
    config["max_stale"] = json!("1h");
    config["min_refresh_interval"] = json!(5);
    let trial = trial(&web, &config);
    let good = token(&signer, "EdDSA", "k", &json!({}));
    assert_eq!(caller(&trial, &good).await, "alice");
    let other = token(&signer, "EdDSA", "other", &json!({}));
    assert_eq!(
        caller(&trial, &other).await,
        "token_signature",
        "the issuer was just asked, and has no such key"
    );
    web.clear();
    tokio::time::advance(Duration::from_secs(3599)).await;
    for _ in 0..2 {
        let got = trial.get("/", &[("authorization", &format!("Bearer {other}"))]).await;
        assert_eq!((got.status, got.field("retry-after")), (503, "5"), "nobody can tell whether it is good");
        assert_eq!(trial.records().pop().and_then(|it| it.reason), Some("token_key_unknown"));
    }
    assert_eq!(web.asked(), 2, "an issuer that is away is not asked by every request");
    assert_eq!(caller(&trial, &good).await, "alice");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(caller(&trial, &good).await, "503 token_keys_missing");
    web.put(KEYS, &json!({ "keys": [signer.jwk("k")] }));
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(caller(&trial, &good).await, "alice");
}

#[tokio::test]
async fn discovery() {
    let signer = Signer::ed();
    let document = "idp.test:443/.well-known/openid-configuration";
    let about = |issuer: &str, keys: &str| json!({ "issuer": issuer, "jwks_uri": keys });
    for (page, expected) in [
        (about(ISSUER, "https://idp.test/keys"), "alice"),
        (about("https://evil.test", "https://idp.test/keys"), "503 token_keys_missing"),
        (about(ISSUER, "http://idp.test/keys"), "503 token_keys_missing"),
        (json!({ "issuer": ISSUER }), "503 token_keys_missing"),
        (json!([]), "503 token_keys_missing"),
    ] {
        let web = Web::default();
        web.put(document, &page);
        web.put(KEYS, &json!({ "keys": [signer.jwk("k")] }));
        web.put("idp.test:80/keys", &json!({ "keys": [signer.jwk("k")] }));
        let trial = trial(&web, &json!({ "providers": [{ "issuer": ISSUER }] }));
        assert_eq!(caller(&trial, &token(&signer, "EdDSA", "k", &json!({}))).await, expected, "{page}");
    }
    let web = Web::default();
    web.put("other.test:8443/about", &about(ISSUER, "https://idp.test/keys"));
    web.put(KEYS, &json!({ "keys": [signer.jwk("k")] }));
    let config =
        json!({ "providers": [{ "issuer": ISSUER, "discovery_url": "https://other.test:8443/about" }] });
    assert_eq!(caller(&trial(&web, &config), &token(&signer, "EdDSA", "k", &json!({}))).await, "alice");
}

#[tokio::test]
async fn what_an_issuer_asks_of_its_tokens() {
    let signer = Signer::ed();
    let web = Web::default();
    web.put(KEYS, &json!({ "keys": [signer.jwk("k")] }));
    for (config, more, expected) in [
        (json!({ "required_claims": { "typ": "Bearer" } }), json!({ "typ": "Bearer" }), "alice"),
        (json!({ "required_claims": { "typ": "Bearer" } }), json!({ "typ": "ID" }), "token_claim"),
        (json!({ "required_claims": { "typ": "Bearer" } }), json!({}), "token_claim"),
        (json!({ "required_claims": { "typ": ["a", "b"] } }), json!({ "typ": "b" }), "alice"),
        (json!({ "required_claims": { "amr": "mfa" } }), json!({ "amr": ["pwd", "mfa"] }), "alice"),
        (json!({ "required_claims": { "amr": "mfa" } }), json!({ "amr": ["pwd"] }), "token_claim"),
        (
            json!({ "required_claims": { "ctx.level": "2", "email_verified": "true" } }),
            json!({ "ctx": { "level": 2 }, "email_verified": true }),
            "alice",
        ),
        (
            json!({ "required_claims": { "ctx.level": "2", "email_verified": "true" } }),
            json!({ "ctx": { "level": 2 } }),
            "token_claim",
        ),
        (json!({ "required_claims": { "a": "null" } }), json!({ "a": null }), "token_claim"),
        (json!({ "audience": "api" }), json!({ "aud": "api" }), "alice"),
        (json!({ "audience": "api" }), json!({ "aud": "web" }), "token_audience"),
        (json!({ "algorithms": ["RS256"] }), json!({}), "token_algorithm"),
        (json!({ "required_scopes": ["read", "write"] }), json!({ "scope": "write read" }), "alice"),
        (json!({ "required_scopes": ["read", "write"] }), json!({ "scope": "read" }), "token_scope"),
        (json!({ "required_scopes": ["read"] }), json!({ "scope": "readonly" }), "token_scope"),
        (json!({ "required_scopes": ["read"], "scope_claim": "scp" }), json!({ "scp": ["read"] }), "alice"),
        (json!({ "required_roles": ["a", "b"] }), json!({ "roles": ["b"] }), "alice"),
        (json!({ "required_roles": ["a", "b"] }), json!({}), "token_scope"),
        (
            json!({ "required_roles": ["a"], "role_claim": "realm.roles" }),
            json!({ "realm": { "roles": ["a"] } }),
            "alice",
        ),
        (json!({ "consumer_identity_claim": "email" }), json!({ "email": "x@y.test" }), "x@y.test"),
        (json!({ "consumer_identity_claim": "email" }), json!({}), "token_claim"),
        (json!({ "consumer_identity_claim": "email" }), json!({ "email": " " }), "token_claim"),
        (json!({ "consumer_identity_claim": "email" }), json!({ "email": "a\r\nx: y" }), "token_claim"),
        (json!({ "require_consumer": true }), json!({ "sub": "stranger" }), "token_caller"),
        (json!({}), json!({ "sub": "stranger" }), "stranger"),
        (json!({}), json!({ "iss": "https://evil.test" }), "token_issuer"),
        (json!({}), json!({ "exp": now() - 61 }), "token_expired"),
    ] {
        let trial = trial(&web, &provider(&config));
        let token = token(&signer, "EdDSA", "k", &more);
        assert_eq!(caller(&trial, &token).await, expected, "{config} {more}");
    }
}

#[tokio::test]
async fn one_issuers_keys_sign_nothing_for_another() {
    let (mine, theirs) = (Signer::ed(), Signer::ed());
    let web = Web::default();
    web.put(KEYS, &json!({ "keys": [mine.jwk("k")] }));
    web.put("idp2.test:443/keys", &json!({ "keys": [theirs.jwk("k")] }));
    let mut config = provider(&json!({}));
    let second = json!({ "issuer": "https://idp2.test", "jwks_uri": "https://idp2.test/keys" });
    config["providers"].as_array_mut().expect("a list").push(second);
    let trial = trial(&web, &config);
    let other = json!({ "iss": "https://idp2.test" });
    assert_eq!(caller(&trial, &token(&mine, "EdDSA", "k", &json!({}))).await, "alice");
    assert_eq!(caller(&trial, &token(&theirs, "EdDSA", "k", &other)).await, "alice");
    assert_eq!(caller(&trial, &token(&theirs, "EdDSA", "k", &json!({}))).await, "token_signature");
    assert_eq!(caller(&trial, &token(&mine, "EdDSA", "k", &other)).await, "token_signature");
}

#[tokio::test]
async fn settings_around_the_token() {
    let signer = Signer::ed();
    let web = Web::default();
    web.put(KEYS, &json!({ "keys": [signer.jwk("k")] }));
    let mut config = provider(&json!({}));
    config["token_lookup"] = json!("header:X-Token");
    config["hide_credentials"] = json!(true);
    config["claims_to_headers"] = json!({ "sub": "X-User" });
    config["anonymous"] = json!("guest");
    config["require_exp"] = json!(false);
    config["leeway"] = json!(0);
    let trial = trial(&web, &config);
    let forever = token(&signer, "EdDSA", "k", &json!({ "exp": Value::Null }));
    assert_eq!(trial.get("/", &[("x-token", &forever)]).await.status, 401, "`exp` must be a number");
    let soon = token(&signer, "EdDSA", "k", &json!({ "exp": now() - 1 }));
    assert_eq!(trial.get("/", &[("x-token", &soon)]).await.status, 401, "no leeway");
    let header = json!({ "alg": "EdDSA", "kid": "k" }).to_string();
    let endless = signer.raw("EdDSA", &header, &json!({ "iss": ISSUER, "sub": "alice" }).to_string());
    let got = trial.get("/", &[("x-token", &endless), ("x-user", "root")]).await;
    assert_eq!(got.status, 200);
    let asked = trial.asked().pop().expect("a request");
    assert_eq!((asked.field("x-user"), asked.field("x-token")), ("alice", ""));
    assert_eq!(trial.get("/", &[("x-user", "root")]).await.status, 200);
    assert!(!trial.asked().pop().expect("a request").headers.contains_key("x-user"));
    assert_eq!(trial.records().pop().and_then(|it| it.caller).as_deref(), Some("guest"));
}

#[tokio::test]
async fn a_verified_token_is_remembered() {
    let signer = Signer::ed();
    let good = token(&signer, "EdDSA", "k", &json!({}));
    for (size, expected) in [(10, [1, 2]), (0, [3, 0])] {
        let web = Web::default();
        web.put(KEYS, &json!({ "keys": [signer.jwk("k")] }));
        let mut config = provider(&json!({}));
        config["cached_tokens"] = json!(size);
        let spec = json!({
            "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "t.test", "backend_port": 80 }],
            "plugin_configs": [{ "id": "j", "plugin_name": "jwks_auth", "proxy_id": "a", "config": config }],
        });
        let world = web.world();
        let trial = Trial::of_spec(&[entry::<JwksAuth>()], &spec.to_string(), &world);
        for _ in 0..3 {
            assert_eq!(caller(&trial, &good).await, "alice");
        }
        let count = |result| world.meters().counter(TOKENS, &["result"], &[result]).get();
        assert_eq!(["verified", "cached"].map(count), expected, "{size}");
    }
}

#[tokio::test]
async fn a_revoked_token_is_refused_also_when_it_is_remembered() {
    let signer = Signer::ed();
    let web = Web::default();
    web.put(KEYS, &json!({ "keys": [signer.jwk("k")] }));
    let mut config = provider(&json!({}));
    config["revoked_tokens"] = json!(["stolen"]);
    let trial = trial(&web, &config);
    for (id, expected) in
        [("stolen", "token_revoked"), ("fine", "alice"), ("fine", "alice"), ("stolen", "token_revoked")]
    {
        assert_eq!(caller(&trial, &token(&signer, "EdDSA", "k", &json!({ "jti": id }))).await, expected);
    }
    let mut files = provider(&json!({}));
    files["revoked_token_files"] = json!(["none"]);
    let problems = Trial::refused(&[entry::<JwksAuth>()], "jwks_auth", &files);
    assert_eq!(problems.0[0].path, "config.revoked_token_files[0]");
}

#[tokio::test(start_paused = true)]
async fn keys_are_kept_fresh_in_the_background() {
    let web = Web::default();
    web.put(KEYS, &json!({ "keys": [Signer::ed().jwk("k")] }));
    let mut config = provider(&json!({}));
    config["jwks_refresh_interval"] = json!(100);
    let config = serde_json::from_value(config).expect("settings");
    let plugin = JwksAuth::build(config, &web.world()).unwrap_or_else(|problems| panic!("{problems}"));
    let source = plugin.providers[0].source.clone();
    let (handle, control) = TaskControl::new();
    let begun = tokio::time::Instant::now();
    let task = tokio::spawn(source.clone().keep_fresh(control));
    while web.asked() < 3 {
        tokio::time::advance(Duration::from_secs(1)).await;
        tokio::task::yield_now().await;
    }
    assert!((200..=202).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    drop(handle);
    assert!(task.await.expect("no panic").is_ok());

    web.clear();
    let (_handle, control) = TaskControl::new();
    assert!(source.clone().keep_fresh(control).await.is_err(), "a failure is reported, and tried again");
    assert!(source.keys().is_some(), "and leaves the keys as they are");
}

#[test]
fn settings_that_make_no_sense() {
    let issuer = json!({ "issuer": ISSUER });
    let with = |more: Value| provider(&more);
    for (config, path) in [
        (json!({}), "config.providers"),
        (json!({ "providers": [{}] }), "config.providers[0].issuer"),
        (json!({ "providers": [issuer.clone(), issuer] }), "config.providers[1].issuer"),
        (with(json!({ "algorithms": ["HS256"] })), "config.providers[0].algorithms"),
        (with(json!({ "algorithms": [] })), "config.providers[0].algorithms"),
        (with(json!({ "discovery_url": "https://idp.test/d" })), "config.providers[0].discovery_url"),
        (with(json!({ "jwks_uri": "ftp://idp.test" })), "config.providers[0].jwks_uri"),
        (json!({ "providers": [{ "issuer": "not a url" }] }), "config.providers[0].issuer"),
    ] {
        let problems = Trial::refused(&[entry::<JwksAuth>()], "jwks_auth", &config);
        assert_eq!(problems.0[0].path, path, "{config}");
    }
}
