//! Tokens that the server knows, does not know, knew, and a server that is away.

use gateway_core::plugin::entry;
use gateway_core::testing::Trial;
use gateway_plugin_common::testing::Machine;
use gateway_plugin_common::testing::net::{Served, page};
use serde_json::json;

use super::*;
use crate::assertion::tests::private_pem;
use crate::jose::testing::Signer;
use crate::jose::{Key, Token};

fn settings(more: &Value) -> Value {
    let mut all = json!({
        "introspection_url": "https://idp.test/introspect?x=1", "client_id": "gate way", "client_secret": "s:cret",
    });
    for (name, value) in more.as_object().expect("an object") {
        all[name] = value.clone();
    }
    all
}

fn trial(machine: &Machine, more: &Value) -> (Trial, World) {
    let spec = json!({
        "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "t.test", "backend_port": 80 }],
        "consumers": [{ "id": "a", "username": "alice" }, { "id": "g", "username": "guest" }],
        "plugin_configs": [{ "id": "i", "plugin_name": "oauth2_introspection", "proxy_id": "a", "config": settings(more) }],
    });
    let world = machine.world();
    (Trial::of_spec(&[entry::<Oauth2Introspection>()], &spec.to_string(), &world), world)
}

/// A machine whose server answers so.
fn answering(answer: Value) -> Machine {
    let machine = Machine::default();
    machine.net.serve(move |_| page(200, &answer));
    machine
}

/// The caller, or the refusal's status and reason.
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
async fn what_the_server_is_asked() {
    let (basic, post) =
        (json!({}), json!({ "client_auth": "client_secret_post", "token_type_hint": "access_token" }));
    for (more, authorization, form) in [
        (basic, "Basic Z2F0ZSUyMHdheTpzJTNBY3JldA==", json!({ "token": "a b&c" })),
        (
            post,
            "",
            json!({ "token": "a b&c", "token_type_hint": "access_token", "client_id": "gate way", "client_secret": "s:cret" }),
        ),
        (json!({ "client_secret": null }), "", json!({ "token": "a b&c", "client_id": "gate way" })),
    ] {
        let machine = answering(json!({ "active": true, "sub": "x" }));
        assert_eq!(caller(&trial(&machine, &more).0, "a b&c").await, "x");
        let sent = machine.net.sent().pop().expect("a call");
        assert_eq!((sent.url.as_str(), sent.query.as_deref()), ("idp.test:443/introspect", Some("x=1")));
        assert_eq!((sent.method.as_str(), sent.field("authorization")), ("POST", authorization));
        assert_eq!(json!(sent.form()), form, "{more}");
    }
}

