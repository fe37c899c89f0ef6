//! Passwords that are right, wrong, changed, too many, and of nobody.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as B64;
use futures_util::FutureExt as _;
use gateway_core::plugin::entry;
use gateway_core::plugin::world::tasks::TaskControl;
use gateway_core::testing::Trial;
use gateway_plugin_common::testing::Machine;
use serde_json::json;

use super::*;

/// `correct horse`.
const BCRYPT: &str = "$2b$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e";
const ARGON2ID: &str =
    "$argon2id$v=19$m=64,t=1,p=1$c2FsdHNhbHRzYWx0$Kw3/ZjLNvvrvmWv7DSmJdvIaVuO5yzpUAyMmNiCnHLI";
const APR1: &str = "$apr1$saltsalt$EGVZDNN6gOqijy.tv9axG/";

/// Alice has a plain password, Bob two hashes, Carol none of her own, and the guest is nobody's password.
fn trial(world: &World, config: &Value) -> Trial {
    let spec = json!({
        "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "t.test", "backend_port": 80 }],
        "consumers": [
            { "id": "a", "username": "alice", "credentials": { "basic_auth": { "password": "sesame: open" } } },
            { "id": "b", "username": "bob", "custom_id": "b-1", "credentials": {
                "basicauth": [{ "password_hash": ARGON2ID }, { "password_hash": BCRYPT }],
            } },
            { "id": "c", "username": "carol" },
            { "id": "g", "username": "guest" },
        ],
        "plugin_configs": [{ "id": "p", "plugin_name": "basic_auth", "proxy_id": "a", "config": config }],
    });
    Trial::of_spec(&[entry::<BasicAuth>()], &spec.to_string(), world)
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", B64.encode(format!("{user}:{password}")))
}

/// The caller, or the refusal's status and reason.
async fn caller(trial: &Trial, authorization: &str) -> String {
    let got = trial.get("/", &[("authorization", authorization)]).await;
    let record = trial.records().pop().expect("a record");
    match got.status {
        200 => record.caller.expect("a caller").to_string(),
        401 => {
            assert!(got.field("www-authenticate").starts_with("Basic realm="));
            format!("401 {}", record.reason.expect("a reason"))
        }
        status => format!("{status} {}", record.reason.expect("a reason")),
    }
}

#[tokio::test]
async fn who_is_recognised() {
    let machine = Machine::default();
    let users =
        format!("# staff\n\ndave:{APR1}\r\ncarol:{BCRYPT}:a comment\nalice:{BCRYPT}\nerin:{ARGON2ID}\n");
    machine.files.put("users", &users);
    let trial = trial(&machine.world(), &json!({ "htpasswd_files": ["users"] }));
    for (user, password, expected) in [
        ("alice", "sesame: open", "alice"),
        ("alice", "sesame", "401 password_wrong"),
        ("alice", "correct horse", "401 password_wrong"),
        ("bob", "correct horse", "bob"),
        ("b-1", "correct horse", "bob"),
        ("bob", "correct hors", "401 password_wrong"),
        ("carol", "correct horse", "carol"),
        ("dave", "correct horse", "dave"),
        ("erin", "correct horse", "erin"),
        ("erin", "wrong", "401 password_wrong"),
        ("guest", "", "401 password_wrong"),
        ("mallory", "correct horse", "401 password_wrong"),
        ("Alice", "sesame: open", "401 password_wrong"),
    ] {
        assert_eq!(caller(&trial, &basic(user, password)).await, expected, "{user}:{password}");
    }
    assert!(trial.asked().iter().all(|asked| asked.field("authorization").is_empty()));
}

#[tokio::test]
async fn credentials_that_are_none() {
    let machine = Machine::default();
    let trial = trial(&machine.world(), &json!({}));
    let unpadded = B64.encode("alice:sesame: open").trim_end_matches('=').to_owned();
    for (authorization, expected) in [
        (format!("basic {unpadded}"), "alice"),
        (format!("BASIC  {unpadded}"), "alice"),
        ("Bearer abc".to_owned(), "401 password_missing"),
        ("Basicx abc".to_owned(), "401 password_missing"),
        ("Basic".to_owned(), "401 credentials_malformed"),
        ("Basic ".to_owned(), "401 credentials_malformed"),
        ("Basic *".to_owned(), "401 credentials_malformed"),
        (format!("Basic {}", B64.encode("alice")), "401 credentials_malformed"),
        (format!("Basic {}", B64.encode(":sesame: open")), "401 credentials_malformed"),
        (format!("Basic {}", B64.encode("alice\n:x")), "401 credentials_malformed"),
        (format!("Basic {}", B64.encode("alice:sesame: open\0more")), "401 credentials_malformed"),
        (format!("Basic {}", B64.encode([255, b':', b'x'])), "401 credentials_malformed"),
        (format!("Basic {}", B64.encode(format!("alice:{}", "x".repeat(5000)))), "401 credentials_malformed"),
    ] {
        assert_eq!(caller(&trial, &authorization).await, expected, "{authorization}");
    }
    let (good, other) = (basic("alice", "sesame: open"), basic("bob", "x"));
    let got = trial.get("/", &[("authorization", &good), ("authorization", &other)]).await;
    assert_eq!(got.status, 401, "two credentials");
    let got = trial.get("/", &[("authorization", &good), ("authorization", "Bearer x")]).await;
    assert_eq!(got.status, 401, "a second one of another kind");
}

