//! What is decided without a directory, and what settings mean. With a real directory: the package `tests`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gateway_core::plugin::entry;
use gateway_core::testing::{Got, Trial};
use gateway_plugin_common::testing::{Machine, metric};
use serde_json::{Value, json};

use super::settings::{Users, bind_name};
use super::*;

fn config() -> Value {
    json!({ "urls": ["ldaps://ldap.test"], "bind_dn": "uid={username},dc=test", "timeout": "1s" })
}

fn trial(more: Value, world: &World) -> Trial {
    let mut config = config();
    for (name, value) in more.as_object().unwrap() {
        config[name] = value.clone();
    }
    let spec = json!({
        "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "t.test", "backend_port": 80 }],
        "consumers": [{ "id": "g", "username": "guest" }],
        "plugin_configs": [{ "id": "p", "plugin_name": "ldap_auth", "proxy_id": "a", "config": config }],
    });
    Trial::of_spec(&[entry::<LdapAuth>()], &spec.to_string(), world)
}

async fn ask(trial: &Trial, user: &str, password: &str) -> Got {
    let credentials = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
    trial.get("/", &[("authorization", &credentials)]).await
}

#[tokio::test(start_paused = true)]
async fn some_credentials_are_refused_without_asking() {
    let world = World::default();
    let trial = trial(json!({ "realm": "Shop" }), &world);
    for (user, password) in [("ann", ""), (" ann", "x"), ("ann ", "x"), ("a  nn", "x"), ("ann", "x\0y")] {
        let got = ask(&trial, user, password).await;
        assert_eq!(
            (got.status, got.field("www-authenticate")),
            (401, "Basic realm=\"Shop\", charset=\"UTF-8\"")
        );
    }
    assert_eq!(metric(&world, PASSWORDS.name, &["refused"]), 5);
    assert_eq!(trial.get("/", &[]).await.json()["code"], "password_missing");
}