#[tokio::test]
async fn the_gateway_may_sign_instead_of_sending_a_secret() {
    let signer = Signer::ec("ES256");
    let key = Key::pem(&signer.pem()).expect("a key");
    for (more, audience) in [
        (json!({}), "https://idp.test/introspect?x=1"),
        (json!({ "client_assertion_audience": "https://idp.test" }), "https://idp.test"),
    ] {
        let mut all = json!({
            "client_auth": "private_key_jwt", "client_secret": null, "client_private_key": private_pem(&signer),
            "client_key_id": "k",
        });
        for (name, value) in more.as_object().expect("an object") {
            all[name] = value.clone();
        }
        let machine = answering(json!({ "active": true, "sub": "x" }));
        assert_eq!(caller(&trial(&machine, &all).0, "t").await, "x");
        let sent = machine.net.sent().pop().expect("a call");
        let form = sent.form();
        assert_eq!(
            (form["client_id"].as_str(), form.get("client_secret"), sent.field("authorization")),
            ("gate way", None, "")
        );
        assert_eq!(form["client_assertion_type"], "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
        let token =
            Token::read(form["client_assertion"].as_bytes()).unwrap_or_else(|fault| panic!("{fault:?}"));
        assert!(token.is_signed_with(&key));
        assert_eq!((token.key_id.as_deref(), token.claims["aud"].as_str()), (Some("k"), Some(audience)));
        assert_eq!(
            (token.claims["iss"].as_str(), token.claims["sub"].as_str()),
            (Some("gate way"), Some("gate way"))
        );
    }
}

#[tokio::test]
async fn what_the_answer_must_say() {
    let later = now() + 60;
    for (more, answer, expected) in [
        (json!({}), json!({ "active": true, "sub": "alice" }), "alice"),
        (json!({}), json!({ "active": true, "sub": "s", "username": "u", "client_id": "c" }), "u"),
        (json!({}), json!({ "active": true, "client_id": "c" }), "c"),
        (
            json!({ "consumer_claims": ["a.b"] }),
            json!({ "active": true, "sub": "s", "a": { "b": "c" } }),
            "c",
        ),
        (json!({}), json!({ "active": true }), "token_claim"),
        (json!({}), json!({ "active": false, "sub": "alice" }), "token_inactive"),
        (json!({}), json!({ "active": "true", "sub": "alice" }), "503 introspection_failed"),
        (json!({}), json!({ "sub": "alice" }), "503 introspection_failed"),
        (json!({}), json!([]), "503 introspection_failed"),
        (json!({}), json!({ "active": true, "sub": "alice", "exp": later }), "alice"),
        (json!({}), json!({ "active": true, "sub": "alice", "exp": 1 }), "token_expired"),
        (json!({}), json!({ "active": true, "sub": "alice", "nbf": later }), "token_not_yet_valid"),
        (json!({ "issuer": "i" }), json!({ "active": true, "sub": "alice", "iss": "i" }), "alice"),
        (json!({ "issuer": "i" }), json!({ "active": true, "sub": "alice" }), "token_issuer"),
        (json!({ "audience": ["a", "b"] }), json!({ "active": true, "sub": "alice", "aud": ["b"] }), "alice"),
        (json!({ "audience": "a" }), json!({ "active": true, "sub": "alice", "aud": "c" }), "token_audience"),
        (
            json!({ "required_scopes": ["r", "w"] }),
            json!({ "active": true, "sub": "alice", "scope": "w x r" }),
            "alice",
        ),
        (
            json!({ "required_scopes": ["r", "w"] }),
            json!({ "active": true, "sub": "alice", "scope": "r" }),
            "token_scope",
        ),
        (
            json!({ "required_scopes": ["r"], "scope_claim": "scp" }),
            json!({ "active": true, "sub": "alice", "scp": ["r"] }),
            "alice",
        ),
        (
            json!({ "required_roles": ["a", "b"] }),
            json!({ "active": true, "sub": "alice", "roles": ["b"] }),
            "alice",
        ),
        (
            json!({ "required_roles": ["a"], "role_claim": "x" }),
            json!({ "active": true, "sub": "alice", "roles": ["a"] }),
            "token_scope",
        ),
        (json!({ "require_consumer": true }), json!({ "active": true, "sub": "x" }), "token_caller"),
    ] {
        let machine = answering(answer.clone());
        assert_eq!(caller(&trial(&machine, &more).0, "t").await, expected, "{more} {answer}");
    }
}

#[tokio::test]
async fn fields_that_the_answer_must_have() {
    for (field, expected) in [
        (json!("Bearer"), "alice"),
        (json!(["x", "Bearer"]), "alice"),
        (json!("ID"), "token_claim"),
        (json!(null), "token_claim"),
    ] {
        let machine = answering(json!({ "active": true, "sub": "alice", "typ": field }));
        let (trial, _) = trial(&machine, &json!({ "required_claims": { "typ": "Bearer" } }));
        assert_eq!(caller(&trial, "t").await, expected, "{field}");
    }
}

#[tokio::test]
async fn answers_are_remembered_for_a_while() {
    let exp = now() + 1000;
    for (more, answer, asked) in [
        (json!({}), json!({ "active": true, "sub": "x" }), 1),
        (json!({}), json!({ "active": true, "sub": "x", "exp": exp }), 1),
        (json!({ "cache_ttl": 0 }), json!({ "active": true, "sub": "x" }), 3),
        (json!({ "cached_tokens": 0 }), json!({ "active": true, "sub": "x" }), 3),
        (json!({}), json!({ "active": false }), 1),
        (json!({ "negative_cache_ttl": 0 }), json!({ "active": false }), 3),
        (json!({}), json!({ "error": "x" }), 3),
    ] {
        let machine = answering(answer.clone());
        let (trial, world) = trial(&machine, &more);
        for _ in 0..3 {
            caller(&trial, "t").await;
        }
        assert_eq!(machine.net.sent().len(), asked, "{more} {answer}");
        let count = |result| world.meters().counter(TOKENS, &["result"], &[result]).get();
        assert_eq!(["active", "inactive", "cached", "failed"].map(count).iter().sum::<u64>(), 3);
        assert_eq!(usize::try_from(count("cached")).expect("small"), 3 - asked);
        caller(&trial, "another").await;
        assert_eq!(machine.net.sent().len(), asked + 1, "another token is asked about");
    }
}

#[test]
fn nothing_is_remembered_beyond_its_expiry() {
    let config = serde_json::from_value(settings(&json!({}))).expect("settings");
    let plugin =
        Oauth2Introspection::build(config, &World::default()).unwrap_or_else(|problems| panic!("{problems}"));
    plugin.known.put([1; 32], Err(TokenError::Inactive), 100);
    assert!(plugin.known.get(&[1; 32], 99).is_some() && plugin.known.get(&[1; 32], 100).is_none());
    assert_eq!(plugin.ttl, (60, 10));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_gives_no_answer_lets_nobody_in() {
    let machine = Machine::default();
    let (trial, _) =
        trial(&machine, &json!({ "timeout": "100ms", "max_concurrent_calls": 1, "max_waiting_calls": 0 }));
    assert_eq!(caller(&trial, "t").await, "503 introspection_failed", "away");
    let record = trial.records().pop().expect("a record");
    assert_eq!(record.failure.as_deref(), Some("idp.test: connect_failed"));
    assert!(record.fields.contains(&("oauth2_introspection.server", "idp.test".into())));
    for (status, body) in
        [(401, json!({ "error": "invalid_client" })), (500, json!({ "active": true, "sub": "x" }))]
    {
        machine.net.serve(move |_| page(status, &body));
        assert_eq!(caller(&trial, "t").await, "503 introspection_failed");
    }
    machine.net.serve(|_| Served::Silent);
    let fields = [("authorization", "Bearer t")];
    let (first, second) = tokio::join!(trial.get("/", &fields), trial.get("/", &fields));
    assert_eq!((first.status, first.field("retry-after")), (503, ""), "silent");
    assert_eq!((second.status, second.field("retry-after")), (503, "1"), "nobody may wait");
    let why: Vec<_> = trial.records().into_iter().filter_map(|record| record.failure).collect();
    let late = "idp.test: upstream_timeout: no answer within 100ms, which is what `timeout` allows";
    assert!(why.iter().any(|why| &**why == late), "{why:?}");
    machine.net.serve(|_| page(200, &json!({ "active": true, "sub": "x" })));
    assert_eq!(caller(&trial, "t").await, "x", "no failure is remembered");
}

#[tokio::test]
async fn settings_around_the_token() {
    let machine = answering(json!({ "active": true, "sub": "alice", "org": { "id": 7 } }));
    let more = json!({
        "token_lookup": "header:X-Token", "hide_credentials": true, "anonymous": "guest",
        "claims_to_headers": { "org.id": "X-Org" },
    });
    let (trial, _) = trial(&machine, &more);
    for _ in 0..2 {
        assert_eq!(trial.get("/", &[("x-token", "t"), ("x-org", "root")]).await.status, 200);
        let asked = trial.asked().pop().expect("a request");
        assert_eq!((asked.field("x-org"), asked.field("x-token")), ("7", ""), "also from the cache");
    }
    assert_eq!(trial.get("/", &[("x-org", "root")]).await.status, 200);
    assert!(!trial.asked().pop().expect("a request").headers.contains_key("x-org"));
    assert_eq!(trial.records().pop().and_then(|it| it.caller).as_deref(), Some("guest"));
    let long = "x".repeat(20_000);
    assert_eq!(trial.get("/", &[("x-token", &long)]).await.status, 401);
    assert_eq!(trial.get("/", &[("x-token", "a"), ("x-token", "b")]).await.status, 401);
    assert_eq!(machine.net.sent().len(), 1, "what can't be a token is not asked about");
}

#[test]
fn settings_that_make_no_sense() {
    for (config, path) in [
        (json!({}), "config.introspection_url"),
        (json!({ "introspection_url": "https://idp.test/" }), "config.client_id"),
        (settings(&json!({ "introspection_url": "ftp://x" })), "config.introspection_url"),
        (settings(&json!({ "client_secret": "" })), "config.client_secret"),
        (settings(&json!({ "consumer_claims": [] })), "config.consumer_claims"),
        (settings(&json!({ "client_auth": "none" })), "config.client_auth"),
        (settings(&json!({ "client_auth": "private_key_jwt" })), "config.client_secret"),
        (
            settings(&json!({ "client_auth": "private_key_jwt", "client_secret": null })),
            "config.client_private_key",
        ),
        (settings(&json!({ "client_private_key": "x" })), "config.client_private_key"),
        (settings(&json!({ "client_key_id": "x" })), "config.client_key_id"),
        (settings(&json!({ "timeout": "0ms" })), "config.timeout"),
        (settings(&json!({ "claims_to_headers": { "a": "Host" } })), "config.claims_to_headers.a"),
    ] {
        let problems = Trial::refused(&[entry::<Oauth2Introspection>()], "oauth2_introspection", &config);
        assert_eq!(problems.0[0].path, path, "{config}");
    }
}
