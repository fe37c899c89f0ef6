//! Tokens of consumers, through the whole pipeline.

use gateway_core::plugin::entry;
use gateway_core::testing::Trial;
use serde_json::{Value, json};

use super::*;
use crate::jose::testing::{Signer, b64};

const SECRET: &str = "a secret that is long enough for the longest of the three hashes.";

fn trial_of(config: &Value, bob: &Value) -> Trial {
    let spec = json!({
        "proxies": [{
            "id": "a", "listen_path": "/", "strip_listen_path": false,
            "backend_host": "t.test", "backend_port": 80, "backend_scheme": "http",
        }],
        "consumers": [
            { "id": "a", "username": "alice", "credentials": { "jwt": SECRET } },
            { "id": "b", "username": "bob", "custom_id": "b-1", "credentials": { "jwt_auth": bob } },
            { "id": "g", "username": "guest" },
        ],
        "plugin_configs": [{ "id": "j", "plugin_name": "jwt_auth", "proxy_id": "a", "config": config }],
    });
    Trial::of_spec(&[entry::<JwtAuth>()], &spec.to_string(), &World::default())
}

fn trial(config: &Value) -> Trial {
    trial_of(config, &json!("bob has another secret, one that is his alone."))
}

fn alice() -> Signer {
    Signer::Secret(SECRET.as_bytes().to_vec())
}

fn claims(more: &Value) -> Value {
    let mut all = json!({ "sub": "alice", "exp": now() + 600 });
    for (name, value) in more.as_object().expect("an object") {
        all[name] = value.clone();
    }
    all
}

/// The caller, or the refusal's reason.
async fn caller(trial: &Trial, token: &str) -> String {
    let got = trial.get("/", &[("authorization", &format!("Bearer {token}"))]).await;
    let record = trial.records().pop().expect("a record");
    if got.status == 200 {
        return record.caller.expect("a caller").to_string();
    }
    assert_eq!(got.status, 401);
    assert!(got.field("www-authenticate").contains("error=\"invalid_token\""), "{:?}", got.headers);
    assert!(trial.asked().is_empty(), "a refused request must not reach the target");
    record.reason.expect("a reason").to_owned()
}

#[tokio::test]
async fn revoked_tokens() {
    let config = json!({ "revoked_tokens": ["stolen"] });
    for (more, expected) in [
        (json!({ "jti": "stolen" }), "token_revoked"),
        (json!({ "jti": "other" }), "alice"),
        (json!({}), "alice"),
    ] {
        let token = alice().token("HS256", &claims(&more));
        assert_eq!(caller(&trial(&config), &token).await, expected, "{more}");
    }
    let config = json!({ "revoked_token_files": ["none"] });
    let problems = Trial::refused(&[entry::<JwtAuth>()], "jwt_auth", &config);
    assert_eq!(problems.0[0].path, "config.revoked_token_files[0]");
}