#[tokio::test]
async fn requests_without_a_password_may_count_as_somebody() {
    let trial = trial(json!({ "anonymous": "guest" }), &World::default());
    assert_eq!(trial.get("/", &[]).await.status, 200);
    assert_eq!(trial.records()[0].caller.as_deref(), Some("guest"));
    assert_eq!(ask(&trial, "ann", "").await.status, 401);
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_nobody_is_let_in_and_the_queue_is_bounded() {
    // Nobody serves the queue.
    let world = World::default();
    let trial = trial(json!({ "max_connections": 1, "max_waiting": 1 }), &world);
    let ask = |user| ask(&trial, user, "x");
    let (first, second, third) = tokio::join!(ask("ann"), ask("bob"), ask("cas"));
    for waited in [first, second] {
        assert_eq!((waited.status, waited.json()["code"].as_str()), (503, Some("ldap_failed")));
    }
    let code = third.json()["code"].as_str().unwrap().to_owned();
    assert_eq!((third.status, code.as_str(), third.field("retry-after")), (503, "ldap_busy", "1"));
    for (result, count) in [("failed", 2), ("busy", 1)] {
        assert_eq!(metric(&world, PASSWORDS.name, &[result]), count, "{result}");
    }
}

fn directory(more: Value) -> settings::Directory {
    let mut all = config();
    for (name, value) in more.as_object().unwrap() {
        all[name] = value.clone();
    }
    if all.get("search").is_some() {
        all.as_object_mut().unwrap().remove("bind_dn");
    }
    let mut problems = Problems::default();
    let mut config = serde_json::from_value(all).unwrap();
    let directory = settings::read(&mut config, &World::default(), &mut problems);
    directory.unwrap_or_else(|| panic!("{problems}"))
}

#[test]
fn what_users_write_never_changes_a_name_or_a_filter() {
    assert_eq!(bind_name("uid={username},dc=a", "x,dc=b"), r"uid=x\2cdc\3db,dc=a");
    let hostile = bind_name("{username}", "#x+y=\"<>;,\\");
    assert!(hostile.chars().all(|c| c.is_ascii_alphanumeric() || c == '\\'), "{hostile}");
    let searched = directory(json!({
        "search": { "base_dn": "dc=a" },
        "group_search": { "base_dn": "dc=g", "filter": "(|(member={dn})(memberUid={username}))" },
    }));
    let Users::Searched(search) = &searched.users else { panic!("it is searched") };
    assert_eq!(search.filter("*)(uid=*"), r"(uid=\2a\29\28uid=\2a)");
    let groups = searched.groups.unwrap();
    assert_eq!(groups.filter("{dn}", "cn=(*)"), r"(|(member=cn=\28\2a\29)(memberUid={dn}))");
}

#[test]
fn bad_settings_are_refused() {
    let search = json!({ "base_dn": "dc=a" });
    let machine = Machine::default();
    machine.files.put("empty.pem", "");
    for (config, path) in [
        (json!({ "bind_dn": "uid={username}" }), "config.urls"),
        (json!({ "urls": ["http://a"], "search": search }), "config.urls[0]"),
        (json!({ "urls": ["ldap://a"], "search": search }), "config.urls[0]"),
        (json!({ "urls": ["ldaps://a/dc=b"], "search": search }), "config.urls[0]"),
        (json!({ "urls": ["ldaps://u:p@a"], "search": search }), "config.urls[0]"),
        (json!({ "urls": ["ldaps://a"], "start_tls": true, "search": search }), "config.urls[0]"),
        (json!({ "urls": ["ldaps://a"] }), "config.bind_dn"),
        (json!({ "urls": ["ldaps://a"], "bind_dn": "uid={username}", "search": search }), "config.bind_dn"),
        (json!({ "urls": ["ldaps://a"], "bind_dn": "uid=ann" }), "config.bind_dn"),
        (
            json!({ "urls": ["ldaps://a"], "bind_dn": "uid={username}", "name_attribute": "uid" }),
            "config.name_attribute",
        ),
        (
            json!({ "urls": ["ldaps://a"], "bind_dn": "uid={username}", "group_attribute": "memberOf" }),
            "config.group_attribute",
        ),
        (
            json!({ "urls": ["ldaps://a"], "search": { "base_dn": "", "filter": "(uid=ann)" } }),
            "config.search.filter",
        ),
        (
            json!({ "urls": ["ldaps://a"], "search": { "base_dn": "", "filter": "(uid={username}" } }),
            "config.search.filter",
        ),
        (
            json!({ "urls": ["ldaps://a"], "search": { "base_dn": "", "bind_dn": "cn=a" } }),
            "config.search.bind_dn",
        ),
        (
            json!({ "urls": ["ldaps://a"], "search": { "base_dn": "", "bind_dn": "cn=a", "bind_password": "" } }),
            "config.search.bind_dn",
        ),
        (
            json!({ "urls": ["ldaps://a"], "search": search, "group_attribute": "m", "group_search": { "base_dn": "" } }),
            "config.group_attribute",
        ),
        (
            json!({ "urls": ["ldaps://a"], "search": search, "group_search": { "base_dn": "", "filter": "(cn=a)" } }),
            "config.group_search.filter",
        ),
        (json!({ "urls": ["ldaps://a"], "search": search, "ca_path": "none.pem" }), "config.ca_path"),
        (json!({ "urls": ["ldaps://a"], "search": search, "ca_path": "empty.pem" }), "config.ca_path"),
        (json!({ "urls": ["ldaps://a"], "search": search, "realm": "a\"b" }), "config.realm"),
    ] {
        let read = serde_json::from_value(config.clone()).unwrap();
        let Err(problems) = LdapAuth::build(read, &machine.world()) else { panic!("{config} is taken") };
        assert_eq!(problems.0[0].path, path, "{config}: {problems}");
    }
}