#[tokio::test]
async fn options_around_the_password() {
    let machine = Machine::default();
    let config = json!({ "realm": "The Shop", "hide_credentials": false, "anonymous": "guest" });
    let open = trial(&machine.world(), &config);
    let good = basic("alice", "sesame: open");
    assert_eq!(caller(&open, &good).await, "alice");
    assert_eq!(open.asked().pop().expect("a request").field("authorization"), good);
    let got = open.get("/", &[("authorization", &basic("alice", "wrong"))]).await;
    assert_eq!(got.field("www-authenticate"), "Basic realm=\"The Shop\", charset=\"UTF-8\"");
    assert_eq!((got.status, open.get("/", &[]).await.status), (401, 200));
    assert_eq!(open.records().pop().and_then(|it| it.caller).as_deref(), Some("guest"));
}

#[tokio::test]
async fn good_passwords_are_remembered_and_wrong_ones_are_not() {
    for (config, checks) in
        [(json!({}), 1), (json!({ "cache_ttl": 0 }), 3), (json!({ "cached_passwords": 0 }), 3)]
    {
        let machine = Machine::default();
        let world = machine.world();
        let trial = trial(&world, &config);
        for _ in 0..3 {
            assert_eq!(caller(&trial, &basic("bob", "correct horse")).await, "bob");
        }
        assert_eq!(machine.threads.taken(), checks, "{config}");
        for _ in 0..3 {
            assert_eq!(caller(&trial, &basic("bob", "wrong")).await, "401 password_wrong");
        }
        assert_eq!(machine.threads.taken(), checks + 3);
        let count = |result| world.meters().counter(PASSWORDS, &["result"], &[result]).get();
        let expected =
            [u64::try_from(checks).expect("small"), 3 - u64::try_from(checks).expect("small"), 3, 0];
        assert_eq!(["verified", "cached", "refused", "busy"].map(count), expected, "{config}");
    }
}

#[test]
fn what_is_remembered_is_of_one_user_one_hash_and_one_password() {
    let memory = Memory::new(10);
    let hash = [Stored::hash(BCRYPT).expect("a hash")];
    let print = checks::print(&memory, "bob", &hash, b"x");
    assert_eq!(print, checks::print(&memory, "bob", &hash, b"x"));
    assert_ne!(print, checks::print(&memory, "bo", &hash, b"x"));
    assert_ne!(
        print,
        checks::print(&memory, "bob", &[Stored::hash(APR1).expect("a hash")], b"x"),
        "a new password"
    );
    assert_ne!(print, checks::print(&memory, "bob", &hash, b"y"));
    assert_ne!(print, checks::print(&Memory::new(10), "bob", &hash, b"x"), "another process has another key");
}

#[tokio::test]
async fn an_unknown_user_takes_as_long_as_a_known_one() {
    let machine = Machine::default();
    let trial = trial(&machine.world(), &json!({}));
    // Also the first request of all, a consumer without a password, and one whose password is in clear.
    for (n, user) in ["mallory", "bob", "guest", "alice"].into_iter().enumerate() {
        assert_eq!(caller(&trial, &basic(user, "wrong")).await, "401 password_wrong");
        assert_eq!(machine.threads.taken(), n + 1, "{user}");
    }
}

#[test]
fn the_decoy_costs_what_the_last_hash_costs() {
    let decoy = Decoy::default();
    let nobody = gateway_core::consumer::Consumers::default();
    assert!(decoy.get(&nobody).is_none());
    for text in [BCRYPT, ARGON2ID, APR1] {
        decoy.learn(&Stored::hash(text).expect("a hash"));
        assert_eq!(decoy.get(&nobody).expect("a hash").text(), text);
    }
    decoy.learn(&Stored::plain("secret"));
    assert_eq!(decoy.get(&nobody).expect("a hash").text(), APR1);
}