#[tokio::test]
async fn tokens_are_the_consumers_own() {
    let good = claims(&json!({}));
    assert_eq!(caller(&trial(&json!({})), &alice().token("HS256", &good)).await, "alice");
    let theirs = claims(&json!({ "sub": "bob" }));
    for (token, expected) in [
        (alice().token("HS256", &theirs), "token_signature"),
        (alice().token("HS256", &claims(&json!({ "sub": "nobody" }))), "token_caller"),
        (alice().token("HS256", &claims(&json!({ "sub": "guest" }))), "token_signature"),
        (alice().token("HS256", &json!({ "exp": now() + 600 })), "token_claim"),
        (alice().token("HS256", &claims(&json!({ "sub": ["alice"] }))), "token_claim"),
        (alice().token("HS256", &claims(&json!({ "exp": now() - 61 }))), "token_expired"),
        (alice().token("HS256", &json!({ "sub": "alice" })), "token_claim"),
        (alice().token("HS256", &claims(&json!({ "nbf": now() + 120 }))), "token_not_yet_valid"),
        (format!("{}.{}.", b64(r#"{"alg":"none"}"#), b64(good.to_string())), "token_algorithm"),
        ("opaque".to_owned(), "token_malformed"),
        (String::new(), "token_malformed"),
        ("x".repeat(token::MAX_TOKEN + 1), "token_malformed"),
    ] {
        assert_eq!(caller(&trial(&json!({})), &token).await, expected, "{token}");
    }
}

#[tokio::test]
async fn a_public_key_is_never_a_secret() {
    let signer = Signer::rsa();
    let pem = signer.pem();
    let bob = claims(&json!({ "sub": "bob" }));
    let trial = |algorithms: &[&str]| {
        let config = if algorithms.is_empty() { json!({}) } else { json!({ "algorithms": algorithms }) };
        trial_of(&config, &json!({ "public_key": pem }))
    };
    assert_eq!(caller(&trial(&[]), &signer.token("RS256", &bob)).await, "bob");
    assert_eq!(caller(&trial(&[]), &signer.token("PS512", &bob)).await, "bob");
    let key_as_secret = [pem.as_bytes().to_vec(), pem.trim().as_bytes().to_vec()];
    for secret in key_as_secret {
        let confused = Signer::Secret(secret).token("HS256", &bob);
        assert_eq!(caller(&trial(&[]), &confused).await, "token_signature");
    }
    assert_eq!(caller(&trial(&["RS256"]), &signer.token("PS256", &bob)).await, "token_algorithm");
    assert_eq!(caller(&trial(&["RS256"]), &signer.token("RS256", &bob)).await, "bob");
}

#[tokio::test]
async fn a_kid_picks_among_the_consumers_keys_and_does_nothing_else() {
    let (old, new) = (Signer::ec("ES256"), Signer::ed());
    let keys = json!([{ "public_key": old.pem(), "kid": "old" }, { "public_key": new.pem(), "kid": "new" }]);
    let bob = claims(&json!({ "sub": "bob" })).to_string();
    let header = |algorithm: &str, kid: &str| json!({ "alg": algorithm, "kid": kid }).to_string();
    for (signer, algorithm, kid, expected) in [
        (&old, "ES256", "old", "bob"),
        (&new, "EdDSA", "new", "bob"),
        (&new, "EdDSA", "old", "token_signature"),
        (&new, "EdDSA", "../../etc/passwd", "token_signature"),
        (&new, "EdDSA", "new' OR '1'='1", "token_signature"),
    ] {
        let token = signer.raw(algorithm, &header(algorithm, kid), &bob);
        assert_eq!(caller(&trial_of(&json!({}), &keys), &token).await, expected, "{kid}");
    }
    let without = new.raw("EdDSA", r#"{"alg":"EdDSA"}"#, &bob);
    assert_eq!(caller(&trial_of(&json!({}), &keys), &without).await, "token_signature");
}

#[tokio::test]
async fn each_rule_is_applied() {
    let token = |more: Value| alice().token("HS256", &claims(&more));
    for (config, more, expected) in [
        (json!({ "issuer": "i" }), json!({ "iss": "i" }), "alice"),
        (json!({ "issuer": ["h", "i"] }), json!({ "iss": "j" }), "token_issuer"),
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
        (json!({ "audience": "a" }), json!({ "aud": ["a"] }), "alice"),
        (json!({ "audience": ["a"] }), json!({ "aud": "b" }), "token_audience"),
        (json!({ "leeway": 0 }), json!({ "exp": now() - 1 }), "token_expired"),
        (json!({ "leeway": "5m" }), json!({ "exp": now() - 200 }), "alice"),
        (json!({ "require_exp": false }), json!({ "exp": now() - 200 }), "token_expired"),
        (json!({ "algorithms": ["ES256"] }), json!({}), "token_algorithm"),
        (json!({ "consumer_claim_field": "user.name" }), json!({ "user": { "name": "alice" } }), "alice"),
        (json!({ "consumer_claim_field": "client" }), json!({ "client": "bob" }), "token_signature"),
    ] {
        assert_eq!(caller(&trial(&config), &token(more)).await, expected, "{config}");
    }
    let forever = alice().token("HS256", &json!({ "sub": "alice" }));
    assert_eq!(caller(&trial(&json!({ "require_exp": false })), &forever).await, "alice");
}

#[tokio::test]
async fn a_custom_id_names_its_consumer() {
    let signer = Signer::ed();
    let token = signer.token("EdDSA", &claims(&json!({ "sub": "b-1" })));
    let trial = trial_of(&json!({}), &json!({ "public_key": signer.pem() }));
    assert_eq!(caller(&trial, &token).await, "bob");
}

#[tokio::test]
async fn tokens_in_other_places() {
    let token = alice().token("HS256", &claims(&json!({})));
    let config =
        json!({ "token_lookup": ["header:X-Token", "query:jwt", "cookie:sid"], "hide_credentials": true });
    let all = trial(&config);
    let cookie = format!("a=1; sid={token}; b=2");
    let got = all.get("/p?x=1", &[("cookie", &cookie)]).await;
    assert_eq!((got.status, all.asked()[0].field("cookie")), (200, "a=1; b=2"));
    assert_eq!(all.get(&format!("/p?jwt={token}&x=1"), &[]).await.status, 200);
    assert_eq!(all.asked()[1].path, "/p?x=1");
    assert_eq!(all.get("/", &[("x-token", &token)]).await.status, 200);
    assert_eq!(all.asked()[2].field("x-token"), "");
    let twice = all.get(&format!("/?jwt={token}"), &[("x-token", &token)]).await;
    assert_eq!(twice.status, 401, "two tokens");
    let twice = all.get("/", &[("cookie", &format!("sid={token}")), ("cookie", "sid=x")]).await;
    assert_eq!(twice.status, 401, "two cookies of one name");
    assert_eq!(all.get("/", &[("authorization", &format!("Bearer {token}"))]).await.status, 401);

    let shown = trial(&json!({}));
    let bearer = format!("bearer {token}");
    assert_eq!(shown.get("/", &[("authorization", &bearer)]).await.status, 200);
    assert_eq!(shown.asked()[0].field("authorization"), bearer, "kept unless asked otherwise");
}

#[tokio::test]
async fn without_a_token() {
    let got = trial(&json!({})).get("/", &[("authorization", "Basic YTpi")]).await;
    assert_eq!((got.status, got.field("www-authenticate")), (401, "Bearer realm=\"ferrum-edge\""));

    let open = trial(&json!({ "anonymous": "guest" }));
    assert_eq!(open.get("/", &[]).await.status, 200);
    assert_eq!(open.records()[0].caller.as_deref(), Some("guest"));
    assert_eq!(open.get("/", &[("authorization", "Bearer wrong")]).await.status, 401);

    let nobody = trial(&json!({ "anonymous": "no such consumer" }));
    assert_eq!(nobody.get("/", &[]).await.status, 401);
}

#[tokio::test]
async fn claims_become_header_fields_and_clients_cannot_forge_them() {
    let config = json!({
        "anonymous": "guest",
        "claims_to_headers": {
            "sub": "X-User", "realm.roles": "X-Roles", "level": "X-Level", "bad": "X-Bad", "none": "X-None",
        },
    });
    let trial = trial(&config);
    let token = alice().token(
        "HS256",
        &claims(&json!({
            "realm": { "roles": ["a", "b,c"] }, "level": 7, "bad": "x\r\nx-admin: 1", "X-None": "forged",
        })),
    );
    let bearer = format!("Bearer {token}");
    let forged = [("authorization", &*bearer), ("x-user", "root"), ("x-none", "forged"), ("x-bad", "forged")];
    assert_eq!(trial.get("/", &forged).await.status, 200);
    let asked = &trial.asked()[0];
    assert_eq!(asked.field("x-user"), "alice");
    assert_eq!(asked.field("x-roles"), "a,b%2Cc");
    assert_eq!(asked.field("x-level"), "7");
    assert!(!["x-none", "x-bad", "x-admin"].iter().any(|name| asked.headers.contains_key(*name)));

    assert_eq!(trial.get("/", &[("x-user", "root")]).await.status, 200);
    assert!(!trial.asked()[1].headers.contains_key("x-user"), "also without a token");
}

#[tokio::test]
async fn a_verified_token_is_remembered_until_it_expires() {
    let world = World::default();
    let counts = |result| world.meters().counter(TOKENS, &["result"], &[result]).get();
    let spec = |size: u32| {
        json!({
            "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "t.test", "backend_port": 80 }],
            "consumers": [{ "id": "a", "username": "alice", "credentials": { "jwt": SECRET } }],
            "plugin_configs": [{
                "id": "j", "plugin_name": "jwt_auth", "proxy_id": "a", "config": { "cached_tokens": size },
            }],
        })
        .to_string()
    };
    let bearer = format!("Bearer {}", alice().token("HS256", &claims(&json!({}))));
    let fields = [("authorization", &*bearer)];
    let trial = Trial::of_spec(&[entry::<JwtAuth>()], &spec(10), &world);
    for _ in 0..3 {
        assert_eq!(trial.get("/", &fields).await.status, 200);
    }
    assert_eq!((counts("verified"), counts("cached"), counts("refused")), (1, 2, 0));
    let altered = format!("{bearer}A");
    assert_eq!(trial.get("/", &[("authorization", &altered)]).await.status, 401);
    assert_eq!(counts("refused"), 1);

    let trial = Trial::of_spec(&[entry::<JwtAuth>()], &spec(0), &world);
    for _ in 0..2 {
        assert_eq!(trial.get("/", &fields).await.status, 200);
    }
    assert_eq!((counts("verified"), counts("cached")), (3, 2));
}

#[test]
fn settings_that_make_no_sense() {
    for (config, path) in [
        (json!({ "algorithms": [] }), "config.algorithms"),
        (json!({ "algorithms": ["none"] }), "config.algorithms[0]"),
        (json!({ "consumer_claim_field": "" }), "config.consumer_claim_field"),
        (json!({ "token_lookup": "X-Token" }), "config.token_lookup"),
        (json!({ "token_lookup": [] }), "config.token_lookup"),
        (json!({ "leeway": 301 }), "config.leeway"),
        (json!({ "claims_to_headers": { "sub": "a b" } }), "config.claims_to_headers.sub"),
        (json!({ "claims_to_headers": { "sub": "Host" } }), "config.claims_to_headers.sub"),
    ] {
        let problems = Trial::refused(&[entry::<JwtAuth>()], "jwt_auth", &config);
        assert_eq!(problems.0[0].path, path, "{config}");
    }
}