#[tokio::test]
async fn too_many_checks_are_refused_and_leave_no_place_taken() {
    let machine = Machine::default();
    let config = json!({ "max_concurrent_checks": 1, "max_waiting_checks": 1 });
    let trial = trial(&machine.world(), &config);
    let (good, plain) = (basic("bob", "correct horse"), basic("alice", "sesame: open"));
    for _ in 0..3 {
        machine.threads.stop();
        let wrong = basic("bob", "wrong");
        let fields = [("authorization", &*wrong)];
        let (mut first, mut second) = (Box::pin(trial.get("/", &fields)), Box::pin(trial.get("/", &fields)));
        assert!((&mut first).now_or_never().is_none());
        assert!((&mut second).now_or_never().is_none());
        let got = trial.get("/", &[("authorization", &good)]).await;
        assert_eq!((got.status, got.field("retry-after")), (503, "1"));
        assert_eq!(trial.records().pop().and_then(|it| it.reason), Some("password_checks_busy"));
        assert_eq!(caller(&trial, &plain).await, "alice", "what is quick to check does not wait");
        // One client goes away while it waits, the other gets its answer.
        drop(second);
        machine.threads.go_on();
        assert_eq!(first.await.status, 401);
    }
    assert_eq!(caller(&trial, &good).await, "bob");
}

#[tokio::test(start_paused = true)]
async fn files_are_read_again_and_bad_ones_change_nothing() {
    let machine = Machine::default();
    machine.files.put("users", &format!("dave:{BCRYPT}\n"));
    let config = json!({ "htpasswd_files": ["users"], "refresh": "5s" });
    let config = serde_json::from_value(config).expect("settings");
    let plugin = BasicAuth::build(config, &machine.world()).unwrap_or_else(|problems| panic!("{problems}"));
    let (handle, control) = TaskControl::new();
    let every = plugin.refresh.duration();
    let run = tokio::spawn(plugin.users.clone().keep_fresh(every, control));
    let settle = async || {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    };
    settle().await;
    machine.files.put("users", &format!("erin:{BCRYPT}\n"));
    tokio::time::advance(Duration::from_secs(5)).await;
    settle().await;
    assert!(plugin.users.get().get("dave").is_none() && plugin.users.get().get("erin").is_some());
    machine.files.put("users", "erin:secret\n");
    tokio::time::advance(Duration::from_secs(5)).await;
    let error = run.await.expect("no panic").expect_err("the file is bad");
    let error = error.to_string();
    assert!(error.contains("line 1") && !error.contains("secret"), "{error}");
    assert!(plugin.users.get().get("erin").is_some(), "what was in force stays in force");
    drop(handle);
}

#[test]
fn settings_and_files_that_can_not_be_used() {
    let machine = Machine::default();
    for (file, why) in [
        ("dave\n", "line 1: there is no `:`"),
        ("# x\n:hash\n", "line 2: there is no name"),
        ("dave:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n", "has no salt"),
        ("dave:plain text\n", "is not a hash"),
        (&format!("dave:{BCRYPT}\ndave:{APR1}\n"), "line 2: `dave` is there twice"),
    ] {
        machine.files.put("users", file);
        let config = serde_json::from_value(json!({ "htpasswd_files": ["users"] })).expect("settings");
        let Err(problems) = BasicAuth::build(config, &machine.world()) else { panic!("took {file}") };
        assert_eq!(problems.0[0].path, "config.htpasswd_files[0]");
        assert!(problems.to_string().contains(why), "{problems}");
        assert!(!problems.to_string().contains("5en6G6"), "no hash is shown");
    }
    for (config, path) in [
        (json!({ "realm": "a\"b" }), "config.realm"),
        (json!({ "realm": "" }), "config.realm"),
        (json!({ "realm": "ü" }), "config.realm"),
        (json!({ "refresh": 0 }), "config.refresh"),
        (json!({ "htpasswd_files": ["none"] }), "config.htpasswd_files[0]"),
        (json!({ "max_concurrent_checks": 0 }), "config.max_concurrent_checks"),
        (json!({ "max_waiting_checks": 100_000 }), "config.max_waiting_checks"),
        (json!({ "cache_ttl": "2d" }), "config.cache_ttl"),
        (json!({ "cached_passwords": 2_000_000 }), "config.cached_passwords"),
    ] {
        assert_eq!(
            Trial::refused(&[entry::<BasicAuth>()], "basic_auth", &config).0[0].path,
            path,
            "{config}"
        );
    }
}
